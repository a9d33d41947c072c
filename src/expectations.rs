//! Rules for a measured region, for tests of kernels.
//!
//! A region is a session. Its report is checked rule by rule, and every rule that fails shows the values that
//! it found. A report that lacks records is checked by no rule, because any rule could pass on account of the
//! missing data; the test then fails with that reason. This module measures nothing and uses only numbers
//! that are in the report.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use gpuwhy_report::kernels::Roof;
use gpuwhy_report::run::{ApiRow, CopyRow, Report};
use gpuwhy_report::text_format::{bytes, duration};
use gpuwhy_report::words;
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::{Loss, MemoryKind};
use profiler_core::api::{ApiClass, allocates};
use profiler_core::leaf::Cause;

use crate::baseline::Baseline;
use crate::run_rules::list;
use crate::{kernel_rules, module_rules, run_rules};

/// Rules for a measured region, for tests. A region is a session; every rule that fails shows the values that it
/// found.
///
/// A report that lacks records is checked by no rule, because any rule could pass on account of the missing data. The
/// test then fails with advice.
///
/// ```no_run
/// use std::time::Duration;
/// use gpuwhy::{Expectations, measure};
///
/// let (_, report) = measure(|_| { /* launch the kernels */ })?;
/// Expectations::new()
///     .kernels_at_most(2)
///     .no_sync()
///     .no_allocation()
///     .kernel_at_most("softmax", Duration::from_micros(40))
///     .assert(&report);
/// # Ok::<(), gpuwhy::SessionError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "rules are judged by `check` or `assert`"]
pub struct Expectations(Vec<Rule>, bool);

#[derive(Clone, Debug)]
enum Rule {
    Kernels(u64),
    Launches(u64),
    NoSync,
    NoPageableCopy,
    NoAllocation,
    Busy(f64),
    Kernel { name: String, at_most: Duration },
    KernelWithin { name: String, ratio: f64, baseline: Baseline },
    Module { name: String, at_most: Duration },
    ModuleWithin { name: String, ratio: f64, baseline: Baseline },
    Bottleneck(Vec<Cause>),
    BottleneckNot(Vec<Cause>),
    Share { cause: Cause, at_most: f64 },
    Step(Duration),
    Kind { name: String, at_most: Duration },
    StepWithin { ratio: f64, baseline: Baseline },
    Memory(u64),
    NoMemoryGrowth,
    NoSpills { name: String },
    Uses { name: String, unit: Roof, least: f64 },
}

/// Result of checking a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgment {
    /// Data missing from the report, in which case no rule was checked.
    pub incomplete: Option<String>,
    /// Rules in the order in which they were added; empty for an incomplete report.
    pub rules: Vec<JudgedRule>,
}

/// One rule of a [`Judgment`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedRule {
    /// The expectation, in words.
    pub rule: String,
    /// The values found, if the rule does not hold.
    pub failure: Option<String>,
    /// Reason why one run cannot decide the rule. The rule does not fail then.
    pub inconclusive: Option<String>,
}

/// Failed rules, with the values found.
#[derive(Clone, PartialEq, Eq)]
pub struct Failures(Vec<String>);

impl Failures {
    /// One text for each failure.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.0
    }
}

/// Readable as well: a test that returns or unwraps this error prints it with `Debug`.
impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl Error for Failures {}

impl Expectations {
    /// Creates an empty list of rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// True without any rule.
    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Of a whole run whose steps repeat, [`no_sync`](Self::no_sync) and [`no_allocation`](Self::no_allocation) are
    /// about these steps, and [`no_pageable_copy`](Self::no_pageable_copy) is about the time after start-up.
    pub fn after_start_up(self) -> Self {
        Self(self.0, true)
    }

    /// At most `kernels` kernels ran, counting each kernel in a graph.
    pub fn kernels_at_most(self, kernels: u64) -> Self {
        self.and(Rule::Kernels(kernels))
    }

    /// At most `calls` calls launched a kernel or a graph.
    pub fn launches_at_most(self, calls: u64) -> Self {
        self.and(Rule::Launches(calls))
    }

    /// No call waited for the device: none of `*Synchronize`, and no blocking copy such as `cudaMemcpy`.
    pub fn no_sync(self) -> Self {
        self.and(Rule::NoSync)
    }

    /// No copy read or wrote pageable memory.
    pub fn no_pageable_copy(self) -> Self {
        self.and(Rule::NoPageableCopy)
    }

