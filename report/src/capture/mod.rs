//! Captures: the parts of a run that are measured, and the accounting of each by itself.
//!
//! A run is measured as a whole unless somebody chose: then each capture has an [`Attributor`] of its own, so that
//! steps, verdict and tables are those of the capture and what lay between two captures is in none. The injected
//! library and the reader of a trace feed the same [`Captures`] with the same events, so both say the same. Which
//! record belongs to which capture is decided before: here is only the bookkeeping.
//!
//! Memory is bounded: the engines of the captures that are still open, of one that is kept for the report, and one
//! row for each of the first [`ROW_LIMIT`] others.

mod auto;
mod early;
mod engine;
mod logs;

use std::sync::Arc;

use early::Early;
use engine::Capture;
use gpuwhy_trace::cost::Cost;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::{Event, Sink as _};
use gpuwhy_trace::json_text::Object;
use gpuwhy_trace::kernels::{KernelProfile, PcWindow};
use gpuwhy_trace::preamble::Preamble;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{CaptureMark, Loss, Record, Timestamp, Trigger};
use gpuwhy_trace::utilization::Utilization;
use profiler_core::attribution::Attributor;
use profiler_core::monitoring::{Changes, MonitoredTime};

use crate::kernels::{Choice, KernelsReport, candidates, choose, has_run_enough};
use crate::metrics::{self, Totals};
use crate::run::{BurstRow, CaptureRow, CaptureTable, Report, monitor};

/// Captures that get a row of their own in the report; those beyond are counted.
pub const ROW_LIMIT: usize = 1_000;
/// Captures that are open at once: one that is being taken and earlier ones whose last device work is still to come.
/// The driver queues some thousand launches, so ranges of a few dozen launches that follow each other need this many.
pub const OPEN_LIMIT: usize = 64;

/// Of these, captures of more than so many records. A device is ahead of one such capture by its queue at most, so that
/// those before it are over; what an engine holds grows with what it takes.
const LARGE_LIMIT: usize = 4;
const LARGE_RECORDS: u64 = 1 << 14;

/// The capture of the whole run as mode auto monitors it: its captures are bursts beside it.
pub const MONITORED: u32 = 0;

/// All captures of a process. See the [module](self).
#[derive(Debug, Default)]
pub struct Captures {
    open: Vec<Capture>,
    /// The engine behind the report: the requested capture, else the newest that ended.
    kept: Option<Capture>,
    rows: Vec<CaptureRow>,
    beyond_rows: u64,
    bursts: Vec<BurstRow>,
    /// Bottlenecks of a run in mode auto.
    changes: Changes,
    /// What the captures that have ended came to.
    ended: Totals,
    requested: Option<u32>,
    /// Number that records go to.
    selected: u32,
    /// Whether there was ever a mark: else the run is one capture and is not called so.
    marked: bool,
    what_if_stopped: bool,
    /// Whether the captures that the report can be about note their segments.
    segments_logged: bool,
    /// Parts of the run of which these captures note the replay.
    replay_logged: Vec<(u64, u64)>,
    loss: Loss,
    cost: Option<Cost>,
    utilization: Utilization,
    /// What captures to come have to know.
    preamble: Preamble,
    early: Early,
    /// Whether a capture ever began.
    begun: bool,
    kernel_profiles: Vec<Arc<KernelProfile>>,
    pc_windows: Vec<Arc<PcWindow>>,
    /// What of the process decides about the prices of tracing.
    priced_as: Option<ProcessInfo>,
    /// Whether captures keep the newest events of the simulation.
    events_kept: bool,
    /// Whether captures keep forgotten steps until they are taken.
    step_overflow_kept: bool,
}

impl Captures {
    /// None yet. The report will be about the capture `requested`, or about the newest.
    pub fn new(requested: Option<u32>) -> Self {
        Self { requested, ..Self::default() }
    }

    /// Takes an event. Records go to the capture that was selected last; the first one of a run without marks begins
    /// one. Samples of counters come before the flush mark that passes them, or some marks later. The end of the run is
    /// not the end of what is open, which [`finish`](Self::finish) ends: it may come early in a damaged trace.
    #[inline]
    pub fn event(&mut self, event: &Event, session: &ProcessInfo, dictionary: &Dictionary) {
        match event {
            Event::Record(record) => self.push(record, dictionary),
            Event::Counters(_) | Event::Collective(_) => self.give_to_all(event, dictionary),
            Event::Utilization { reading, .. } => self.utilization.take(**reading),
            Event::KernelProfile(profile) => {
                self.give_to_shown(event, dictionary);
                self.kernel_profiles.push(Arc::clone(profile));
            }
            Event::ProgramCounters(window) => {
                self.give_to_shown(event, dictionary);
                self.pc_windows.push(Arc::clone(window));
            }
            Event::Capture(mark) => self.mark(*mark, session, dictionary),
            Event::Flush(at) => self.flushed(*at, dictionary),
            Event::Loss(loss) => self.loss = **loss,
            Event::Cost { cost, .. } => self.cost = Some(**cost),
            Event::End(..) => {}
        }
    }

