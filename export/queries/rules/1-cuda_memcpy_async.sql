-- CUDA Async Memcpy with Pageable Memory
-- Asynchronous copies from or to pageable memory: the driver stages them, and they are not asynchronous.
-- Use pinned memory (cudaHostAlloc, pin_memory=True).
-- none No asynchronous copy used pageable memory.
SELECT {copy_and_call}
WHERE instr(function, 'Async') AND 'pageable' IN (source, destination)
  AND c.end_ns >= :from AND c.start_ns <= :until
ORDER BY c.duration_ns DESC, c.start_ns
