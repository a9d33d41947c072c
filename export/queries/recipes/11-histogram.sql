-- Kernels by their duration
-- parameter rows 1000 1 1000000 Rows to show
WITH classed AS (
  SELECT run, duration_ns,
    CASE WHEN duration_ns < 2000 THEN 0 WHEN duration_ns < 5000 THEN 2000 WHEN duration_ns < 10000 THEN 5000
      WHEN duration_ns < 20000 THEN 10000 WHEN duration_ns < 50000 THEN 20000 WHEN duration_ns < 100000 THEN 50000
      WHEN duration_ns < 200000 THEN 100000 WHEN duration_ns < 500000 THEN 200000 WHEN duration_ns < 1000000 THEN 500000
      WHEN duration_ns < 10000000 THEN 1000000 ELSE 10000000 END AS from_ns
  FROM kernels
)
SELECT run, from_ns, COUNT(*) AS launches, SUM(duration_ns) AS total_ns
FROM classed
GROUP BY run, from_ns
ORDER BY run, from_ns
LIMIT {rows}