    /// Marks that contradict the ones before (a damaged trace) are passed over.
    fn mark(&mut self, mark: CaptureMark, session: &ProcessInfo, dictionary: &Dictionary) {
        self.limit_large(session, dictionary);
        match mark {
            CaptureMark::Begin { number, at, trigger } => {
                self.marked = true;
                if self.open.len() >= OPEN_LIMIT {
                    let oldest = usize::from(self.open[0].row.number == MONITORED);
                    self.close(oldest, at, session, dictionary);
                }
                self.begin(number, at, trigger, dictionary);
            }
            CaptureMark::Select { number } => self.selected = number,
            CaptureMark::End { number, at } => {
                self.marked = true;
                if let Some(index) = self.open.iter().position(|capture| capture.row.number == number) {
                    self.close(index, at, session, dictionary);
                }
            }
        }
    }

    #[inline]
    fn push(&mut self, record: &Record, dictionary: &Dictionary) {
        if self.open.is_empty() && !self.marked {
            self.begin(1, Timestamp::ZERO, Trigger::Start, dictionary);
        }
        let selected = self.selected;
        if let Some(capture) = self.open.iter_mut().find(|capture| capture.row.number == selected) {
            capture.push(record, dictionary);
        }
        // The run as mode auto monitors it begins before its bursts, and has their samples and ranges too.
        if let (true, Record::Sample(_) | Record::Range(_)) = (selected != MONITORED, record)
            && let Some(monitored) = self.open.first_mut().filter(|capture| capture.row.number == MONITORED)
        {
            monitored.push(record, dictionary);
        }
    }

    /// What tracing adds is that of `session` from here on; without this no cost of tracing is known.
    pub fn set_calibrations(&mut self, session: &ProcessInfo) {
        self.priced_as = Some(ProcessInfo {
            gpuwhy_version: session.gpuwhy_version.clone(),
            calibrations: session.calibrations.clone(),
            ..ProcessInfo::default()
        });
    }

    /// Tells the engines what tracing adds, which depends on the GPUs, as soon as one is described.
    fn price(&mut self, dictionary: &Dictionary) {
        let Some(session) = &self.priced_as else { return };
        let (prices, source) = session.prices(dictionary);
        for capture in &mut self.open {
            capture.attributor.set_prices(prices, source);
        }
    }

    fn flushed(&mut self, at: Timestamp, dictionary: &Dictionary) {
        self.price(dictionary);
        self.open.iter_mut().for_each(|capture| capture.event(&Event::Flush(at), dictionary));
        self.watch_changes(at);
    }

    /// Nothing more will come: ends what is open, as of `at`.
    pub fn finish(&mut self, at: Timestamp, session: &ProcessInfo, dictionary: &Dictionary) {
        while !self.open.is_empty() {
            self.close(0, at, session, dictionary);
        }
    }

    /// Takes what belongs to no capture more than to another.
    fn give_to_all(&mut self, event: &Event, dictionary: &Dictionary) {
        self.preamble.note(event);
        if !self.begun {
            return self.early.keep(event);
        }
        self.open.iter_mut().for_each(|capture| capture.event(event, dictionary));
    }

    /// Tells the captures that the report can be about that gpuwhy held the program up.
    fn give_to_shown(&mut self, event: &Event, dictionary: &Dictionary) {
        self.open.iter_mut().chain(&mut self.kept).for_each(|capture| capture.event(event, dictionary));
    }

    /// What somebody who begins to listen now has to know.
    pub fn preamble(&self) -> &Preamble {
        &self.preamble
    }

    /// How the time of the capture that the report is about divides by samples alone, where no device work was
    /// recorded; `None` without hardware samples.
    pub fn monitored(&self) -> Option<MonitoredTime> {
        self.shown()?.monitoring.time()
    }

    /// What was queued in communicators and is not finished, in the newest open capture: fields of an answer to `hang`.
    pub fn pending_collectives(&self, now: Timestamp, dictionary: &Dictionary) -> Object {
        let newest = self.open.last().map(|capture| capture.collectives.pending().state(now, dictionary));
        newest.unwrap_or_default()
    }

