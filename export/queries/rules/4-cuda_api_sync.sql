-- CUDA Synchronization APIs
-- Calls that hold the host until everything that was issued to a stream or device is done.
-- Wait less often, or for events (cudaStreamWaitEvent, cudaEventSynchronize).
-- none No call waited for a whole stream or device.
SELECT duration_ns AS "Duration (ns)", start_ns - :origin AS "Start (ns)", :process AS "PID", thread AS "TID",
  function AS "API Name"
FROM api
WHERE replace({call}, '_ptsz', '')
    IN ('cudaDeviceSynchronize', 'cudaStreamSynchronize', 'cuCtxSynchronize', 'cuStreamSynchronize')
  AND end_ns >= :from AND start_ns <= :until
ORDER BY duration_ns DESC, start_ns
