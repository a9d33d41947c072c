//! Numbers and structs of NCCL's `profiler_v4.h`, `profiler_v5.h` and `profiler_v6.h`.
//!
//! A version is frozen once NCCL is released with it. Descriptors of versions 5 and 6 agree in everything
//! that is read here. `tests/layout.rs` compares all offsets with the headers if a C compiler and the headers
//! are available.

use std::ffi::{c_char, c_int, c_void};

/// `ncclSuccess`, the only return value.
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

    /// Events requested in version 4.
    pub const MASK_V4: i32 = (COLL | P2P) as i32;
    /// Events requested in version 5.
    pub const MASK_V5: i32 = (COLL | P2P | COLL_API | P2P_API | KERNEL_LAUNCH) as i32;
    /// Events requested in version 6.
    pub const MASK_V6: i32 = MASK_V5 | CE_COLL as i32;
}

/// Offset in bytes of the event-specific part of a descriptor.
pub const BODY: usize = 24;

/// Common start of all descriptors. Version 4 has the event in the first byte of `kind`; the other bytes are
/// undefined.
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
    /// Number of earlier operations of this function in this communicator.
    pub sequence: u64,
    /// `AllReduce` and others.
    pub function: *const c_char,
    /// Never dereferenced.
    pub send: *const c_void,
    /// Never dereferenced.
    pub receive: *const c_void,
    /// Number of elements, as the program passed it.
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
    /// Never dereferenced.
    pub buffer: *const c_void,
    /// As in [`Coll`].
    pub data_type: *const c_char,
    /// Elements.
    pub count: usize,
    /// Rank of the peer.
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
    /// Never dereferenced.
    pub stream: *const c_void,
    /// C's `bool`, one byte: true while a graph is captured.
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
    /// Never dereferenced.
    pub stream: *const c_void,
    /// As in [`CollApi`].
    pub captured: u8,
}

/// [`event::CE_COLL`] of version 6, at [`BODY`], up to the last member that is read.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CeColl {
    /// As in [`Coll`].
    pub sequence: u64,
    /// As in [`Coll`].
    pub function: *const c_char,
    /// Never dereferenced.
    pub send: *const c_void,
    /// Never dereferenced.
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

/// `ncclProfiler_vN_t`: the struct that NCCL finds in a plugin.
#[derive(Debug)]
#[repr(C)]
pub struct Plugin<Init> {
    /// Name of the plugin in NCCL's log.
    pub name: *const c_char,
    /// Creates the context of a communicator.
    pub init: Init,
    /// Starts an event.
    pub start: StartEvent,
    /// Stops an event.
    pub stop: StopEvent,
    /// Records a new state of an event.
    pub record: RecordEventState,
    /// Ends the context of a communicator.
    pub finalize: Finalize,
}

// SAFETY: the name points to a constant, and the struct is never written to.
unsafe impl<Init: Sync> Sync for Plugin<Init> {}

/// `ncclProfiler_v4_t`
pub type PluginV4 = Plugin<InitV4>;
/// `ncclProfiler_v5_t` and `ncclProfiler_v6_t`
pub type PluginV5 = Plugin<InitV5>;

const _: () = assert!(size_of::<PluginV4>() == 48 && size_of::<PluginV5>() == 48);
