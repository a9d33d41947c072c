//! GPM: metrics between two samples of hardware counters, on Hopper and later.
//!
//! A [`Sample`] is one reading of the counters; a metric is an average over the time between two samples. So
//! no work is done in between, and samples far apart lose nothing but detail. The counters advance ten times
//! a second (H200, driver 580): samples 20 ms apart differ by 0 or by the increment of 100 ms, and some
//! ratios are then NaN.

use std::ffi::c_void;

use libloading::os::unix::Library;

use crate::abi::{
    GPM_METRICS_GET_VERSION, GPM_SUPPORT_VERSION, GpmMetric, GpmMetricsGet, GpmSupport, METRIC_CAPACITY, MetricsGet,
    QuerySupport, SampleAlloc, SampleFree, SampleGet,
};
use crate::loading::function;
use crate::{Device, Nvml, Status};

/// Id of a metric in `nvmlGpmMetricId_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric(pub u32);

impl Metric {
    /// Time in which kernels ran on the device, percent; does not include copies (H200, driver 580).
    pub const GRAPHICS_UTIL: Self = Self(1);
    /// Average number of busy multiprocessors, percent of all.
    pub const SM_UTIL: Self = Self(2);
    /// Resident warps, percent of the maximum.
    pub const SM_OCCUPANCY: Self = Self(3);
    /// Time in which the tensor pipes of the multiprocessors were active, percent.
    pub const ANY_TENSOR_UTIL: Self = Self(5);
    /// Device memory bandwidth in use, percent of the peak.
    pub const DRAM_BW_UTIL: Self = Self(10);
    /// PCI Express traffic from the device, MiB/s.
    pub const PCIE_TX_PER_SEC: Self = Self(20);
    /// PCI Express traffic to the device, MiB/s.
    pub const PCIE_RX_PER_SEC: Self = Self(21);
    /// NVLink traffic to the device over all links, MiB/s.
    pub const NVLINK_TOTAL_RX_PER_SEC: Self = Self(60);
    /// NVLink traffic from the device over all links, MiB/s.
    pub const NVLINK_TOTAL_TX_PER_SEC: Self = Self(61);
}

/// The functions of GPM, which all came with the same driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpmFunctions {
    query_support: QuerySupport,
    sample_alloc: SampleAlloc,
    sample_free: SampleFree,
    sample_get: SampleGet,
    metrics_get: MetricsGet,
}

impl GpmFunctions {
    /// The functions of a library; `None` if it is too old.
    pub(crate) fn of(library: &Library) -> Option<Self> {
        Some(Self {
            query_support: function(library, "nvmlGpmQueryDeviceSupport")?,
            sample_alloc: function(library, "nvmlGpmSampleAlloc")?,
            sample_free: function(library, "nvmlGpmSampleFree")?,
            sample_get: function(library, "nvmlGpmSampleGet")?,
            metrics_get: function(library, "nvmlGpmMetricsGet")?,
        })
    }
}

/// A reading of a device's counters; made by [`Device::sample`].
#[derive(Debug)]
pub struct Sample {
    functions: GpmFunctions,
    handle: *mut c_void,
}

impl Drop for Sample {
    fn drop(&mut self) {
        // SAFETY: allocated by this library, and freed once.
        let _ = unsafe { (self.functions.sample_free)(self.handle) };
    }
}

impl Nvml {
    fn gpm(&self) -> Result<GpmFunctions, Status> {
        self.gpm.ok_or(Status::FUNCTION_NOT_FOUND)
    }
}

impl Device {
    /// Allocates a sample and takes it.
    ///
    /// # Errors
    /// [`Status::NOT_SUPPORTED`] before Hopper, [`Status::FUNCTION_NOT_FOUND`] with an old driver, or another
    /// code of NVML.
    pub fn sample(&self) -> Result<Sample, Status> {
        let functions = self.nvml.gpm()?;
        let mut support = GpmSupport { version: GPM_SUPPORT_VERSION, is_supported: 0 };
        // SAFETY: a handle of this library, and a pointer to a local with the version that it states.
        Status::of(unsafe { (functions.query_support)(self.handle, &raw mut support) })?;
        if support.is_supported == 0 {
            return Err(Status::NOT_SUPPORTED);
        }
        let mut handle = std::ptr::null_mut();
        // SAFETY: a pointer to a local, which becomes an object of the library.
        Status::of(unsafe { (functions.sample_alloc)(&raw mut handle) })?;
        let mut sample = Sample { functions, handle };
        self.sample_again(&mut sample)?;
        Ok(sample)
    }

    /// Takes a sample into memory that is already allocated.
    ///
    /// # Errors
    /// The code that NVML returns; the sample is unusable then.
    pub fn sample_again(&self, sample: &mut Sample) -> Result<(), Status> {
        // SAFETY: both handles belong to this library and are alive.
        Status::of(unsafe { (sample.functions.sample_get)(self.handle, sample.handle) })
    }

    /// Metrics between two samples of this device. `None` for a metric that the device does not have.
    ///
    /// # Errors
    /// If NVML refuses all metrics.
    pub fn metrics<const N: usize>(
        &self,
        earlier: &Sample,
        later: &Sample,
        asked: [Metric; N],
    ) -> Result<[Option<f64>; N], Status> {
        const { assert!(N <= METRIC_CAPACITY) };
        let functions = self.nvml.gpm()?;
        let mut request = GpmMetricsGet {
            version: GPM_METRICS_GET_VERSION,
            count: N as u32,
            earlier: earlier.handle,
            later: later.handle,
            metrics: [GpmMetric::EMPTY; METRIC_CAPACITY],
        };
        for (row, metric) in request.metrics.iter_mut().zip(asked) {
            row.id = metric.0;
        }
        // SAFETY: the struct is at least as long as in any header of this version, and both samples are alive.
        Status::of(unsafe { (functions.metrics_get)(&raw mut request) })?;
        let answer = |row: &GpmMetric| Some(row.value).filter(|value| row.status == 0 && value.is_finite());
        Ok(std::array::from_fn(|index| answer(&request.metrics[index])))
    }
}
