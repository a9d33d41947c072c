-- CUDA GPU Summary (Kernels/MemOps)
WITH operations AS (
  SELECT 'CUDA_KERNEL' AS category, name AS operation, mangled_name AS key, start_ns, end_ns, duration_ns FROM kernels
  UNION ALL
  SELECT 'MEMORY_OPER', name, name, start_ns, end_ns, duration_ns FROM ({memory_operations})
)
SELECT {share}, COUNT(*) AS "Instances", {spread}, category AS "Category", operation AS "Operation"
FROM operations
WHERE end_ns >= :from AND start_ns <= :until
GROUP BY category, key
ORDER BY "Total Time (ns)" DESC, "Operation"
