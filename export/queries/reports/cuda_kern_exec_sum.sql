-- CUDA Kernel Launch & Exec Time Summary
WITH launches AS (
  SELECT a.thread, k.device, a.function, k.name, k.mangled_name, MAX(k.end_ns, a.end_ns) - a.start_ns AS total,
    a.duration_ns AS call, CASE WHEN k.start_ns > a.end_ns THEN k.start_ns - a.end_ns END AS queue,
    k.duration_ns AS kernel
  FROM kernels AS k
  JOIN api AS a ON a.correlation = k.correlation
  WHERE k.end_ns >= :from AND k.start_ns <= :until
)
SELECT :process AS "PID", thread AS "TID", device AS "DevId", COUNT(*) AS "Count", COUNT(queue) AS "QCount",
  AVG(total) AS "TAvg (ns)", median(total) AS "TMed (ns)", MIN(total) AS "TMin (ns)", MAX(total) AS "TMax (ns)",
  stdev(total) AS "TStdDev (ns)",
  AVG(call) AS "AAvg (ns)", median(call) AS "AMed (ns)", MIN(call) AS "AMin (ns)", MAX(call) AS "AMax (ns)",
  stdev(call) AS "AStdDev (ns)",
  AVG(queue) AS "QAvg (ns)", median(queue) AS "QMed (ns)", MIN(queue) AS "QMin (ns)", MAX(queue) AS "QMax (ns)",
  IFNULL(stdev(queue), 0.0) AS "QStdDev (ns)",
  AVG(kernel) AS "KAvg (ns)", median(kernel) AS "KMed (ns)", MIN(kernel) AS "KMin (ns)", MAX(kernel) AS "KMax (ns)",
  stdev(kernel) AS "KStdDev (ns)",
  {call} AS "API Name", name AS "Kernel Name"
FROM launches
GROUP BY thread, device, function, mangled_name
ORDER BY SUM(total) DESC, thread, device, "API Name", "Kernel Name"
-- lacks kernels whose launching call is not in the trace are left out
SELECT COUNT(*) FROM kernels WHERE correlation NOT IN (SELECT correlation FROM api)
