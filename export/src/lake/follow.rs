//! Adds running programs to a lake: the summary tier, while their traces grow.
//!
//! Steps and collectives are written once, a part for all processes of a run and interval. What is one row for each
//! process or cause (processes, causes, what is missing) is in files of the process, which are replaced: they tell how
//! things are so far. Whoever is ended, or killed, goes on where the lake ends: the trace is read again from its begin,
//! and what has a row gets no second one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gpuwhy_import::{Arrival, Scope, follow, stem};
use parking_lot::Mutex;
use profiler_core::capture::{Captures, MONITORED};
use profiler_core::collective::{Collective, Communicator};
use profiler_core::dictionary::Dictionary;
use profiler_core::process_info::{End, ProcessInfo};
use profiler_core::record::{CaptureMark, Loss, Timestamp};
use profiler_core::report::Report;
use profiler_core::trace::Item;

use super::add::{AddOptions, Rows, Tier};
use super::live_steps::{DeviceSteps, LiveSteps};
use super::part::{Part, plain};
use super::place::{Lake, date};
use super::standing::{self, LIVE, Owner, STEPS_CHANGED, Standing};
use crate::earlier_steps::StepSpool;
use crate::error::ExportError;
use crate::tables::{
    About, CollectiveRows, Label, STEPS_LEFT_OUT, Table, collective, communicators, reported_rows, step_rows, wished,
};

/// Rows that may wait for the next part, operations of communicators or steps of a process.
const BACKLOG: usize = 1 << 16;

/// Writes running programs to a lake. Traces are followed on threads of the caller; all share this.
pub struct LiveLake {
    lake: Lake,
    options: AddOptions,
    run: Option<String>,
    /// What names the parts: the host.
    host: String,
    /// By date and run; named by [`publish`](Self::publish).
    parts: Mutex<BTreeMap<(String, String), Part>>,
    /// Runs and ranks of traces that are followed.
    labels: Mutex<BTreeSet<Label>>,
    /// Parts so far.
    interval: AtomicU64,
}

/// What became of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Run and rank in the lake.
    pub label: Label,
    /// The lake had all of it already.
    pub known: bool,
    /// It has its end; nothing will come.
    pub complete: bool,
    /// The day of its begin, and what names its files.
    place: (String, String),
    /// Rows of steps.
    pub steps: u64,
    /// What the trace lacks: sentences for the user.
    pub notes: Vec<String>,
}

impl LiveLake {
    /// Writes to `lake`. `run` names the run of all traces, which is else that of their folder; `host` the parts.
    #[must_use]
    pub fn new(lake: Lake, run: Option<String>, with_command: bool, host: &str) -> Self {
        Self {
            lake,
            options: AddOptions { tier: Tier::Summary, with_command },
            run,
            host: plain(host),
            parts: Mutex::default(),
            labels: Mutex::default(),
            interval: AtomicU64::new(0),
        }
    }

    /// The next interval begins: each trace hands over what is final.
    pub fn next_interval(&self) {
        self.interval.fetch_add(1, Ordering::Relaxed);
    }

    /// Names the parts with what was handed over. `now`: nanoseconds since the Unix epoch, for their names.
    ///
    /// # Errors
    ///
    /// When a file cannot be written. Its rows are not in the lake then; whoever follows the traces anew writes them.
    pub fn publish(&self, now: u64) -> Result<Vec<PathBuf>, ExportError> {
        let parts = std::mem::take(&mut *self.parts.lock());
        let mut files = Vec::new();
        for (number, part) in parts.into_values().enumerate() {
            let name = format!("part-{}-{}-{}-{number}", self.host, now / 1_000_000, std::process::id());
            files.extend(part.named(name).finish()?);
        }
        Ok(files)
    }

    /// Follows the trace at `path`, until it ends or `more` breaks, which is asked whenever the file has no more bytes.
    /// `is_over`: whether that it broke means that nothing will come.
    ///
    /// # Errors
    ///
    /// When the trace cannot be read at all, and when the lake cannot be read or written.
    pub fn follow(
        &self,
        path: &Path,
        more: impl Fn() -> ControlFlow<()> + Sync,
        is_over: impl Fn() -> bool,
    ) -> Result<Followed, ExportError> {
        let mut process: Option<Process<'_>> = None;
        let passed = follow(path, more, |arrival, scope| {
            let process = match &mut process {
                Some(process) => process,
                none => none.insert(Process::new(self, path, scope.session)?),
            };
            process.take(arrival, scope)
        });
        let passed = match (passed, &process) {
            // The lake has it all: reading was ended at once.
            (Err(error), Some(process)) if process.known && error.is_interrupted() => {
                return Ok(Followed {
                    label: process.label.clone(),
                    known: true,
                    complete: true,
                    ..Followed::default()
                });
            }
            (passed, _) => passed?,
        };
        let Some(mut process) = process else { return Ok(Followed::default()) };
        let complete = passed.end != End::Abrupt;
        let ended = complete || is_over();
        if ended {
            process.captures.finish(process.last, &passed.session, &passed.loss, &passed.dictionary);
        }
        let scope = Scope { session: &passed.session, dictionary: &passed.dictionary };
        process.loss = passed.loss;
        if ended {
            process.finish_collectives();
        }
        process.write(&scope, ended, passed.end, passed.damaged())?;
        let Process { label, date, name, steps_written: steps, .. } = process;
        let notes = if complete { passed.damaged() } else { Vec::new() };
        Ok(Followed { label, known: false, complete, place: (date, name), steps, notes })
    }

