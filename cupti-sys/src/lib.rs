//! Bindings to NVIDIA CUPTI's activity and counter interfaces, loaded at run time: CUDA 11.8 to 13.x in one
//! binary.
//!
//! CUPTI writes the newest record layout of the library in the process, and that library is often not ours to
//! choose (PyTorch brings its own). So nothing here is generated from the headers of one version: numbers are
//! `u32` newtypes, functions are looked up by name and may be absent, and a record is a slice of bytes with a
//! measured size.
//!
//! | layer | modules | guarantees |
//! |---|---|---|
//! | raw ABI | [`abi`] | names for numbers, types of function pointers; nothing is called |
//! | library table | [`search`], [`library`], [`driver`], [`devices`] | the choice of a libcupti and its reason; the functions of that library, loaded once and never unloaded; the driver's description of itself |
//! | safe API | [`cupti`], [`subscriber`], [`callbacks`], [`buffer`], [`walk`], [`record`], [`recording`] | no raw CUPTI pointer leaves; no panic crosses into C; no read past a record's end |
//! | counters | [`counters`] | hardware counters, from CUDA 12.6 on; the same guarantees |
//!
//! This crate does not know the use of the records, owns no thread, and keeps no global state except the
//! loaded library, the list of lent buffers, and the lock that serializes flushes.
//!
//! Everything here is for 64-bit little-endian Linux, the only platform with `CUDA_INJECTION64_PATH`.
#![allow(unsafe_code, reason = "this crate calls a C library; every block says why it is sound")]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!("cupti-sys needs 64-bit little-endian Linux");

pub mod abi;
pub mod buffer;
pub mod callbacks;
pub mod counters;
pub mod cupti;
pub mod devices;
pub mod driver;
pub mod library;
pub mod record;
pub mod recording;
pub mod search;
pub mod subscriber;
mod symbols;
pub mod walk;

pub use abi::{Attribute, CallbackSite, CuptiResult, Domain, Kind, ResourceCallback, ThreadIdType};
pub use buffer::{Buffer, CompletedBuffer, forget_lent, lent_buffers, mark_lent, oldest_lent};
pub use callbacks::{
    ActivityHandler, KernelLaunch, LAUNCHES, MEMORY_CALLS, MemoryCall, MemoryFunction, ResourceHandler, SUBMISSIONS,
    Submission, count_by_library,
};
pub use cupti::{Cupti, Error};
pub use devices::{DeviceLink, DriverDevice, devices_in_use, driver_devices};
pub use driver::{
    driver_cuda_version, driver_cuda_version_by_loading, initialize_driver, kernel_driver_version, load_driver,
};
pub use library::{LoadError, is_no_file};
pub use record::Record;
pub use search::{FoundBy, Location, Search, Skip, discover, loaded_copies};
pub use subscriber::Subscriber;
pub use walk::{Broken, RecordSizes, Records};
