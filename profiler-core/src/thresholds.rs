//! Limits that decide what a time means, each with where the number comes from.
//!
//! Only those that several modules share are here; a limit that one module needs is in that module.

/// Host and device clocks are mapped to each other with an error; an operation may seem to begin this much before
/// the call that launched it. Measured differences stay under 20 us.
pub const CLOCK_SLACK_NANOS: u64 = 50_000;
/// A record that ends this much after the flush that delivered it cannot be true.
pub(crate) const FUTURE_NANOS: u64 = 10_000_000_000;

/// Longest gap before a queued operation that the device needs for itself. Measured medians are 1 to 4 us and the
/// 99th percentile at most 9 us, from V100 to B200.
pub(crate) const INTER_KERNEL_NANOS: u64 = 10_000;
/// Longest time from the return of a launch to the begin of its kernel on an idle device that is plain latency.
/// Measured medians are 1 to 7 us.
pub(crate) const LAUNCH_LATENCY_NANOS: u64 = 20_000;
/// Longest time between two CUDA calls that is the framework's cost of one operation. Eager PyTorch takes 5 to 50 us.
pub(crate) const DISPATCH_NANOS: u64 = 100_000;
/// Shortest time between CUDA calls that can be a wait for input: below, fetching is not worth a mention.
pub(crate) const INPUT_GAP_NANOS: u64 = 1_000_000;
/// Smallest copy that can be an input batch: scalars and flags that programs move about are smaller.
pub(crate) const INPUT_BYTES: u64 = 4_096;
/// Time between CUDA calls after which a process is more likely parked (a server, a notebook) than slow.
pub(crate) const PARKED_NANOS: u64 = 10_000_000_000;
/// A wait that returned at most this long before the gap opened had let the device run dry: waking a thread takes
/// some microseconds and clocks differ a little.
pub(crate) const SYNC_SLACK_NANOS: u64 = 20_000;

/// A group other than computation is the verdict when this part of steady time is recoverable: without its cause the
/// program would be 1.18 times as fast.
pub const WORTH_SHARE: f64 = 0.15;
