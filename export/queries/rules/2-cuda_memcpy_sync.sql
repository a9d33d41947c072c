-- CUDA Synchronous Memcpy
-- Copies for which the host waits; left out: within a device, and 64 KB or less to a device.
-- Use cudaMemcpyAsync with pinned memory (non_blocking=True).
-- none The host waited for no copy of more than 64 KB.
SELECT {copy_and_call}
WHERE instr(function, 'Memcpy') AND NOT instr(function, 'Async') AND direction <> 'device_to_device'
  AND NOT (direction = 'host_to_device' AND bytes <= 65536) AND c.end_ns >= :from AND c.start_ns <= :until
ORDER BY c.duration_ns DESC, c.start_ns
