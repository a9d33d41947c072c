-- NVTX Range Summary
SELECT {share}, COUNT(*) AS "Instances", {spread}, CASE kind WHEN 'start' THEN 'StartEnd' ELSE 'PushPop' END AS "Style",
  domain || ':' || text AS "Range"
FROM nvtx
WHERE kind <> 'mark' AND end_ns >= :from AND start_ns <= :until
GROUP BY domain, text, kind
ORDER BY "Total Time (ns)" DESC, "Range", "Style"
