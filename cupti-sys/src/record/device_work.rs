//! Records of work on a device: kernels, copies, memsets, graph launches.
//!
//! Times are nanoseconds on CUPTI's clock; 0 means that CUPTI has no time. Ids are unique within the process.

use super::view::layout;
use crate::abi::{FLAG_ASYNC, MemcpyKind, MemoryKind};
use std::ffi::CStr;

layout! {
    /// An executed kernel.
    KernelRecord, at least 176 bytes
    always {
        registers_per_thread: u16 = "registersPerThread" @ 6, "Registers of one thread.";
        start: u64 = "start" @ 16, "Begin on the device.";
        end: u64 = "end" @ 24, "End on the device.";
        device_id: u32 = "deviceId" @ 40, "Device ordinal.";
        context_id: u32 = "contextId" @ 44, "Context.";
        stream_id: u32 = "streamId" @ 48, "Stream.";
        grid_x: i32 = "gridX" @ 52, "Blocks in x.";
        grid_y: i32 = "gridY" @ 56, "Blocks in y.";
        grid_z: i32 = "gridZ" @ 60, "Blocks in z.";
        block_x: i32 = "blockX" @ 64, "Threads of a block in x.";
        block_y: i32 = "blockY" @ 68, "Threads of a block in y.";
        block_z: i32 = "blockZ" @ 72, "Threads of a block in z.";
        static_shared_memory: i32 = "staticSharedMemory" @ 76, "Static shared memory of a block, bytes.";
        dynamic_shared_memory: i32 = "dynamicSharedMemory" @ 80, "Dynamic shared memory of a block, bytes.";
        local_memory_per_thread: u32 = "localMemoryPerThread" @ 84, "Local memory of one thread, bytes.";
        correlation_id: u32 = "correlationId" @ 92, "Joins to the launching call.";
        name_address: u64 = "name" @ 104, "Address of the mangled name in the traced process; 0 when there is none.";
        launch_type: u8 = "launchType" @ 136,
            "0 regular, 1 cooperative, 2 cooperative on several devices, 3 command list.";
        shared_memory_executed: u32 = "sharedMemoryExecuted" @ 140,
            "Shared memory that the device set aside on a multiprocessor, bytes.";
        graph_node_id: u64 = "graphNodeId" @ 144, "Node of the graph that launched it, or 0.";
        graph_id: u32 = "graphId" @ 156, "Executable graph that launched it, or 0.";
    }
    since {
        cluster_x: u32 = "clusterX" @ 176, "Blocks of a cluster in x; 0 without clusters. Since 11.8.";
        cluster_y: u32 = "clusterY" @ 180, "Blocks of a cluster in y. Since 11.8.";
        cluster_z: u32 = "clusterZ" @ 184, "Blocks of a cluster in z. Since 11.8.";
        priority: i32 = "priority" @ 216, "Priority of the launch. Since 13.1.";
    }
}

impl<'a> KernelRecord<'a> {
    /// Offset of the address of the name.
    pub const NAME_OFFSET: usize = 104;

    /// Mangled name; see [`Record::string`](super::Record::string) for its lifetime.
    #[inline]
    pub fn name(&self) -> Option<&'a CStr> {
        self.record().string(Self::NAME_OFFSET)
    }

    /// Blocks in the grid: x, y, z.
    #[inline]
    pub fn grid(&self) -> [u32; 3] {
        [self.grid_x(), self.grid_y(), self.grid_z()].map(i32::cast_unsigned)
    }

    /// Threads in a block: x, y, z.
    #[inline]
    pub fn block(&self) -> [u32; 3] {
        [self.block_x(), self.block_y(), self.block_z()].map(i32::cast_unsigned)
    }

    /// Blocks in a cluster: x, y, z; zero without clusters or before CUDA 11.8.
    #[inline]
    pub fn cluster(&self) -> [u32; 3] {
        [self.cluster_x(), self.cluster_y(), self.cluster_z()].map(Option::unwrap_or_default)
    }
}

layout! {
    /// An executed copy within a device, or between it and the host.
    MemcpyRecord, at least 88 bytes
    always {
        copy_kind: u8 = "copyKind" @ 4, "Direction as a number; see [`kind`](Self::kind).";
        source_kind: u8 = "srcKind" @ 5, "Memory read from, as a number; see [`source`](Self::source).";
        destination_kind: u8 = "dstKind" @ 6, "Memory written to, as a number; see [`destination`](Self::destination).";
        flags: u8 = "flags" @ 7, "Flags; see [`is_async`](Self::is_async).";
        byte_count: u64 = "bytes" @ 8, "Bytes moved.";
        start: u64 = "start" @ 16, "Begin on the device.";
        end: u64 = "end" @ 24, "End on the device.";
        device_id: u32 = "deviceId" @ 32, "Device ordinal.";
        context_id: u32 = "contextId" @ 36, "Context.";
        stream_id: u32 = "streamId" @ 40, "Stream.";
        correlation_id: u32 = "correlationId" @ 44, "Joins to the issuing call.";
        graph_node_id: u64 = "graphNodeId" @ 64, "Node of the graph that issued it, or 0.";
        graph_id: u32 = "graphId" @ 72, "Executable graph that issued it, or 0.";
    }
    since {
        copy_count: u64 = "copyCount" @ 88,
            "Copies that this record stands for: more than 1 for batched copies. Since 12.8.";
    }
    as {
        kind: MemcpyKind = copy_kind, "Direction.";
        source: MemoryKind = source_kind, "Memory read from.";
        destination: MemoryKind = destination_kind, "Memory written to.";
    }
}

