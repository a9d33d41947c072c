//! What a run looked like: plain data made from the attributor's state, at any moment.
//!
//! One model serves every output: `text` for people, `json` (with the feature `serde`) for programs, one line
//! for a run that is still going. Names are demangled here, once per report, so that the hot path carries ids only.
//! Nothing here reads a clock or decides about colors or destinations.
//!
//! Reading order: `model` (what a report holds), `build` and the files beside it that make its parts, `verdict`, then
//! the outputs.

mod build;
mod bursts;
mod captures;
mod collectives;
pub mod compute;
pub mod copies;
mod cost;
mod gaps;
mod host;
#[cfg(feature = "serde")]
mod json;
mod kernel_gains;
pub(crate) mod launches;
pub mod library;
mod limits;
mod live_state;
mod memory;
mod model;
pub(crate) mod monitor;
mod names;
mod price;
mod ranges;
mod sequence;
mod step_kinds;
mod text;
mod untraced;
pub(crate) mod verdict;
mod waits;

pub use live_state::{STARTING_UP, WINDOWS_KEPT};
pub(crate) use model::loss_sentence;
pub use model::{
    ApiRow, Awaited, BurstRow, BurstTable, CaptureRow, CaptureTable, CauseRow, ComputeLimits, ComputeSplit, CopyClass,
    CopyFit, CopyOverlap, CopyRow, DeviceReport, GapRow, GapSubject, GridClass, HostReport, KernelGeometry,
    KernelLineRow, KernelLines, KernelRow, LaunchLineRow, LaunchSite, LibraryRow, LineRow, MemoryReport, MemoryRow,
    NamedLimits, Part, PeakBy, PlanStep, RangeRow, RangesReport, Ranked, RecoverableBy, Report, SampledTime, Sequence,
    StepBasis, StepMeaning, TypicalSteps, Untraced, Verdict,
};
pub use price::{Priced, Saving};
pub use verdict::verdict_of;

use std::fmt;

use profiler_core::attribution::leaf::Group;
use profiler_core::whatif::Ceiling;

use crate::text_format::{Page, Style};

impl Report {
    /// How many times as fast the program could become if what `group` stands for were gone: the smallest over
    /// the devices, since all must get there. `None` where nothing says, as for copies of ordinary memory over a link
    /// that is not known.
    pub fn ceiling(&self, group: Group) -> Option<f64> {
        self.best_case(group).map(|ceiling| ceiling.speedup)
    }

    /// As [`ceiling`](Self::ceiling), with its interval.
    pub(crate) fn best_case(&self, group: Group) -> Option<Ceiling> {
        verdict::ceiling_if_fixed(group, &self.devices)
    }

    /// The bottleneck, what it costs, and what the best case without it is.
    pub fn conclusion(&self) -> String {
        text::conclusion(self)
    }

    /// A sentence for each kind of thing that is missing or doubtful; empty for a complete trace.
    pub fn missing(&self) -> Vec<String> {
        text::missing(self)
    }

    /// The verdict in one line, for a run that is still going.
    pub fn live_line(&self) -> String {
        text::live_line(self)
    }

    /// The short report: at most 25 lines of 100 columns, without color.
    pub fn summary(&self) -> String {
        self.summary_within(Style::default())
    }

    /// As [`summary`](Self::summary), in this style.
    pub fn summary_within(&self, style: Style) -> String {
        text::short(self, style)
    }

    /// The tables of ranges that the program named; empty without any.
    pub fn range_tables(&self) -> String {
        let mut out = Page::new(Style::default());
        if let Some(ranges) = &self.ranges {
            ranges.tables(&mut out);
        }
        out.into_text()
    }

    /// The short report and every table behind it.
    pub fn full(&self) -> String {
        self.full_within(usize::MAX, Style::default())
    }

    /// As [`full`](Self::full), with at most `kernels` rows in the table of kernels of each device.
    pub fn full_with_kernels(&self, kernels: usize) -> String {
        self.full_within(kernels, Style::default())
    }

    /// As [`full_with_kernels`](Self::full_with_kernels), in this style. The tables have a fixed width.
    pub fn full_within(&self, kernels: usize, style: Style) -> String {
        text::full(self, kernels, style)
    }
}

/// The short report, as [`Report::summary`].
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.summary().trim_end())
    }
}
