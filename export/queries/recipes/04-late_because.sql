-- Causes on which a rank spends more of a step than the median of its role
-- A role is the ranks whose typical step has equally many operations: pipeline stages differ by design. Communication
-- is left out, because it holds the waiting for others.
-- parameter rows 20 1 100000 Rows to show
-- parameter excess_us 20 0 1000000000 Least excess of a step, microseconds
WITH numbered AS (
  SELECT run, rank, operations, ROW_NUMBER() OVER (PARTITION BY run, rank ORDER BY operations, device, step) AS place,
    COUNT(*) OVER (PARTITION BY run, rank) AS steps
  FROM steps
), roles AS (
  SELECT run, rank, steps, operations AS role_operations FROM numbered WHERE 2 * place = steps + steps % 2
), spent AS (
  SELECT run, rank, leaf, SUM(duration_ns) AS spent_ns FROM step_leaves WHERE leaf <> 'communication'
  GROUP BY run, rank, leaf
), kinds AS (
  SELECT r.run AS run, r.role_operations AS role_operations, s.leaf AS leaf
  FROM roles r JOIN spent s ON s.run = r.run AND s.rank = r.rank
  GROUP BY r.run, r.role_operations, s.leaf
), own AS (
  SELECT r.run AS run, r.rank AS rank, r.role_operations AS role_operations, k.leaf AS leaf,
    COALESCE(1e0 * s.spent_ns / r.steps, 0e0) AS step_ns
  FROM roles r
  JOIN kinds k ON k.run = r.run AND k.role_operations = r.role_operations
  LEFT JOIN spent s ON s.run = r.run AND s.rank = r.rank AND s.leaf = k.leaf
), placed AS (
  SELECT run, rank, role_operations, leaf, step_ns,
    ROW_NUMBER() OVER (PARTITION BY run, role_operations, leaf ORDER BY step_ns, rank) AS place,
    COUNT(*) OVER (PARTITION BY run, role_operations, leaf) AS ranks
  FROM own
), medians AS (
  SELECT run, role_operations, leaf, MAX(ranks) AS ranks, AVG(step_ns) AS median_ns
  FROM placed
  WHERE 2 * place >= ranks AND 2 * place <= ranks + 2
  GROUP BY run, role_operations, leaf
)
SELECT o.run AS run, o.rank AS rank, o.leaf AS leaf, o.step_ns - m.median_ns AS excess_ns, o.step_ns AS step_ns,
  m.median_ns AS median_ns, m.ranks AS role_ranks, o.role_operations AS role_operations
FROM own o
JOIN medians m ON m.run = o.run AND m.role_operations = o.role_operations AND m.leaf = o.leaf
WHERE m.ranks > 1 AND o.step_ns - m.median_ns >= 1e3 * {excess_us}
ORDER BY run, excess_ns DESC, rank, leaf
LIMIT {rows}
