//! Metrics of a chip: the number of passes that a set needs, and metric values computed from collected
//! counters.
//!
//! One call adds all metrics of a set to a configuration, because each further call opens another pass. A
//! single pass means that the set can be sampled; it does not prove that every unit of the device delivers
//! its counters.

use std::ffi::{CString, c_char};
use std::fmt;
use std::ptr;

use super::abi::{
    HostConfigAddMetrics, HostDeinitialize, HostEvaluateToGpuValues, HostGetBaseMetrics, HostGetConfigImage,
    HostGetConfigImageSize, HostGetMetricProperties, HostGetNumOfPasses, HostInitialize, Object, PM_SAMPLING,
    RANGE_PROFILER,
};
use super::{Counters, text, texts};
use crate::abi::CuptiResult;
use crate::cupti::Error;

/// Interface that collects the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collection {
    /// The range profiler.
    Ranges,
    /// PM sampling.
    Samples,
}

impl Collection {
    const fn number(self) -> u32 {
        match self {
            Self::Ranges => RANGE_PROFILER,
            Self::Samples => PM_SAMPLING,
        }
    }
}

/// Kind of a base metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number of events.
    Counter,
    /// Quotient of two numbers.
    Ratio,
    /// The highest of several rates, in percent of the peak.
    Throughput,
}

impl MetricKind {
    /// A stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Ratio => "ratio",
            Self::Throughput => "throughput",
        }
    }
}

/// The library's description of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricProperties {
    /// A descriptive sentence.
    pub description: String,
    /// The hardware unit that counts.
    pub hardware: String,
    /// The unit of measure.
    pub unit: String,
}

