//! Captures: the measured parts of a run, each with separate accounting.
//!
//! The complete run is measured unless captures were requested. Each capture has its own [`Attributor`], so
//! that steps, bottleneck and tables cover only the capture, and the time between two captures is in none.
//! The injected library and the reader of a trace feed [`Captures`] with the same events, so both produce the
//! same results. The assignment of records to captures happens before: this module only does the accounting.
//!
//! Memory is bounded: the engines of the captures that are still open, of one that is kept for the report,
//! and one row for each of the first [`ROW_LIMIT`] others.

mod auto;
mod early;
mod engine;

use std::sync::Arc;

use early::Early;
use engine::Capture;
use gpuwhy_trace::cost::Cost;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::{Event, EventScope, Sink as _};
use gpuwhy_trace::graph_node::GraphNode;
use gpuwhy_trace::json_text::Object;
use gpuwhy_trace::kernels::KernelProfile;
use gpuwhy_trace::preamble::Preamble;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{CaptureMark, DeviceId, Loss, Record, ThreadId, Timestamp, Trigger};
use gpuwhy_trace::utilization::Utilization;
use profiler_core::attribution::{Attributor, EngineOptions};
use profiler_core::monitoring::Changes;

use crate::kernels::{Choice, candidates, choose, has_run_enough};
use crate::metrics::{self, Totals};
use crate::run::remedies::CodeReader;
use crate::run::{BurstRow, CaptureRow, CaptureTable, Captured, Report};
use crate::state::Metrics;

/// Maximum number of captures with a separate row in the report; the others are counted.
pub const ROW_LIMIT: usize = 1_000;
/// Maximum number of open captures: the current one, and earlier ones that still wait for their last device
/// work. The driver queues some thousand launches, so consecutive captures of a few dozen launches each need
/// this many.
pub const OPEN_LIMIT: usize = 64;

/// Maximum number of open captures with more than `LARGE_RECORDS` records. The device lags the host by at
/// most its queue, which is less than one such capture, so the earlier ones are complete. The memory of an
/// engine grows with its records.
const LARGE_LIMIT: usize = 4;
const LARGE_RECORDS: u64 = 1 << 14;

/// Capture number of the complete run in mode auto; the other captures are its bursts.
pub const MONITORED: u32 = 0;

/// All captures of a process. See the [module](self).
#[derive(Debug, Default)]
pub struct Captures {
    open: Vec<Capture>,
    /// Engine for the report: of the requested capture, else of the newest that ended.
    kept: Option<Capture>,
    rows: Vec<CaptureRow>,
    beyond_rows: u64,
    bursts: Vec<BurstRow>,
    /// Bottlenecks of a run in mode auto.
    changes: Changes,
    /// Totals of the captures that have ended.
    ended: Totals,
    requested: Option<u32>,
    /// Number of the capture that receives records.
    selected: u32,
    /// True if there was ever a mark; otherwise the run is one unnamed capture.
    marked: bool,
    /// Options of the engines of captures from here on. Only those that may be reported log their segments and the
    /// simulation.
    pub options: EngineOptions,
    loss: Loss,
    cost: Option<Cost>,
    utilization: Utilization,
    /// Definitions that later captures need.
    preamble: Preamble,
    early: Early,
    /// True once a capture has started.
    begun: bool,
    kernel_profiles: Vec<Arc<KernelProfile>>,
    /// Process information that determines the overhead table of tracing.
    priced_as: Option<ProcessInfo>,
    code_reader: Option<CodeReader>,
}

impl Captures {
    /// Creates an empty set. The report will cover the capture `requested`, or else the newest.
    pub fn new(requested: Option<u32>) -> Self {
        Self { requested, ..Self::default() }
    }

