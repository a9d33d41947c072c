-- Kernels by name over time: whether one becomes slower
-- parameter milliseconds 1000 1 86400000 Length of a cell
-- parameter rows 1000 1 1000000 Rows to show
WITH placed AS (
  SELECT k.run AS run, k.name AS name, k.duration_ns AS duration_ns,
    (k.start_ns - p.start_ns) - (k.start_ns - p.start_ns) % ({milliseconds} * 1000000) AS since_ns
  FROM kernels k JOIN processes p ON p.run = k.run AND p.rank = k.rank
)
SELECT run, name, since_ns, COUNT(*) AS launches, SUM(duration_ns) AS total_ns, AVG(duration_ns) AS mean_ns
FROM placed
GROUP BY run, name, since_ns
ORDER BY run, since_ns, total_ns DESC, name
LIMIT {rows}
