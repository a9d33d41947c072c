-- NVTX Push/Pop Range Trace
WITH children AS (
  SELECT parent, COUNT(*) AS ranges, SUM(duration_ns) AS ns FROM nested_pushes WHERE parent IS NOT NULL GROUP BY parent
)
SELECT start_ns - :origin AS "Start (ns)", end_ns - :origin AS "End (ns)", duration_ns AS "Duration (ns)",
  IFNULL(ns, 0) AS "DurChild (ns)", MAX(duration_ns - IFNULL(ns, 0), 0) AS "DurNonChild (ns)",
  domain || ':' || text AS "Name", :process AS "PID", thread AS "TID", level AS "Lvl", IFNULL(ranges, 0) AS "NumChild",
  number AS "RangeId", r.parent AS "ParentId", numbers AS "RangeStack",
  replace(hex(zeroblob(MIN(level, 128))), '00', '--') || domain || ':' || text AS "NameTree"
FROM nested_pushes AS r
LEFT JOIN children AS c ON c.parent = r.number
WHERE end_ns >= :from AND start_ns <= :until
ORDER BY number
-- lacks ranges lie in 128 others or more, of which the innermost are shown; was a pop forgotten?
SELECT COUNT(*) FROM nested_pushes WHERE level >= 128
