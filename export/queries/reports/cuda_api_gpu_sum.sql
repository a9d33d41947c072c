-- CUDA Summary (API/Kernels/MemOps)
WITH operations AS (
  SELECT 'CUDA_API' AS category, {call} AS operation, function AS key, start_ns, end_ns, duration_ns FROM api
  UNION ALL
  {gpu_operations}
)
SELECT {share}, COUNT(*) AS "Instances", {spread}, category AS "Category", operation AS "Operation"
FROM operations
WHERE end_ns >= :from AND start_ns <= :until
GROUP BY category, key
ORDER BY "Total Time (ns)" DESC, "Operation"
