-- Collectives by function, group and size: waiting, moving, algorithm and bus bandwidth of the moving part
-- Bandwidths are GB/s as nccl-tests defines them, empty where the bytes are not known.
-- parameter rows 50 1 100000 Rows to show
WITH occasions AS (
  SELECT run, communicator, function, sequence, COUNT(*) AS members, MAX(bytes) AS bytes,
    MAX(start_ns) AS latest_ns, MIN(start_ns) AS first_ns, MAX(end_ns) AS end_ns, MIN(end_ns) AS ended_ns,
    SUM(end_ns - start_ns) AS own_ns, SUM(start_ns) - COUNT(*) * MIN(start_ns) AS lateness_ns
  FROM collectives
  GROUP BY run, communicator, function, sequence
), divided AS (
  SELECT run, communicator, function, members, bytes, own_ns,
    CASE WHEN ended_ns >= latest_ns - 50000 THEN members * (latest_ns - first_ns) - lateness_ns ELSE 0 END AS waiting_ns,
    CASE WHEN end_ns > latest_ns THEN end_ns - latest_ns ELSE 0 END AS moving_ns,
    CASE WHEN function = 'AllReduce' THEN 2e0 * (members - 1) / members
      WHEN function IN ('AllGather', 'ReduceScatter', 'AlltoAll') THEN 1e0 * (members - 1) / members
      ELSE 1e0 END AS bus_factor
  FROM occasions
)
SELECT run, communicator, function, members, bytes, COUNT(*) AS occasions, SUM(own_ns) AS own_ns,
  SUM(waiting_ns) AS waiting_ns, SUM(moving_ns) AS moving_ns,
  1e0 * bytes * COUNT(*) / NULLIF(SUM(moving_ns), 0) AS algorithm_gbps,
  MAX(bus_factor) * bytes * COUNT(*) / NULLIF(SUM(moving_ns), 0) AS bus_gbps
FROM divided
GROUP BY run, communicator, function, members, bytes
ORDER BY own_ns DESC, run, communicator, function, members, COALESCE(bytes, -1)
LIMIT {rows}
