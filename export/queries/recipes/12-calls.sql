-- CUDA calls by function
-- parameter rows 50 1 100000 Rows to show
SELECT run, domain, name, COUNT(*) AS calls, COUNT(DISTINCT rank) AS ranks, SUM(duration_ns) AS total_ns,
  AVG(duration_ns) AS mean_ns, MAX(duration_ns) AS most_ns,
  SUM(CASE WHEN return_value <> 0 THEN 1 ELSE 0 END) AS failed
FROM api
GROUP BY run, domain, name
ORDER BY total_ns DESC, run, domain, name
LIMIT {rows}
