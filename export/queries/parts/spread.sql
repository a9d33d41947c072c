AVG(duration_ns) AS "Avg (ns)", median(duration_ns) AS "Med (ns)", MIN(duration_ns) AS "Min (ns)",
  MAX(duration_ns) AS "Max (ns)", stdev(duration_ns) AS "StdDev (ns)"
