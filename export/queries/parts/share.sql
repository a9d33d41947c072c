100 * TOTAL(duration_ns) / TOTAL(TOTAL(duration_ns)) OVER () AS "Time (%)", SUM(duration_ns) AS "Total Time (ns)"
