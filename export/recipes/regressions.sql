-- Runs of a program beside the run before: median step, and what was another version
-- parameter rows 50 1 100000 Rows to show
WITH placed AS (
  SELECT run, duration_ns, ROW_NUMBER() OVER (PARTITION BY run ORDER BY duration_ns, rank, device, step) AS place,
    COUNT(*) OVER (PARTITION BY run) AS steps
  FROM steps
), medians AS (
  SELECT run, MAX(steps) AS steps, AVG(duration_ns) AS median_ns FROM placed
  WHERE 2 * place >= steps AND 2 * place <= steps + 2
  GROUP BY run
), about AS (
  SELECT run, MIN(program) AS program, MIN(start_ns) AS start_ns, COUNT(*) AS ranks, MIN(driver_version) AS driver,
    MIN(gpuwhy_version) AS gpuwhy
  FROM processes GROUP BY run
), beside AS (
  SELECT a.program AS program, a.start_ns AS start_ns, a.run AS run, a.ranks AS ranks, m.steps AS steps,
    m.median_ns AS median_ns, a.driver AS driver, a.gpuwhy AS gpuwhy,
    LAG(m.median_ns) OVER (PARTITION BY a.program, a.ranks ORDER BY a.start_ns, a.run) AS before_ns,
    LAG(a.driver) OVER (PARTITION BY a.program, a.ranks ORDER BY a.start_ns, a.run) AS before_driver
  FROM about a JOIN medians m ON m.run = a.run
)
SELECT program, run, start_ns, ranks, steps, median_ns, before_ns, median_ns / before_ns - 1e0 AS change, driver,
  CASE WHEN driver <> before_driver THEN before_driver ELSE NULL END AS other_driver, gpuwhy
FROM beside
ORDER BY program, ranks, start_ns, run
LIMIT {rows}
