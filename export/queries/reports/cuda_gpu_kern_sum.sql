-- CUDA GPU Kernel Summary
SELECT {share}, COUNT(*) AS "Instances", {spread}, name AS "Name"
FROM kernels
WHERE end_ns >= :from AND start_ns <= :until
GROUP BY mangled_name
ORDER BY "Total Time (ns)" DESC, "Name"
