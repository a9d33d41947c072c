-- Most memory that each rank held, by device and kind, without variables of modules
-- parameter rows 100 1 1000000 Rows to show
WITH changes AS (
  SELECT run, rank, device, memory, at_ns, address,
    CASE WHEN operation = 'allocation' THEN bytes ELSE -bytes END AS change
  FROM memory
  WHERE operation IN ('allocation', 'release') AND bytes IS NOT NULL AND name IS NULL
), at_once AS (
  SELECT run, rank, device, memory, at_ns, SUM(change) AS change, COUNT(*) AS events FROM changes
  GROUP BY run, rank, device, memory, at_ns
), held AS (
  SELECT run, rank, device, memory, events, SUM(change) OVER (
    PARTITION BY run, rank, device, memory ORDER BY at_ns ROWS UNBOUNDED PRECEDING) AS held_bytes
  FROM at_once
)
SELECT run, rank, device, memory, MAX(held_bytes) AS peak_bytes, SUM(events) AS events
FROM held
GROUP BY run, rank, device, memory
ORDER BY peak_bytes DESC, run, rank, device, memory
LIMIT {rows}
