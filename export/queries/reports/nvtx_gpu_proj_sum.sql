-- NVTX GPU Projection Summary
WITH {projected_ranges}
SELECT name AS "Range", CASE kind WHEN 'start' THEN 'StartEnd' ELSE 'PushPop' END AS "Style",
  SUM(projected_ns) AS "Total Proj Time (ns)", SUM(duration_ns) AS "Total Range Time (ns)",
  COUNT(*) AS "Range Instances", AVG(projected_ns) AS "Proj Avg (ns)", median(projected_ns) AS "Proj Med (ns)",
  MIN(projected_ns) AS "Proj Min (ns)", MAX(projected_ns) AS "Proj Max (ns)", stdev(projected_ns) AS "Proj StdDev (ns)",
  SUM(operations) AS "Total GPU Ops", AVG(operations) AS "Avg GPU Ops", AVG(level) AS "Avg Range Lvl",
  AVG(IFNULL(ranges, 0)) AS "Avg Num Child"
FROM ranges AS r
LEFT JOIN children AS c ON c.parent = r.number
GROUP BY name, kind
ORDER BY "Total Proj Time (ns)" DESC, "Range", "Style"
-- lacks operations whose launching call is not in the trace are in no range
SELECT COUNT(*) FROM ({device_work}) WHERE correlation NOT IN (SELECT correlation FROM api)
