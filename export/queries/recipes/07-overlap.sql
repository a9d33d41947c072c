-- Communication of each rank that computation hides, and that it does not
-- Operations that overlap each other count each, so hidden time can be overestimated there.
-- parameter rows 100 1 1000000 Rows to show
WITH communicated AS (
  SELECT run, rank, COUNT(*) AS operations, SUM(end_ns - start_ns) AS communication_ns FROM collectives GROUP BY run, rank
), exposed AS (
  SELECT run, rank, SUM(duration_ns) AS exposed_ns FROM leaves WHERE leaf = 'communication' GROUP BY run, rank
)
SELECT c.run AS run, c.rank AS rank, c.operations AS operations, c.communication_ns AS communication_ns,
  e.exposed_ns AS exposed_ns, c.communication_ns - e.exposed_ns AS hidden_ns,
  1e0 * e.exposed_ns / NULLIF(c.communication_ns, 0) AS exposed_share
FROM communicated c JOIN exposed e ON e.run = c.run AND e.rank = c.rank
ORDER BY run, exposed_ns DESC, rank
LIMIT {rows}
