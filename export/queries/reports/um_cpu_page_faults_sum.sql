-- Unified Memory CPU Page Faults Summary
SELECT COUNT(*) AS "CPU Page Faults", printf('0x%x', instruction) AS "CPU Instruction Address", NULL AS "Source File",
  NULL AS "Source Line"
FROM managed
WHERE event = 'host_fault' AND end_ns >= :from AND start_ns <= :until
GROUP BY instruction
ORDER BY COUNT(*) DESC, instruction
