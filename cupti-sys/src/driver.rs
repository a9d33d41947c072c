//! Driver queries that are safe while `cuInit` is still running.
//!
//! An injected library is loaded in the middle of `cuInit`, where any other CUDA call would deadlock or fail.
//! `cuDriverGetVersion` returns a constant, and the kernel module describes itself in a file.
//! [`initialize_driver`] is for other programs.

use crate::abi::{DriverGetVersion, DriverInitialize};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use std::error::Error as _;
use std::fs;
use std::mem::ManuallyDrop;

/// The driver's library, under the name that every CUDA program loads.
const LIBCUDA: &str = "libcuda.so.1";
/// File that contains the version of the kernel module.
const KERNEL_MODULE: &str = "/proc/driver/nvidia/version";

/// The newest CUDA that the driver in this process supports, as `1000 * major + 10 * minor`. `None` if no
/// libcuda is mapped yet: this never loads one.
pub fn driver_cuda_version() -> Option<u32> {
    mapped().and_then(|libcuda| cuda_version(&libcuda))
}

/// Same as [`driver_cuda_version`], but loads libcuda if it is not mapped. For a program that is not a CUDA
/// program, such as a diagnostic command; does not initialize CUDA. `None` if there is no libcuda.
pub fn driver_cuda_version_by_loading() -> Option<u32> {
    load_driver().and_then(|libcuda| cuda_version(&libcuda))
}

/// Calls `cuInit`, loading libcuda if it is not mapped: afterwards there are devices, but no context. For a
/// program that is not a CUDA program; takes some 0.2 s. `CUDA_INJECTION64_PATH` applies. False if there is
/// no libcuda, or it refuses.
#[must_use]
pub fn initialize_driver() -> bool {
    let Some(libcuda) = load_driver() else { return false };
    // SAFETY: the name belongs to a C function of this type; its flags must be 0.
    unsafe { libcuda.get::<DriverInitialize>("cuInit").is_ok_and(|initialize| initialize(0) == 0) }
}

/// The driver's library, if it is mapped.
pub(crate) fn mapped() -> Option<ManuallyDrop<Library>> {
    open(RTLD_LAZY | RTLD_LOCAL | libc::RTLD_NOLOAD)
}

/// The driver's library, loaded if it is not mapped: for a program that is not a CUDA program. It stays
/// loaded.
pub fn load_driver() -> Option<ManuallyDrop<Library>> {
    open(RTLD_LAZY | RTLD_LOCAL)
}

/// Loads the driver's library if it is not mapped, and returns why it cannot be used. The stub of a CUDA toolkit has
/// its name, and refuses every call; in a container the library may exist without a GPU. CUPTI 13.2 crashes in its
/// first call whenever it cannot initialize, not only if there is no library (13.2.86).
pub(crate) fn require_driver() -> Result<(), String> {
    let libcuda = open_or_explain(RTLD_LAZY | RTLD_LOCAL).map_err(|error| {
        // The linker's own message is one level down.
        error.source().map_or_else(|| format!("{LIBCUDA}: {error}"), ToString::to_string)
    })?;
    match cuda_version(&libcuda) {
        Some(_) if has_device_files() => Ok(()),
        Some(_) => Err("there is no device file of NVIDIA in /dev".to_owned()),
        None => Err(format!("{LIBCUDA} has no version, as the stub library of a CUDA toolkit")),
    }
}

/// True if the driver can have a device: those of Linux, WSL and Tegra. True if /dev cannot be read.
fn has_device_files() -> bool {
    const PREFIXES: [&str; 4] = ["nvidia", "dxg", "nvmap", "nvhost"];
    let Ok(mut entries) = fs::read_dir("/dev") else { return true };
    entries.any(|entry| {
        entry.is_ok_and(|entry| PREFIXES.iter().any(|prefix| entry.file_name().to_string_lossy().starts_with(prefix)))
    })
}

fn open(flags: i32) -> Option<ManuallyDrop<Library>> {
    open_or_explain(flags).ok()
}

/// The driver cannot be unloaded safely, so an extra reference keeps it loaded for good.
fn open_or_explain(flags: i32) -> Result<ManuallyDrop<Library>, libloading::Error> {
    // SAFETY: libcuda's initializers run in every CUDA program; none run if it is only looked up.
    unsafe { Library::open(Some(LIBCUDA), flags) }.map(ManuallyDrop::new)
}

fn cuda_version(libcuda: &Library) -> Option<u32> {
    let mut version = 0;
    // SAFETY: the name belongs to a C function of this type, which may be called before and during `cuInit`.
    let code = unsafe { libcuda.get::<DriverGetVersion>("cuDriverGetVersion").ok()?(&raw mut version) };
    u32::try_from(version).ok().filter(|&version| code == 0 && version != 0)
}

/// Version of the NVIDIA kernel module, for example `580.159.04`. `None` if the module is not loaded.
pub fn kernel_driver_version() -> Option<String> {
    parse_version(&fs::read_to_string(KERNEL_MODULE).ok()?)
}

/// The first word of the `NVRM` line that consists of numbers separated by dots. Its position differs between
/// the open and the closed module.
fn parse_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version"))?;
    let is_version = |word: &&str| {
        word.contains('.') && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    line.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_kernel_module_are_understood() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC version:  gcc version 12.3.0\n";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder)\n";
        assert_eq!(parse_version(closed).as_deref(), Some("535.183.01"));
        assert_eq!(parse_version(open).as_deref(), Some("580.95.05"));
        assert_eq!(parse_version("GCC version:  12.3.0\n"), None);
    }

    #[test]
    fn asking_for_the_driver_does_not_load_it() {
        let mapped = || fs::read_to_string("/proc/self/maps").unwrap().contains(LIBCUDA);
        let before = mapped();
        assert_eq!(driver_cuda_version().is_some(), before);
        assert_eq!(mapped(), before);
    }
}
