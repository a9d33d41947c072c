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
/// `CUPTI_PM_SAMPLING_DECODE_STOP_REASON_OTHER`: also when all has been taken (seen on an H200, CUPTI 13.0).
pub const STOPPED_OTHER: u32 = 0;
/// `CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL`
pub const STOPPED_FULL: u32 = 1;
/// `CUPTI_AutoRange`
pub const AUTO_RANGE: u32 = 1;
/// `CUPTI_UserRange`
pub const USER_RANGE: u32 = 2;
/// `CUPTI_KernelReplay`
pub const KERNEL_REPLAY: u32 = 2;
/// `CUPTI_UserReplay`
pub const USER_REPLAY: u32 = 3;

parameters! {
    PROFILER_LAYOUTS:

    /// Of `cuptiProfilerInitialize`.
    ProfilerInitialize = "CUpti_Profiler_Initialize_Params", 16 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
    }
    /// Of `cuptiDeviceGetChipName`.
    DeviceGetChipName = "CUpti_Device_GetChipName_Params", 32 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which device.
        device: usize = "deviceIndex" @ 16;
        /// Answer: the library's own text.
        chip: *const c_char = "pChipName" @ 24;
    }
    /// Of `cuptiProfilerGetCounterAvailability`.
    ProfilerGetCounterAvailability = "CUpti_Profiler_GetCounterAvailability_Params", 40, grows {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which context; NULL is the current one.
        context: Context = "ctx" @ 16;
        /// Bytes of the image; an answer while there is none.
        size: usize = "counterAvailabilityImageSize" @ 24;
        /// NULL to ask for its size.
        image: *mut u8 = "pCounterAvailabilityImage" @ 32;
    }
    /// Of `cuptiProfilerHostInitialize`.
    HostInitialize = "CUpti_Profiler_Host_Initialize_Params", 48, grows {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// [`RANGE_PROFILER`] or [`PM_SAMPLING`].
        kind: u32 = "profilerType" @ 16;
        /// Name of the chip.
        chip: *const c_char = "pChipName" @ 24;
        /// What the device allows; NULL: everything that the chip has.
        availability: *const u8 = "pCounterAvailabilityImage" @ 32;
        /// Answer.
        object: Object = "pHostObject" @ 40;
    }
    /// Of `cuptiProfilerHostDeinitialize`.
    HostDeinitialize = "CUpti_Profiler_Host_Deinitialize_Params", 24 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pHostObject" @ 16;
    }
    /// Of `cuptiProfilerHostGetSupportedChips`.
    HostGetSupportedChips = "CUpti_Profiler_Host_GetSupportedChips_Params", 32 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Answer.
        count: usize = "numChips" @ 16;
        /// Answer: the library's own texts.
        chips: *const *const c_char = "ppChipNames" @ 24;
    }
    /// Of `cuptiProfilerHostConfigAddMetrics`.
    HostConfigAddMetrics = "CUpti_Profiler_Host_ConfigAddMetrics_Params", 40 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pHostObject" @ 16;
        /// Names of metrics.
        names: *const *const c_char = "ppMetricNames" @ 24;
        /// How many.
        count: usize = "numMetrics" @ 32;
    }
    /// Of `cuptiProfilerHostGetConfigImageSize`.
    HostGetConfigImageSize = "CUpti_Profiler_Host_GetConfigImageSize_Params", 32 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pHostObject" @ 16;
        /// Answer, bytes.
        size: usize = "configImageSize" @ 24;
    }
    /// Of `cuptiProfilerHostGetConfigImage`.
    HostGetConfigImage = "CUpti_Profiler_Host_GetConfigImage_Params", 40 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pHostObject" @ 16;
        /// Bytes of the image.
        size: usize = "configImageSize" @ 24;
        /// Filled in.
        image: *mut u8 = "pConfigImage" @ 32;
    }
    /// Of `cuptiProfilerHostGetNumOfPasses`.
    HostGetNumOfPasses = "CUpti_Profiler_Host_GetNumOfPasses_Params", 40 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Bytes of the configuration.
        size: usize = "configImageSize" @ 16;
        /// The configuration.
        image: *mut u8 = "pConfigImage" @ 24;
        /// Answer.
        passes: usize = "numOfPasses" @ 32;
    }
    /// Of `cuptiProfilerHostEvaluateToGpuValues`.
    HostEvaluateToGpuValues = "CUpti_Profiler_Host_EvaluateToGpuValues_Params", 72 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pHostObject" @ 16;
        /// Decoded counters.
        image: *const u8 = "pCounterDataImage" @ 24;
        /// Bytes of them.
        size: usize = "counterDataImageSize" @ 32;
        /// Which sample or range.
        index: usize = "rangeIndex" @ 40;
        /// Names of metrics.
        names: *const *const c_char = "ppMetricNames" @ 48;
        /// How many.
        count: usize = "numMetrics" @ 56;
        /// Filled in.
        values: *mut f64 = "pMetricValues" @ 64;
    }
    /// Of `cuptiProfilerHostGetBaseMetrics`.
    HostGetBaseMetrics = "CUpti_Profiler_Host_GetBaseMetrics_Params", 48 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pHostObject" @ 16;
        /// 0 counters, 1 ratios, 2 throughputs.
        kind: u32 = "metricType" @ 24;
        /// Answer: the library's own texts.
        names: *const *const c_char = "ppMetricNames" @ 32;
        /// Answer.
        count: usize = "numMetrics" @ 40;
    }
    /// Of `cuptiProfilerHostGetMetricProperties`.
    HostGetMetricProperties = "CUpti_Profiler_Host_GetMetricProperties_Params", 60, grows {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pHostObject" @ 16;
        /// Which metric.
        name: *const c_char = "pMetricName" @ 24;
        /// Answer.
        description: *const c_char = "pDescription" @ 32;
        /// Answer: the hardware unit.
        unit: *const c_char = "pHwUnit" @ 40;
        /// Answer: the unit of measure.
        dimension: *const c_char = "pDimUnit" @ 48;
        /// Answer: 0 counter, 1 ratio, 2 throughput.
        kind: u32 = "metricType" @ 56;
    }
    /// Of `cuptiPmSamplingGetCounterAvailability`.
    PmGetCounterAvailability = "CUpti_PmSampling_GetCounterAvailability_Params", 40 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which device.
        device: usize = "deviceIndex" @ 16;
        /// Bytes of the image; an answer while there is none.
        size: usize = "counterAvailabilityImageSize" @ 24;
        /// NULL to ask for its size.
        image: *mut u8 = "pCounterAvailabilityImage" @ 32;
    }
    /// Of `cuptiPmSamplingEnable`.
    PmEnable = "CUpti_PmSampling_Enable_Params", 32 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which device.
        device: usize = "deviceIndex" @ 16;
        /// Answer.
        object: Object = "pPmSamplingObject" @ 24;
    }
    /// Of `cuptiPmSamplingStart`.
    PmStart = "CUpti_PmSampling_Start_Params", 24 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pPmSamplingObject" @ 16;
    }
    /// Of `cuptiPmSamplingStop`.
    PmStop = "CUpti_PmSampling_Stop_Params", 24 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pPmSamplingObject" @ 16;
    }
    /// Of `cuptiPmSamplingDisable`.
    PmDisable = "CUpti_PmSampling_Disable_Params", 24 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pPmSamplingObject" @ 16;
    }
    /// Of `cuptiPmSamplingSetConfig`. CUPTI 12.6 knows the first 60 bytes.
    PmSetConfig = "CUpti_PmSampling_SetConfig_Params", 64 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pPmSamplingObject" @ 16;
        /// Bytes of the configuration.
        config_size: usize = "configSize" @ 24;
        /// The configuration, which has to outlive the object.
        config: *const u8 = "pConfig" @ 32;
        /// Bytes of the hardware buffer.
        hardware_buffer: usize = "hardwareBufferSize" @ 40;
        /// In the unit of the trigger.
        interval: u64 = "samplingInterval" @ 48;
        /// [`TRIGGER_SYSCLK`] or [`TRIGGER_GPU_TIME`].
        trigger: u32 = "triggerMode" @ 56;
        /// [`KEEP_LATEST`], or 0 to keep the oldest.
        append: u32 = "hwBufferAppendMode" @ 60;
    }
    /// Of `cuptiPmSamplingGetCounterDataSize`.
    PmGetCounterDataSize = "CUpti_PmSampling_GetCounterDataSize_Params", 56 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pPmSamplingObject" @ 16;
        /// Names of metrics.
        names: *const *const c_char = "pMetricNames" @ 24;
        /// How many.
        count: usize = "numMetrics" @ 32;
        /// Samples that the image can hold.
        samples: u32 = "maxSamples" @ 40;
        /// Answer, bytes.
        size: usize = "counterDataSize" @ 48;
    }
    /// Of `cuptiPmSamplingCounterDataImageInitialize`.
    PmImageInitialize = "CUpti_PmSampling_CounterDataImage_Initialize_Params", 40 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pPmSamplingObject" @ 16;
        /// Bytes of the image.
        size: usize = "counterDataSize" @ 24;
        /// The image.
        image: *mut u8 = "pCounterData" @ 32;
    }
    /// Of `cuptiPmSamplingDecodeData`.
    PmDecodeData = "CUpti_PmSampling_DecodeData_Params", 45 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pPmSamplingObject" @ 16;
        /// Where samples go.
        image: *mut u8 = "pCounterDataImage" @ 24;
        /// Bytes of it.
        size: usize = "counterDataImageSize" @ 32;
        /// Answer: [`STOPPED_OTHER`], [`STOPPED_FULL`], or 2 at the end of records.
        stopped: u32 = "decodeStopReason" @ 40;
        /// Answer: not 0 if the hardware buffer overflowed.
        overflow: u8 = "overflow" @ 44;
    }
    /// Of `cuptiPmSamplingGetCounterDataInfo`.
    PmGetCounterDataInfo = "CUpti_PmSampling_GetCounterDataInfo_Params", 56 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// The image.
        image: *const u8 = "pCounterDataImage" @ 16;
        /// Bytes of it.
        size: usize = "counterDataImageSize" @ 24;
        /// Answer: samples that fit.
        total: usize = "numTotalSamples" @ 32;
        /// Answer: samples that are begun.
        populated: usize = "numPopulatedSamples" @ 40;
        /// Answer: samples that are complete, which come first.
        completed: usize = "numCompletedSamples" @ 48;
    }
    /// Of `cuptiPmSamplingCounterDataGetSampleInfo`.
    PmGetSampleInfo = "CUpti_PmSampling_CounterData_GetSampleInfo_Params", 64 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pPmSamplingObject" @ 16;
        /// The image.
        image: *const u8 = "pCounterDataImage" @ 24;
        /// Bytes of it.
        size: usize = "counterDataImageSize" @ 32;
        /// Which sample.
        index: usize = "sampleIndex" @ 40;
        /// Answer, nanoseconds on the clock of activity records.
        start: u64 = "startTimestamp" @ 48;
        /// Answer.
        end: u64 = "endTimestamp" @ 56;
    }
    /// Of `cuptiRangeProfilerEnable`.
    RangeEnable = "CUpti_RangeProfiler_Enable_Params", 32, grows {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which context; NULL is the current one.
        context: Context = "ctx" @ 16;
        /// Answer.
        object: Object = "pRangeProfilerObject" @ 24;
    }
    /// Of `cuptiRangeProfilerDisable`.
    RangeDisable = "CUpti_RangeProfiler_Disable_Params", 24 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pRangeProfilerObject" @ 16;
    }
    /// Of `cuptiRangeProfilerStart`.
    RangeStart = "CUpti_RangeProfiler_Start_Params", 24 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pRangeProfilerObject" @ 16;
    }
    /// Of `cuptiRangeProfilerStop`.
    RangeStop = "CUpti_RangeProfiler_Stop_Params", 41 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pRangeProfilerObject" @ 16;
        /// Answer: the next pass.
        pass: usize = "passIndex" @ 24;
        /// Answer: its nesting level.
        level: usize = "targetNestingLevel" @ 32;
        /// Answer: not 0 once every pass has run.
        all_submitted: u8 = "isAllPassSubmitted" @ 40;
    }
    /// Of `cuptiRangeProfilerPushRange`.
    RangePush = "CUpti_RangeProfiler_PushRange_Params", 32 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pRangeProfilerObject" @ 16;
        /// Its name.
        name: *const c_char = "pRangeName" @ 24;
    }
    /// Of `cuptiRangeProfilerPopRange`.
    RangePop = "CUpti_RangeProfiler_PopRange_Params", 24 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pRangeProfilerObject" @ 16;
    }
    /// Of `cuptiRangeProfilerSetConfig`.
    RangeSetConfig = "CUpti_RangeProfiler_SetConfig_Params", 90 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pRangeProfilerObject" @ 16;
        /// Bytes of the configuration.
        config_size: usize = "configSize" @ 24;
        /// The configuration, which has to outlive the object.
        config: *const u8 = "pConfig" @ 32;
        /// Bytes of the image.
        image_size: usize = "counterDataImageSize" @ 40;
        /// Where ranges go.
        image: *mut u8 = "pCounterDataImage" @ 48;
        /// [`AUTO_RANGE`] or [`USER_RANGE`].
        range: u32 = "range" @ 56;
        /// [`USER_REPLAY`] or [`KERNEL_REPLAY`].
        replay: u32 = "replayMode" @ 60;
        /// Ranges in a pass.
        max_ranges: usize = "maxRangesPerPass" @ 64;
        /// Levels of nesting.
        levels: u16 = "numNestingLevels" @ 72;
        /// The first level that is measured.
        min_level: u16 = "minNestingLevel" @ 74;
        /// Which pass comes first.
        pass: usize = "passIndex" @ 80;
        /// Its nesting level.
        target_level: u16 = "targetNestingLevel" @ 88;
    }
    /// Of `cuptiRangeProfilerDecodeData`.
    RangeDecodeData = "CUpti_RangeProfiler_DecodeData_Params", 32 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pRangeProfilerObject" @ 16;
        /// Answer: ranges that did not fit.
        dropped: usize = "numOfRangeDropped" @ 24;
    }
    /// Of `cuptiRangeProfilerGetCounterDataSize`.
    RangeGetCounterDataSize = "CUpti_RangeProfiler_GetCounterDataSize_Params", 64 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pRangeProfilerObject" @ 16;
        /// Names of metrics.
        names: *const *const c_char = "pMetricNames" @ 24;
        /// How many.
        count: usize = "numMetrics" @ 32;
        /// Ranges that the image can hold.
        ranges: usize = "maxNumOfRanges" @ 40;
        /// Nodes of their tree.
        nodes: u32 = "maxNumRangeTreeNodes" @ 48;
        /// Answer, bytes.
        size: usize = "counterDataSize" @ 56;
    }
    /// Of `cuptiRangeProfilerCounterDataImageInitialize`.
    RangeImageInitialize = "CUpti_RangeProfiler_CounterDataImage_Initialize_Params", 40 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// Which object.
        object: Object = "pRangeProfilerObject" @ 16;
        /// Bytes of the image.
        size: usize = "counterDataSize" @ 24;
        /// The image.
        image: *mut u8 = "pCounterData" @ 32;
    }
    /// Of `cuptiRangeProfilerGetCounterDataInfo`.
    RangeGetCounterDataInfo = "CUpti_RangeProfiler_GetCounterDataInfo_Params", 40 {
        /// NULL.
        private: *mut c_void = "pPriv" @ 8;
        /// The image.
        image: *const u8 = "pCounterDataImage" @ 16;
        /// Bytes of it.
        size: usize = "counterDataImageSize" @ 24;
        /// Answer.
        ranges: usize = "numTotalRanges" @ 32;
    }
}
