//! Parameters of the profiler interfaces: `cupti_profiler_target.h`, `cupti_profiler_host.h`, `cupti_pmsampling.h`,
//! `cupti_range_profiler.h`, `cupti_target.h`.

use std::ffi::{c_char, c_void};

use super::parameters;
use crate::abi::Context;

/// An opaque object of CUPTI.
pub type Object = *mut c_void;

/// `CUPTI_PROFILER_TYPE_RANGE_PROFILER`
pub const RANGE_PROFILER: u32 = 0;
/// `CUPTI_PROFILER_TYPE_PM_SAMPLING`
pub const PM_SAMPLING: u32 = 1;
/// `CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL`: the interval is in cycles. Turing has only this one.
pub const TRIGGER_SYSCLK: u32 = 0;
/// `CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL`: the interval is in nanoseconds.
pub const TRIGGER_GPU_TIME: u32 = 1;
/// `CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_LATEST`: a full buffer loses its oldest samples.
pub const KEEP_LATEST: u32 = 1;
/// `CUPTI_PM_SAMPLING_DECODE_STOP_REASON_OTHER`: also when every sample was decoded (seen on an H200, CUPTI
/// 13.0).
pub const STOPPED_OTHER: u32 = 0;
/// `CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL`
pub const STOPPED_FULL: u32 = 1;
/// `CUPTI_AutoRange`
pub const AUTO_RANGE: u32 = 1;
/// `CUPTI_UserReplay`
pub const USER_REPLAY: u32 = 3;

