-- CUDA GPU Summary (Kernels/MemOps)
WITH operations AS (
  {gpu_operations}
)
SELECT {share}, COUNT(*) AS "Instances", {spread}, category AS "Category", operation AS "Operation"
FROM operations
WHERE end_ns >= :from AND start_ns <= :until
GROUP BY category, key
ORDER BY "Total Time (ns)" DESC, "Operation"
