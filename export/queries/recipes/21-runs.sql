-- Runs of the lake, newest first
-- parameter rows 50 1 100000 Rows to show
WITH waste AS (
  SELECT run, SUM(duration_ns) AS device_ns, SUM(CASE WHEN cause = 'gpu_compute' THEN duration_ns ELSE 0 END) AS compute_ns
  FROM leaves GROUP BY run
)
SELECT p.run AS run, MIN(p.program) AS program, MIN(p.start_ns) AS start_ns, COUNT(*) AS ranks,
  COUNT(DISTINCT p.host) AS hosts, MAX(p.observed_ns) AS observed_ns, MAX(w.device_ns) / 3.6e12 AS gpu_hours,
  1e0 * MAX(w.compute_ns) / NULLIF(MAX(w.device_ns), 0) AS computing,
  SUM(CASE WHEN p.ending = 'clean' THEN 0 ELSE 1 END) AS without_clean_end
FROM processes p LEFT JOIN waste w ON w.run = p.run
GROUP BY p.run
ORDER BY start_ns DESC, run
LIMIT {rows}
