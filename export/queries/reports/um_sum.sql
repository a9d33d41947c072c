-- Unified Memory Analysis Summary
SELECT printf('0x%X', address) AS "Virtual Address",
  SUM(CASE event WHEN 'host_to_device' THEN bytes END) AS "HtoD Migration size (MB)",
  SUM(CASE event WHEN 'device_to_host' THEN bytes END) AS "DtoH Migration size (MB)",
  SUM(CASE event WHEN 'host_fault' THEN 1 END) AS "CPU Page Faults", SUM(faults) AS " GPU Page Faults",
  SUM(bytes) * (1000000000 / SUM(CASE WHEN bytes IS NOT NULL THEN duration_ns END)) AS "Migration Throughput (MB/s)"
FROM managed
WHERE event NOT IN ('device_to_device', 'unknown') AND end_ns >= :from AND start_ns <= :until
GROUP BY address
ORDER BY "Migration Throughput (MB/s)" DESC, address
LIMIT 10
