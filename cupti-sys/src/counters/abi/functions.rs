//! The functions of the counter interfaces. Each takes the address of one struct; each may be missing.

use libloading::os::unix::Library;

use super::profiler as c;
use crate::abi::CuptiResult;
use crate::cupti::{Error, check};

/// A function that takes the address of a `P`.
pub type Call<P> = unsafe extern "C" fn(*mut P) -> CuptiResult;

/// A function of the loaded library, or the slot of a function that it lacks.
#[derive(Debug)]
pub struct Function<P> {
    name: &'static str,
    pointer: Option<Call<P>>,
}

impl<P> Function<P> {
    fn of(library: &Library, name: &'static str) -> Self {
        // SAFETY: resolved with the type of the C function of this name; they all take the address of one
        // struct. The copied pointer outlives `library`, because libcupti is never unloaded.
        let pointer = unsafe { library.get::<Call<P>>(name) }.ok().map(|symbol| *symbol);
        Self { name, pointer }
    }

    /// Its name in C.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// True if the library has it.
    pub const fn exists(&self) -> bool {
        self.pointer.is_some()
    }

    /// Calls the function.
    ///
    /// # Safety
    /// The memory that the struct points to is alive and has the sizes that the struct states.
    ///
    /// # Errors
    /// [`CuptiResult::API_NOT_IMPLEMENTED`] if the library lacks it, and the codes that it returns.
    pub unsafe fn call(&self, parameters: &mut P) -> Result<(), Error> {
        let absent = Error { function: self.name, code: CuptiResult::API_NOT_IMPLEMENTED };
        let function = self.pointer.ok_or(absent)?;
        // SAFETY: a live struct that states its size; the caller guarantees the memory that it points to.
        check(self.name, unsafe { function(parameters) })
    }
}

macro_rules! functions {
    ($($field:ident: $parameters:ty = $name:literal;)*) => {
        /// Every function of the counter interfaces that this crate calls.
        #[derive(Debug)]
        pub struct Functions {
            $(#[doc = concat!("`", $name, "`")] pub $field: Function<$parameters>,)*
        }

        impl Functions {
            /// Resolves them in a library that stays loaded.
            pub(in crate::counters) fn of(library: &Library) -> Self {
                Self { $($field: Function::of(library, $name),)* }
            }

            /// Names of the functions that the library lacks.
            pub fn missing(&self) -> Vec<&'static str> {
                let mut missing = Vec::new();
                $(if !self.$field.exists() { missing.push($name); })*
                missing
            }
        }
    };
}

functions! {
    profiler_initialize: c::ProfilerInitialize = "cuptiProfilerInitialize";
    chip_name: c::DeviceGetChipName = "cuptiDeviceGetChipName";
    availability: c::ProfilerGetCounterAvailability = "cuptiProfilerGetCounterAvailability";
    host_initialize: c::HostInitialize = "cuptiProfilerHostInitialize";
    host_deinitialize: c::HostDeinitialize = "cuptiProfilerHostDeinitialize";
    host_chips: c::HostGetSupportedChips = "cuptiProfilerHostGetSupportedChips";
    host_add_metrics: c::HostConfigAddMetrics = "cuptiProfilerHostConfigAddMetrics";
    host_config_size: c::HostGetConfigImageSize = "cuptiProfilerHostGetConfigImageSize";
    host_config: c::HostGetConfigImage = "cuptiProfilerHostGetConfigImage";
    host_passes: c::HostGetNumOfPasses = "cuptiProfilerHostGetNumOfPasses";
    host_evaluate: c::HostEvaluateToGpuValues = "cuptiProfilerHostEvaluateToGpuValues";
    host_base_metrics: c::HostGetBaseMetrics = "cuptiProfilerHostGetBaseMetrics";
    host_properties: c::HostGetMetricProperties = "cuptiProfilerHostGetMetricProperties";
    pm_availability: c::PmGetCounterAvailability = "cuptiPmSamplingGetCounterAvailability";
    pm_enable: c::PmEnable = "cuptiPmSamplingEnable";
    pm_disable: c::PmDisable = "cuptiPmSamplingDisable";
    pm_set_config: c::PmSetConfig = "cuptiPmSamplingSetConfig";
    pm_start: c::PmStart = "cuptiPmSamplingStart";
    pm_stop: c::PmStop = "cuptiPmSamplingStop";
    pm_data_size: c::PmGetCounterDataSize = "cuptiPmSamplingGetCounterDataSize";
    pm_image_initialize: c::PmImageInitialize = "cuptiPmSamplingCounterDataImageInitialize";
    pm_decode: c::PmDecodeData = "cuptiPmSamplingDecodeData";
    pm_data_info: c::PmGetCounterDataInfo = "cuptiPmSamplingGetCounterDataInfo";
    pm_sample_info: c::PmGetSampleInfo = "cuptiPmSamplingCounterDataGetSampleInfo";
    range_enable: c::RangeEnable = "cuptiRangeProfilerEnable";
    range_disable: c::RangeDisable = "cuptiRangeProfilerDisable";
    range_set_config: c::RangeSetConfig = "cuptiRangeProfilerSetConfig";
    range_start: c::RangeStart = "cuptiRangeProfilerStart";
    range_stop: c::RangeStop = "cuptiRangeProfilerStop";
    range_decode: c::RangeDecodeData = "cuptiRangeProfilerDecodeData";
    range_data_size: c::RangeGetCounterDataSize = "cuptiRangeProfilerGetCounterDataSize";
    range_image_initialize: c::RangeImageInitialize = "cuptiRangeProfilerCounterDataImageInitialize";
    range_data_info: c::RangeGetCounterDataInfo = "cuptiRangeProfilerGetCounterDataInfo";
}
