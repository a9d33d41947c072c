//! The safe interface of a loaded libcupti: one method for each function that tracing needs.
//!
//! Methods can be called from any thread unless stated otherwise. None initializes CUDA. If an older library
//! lacks a function, the method returns [`CuptiResult::API_NOT_IMPLEMENTED`]. `cuptiFinalize` is left out on
//! purpose: after it CUPTI is not reliably usable, and it has broken programs with CUDA graphs.

use crate::abi::{self, CuptiResult, Domain, Kind, ThreadIdType, UnifiedMemoryCounter};
use crate::search::FoundBy;
use crate::symbols::Symbols;
use libloading::os::unix::Library;
use std::ffi::CStr;
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// Failure of a CUPTI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Name of the C function.
    pub function: &'static str,
    /// Its return code.
    pub code: CuptiResult,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {}", self.function, self.code)
    }
}

impl std::error::Error for Error {}

pub(crate) fn check(function: &'static str, code: CuptiResult) -> Result<(), Error> {
    if code == CuptiResult::SUCCESS { Ok(()) } else { Err(Error { function, code }) }
}

pub(crate) const fn absent(function: &'static str) -> Error {
    Error { function, code: CuptiResult::API_NOT_IMPLEMENTED }
}

/// A loaded libcupti, which stays loaded until the process ends.
pub struct Cupti {
    pub(crate) symbols: Symbols,
    pub(crate) path: PathBuf,
    pub(crate) found_by: FoundBy,
    /// Never closed.
    pub(crate) library: ManuallyDrop<Library>,
    /// Held during `cuptiActivityFlushAll`: two calls at once deadlock in some versions.
    pub(crate) flushing: Mutex<()>,
}

impl fmt::Debug for Cupti {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cupti").field("path", &self.path).field("found_by", &self.found_by).finish_non_exhaustive()
    }
}

impl Cupti {
    /// The file that the dynamic linker has mapped.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why this file was chosen.
    pub const fn found_by(&self) -> &FoundBy {
        &self.found_by
    }

    /// CUPTI's API version: 18 for 11.8 to 12.1, 28 for 12.9, then values like 130001 for 13.0 update 1. It
    /// does not identify the record layout: see [`RecordSizes`](crate::RecordSizes).
    ///
    /// # Errors
    /// Without a driver from 13.3 on.
    pub fn version(&self) -> Result<u32, Error> {
        let mut version = 0;
        // SAFETY: the pointer is to a live `u32` that the function fills in.
        let code = unsafe { (self.symbols.get_version)(&raw mut version) };
        check("cuptiGetVersion", code).map(|()| version)
    }

    /// Current time on the clock of all records, in nanoseconds since the Unix epoch.
    ///
    /// # Errors
    /// If CUPTI cannot initialize.
    pub fn timestamp(&self) -> Result<u64, Error> {
        let mut nanos = 0;
        // SAFETY: the pointer is to a live `u64` that the function fills in.
        let code = unsafe { (self.symbols.get_timestamp)(&raw mut nanos) };
        check("cuptiGetTimestamp", code).map(|()| nanos)
    }

    /// Starts recording a kind.
    ///
    /// # Errors
    /// [`CuptiResult::INVALID_KIND`] if this library does not know the kind, and others.
    pub fn enable(&self, kind: Kind) -> Result<(), Error> {
        // SAFETY: takes a number.
        check("cuptiActivityEnable", unsafe { (self.symbols.enable)(kind) })
    }

    /// Stops recording a kind. The launch path does not regain its full speed.
    ///
    /// # Errors
    /// If the kind was not enabled, and others.
    pub fn disable(&self, kind: Kind) -> Result<(), Error> {
        // SAFETY: takes a number.
        check("cuptiActivityDisable", unsafe { (self.symbols.disable)(kind) })
    }

    /// True if single API functions can be recorded ([`enable_api`](Self::enable_api)): 12.5 and later.
    pub const fn can_filter_api(&self) -> bool {
        self.symbols.enable_runtime_api.is_some() && self.symbols.enable_driver_api.is_some()
    }

    /// Starts recording calls of one API function, instead of enabling all of [`Kind::RUNTIME`] or
    /// [`Kind::DRIVER`].
    ///
    /// # Errors
    /// [`CuptiResult::API_NOT_IMPLEMENTED`] before 12.5, [`CuptiResult::INVALID_PARAMETER`] for a domain that
    /// is not an API or an unknown function.
    pub fn enable_api(&self, domain: Domain, callback_id: u32) -> Result<(), Error> {
        self.set_api(domain, callback_id, true)
    }

    /// Stops the recording that [`enable_api`](Self::enable_api) started.
    ///
    /// # Errors
    /// As for [`enable_api`](Self::enable_api).
    pub fn disable_api(&self, domain: Domain, callback_id: u32) -> Result<(), Error> {
        self.set_api(domain, callback_id, false)
    }

    fn set_api(&self, domain: Domain, callback_id: u32, on: bool) -> Result<(), Error> {
        let (function, name) = match domain {
            Domain::RUNTIME => (self.symbols.enable_runtime_api, "cuptiActivityEnableRuntimeApi"),
            Domain::DRIVER => (self.symbols.enable_driver_api, "cuptiActivityEnableDriverApi"),
            _ => return Err(Error { function: "enable_api", code: CuptiResult::INVALID_PARAMETER }),
        };
        let function = function.ok_or(absent(name))?;
        // SAFETY: takes numbers.
        check(name, unsafe { function(callback_id, u8::from(on)) })
    }

