of_spread(spread(duration_ns), 3) AS "Avg (ns)", of_spread(spread(duration_ns), 4) AS "Med (ns)",
  of_spread(spread(duration_ns), 1) AS "Min (ns)", of_spread(spread(duration_ns), 2) AS "Max (ns)",
  of_spread(spread(duration_ns), 5) AS "StdDev (ns)"
