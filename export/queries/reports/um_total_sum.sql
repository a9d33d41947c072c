-- Unified Memory Totals Summary
SELECT SUM(CASE event WHEN 'host_to_device' THEN bytes END) AS "Total HtoD Migration Size (MB)",
  SUM(CASE event WHEN 'device_to_host' THEN bytes END) AS "Total DtoH Migration Size (MB)",
  COUNT(CASE event WHEN 'host_fault' THEN 1 END) AS "Total CPU Page Faults", SUM(faults) AS "Total GPU PageFaults",
  CASE COUNT(DISTINCT event) WHEN 4 THEN printf('0x%X', MIN(address)) END AS "Minimum Virtual Address",
  CASE COUNT(DISTINCT event) WHEN 4 THEN printf('0x%X', MAX(address)) END AS "Maximum Virtual Address"
FROM managed
WHERE event NOT IN ('device_to_device', 'unknown') AND end_ns >= :from AND start_ns <= :until
HAVING COUNT(*) > 0