    /// Gives the files of a process that has ended their last names. After [`publish`](Self::publish).
    ///
    /// # Errors
    ///
    /// When a file cannot be renamed.
    pub fn complete(&self, followed: &Followed) -> Result<(), ExportError> {
        let (date, name) = &followed.place;
        if followed.known { Ok(()) } else { standing::complete(&self.lake, date, &followed.label.run, name) }
    }

    /// Run and rank of a process: those that it would have alone; a run of its own where others have them.
    fn label(&self, path: &Path, session: &ProcessInfo) -> Result<(Label, Owner), ExportError> {
        let mut labels = self.labels.lock();
        let mut label = wished(path, session.rank(), self.run.as_deref());
        let run = label.run.clone();
        for number in 1.. {
            let owner = standing::owner(&self.lake, &label, session)?;
            if owner != Owner::Other && (owner != Owner::Nobody || !labels.contains(&label)) {
                labels.insert(label.clone());
                return Ok((label, owner));
            }
            label.run = format!("{run}-{}", stem(path));
            if number > 1 {
                label.run = format!("{}-{number}", label.run);
            }
        }
        Ok((label, Owner::Nobody))
    }
}

/// A trace that is followed.
struct Process<'l> {
    live: &'l LiveLake,
    path: PathBuf,
    label: Label,
    date: String,
    name: String,
    /// The lake has it all.
    known: bool,
    captures: Captures,
    loss: Loss,
    last: Timestamp,
    joined: CollectiveRows,
    /// Of a trace that has ended.
    communicators: Vec<Communicator>,
    /// Operations that have no row yet.
    collectives: Vec<Collective>,
    /// What the lake had when this began.
    before: Standing,
    /// Operations that have a row from before and are still to come.
    repeated: u64,
    steps: DeviceSteps,
    steps_written: u64,
    interval: u64,
}

impl<'l> Process<'l> {
    fn new(live: &'l LiveLake, path: &Path, session: &ProcessInfo) -> Result<Self, ExportError> {
        let (label, owner) = live.label(path, session)?;
        let (date, name) = (date(session.start.nanos()), standing::name(session));
        let before = match owner {
            Owner::Unfinished => standing::standing(&live.lake, &label)?,
            _ => Standing::default(),
        };
        if owner == Owner::Unfinished {
            standing::reopen(&live.lake, &date, &label.run, &name)?;
        }
        let mut captures = Captures::new(None);
        captures.keep_step_overflow();
        Ok(Self {
            live,
            path: path.to_owned(),
            label,
            date,
            name,
            known: owner == Owner::Complete,
            captures,
            loss: Loss::default(),
            last: Timestamp::ZERO,
            joined: CollectiveRows::default(),
            communicators: Vec::new(),
            collectives: Vec::new(),
            repeated: before.collectives,
            before,
            steps: DeviceSteps::new(),
            steps_written: 0,
            interval: live.interval.load(Ordering::Relaxed),
        })
    }

    fn take(&mut self, arrival: Arrival<'_>, scope: &Scope<'_>) -> Result<(), ExportError> {
        if self.known {
            return Err(gpuwhy_import::OpenError::interrupted(&self.path).into());
        }
        let is_moment = match arrival {
            Arrival::Item(item) => self.item(item, scope)?,
            Arrival::Silence => true,
        };
        let interval = self.live.interval.load(Ordering::Relaxed);
        let waiting = self.steps.values().map(LiveSteps::waiting).sum::<usize>() + self.collectives.len();
        if is_moment && (interval != self.interval || waiting >= BACKLOG) {
            self.interval = interval;
            self.write(scope, false, End::Abrupt, Vec::new())?;
        }
        Ok(())
    }

    /// Whether the engine is at a moment at which rows can be made.
    fn item(&mut self, item: &Item, scope: &Scope<'_>) -> Result<bool, ExportError> {
        let dictionary = scope.dictionary;
        for row in self.joined.take(item, dictionary) {
            match self.repeated.checked_sub(1) {
                Some(fewer) => self.repeated = fewer,
                None => self.collectives.push(row),
            }
        }
        match item {
            Item::Record(record) => self.captures.push(record, dictionary),
            Item::Flush(at) => {
                self.captures.flushed(*at, dictionary);
                self.last = self.last.max(*at);
                self.take_overflow();
                return Ok(true);
            }
            Item::Loss(newer) => self.loss = *newer,
            Item::Capture(mark) => {
                let shown = self.captures.step_overflow_series().map(|(number, _)| number);
                if matches!(mark, CaptureMark::Begin { .. }) && shown.is_some_and(|number| number != MONITORED) {
                    // From here on the report is about another capture.
                    self.write_steps(&self.report(scope, End::Abrupt, Vec::new()), true)?;
                }
                self.captures.mark(*mark, scope.session, &self.loss, dictionary);
            }
            Item::Cost(cost) => self.captures.cost(*cost),
            Item::Utilization(reading) => self.captures.utilization(*reading),
            Item::Counters(event) => self.captures.counters(event),
            Item::Collective(event) => self.captures.collective(event),
            Item::End(_, at) => self.last = self.last.max(*at),
        }
        Ok(false)
    }

