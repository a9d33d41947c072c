//! PM sampling: the counters of a whole device at a fixed interval, for all processes on it.
//!
//! Sample times use the clock of activity records (within 0.3 us on an H200). For the host time that opening,
//! decoding and evaluating take see `docs/design/overhead.md`. The first sample of a sampler begins long
//! before the start of sampling and is dropped.

use std::fmt;

use super::Counters;
use super::abi::{
    KEEP_LATEST, Object, PmDecodeData, PmDisable, PmEnable, PmGetCounterDataInfo, PmGetCounterDataSize,
    PmGetSampleInfo, PmImageInitialize, PmSetConfig, PmStart, PmStop, STOPPED_FULL, TRIGGER_GPU_TIME, TRIGGER_SYSCLK,
};
use super::host::{Configuration, Host, MetricNames};
use crate::abi::CuptiResult;
use crate::cupti::Error;

/// Size of [`PmSetConfig`] before CUDA 12.8, which cannot choose the samples that a full buffer loses.
const FIRST_SET_CONFIG: usize = 60;

/// Duration of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// Nanoseconds.
    Time(u64),
    /// Cycles of the system clock: the only unit on Turing.
    SystemCycles(u64),
}

/// Settings of PM sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Duration of a sample.
    pub interval: Interval,
    /// Size of the hardware buffer in bytes. A full buffer loses the oldest samples.
    pub hardware_buffer: usize,
    /// Maximum number of samples per decode.
    pub samples: u32,
}

/// Time of a sample in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleTime {
    /// Start of the sample.
    pub begin: u64,
    /// End of the sample.
    pub end: u64,
}

/// Result of a decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Number of samples passed on.
    pub taken: u64,
    /// Number of samples that were started and did not complete: a unit sent no counters. Includes a sample
    /// that is still being collected, which is counted again once it is decoded complete.
    pub incomplete: u64,
    /// Number of complete samples without values.
    pub failed: u64,
    /// True if the first sample of this sampler was dropped.
    pub dropped_first: bool,
    /// True if the hardware buffer overflowed.
    pub overflow: bool,
    /// True if the image was full: more samples remain.
    pub full: bool,
}

/// PM sampling of one device. Not `Send`: the same thread opens, decodes and drops it.
pub struct Sampler {
    counters: &'static Counters,
    object: Object,
    host: Host,
    names: MetricNames,
    configuration: Configuration,
    image: Vec<u8>,
    values: Vec<f64>,
    is_started: bool,
    has_sample: bool,
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").field("is_started", &self.is_started).finish_non_exhaustive()
    }
}

impl Sampler {
    /// Prepares a device for sampling these metrics. After [`Counters::initialize`], and once the device has
    /// a context. Takes some 200 ms; not on a thread of the program.
    ///
    /// # Errors
    /// [`CuptiResult::HARDWARE_BUSY`] while another tool has the counters, [`CuptiResult::NOT_SUPPORTED`] for
    /// a configuration of several passes, and others; see [`Refusal`](super::refusal::CounterError).
    pub fn open(
        counters: &'static Counters,
        device: u32,
        host: Host,
        names: MetricNames,
        configuration: Configuration,
        settings: Settings,
    ) -> Result<Self, Error> {
        let functions = &counters.functions;
        if configuration.passes() != 1 {
            return Err(Error { function: functions.pm_set_config.name(), code: CuptiResult::NOT_SUPPORTED });
        }
        let mut enable = PmEnable { device: device as usize, ..PmEnable::new() };
        // SAFETY: the struct holds no pointers.
        unsafe { functions.pm_enable.call(&mut enable) }?;
        if enable.object.is_null() {
            return Err(Error { function: functions.pm_enable.name(), code: CuptiResult::UNKNOWN });
        }
        // From here on `drop` releases what was taken.
        let (image, values) = (Vec::new(), vec![0.0; names.len()]);
        let object = enable.object;
        let mut sampler =
            Self { counters, object, host, names, configuration, image, values, is_started: false, has_sample: false };
        sampler.set_config(settings)?;
        let mut asked = PmGetCounterDataSize {
            object,
            names: sampler.names.as_ptr(),
            count: sampler.names.len(),
            samples: settings.samples,
            ..PmGetCounterDataSize::new()
        };
        // SAFETY: the object is alive, and so are that many NUL-terminated strings.
        unsafe { functions.pm_data_size.call(&mut asked) }?;
        sampler.image = vec![0; asked.size];
        sampler.reset_image()?;
        Ok(sampler)
    }

