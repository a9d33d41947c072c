//! Hardware counters: metrics of a chip and samples of a device, played from a file: the one that
//! `GPUWHY_REPLAY_COUNTERS` names, or without it that of the recording with the ending `.counters`.
//!
//! Without that file every function answers as in a library that is too old. `recorded` has the file, `unit` who may
//! count and what comes of it, `image` the bytes that go through the client, `host`, `sampling`, `ranges` and `pc` the
//! C functions.

pub mod host;
pub mod image;
mod parameters;
pub mod pc;
pub mod ranges;
pub mod recorded;
pub mod sampling;
pub mod unit;

pub use recorded::Recorded;
pub use unit::Unit;

/// The file with samples to play.
pub const COUNTERS: &str = "GPUWHY_REPLAY_COUNTERS";
