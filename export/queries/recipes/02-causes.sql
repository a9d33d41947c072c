-- Device time of each rank by cause and leaf
-- parameter rows 200 1 1000000 Rows to show
WITH whole AS (
  SELECT run, rank, device, SUM(duration_ns) AS device_ns FROM leaves GROUP BY run, rank, device
)
SELECT l.run AS run, l.rank AS rank, l.device AS device, l.cause AS cause, l.leaf AS leaf,
  l.duration_ns AS duration_ns, 1e0 * l.duration_ns / w.device_ns AS device_share
FROM leaves l JOIN whole w ON w.run = l.run AND w.rank = l.rank AND w.device = l.device
WHERE l.duration_ns > 0
ORDER BY run, rank, device, duration_ns DESC, leaf
LIMIT {rows}
