-- Copies and memsets that were not issued as asynchronous
-- parameter rows 50 1 100000 Rows to show
WITH operations AS (
  SELECT run, rank, direction AS what, bytes, duration_ns FROM copies WHERE NOT asynchronous
  UNION ALL
  SELECT run, rank, 'memset' AS what, bytes, duration_ns FROM memsets WHERE NOT asynchronous
)
SELECT run, rank, what, COUNT(*) AS operations, SUM(bytes) AS bytes, SUM(duration_ns) AS total_ns
FROM operations
GROUP BY run, rank, what
ORDER BY total_ns DESC, run, rank, what
LIMIT {rows}
