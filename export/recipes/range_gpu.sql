-- Ranges of the program by the kernels that were launched within them
-- parameter rows 50 1 100000 Rows to show
WITH launched AS (
  SELECT a.run AS run, a.rank AS rank, a.thread AS thread, a.start_ns AS called_ns, k.start_ns AS start_ns,
    k.end_ns AS end_ns
  FROM api a JOIN kernels k ON k.run = a.run AND k.rank = a.rank AND k.correlation = a.correlation
), inside AS (
  SELECT n.run AS run, n.rank AS rank, n.domain AS domain, n.text AS text, n.thread AS thread, n.start_ns AS range_ns,
    COUNT(*) AS kernels, MAX(l.end_ns) - MIN(l.start_ns) AS projected_ns, SUM(l.end_ns - l.start_ns) AS kernels_ns
  FROM nvtx n
  JOIN launched l ON l.run = n.run AND l.rank = n.rank AND l.thread = n.thread
    AND l.called_ns >= n.start_ns AND l.called_ns < n.end_ns
  WHERE n.kind = 'push'
  GROUP BY n.run, n.rank, n.domain, n.text, n.thread, n.start_ns
)
SELECT run, domain, text, COUNT(*) AS ranges, SUM(kernels) AS kernels, SUM(projected_ns) AS projected_ns,
  AVG(projected_ns) AS mean_projected_ns, SUM(kernels_ns) AS kernels_ns
FROM inside
GROUP BY run, domain, text
ORDER BY projected_ns DESC, run, domain, text
LIMIT {rows}