parameters! {
    PROFILER_LAYOUTS:

    ProfilerInitialize = "CUpti_Profiler_Initialize_Params", 16 {
    }
    DeviceGetChipName = "CUpti_Device_GetChipName_Params", 32 {
        device: usize = "deviceIndex" @ 16, "Which device.";
        chip: *const c_char = "pChipName" @ 24, "Answer: the library's own text.";
    }
    ProfilerGetCounterAvailability = "CUpti_Profiler_GetCounterAvailability_Params", 40, grows {
        context: Context = "ctx" @ 16, "Which context; NULL is the current one.";
        size: usize = "counterAvailabilityImageSize" @ 24, "Bytes of the image; an answer while there is none.";
        image: *mut u8 = "pCounterAvailabilityImage" @ 32, "NULL to ask for its size.";
    }
    HostInitialize = "CUpti_Profiler_Host_Initialize_Params", 48, grows {
        kind: u32 = "profilerType" @ 16, "[`RANGE_PROFILER`] or [`PM_SAMPLING`].";
        chip: *const c_char = "pChipName" @ 24, "Name of the chip.";
        availability: *const u8 = "pCounterAvailabilityImage" @ 32,
            "What the device allows; NULL: everything that the chip has.";
        object: Object = "pHostObject" @ 40, "Answer.";
    }
    HostDeinitialize = "CUpti_Profiler_Host_Deinitialize_Params", 24 {
        object: Object = "pHostObject" @ 16, "Which object.";
    }
    HostGetSupportedChips = "CUpti_Profiler_Host_GetSupportedChips_Params", 32 {
        count: usize = "numChips" @ 16, "Answer.";
        chips: *const *const c_char = "ppChipNames" @ 24, "Answer: the library's own texts.";
    }
    HostConfigAddMetrics = "CUpti_Profiler_Host_ConfigAddMetrics_Params", 40 {
        object: Object = "pHostObject" @ 16, "Which object.";
        names: *const *const c_char = "ppMetricNames" @ 24, "Names of metrics.";
        count: usize = "numMetrics" @ 32, "How many.";
    }
    HostGetConfigImageSize = "CUpti_Profiler_Host_GetConfigImageSize_Params", 32 {
        object: Object = "pHostObject" @ 16, "Which object.";
        size: usize = "configImageSize" @ 24, "Answer, bytes.";
    }
    HostGetConfigImage = "CUpti_Profiler_Host_GetConfigImage_Params", 40 {
        object: Object = "pHostObject" @ 16, "Which object.";
        size: usize = "configImageSize" @ 24, "Bytes of the image.";
        image: *mut u8 = "pConfigImage" @ 32, "Filled in.";
    }
    HostGetNumOfPasses = "CUpti_Profiler_Host_GetNumOfPasses_Params", 40 {
        size: usize = "configImageSize" @ 16, "Bytes of the configuration.";
        image: *mut u8 = "pConfigImage" @ 24, "The configuration.";
        passes: usize = "numOfPasses" @ 32, "Answer.";
    }
    HostEvaluateToGpuValues = "CUpti_Profiler_Host_EvaluateToGpuValues_Params", 72 {
        object: Object = "pHostObject" @ 16, "Which object.";
        image: *const u8 = "pCounterDataImage" @ 24, "Decoded counters.";
        size: usize = "counterDataImageSize" @ 32, "Bytes of them.";
        index: usize = "rangeIndex" @ 40, "Which sample or range.";
        names: *const *const c_char = "ppMetricNames" @ 48, "Names of metrics.";
        count: usize = "numMetrics" @ 56, "How many.";
        values: *mut f64 = "pMetricValues" @ 64, "Filled in.";
    }
    HostGetBaseMetrics = "CUpti_Profiler_Host_GetBaseMetrics_Params", 48 {
        object: Object = "pHostObject" @ 16, "Which object.";
        kind: u32 = "metricType" @ 24, "0 counters, 1 ratios, 2 throughputs.";
        names: *const *const c_char = "ppMetricNames" @ 32, "Answer: the library's own texts.";
        count: usize = "numMetrics" @ 40, "Answer.";
    }
    HostGetMetricProperties = "CUpti_Profiler_Host_GetMetricProperties_Params", 60, grows {
        object: Object = "pHostObject" @ 16, "Which object.";
        name: *const c_char = "pMetricName" @ 24, "Which metric.";
        description: *const c_char = "pDescription" @ 32, "Answer.";
        unit: *const c_char = "pHwUnit" @ 40, "Answer: the hardware unit.";
        dimension: *const c_char = "pDimUnit" @ 48, "Answer: the unit of measure.";
        kind: u32 = "metricType" @ 56, "Answer: 0 counter, 1 ratio, 2 throughput.";
    }
    PmGetCounterAvailability = "CUpti_PmSampling_GetCounterAvailability_Params", 40 {
        device: usize = "deviceIndex" @ 16, "Which device.";
        size: usize = "counterAvailabilityImageSize" @ 24, "Bytes of the image; an answer while there is none.";
        image: *mut u8 = "pCounterAvailabilityImage" @ 32, "NULL to ask for its size.";
    }
    PmEnable = "CUpti_PmSampling_Enable_Params", 32 {
        device: usize = "deviceIndex" @ 16, "Which device.";
        object: Object = "pPmSamplingObject" @ 24, "Answer.";
    }
    PmStart = "CUpti_PmSampling_Start_Params", 24 { object: Object = "pPmSamplingObject" @ 16, "Which object."; }
    PmStop = "CUpti_PmSampling_Stop_Params", 24 { object: Object = "pPmSamplingObject" @ 16, "Which object."; }
    PmDisable = "CUpti_PmSampling_Disable_Params", 24 { object: Object = "pPmSamplingObject" @ 16, "Which object."; }
    /// For `cuptiPmSamplingSetConfig`. CUPTI 12.6 knows the first 60 bytes.
    PmSetConfig = "CUpti_PmSampling_SetConfig_Params", 64 {
        object: Object = "pPmSamplingObject" @ 16, "Which object.";
        config_size: usize = "configSize" @ 24, "Bytes of the configuration.";
        config: *const u8 = "pConfig" @ 32, "The configuration, which has to outlive the object.";
        hardware_buffer: usize = "hardwareBufferSize" @ 40, "Bytes of the hardware buffer.";
        interval: u64 = "samplingInterval" @ 48, "In the unit of the trigger.";
        trigger: u32 = "triggerMode" @ 56, "[`TRIGGER_SYSCLK`] or [`TRIGGER_GPU_TIME`].";
        append: u32 = "hwBufferAppendMode" @ 60, "[`KEEP_LATEST`], or 0 to keep the oldest.";
    }
    PmGetCounterDataSize = "CUpti_PmSampling_GetCounterDataSize_Params", 56 {
        object: Object = "pPmSamplingObject" @ 16, "Which object.";
        names: *const *const c_char = "pMetricNames" @ 24, "Names of metrics.";
        count: usize = "numMetrics" @ 32, "How many.";
        samples: u32 = "maxSamples" @ 40, "Samples that the image can hold.";
        size: usize = "counterDataSize" @ 48, "Answer, bytes.";
    }
    PmImageInitialize = "CUpti_PmSampling_CounterDataImage_Initialize_Params", 40 {
        object: Object = "pPmSamplingObject" @ 16, "Which object.";
        size: usize = "counterDataSize" @ 24, "Bytes of the image.";
        image: *mut u8 = "pCounterData" @ 32, "The image.";
    }
    PmDecodeData = "CUpti_PmSampling_DecodeData_Params", 45 {
        object: Object = "pPmSamplingObject" @ 16, "Which object.";
        image: *mut u8 = "pCounterDataImage" @ 24, "Where samples go.";
        size: usize = "counterDataImageSize" @ 32, "Bytes of it.";
        stopped: u32 = "decodeStopReason" @ 40,
            "Answer: [`STOPPED_OTHER`], [`STOPPED_FULL`], or 2 at the end of records.";
        overflow: u8 = "overflow" @ 44, "Answer: not 0 if the hardware buffer overflowed.";
    }
    PmGetCounterDataInfo = "CUpti_PmSampling_GetCounterDataInfo_Params", 56 {
        image: *const u8 = "pCounterDataImage" @ 16, "The image.";
        size: usize = "counterDataImageSize" @ 24, "Bytes of it.";
        total: usize = "numTotalSamples" @ 32, "Answer: samples that fit.";
        populated: usize = "numPopulatedSamples" @ 40, "Answer: samples that are begun.";
        completed: usize = "numCompletedSamples" @ 48, "Answer: samples that are complete, which come first.";
    }
    PmGetSampleInfo = "CUpti_PmSampling_CounterData_GetSampleInfo_Params", 64 {
        object: Object = "pPmSamplingObject" @ 16, "Which object.";
        image: *const u8 = "pCounterDataImage" @ 24, "The image.";
        size: usize = "counterDataImageSize" @ 32, "Bytes of it.";
        index: usize = "sampleIndex" @ 40, "Which sample.";
        start: u64 = "startTimestamp" @ 48, "Answer, nanoseconds on the clock of activity records.";
        end: u64 = "endTimestamp" @ 56, "Answer.";
    }
    RangeEnable = "CUpti_RangeProfiler_Enable_Params", 32, grows {
        context: Context = "ctx" @ 16, "Which context; NULL is the current one.";
        object: Object = "pRangeProfilerObject" @ 24, "Answer.";
    }
    RangeDisable = "CUpti_RangeProfiler_Disable_Params", 24 {
        object: Object = "pRangeProfilerObject" @ 16, "Which object.";
    }
    RangeStart = "CUpti_RangeProfiler_Start_Params", 24 {
        object: Object = "pRangeProfilerObject" @ 16, "Which object.";
    }
    RangeStop = "CUpti_RangeProfiler_Stop_Params", 41 {
        object: Object = "pRangeProfilerObject" @ 16, "Which object.";
        pass: usize = "passIndex" @ 24, "Answer: the next pass.";
        level: usize = "targetNestingLevel" @ 32, "Answer: its nesting level.";
        all_submitted: u8 = "isAllPassSubmitted" @ 40, "Answer: not 0 once every pass has run.";
    }
    RangeSetConfig = "CUpti_RangeProfiler_SetConfig_Params", 90 {
        object: Object = "pRangeProfilerObject" @ 16, "Which object.";
        config_size: usize = "configSize" @ 24, "Bytes of the configuration.";
        config: *const u8 = "pConfig" @ 32, "The configuration, which has to outlive the object.";
        image_size: usize = "counterDataImageSize" @ 40, "Bytes of the image.";
        image: *mut u8 = "pCounterDataImage" @ 48, "Where ranges go.";
        range: u32 = "range" @ 56, "[`AUTO_RANGE`] or `CUPTI_UserRange`, 2.";
        replay: u32 = "replayMode" @ 60, "[`USER_REPLAY`] or `CUPTI_KernelReplay`, 2.";
        max_ranges: usize = "maxRangesPerPass" @ 64, "Ranges in a pass.";
        levels: u16 = "numNestingLevels" @ 72, "Levels of nesting.";
        min_level: u16 = "minNestingLevel" @ 74, "The first level that is measured.";
        pass: usize = "passIndex" @ 80, "Which pass comes first.";
        target_level: u16 = "targetNestingLevel" @ 88, "Its nesting level.";
    }
    RangeDecodeData = "CUpti_RangeProfiler_DecodeData_Params", 32 {
        object: Object = "pRangeProfilerObject" @ 16, "Which object.";
        dropped: usize = "numOfRangeDropped" @ 24, "Answer: ranges that did not fit.";
    }
    RangeGetCounterDataSize = "CUpti_RangeProfiler_GetCounterDataSize_Params", 64 {
        object: Object = "pRangeProfilerObject" @ 16, "Which object.";
        names: *const *const c_char = "pMetricNames" @ 24, "Names of metrics.";
        count: usize = "numMetrics" @ 32, "How many.";
        ranges: usize = "maxNumOfRanges" @ 40, "Ranges that the image can hold.";
        nodes: u32 = "maxNumRangeTreeNodes" @ 48, "Nodes of their tree.";
        size: usize = "counterDataSize" @ 56, "Answer, bytes.";
    }
    RangeImageInitialize = "CUpti_RangeProfiler_CounterDataImage_Initialize_Params", 40 {
        object: Object = "pRangeProfilerObject" @ 16, "Which object.";
        size: usize = "counterDataSize" @ 24, "Bytes of the image.";
        image: *mut u8 = "pCounterData" @ 32, "The image.";
    }
    RangeGetCounterDataInfo = "CUpti_RangeProfiler_GetCounterDataInfo_Params", 40 {
        image: *const u8 = "pCounterDataImage" @ 16, "The image.";
        size: usize = "counterDataImageSize" @ 24, "Bytes of it.";
        ranges: usize = "numTotalRanges" @ 32, "Answer.";
    }
}
