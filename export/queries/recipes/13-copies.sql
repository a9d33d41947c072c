-- Copies by direction and memory, with their speed
-- parameter rows 50 1 100000 Rows to show
SELECT run, direction, source, destination, COUNT(*) AS copies, SUM(bytes) AS bytes, SUM(duration_ns) AS total_ns,
  1e0 * SUM(bytes) / NULLIF(SUM(duration_ns), 0) AS gbps, MIN(bytes) AS least_bytes, MAX(bytes) AS most_bytes
FROM copies
GROUP BY run, direction, source, destination
ORDER BY total_ns DESC, run, direction, source, destination
LIMIT {rows}