    /// No call allocated device or pinned memory: `cudaMalloc*`, `cuMemAlloc*`, `cuMemCreate`,
    /// `cudaHostAlloc`, `cudaHostRegister` and similar functions. Memory from a caching allocator needs no
    /// such call.
    pub fn no_allocation(self) -> Self {
        self.and(Rule::NoAllocation)
    }

    /// Each device was busy for at least this part of a typical step, 0 to 1. Without steps, the time after
    /// start-up counts; if it is unknown when that ended, the complete time ([`Report::judged_leaves`]).
    pub fn busy_at_least(self, share: f64) -> Self {
        self.and(Rule::Busy(share))
    }

    /// At least one kernel whose demangled name contains `name` (ignoring case) ran, and the median duration
    /// of each such kernel is at most `at_most`.
    pub fn kernel_at_most(self, name: impl Into<String>, at_most: Duration) -> Self {
        self.and(Rule::Kernel { name: name.into(), at_most })
    }

    /// The kernel whose demangled name contains `name` (ignoring case) ran, and its median duration is at
    /// most `ratio` times the one that `baseline` has for it on a device of this type. With `GPUWHY_BLESS=1`
    /// the baseline is updated instead, with the slowest of several such devices. Fails if several kernels
    /// match: one time cannot stand for all of them. Medians of more than 32 launches are rounded to steps of
    /// 3 %, so a `ratio` below 1.04 would fail by chance.
    pub fn kernel_within(self, name: impl Into<String>, ratio: f64, baseline: &Baseline) -> Self {
        self.and(Rule::KernelWithin { name: name.into(), ratio, baseline: baseline.clone() })
    }

    /// In a replay of a CUDA graph, what the class `name` and the modules that it calls captured takes at most
    /// `at_most`: the mean sum of the durations on the device, of the replays whose nodes were recorded. Fails if no
    /// such module is known.
    pub fn module_at_most(self, name: impl Into<String>, at_most: Duration) -> Self {
        self.and(Rule::Module { name: name.into(), at_most })
    }

    /// The same time is at most `ratio` times the one that `baseline` has for it on a device of this type. With
    /// `GPUWHY_BLESS=1` the baseline is updated instead.
    pub fn module_within(self, name: impl Into<String>, ratio: f64, baseline: &Baseline) -> Self {
        self.and(Rule::ModuleWithin { name: name.into(), ratio, baseline: baseline.clone() })
    }

    /// The bottleneck is one of these causes. Traces of short regions often have [`Cause::CannotTell`].
    pub fn bottleneck_in(self, causes: impl Into<Vec<Cause>>) -> Self {
        self.and(Rule::Bottleneck(causes.into()))
    }

    /// The bottleneck is none of these causes.
    pub fn bottleneck_not_in(self, causes: impl Into<Vec<Cause>>) -> Self {
        self.and(Rule::BottleneckNot(causes.into()))
    }

    /// A cause takes at most this part of a typical step of each device, 0 to 1. Without steps, the time
    /// after start-up counts ([`Report::share_of`]).
    pub fn share_at_most(self, cause: Cause, at_most: f64) -> Self {
        self.and(Rule::Share { cause, at_most })
    }

    /// The median step of each device is at most this long. Fails if no steps were found.
    pub fn step_at_most(self, at_most: Duration) -> Self {
        self.and(Rule::Step(at_most))
    }

    /// The median of the steps of this kind is at most this long on each device: `decode`, `prefill`, `mixed` or
    /// `prefill or mixed` for the iterations of a server. Fails if a device has no such steps.
    pub fn kind_at_most(self, name: impl Into<String>, at_most: Duration) -> Self {
        self.and(Rule::Kind { name: name.into(), at_most })
    }

    /// At most this many bytes of each device were in use by all processes, at ten readings a second. Fails if there is
    /// no reading.
    pub fn memory_at_most(self, bytes: u64) -> Self {
        self.and(Rule::Memory(bytes))
    }

    /// After start-up, no step of the program took device memory and kept it. Fails if that cannot be judged, because
    /// there are too few steps, readings or increases, or the memory of other processes changed.
    pub fn no_memory_growth(self) -> Self {
        self.and(Rule::NoMemoryGrowth)
    }

