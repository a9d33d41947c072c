//! Numbers and structs of NCCL's `profiler_v4.h`, `profiler_v5.h` and `profiler_v6.h`.
//!
//! Each version is frozen once NCCL was released with it. Descriptors of versions 5 and 6 agree in everything that is
//! read here. `tests/layout.rs` compares all offsets with the headers where a C compiler and the headers are there.

use std::ffi::{c_char, c_int, c_void};

/// `ncclSuccess`, which is all that is ever answered.
pub const SUCCESS: c_int = 0;

/// Bits of events (`ncclProfile...`).
pub mod event {
    #![expect(missing_docs, reason = "each is the event ncclProfile... of its name")]
    pub const GROUP: u64 = 1;
    pub const COLL: u64 = 2;
    pub const P2P: u64 = 4;
    pub const COLL_API: u64 = 512;
    pub const P2P_API: u64 = 1024;
    pub const KERNEL_LAUNCH: u64 = 2048;
    pub const CE_COLL: u64 = 4096;

    /// What is asked for in version 4.
    pub const MASK_V4: i32 = (COLL | P2P) as i32;
    /// What is asked for in version 5.
    pub const MASK_V5: i32 = (COLL | P2P | COLL_API | P2P_API | KERNEL_LAUNCH) as i32;
    /// What is asked for in version 6.
    pub const MASK_V6: i32 = MASK_V5 | CE_COLL as i32;
}

/// Where the part of a descriptor begins that its event decides, bytes.
pub const BODY: usize = 24;

/// What all descriptors begin with. Version 4 has the event in the first byte of `kind`, and nothing in the others.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Head {
    /// One of [`event`].
    pub kind: u64,
    /// Handle of the event that it belongs to.
    pub parent: *const c_void,
    /// Rank in the communicator; 0 in launches.
    pub rank: c_int,
}

/// [`event::COLL`], at [`BODY`]. Later versions append a group.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Coll {
    /// Operations of this function in this communicator before it.
    pub sequence: u64,
    /// `AllReduce` and others.
    pub function: *const c_char,
    /// Never followed.
    pub send: *const c_void,
    /// Never followed.
    pub receive: *const c_void,
    /// Elements, as the program gave them.
    pub count: usize,
    /// Rank of the root.
    pub root: c_int,
    /// `ncclFloat32` and others.
    pub data_type: *const c_char,
    /// Channels.
    pub channels: u8,
    /// Warps.
    pub warps: u8,
    /// `RING` and others.
    pub algorithm: *const c_char,
    /// `LL`, `LL128`, `SIMPLE`.
    pub protocol: *const c_char,
}

/// [`event::P2P`], at [`BODY`]. Later versions append a group.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct P2p {
    /// `Send` or `Recv`.
    pub function: *const c_char,
    /// Never followed.
    pub buffer: *const c_void,
    /// As in [`Coll`].
    pub data_type: *const c_char,
    /// Elements.
    pub count: usize,
    /// Rank of the other one.
    pub peer: c_int,
    /// Channels.
    pub channels: u8,
}

/// [`event::COLL_API`], at [`BODY`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CollApi {
    /// As in [`Coll`].
    pub function: *const c_char,
    /// Elements.
    pub count: usize,
    /// As in [`Coll`].
    pub data_type: *const c_char,
    /// Rank of the root.
    pub root: c_int,
    /// Never followed.
    pub stream: *const c_void,
    /// A byte of C's `bool`: whether a graph is being captured.
    pub captured: u8,
}

/// [`event::P2P_API`], at [`BODY`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct P2pApi {
    /// As in [`P2p`].
    pub function: *const c_char,
    /// Elements.
    pub count: usize,
    /// As in [`Coll`].
    pub data_type: *const c_char,
    /// Never followed.
    pub stream: *const c_void,
    /// As in [`CollApi`].
    pub captured: u8,
}

/// [`event::CE_COLL`] of version 6, at [`BODY`], as far as it is read.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CeColl {
    /// As in [`Coll`].
    pub sequence: u64,
    /// As in [`Coll`].
    pub function: *const c_char,
    /// Never followed.
    pub send: *const c_void,
    /// Never followed.
    pub receive: *const c_void,
    /// Elements.
    pub count: usize,
    /// Rank of the root.
    pub root: c_int,
    /// As in [`Coll`].
    pub data_type: *const c_char,
}

/// `init` of version 4.
pub type InitV4 = unsafe extern "C" fn(
    context: *mut *mut c_void,
    mask: *mut c_int,
    name: *const c_char,
    id: u64,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    log: *const c_void,
) -> c_int;

/// `init` of versions 5 and 6.
pub type InitV5 = unsafe extern "C" fn(
    context: *mut *mut c_void,
    id: u64,
    mask: *mut c_int,
    name: *const c_char,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    log: *const c_void,
) -> c_int;

/// `startEvent`; the descriptor is that of the plugin's version.
pub type StartEvent =
    unsafe extern "C" fn(context: *mut c_void, handle: *mut *mut c_void, descriptor: *const c_void) -> c_int;
/// `stopEvent`
pub type StopEvent = unsafe extern "C" fn(handle: *mut c_void) -> c_int;
/// `recordEventState`
pub type RecordEventState = unsafe extern "C" fn(handle: *mut c_void, state: c_int, arguments: *const c_void) -> c_int;
/// `finalize`
pub type Finalize = unsafe extern "C" fn(context: *mut c_void) -> c_int;

/// `ncclProfiler_vN_t`: what NCCL finds in a plugin.
#[derive(Debug)]
#[repr(C)]
pub struct Plugin<Init> {
    /// What NCCL calls it in its log.
    pub name: *const c_char,
    /// A communicator is made.
    pub init: Init,
    /// An event begins.
    pub start: StartEvent,
    /// An event ends.
    pub stop: StopEvent,
    /// An event changes its state.
    pub record: RecordEventState,
    /// A communicator is gone.
    pub finalize: Finalize,
}

// SAFETY: the name points to a constant, and nothing of it is ever written.
unsafe impl<Init: Sync> Sync for Plugin<Init> {}

/// `ncclProfiler_v4_t`
pub type PluginV4 = Plugin<InitV4>;
/// `ncclProfiler_v5_t` and `ncclProfiler_v6_t`
pub type PluginV5 = Plugin<InitV5>;

const _: () = assert!(size_of::<PluginV4>() == 48 && size_of::<PluginV5>() == 48);
