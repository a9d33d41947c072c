//! Installs a handler's functions in one copy of NVTX.

use std::ffi::c_void;
use std::fmt;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi::{ExportTableCallbacks, ExportTableVersionInfo, GetExportTable, VERSION, export_table, module};
use crate::callbacks::{self, Slot};
use crate::handler::Handler;

/// Why a copy of NVTX cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// It has no table of callbacks, or one shorter than in any known version.
    NoCallbacks,
    /// It has no functions for ranges.
    NoRanges,
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCallbacks => "this copy of NVTX offers no callbacks",
            Self::NoRanges => "this copy of NVTX offers no functions for ranges",
        })
    }
}

impl std::error::Error for AttachError {}

/// Sends all NVTX calls of the program through this copy to `H`.
///
/// To be called once for each copy, from `InitializeInjectionNvtx2` and with its argument. Other threads wait
/// in NVTX meanwhile. It cannot be undone: the functions must stay mapped for the life of the process.
///
/// # Errors
/// If the copy lacks what all known versions have. In that case nothing was changed.
///
/// # Safety
/// `get_export_table` is what a copy of NVTX has passed to `InitializeInjectionNvtx2`, and that call has not
/// returned.
pub unsafe fn attach<H: Handler>(get_export_table: GetExportTable) -> Result<(), AttachError> {
    // SAFETY: the caller guarantees the function; tables are static, start with their size, and never change.
    let callbacks = unsafe {
        let table = get_export_table(export_table::CALLBACKS).cast::<ExportTableCallbacks>();
        table.as_ref().filter(|table| table.struct_size >= size_of::<ExportTableCallbacks>())
    };
    let callbacks = callbacks.ok_or(AttachError::NoCallbacks)?;
    // SAFETY: the functions are those that NVTX calls through these slots, with the arguments that they
    // declare.
    let ranges = unsafe { fill(callbacks, module::CORE, &callbacks::core::<H>()) };
    if !ranges {
        return Err(AttachError::NoRanges);
    }
    // Absent before version 2, which has no domains. SAFETY: as above.
    unsafe { fill(callbacks, module::CORE2, &callbacks::core2::<H>()) };
    // SAFETY: as for the first table.
    unsafe {
        let versions = get_export_table(export_table::VERSION_INFO).cast::<ExportTableVersionInfo>();
        let whole = offset_of!(ExportTableVersionInfo, set_injection_nvtx_version) + size_of::<usize>();
        let versions = versions.as_ref().filter(|table| table.struct_size >= whole);
        if let Some(set) = versions.and_then(|table| table.set_injection_nvtx_version) {
            set(VERSION);
        }
    }
    Ok(())
}

/// Sets the function pointers of one module for which the copy has slots. `false` if it does not have the
/// module.
///
/// # Safety
/// Each function may be called through its slot.
unsafe fn fill(callbacks: &ExportTableCallbacks, module: i32, entries: &[Slot]) -> bool {
    let Some(get) = callbacks.get_module_function_table else { return false };
    let (mut table, mut size) = (ptr::null_mut(), 0);
    // SAFETY: both pointers are to live locals.
    if unsafe { get(module, &raw mut table, &raw mut size) } == 0 || table.is_null() {
        return false;
    }
    for &(at, function) in entries.iter().filter(|(at, _)| *at < size as usize) {
        // SAFETY: the table has `size` slots, each null or the address of a function pointer that the tool
        // may set.
        let place = unsafe { *table.add(at) };
        if !place.is_null() {
            // SAFETY: threads that call into this copy right now read the pointer, so the store is atomic;
            // both the old and the new function are valid for them.
            unsafe { AtomicPtr::<c_void>::from_ptr(place.cast()) }.store(function.cast_mut(), Ordering::Release);
        }
    }
    true
}
