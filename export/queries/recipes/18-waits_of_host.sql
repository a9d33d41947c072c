-- Waits of the launching threads, by state and line, from host samples
-- parameter rows 50 1 100000 Rows to show
SELECT run, state, COALESCE(function, '') AS function, COALESCE(file, '') AS file, COALESCE(line, 0) AS line,
  COUNT(*) AS samples, COUNT(DISTINCT rank) AS ranks,
  SUM(at_ns - since_ns - COALESCE(on_cpu_ns, 0)) AS off_cpu_ns
FROM host_samples
WHERE state <> 'running'
GROUP BY run, state, COALESCE(function, ''), COALESCE(file, ''), COALESCE(line, 0)
ORDER BY off_cpu_ns DESC, run, state, function, file, line
LIMIT {rows}
