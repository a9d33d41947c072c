//! Parameters and data of PC sampling: `cupti_pcsampling.h`.

use std::ffi::{c_char, c_void};

use super::parameters;
use crate::abi::Context;

/// `CUPTI_STALL_REASON_STRING_SIZE`: size in bytes of a stall reason's name, with its NUL.
pub const STALL_REASON_BYTES: usize = 128;
/// `CUPTI_PC_SAMPLING_COLLECTION_MODE_CONTINUOUS`
pub const CONTINUOUS: u32 = 1;

/// Numbers of `CUpti_PCSamplingConfigurationAttributeType`.
pub mod attribute {
    /// The sampling period as a power of two of cycles: 5 to 31.
    pub const PERIOD: u32 = 1;
    /// The stall reasons to collect.
    pub const STALL_REASONS: u32 = 2;
    /// Size of the scratch buffer in bytes.
    pub const SCRATCH_BUFFER: u32 = 3;
    /// Size of the hardware buffer in bytes.
    pub const HARDWARE_BUFFER: u32 = 4;
    /// Continuous, or one kernel at a time.
    pub const MODE: u32 = 5;
    /// True if the client calls start and stop.
    pub const START_STOP: u32 = 6;
    /// Destination of the samples.
    pub const DATA_BUFFER: u32 = 8;
}

/// `CUpti_PCSamplingStallReason`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct StallReason {
    /// Index of the reason.
    pub index: u32,
    /// Number of samples with this reason.
    pub samples: u32,
}

parameters! {
    PC_LAYOUTS of functions:

    PcEnable = "CUpti_PCSamplingEnableParams", 24 { context: Context = "ctx" @ 16, "Which context."; }
    PcDisable = "CUpti_PCSamplingDisableParams", 24 { context: Context = "ctx" @ 16, "Which context."; }
    PcStart = "CUpti_PCSamplingStartParams", 24 { context: Context = "ctx" @ 16, "Which context."; }
    PcStop = "CUpti_PCSamplingStopParams", 24 { context: Context = "ctx" @ 16, "Which context."; }
    PcGetData = "CUpti_PCSamplingGetDataParams", 32 {
        context: Context = "ctx" @ 16, "Which context.";
        data: *mut c_void = "pcSamplingData" @ 24, "A [`PcData`].";
    }
    PcGetStallReasonCount = "CUpti_PCSamplingGetNumStallReasonsParams", 32 {
        context: Context = "ctx" @ 16, "Which context.";
        count: *mut usize = "numStallReasons" @ 24, "Filled in.";
    }
    PcGetStallReasons = "CUpti_PCSamplingGetStallReasonsParams", 48 {
        context: Context = "ctx" @ 16, "Which context.";
        count: usize = "numStallReasons" @ 24, "How many there is room for.";
        indices: *mut u32 = "stallReasonIndex" @ 32, "Filled in.";
        names: *mut *mut c_char = "stallReasons" @ 40, "Filled in: [`STALL_REASON_BYTES`] each.";
    }
    PcConfiguration = "CUpti_PCSamplingConfigurationInfoParams", 40 {
        context: Context = "ctx" @ 16, "Which context.";
        count: usize = "numAttributes" @ 24, "How many.";
        attributes: *mut PcAttribute = "pPCSamplingConfigurationInfo" @ 32, "What they are.";
    }
}

parameters! {
    PC_DATA_LAYOUTS:

    /// Totals of PC sampling, and the destination of PC samples. Its size is C's `sizeof`.
    PcData = "CUpti_PCSamplingData", 80 {
        capacity: usize = "collectNumPcs" @ 8, "Room for so many program counters.";
        samples: u64 = "totalSamples" @ 16, "Answer.";
        dropped: u64 = "droppedSamples" @ 24, "Answer: samples that the hardware dropped.";
        count: usize = "totalNumPcs" @ 32, "Answer: program counters that were stored.";
        remaining: usize = "remainingNumPcs" @ 40, "Answer: program counters that are left.";
        range: u64 = "rangeId" @ 48, "Answer.";
        counters: *mut PcCounter = "pPcData" @ 56, "Room for them.";
        not_of_program: u64 = "nonUsrKernelsTotalSamples" @ 64, "Answer: samples in kernels of others.";
        buffer_full: u8 = "hardwareBufferFull" @ 72, "Answer: not 0 if it overflowed.";
    }
    /// Samples of one program counter. Its size is C's `sizeof`.
    PcCounter = "CUpti_PCSamplingPCData", 64 {
        cubin_crc: u64 = "cubinCrc" @ 8, "Checksum of the module.";
        offset: u64 = "pcOffset" @ 16, "Bytes from the start of the function.";
        function_index: u32 = "functionIndex" @ 24, "Which function of the module.";
        function: *mut c_char = "functionName" @ 32,
            "Its name, shared by all PC samples of the function and by activity records.";
        reason_count: usize = "stallReasonCount" @ 40, "Stall reasons that were stored.";
        reasons: *mut StallReason = "stallReason" @ 48, "Room for them.";
        correlation: u32 = "correlationId" @ 56, "0 but where kernels are serialized.";
    }
    GetSourceLine = "CUpti_GetSassToSourceCorrelationParams", 64 {
        cubin: *const c_void = "cubin" @ 8, "The module.";
        function: *const c_char = "functionName" @ 16, "The function.";
        cubin_size: usize = "cubinSize" @ 24, "Bytes of the module.";
        line: u32 = "lineNumber" @ 32, "Answer.";
        offset: u64 = "pcOffset" @ 40, "Bytes from the start of the function.";
        file: *mut c_char = "fileName" @ 48, "Answer; to be freed with `free`.";
        folder: *mut c_char = "dirName" @ 56, "Answer; to be freed with `free`.";
    }
    GetCubinCrc = "CUpti_GetCubinCrcParams", 32 {
        cubin_size: usize = "cubinSize" @ 8, "Bytes of the module.";
        cubin: *const c_void = "cubin" @ 16, "The module.";
        crc: u64 = "cubinCrc" @ 24, "Answer.";
    }
}

/// `CUpti_PCSamplingConfigurationInfo`: 32 bytes, including a 24-byte union.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PcAttribute {
    /// One of [`attribute`].
    pub kind: u32,
    /// Set by CUPTI: a `CUptiResult`.
    pub status: u32,
    /// A number in the first word; for stall reasons their count and the address of their indices.
    pub value: [u64; 3],
}

const _: () = assert!(size_of::<PcAttribute>() == 32 && std::mem::offset_of!(PcAttribute, value) == 8);
