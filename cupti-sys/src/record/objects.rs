//! Records that describe where work runs: devices, their links to the host, and contexts.

use super::view::layout;
use std::ffi::CStr;

layout! {
    /// A device.
    DeviceRecord, at least 176 bytes
    always {
        global_memory_bandwidth: u64 = "globalMemoryBandwidth" @ 8, "Global memory bandwidth, kB/s.";
        global_memory_size: u64 = "globalMemorySize" @ 16, "Global memory, bytes.";
        l2_cache_size: u32 = "l2CacheSize" @ 28, "Second-level cache, bytes.";
        threads_per_warp: u32 = "numThreadsPerWarp" @ 32, "Threads of a warp.";
        core_clock_rate: u32 = "coreClockRate" @ 36, "Core clock, kHz.";
        memcpy_engines: u32 = "numMemcpyEngines" @ 40, "Copy engines.";
        multiprocessors: u32 = "numMultiprocessors" @ 44, "Multiprocessors.";
        max_warps_per_multiprocessor: u32 = "maxWarpsPerMultiprocessor" @ 52,
            "Resident warps that fit on a multiprocessor.";
        max_blocks_per_multiprocessor: u32 = "maxBlocksPerMultiprocessor" @ 56,
            "Resident blocks that fit on a multiprocessor.";
        max_shared_memory_per_multiprocessor: u32 = "maxSharedMemoryPerMultiprocessor" @ 60,
            "Shared memory of a multiprocessor, bytes.";
        max_registers_per_multiprocessor: u32 = "maxRegistersPerMultiprocessor" @ 64,
            "32-bit registers of a multiprocessor.";
        compute_capability_major: u32 = "computeCapabilityMajor" @ 104, "Compute capability, major.";
        compute_capability_minor: u32 = "computeCapabilityMinor" @ 108, "Compute capability, minor.";
        id: u32 = "id" @ 112, "Ordinal.";
        uuid: [u8; 16] = "uuid" @ 120, "UUID.";
        name_address: u64 = "name" @ 136, "Address of the product name in the traced process; 0 when there is none.";
        is_cuda_visible: u8 = "isCudaVisible" @ 144, "1 when CUDA sees it.";
        is_mig_enabled: u8 = "isMigEnabled" @ 145, "1 when it is a MIG slice.";
    }
    since {}
}

impl<'a> DeviceRecord<'a> {
    /// Offset of the address of the name.
    pub const NAME_OFFSET: usize = 136;

    /// Product name; see [`Record::string`](super::Record::string) for its lifetime.
    pub fn name(&self) -> Option<&'a CStr> {
        self.record().string(Self::NAME_OFFSET)
    }

    /// Compute capability: major, minor.
    pub fn compute_capability(&self) -> [u32; 2] {
        [self.compute_capability_major(), self.compute_capability_minor()]
    }
}

layout! {
    /// A context.
    ContextRecord, at least 16 bytes
    always {
        context_id: u32 = "contextId" @ 4, "Its id.";
        device_id: u32 = "deviceId" @ 8, "Its device.";
        null_stream_id: u16 = "nullStreamId" @ 14, "Its null stream.";
    }
    since {
        parent_context_id: u32 = "parentContextId" @ 16,
            "The context it was carved from, for green contexts. Since 12.4.";
        is_green_context: u8 = "isGreenContext" @ 20, "1 for a green context. Since 12.4.";
        multiprocessors: u16 = "numMultiprocessors" @ 22,
            "Multiprocessors of a green context. Since 12.5; 0 in 12.4, where these bytes were padding.";
    }
}

layout! {
    /// Position of a device or bridge on PCI Express.
    PcieRecord, at least 168 bytes
    always {
        device_type: u32 = "type" @ 4, "0 for a device, 1 for a bridge.";
        id: u32 = "id" @ 8, "Ordinal of a device, or number of a bridge.";
        generation: u16 = "pcieGeneration" @ 16, "Generation of the link.";
        link_rate: u16 = "linkRate" @ 18, "Transfers on a lane, millions a second.";
        link_width: u16 = "linkWidth" @ 20, "Lanes.";
    }
    since {}
}

impl PcieRecord<'_> {
    /// [`device_type`](Self::device_type) of a GPU (`CUPTI_PCIE_DEVICE_TYPE_GPU`).
    pub const GPU: u32 = 0;
}
