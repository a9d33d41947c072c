-- CUDA API Summary
SELECT {share}, COUNT(*) AS "Num Calls", {spread}, {call} AS "Name"
FROM api
WHERE end_ns >= :from AND start_ns <= :until
GROUP BY function
ORDER BY "Total Time (ns)" DESC, "Name"
