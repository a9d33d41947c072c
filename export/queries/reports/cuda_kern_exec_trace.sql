-- CUDA Kernel Launch & Exec Time Trace
SELECT a.start_ns - :origin AS "API Start (ns)", a.duration_ns AS "API Dur (ns)",
  CASE WHEN k.start_ns > a.end_ns THEN a.end_ns - :origin END AS "Queue Start (ns)",
  CASE WHEN k.start_ns > a.end_ns THEN k.start_ns - a.end_ns END AS "Queue Dur (ns)",
  k.start_ns - :origin AS "Kernel Start (ns)", k.duration_ns AS "Kernel Dur (ns)",
  MAX(k.end_ns, a.end_ns) - a.start_ns AS "Total Dur (ns)",
  :process AS "PID", a.thread AS "TID", k.device AS "DevId", {call} AS "API Function",
  printf('%4d %4d %4d', grid_x, grid_y, grid_z) AS "GridXYZ",
  printf('%4d %4d %4d', block_x, block_y, block_z) AS "BlockXYZ",
  k.name AS "Kernel Name"
FROM kernels AS k
JOIN api AS a ON a.correlation = k.correlation
WHERE k.end_ns >= :from AND k.start_ns <= :until
ORDER BY a.start_ns, k.start_ns
-- lacks kernels whose launching call is not in the trace are left out
SELECT COUNT(*) FROM kernels WHERE correlation NOT IN (SELECT correlation FROM api)