    /// Selects the kind of thread id in API records. Before kinds are enabled.
    ///
    /// # Errors
    /// If CUPTI refuses.
    pub fn set_thread_id_type(&self, kind: ThreadIdType) -> Result<(), Error> {
        // SAFETY: takes a number.
        check("cuptiSetThreadIdType", unsafe { (self.symbols.set_thread_id_type)(kind) })
    }

    /// Makes CUPTI return the buffers whose records are all complete; with `forced` also those with running
    /// kernels, whose end time then stays 0: only for the end of the process. Buffers may still arrive just
    /// after this returns.
    ///
    /// Waits while another thread flushes, because concurrent calls deadlock in some versions. Not from a
    /// handler.
    ///
    /// # Errors
    /// If CUPTI is not initialized or the driver has already shut down, which is normal late at exit.
    pub fn flush(&self, forced: bool) -> Result<(), Error> {
        let _one_at_a_time = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        let flag = if forced { abi::FLUSH_FORCED } else { 0 };
        // SAFETY: takes a number.
        check("cuptiActivityFlushAll", unsafe { (self.symbols.flush_all)(flag) })
    }

    /// Number of records dropped for lack of a buffer since the previous call.
    ///
    /// Not while holding a lock that a handler takes: CUPTI calls handlers under the lock that this takes.
    ///
    /// # Errors
    /// If CUPTI is not initialized.
    pub fn dropped_records(&self) -> Result<u64, Error> {
        let mut dropped = 0_usize;
        // SAFETY: a NULL context and stream 0 select the global queue; the pointer is to a live `usize`.
        let code = unsafe { (self.symbols.dropped_records)(ptr::null_mut(), 0, &raw mut dropped) };
        check("cuptiActivityGetNumDroppedRecords", code).map(|()| dropped as u64)
    }

    /// Name of an API function, for example `cudaLaunchKernel_v7000`. `None` if this library does not know
    /// it.
    pub fn callback_name(&self, domain: Domain, callback_id: u32) -> Option<String> {
        let mut name = ptr::null();
        // SAFETY: the pointer is to a live local.
        let code = unsafe { (self.symbols.get_callback_name)(domain, callback_id, &raw mut name) };
        if code != CuptiResult::SUCCESS || name.is_null() {
            return None;
        }
        // SAFETY: on success the name is a NUL-terminated constant of the library, which stays loaded.
        let name = unsafe { CStr::from_ptr(name) };
        Some(name.to_string_lossy().into_owned())
    }

    /// Id of an executable graph in records; `None` if the library does not provide it.
    ///
    /// # Safety
    /// A graph with this handle exists.
    pub(crate) unsafe fn graph_exec_id(&self, exec: abi::GraphExec) -> Option<u32> {
        let function = self.symbols.get_graph_exec_id?;
        let mut id = 0;
        // SAFETY: guaranteed by the caller, and `id` is a live `u32`.
        let code = unsafe { function(exec, &raw mut id) };
        (code == CuptiResult::SUCCESS).then_some(id)
    }

    /// True if nodes of graphs have ids outside records: all known versions.
    pub const fn can_name_graph_nodes(&self) -> bool {
        self.symbols.get_graph_node_id.is_some()
    }

    /// Id of a node of a graph in records; `None` if the library does not provide it.
    ///
    /// # Safety
    /// A node with this handle exists.
    pub(crate) unsafe fn graph_node_id(&self, node: abi::GraphNode) -> Option<u64> {
        let function = self.symbols.get_graph_node_id?;
        let mut id = 0;
        // SAFETY: guaranteed by the caller, and `id` is a live `u64`.
        let code = unsafe { function(node, &raw mut id) };
        (code == CuptiResult::SUCCESS).then_some(id)
    }

    /// Starts recording page faults of devices on managed memory, and nothing else of it. After `cuInit`; disabled as
    /// [`Kind::UNIFIED_MEMORY_COUNTER`].
    ///
    /// # Errors
    /// [`CuptiResult::API_NOT_IMPLEMENTED`] in a library without the function; others if the device or its setup cannot
    /// record it.
    pub fn enable_device_faults(&self) -> Result<(), Error> {
        const PROCESS_ALL_DEVICES: u32 = 2;
        let name = "cuptiActivityConfigureUnifiedMemoryCounter";
        let function = self.symbols.configure_unified_memory.ok_or(absent(name))?;
        let kind = UnifiedMemoryCounter::GPU_PAGE_FAULT;
        let mut config = abi::UnifiedMemoryConfig { scope: PROCESS_ALL_DEVICES, kind, device: 0, enable: 1 };
        // SAFETY: the pointer is to one live configuration, which CUPTI reads during the call.
        check(name, unsafe { function(&raw mut config, 1) })?;
        self.enable(Kind::UNIFIED_MEMORY_COUNTER)
    }

    /// Names of the optional functions that this library lacks.
    pub fn missing_functions(&self) -> Vec<&'static str> {
        self.symbols.missing()
    }
}
