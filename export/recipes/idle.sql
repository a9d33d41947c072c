-- Time in which nothing ran on a device, by leaf: all ranks, and the one that idles most
-- parameter rows 50 1 100000 Rows to show
WITH idle AS (
  SELECT run, rank, cause, leaf, SUM(duration_ns) AS idle_ns FROM leaves WHERE NOT busy GROUP BY run, rank, cause, leaf
), placed AS (
  SELECT run, rank, cause, leaf, idle_ns,
    ROW_NUMBER() OVER (PARTITION BY run, leaf ORDER BY idle_ns DESC, rank) AS place
  FROM idle
)
SELECT run, cause, leaf, COUNT(*) AS ranks, SUM(idle_ns) AS idle_ns, MAX(idle_ns) AS most_ns,
  MAX(CASE WHEN place = 1 THEN rank ELSE 0 END) AS most_rank
FROM placed
WHERE idle_ns > 0
GROUP BY run, cause, leaf
ORDER BY run, idle_ns DESC, leaf
LIMIT {rows}
