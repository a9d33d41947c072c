//! What runs in the program's launching calls while a kernel is wanted.
//!
//! A launch through the runtime is told twice, by the runtime and by the driver below it: the outer one is taken. This
//! thread holds no lock while the launch itself is made.

use std::cell::Cell;

use cupti_sys::counters::range::{Collected, RangeProfiler};
use cupti_sys::{CallbackSite, Domain, KernelLaunch};

use crate::kernels::measurement::{Counter, Launch};
use crate::kernels::thread::KernelProfiler;

thread_local! {
    /// The call whose launch is measured on this thread.
    static PASS: Cell<Option<(Domain, u32)>> = const { Cell::new(None) };
}

impl Counter for RangeProfiler {
    fn groups(&self) -> usize {
        self.plan().groups()
    }

    fn passes(&self) -> usize {
        (0..self.plan().groups()).map(|group| self.plan().passes(group)).sum()
    }

    fn missing(&self) -> Vec<String> {
        self.plan().missing().to_vec()
    }

    fn begin_group(&mut self, group: usize) -> Result<(), u32> {
        Self::begin_group(self, group).map_err(|error| error.code.0)
    }

    fn start(&mut self) -> Result<(), u32> {
        Self::start(self).map_err(|error| error.code.0)
    }

    fn stop(&mut self) -> Result<bool, u32> {
        Self::stop(self).map_err(|error| error.code.0)
    }

    fn collect(&mut self, group: usize) -> Result<Collected, u32> {
        Self::collect(self, group).map_err(|error| error.code.0)
    }
}

/// A kernel is about to be launched, or was.
pub fn kernel_launched(profiler: &KernelProfiler, launch: &KernelLaunch<'_>) {
    let call = (launch.domain, launch.correlation);
    if launch.site == CallbackSite::EXIT {
        if PASS.get() == Some(call) {
            PASS.set(None);
            profiler.end_pass();
        }
        return;
    }
    let Some(symbol) = launch.symbol.filter(|_| PASS.get().is_none()) else { return };
    let shape = Launch {
        symbol: symbol.to_bytes(),
        context: launch.context_id,
        grid: launch.grid,
        block: launch.block,
        shared_bytes: launch.shared_bytes,
        cooperative: launch.cooperative,
    };
    if profiler.begin_pass(&shape, launch.context) {
        PASS.set(Some(call));
    }
}
