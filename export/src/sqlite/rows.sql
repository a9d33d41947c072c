-- How a row of gpuwhy's tables becomes rows of nsys's. Each statement follows the name of the table that it reads;
-- `:name` is the value of that column. `:origin` is the start of tracing, `:process` nsys's id of the process.
-- `text_id` assigns numbers to texts (StringIds), `domain_id` to domains of NVTX, `base_name` removes scope, template
-- arguments and parameters from the name of a function.
-- Times before the start of tracing become 0, except those of ranges, which may precede CUDA.

-- kernels
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, globalPid,
    demangledName, shortName, mangledName,
    -- nsys counts from 1.
    launchType, registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ,
    staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, localMemoryTotal, gridId, sharedMemoryExecuted,
    graphNodeId, graphId, clusterX, clusterY, clusterZ, capturedAt, module, parentModule, operators)
VALUES (max(:start_ns - :origin, 0), max(:end_ns - :origin, 0), :device, :context, :stream, :correlation, :process,
    text_id(:name), text_id(base_name(:name)), text_id(:mangled_name),
    :launch_type + 1, :registers_per_thread, :grid_x, :grid_y, :grid_z, :block_x, :block_y, :block_z,
    :static_shared_bytes, :dynamic_shared_bytes, :local_bytes_per_thread, 0, 0, :shared_executed_bytes,
    :graph_node, :graph, :cluster_x, :cluster_y, :cluster_z,
    text_id(:captured_at), text_id(:module), text_id(:parent), text_id(:operators));

-- copies
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes,
    copyKind, srcKind, dstKind,
    srcDeviceId, dstDeviceId, graphNodeId, copyCount, capturedAt, module, parentModule, operators)
VALUES (max(:start_ns - :origin, 0), max(:end_ns - :origin, 0), :device, :context, :stream, :correlation, :process,
    :bytes,
    CASE :direction WHEN 'host_to_device' THEN 1 WHEN 'device_to_host' THEN 2 WHEN 'device_to_device' THEN 8
        WHEN 'host_to_host' THEN 9 WHEN 'peer_to_peer' THEN 10 ELSE 0 END,
    (SELECT id FROM ENUM_CUDA_MEM_KIND WHERE label = :source COLLATE NOCASE),
    (SELECT id FROM ENUM_CUDA_MEM_KIND WHERE label = :destination COLLATE NOCASE),
    :source_device, :destination_device, :graph_node, 1,
    text_id(:captured_at), text_id(:module), text_id(:parent), text_id(:operators));

-- memsets
INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET (start, end, deviceId, contextId, streamId, correlationId, globalPid, value,
    bytes, graphNodeId, memKind, capturedAt, module, parentModule, operators)
VALUES (max(:start_ns - :origin, 0), max(:end_ns - :origin, 0), :device, :context, :stream, :correlation, :process,
    :value, :bytes, :graph_node, (SELECT id FROM ENUM_CUDA_MEM_KIND WHERE label = :memory COLLATE NOCASE),
    text_id(:captured_at), text_id(:module), text_id(:parent), text_id(:operators));

-- api
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid, correlationId, nameId, returnValue)
VALUES (max(:start_ns - :origin, 0), max(:end_ns - :origin, 0), CASE :domain WHEN 'driver' THEN 1 ELSE 0 END,
    :process | (:thread & 0xffffff), :correlation, text_id(coalesce(:function, '?')), :return_value);

-- syncs
INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start, end, deviceId, contextId, streamId, correlationId, globalPid,
    syncType, eventId, eventSyncId)
VALUES (max(:start_ns - :origin, 0), max(:end_ns - :origin, 0), coalesce(:device, 0), :context,
    coalesce(:stream, 0xffffffff), :correlation, :process,
    CASE :kind WHEN 'event' THEN 1 WHEN 'stream_wait_event' THEN 2 WHEN 'stream' THEN 3 WHEN 'context' THEN 4 ELSE 0
        END,
    coalesce(:event, 0xffffffff), coalesce(:event_recording, 0));

-- events
INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT (deviceId, contextId, streamId, correlationId, globalPid, eventId,
    eventSyncId)
VALUES (coalesce(:device, 0), :context, :stream, :correlation, :process, :event, coalesce(:event_recording, 0));

