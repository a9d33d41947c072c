//! Hardware counters: metrics of a chip and samples of a device, played from a file. `GPUWHY_REPLAY_COUNTERS`
//! names it; otherwise it is the path of the recording with `.counters` appended.
//!
//! Without that file every function returns what a library that is too old returns. `recorded` parses the
//! file, `unit` models the ownership of the counters and their values, and `image` has the bytes that pass
//! through the client. The C functions are in [`exports`](crate::exports).

pub mod image;
pub mod recorded;
pub mod unit;

pub use recorded::Recorded;
pub use unit::Unit;

/// The file with samples to play.
pub const COUNTERS: &str = "GPUWHY_REPLAY_COUNTERS";
