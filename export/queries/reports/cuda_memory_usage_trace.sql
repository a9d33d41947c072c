-- CUDA Memory Usage Trace
WITH {memory_held}
SELECT at_ns - :origin AS "Start (ns)",
  CASE operation WHEN 'allocation' THEN 'Allocation' WHEN 'release' THEN 'Deallocation'
    WHEN 'pool_created' THEN 'Pool created' WHEN 'pool_destroyed' THEN 'Pool destroyed'
    WHEN 'pool_trimmed' THEN 'Pool trimmed' ELSE 'Unknown' END AS "Operation",
  CASE WHEN operation GLOB 'pool_*' THEN IFNULL(pool_bytes, 0) ELSE bytes END AS "Bytes (MB)",
  held_by_owner AS "Held (MB)", upper(substr(memory, 1, 1)) || substr(memory, 2) AS "Memory Kind", :process AS "PID",
  device AS "Device ID", context AS "Context ID", stream AS "Stream ID", IFNULL(correlation, 0) AS "CorrID",
  IFNULL(CASE WHEN operation GLOB 'pool_*' THEN pool ELSE address END, 0) AS "Address", IFNULL(name, '') AS "Name"
FROM events
WHERE at_ns >= :from AND at_ns <= :until
ORDER BY number
