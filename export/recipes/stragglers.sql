-- Ranks that others wait for in collectives: who begins last, and what the waiting costs
-- Clocks of different hosts are taken as they are; `gpuwhy merge` brings them together. Only operations in which
-- everybody waits for everybody count, and of them those that no rank ended before the last began.
-- parameter rows 20 1 100000 Rows to show
WITH keyed AS (
  SELECT run, rank, COALESCE(communicator, '') AS communicator, function, COALESCE(sequence, ordinal) AS sequence,
    start_ns, end_ns
  FROM collectives
  WHERE function IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all')
), occasions AS (
  SELECT run, rank, communicator, function, sequence, start_ns, end_ns, COUNT(*) OVER (PARTITION BY run, communicator, function, sequence) AS members,
    MAX(start_ns) OVER (PARTITION BY run, communicator, function, sequence) AS latest_ns, MIN(end_ns) OVER (PARTITION BY run, communicator, function, sequence) AS ended_ns
  FROM keyed
), joined AS (
  SELECT run, rank, communicator, function, sequence, start_ns, latest_ns, end_ns - start_ns AS own_ns,
    CASE WHEN end_ns < latest_ns THEN end_ns - start_ns ELSE latest_ns - start_ns END AS waited_ns
  FROM occasions
  WHERE members > 1 AND ended_ns >= latest_ns - 50000
), blamed AS (
  SELECT run, communicator, function, sequence,
    MIN(CASE WHEN start_ns = latest_ns THEN rank ELSE 9223372036854775807 END) AS rank,
    SUM(waited_ns) AS waited_ns, SUM(own_ns) AS own_ns
  FROM joined GROUP BY run, communicator, function, sequence
), whole AS (
  SELECT run, SUM(waited_ns) AS run_waited_ns, SUM(own_ns) AS run_own_ns FROM blamed GROUP BY run
)
SELECT b.run AS run, b.rank AS rank, COUNT(*) AS times_last, SUM(b.waited_ns) AS awaited_ns,
  1e0 * SUM(b.waited_ns) / NULLIF(MAX(w.run_waited_ns), 0) AS waiting_share,
  1e0 * MAX(w.run_waited_ns) / NULLIF(MAX(w.run_own_ns), 0) AS run_waiting
FROM blamed b JOIN whole w ON w.run = b.run
GROUP BY b.run, b.rank
ORDER BY run, awaited_ns DESC, rank
LIMIT {rows}
