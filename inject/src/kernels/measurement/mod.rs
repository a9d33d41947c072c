//! Decides which launch is measured next, and when a kernel is done: a state machine without a clock or a
//! library.

use std::collections::VecDeque;

use cupti_sys::counters::range::Collected;
use gpuwhy_report::kernels::Choice;
use gpuwhy_trace::kernels::{KernelProfile, Outcome};
use gpuwhy_trace::record::{Context, Timestamp};
use rustc_hash::FxHashSet;

use crate::config::MOST_LAUNCHES;

/// Maximum number of repetitions of the passes of a group because other threads launched into them.
const MOST_REPEATS: u32 = 3;
/// Time without a launch after which a kernel is skipped, nanoseconds.
pub const PATIENCE_NANOS: u64 = 5_000_000_000;
/// Time to wait for launches other than those that were measured and were too short, nanoseconds.
const PATIENCE_FOR_OTHERS: u64 = 1_000_000_000;
/// One kernel and grid can do different work, such as products of different depth. Launches shorter than this
/// fraction of the mean make up little of the kernel's time, so others are measured,
const LEAST_OF_MEAN: f64 = 0.75;
/// up to this number of times.
const MOST_TRIES: usize = 4;
/// Maximum number of positions of one kernel in a step that are kept.
const MOST_PLACES: usize = 4096;
/// Duration of a launch, nanoseconds.
const DURATION: &str = "gpu__time_duration.sum";
/// `CUPTI_ERROR_HARDWARE_BUSY`
const BUSY: u32 = 26;

/// A source of counter values: the range profiler, or its substitute in tests. Errors are numbers of
/// `CUptiResult`.
pub trait Counter {
    /// Number of groups of metrics.
    fn groups(&self) -> usize;
    /// Number of launches that all groups need.
    fn passes(&self) -> usize;
    /// Metrics that the chip does not have.
    fn missing(&self) -> Vec<String>;
    /// Prepares the first pass of a group.
    fn begin_group(&mut self, group: usize) -> Result<(), u32>;
    /// Starts a pass.
    fn start(&mut self) -> Result<(), u32>;
    /// Ends the pass; true if it was the last one of the group.
    fn stop(&mut self) -> Result<bool, u32>;
    /// Returns the values of a group.
    fn collect(&mut self, group: usize) -> Result<Collected, u32>;
}

/// Relevant properties of a launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchShape<'a> {
    /// Mangled name.
    pub symbol: &'a [u8],
    pub context: u32,
    /// Number of blocks.
    pub grid: [u32; 3],
    /// Threads per block.
    pub block: [u32; 3],
    /// Dynamic shared memory, bytes.
    pub shared_bytes: u32,
    /// All blocks have to be resident at once.
    pub cooperative: bool,
    /// Hash of the launches before it on its thread. Launches of one kernel after the same others do the same
    /// work: they are the same position in a step, or in another layer like it. `None` if too few launches
    /// are known.
    pub behind: Option<u64>,
}

/// Limits on the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of measured launches per kernel.
    pub launches: u32,
    /// Maximum time that all measured launches together may stall the program, nanoseconds.
    pub stall_ns: u64,
}

impl Limits {
    /// Limits on a run, however many kernels are measured. All metrics together take some 30 launches of a
    /// kernel, and each launch some 20 ms (H100).
    pub const OF_A_RUN: Self = Self { launches: MOST_LAUNCHES, stall_ns: 5_000_000_000 };
}

/// A kernel to measure.
#[derive(Debug)]
struct Target {
    symbol: String,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    contexts: Vec<u32>,
    /// Index of the next group.
    group: usize,
    /// True if the counter is prepared for the group and this kernel.
    is_prepared: bool,
    repeats: u32,
    /// Hash of the launches before the measured ones, once there was one: all passes measure the same work.
    behind: Option<u64>,
    /// Hashes before earlier launches of it; the first hash that occurs again is measured.
    seen: FxHashSet<u64>,
    /// Hashes before launches that were too short.
    too_short: Vec<u64>,
    /// Launches are measured however short they are.
    takes_any: bool,
    /// Mean duration of the recorded launches, nanoseconds.
    mean_ns: f64,
    /// Launches measured for the current group.
    of_group: u32,
    waits_since: Option<u64>,
    profile: KernelProfile,
}

