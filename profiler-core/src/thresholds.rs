//! Limits that classify times, each with the source of its value.
//!
//! Only limits shared by several modules are here; other limits are in their modules.

/// Host and device clocks are mapped to each other with an error; an operation may seem to start this much
/// before the call that launched it. Measured differences stay below 20 us.
pub const CLOCK_SLACK_NANOS: u64 = 50_000;
/// A record that ends this much after the flush that delivered it is invalid.
pub(crate) const FUTURE_NANOS: u64 = 10_000_000_000;

/// Longest gap before a queued operation that the device itself needs. Measured medians are 1 to 4 us and the
/// 99th percentile at most 9 us, from V100 to B200.
pub(crate) const INTER_KERNEL_NANOS: u64 = 10_000;
/// Longest time from the return of a launch to the start of its kernel on an idle device that is pure
/// latency. Measured medians are 1 to 7 us.
pub(crate) const LAUNCH_LATENCY_NANOS: u64 = 20_000;
/// Launches after which a thread can hand over to another one. Watchdogs that only poll, and threads that
/// only allocate, never reach this.
pub(crate) const LAUNCHING_THREAD: u64 = 6;
/// Longest time between two CUDA calls that counts as the framework's cost per operation. Eager PyTorch takes
/// 5 to 50 us.
pub(crate) const DISPATCH_NANOS: u64 = 100_000;
/// Longest time from a sample to the moment that its stack shows where the record does not say it, nanoseconds: in a
/// loop of 110 us with 14 calls, the lines of samples agreed with the calls 40 us later.
pub const STACK_DELAY_NANOS: u64 = 50_000;
/// Shortest launch whose line a sample can show for certain. Twice the delay, so that half of it or more can be
/// sampled.
pub const CERTAIN_LAUNCH_NANOS: u64 = 2 * STACK_DELAY_NANOS;
/// Shortest time between CUDA calls that can be a wait for input: shorter fetches are irrelevant.
pub(crate) const INPUT_GAP_NANOS: u64 = 1_000_000;
/// Smallest copy that can be an input batch: scalars and flags are smaller.
pub(crate) const INPUT_BYTES: u64 = 4_096;
/// Time between CUDA calls after which a process is more likely parked (a server, a notebook) than slow.
pub(crate) const PARKED_NANOS: u64 = 10_000_000_000;
/// A wait that returned at most this long before the gap opened made the device run dry: waking a thread
/// takes some microseconds and clocks differ a little.
pub(crate) const SYNC_SLACK_NANOS: u64 = 20_000;

/// A cause other than computation is the bottleneck if this fraction of steady time is recoverable: without
/// the cause, the program would run 1.18 times as fast.
pub const WORTH_SHARE: f64 = 0.15;
