//! Runs in the program's launching calls while a kernel is to be measured.
//!
//! A launch through the runtime is reported twice, by the runtime and by the driver call inside it: the outer
//! one counts. This thread holds no lock during the launch itself.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::hash::Hasher;

use cupti_sys::counters::range::{Collected, RangeProfiler};
use cupti_sys::{CallbackSite, Domain, KernelLaunch};
use rustc_hash::FxHasher;

use crate::kernels::measurement::{Counter, LaunchShape};
use crate::kernels::thread::KernelProfiler;

thread_local! {
    /// Call whose launch is measured on this thread.
    static PASS: Cell<Option<(Domain, u32)>> = const { Cell::new(None) };
    static LATEST: RefCell<Latest> = const { RefCell::new(Latest { launches: [0; Latest::LAUNCHES], next: 0 }) };
}

/// Kernels and grids of the latest launches. A launch through the runtime always appears twice.
#[derive(Debug)]
struct Latest {
    launches: [u64; Latest::LAUNCHES],
    /// Number of launches; modulo the length it is the index of the next one.
    next: usize,
}

impl Latest {
    /// Entries for eight launches through the driver or four through the runtime, which appear twice: more
    /// than the kernels of one operation, fewer than those of a layer.
    const LAUNCHES: usize = 8;

    /// Hash of the launches before a launch, which is then added; `None` until all entries are filled.
    fn behind_then_push(&mut self, symbol: &[u8], grid: [u32; 3], block: [u32; 3]) -> Option<u64> {
        let mut behind = FxHasher::default();
        for index in 0..Self::LAUNCHES {
            behind.write_u64(self.launches[(self.next + index) % Self::LAUNCHES]);
        }
        let mut own = FxHasher::default();
        own.write(symbol);
        grid.into_iter().chain(block).for_each(|size| own.write_u32(size));
        self.launches[self.next % Self::LAUNCHES] = own.finish();
        self.next += 1;
        (self.next > Self::LAUNCHES).then(|| behind.finish())
    }
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

/// Called before and after a kernel launch.
pub fn kernel_launched(profiler: &KernelProfiler, launch: &KernelLaunch<'_>) {
    let call = (launch.domain, launch.correlation);
    if launch.site == CallbackSite::EXIT {
        if PASS.get() == Some(call) {
            PASS.set(None);
            profiler.end_pass();
        }
        return;
    }
    let Some(symbol) = launch.symbol.map(CStr::to_bytes) else { return };
    // Fails only if it is called recursively, which does not happen.
    let behind = LATEST.with(|latest| {
        latest.try_borrow_mut().ok().and_then(|mut latest| latest.behind_then_push(symbol, launch.grid, launch.block))
    });
    if PASS.get().is_some() {
        return;
    }
    let shape = LaunchShape {
        symbol,
        context: launch.context_id,
        grid: launch.grid,
        block: launch.block,
        shared_bytes: launch.shared_bytes,
        cooperative: launch.cooperative,
        behind,
    };
    if profiler.begin_pass(&shape, launch.context) {
        PASS.set(Some(call));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_launches_lead_to_the_same_number_and_others_to_another() {
        let mut latest = Latest { launches: [0; Latest::LAUNCHES], next: 0 };
        let mut step = |names: &[&str]| -> Vec<_> {
            names.iter().map(|name| latest.behind_then_push(name.as_bytes(), [1; 3], [32, 1, 1])).collect()
        };
        let forward = ["a", "g", "b", "g", "c", "g", "d", "e", "f"];
        assert_eq!(step(&forward[..8]), [None; 8], "too little is known");
        step(&forward[8..]);
        let second = step(&forward);
        assert_eq!(second, step(&forward), "each place of a step has its own number");
        assert!(second.iter().all(Option::is_some));
        assert_ne!(second[1], second[3], "one kernel in two places");
        let mut other = forward;
        other[0] = "x";
        assert_ne!(second[1], step(&other)[1]);
    }
}