    /// The kernels that are worth measuring, once enough has run to tell; see [`crate::kernels::choose`]. `None`
    /// before, and while none can be measured.
    pub fn kernels_to_measure(
        &self,
        most: usize,
        is_wanted: impl Fn(&str) -> bool,
        dictionary: &Dictionary,
    ) -> Option<Vec<Choice>> {
        if !self.has_run_enough() {
            return None;
        }
        let attributor = &self.shown()?.attributor;
        let (chosen, _) = choose(&candidates(attributor, dictionary), most, is_wanted);
        let first = chosen.first()?.candidate.device;
        // The counters are opened in one context.
        let on_first = chosen.into_iter().filter(|choice| choice.candidate.device == first);
        Some(on_first.collect())
    }

    /// Whether the run is long enough to tell which kernels matter.
    pub fn has_run_enough(&self) -> bool {
        self.shown().is_some_and(|capture| has_run_enough(&capture.attributor))
    }

    /// Whether a capture has launched device work that has not come yet.
    pub fn awaits_work(&self, number: u32) -> bool {
        self.open.iter().any(|capture| capture.row.number == number && capture.attributor.awaits_work())
    }

    /// The capture that records go to.
    pub fn selected(&self) -> u32 {
        self.selected
    }

    /// Whether the report would be about anything.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.kept.is_none()
    }

    /// Leaves the what-if simulation out from here on, in captures to come too.
    pub fn stop_what_if(&mut self) {
        self.what_if_stopped = true;
        self.open.iter_mut().for_each(|capture| capture.attributor.stop_what_if());
    }

    /// What a step gains from better kernels will be asked: captures from here on keep the newest events of the
    /// simulation for that, at most 2.4 MB each. Where counters are sampled they do so anyway.
    pub fn keep_simulated_events(&mut self) {
        self.events_kept = true;
        self.open.iter_mut().for_each(|capture| capture.attributor.keep_simulated_events());
    }

    /// The report about the requested capture; without a request about the one being taken, else about the newest.
    pub fn report(&self, session: &ProcessInfo, dictionary: &Dictionary, end: End, damage: Vec<String>) -> Report {
        self.report_of(session, dictionary, (end, damage), true)
    }

    /// The numbers of all captures so far, for monitoring systems.
    pub fn metrics(&self, session: &ProcessInfo, dictionary: &Dictionary) -> Object {
        let report = self.report_of(session, dictionary, (End::Abrupt, Vec::new()), false);
        let mut totals = self.ended.clone();
        for capture in &self.open {
            totals.add(&capture.attributor, dictionary);
            totals.add_collectives(&capture.collectives);
        }
        metrics::state(&report, self.name_now(&report, report.verdict.live), &totals, dictionary)
    }

    /// `simulated`: with the kernels by themselves, and the simulations that are made for a report alone.
    fn report_of(
        &self,
        session: &ProcessInfo,
        dictionary: &Dictionary,
        (end, damage): (End, Vec<String>),
        simulated: bool,
    ) -> Report {
        let shown = self.shown();
        let nothing = Attributor::new();
        let attributor = shown.map_or(&nothing, |capture| &capture.attributor);
        let make = if simulated { Report::new } else { Report::live };
        let mut report = make(session, attributor, dictionary, &self.loss, end, damage);
        report.cost = self.cost;
        report.utilization = self.utilization.clone();
        report.collectives = shown.and_then(|capture| capture.collectives.report(dictionary));
        report.counter_losses = self.preamble.counter_losses().to_vec();
        if simulated {
            report.kernels = KernelsReport::of(attributor, dictionary, &self.kernel_profiles);
            report.kernels.windows.clone_from(&self.pc_windows);
        }
        if report.is_watched() {
            report.monitored = self.monitored();
            if shown.is_some_and(|capture| capture.row.number == MONITORED) {
                report.bursts = Some(self.burst_table());
            }
            report.verdict = monitor::verdict(&report, &attributor.sample_totals());
            if let Some(bursts) = &report.bursts {
                report.verdict.live = bursts.live();
            } else if let Some(recent) = shown.and_then(|capture| capture.monitoring.recent_time()) {
                report.verdict.live = monitor::live(&recent);
            }
        } else if let Some(capture) = shown {
            report.verdict.live = capture.live_verdict.clone().follow(attributor, &report.verdict);
        }
        if self.marked {
            let open = self.open.iter().filter(|capture| capture.row.number != MONITORED).map(|capture| CaptureRow {
                kernels: capture.attributor.completeness().kernels,
                ..capture.row.clone()
            });
            report.captures = CaptureTable {
                shown: shown.map(|capture| capture.row.number).filter(|&number| number != MONITORED),
                rows: self.rows.iter().cloned().chain(open).collect(),
                beyond_rows: self.beyond_rows,
            };
        }
        report
    }

    /// The capture that the report is about.
    fn shown(&self) -> Option<&Capture> {
        let mut newest_first = self.open.iter().rev().chain(&self.kept);
        match self.requested {
            Some(number) => newest_first.find(|capture| capture.row.number == number),
            // The whole run goes before its bursts.
            None => {
                newest_first.clone().find(|capture| capture.row.number == MONITORED).or_else(|| newest_first.next())
            }
        }
    }

    /// The verdict in one line, for a run that is still going, and the name that it gives is kept as long as
    /// nothing else has led for a while.
    pub fn live_line(&mut self, session: &ProcessInfo, dictionary: &Dictionary) -> String {
        let report = self.report_of(session, dictionary, (End::Abrupt, Vec::new()), false);
        let number = self.shown().map(|capture| capture.row.number);
        let mut captures = self.open.iter_mut().chain(&mut self.kept);
        if let Some(capture) = captures.find(|capture| Some(capture.row.number) == number) {
            capture.live_verdict.follow(&capture.attributor, &report.verdict);
        }
        report.live_line()
    }

    /// Closes the oldest of the large captures when there are too many. Between two marks only one of them grows.
    fn limit_large(&mut self, session: &ProcessInfo, dictionary: &Dictionary) {
        let is_large = |capture: &Capture| {
            capture.row.number != MONITORED && capture.attributor.completeness().records() > LARGE_RECORDS
        };
        let mut large = (0..self.open.len()).filter(|&index| is_large(&self.open[index]));
        if let (Some(oldest), true) = (large.next(), large.count() >= LARGE_LIMIT) {
            let at = self.open[oldest].row.begin;
            self.close(oldest, at, session, dictionary);
        }
    }

    fn begin(&mut self, number: u32, at: Timestamp, trigger: Trigger, dictionary: &Dictionary) {
        let mut capture = Capture::new(number, at, trigger);
        let is_first = !std::mem::replace(&mut self.begun, true);
        // The metric sets of the first are among what came early, each before its samples.
        let known = self.preamble.definitions().filter(|event| !is_first || matches!(event, Event::Collective(_)));
        let (early, dropped) = self.early.take();
        known.chain(early).for_each(|event| capture.event(&event, dictionary));
        capture.collectives.add_dropped(dropped + self.preamble.dropped());
        if self.events_kept {
            capture.attributor.keep_simulated_events();
        }
        if self.what_if_stopped {
            capture.attributor.stop_what_if();
        }
        if self.step_overflow_kept {
            capture.attributor.keep_step_overflow();
        }
        self.selected = number;
        if self.segments_logged && self.requested.is_none_or(|requested| requested == number) {
            capture.attributor.log_segments();
            if !self.replay_logged.is_empty() {
                capture.attributor.log_replay(self.replay_logged.clone());
            }
        }
        // A number that comes twice is damage; the first keeps it.
        if self.open.iter().all(|open| open.row.number != number) {
            self.open.push(capture);
        }
    }

    fn close(&mut self, index: usize, at: Timestamp, session: &ProcessInfo, dictionary: &Dictionary) {
        self.price(dictionary);
        let mut capture = self.open.remove(index);
        capture.attributor.finish(at, dictionary);
        self.ended.add(&capture.attributor, dictionary);
        capture.collectives.finish(at);
        self.ended.add_collectives(&capture.collectives);
        if self.marked && capture.row.number != MONITORED {
            let report = Report::live(session, &capture.attributor, dictionary, &self.loss, End::Clean, Vec::new());
            capture.row.conclude(at, &report);
            self.note_burst(&capture.row, &report);
            if self.rows.len() < ROW_LIMIT { self.rows.push(capture.row.clone()) } else { self.beyond_rows += 1 }
        }
        let keep = match (self.requested, &self.kept) {
            (Some(requested), _) => capture.row.number == requested,
            (None, Some(kept)) if kept.row.number == MONITORED => false,
            (None, Some(_)) if capture.row.number == MONITORED => true,
            (None, Some(kept)) => capture.row.number >= kept.row.number,
            (None, None) => true,
        };
        if keep {
            self.kept = Some(capture);
        }
    }
}
