//! Sums over all samples of a thread, device busy or not.

use crate::attribution::host_cause::HostCause;

/// Sums over the samples of a thread, in nanoseconds unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleTotals {
    /// Number of host samples.
    pub samples: u64,
    /// Number of host samples during garbage collection by the interpreter.
    pub collecting: u64,
    /// Time covered by the samples.
    pub covered_ns: u64,
    /// Part of it on a core.
    pub on_cpu_ns: u64,
    /// Part of it ready and waiting for a core.
    pub runnable_ns: u64,
    /// Part of it in a data loader, on a core or off.
    pub data_loading_ns: u64,
    /// Part of it neither on a core nor ready, by the cause seen at the sample; indexed by `HostCause as
    /// usize`.
    pub off_cpu_ns: [u64; HostCause::ALL.len()],
    /// Number of host samples in which it waited for worker processes of a data loader.
    pub waits_for_workers: u64,
    /// Number of these workers, summed over those samples.
    pub workers: u64,
}

impl SampleTotals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.collecting += other.collecting;
        self.covered_ns = self.covered_ns.saturating_add(other.covered_ns);
        self.on_cpu_ns = self.on_cpu_ns.saturating_add(other.on_cpu_ns);
        self.runnable_ns = self.runnable_ns.saturating_add(other.runnable_ns);
        self.data_loading_ns = self.data_loading_ns.saturating_add(other.data_loading_ns);
        for (sum, nanos) in self.off_cpu_ns.iter_mut().zip(other.off_cpu_ns) {
            *sum = sum.saturating_add(nanos);
        }
        self.waits_for_workers += other.waits_for_workers;
        self.workers = self.workers.saturating_add(other.workers);
    }
}