    fn set_config(&self, settings: Settings) -> Result<(), Error> {
        let (interval, trigger) = match settings.interval {
            Interval::Time(nanos) => (nanos, TRIGGER_GPU_TIME),
            Interval::SystemCycles(cycles) => (cycles, TRIGGER_SYSCLK),
        };
        let config = self.configuration.image();
        let mut parameters = PmSetConfig {
            object: self.object,
            config_size: config.len(),
            config: config.as_ptr(),
            hardware_buffer: settings.hardware_buffer,
            interval,
            trigger,
            append: KEEP_LATEST,
            ..PmSetConfig::new()
        };
        let set = &self.counters.functions.pm_set_config;
        // SAFETY: the object is alive, and the configuration lives until the object is disabled.
        match unsafe { set.call(&mut parameters) } {
            Err(error) if error.code == CuptiResult::INVALID_PARAMETER => {
                parameters.struct_size = FIRST_SET_CONFIG;
                // SAFETY: as above.
                unsafe { set.call(&mut parameters) }
            }
            answer => answer,
        }
    }

    /// Host memory in bytes that decoding needs.
    pub const fn image_bytes(&self) -> usize {
        self.image.len()
    }

    /// Starts sampling.
    ///
    /// # Errors
    /// [`CuptiResult::INSUFFICIENT_PRIVILEGES`] if only administrators may use the counters, and others.
    pub fn start(&mut self) -> Result<(), Error> {
        let mut parameters = PmStart { object: self.object, ..PmStart::new() };
        // SAFETY: the object is alive.
        unsafe { self.counters.functions.pm_start.call(&mut parameters) }?;
        self.is_started = true;
        Ok(())
    }

    /// Stops sampling; samples taken before can still be decoded.
    ///
    /// # Errors
    /// If CUPTI refuses, which is normal once the driver has shut down.
    pub fn stop(&mut self) -> Result<(), Error> {
        if !self.is_started {
            return Ok(());
        }
        self.is_started = false;
        let mut parameters = PmStop { object: self.object, ..PmStop::new() };
        // SAFETY: the object is alive.
        unsafe { self.counters.functions.pm_stop.call(&mut parameters) }
    }

    /// Decodes the samples that have arrived, at most the number set at opening, and passes the values of
    /// each to `take` in the order of the metrics. The reason why decoding stopped is not reported: while
    /// sampling runs CUPTI always returns the same one.
    ///
    /// # Errors
    /// [`CuptiResult::OUT_OF_MEMORY`] if the hardware buffer has overflowed and stopped, and others.
    pub fn decode(&mut self, mut take: impl FnMut(SampleTime, &[f64])) -> Result<Decoded, Error> {
        let functions = &self.counters.functions;
        let (object, size) = (self.object, self.image.len());
        let image = self.image.as_mut_ptr();
        let mut decode = PmDecodeData { object, image, size, ..PmDecodeData::new() };
        // SAFETY: the object is alive, and the image has the size that the struct states.
        unsafe { functions.pm_decode.call(&mut decode) }?;
        let mut info = PmGetCounterDataInfo { image, size, ..PmGetCounterDataInfo::new() };
        // SAFETY: as above.
        unsafe { functions.pm_data_info.call(&mut info) }?;
        let completed = info.completed.min(info.total);
        let mut decoded = Decoded {
            incomplete: info.populated.saturating_sub(completed) as u64,
            overflow: decode.overflow != 0,
            full: decode.stopped == STOPPED_FULL || info.populated >= info.total,
            ..Decoded::default()
        };
        for index in 0..completed {
            let mut sample = PmGetSampleInfo { object, image, size, index, ..PmGetSampleInfo::new() };
            // SAFETY: as above, and the index is below the number of samples.
            let found = unsafe { functions.pm_sample_info.call(&mut sample) };
            if !std::mem::replace(&mut self.has_sample, true) {
                decoded.dropped_first = true;
                continue;
            }
            let valued = found.and_then(|()| self.host.evaluate(&self.image, index, &self.names, &mut self.values));
            match valued {
                Ok(()) => {
                    take(SampleTime { begin: sample.start, end: sample.end }, &self.values);
                    decoded.taken += 1;
                }
                Err(_) => decoded.failed += 1,
            }
        }
        self.reset_image()?;
        Ok(decoded)
    }

    fn reset_image(&mut self) -> Result<(), Error> {
        let (size, image) = (self.image.len(), self.image.as_mut_ptr());
        let mut parameters = PmImageInitialize { object: self.object, size, image, ..PmImageInitialize::new() };
        // SAFETY: the object is alive, and the image has the size that the struct states.
        unsafe { self.counters.functions.pm_image_initialize.call(&mut parameters) }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // Errors are ignored: the driver may have shut down.
        let _ = self.stop();
        let mut parameters = PmDisable { object: self.object, ..PmDisable::new() };
        // SAFETY: the object is alive and not used again; the configuration outlives this call.
        let _ = unsafe { self.counters.functions.pm_disable.call(&mut parameters) };
    }
}