-- overheads
-- 9 and 10 are kinds that nsys lacks.
INSERT INTO CUPTI_ACTIVITY_KIND_OVERHEAD (start, end, eventClass, globalTid, correlationId, overheadType)
VALUES (max(:start_ns - :origin, 0), max(:end_ns - :origin, 0), 1, :process | (coalesce(:thread, 0) & 0xffffff),
    coalesce(:correlation, 0),
    CASE :kind WHEN 'Driver Compiler' THEN 2 WHEN 'Buffer Flush' THEN 3 WHEN 'Instrumentation' THEN 4
        WHEN 'Resource' THEN 5 WHEN 'Runtime Triggered Module Loading' THEN 6 WHEN 'Lazy Function Loading' THEN 7
        WHEN 'Command Buffer Full' THEN 8 WHEN 'Activity Buffer Request' THEN 9 WHEN 'UVM Activity Init' THEN 10
        ELSE 1 END);

-- nvtx
INSERT INTO NVTX_EVENTS (start, end, eventType, rangeId, color, textId, globalTid, endGlobalTid, domainId,
    uint64Value, int64Value, doubleValue)
VALUES (:start_ns - :origin, :end_ns - :origin, CASE :kind WHEN 'mark' THEN 34 WHEN 'start' THEN 60 ELSE 59 END,
    :range_id, :color, text_id(:text), :process | (:thread & 0xffffff),
    CASE WHEN :end_thread <> :thread THEN :process | (:end_thread & 0xffffff) END,
    CASE :domain WHEN '' THEN 0 ELSE domain_id(:domain) END,
    CASE :payload_type WHEN 'unsigned' THEN :payload_integer END,
    CASE :payload_type WHEN 'signed' THEN :payload_integer END, :payload_real);

-- memory
-- Changes of a pool alone have no row. Variables have kinds of their own.
INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, contextId, address, pc, bytes, memKind,
    memoryOperationType, name, correlationId, streamId, localMemoryPoolAddress, localMemoryPoolReleaseThreshold,
    localMemoryPoolSize, localMemoryPoolUtilizedSize)
SELECT max(:at_ns - :origin, 0), :process, :device, :context, coalesce(:address, 0), 0, :bytes,
    CASE WHEN :name IS NOT NULL AND :memory = 'device' THEN 5 WHEN :name IS NOT NULL AND :memory = 'managed' THEN 6
        ELSE (SELECT id FROM ENUM_CUDA_MEM_KIND WHERE label = :memory COLLATE NOCASE) END,
    CASE :operation WHEN 'allocation' THEN 0 ELSE 1 END, :name, coalesce(:correlation, 0), :stream,
    :pool, :pool_threshold_bytes, :pool_bytes, :pool_used_bytes
WHERE :operation IN ('allocation', 'release');

-- managed
-- A migration. nsys fills in neither of its ends; those between two devices would lose them.
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes,
    copyKind, srcKind, dstKind, srcDeviceId, dstDeviceId, migrationCause, virtualAddress)
SELECT max(:start_ns - :origin, 0), max(:end_ns - :origin, 0), coalesce(:destination, :source, 0), 0, 0, 0, :process,
    :bytes, CASE :event WHEN 'host_to_device' THEN 11 WHEN 'device_to_host' THEN 12 ELSE 13 END, 7, 7,
    CASE :event WHEN 'device_to_device' THEN :source END, CASE :event WHEN 'device_to_device' THEN :destination END,
    coalesce(:cause, 0), :address
WHERE :event IN ('host_to_device', 'device_to_host', 'device_to_device');

-- managed
-- Functions of the host are not resolved.
INSERT INTO CUDA_UM_CPU_PAGE_FAULT_EVENTS (start, globalPid, address, originalFaultPc, CpuInstruction, module,
    unresolvedFaultPc)
SELECT max(:start_ns - :origin, 0), :process, :address, :instruction, text_id(printf('0x%x', :instruction)),
    text_id(''), 1
WHERE :event = 'host_fault';

-- managed
INSERT INTO CUDA_UM_GPU_PAGE_FAULT_EVENTS (start, end, globalPid, deviceId, address, numberOfPageFaults,
    faultAccessType)
SELECT max(:start_ns - :origin, 0), max(:end_ns - :origin, 0), :process, coalesce(:destination, :source, 0),
    :address, :faults, coalesce(:cause, 0)
WHERE :event = 'device_fault';

-- gpu_metrics
-- nsys stores the time at which a sample was taken, its end. `typeId` is a number that only gpuwhy uses, with the
-- device in the lowest byte. NVML readings have no row, nor have samples from before the start of tracing.
INSERT INTO GPU_METRICS (rawTimestamp, timestamp, typeId, metricId, value)
SELECT :end_ns, :end_ns - :origin, 0x677000 | (:device & 0xff), id, CAST(round(:value / unit) AS INTEGER)
FROM temp.metrics WHERE name = :metric AND :end_ns >= :origin;
