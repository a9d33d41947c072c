-- Collectives by function, group and size: waiting, moving, algorithm and bus bandwidth of the moving part
-- Bandwidths are GB/s as nccl-tests defines them, empty where the bytes are not known.
-- parameter rows 50 1 100000 Rows to show
WITH occasions AS (
  SELECT run, communicator, function, sequence, COUNT(*) AS members, MAX(bytes) AS bytes,
    MAX(start_ns) AS latest_ns, MAX(end_ns) AS end_ns, MIN(end_ns) AS ended_ns
  FROM collectives
  GROUP BY run, communicator, function, sequence
), joined AS (
  SELECT c.run AS run, c.communicator AS communicator, c.function AS function, c.sequence AS sequence,
    o.members AS members, o.bytes AS bytes, c.end_ns - c.start_ns AS own_ns,
    CASE WHEN o.ended_ns >= o.latest_ns - 50000 THEN o.latest_ns - c.start_ns ELSE 0 END AS waited_ns,
    CASE WHEN o.end_ns > o.latest_ns THEN o.end_ns - o.latest_ns ELSE 0 END AS moving_ns
  FROM collectives c
  JOIN occasions o ON o.run = c.run AND o.communicator = c.communicator AND o.function = c.function
    AND o.sequence = c.sequence
), divided AS (
  SELECT run, communicator, function, sequence, MAX(members) AS members, MAX(bytes) AS bytes, SUM(own_ns) AS own_ns,
    SUM(waited_ns) AS waited_ns, MAX(moving_ns) AS moving_ns
  FROM joined
  GROUP BY run, communicator, function, sequence
), factored AS (
  SELECT run, communicator, function, members, bytes, own_ns, waited_ns, moving_ns,
    CASE WHEN function = 'AllReduce' THEN 2e0 * (members - 1) / members
      WHEN function IN ('AllGather', 'ReduceScatter', 'AlltoAll') THEN 1e0 * (members - 1) / members
      ELSE 1e0 END AS bus_factor
  FROM divided
)
SELECT run, communicator, function, members, bytes, COUNT(*) AS occasions, SUM(own_ns) AS own_ns,
  SUM(waited_ns) AS waiting_ns, SUM(moving_ns) AS moving_ns,
  1e0 * bytes * COUNT(*) / NULLIF(SUM(moving_ns), 0) AS algorithm_gbps,
  MAX(bus_factor) * bytes * COUNT(*) / NULLIF(SUM(moving_ns), 0) AS bus_gbps
FROM factored
GROUP BY run, communicator, function, members, bytes
ORDER BY own_ns DESC, run, communicator, function, members
LIMIT {rows}
