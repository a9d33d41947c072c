ordered AS (
  SELECT ROW_NUMBER() OVER (ORDER BY at_ns) AS number, at_ns, operation, memory, device, context, stream, correlation,
    address, bytes, name, pool, pool_bytes
  FROM memory
  WHERE at_ns > 0
),
paired AS (
  SELECT number, LAG(operation) OVER at_address AS before, LAG(bytes) OVER at_address AS bytes_before,
    LAG(device) OVER at_address AS device_before, LAG(memory) OVER at_address AS memory_before,
    LAG(name) OVER at_address AS name_before
  FROM ordered
  WHERE operation IN ('allocation', 'release')
  WINDOW at_address AS (PARTITION BY address ORDER BY number)
),
-- A release has the place and size of its allocation; one without an allocation has no effect. Variables of modules
-- lie inside the memory of their module, which nothing reports.
changes AS (
  SELECT o.number, at_ns, operation, memory, device, context, stream, correlation, address, bytes, name, pool,
    pool_bytes, CASE WHEN operation = 'release' AND before = 'allocation' THEN device_before ELSE device END AS owner,
    CASE WHEN operation = 'release' AND before = 'allocation' THEN memory_before ELSE memory END AS kind,
    CASE WHEN name IS NOT NULL OR (operation = 'release' AND name_before IS NOT NULL) THEN 0
      WHEN operation = 'allocation' THEN bytes WHEN operation = 'release' AND before = 'allocation'
      THEN -bytes_before END AS change
  FROM ordered AS o
  LEFT JOIN paired AS p ON p.number = o.number
),
events AS (
  SELECT *, IFNULL(SUM(change) OVER (PARTITION BY owner, kind ORDER BY number ROWS UNBOUNDED PRECEDING), 0)
    AS held_by_owner
  FROM changes
)