/// Names of metrics that are collected together.
#[derive(Debug)]
pub struct MetricNames {
    /// What the pointers point to.
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl MetricNames {
    /// These names, in this order. A name that contains a NUL ends there, as in C.
    pub fn new(names: &[&str]) -> Self {
        let until_nul = |name: &&str| CString::new(name.split('\0').next().unwrap_or_default()).unwrap_or_default();
        let texts: Vec<CString> = names.iter().map(until_nul).collect();
        let pointers = texts.iter().map(|name| name.as_ptr()).collect();
        Self { _texts: texts, pointers }
    }

    /// Number of names.
    pub const fn len(&self) -> usize {
        self.pointers.len()
    }

    /// True if there are no names.
    pub const fn is_empty(&self) -> bool {
        self.pointers.is_empty()
    }

    /// C array of the names, valid while this value is alive.
    pub const fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// A set of metrics, ready to be collected.
#[derive(Clone, Debug)]
pub struct Configuration {
    image: Vec<u8>,
    passes: usize,
}

impl Configuration {
    /// The library's own bytes. CUPTI reads them while a collection is open.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// Number of times that the same work must run.
    pub const fn passes(&self) -> usize {
        self.passes
    }
}

/// The metrics of one chip. Not `Send`: the same thread opens, queries and drops it.
pub struct Host {
    counters: &'static Counters,
    object: Object,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl Host {
    /// Opens the metrics of a chip. `availability` limits them to those that a device allows. Without it
    /// every counter of the chip counts as present, including PCI Express and NVLink, which an availability
    /// image of 13.0 leaves out.
    ///
    /// # Errors
    /// [`CuptiResult::API_NOT_IMPLEMENTED`] before CUDA 12.6, [`CuptiResult::INVALID_PARAMETER`] for an
    /// unknown chip, and others.
    pub fn open(
        counters: &'static Counters,
        collection: Collection,
        chip: &str,
        availability: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let chip = CString::new(chip).unwrap_or_default();
        let mut parameters = HostInitialize {
            kind: collection.number(),
            chip: chip.as_ptr(),
            availability: availability.map_or(ptr::null(), <[u8]>::as_ptr),
            ..HostInitialize::new()
        };
        let function = &counters.functions.host_initialize;
        // SAFETY: a NUL-terminated string and an image made by CUPTI, both alive during the call.
        unsafe { function.call(&mut parameters) }?;
        if parameters.object.is_null() {
            return Err(Error { function: function.name(), code: CuptiResult::UNKNOWN });
        }
        Ok(Self { counters, object: parameters.object })
    }

    /// Names of the chip's base metrics. A metric to collect is a base metric with a suffix, such as `.sum`
    /// or `.avg.pct_of_peak_sustained_elapsed`.
    ///
    /// # Errors
    /// If CUPTI refuses.
    pub fn base_metrics(&self, kind: MetricKind) -> Result<Vec<String>, Error> {
        let mut parameters = HostGetBaseMetrics { object: self.object, kind: kind as u32, ..HostGetBaseMetrics::new() };
        // SAFETY: the object is alive.
        unsafe { self.counters.functions.host_base_metrics.call(&mut parameters) }?;
        // SAFETY: on success `names` points to `count` strings of the library, valid until the next call on
        // this object.
        Ok(unsafe { texts(parameters.names, parameters.count) })
    }

    /// The library's description of a metric.
    ///
    /// # Errors
    /// [`CuptiResult::INVALID_PARAMETER`] and others if the chip does not have the metric.
    pub fn properties(&self, metric: &str) -> Result<MetricProperties, Error> {
        let name = CString::new(metric).unwrap_or_default();
        let mut parameters =
            HostGetMetricProperties { object: self.object, name: name.as_ptr(), ..HostGetMetricProperties::new() };
        // SAFETY: the object and the string are alive.
        unsafe { self.counters.functions.host_properties.call(&mut parameters) }?;
        let [description, hardware, unit] = [parameters.description, parameters.unit, parameters.dimension].map(text);
        Ok(MetricProperties { description, hardware, unit })
    }

    /// Prepares the collection of these metrics. Only once per object: a second configuration would have the
    /// passes of both.
    ///
    /// # Errors
    /// [`CuptiResult::UNKNOWN`] and others if the chip lacks one of the metrics.
    pub fn configure(&mut self, names: &MetricNames) -> Result<Configuration, Error> {
        let functions = &self.counters.functions;
        let (object, count) = (self.object, names.len());
        let mut add = HostConfigAddMetrics { object, names: names.as_ptr(), count, ..HostConfigAddMetrics::new() };
        // SAFETY: the object is alive, and so are that many NUL-terminated strings.
        unsafe { functions.host_add_metrics.call(&mut add) }?;
        let mut asked = HostGetConfigImageSize { object, ..HostGetConfigImageSize::new() };
        // SAFETY: the object is alive.
        unsafe { functions.host_config_size.call(&mut asked) }?;
        let mut image = vec![0; asked.size];
        let address = image.as_mut_ptr();
        let mut get = HostGetConfigImage { object, size: image.len(), image: address, ..HostGetConfigImage::new() };
        // SAFETY: the object is alive, and the image has the size that the struct states.
        unsafe { functions.host_config.call(&mut get) }?;
        let mut passes = HostGetNumOfPasses { size: image.len(), image: address, ..HostGetNumOfPasses::new() };
        // SAFETY: the image has the size that the struct states.
        unsafe { functions.host_passes.call(&mut passes) }?;
        Ok(Configuration { image, passes: passes.passes })
    }

    /// Computes metric values from collected counters. A value that cannot be computed is NaN.
    ///
    /// # Errors
    /// [`CuptiResult::INVALID_PARAMETER`] if `names` and `values` differ in length, and others if the
    /// counters do not contain the metrics.
    pub fn evaluate(
        &self,
        counters: &[u8],
        index: usize,
        names: &MetricNames,
        values: &mut [f64],
    ) -> Result<(), Error> {
        let function = &self.counters.functions.host_evaluate;
        if values.len() != names.len() {
            return Err(Error { function: function.name(), code: CuptiResult::INVALID_PARAMETER });
        }
        let mut parameters = HostEvaluateToGpuValues {
            object: self.object,
            image: counters.as_ptr(),
            size: counters.len(),
            index,
            names: names.as_ptr(),
            count: names.len(),
            values: values.as_mut_ptr(),
            ..HostEvaluateToGpuValues::new()
        };
        // SAFETY: the object is alive, and so are the counters, that many names and room for that many
        // values.
        unsafe { function.call(&mut parameters) }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let mut parameters = HostDeinitialize { object: self.object, ..HostDeinitialize::new() };
        // SAFETY: the object is alive and not used again. The return code does not matter.
        let _ = unsafe { self.counters.functions.host_deinitialize.call(&mut parameters) };
    }
}
