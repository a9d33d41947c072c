-- Ranks that others wait for: who communicates least, and what the waiting costs
-- Who arrives last in a collective communicates least, because the others wait inside it; ranks that begin last may have
-- waited in another group. Stages of a pipeline differ by design. awaited_ns: what others waited in operations of
-- all ranks that this rank started last, without clock alignment; `gpuwhy merge` aligns clocks.
-- parameter rows 20 1 100000 Rows to show
WITH {collective_waits}, blamed AS (
  SELECT run, communicator, function, sequence,
    MIN(CASE WHEN start_ns = latest_ns THEN rank ELSE 9223372036854775807 END) AS rank,
    SUM(waited_ns) AS waited_ns, SUM(own_ns) AS own_ns
  FROM joined GROUP BY run, communicator, function, sequence
), whole AS (
  SELECT run, SUM(waited_ns) AS run_waited_ns, SUM(own_ns) AS run_own_ns FROM blamed GROUP BY run
), latest AS (
  SELECT run, rank, COUNT(*) AS times_last, SUM(waited_ns) AS awaited_ns FROM blamed GROUP BY run, rank
), spent AS (
  SELECT run, rank, SUM(end_ns - start_ns) AS communication_ns FROM keyed GROUP BY run, rank
), placed AS (
  SELECT run, rank, communication_ns, ROW_NUMBER() OVER (PARTITION BY run ORDER BY communication_ns, rank) AS place,
    COUNT(*) OVER (PARTITION BY run) AS ranks
  FROM spent
), medians AS (
  SELECT run, AVG(1e0 * communication_ns) AS median_ns FROM placed
  WHERE 2 * place >= ranks AND 2 * place <= ranks + 2
  GROUP BY run
)
SELECT s.run AS run, s.rank AS rank, s.communication_ns AS communication_ns, m.median_ns AS median_ns,
  m.median_ns - s.communication_ns AS less_ns, COALESCE(l.times_last, 0) AS times_last,
  COALESCE(l.awaited_ns, 0) AS awaited_ns,
  1e0 * COALESCE(l.awaited_ns, 0) / NULLIF(w.run_waited_ns, 0) AS waiting_share,
  1e0 * w.run_waited_ns / NULLIF(w.run_own_ns, 0) AS run_waiting
FROM spent s
JOIN medians m ON m.run = s.run
LEFT JOIN whole w ON w.run = s.run
LEFT JOIN latest l ON l.run = s.run AND l.rank = s.rank
ORDER BY run, less_ns DESC, rank
LIMIT {rows}