impl Target {
    fn matches(&mut self, launch: &LaunchShape<'_>) -> bool {
        self.symbol.as_bytes() == launch.symbol
            && (self.grid, self.block, self.shared_bytes) == (launch.grid, launch.block, launch.shared_bytes)
            && self.contexts.contains(&launch.context)
            && launch.behind.is_some_and(|behind| self.takes(behind))
    }

    /// True if a launch after these ones is to be measured.
    fn takes(&mut self, behind: u64) -> bool {
        if let Some(chosen) = self.behind {
            return chosen == behind;
        }
        if self.seen.len() >= MOST_PLACES {
            self.seen.clear();
        }
        !self.seen.insert(behind) && !self.too_short.contains(&behind)
    }

    /// True if the first group shows that the launches make up so little of the kernel's time that others
    /// must be measured.
    fn is_too_short(&self, values: &[(String, f64)]) -> bool {
        let duration = values.iter().find(|(name, _)| name == DURATION).map(|&(_, value)| value);
        self.group == 0
            && !self.takes_any
            && self.too_short.len() < MOST_TRIES
            && duration.is_some_and(|duration| duration < LEAST_OF_MEAN * self.mean_ns)
    }

    /// Discards the completed passes of the group.
    fn discard(&mut self) {
        self.profile.discarded = self.profile.discarded.saturating_add(self.of_group);
        self.is_prepared = false;
    }
}

/// Measurement of some kernels, one after the other. Times are nanoseconds of one clock.
#[derive(Debug)]
pub struct Measurement<C> {
    counter: Option<C>,
    /// Kernels to measure; the first one is in progress.
    targets: VecDeque<Target>,
    finished: Vec<KernelProfile>,
    limits: Limits,
    stall_ns: u64,
    /// Start of the open pass.
    pass: Option<u64>,
}

impl<C: Counter> Measurement<C> {
    /// Creates a measurement of these kernels, in contexts of the process.
    pub fn new(choices: &[Choice], contexts: &[Context], limits: Limits) -> Self {
        let target = |choice: &Choice| {
            let of = &choice.candidate;
            let on_device = contexts.iter().filter(|context| context.device == of.device);
            Target {
                symbol: of.name.clone(),
                grid: of.launch.grid,
                block: of.launch.block,
                shared_bytes: of.launch.dynamic_shared_bytes,
                contexts: on_device.map(|context| context.id.0).collect(),
                group: 0,
                is_prepared: false,
                repeats: 0,
                behind: None,
                seen: FxHashSet::default(),
                too_short: Vec::new(),
                takes_any: false,
                mean_ns: of.total_ns as f64 / of.launches.max(1) as f64,
                of_group: 0,
                waits_since: None,
                profile: KernelProfile { device: of.device, config: of.config, ..KernelProfile::default() },
            }
        };
        let targets = choices.iter().map(target).collect();
        Self { counter: None, targets, finished: Vec::new(), limits, stall_ns: 0, pass: None }
    }

    /// True if all kernels are done.
    pub fn is_over(&self) -> bool {
        self.targets.is_empty()
    }

    /// True if a pass is open.
    pub const fn is_in_pass(&self) -> bool {
        self.pass.is_some()
    }

    /// True if this launch is to be measured. False while a pass is open.
    pub fn wants(&mut self, launch: &LaunchShape<'_>) -> bool {
        self.pass.is_none() && self.targets.front_mut().is_some_and(|target| target.matches(launch))
    }

    /// Source of the values, once it is open.
    pub const fn counter(&self) -> Option<&C> {
        self.counter.as_ref()
    }

    /// Sets the source of the values.
    pub fn open(&mut self, counter: C) {
        let (passes, missing) = (u32::try_from(counter.passes()).unwrap_or(u32::MAX), counter.missing());
        for target in &mut self.targets {
            target.profile.passes = passes;
            target.profile.missing.clone_from(&missing);
        }
        self.counter = Some(counter);
    }

    /// Finishes all remaining kernels because counting was refused.
    pub fn refuse(&mut self, code: u32) {
        let outcome = if code == BUSY { Outcome::Busy } else { Outcome::Refused(code) };
        while !self.targets.is_empty() {
            self.finish(outcome);
        }
    }

