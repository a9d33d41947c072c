-- Share of one leaf in the steps of each rank, over the run: the straggler is the rank with little communication
-- parameter leaf communication text Leaf, as `gpuwhy report` names it
-- parameter steps 10 1 1000000 Steps of a cell
-- parameter rows 1000 1 1000000 Rows to show
WITH time_of AS (
  SELECT run, rank, step - step % {steps} AS first_step, SUM(duration_ns) AS cell_ns FROM steps
  GROUP BY run, rank, step - step % {steps}
), leaf_of AS (
  SELECT run, rank, step - step % {steps} AS first_step, SUM(duration_ns) AS leaf_ns FROM step_leaves WHERE leaf = {leaf}
  GROUP BY run, rank, step - step % {steps}
)
SELECT t.run AS run, t.rank AS rank, t.first_step AS first_step, t.cell_ns AS cell_ns,
  1e0 * COALESCE(l.leaf_ns, 0) / NULLIF(t.cell_ns, 0) AS leaf_share
FROM time_of t LEFT JOIN leaf_of l ON l.run = t.run AND l.rank = t.rank AND l.first_step = t.first_step
ORDER BY run, first_step, rank
LIMIT {rows}
