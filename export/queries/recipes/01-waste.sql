-- GPU hours of each run that were not computation, by cause
-- parameter rows 50 1 100000 Rows to show
WITH by_cause AS (
  SELECT run, cause, SUM(duration_ns) AS cause_ns FROM leaves GROUP BY run, cause
), whole AS (
  SELECT run, SUM(cause_ns) AS run_ns FROM by_cause GROUP BY run
)
SELECT b.run AS run, b.cause AS cause, b.cause_ns / 3.6e12 AS gpu_hours, 1e0 * b.cause_ns / w.run_ns AS run_share
FROM by_cause b JOIN whole w ON w.run = b.run
WHERE b.cause <> 'gpu_compute' AND b.cause_ns > 0
ORDER BY gpu_hours DESC, run, cause
LIMIT {rows}
