-- Collectives by function, group and size: waiting, moving, algorithm and bus bandwidth of the moving part
-- Bandwidths are GB/s as nccl-tests defines them, empty where the bytes are not known.
-- parameter rows 50 1 100000 Rows to show
WITH keyed AS (
  SELECT run, rank, COALESCE(communicator, '') AS communicator, function, COALESCE(sequence, ordinal) AS sequence, ranks,
    bytes, start_ns, end_ns
  FROM collectives
), instances AS (
  SELECT run, communicator, function, sequence, start_ns, end_ns,
    COALESCE(MAX(ranks) OVER (PARTITION BY run, communicator, function, sequence), COUNT(*) OVER (PARTITION BY run, communicator, function, sequence)) AS members,
    MAX(bytes) OVER (PARTITION BY run, communicator, function, sequence) AS bytes, MAX(start_ns) OVER (PARTITION BY run, communicator, function, sequence) AS latest_ns,
    MAX(end_ns) OVER (PARTITION BY run, communicator, function, sequence) AS last_end_ns, MIN(end_ns) OVER (PARTITION BY run, communicator, function, sequence) AS ended_ns
  FROM keyed
), joined AS (
  SELECT run, communicator, function, sequence, members, bytes, end_ns - start_ns AS own_ns,
    CASE WHEN ended_ns >= latest_ns - 50000 THEN latest_ns - start_ns ELSE 0 END AS waited_ns,
    CASE WHEN last_end_ns > latest_ns THEN last_end_ns - latest_ns ELSE 0 END AS moving_ns
  FROM instances
), divided AS (
  SELECT run, communicator, function, sequence, MAX(members) AS members, MAX(bytes) AS bytes, SUM(own_ns) AS own_ns,
    SUM(waited_ns) AS waited_ns, MAX(moving_ns) AS moving_ns
  FROM joined
  GROUP BY run, communicator, function, sequence
), factored AS (
  SELECT run, communicator, function, members, bytes, own_ns, waited_ns, moving_ns,
    CASE WHEN function = 'all_reduce' THEN 2e0 * (members - 1) / members
      WHEN function IN ('all_gather', 'reduce_scatter', 'all_to_all') THEN 1e0 * (members - 1) / members
      ELSE 1e0 END AS bus_factor
  FROM divided
)
SELECT run, communicator, function, members, bytes, COUNT(*) AS instances, SUM(own_ns) AS own_ns,
  SUM(waited_ns) AS waiting_ns, SUM(moving_ns) AS moving_ns,
  1e0 * bytes * COUNT(*) / NULLIF(SUM(moving_ns), 0) AS algorithm_gbps,
  MAX(bus_factor) * bytes * COUNT(*) / NULLIF(SUM(moving_ns), 0) AS bus_gbps
FROM factored
GROUP BY run, communicator, function, members, bytes
ORDER BY own_ns DESC, run, communicator, function, members, moving_ns
LIMIT {rows}
