//! GPU counters of selected kernels, measured while the program runs.
//!
//! ```text
//! collector: enough has run ──choice──> gpuwhy-kernels: takes the counters, prepares metrics, listens to launches
//! program's thread, in its launching call: matches? ──start──launch──stop──> next pass, next group, next kernel
//! gpuwhy-kernels: finished profiles ──> collector ──> trace, report
//! ```
//! One pass of the counters is measured at each launch of the same shape, so no kernel is run twice.
//! Callbacks for launches are enabled only while a kernel is to be measured. Launches of other threads are
//! not delayed: if they fall into a pass, CUPTI drops a range, and the pass is repeated.
//!
//! `measurement` decides, without a clock or a library; `hook` runs in the program's calls; `thread` does the
//! rest.

mod hook;
mod measurement;
mod thread;

/// True if a kernel with this name is one of the range profiler's: it waits for some microseconds around each
/// pass (H200, CUPTI 13.0).
pub fn is_of_cupti(name: &str) -> bool {
    name == "WaitNs" || name.starts_with("_Z6WaitNs")
}

pub use hook::kernel_launched;
pub use thread::{Chosen, KernelProfiler};
