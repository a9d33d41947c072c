-- Work of each rank compared with the mean of its run: computation of a step, and everything but communication
-- parameter rows 100 1 1000000 Rows to show
WITH step_count AS (
  SELECT run, rank, COUNT(*) AS steps FROM steps GROUP BY run, rank
), worked AS (
  SELECT run, rank, SUM(CASE WHEN leaf = 'compute' THEN duration_ns ELSE 0 END) AS compute_ns,
    SUM(CASE WHEN leaf <> 'communication' THEN duration_ns ELSE 0 END) AS own_ns
  FROM step_leaves GROUP BY run, rank
), of_step AS (
  SELECT c.run AS run, c.rank AS rank, c.steps AS steps, 1e0 * w.compute_ns / c.steps AS compute_ns,
    1e0 * w.own_ns / c.steps AS own_ns
  FROM step_count c JOIN worked w ON w.run = c.run AND w.rank = c.rank
), means AS (
  SELECT run, COUNT(*) AS ranks, AVG(compute_ns) AS compute_ns, AVG(own_ns) AS own_ns FROM of_step GROUP BY run
)
SELECT s.run AS run, s.rank AS rank, s.steps AS steps, s.compute_ns AS compute_ns, s.own_ns AS own_ns,
  s.compute_ns / NULLIF(m.compute_ns, 0) AS compute_by_mean, s.own_ns / NULLIF(m.own_ns, 0) AS own_by_mean,
  m.ranks AS ranks
FROM of_step s JOIN means m ON m.run = s.run
ORDER BY run, own_ns DESC, rank
LIMIT {rows}
