-- Kernels that are slower on a rank than on the median of the ranks that run them as often
-- parameter percent 10 0 100000 How much slower, percent
-- parameter rows 50 1 100000 Rows to show
WITH of_rank AS (
  SELECT run, rank, name, grid_x, grid_y, grid_z, COUNT(*) AS launches, SUM(duration_ns) AS total_ns,
    AVG(duration_ns) AS mean_ns
  FROM kernels WHERE NOT communication
  GROUP BY run, rank, name, grid_x, grid_y, grid_z
), placed AS (
  SELECT run, rank, name, grid_x, grid_y, grid_z, launches, total_ns, mean_ns,
    ROW_NUMBER() OVER (PARTITION BY run, name, grid_x, grid_y, grid_z, launches ORDER BY mean_ns, rank) AS place,
    COUNT(*) OVER (PARTITION BY run, name, grid_x, grid_y, grid_z, launches) AS ranks
  FROM of_rank
), medians AS (
  SELECT run, name, grid_x, grid_y, grid_z, launches, MAX(ranks) AS ranks, AVG(mean_ns) AS median_ns
  FROM placed
  WHERE 2 * place >= ranks AND 2 * place <= ranks + 2
  GROUP BY run, name, grid_x, grid_y, grid_z, launches
)
SELECT p.run AS run, p.rank AS rank, p.name AS name, p.grid_x AS grid_x, p.grid_y AS grid_y, p.grid_z AS grid_z,
  p.launches AS launches, p.mean_ns AS mean_ns, m.median_ns AS median_ns,
  p.total_ns - m.median_ns * p.launches AS excess_ns, m.ranks AS role_ranks
FROM placed p
JOIN medians m ON m.run = p.run AND m.name = p.name AND m.grid_x = p.grid_x AND m.grid_y = p.grid_y
  AND m.grid_z = p.grid_z AND m.launches = p.launches
WHERE m.ranks > 1 AND p.mean_ns > m.median_ns * (1e0 + {percent} / 1e2)
ORDER BY excess_ns DESC, run, rank, name, grid_x, grid_y, grid_z
LIMIT {rows}
