-- Ranges of the program (NVTX) by their text
-- parameter rows 50 1 100000 Rows to show
SELECT run, domain, text, COUNT(*) AS ranges, COUNT(DISTINCT rank) AS ranks, SUM(duration_ns) AS total_ns,
  AVG(duration_ns) AS mean_ns, MIN(duration_ns) AS least_ns, MAX(duration_ns) AS most_ns
FROM nvtx
WHERE kind <> 'mark'
GROUP BY run, domain, text
ORDER BY total_ns DESC, run, domain, text
LIMIT {rows}
