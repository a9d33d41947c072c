100.0 * of_spread(spread(duration_ns), 0) / TOTAL(of_spread(spread(duration_ns), 0)) OVER () AS "Time (%)",
  of_spread(spread(duration_ns), 0) AS "Total Time (ns)"
