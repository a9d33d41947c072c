//! Report of a run: plain data built from the attributor's state at any moment.
//!
//! One model serves every output: `text` for people, `json` (with the feature `serde`) for programs, one line
//! for a run that is still going. Names are demangled here, once per report, so that the hot path carries
//! only ids. This module reads no clock and decides nothing about colors or destinations.
//!
//! Reading order: `model` (contents of a report), `build` and the neighboring files that build its parts,
//! `bottleneck`, then the outputs.

pub(crate) mod bottleneck;
mod build;
mod bursts;
mod call_lines;
mod code;
pub mod compute;
pub mod copies;
mod framework;
mod gaps;
mod graph_modules;
mod graph_origins;
mod host;
mod host_estimate;
#[cfg(feature = "serde")]
mod json;
mod kernel_gains;
mod kernel_lines;
pub(crate) mod launches;
mod limits;
mod live_state;
mod managed;
mod memory;
mod memory_owners;
mod model;
mod monitor;
mod names;
mod operator_guesses;
pub mod operators;
mod price;
mod ranges;
pub mod remedies;
mod sequence;
mod serving;
mod slow_steps;
mod sources;
mod step_kinds;
mod text;
pub mod unit;
mod untraced;
mod waits;

pub use bottleneck::bottleneck_of;
pub(crate) use bottleneck::lead;
pub(crate) use build::Captured;
#[doc(hidden)]
pub use code::{Code, Does, Expression, Loop, Statement};
pub use live_state::{STARTING_UP, WINDOWS_KEPT};
pub(crate) use model::loss_sentence;
pub use model::{
    ApiRow, Awaited, BetweenIterations, Bottleneck, BurstRow, BurstTable, CallLineRow, CaptureRow, CaptureTable,
    CauseRow, Certainty, ComputeLimits, ComputeSplit, CopyClass, CopyFit, CopyOverlap, CopyRow, DeviceReport, GapRow,
    GapSubject, GraphModuleRow, GraphOriginRow, GraphOrigins, GraphPartRow, GraphRangeRow, GraphRangeTable,
    GraphThreadRow, GridClass, GrowthPerStep, HostReport, InnerLineRow, JumpOfMemory, KernelGeometry, KernelLineRow,
    KernelLines, KernelRow, LaunchLineRow, LibraryRow, LineNear, LineRow, LockHolderRow, LongestCall, ManagedPages,
    MeaningRow, MeasuredGain, MemoryCallRow, MemoryOfDevice, MemoryReport, MemoryRow, ModuleTime, NamedLimits,
    OwnerRow, PeakBy, PhaseRow, PlanStep, RangeRow, RangesReport, Ranked, RecoverableBy, Remedy, Report, Results,
    RunPart, SMALLEST_GAIN, SampledLaunches, SampledTime, Sequence, SourceLines, SourceRow, StepBasis, StepMeaning,
    TypicalSteps, Untraced, WholeGraphRow, helps,
};
pub use operator_guesses::guessed_operators;
pub use price::{RunCost, Saving};
pub use serving::{Serving, ServingKind, TokenBound};
pub use slow_steps::SlowStep;

use std::fmt;

use crate::state::Live;
use gpuwhy_trace::cost::Cost;
use profiler_core::leaf::{Cause, Leaf, Leaves};
use profiler_core::whatif::BestCase;

use self::untraced::WithoutTracing;
use crate::text_format::{Page, Style};

/// Time of a run whose device work was not recorded on purpose, nanoseconds; `None` for others.
fn watched_ns(devices: &[DeviceReport], cost: Option<&Cost>, observed_ns: u64) -> Option<u64> {
    let watched = cost.filter(|cost| devices.is_empty() && cost.mode.monitors());
    watched.map(|cost| cost.observed_ns.max(observed_ns))
}

impl Report {
    /// True if no device work was recorded on purpose: the bottleneck is then derived from utilization
    /// readings and samples, and has no share.
    pub fn is_watched(&self) -> bool {
        watched_ns(&self.devices, self.cost.as_ref(), self.observed_ns).is_some()
    }

    /// Observed duration of the run, nanoseconds; of the shown capture, if it has ended; without records, the time for
    /// which tracing was on.
    pub fn shown_ns(&self) -> u64 {
        let shown = self.captures.rows.iter().find(|row| Some(row.number) == self.captures.shown);
        if let Some(length) =
            shown.and_then(|row| Some(row.end?.since(row.begin))).filter(|_| self.captures.rows.len() > 1)
        {
            return length;
        }
        watched_ns(&self.devices, self.cost.as_ref(), self.observed_ns).unwrap_or(self.observed_ns)
    }

    /// Best-case speedup of the program without the cost of `cause`: the smallest over the devices, since all
    /// must reach it. `None` if it is unknown, as for copies of pageable memory over an unknown link.
    pub fn best_speedup(&self, cause: Cause) -> Option<f64> {
        self.best_case(cause).map(|best_case| best_case.speedup)
    }

