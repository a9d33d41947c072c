-- CUDA GPU MemOps Summary (by Time)
SELECT {share}, COUNT(*) AS "Count", {spread}, name AS "Operation"
FROM ({memory_operations})
WHERE end_ns >= :from AND start_ns <= :until
GROUP BY name
ORDER BY "Total Time (ns)" DESC, "Operation"