    /// The median step of each device is at most `ratio` times the one that `baseline` has for such a device,
    /// under the name `step`. With `GPUWHY_BLESS=1` the baseline is updated instead. One run each: runs of one program
    /// differ by up to 30 %, so a longer step that differs by less is inconclusive and does not fail. Several runs
    /// ([`judge_runs`](Self::judge_runs)), now or in the baseline: it fails if the interval of the ratio is above
    /// `ratio`, and is inconclusive if the interval contains it.
    pub fn step_within(self, ratio: f64, baseline: &Baseline) -> Self {
        self.and(Rule::StepWithin { ratio, baseline: baseline.clone() })
    }

    /// No kernel whose demangled name contains `name` (an empty one matches all) uses local memory, where
    /// spilled registers go. For kernels that `gpuwhy kernels` measured, the accesses count; for others, the
    /// local memory per thread in their records, of which the 20 kernels with the most time are checked.
    pub fn no_spills(self, name: impl Into<String>) -> Self {
        self.and(Rule::NoSpills { name: name.into() })
    }

    /// Kernels whose demangled name contains `name` use at least this part of the peak of a unit, 0 to 1.
    /// Uses the counters of `gpuwhy kernels` where it measured them, else sampled counters (`--gpu-metrics`),
    /// which show the unit that a kernel uses most. Fails if neither is available.
    pub fn kernel_uses_at_least(self, name: impl Into<String>, unit: Roof, share: f64) -> Self {
        self.and(Rule::Uses { name: name.into(), unit, least: share })
    }

    fn and(mut self, rule: Rule) -> Self {
        self.0.push(rule);
        self
    }

    /// Checks `report` against every rule.
    ///
    /// # Errors
    /// The rules that failed; or the data missing from the report, which then is checked by no rule and
    /// updates no baseline.
    pub fn check(&self, report: &Report) -> Result<(), Failures> {
        let judgment = self.judge(report);
        let failed = judgment.rules.into_iter().filter_map(|judged| judged.failure);
        let failures: Vec<_> = judgment.incomplete.into_iter().chain(failed).collect();
        if failures.is_empty() { Ok(()) } else { Err(Failures(failures)) }
    }

    /// As [`check`](Self::check), with the result of each rule.
    #[must_use]
    pub fn judge(&self, report: &Report) -> Judgment {
        self.judge_runs(&[report])
    }

    /// As [`judge`](Self::judge), for several runs of one program. A limit on a count must hold in each run. A limit on
    /// times fails if it fails in every run, and is inconclusive if it fails in some; ratios to a baseline are judged
    /// by all runs together.
    #[must_use]
    pub fn judge_runs(&self, runs: &[&Report]) -> Judgment {
        let missing = runs.iter().enumerate().find_map(|(at, run)| Some((at, incomplete(run)?)));
        let incomplete = missing.map(|(at, why)| match runs.len() {
            1 => why,
            count => format!("run {} of {count}: {why}", at + 1),
        });
        let judged = self.0.iter().filter(|_| incomplete.is_none());
        let rules = judged.map(|rule| {
            let (inconclusive, failure) = match rule.judge(runs, self.1) {
                Ok(why) => (why, None),
                Err(failure) => (None, Some(failure)),
            };
            JudgedRule { rule: rule.to_string(), failure, inconclusive }
        });
        Judgment { rules: rules.collect(), incomplete }
    }

    /// As [`check`](Self::check), for a test.
    ///
    /// # Panics
    /// When a rule fails, with the evidence.
    #[track_caller]
    pub fn assert(&self, report: &Report) {
        if let Err(failures) = self.check(report) {
            panic!("the measured region is not as expected:\n{failures}");
        }
    }
}

/// Description of missing data that makes counts unreliable.
fn incomplete(report: &Report) -> Option<String> {
    let completeness = &report.completeness;
    let unpaired = [
        (completeness.launches_without_activity, "launches whose kernel has not come"),
        (
            completeness.activities_without_launch,
            "operations whose call was not seen (call prepare before the first CUDA call)",
        ),
        (completeness.shared_ids, "launches with one id"),
    ];
    let missing: Vec<_> = lost(&completeness.loss)
        .chain(counted(unpaired))
        .chain((completeness.end != End::Clean).then(|| "the end of the trace".to_owned()))
        .collect();
    (!missing.is_empty()).then(|| format!("the report is incomplete, so it cannot be judged: {}", missing.join(", ")))
}

/// Descriptions of missing records of device work and calls; empty if none are missing.
fn lost(loss: &Loss) -> impl Iterator<Item = String> + use<> {
    loss.kinds().into_iter().filter(|kind| kind.blocks_judgment).filter_map(|kind| words::lost(&kind))
}

