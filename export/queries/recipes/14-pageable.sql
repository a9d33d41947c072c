-- Copies from or to pageable memory, which cannot run concurrently
-- parameter rows 50 1 100000 Rows to show
SELECT run, rank, direction, COUNT(*) AS copies, SUM(bytes) AS bytes, SUM(duration_ns) AS total_ns,
  1e0 * SUM(bytes) / NULLIF(SUM(duration_ns), 0) AS gbps
FROM copies
WHERE source = 'pageable' OR destination = 'pageable'
GROUP BY run, rank, direction
ORDER BY total_ns DESC, run, rank, direction
LIMIT {rows}