impl MemcpyRecord<'_> {
    /// True if it was issued asynchronously.
    pub fn is_async(&self) -> bool {
        u32::from(self.flags()) & FLAG_ASYNC != 0
    }
}

layout! {
    /// An executed copy between two devices.
    MemcpyP2pRecord, at least 96 bytes
    always {
        copy_kind: u8 = "copyKind" @ 4, "Direction as a number; see [`kind`](Self::kind).";
        source_kind: u8 = "srcKind" @ 5, "Memory read from, as a number; see [`source`](Self::source).";
        destination_kind: u8 = "dstKind" @ 6, "Memory written to, as a number; see [`destination`](Self::destination).";
        flags: u8 = "flags" @ 7, "Flags; see [`is_async`](Self::is_async).";
        byte_count: u64 = "bytes" @ 8, "Bytes moved.";
        start: u64 = "start" @ 16, "Begin on the device.";
        end: u64 = "end" @ 24, "End on the device.";
        device_id: u32 = "deviceId" @ 32, "Device whose copy engine did it.";
        context_id: u32 = "contextId" @ 36, "Context.";
        stream_id: u32 = "streamId" @ 40, "Stream.";
        source_device_id: u32 = "srcDeviceId" @ 44, "Device read from.";
        destination_device_id: u32 = "dstDeviceId" @ 52, "Device written to.";
        correlation_id: u32 = "correlationId" @ 60, "Joins to the issuing call.";
        graph_node_id: u64 = "graphNodeId" @ 72, "Node of the graph that issued it, or 0.";
        graph_id: u32 = "graphId" @ 80, "Executable graph that issued it, or 0.";
    }
    since {}
    as {
        kind: MemcpyKind = copy_kind, "Direction.";
        source: MemoryKind = source_kind, "Memory read from.";
        destination: MemoryKind = destination_kind, "Memory written to.";
    }
}

impl MemcpyP2pRecord<'_> {
    /// True if it was issued asynchronously.
    pub fn is_async(&self) -> bool {
        u32::from(self.flags()) & FLAG_ASYNC != 0
    }
}

layout! {
    /// An executed memset.
    MemsetRecord, at least 88 bytes
    always {
        value: u32 = "value" @ 4, "The value written.";
        byte_count: u64 = "bytes" @ 8, "Bytes written.";
        start: u64 = "start" @ 16, "Begin on the device.";
        end: u64 = "end" @ 24, "End on the device.";
        device_id: u32 = "deviceId" @ 32, "Device ordinal.";
        context_id: u32 = "contextId" @ 36, "Context.";
        stream_id: u32 = "streamId" @ 40, "Stream.";
        correlation_id: u32 = "correlationId" @ 44, "Joins to the issuing call.";
        flags: u16 = "flags" @ 48, "Flags; see [`is_async`](Self::is_async).";
        memory_kind: u16 = "memoryKind" @ 50, "Memory written to, as a number; see [`memory`](Self::memory).";
        graph_node_id: u64 = "graphNodeId" @ 64, "Node of the graph that issued it, or 0.";
        graph_id: u32 = "graphId" @ 72, "Executable graph that issued it, or 0.";
    }
    since {}
    as {
        memory: MemoryKind = memory_kind, "Memory written to.";
    }
}

impl MemsetRecord<'_> {
    /// True if it was issued asynchronously.
    pub fn is_async(&self) -> bool {
        u32::from(self.flags()) & FLAG_ASYNC != 0
    }
}

layout! {
    /// One launch of a complete graph, recorded instead of its nodes.
    GraphTraceRecord, at least 48 bytes
    always {
        correlation_id: u32 = "correlationId" @ 4, "Joins to the launching call.";
        start: u64 = "start" @ 8, "Begin of the first node.";
        end: u64 = "end" @ 16, "End of the last node.";
        device_id: u32 = "deviceId" @ 24, "Device of the first node.";
        graph_id: u32 = "graphId" @ 28, "Executable graph.";
        context_id: u32 = "contextId" @ 32, "Context of the first node.";
        stream_id: u32 = "streamId" @ 36, "Stream it was launched on.";
    }
    since {
        end_device_id: u32 = "endDeviceId" @ 48, "Device of the last node. Since 12.3.";
    }
}
