-- NVTX Range Kernel Summary
WITH instances AS (
  SELECT r.number, domain || ':' || text AS range, kind, r.thread, k.duration_ns, k.name, k.mangled_name
  FROM range_calls AS c
  JOIN nested_ranges AS r ON r.number = c.number
  JOIN kernels AS k ON k.correlation = c.correlation
  WHERE r.end_ns >= :from AND r.start_ns <= :until
  UNION ALL
  SELECT NULL, NULL, NULL, a.thread, k.duration_ns, k.name, k.mangled_name
  FROM kernels AS k
  JOIN api AS a ON a.correlation = k.correlation
  WHERE k.correlation NOT IN (SELECT correlation FROM range_calls) AND k.end_ns >= :from AND k.start_ns <= :until
)
SELECT range AS "NVTX Range", CASE kind WHEN 'start' THEN 'StartEnd' WHEN 'push' THEN 'PushPop' END AS "Style",
  :process AS "PID", thread AS "TID", COUNT(DISTINCT number) AS "NVTX Inst", COUNT(*) AS "Kern Inst",
  SUM(duration_ns) AS "Total Time (ns)", {spread}, name AS "Kernel Name"
FROM instances
GROUP BY range, kind, thread, mangled_name
ORDER BY "NVTX Range", thread, "Total Time (ns)" DESC, "Style", "Kernel Name"
-- lacks operations whose launching call is not in the trace are in no range
SELECT COUNT(*) FROM kernels WHERE correlation NOT IN (SELECT correlation FROM api)
