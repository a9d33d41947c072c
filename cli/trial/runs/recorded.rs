//! Steps of a run that libprof.so recorded: those that the engine finds, or the ranges that `--step` names.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use gpuwhy_import::{Input, OpenError, Request, TraceFile};
use gpuwhy_inject::config::RangeName;
use gpuwhy_report::run::{Report, unit};
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{RangeEventKind, Record};
use profiler_core::attribution::template;
use profiler_core::steps::{StepSource, Steps};

use super::steps::{WARM_SECONDS, WARM_STEPS};
use crate::interrupt;

/// Number of names of other ranges to show where the named one is missing.
const SHOWN: usize = 8;
/// Relative difference of two numbers of steps, or of operations in them, that is none.
const ALIKE: f64 = 0.02;

/// How the engine found steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    pub source: StepSource,
    /// False for a unit that repeats and may be a part of a step.
    pub is_step: bool,
    /// Operations in each, by period.
    pub period: Option<u64>,
}

impl Kind {
    /// True if both are found in the same way.
    pub fn is_like(self, other: Self) -> bool {
        (self.source, self.is_step) == (other.source, other.is_step)
    }

    /// True if a step of one also has as many operations as one of the other.
    pub fn is_same(self, other: Self) -> bool {
        let alike = |(one, two): (u64, u64)| are_alike(one as f64, two as f64);
        self.is_like(other) && self.period.zip(other.period).is_none_or(alike)
    }
}

/// True if the numbers hardly differ.
pub fn are_alike(one: f64, other: f64) -> bool {
    (one - other).abs() <= ALIKE * one.max(other)
}

/// What a recording says about the steps of its run.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Times at which steps ended, seconds after the start of the recording; of the engine's, the newest.
    pub times: Vec<f64>,
    /// Number of steps of the run.
    pub made: usize,
    /// How the engine found them.
    pub kind: Option<Kind>,
    /// Time from the first work of the GPU to the last, seconds.
    pub work: Option<f64>,
    /// Largest share of the time that recording the GPU's work has taken, 0 to 1; `None` if it is not known.
    pub cost: Option<f64>,
    /// Names of some ranges that were opened, if none of them is the step.
    pub others: BTreeSet<String>,
}

impl Recorded {
    /// From the report of the run: of the device with the longest window.
    pub fn of(report: &Report) -> Self {
        let Some(device) = report.devices.iter().max_by_key(|device| device.window_ns) else { return Self::default() };
        let work = Some(device.window_ns as f64 / 1e9);
        let tracing = device.untraced.as_ref().map(|untraced| untraced.share_of_tracing);
        let cost = tracing.or_else(|| report.cost.as_ref()?.share()).map(|share| share.clamp(0.0, 0.9));
        let found = unit::comparable(device.steps.as_ref()).and(device.steps.as_ref());
        let Some(Steps { source, period, seen, rows }) = found else { return Self { work, cost, ..Self::default() } };
        let start = report.process.start.nanos();
        let times = rows.iter().map(|row| row.end.nanos().saturating_sub(start) as f64 / 1e9).collect();
        let is_step = device.step_meaning.recognized_by.is_some();
        let kind = Some(Kind { source: *source, is_step, period: *period });
        Self { times, made: usize::try_from(*seen).unwrap_or(usize::MAX), kind, work, cost, others: BTreeSet::new() }
    }

    /// From the ranges named `step` in a trace; those within another one are a part of it.
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn of_ranges(trace: &Path, step: &RangeName) -> Result<Self, OpenError> {
        let mut found = Self::default();
        // For each range on the stack of a thread and domain whether it is the step, and started ones that are.
        let (mut pushed, mut started) = (HashMap::<_, Vec<bool>>::new(), BTreeSet::new());
        TraceFile::open(trace)?.pass::<OpenError>(&mut |_, _| interrupt::state(), |event, scope| {
            let Event::Record(Record::Range(range)) = event else { return Ok(()) };
            let [message, domain] = [range.message, range.domain].map(|id| scope.dictionary.name(id));
            let family = template(message);
            let is_step =
                [family.as_deref(), Some(message)].into_iter().flatten().any(|name| step.matches(name, domain));
            let stack = pushed.entry((range.thread, range.domain)).or_default();
            let is_end = match range.kind {
                RangeEventKind::Push => {
                    stack.push(is_step);
                    false
                }
                RangeEventKind::Pop => stack.pop() == Some(true) && !stack.contains(&true),
                RangeEventKind::Start if is_step => {
                    started.insert(range.range_id);
                    false
                }
                RangeEventKind::End => started.remove(&range.range_id) && started.is_empty(),
                RangeEventKind::Start | RangeEventKind::Mark | RangeEventKind::Unknown => false,
            };
            if is_end {
                found.times.push(range.at.nanos().saturating_sub(scope.session.start.nanos()) as f64 / 1e9);
            } else if found.others.len() < SHOWN && !message.is_empty() {
                let at = if domain.is_empty() { String::new() } else { format!("@{domain}") };
                found.others.insert(format!("{}{at}", family.unwrap_or_else(|| message.to_owned())));
            }
            Ok(())
        })?;
        found.made = found.times.len();
        Ok(found)
    }

    /// Index of the first time after start-up, whose steps may be no longer remembered.
    pub fn warm(&self) -> usize {
        let Some(first) = self.times.first().filter(|_| self.made <= self.times.len()) else { return 0 };
        let late = self.times.partition_point(|time| time - first < WARM_SECONDS);
        late.max(WARM_STEPS).min(self.times.len())
    }
}

/// The report of a trace, also of one that still grows.
pub fn report(trace: &Path) -> Result<Report, OpenError> {
    Input::open(trace)?.report(Request::default(), &mut |_, _| interrupt::state())
}

/// When the first work of the GPU began, nanoseconds since 1970; `None` without any.
pub fn first_work(trace: &Path) -> Option<u64> {
    let mut first = None;
    // Reading ends with an error of its own at the first one.
    let _ = TraceFile::open(trace).ok()?.pass::<Option<OpenError>>(&mut |_, _| interrupt::state(), |event, _| {
        let Event::Record(record) = event else { return Ok(()) };
        first = record.device_work().map(|work| work.start.nanos());
        if first.is_some() { Err(None) } else { Ok(()) }
    });
    first
}

/// The trace of `process` in a folder, else the largest.
pub fn trace_in(folder: &Path, process: Option<u64>) -> Option<PathBuf> {
    let own = process.map(|process| folder.join(format!("{process}.gpuwhy"))).filter(|path| path.is_file());
    let files = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    own.or_else(|| files.max_by_key(|path| fs::metadata(path).map_or(0, |about| about.len())))
}
