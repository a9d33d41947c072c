//! The tool's side of NVTX: what a library needs to receive the ranges and marks of a program.
//!
//! NVTX 3 is a header: every library that includes it has its own copy, with its own table of function
//! pointers. NVTX 2 is a library that does the same. At its first call each copy loads the library named by
//! `NVTX_INJECTION64_PATH` and calls `InitializeInjectionNvtx2` in it, perhaps before CUDA is used and on
//! several threads at once. [`attach()`] is the body of that function: it puts the functions of a [`Handler`]
//! into the table of the calling copy.
//!
//! | module | contents |
//! |---|---|
//! | [`abi`] | names for numbers and structs of `nvtxTypes.h`; nothing is called |
//! | [`handler`], [`event`] | the safe side: what arrived, without raw pointers |
//! | [`attach`](mod@attach), `callbacks` | the C side: no panic crosses it, nothing is read past a struct's stated size |
//!
//! With the feature `program` there is also the other side: a copy of NVTX without its header, for Rust
//! programs.
//!
//! Functions that a tool does not need are left unassigned, and NVTX turns them into calls that do nothing:
//! names of threads and of CUDA, OpenCL and synchronization objects, resources, `nvtxInitialize`. Programs
//! see the same results as without a tool.
//!
//! This crate emits no ranges (except for that feature), keeps no state, allocates nothing, and knows nothing
//! about the use of the events.
#![allow(unsafe_code, reason = "this crate is called by C programs; every block says why it is sound")]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!("nvtx-sys needs 64-bit little-endian Linux, where wchar_t has four bytes");

pub mod abi;
pub mod attach;
mod callbacks;
pub mod event;
pub mod handler;
#[cfg(feature = "program")]
pub mod program;

pub use abi::GetExportTable;
pub use attach::{AttachError, attach};
pub use event::{Attributes, EXTENDED_WORDS, Extended, MAX_TEXT, Message, Payload, RegisteredString, Text};
pub use handler::{Domain, Handler};
