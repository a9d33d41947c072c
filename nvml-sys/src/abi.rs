//! The structs and numbers of `nvml.h` that are used here, and nothing more.
//!
//! Written by hand from NVIDIA's NVML reference; `tests/layout.rs` compares sizes and offsets with the ctypes
//! structs of NVIDIA's own `nvidia-ml-py`.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `NVML_SUCCESS`
pub(crate) const SUCCESS: u32 = 0;
/// `NVML_GPM_METRICS_GET_VERSION`
pub(crate) const GPM_METRICS_GET_VERSION: c_uint = 1;
/// `NVML_GPM_SUPPORT_VERSION`
pub(crate) const GPM_SUPPORT_VERSION: c_uint = 1;

/// Number of rows in a [`GpmMetricsGet`]. Headers with the same struct version declare 98 (CUDA 12.0), 333
/// (13.0) or 477 (NVML 13.615) rows, so there must be room for any of them, although only a few are
/// requested.
pub const METRIC_CAPACITY: usize = 512;

/// `nvmlUtilization_t`: whole-number percentages of the driver's last sample period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Utilization {
    /// Time in which at least one kernel was executing, according to the reference; copies count too (H200,
    /// driver 580).
    pub gpu: c_uint,
    /// Time in which device memory was read or written.
    pub memory: c_uint,
}

/// `nvmlGpmSupport_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GpmSupport {
    /// `NVML_GPM_SUPPORT_VERSION`: 1.
    pub version: c_uint,
    /// Nonzero if GPM is supported.
    pub is_supported: c_uint,
}

/// `nvmlGpmMetric_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GpmMetric {
    /// Requested metric.
    pub id: c_uint,
    /// Status of `value`: `nvmlReturn_t`.
    pub status: c_uint,
    /// Result, in the unit of the metric.
    pub value: f64,
    /// Short name, long name, unit; the library's own memory.
    pub texts: [*const c_char; 3],
}

impl GpmMetric {
    /// A row without a request.
    pub const EMPTY: Self = Self { id: 0, status: 0, value: 0.0, texts: [std::ptr::null(); 3] };
}

/// `nvmlGpmMetricsGet_t`
#[derive(Debug)]
#[repr(C)]
pub struct GpmMetricsGet {
    /// `NVML_GPM_METRICS_GET_VERSION`: 1.
    pub version: c_uint,
    /// Number of requested rows.
    pub count: c_uint,
    /// The earlier sample.
    pub earlier: *mut c_void,
    /// The later sample.
    pub later: *mut c_void,
    /// Requests and results.
    pub metrics: [GpmMetric; METRIC_CAPACITY],
}

/// `nvmlMemory_t`, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Memory {
    /// Total memory.
    pub total: u64,
    /// Free memory.
    pub free: u64,
    /// Memory in use by all processes.
    pub used: u64,
}

/// `nvmlFieldValue_t`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FieldValue {
    /// Requested field.
    pub id: c_uint,
    /// Part of the device that it applies to.
    pub scope: c_uint,
    /// Time at which the driver read it, in microseconds since the Unix epoch.
    pub timestamp: i64,
    /// Duration of that read in microseconds.
    pub latency: i64,
    /// Type of the value: `nvmlValueType_t`.
    pub kind: c_uint,
    /// Status of the value: `nvmlReturn_t`.
    pub status: c_uint,
    /// The value: a union of 8 bytes.
    pub value: u64,
}

/// `nvmlProcessInfo_v2_t`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessInfo {
    /// Process id.
    pub pid: c_uint,
    /// Device memory in bytes; all bits set if unknown.
    pub memory: u64,
    /// MIG instances.
    pub instances: [c_uint; 2],
}

/// `nvmlProcessUtilizationSample_t`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessSample {
    /// Process id.
    pub pid: c_uint,
    /// Time of the sample in microseconds since the Unix epoch.
    pub at: u64,
    /// Percent of the time in which it used multiprocessors.
    pub busy: c_uint,
    /// The same for device memory, the encoder and the decoder.
    pub others: [c_uint; 3],
}

pub(crate) type GetProcesses = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut ProcessInfo) -> u32;
pub(crate) type GetProcessSamples = unsafe extern "C" fn(*mut c_void, *mut ProcessSample, *mut c_uint, u64) -> u32;
pub(crate) type Init = unsafe extern "C" fn() -> u32;
pub(crate) type GetHandleByUuid = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> u32;
pub(crate) type GetUtilization = unsafe extern "C" fn(*mut c_void, *mut Utilization) -> u32;
pub(crate) type GetMigMode = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut c_uint) -> u32;
pub(crate) type GetNumber = unsafe extern "C" fn(*mut c_void, *mut c_uint) -> u32;
pub(crate) type GetLong = unsafe extern "C" fn(*mut c_void, *mut u64) -> u32;
pub(crate) type GetOfKind = unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> u32;
pub(crate) type GetMemoryInfo = unsafe extern "C" fn(*mut c_void, *mut Memory) -> u32;
pub(crate) type GetFieldValues = unsafe extern "C" fn(*mut c_void, c_int, *mut FieldValue) -> u32;
pub(crate) type QuerySupport = unsafe extern "C" fn(*mut c_void, *mut GpmSupport) -> u32;
pub(crate) type SampleAlloc = unsafe extern "C" fn(*mut *mut c_void) -> u32;
pub(crate) type SampleFree = unsafe extern "C" fn(*mut c_void) -> u32;
pub(crate) type SampleGet = unsafe extern "C" fn(*mut c_void, *mut c_void) -> u32;
pub(crate) type MetricsGet = unsafe extern "C" fn(*mut GpmMetricsGet) -> u32;

// The header's enum types are passed as `int` or `unsigned int`, which have the same size and calling
// convention.
const _: () = assert!(size_of::<c_int>() == size_of::<u32>());
