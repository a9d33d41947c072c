keyed AS (
  SELECT run, rank, COALESCE(communicator, '') AS communicator, function, COALESCE(sequence, ordinal) AS sequence,
    start_ns, end_ns
  FROM collectives
  WHERE function IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all')
), instances AS (
  SELECT run, rank, communicator, function, sequence, start_ns, end_ns, COUNT(*) OVER (PARTITION BY run, communicator, function, sequence) AS members,
    MAX(start_ns) OVER (PARTITION BY run, communicator, function, sequence) AS latest_ns, MIN(end_ns) OVER (PARTITION BY run, communicator, function, sequence) AS ended_ns
  FROM keyed
), joined AS (
  SELECT run, rank, communicator, function, sequence, start_ns, latest_ns, end_ns - start_ns AS own_ns,
    CASE WHEN end_ns < latest_ns THEN end_ns - start_ns ELSE latest_ns - start_ns END AS waited_ns
  FROM instances
  WHERE members > 1 AND ended_ns >= latest_ns - 50000
)
