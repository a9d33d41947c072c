//! A libcupti that plays recorded activity buffers.
//!
//! `libcupti_replay.so` exports the functions of libcupti that `cupti-sys` looks up. It reads the recording
//! named by `GPUWHY_REPLAY` and delivers to its client the records of a real H200: through the client's own
//! buffers and callbacks, only the kinds that it has enabled, at the recorded times. So everything that runs
//! in a traced process can be tested, and shown, on a host without a GPU.
//!
//! Where the real library punishes a client with a crash, a deadlock or silent loss, this one records a
//! [`violation`]; a mock that is laxer than the real thing proves nothing.
//!
//! | module | contents |
//! |---|---|
//! | [`exports`], [`control`] | the C functions: CUPTI's, and those for the host program |
//! | [`instance`] | one player per process; no panic leaves; forks are detected |
//! | [`player`], [`clock`] | the time at which each record is delivered |
//! | [`client`], [`filter`] | the settings of the client and the records that it wants |
//! | [`loan`], [`ffi`] | the client's memory and functions |
//! | [`counters`] | hardware counters: metrics of a chip and samples of a device, from a file |
//! | [`recording`], [`load`], [`session`], [`layout`] | the recording |
//! | [`fault`], [`corrupt`] | injected faults: `GPUWHY_REPLAY_FAULT` |
//!
//! Not implemented: API callbacks for the recorded calls (the host program can make its own calls) and
//! markers; more than one client; correlation ids that depend on the enabled kinds (they are played as
//! recorded).

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
pub mod recording;
pub mod session;
pub mod violation;
