//! Records that describe where work runs: devices and contexts.

use super::view::layout;
use std::ffi::CStr;

layout! {
    /// A device.
    DeviceRecord, at least 176 bytes
    always {
        global_memory_bandwidth: u64 = "globalMemoryBandwidth" @ 8, "Global memory bandwidth, kB/s.";
        global_memory_size: u64 = "globalMemorySize" @ 16, "Global memory, bytes.";
        threads_per_warp: u32 = "numThreadsPerWarp" @ 32, "Threads of a warp.";
        core_clock_rate: u32 = "coreClockRate" @ 36, "Core clock, kHz.";
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
    }
}
