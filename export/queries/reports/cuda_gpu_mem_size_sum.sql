-- CUDA GPU MemOps Summary (by Size)
SELECT SUM(bytes) AS "Total (MB)", COUNT(*) AS "Count", AVG(bytes) AS "Avg (MB)", median(bytes) AS "Med (MB)",
  MIN(bytes) AS "Min (MB)", MAX(bytes) AS "Max (MB)", stdev(bytes) AS "StdDev (MB)", name AS "Operation"
FROM ({memory_operations})
WHERE end_ns >= :from AND start_ns <= :until
GROUP BY name
ORDER BY "Total (MB)" DESC, "Operation"