    /// Called before a launch that [`wants`](Self::wants) accepted, at time `now`. Returns true if a pass
    /// started; [`end_pass`](Self::end_pass) must then follow after the launch.
    pub fn begin_pass(&mut self, launch: &LaunchShape<'_>, now: u64) -> bool {
        let Some(target) = self.targets.front_mut() else { return false };
        if launch.cooperative {
            self.finish(Outcome::Unsuitable);
            return false;
        }
        if target.profile.launches >= self.limits.launches || self.stall_ns >= self.limits.stall_ns {
            self.finish(Outcome::OutOfBudget);
            return false;
        }
        let Some(counter) = &mut self.counter else { return false };
        if !target.is_prepared {
            if let Err(code) = counter.begin_group(target.group) {
                self.refuse(code);
                return false;
            }
            target.is_prepared = true;
            target.of_group = 0;
        }
        target.behind = launch.behind;
        if let Err(code) = counter.start() {
            self.refuse(code);
            return false;
        }
        if target.profile.launches == 0 {
            target.profile.begin = Timestamp::from_nanos(now);
        }
        self.pass = Some(now);
        true
    }

    /// Called after the launch of the open pass; `now` returns the time.
    pub fn end_pass(&mut self, now: impl Fn() -> u64) {
        let Some(begun) = self.pass.take() else { return };
        let Some(counter) = &mut self.counter else { return };
        let stopped = counter.stop();
        // None if measuring was ended meanwhile.
        let Some(target) = self.targets.front_mut() else { return };
        target.profile.launches += 1;
        target.of_group += 1;
        let collected = match stopped {
            Ok(true) => counter.collect(target.group).map(Some),
            Ok(false) => Ok(None),
            Err(code) => Err(code),
        };
        let at = now();
        let stall = at.saturating_sub(begun);
        self.stall_ns = self.stall_ns.saturating_add(stall);
        target.profile.stall_ns = target.profile.stall_ns.saturating_add(stall);
        target.profile.end = Timestamp::from_nanos(at);
        target.waits_since = Some(at);
        match collected {
            Ok(None) => {}
            Ok(Some(collected)) if target.is_too_short(&collected.values) => {
                target.discard();
                target.too_short.extend(target.behind.take());
            }
            Ok(Some(collected)) if collected.ranges == 1 && collected.dropped == 0 => {
                target.profile.values.extend(collected.values);
                target.group += 1;
                (target.is_prepared, target.repeats, target.waits_since) = (false, 0, None);
                if target.group >= counter.groups() {
                    self.finish(Outcome::Measured);
                } else {
                    // The first group of all kernels is measured before the second one of any.
                    self.targets.rotate_left(1);
                }
            }
            Ok(Some(_)) => {
                target.discard();
                target.repeats += 1;
                if target.repeats > MOST_REPEATS {
                    self.finish(Outcome::Disturbed);
                }
            }
            // An error may concern only this kernel; if not, the next one fails the same way.
            Err(code) => self.finish(if code == BUSY { Outcome::Busy } else { Outcome::Refused(code) }),
        }
    }

    /// Skips a kernel that is not launched.
    pub fn tick(&mut self, now: u64) {
        if self.pass.is_some() {
            return;
        }
        let Some(target) = self.targets.front_mut() else { return };
        let waited = now.saturating_sub(*target.waits_since.get_or_insert(now));
        if waited > PATIENCE_FOR_OTHERS && target.behind.is_none() && !target.too_short.is_empty() {
            target.too_short.clear();
            (target.takes_any, target.waits_since) = (true, None);
        } else if waited > PATIENCE_NANOS {
            self.finish(Outcome::NotLaunched);
        }
    }

    /// Ends measuring; the remaining kernels are reported as they are.
    pub fn end(&mut self) {
        while !self.targets.is_empty() {
            self.finish(Outcome::NotLaunched);
        }
    }

    /// Returns the source of the values, if no pass is open.
    pub fn close(&mut self) -> Option<C> {
        if self.pass.is_some() { None } else { self.counter.take() }
    }

    /// Returns the profiles finished since the last call.
    pub fn take_finished(&mut self) -> Vec<KernelProfile> {
        std::mem::take(&mut self.finished)
    }

    fn finish(&mut self, outcome: Outcome) {
        if let Some(mut target) = self.targets.pop_front() {
            target.profile.outcome = outcome;
            self.finished.push(target.profile);
        }
    }
}

#[cfg(test)]
mod tests;
