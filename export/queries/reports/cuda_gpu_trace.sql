-- CUDA GPU Trace
WITH operations AS (
  SELECT start_ns, end_ns, duration_ns, correlation, device, context, stream, name, grid_x, grid_y, grid_z, block_x,
    block_y, block_z, registers_per_thread, static_shared_bytes, dynamic_shared_bytes, NULL AS bytes, NULL AS source,
    NULL AS destination
  FROM kernels
  UNION ALL
  SELECT start_ns, end_ns, duration_ns, correlation, IFNULL(device, 4294967295), context, stream, name, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, bytes, source, destination
  FROM ({memory_operations})
)
SELECT start_ns - :origin AS "Start (ns)", duration_ns AS "Duration (ns)", correlation AS "CorrId",
  grid_x AS "GrdX", grid_y AS "GrdY", grid_z AS "GrdZ", block_x AS "BlkX", block_y AS "BlkY", block_z AS "BlkZ",
  registers_per_thread AS "Reg/Trd", static_shared_bytes AS "StcSMem (MB)", dynamic_shared_bytes AS "DymSMem (MB)",
  bytes AS "Bytes (MB)", bytes * 1e9 / duration_ns AS "Throughput (MB/s)",
  upper(substr(source, 1, 1)) || substr(source, 2) AS "SrcMemKd",
  upper(substr(destination, 1, 1)) || substr(destination, 2) AS "DstMemKd",
  IFNULL(d.name, '') || ' (' || o.device || ')' AS "Device",
  CASE WHEN correlation <> 0 OR context <> 0 THEN context END AS "Ctx", NULL AS "GreenCtx",
  CASE WHEN correlation <> 0 OR stream <> 0 THEN stream END AS "Strm", o.name AS "Name"
FROM operations AS o
LEFT JOIN devices AS d ON d.device = o.device
WHERE end_ns >= :from AND start_ns <= :until
ORDER BY start_ns
