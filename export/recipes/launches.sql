-- Kernels by how long the call took and how long they waited in the queue
-- parameter blocked_us 100 1 1000000 A call of at least so many microseconds counts as blocked: the queue is full
-- parameter rows 50 1 100000 Rows to show
WITH joined AS (
  SELECT k.run AS run, k.rank AS rank, k.name AS name, a.duration_ns AS call_ns,
    CASE WHEN k.start_ns > a.end_ns THEN k.start_ns - a.end_ns ELSE 0 END AS queued_ns
  FROM kernels k JOIN api a ON a.run = k.run AND a.rank = k.rank AND a.correlation = k.correlation
)
SELECT run, name, COUNT(*) AS launches, SUM(call_ns) AS calls_ns, AVG(call_ns) AS mean_call_ns,
  SUM(CASE WHEN call_ns >= {blocked_us} * 1000 THEN 1 ELSE 0 END) AS blocked,
  AVG(queued_ns) AS mean_queued_ns, MAX(queued_ns) AS most_queued_ns
FROM joined
GROUP BY run, name
ORDER BY calls_ns DESC, run, name
LIMIT {rows}
