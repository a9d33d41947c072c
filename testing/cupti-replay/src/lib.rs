//! A libcupti that plays recorded activity buffers.
//!
//! `libcupti_replay.so` exports the functions of libcupti that `cupti-sys` looks up. It reads the recording named by
//! `GPUWHY_REPLAY` and gives its client the records that a real H200 gave once: through the client's own buffers and
//! callbacks, only the kinds it has enabled, at the recorded times. So everything that runs in a traced process can
//! be tested, and shown, on a machine without a GPU.
//!
//! Where the real library punishes a client with a crash, a deadlock or silent loss, this one writes down a
//! [`violation`]; a mock that is laxer than the real thing proves nothing.
//!
//! | module | what it knows |
//! |---|---|
//! | [`exports`], [`control`] | the C functions: CUPTI's, and those for the host program |
//! | [`instance`] | one player in a process; no panic leaves; forks are recognized |
//! | [`player`], [`clock`] | when which record goes out |
//! | [`client`], [`filter`] | what the client has set up and wants |
//! | [`loan`], [`ffi`] | the client's memory and functions |
//! | [`counters`] | hardware counters: metrics of a chip and samples of a device, from a file |
//! | [`load`], [`session`], [`layout`] | the recording |
//! | [`fault`], [`corrupt`] | what goes wrong on purpose: `GPUWHY_REPLAY_FAULT` |
//!
//! What it does not do: API callbacks for the recorded calls (the host program can make calls of its own) and markers;
//! more than one client; correlation ids that depend on the enabled kinds (they are played as recorded).

pub mod client;
pub mod clock;
pub mod control;
pub mod corrupt;
pub mod counters;
pub mod exports;
pub mod fault;
pub mod ffi;
pub mod filter;
pub mod instance;
pub mod layout;
pub mod load;
pub mod loan;
pub mod player;
pub mod session;
pub mod violation;
