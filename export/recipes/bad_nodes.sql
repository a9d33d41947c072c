-- Hosts that other hosts wait for, over all runs
-- parameter rows 50 1 100000 Rows to show
WITH occasions AS (
  SELECT run, communicator, function, sequence, COUNT(*) AS members, MAX(start_ns) AS latest_ns, MIN(end_ns) AS ended_ns
  FROM collectives
  WHERE function IN ('AllReduce', 'AllGather', 'ReduceScatter', 'AlltoAll')
  GROUP BY run, communicator, function, sequence
), joined AS (
  SELECT c.run AS run, c.rank AS rank, c.communicator AS communicator, c.function AS function, c.sequence AS sequence,
    c.start_ns AS start_ns, o.latest_ns AS latest_ns,
    CASE WHEN c.end_ns < o.latest_ns THEN c.end_ns - c.start_ns ELSE o.latest_ns - c.start_ns END AS waited_ns
  FROM collectives c
  JOIN occasions o ON o.run = c.run AND o.communicator = c.communicator AND o.function = c.function
    AND o.sequence = c.sequence
  WHERE o.members > 1 AND o.ended_ns >= o.latest_ns - 50000
), blamed AS (
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
