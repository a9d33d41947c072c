-- NVTX Push/Pop Range Summary
SELECT {share}, COUNT(*) AS "Instances", {spread}, domain || ':' || text AS "Range"
FROM nvtx
WHERE kind = 'push' AND end_ns >= :from AND start_ns <= :until
GROUP BY domain, text
ORDER BY "Total Time (ns)" DESC, "Range"
