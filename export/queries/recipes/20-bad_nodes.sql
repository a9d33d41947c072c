-- Hosts that other hosts wait for, over all runs
-- parameter rows 50 1 100000 Rows to show
WITH {collective_waits}, blamed AS (
  SELECT run, communicator, function, sequence,
    MIN(CASE WHEN start_ns = latest_ns THEN rank ELSE 9223372036854775807 END) AS rank, SUM(waited_ns) AS waited_ns
  FROM joined GROUP BY run, communicator, function, sequence
), of_run AS (
  SELECT b.run AS run, p.host AS host, SUM(b.waited_ns) AS awaited_ns
  FROM blamed b JOIN processes p ON p.run = b.run AND p.rank = b.rank
  GROUP BY b.run, p.host
), whole AS (
  SELECT run, SUM(awaited_ns) AS run_ns FROM of_run GROUP BY run
)
SELECT o.host AS host, COUNT(*) AS runs, SUM(CASE WHEN 2 * o.awaited_ns > w.run_ns THEN 1 ELSE 0 END) AS runs_held_up,
  SUM(o.awaited_ns) AS awaited_ns, AVG(1e0 * o.awaited_ns / NULLIF(w.run_ns, 0)) AS mean_share
FROM of_run o JOIN whole w ON w.run = o.run
GROUP BY o.host
ORDER BY runs_held_up DESC, awaited_ns DESC, host
LIMIT {rows}
