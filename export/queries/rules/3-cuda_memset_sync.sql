-- CUDA Synchronous Memset
-- Memsets of pinned or managed memory, for which the host waits. Use cudaMemsetAsync.
-- none The host waited for no memset.
SELECT m.duration_ns AS "Duration (ns)", m.start_ns - :origin AS "Start (ns)",
  upper(substr(memory, 1, 1)) || substr(memory, 2) AS "Memory Kind", bytes AS "Bytes (MB)", :process AS "PID",
  device AS "Device ID", context AS "Context ID", NULL AS "Green Context ID", stream AS "Stream ID",
  function AS "API Name"
FROM memsets AS m
JOIN api AS a ON a.correlation = m.correlation
WHERE instr(function, 'Memset') AND NOT instr(function, 'Async') AND memory IN ('pinned', 'managed')
  AND m.end_ns >= :from AND m.start_ns <= :until
ORDER BY m.duration_ns DESC, m.start_ns