    /// Like [`best_speedup`](Self::best_speedup), with its interval and the cost that it is without: that of `cause`,
    /// or a part of it that the first fix removes together with others.
    pub fn best_case(&self, cause: Cause) -> Option<BestCase> {
        let best_case = bottleneck::best_case_if_fixed(cause, &self.devices)?;
        // No scenario makes a kernel another one, as remedies do.
        let remedies = self.bottleneck.remedies.iter().filter(|remedy| remedy.is_advised());
        let mut gains = remedies.filter_map(|remedy| remedy.measured.map(|of| of.gain).or(remedy.speedup));
        let is_more = cause != Cause::GpuCompute || gains.all(|gain| gain <= best_case.speedup);
        is_more.then_some(best_case)
    }

    /// Sentence about what the bottleneck leaves out, if that is a large part of the run.
    pub fn left_out(&self) -> Option<String> {
        let named = !matches!(self.bottleneck.cause, Cause::NoWork | Cause::CannotTell);
        if named && !self.is_watched() { text::left_out(self) } else { None }
    }

    /// The time of `device` by leaf, nanoseconds, that [`share_of`](Self::share_of) refers to.
    pub fn judged_leaves(&self, device: &DeviceReport) -> Leaves {
        text::judged(self, device).1
    }

    /// Share of `cause` in the time of `device`, 0 to 1, as shown on the first screen: of a typical step; of
    /// the time after start-up if steps do not represent it; or of the complete run if no time after start-up
    /// is known.
    pub fn share_of(&self, device: &DeviceReport, cause: Cause) -> f64 {
        text::shares(self, device).1.into_iter().find(|&(other, _)| other == cause).map_or(0.0, |(_, share)| share)
    }

    /// Share of the same time in which `device` worked, 0 to 1.
    pub fn busy_of(&self, device: &DeviceReport) -> f64 {
        let (_, leaves) = text::judged(self, device);
        let busy: u64 = Leaf::ALL.into_iter().filter(|leaf| leaf.is_busy()).map(|leaf| leaves[leaf as usize]).sum();
        // The overhead of tracing is idle time, as far as there is any.
        let without_tracing = leaves.iter().sum::<u64>() as f64 * WithoutTracing::of(device, &leaves).step;
        (busy as f64 / without_tracing.max(1.0)).min(1.0)
    }

    /// Returns the cost of the run, at `per_hour` for each GPU and hour.
    pub fn priced(&self, per_hour: f64) -> RunCost {
        price::priced(self, per_hour)
    }

    /// Formats [`priced`](Self::priced) in sentences; `unit` is the currency, which may be empty.
    pub fn price_text(&self, per_hour: f64, unit: &str, style: Style) -> String {
        price::price_text(self, per_hour, unit, style)
    }

    /// Bottleneck and share that a display shows now for the report of a running capture: [`STARTING_UP`] and
    /// 0 while it is too early, else `named`.
    pub(crate) fn name_now(&self, named: (Cause, f64)) -> (&'static str, f64) {
        live_state::name_now(self, named)
    }

    /// Fields of the reply to `live` that come from the records. At most 64 kB for any program.
    pub fn live_state(&self) -> Live {
        live_state::live_state(self)
    }

    /// The bottleneck and its cost.
    pub fn conclusion(&self) -> String {
        text::conclusion(self)
    }

    /// The bottleneck and its share in at most 15 words.
    pub fn headline(&self) -> String {
        text::headline(self)
    }

    /// What the first change gains, in a sentence; what the program would gain without the bottleneck where nothing
    /// predicts that. `None` if neither is known.
    pub fn gain(&self) -> Option<String> {
        text::gain(self)
    }

    /// One sentence per kind of missing or doubtful data; empty for a complete trace.
    pub fn missing(&self) -> Vec<String> {
        text::missing(self)
    }

    /// What a trace without an end lacks; `None` if the program or the recording came to its end.
    pub fn missing_end(&self) -> Option<String> {
        text::missing_end(self)
    }

    /// What was not recorded by choice or for its cost, a sentence each.
    pub fn not_recorded(&self) -> Vec<String> {
        let reduced = self.cost.iter().flat_map(|cost| text::given_up(cost, self));
        reduced.chain(text::monitored(self).map(|sentence| format!("{sentence}."))).collect()
    }

    /// One-line summary of the bottleneck for a run that is still going.
    pub fn live_line(&self) -> String {
        text::live_line(self)
    }

    /// The short report: at most 25 lines of 100 columns, without color.
    pub fn summary(&self) -> String {
        self.summary_within(Style::default())
    }

    /// Like [`summary`](Self::summary), in this style.
    pub fn summary_within(&self, style: Style) -> String {
        text::short(self, style)
    }

    /// Tables of the ranges that the program named; empty without ranges.
    pub fn range_tables(&self) -> String {
        let mut out = Page::new(Style::default());
        if let Some(ranges) = &self.ranges {
            ranges.tables(&mut out);
        }
        out.into_text()
    }

    /// The short report followed by all tables.
    pub fn full(&self) -> String {
        self.full_within(usize::MAX, Style::default())
    }

    /// Like [`full`](Self::full), with at most `kernels` rows in each device's kernel table.
    pub fn full_with_kernels(&self, kernels: usize) -> String {
        self.full_within(kernels, Style::default())
    }

    /// Like [`full_with_kernels`](Self::full_with_kernels), in this style. The tables have a fixed width.
    pub fn full_within(&self, kernels: usize, style: Style) -> String {
        text::full(self, kernels, style)
    }
}

/// The short report, like [`Report::summary`].
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.summary().trim_end())
    }
}
