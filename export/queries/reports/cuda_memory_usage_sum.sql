-- CUDA Memory Usage Summary
WITH {memory_held},
pools AS (
  SELECT number, device,
    CASE operation WHEN 'pool_destroyed' THEN 0 ELSE pool_bytes END
      - IFNULL(LAG(CASE operation WHEN 'pool_destroyed' THEN 0 ELSE pool_bytes END)
        OVER (PARTITION BY pool ORDER BY number), 0) AS change
  FROM events
  WHERE pool IS NOT NULL
),
pooled AS (
  SELECT device, SUM(change) OVER (PARTITION BY device ORDER BY number ROWS UNBOUNDED PRECEDING) AS bytes FROM pools
),
peaks AS (SELECT owner, kind, MAX(held_by_owner) AS bytes FROM events GROUP BY owner, kind)
SELECT p.bytes AS "Peak (MB)",
  MIN(CASE WHEN held_by_owner = p.bytes THEN at_ns END) - :origin AS "Peak Time (ns)",
  SUM(change) AS "Current (MB)", COUNT(CASE operation WHEN 'allocation' THEN 1 END) AS "Allocations",
  COUNT(CASE operation WHEN 'release' THEN change END) AS "Releases",
  SUM(CASE operation WHEN 'allocation' THEN e.bytes END) AS "Allocated (MB)",
  MAX(CASE operation WHEN 'allocation' THEN e.bytes END) AS "Largest (MB)",
  CASE e.kind WHEN 'device' THEN IFNULL((SELECT MAX(bytes) FROM pooled WHERE device = e.owner), 0) ELSE 0 END
    AS "Pool Peak (MB)",
  :process AS "PID", e.owner AS "Device ID", upper(substr(e.kind, 1, 1)) || substr(e.kind, 2) AS "Memory Kind"
FROM events AS e
JOIN peaks AS p ON p.owner = e.owner AND p.kind = e.kind
WHERE name IS NULL
GROUP BY e.owner, e.kind
HAVING "Allocations" > 0
ORDER BY "Peak (MB)" DESC, e.owner, "Memory Kind"
-- lacks releases are of memory that was held before
WITH {memory_held}
SELECT COUNT(*) FROM events WHERE operation = 'release' AND change IS NULL
