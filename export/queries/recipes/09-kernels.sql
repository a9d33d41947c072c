-- Kernels by name
-- parameter rows 50 1 100000 Rows to show
SELECT run, name, COUNT(*) AS launches, COUNT(DISTINCT rank) AS ranks, SUM(duration_ns) AS total_ns,
  AVG(duration_ns) AS mean_ns, MIN(duration_ns) AS least_ns, MAX(duration_ns) AS most_ns
FROM kernels
GROUP BY run, name
ORDER BY total_ns DESC, run, name
LIMIT {rows}