    fn take_overflow(&mut self) {
        for (capture, device, step) in self.captures.take_step_overflow() {
            self.device(device.0).forgot(capture, &step);
        }
    }

    fn device(&mut self, device: u32) -> &mut LiveSteps {
        let standing = self.before.steps.get(&device.into()).copied();
        self.steps.entry(profiler_core::record::DeviceId(device)).or_insert_with(|| {
            let (until, next) = standing.unwrap_or_default();
            LiveSteps::behind(until, next)
        })
    }

    fn finish_collectives(&mut self) {
        let (rows, told) = std::mem::take(&mut self.joined).finish();
        self.communicators = told;
        let known = usize::try_from(self.repeated).unwrap_or(usize::MAX);
        self.collectives.extend(rows.into_iter().skip(known));
    }

    fn report(&self, scope: &Scope<'_>, end: End, damage: Vec<String>) -> Report {
        self.captures.report(scope.session, scope.dictionary, &self.loss, end, damage)
    }

    /// Hands over what is final, and says how things are.
    fn write(&mut self, scope: &Scope<'_>, ended: bool, end: End, damage: Vec<String>) -> Result<(), ExportError> {
        self.take_overflow();
        let report = self.report(scope, end, damage);
        self.write_steps(&report, ended)?;
        let rows = std::mem::take(&mut self.collectives);
        self.with_part(|sink| rows.iter().try_for_each(|row| collective(row, sink)))?;
        self.write_state(&report, scope.dictionary, ended)
    }

    fn write_steps(&mut self, report: &Report, ended: bool) -> Result<(), ExportError> {
        let Some((capture, series)) = self.captures.step_overflow_series() else { return Ok(()) };
        let now = self.last.nanos();
        for (device, steps) in report.devices.iter().filter_map(|row| Some((row.device.id, row.steps.as_ref()?))) {
            let Some(series) = series.iter().find(|series| series.device == device) else { continue };
            let found = self.device(device.0).take((capture, series.series), steps, now, ended);
            self.steps_written += found.rows.len() as u64;
            self.with_part(|sink| {
                found.rows.iter().try_for_each(|(number, step)| step_rows(device.0, *number, found.source, step, sink))
            })?;
        }
        Ok(())
    }

    /// Hands rows to the part of the run.
    fn with_part(&self, rows: impl FnOnce(&mut Rows<'_>) -> Result<(), ExportError>) -> Result<(), ExportError> {
        let mut parts = self.live.parts.lock();
        let key = (self.date.clone(), self.label.run.clone());
        let part =
            parts.entry(key).or_insert_with(|| Part::new(&self.live.lake, &self.date, &self.label.run, String::new()));
        rows(&mut Rows::new(part, self.label.rank, self.live.options))
    }

    /// What is replaced: the process, its causes, what is missing.
    fn write_state(&self, report: &Report, dictionary: &Dictionary, ended: bool) -> Result<(), ExportError> {
        let name = format!("{LIVE}{}", self.name);
        let mut part = Part::new(&self.live.lake, &self.date, &self.label.run, name).replacing();
        let mut rows = Rows::new(&mut part, self.label.rank, self.live.options).running(!ended);
        let replaced = Table::ALL.iter().copied().filter(|table| table.is_reported());
        let replaced: Vec<Table> =
            replaced.filter(|table| !matches!(table, Table::Steps | Table::StepLeaves)).collect();
        let series = self.captures.step_overflow_series().map(|(_, series)| series).unwrap_or_default();
        let late: u64 = series.iter().map(|series| series.moved_too_late_ns).sum();
        let changed = self.steps.values().map(LiveSteps::changed_ns).sum::<u64>() + late + self.before.changed_ns;
        let left_out = self.steps.values().map(LiveSteps::left_out).sum::<u64>() + self.before.left_out;
        let counters = [(STEPS_LEFT_OUT, left_out), (STEPS_CHANGED, changed)];
        let about = About { path: &self.path, report, dictionary, counters: &counters };
        let none = StepSpool::default().finish(None)?;
        reported_rows(&about, &none, &replaced, &mut rows)?;
        let told = if ended { self.communicators.clone() } else { self.joined.communicators() };
        communicators(&told, dictionary, &mut rows)?;
        part.finish()?;
        Ok(())
    }
}
