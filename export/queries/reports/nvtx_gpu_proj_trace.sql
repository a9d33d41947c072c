-- NVTX GPU Projection Trace
WITH {projected_ranges}
SELECT name AS "Name", first - :origin AS "Projected Start (ns)", projected_ns AS "Projected Duration (ns)",
  start_ns - :origin AS "Orig Start (ns)", duration_ns AS "Orig Duration (ns)",
  CASE kind WHEN 'start' THEN 'StartEnd' ELSE 'PushPop' END AS "Style", :process AS "PID", thread AS "TID",
  operations AS "NumGPUOps", level AS "Lvl", IFNULL(ranges, 0) AS "NumChild", number AS "RangeId",
  r.parent AS "ParentId", numbers AS "RangeStack"
FROM ranges AS r
LEFT JOIN children AS c ON c.parent = r.number
ORDER BY number
-- lacks operations whose launching call is not in the trace are in no range
SELECT COUNT(*) FROM ({device_work}) WHERE correlation NOT IN (SELECT correlation FROM api)
-- lacks ranges lie in 128 others or more, of which the innermost are shown; was a pop forgotten?
SELECT COUNT(*) FROM nested_ranges WHERE level >= 128