    /// Processes an event. Records go to the capture that was selected last; the first record of a run
    /// without marks starts one. Counter samples arrive before the flush mark that passes them, or some marks
    /// later. The end of the run does not close open captures, because it may come early in a damaged trace;
    /// [`finish`](Self::finish) closes them.
    #[inline]
    pub fn event(&mut self, event: &Event, session: &ProcessInfo, dictionary: &Dictionary) {
        match event {
            Event::Record(record) => self.push(record, dictionary),
            _ if event.scope() == EventScope::AllCaptures => self.give_to_all(event, dictionary),
            Event::Utilization { reading, .. } => self.utilization.take(**reading),
            Event::KernelProfile(profile) => {
                // The measurement held the program: all captures that may be reported leave that time out.
                self.open.iter_mut().chain(&mut self.kept).for_each(|capture| capture.event(event, dictionary));
                self.kernel_profiles.push(Arc::clone(profile));
            }
            Event::Capture(mark) => self.mark(*mark, session, dictionary),
            Event::Flush(at) => self.flushed(*at, dictionary),
            Event::Loss(loss) => self.loss = **loss,
            Event::Cost { cost, .. } => self.cost = Some(**cost),
            _ => {}
        }
    }

    /// Marks that contradict earlier ones (a damaged trace) are ignored.
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
        // The monitored run in mode auto starts before its bursts, and also receives their samples and
        // ranges.
        if let (true, Record::Sample(_) | Record::Range(_)) = (selected != MONITORED, record)
            && let Some(monitored) = self.open.first_mut().filter(|capture| capture.row.number == MONITORED)
        {
            monitored.push(record, dictionary);
        }
    }

    /// Parses the source lines of a trace with `reader`, so that remedies can ask what a line does.
    pub fn read_code_with(&mut self, reader: CodeReader) {
        self.code_reader = Some(reader);
    }

    /// Uses the tracing overhead of `session` from here on; without this call no overhead is known.
    pub fn set_calibrations(&mut self, session: &ProcessInfo) {
        self.priced_as = Some(ProcessInfo {
            gpuwhy_version: session.gpuwhy_version.clone(),
            calibrations: session.calibrations.clone(),
            ..ProcessInfo::default()
        });
    }

    /// Passes the tracing overhead to the engines. It depends on the GPUs, so this happens when the first one
    /// is described.
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

    /// Closes everything that is open as of `at`; no further events follow.
    pub fn finish(&mut self, at: Timestamp, session: &ProcessInfo, dictionary: &Dictionary) {
        while !self.open.is_empty() {
            self.close(0, at, session, dictionary);
        }
    }

    /// Passes an event to all captures.
    fn give_to_all(&mut self, event: &Event, dictionary: &Dictionary) {
        let all_get_it = self.preamble.note(event);
        if !self.begun {
            if !all_get_it {
                self.early.keep(event);
            }
            return;
        }
        self.open.iter_mut().for_each(|capture| capture.event(event, dictionary));
    }

    /// Definitions for a new listener.
    pub fn preamble(&self) -> &Preamble {
        &self.preamble
    }

    /// Unfinished operations by communicator in the newest open capture: fields of the reply to `hang`.
    pub fn pending_collectives(&self, now: Timestamp, dictionary: &Dictionary) -> Object {
        let newest = self.open.last().map(|capture| capture.collectives.pending().state(now, dictionary));
        newest.unwrap_or_default()
    }

    /// Returns the kernels worth measuring, once enough has run to choose them; see
    /// [`crate::kernels::choose`]. `None` before, and while none can be measured.
    pub fn kernels_to_measure(
        &self,
        most: usize,
        is_wanted: impl Fn(&str) -> bool,
        dictionary: &Dictionary,
    ) -> Option<Vec<Choice>> {
        let attributor = &self.shown()?.attributor;
        if !has_run_enough(attributor) {
            return None;
        }
        let (chosen, _) = choose(&candidates(attributor, dictionary), most, is_wanted);
        let first = chosen.first()?.candidate.device;
        // Counters can be opened in only one context.
        let on_first = chosen.into_iter().filter(|choice| choice.candidate.device == first);
        Some(on_first.collect())
    }

    /// True if a capture has launched device work without a record yet.
    pub fn awaits_work(&self, number: u32) -> bool {
        self.open.iter().any(|capture| capture.row.number == number && capture.attributor.awaits_work())
    }

    /// Number of the capture that receives records.
    pub fn selected(&self) -> u32 {
        self.selected
    }

    /// Part of a step that tracing takes in the reported capture, 0 to 1, on the device with the longest window; `None`
    /// if unknown.
    pub fn share_of_tracing(&self) -> Option<f64> {
        let attributor = &self.shown()?.attributor;
        let device = attributor.devices().max_by_key(|account| account.window_ns())?.id();
        Some(1.0 - attributor.what_if(device)?.untraced?)
    }

    /// The thread that runs the iterations of a server, in a run that is monitored.
    pub fn serving_thread(&self) -> Option<ThreadId> {
        self.shown()?.monitoring.serving_thread()
    }

    /// True if there is no capture to report.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.kept.is_none()
    }

    /// Disables the simulation from here on, also for later captures.
    pub fn stop_what_if(&mut self) {
        self.options.no_simulation = true;
        self.open.iter_mut().for_each(|capture| capture.attributor.stop_what_if());
    }

    /// Engines of all captures still in memory, with the number of the capture.
    pub fn engines(&mut self) -> impl Iterator<Item = (u32, &mut Attributor)> {
        self.open.iter_mut().chain(&mut self.kept).map(|capture| (capture.row.number, &mut capture.attributor))
    }

    /// Takes what the [`engines`](Self::engines) have logged since the previous call:
    /// `captures.take(Attributor::take_segments)`.
    pub fn take<T>(&mut self, take: impl Fn(&mut Attributor) -> Vec<(DeviceId, T)>) -> Vec<(u32, DeviceId, T)> {
        let taken = self
            .engines()
            .flat_map(|(number, engine)| take(engine).into_iter().map(move |(device, item)| (number, device, item)));
        taken.collect()
    }

    /// Number and engine of the reported capture.
    pub fn reported(&self) -> Option<(u32, &Attributor)> {
        self.shown().map(|capture| (capture.row.number, &capture.attributor))
    }

    /// Returns the report about the requested capture; without a request, about the running one, else about
    /// the newest.
    pub fn report(&self, session: &ProcessInfo, dictionary: &Dictionary, end: End, damage: Vec<String>) -> Report {
        self.report_of(session, dictionary, (end, damage), true)
    }

    /// Totals of all captures, for monitoring systems.
    pub fn metrics(&self, session: &ProcessInfo, dictionary: &Dictionary) -> Metrics {
        let report = self.report_of(session, dictionary, (End::Abrupt, Vec::new()), false);
        let mut totals = self.ended.clone();
        for capture in &self.open {
            totals.add(&capture.attributor, dictionary);
            totals.add_collectives(&capture.collectives);
        }
        metrics::state(&report, self.name_now(&report, report.bottleneck.live), &totals, dictionary)
    }

    /// `simulated`: include the single kernels, and the simulations that only a report needs.
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
        let is_burst = shown.is_some_and(|capture| capture.row.trigger.is_burst());
        let is_monitored = shown.is_some_and(|capture| capture.row.number == MONITORED);
        let captured = Captured {
            cost: self.cost,
            utilization: self.utilization.clone(),
            collectives: shown.and_then(|capture| capture.collectives.report(dictionary)),
            counter_losses: self.preamble.counter_losses(),
            captures: self.capture_table(shown),
            bursts: (is_monitored || !is_burst && !self.bursts.is_empty()).then(|| self.burst_table()),
            kernel_profiles: simulated.then_some(&self.kernel_profiles),
            monitoring: shown.map(|capture| &capture.monitoring),
            live: shown.map(|capture| &capture.live_bottleneck),
            code_reader: self.code_reader,
        };
        Report::of(session, attributor, dictionary, (&self.loss, end, damage), captured, simulated)
    }

    /// The captures beside `shown`; empty for a run without marks.
    fn capture_table(&self, shown: Option<&Capture>) -> CaptureTable {
        if !self.marked {
            return CaptureTable::default();
        }
        let open = self
            .open
            .iter()
            .filter(|capture| capture.row.number != MONITORED)
            .map(|capture| CaptureRow { kernels: capture.attributor.completeness().kernels, ..capture.row.clone() });
        CaptureTable {
            shown: shown.map(|capture| capture.row.number).filter(|&number| number != MONITORED),
            rows: self.rows.iter().cloned().chain(open).collect(),
            beyond_rows: self.beyond_rows,
        }
    }

    /// The reported capture.
    fn shown(&self) -> Option<&Capture> {
        let mut newest_first = self.open.iter().rev().chain(&self.kept);
        match self.requested {
            Some(number) => newest_first.find(|capture| capture.row.number == number),
            // The complete run takes precedence over its bursts.
            None => {
                newest_first.clone().find(|capture| capture.row.number == MONITORED).or_else(|| newest_first.next())
            }
        }
    }

    /// One-line summary of the bottleneck, for a run that is still going. The named bottleneck stays until
    /// another one has led for a while.
    pub fn live_line(&mut self, session: &ProcessInfo, dictionary: &Dictionary) -> String {
        let report = self.report_of(session, dictionary, (End::Abrupt, Vec::new()), false);
        let number = self.shown().map(|capture| capture.row.number);
        let mut captures = self.open.iter_mut().chain(&mut self.kept);
        if let Some(capture) = captures.find(|capture| Some(capture.row.number) == number) {
            capture.live_bottleneck.follow(&capture.attributor, &report.bottleneck);
        }
        report.live_line()
    }

    /// Closes the oldest large capture when there are too many. Between two marks only one capture grows.
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
        let mut options = self.options.clone();
        if self.requested.is_some_and(|requested| requested != number) {
            (options.segments, options.simulated_parts) = (false, Vec::new());
        }
        let mut capture = Capture::new(number, at, trigger, options);
        let by_other = self.priced_as.as_ref().is_some_and(|session| session.gpuwhy_version.is_empty());
        if by_other || trigger != Trigger::Start {
            capture.attributor.begun_midway();
        }
        let is_first = !std::mem::replace(&mut self.begun, true);
        // The metric sets of the first capture are among the early events, each before its samples.
        let known = self.preamble.definitions().filter(|event| !is_first || !matches!(event, Event::Counters(_)));
        // Which ranges were open before this capture is not known in it.
        let known = known.map(|event| match event {
            Event::GraphNode(node) if node.at < at => Event::GraphNode(GraphNode { at: Timestamp::ZERO, ..node }),
            other => other,
        });
        let (early, dropped) = self.early.take();
        known.chain(early).for_each(|event| capture.event(&event, dictionary));
        capture.collectives.add_dropped(dropped + self.preamble.dropped());
        capture.attributor.add_dropped_graph_nodes(self.preamble.graph_nodes_dropped());
        self.selected = number;
        // A repeated number is damage; the first capture keeps it.
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
            let gaps = (&self.loss, End::Clean, Vec::new());
            let report = Report::of(session, &capture.attributor, dictionary, gaps, Captured::default(), false);
            capture.row.conclude(at, &report);
            self.note_burst(&capture.row, &report);
            if self.rows.len() < ROW_LIMIT { self.rows.push(capture.row.clone()) } else { self.beyond_rows += 1 }
        }
        let keep = match (self.requested, &self.kept) {
            (Some(requested), _) => capture.row.number == requested,
            (None, Some(kept)) if kept.row.number == MONITORED => false,
            (None, Some(_)) if capture.row.number == MONITORED => true,
            // The part that was recorded before bursts followed is longer.
            (None, Some(kept)) if capture.row.trigger.is_burst() && !kept.row.trigger.is_burst() => false,
            (None, Some(kept)) => capture.row.number >= kept.row.number,
            (None, None) => true,
        };
        if keep {
            self.kept = Some(capture);
        }
    }
}
