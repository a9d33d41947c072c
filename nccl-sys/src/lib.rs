//! The tool's side of NCCL's profiler plugin: what a library must offer to receive the operations of
//! communicators.
//!
//! At the first communicator NCCL loads the library named by `NCCL_PROFILER_PLUGIN`, and takes the data
//! symbol `ncclProfiler_vN` of the highest version that both know. NCCL 2.27 has version 4, 2.28 version 5,
//! 2.29 and later version
//! 6. [`plugin_v4`], [`plugin_v5`] and [`plugin_v6`] make these symbols from a [`Handler`].
//!
//! | module | contents |
//! |---|---|
//! | [`abi`] | names for numbers and structs of `profiler_v4.h`, `profiler_v5.h` and `profiler_v6.h`; nothing is called |
//! | [`handler`] | the safe side: what arrived, without raw pointers |
//! | [`mod@plugin`] | the C side: no panic crosses it, handles are numbers and are never dereferenced |
//!
//! Only calls and launches are requested. Device times (`KernelCh`) and the work of proxy threads never are:
//! they cost the program time, and crashes were reported with them.
#![allow(unsafe_code, reason = "this crate is called by C programs; every block says why it is sound")]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!("nccl-sys needs 64-bit little-endian Linux, where the layouts of the plugin are known");

pub mod abi;
pub mod handler;
pub mod plugin;

pub use abi::{PluginV4, PluginV5};
pub use handler::{Communicator, Handler, NcclOperation, OperationKind, Version};
pub use plugin::{plugin_v4, plugin_v5, plugin_v6};