fn counted<const N: usize>(counts: [(u64, &'static str); N]) -> impl Iterator<Item = String> {
    counts.into_iter().filter(|&(count, _)| count > 0).map(|(count, what)| format!("{count} {what}"))
}

impl Rule {
    /// True if it limits something that the host's load does not change.
    fn is_exact(&self) -> bool {
        matches!(
            self,
            Self::Kernels(_)
                | Self::Launches(_)
                | Self::NoSync
                | Self::NoPageableCopy
                | Self::NoAllocation
                | Self::Memory(_)
                | Self::NoMemoryGrowth
                | Self::NoSpills { .. }
        )
    }

    /// Checks the rule in one or more runs. The error has the values found; `Some` is the reason why the runs cannot
    /// decide it.
    fn judge(&self, runs: &[&Report], after_start_up: bool) -> Result<Option<String>, String> {
        match self {
            Self::StepWithin { ratio, baseline } => return run_rules::step_within(runs, *ratio, baseline),
            Self::KernelWithin { name, ratio, baseline } => return kernel_rules::within(runs, name, *ratio, baseline),
            Self::ModuleWithin { name, ratio, baseline } => return module_rules::within(runs, name, *ratio, baseline),
            _ => {}
        }
        let failures =
            runs.iter().enumerate().filter_map(|(at, run)| Some((at, self.holds(run, after_start_up).err()?)));
        let failures: Vec<_> = failures.collect();
        let Some((at, first)) = failures.first() else { return Ok(None) };
        let text = match runs.len() {
            1 => first.clone(),
            count => format!("in {} of {count} runs, first in run {}: {first}", failures.len(), at + 1),
        };
        if failures.len() == runs.len() || self.is_exact() { Err(text) } else { Ok(Some(text)) }
    }

    /// Checks a rule that each run decides.
    fn holds(&self, report: &Report, after_start_up: bool) -> Result<(), String> {
        let in_steps = after_start_up && run_rules::has_steps(report);
        let none_of = |what, (count, found): (u64, String)| none(what, count, || found);
        match self {
            Self::Kernels(most) => at_most("kernels", report.completeness.kernels, *most, || {
                let mut rows: Vec<_> = report.devices.iter().flat_map(|device| &device.kernels).collect();
                rows.sort_by_key(|row| std::cmp::Reverse(row.durations.count()));
                list(rows.iter().map(|row| format!("{} x {}", row.durations.count(), kernel_rules::short(&row.name))))
            }),
            Self::Launches(most) => {
                let launches = calls(report, |row| {
                    matches!(ApiClass::of(&row.name), ApiClass::KernelLaunch | ApiClass::GraphLaunch)
                });
                at_most("launching calls", launches.iter().map(|row| row.calls).sum(), *most, || called(&launches))
            }
            Self::NoSync if in_steps => {
                none_of("calls waited for the device", run_rules::calls(report, |calls| calls.synchronizations))
            }
            Self::NoSync => {
                let waits = calls(report, |row| {
                    matches!(ApiClass::of(&row.name), ApiClass::Synchronize | ApiClass::BlockingCopy)
                });
                none("calls waited for the device", waits.iter().map(|row| row.calls).sum(), || called(&waits))
            }
            Self::NoAllocation if in_steps => {
                none_of("calls allocated memory", run_rules::calls(report, |calls| calls.allocations))
            }
            Self::NoAllocation => {
                let allocations = calls(report, |row| allocates(&row.name));
                let count = allocations.iter().map(|row| row.calls).sum();
                none("calls allocated memory", count, || called(&allocations))
            }
            Self::NoPageableCopy if in_steps => {
                none_of("copies from or to pageable memory", run_rules::pageable_copies(report))
            }
            Self::NoPageableCopy => {
                let rows = report.devices.iter().flat_map(|device| &device.copies);
                let pageable: Vec<_> = rows.filter(|row| is_pageable(row)).collect();
                let count = pageable.iter().map(|row| row.durations.count()).sum();
                none("copies from or to pageable memory", count, || {
                    list(pageable.iter().map(|row| {
                        let (count, path) = (row.durations.count(), row.path);
                        let (bytes, nanos) = (row.bytes, row.durations.total());
                        format!("{count} x {}, {bytes} bytes in {}", path.kind.name(), duration(nanos))
                    }))
                })
            }
            Self::Busy(least) => run_rules::busy(report, *least),
            Self::Kernel { name, at_most } => run_rules::at_most(&kernel_rules::times(report, name)?, *at_most),
            Self::Module { name, at_most } => run_rules::at_most(&[module_rules::time(report, name)?], *at_most),
            Self::StepWithin { .. } | Self::KernelWithin { .. } | Self::ModuleWithin { .. } => {
                self.judge(&[report], after_start_up).map(drop)
            }
            Self::Bottleneck(causes) => run_rules::bottleneck(report, causes, true),
            Self::BottleneckNot(causes) => run_rules::bottleneck(report, causes, false),
            Self::Share { cause, at_most } => run_rules::share(report, *cause, *at_most),
            Self::Step(at_most) => run_rules::at_most(&run_rules::steps(report)?, *at_most),
            Self::Kind { name, at_most } => run_rules::at_most(&run_rules::kinds(report, name)?, *at_most),
            Self::Memory(most) => run_rules::memory_at_most(report, *most),
            Self::NoMemoryGrowth => run_rules::no_memory_growth(report),
            Self::NoSpills { name } => kernel_rules::no_spills(report, name),
            Self::Uses { name, unit, least } => kernel_rules::uses_at_least(report, name, *unit, *least),
        }
    }
}

/// The expectation, in words.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernels(most) => write!(f, "at most {most} kernels"),
            Self::Launches(most) => write!(f, "at most {most} launching calls"),
            Self::NoSync => f.write_str("no call waits for the device"),
            Self::NoPageableCopy => f.write_str("no copy from or to pageable memory"),
            Self::NoAllocation => f.write_str("no call allocates memory"),
            Self::Busy(least) => write!(f, "devices are busy at least {:.1} % of the time", least * 1e2),
            Self::Kernel { name, at_most } => write!(f, "kernel {name} takes at most {at_most:?}"),
            Self::KernelWithin { name, ratio, baseline } => {
                write!(f, "kernel {name} takes at most {ratio} times what {} has", baseline.path().display())
            }
            Self::Module { name, at_most } => {
                write!(f, "module {name} takes at most {at_most:?} in the mean of the recorded replays")
            }
            Self::ModuleWithin { name, ratio, baseline } => {
                write!(f, "module {name} takes at most {ratio} times what {} has", baseline.path().display())
            }
            Self::Bottleneck(causes) => write!(f, "the bottleneck is {}", run_rules::names(causes, " or ")),
            Self::BottleneckNot(causes) => write!(f, "the bottleneck is not {}", run_rules::names(causes, " or ")),
            Self::Share { cause, at_most } => write!(f, "{} takes at most {:.1} %", cause.name(), at_most * 1e2),
            Self::Step(at_most) => write!(f, "a step takes at most {at_most:?}"),
            Self::Kind { name, at_most } => write!(f, "a step of the kind {name} takes at most {at_most:?}"),
            Self::StepWithin { ratio, baseline } => {
                write!(f, "a step takes at most {ratio} times what {} has", baseline.path().display())
            }
            Self::Memory(most) => write!(f, "at most {} of each device are in use", bytes(*most)),
            Self::NoMemoryGrowth => f.write_str("no step takes memory and keeps it"),
            Self::NoSpills { name } if name.is_empty() => f.write_str("no kernel spills registers"),
            Self::NoSpills { name } => write!(f, "kernel {name} spills no registers"),
            Self::Uses { name, unit, least } => {
                write!(f, "kernel {name} uses at least {:.1} % of the {}", least * 1e2, unit.words())
            }
        }
    }
}

fn at_most(what: &str, found: u64, most: u64, evidence: impl FnOnce() -> String) -> Result<(), String> {
    if found <= most { Ok(()) } else { Err(format!("{found} {what}, at most {most} expected: {}", evidence())) }
}

fn none(what: &str, found: u64, evidence: impl FnOnce() -> String) -> Result<(), String> {
    if found == 0 { Ok(()) } else { Err(format!("{found} {what}, none expected: {}", evidence())) }
}

fn calls(report: &Report, wanted: impl Fn(&ApiRow) -> bool) -> Vec<&ApiRow> {
    report.api.iter().filter(|row| wanted(row)).collect()
}

fn is_pageable(row: &CopyRow) -> bool {
    [row.path.source, row.path.destination].contains(&MemoryKind::Pageable)
}

fn called(rows: &[&ApiRow]) -> String {
    list(rows.iter().map(|row| format!("{} x {}, {}", row.calls, row.name, duration(row.total_ns))))
}
