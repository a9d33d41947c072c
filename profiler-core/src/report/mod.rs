//! What a run looked like: plain data made from the attributor's state, at any moment.
//!
//! One model serves every output: `text` for people, `json` (with the feature `serde`) for programs, one line
//! for a run that is still going. Names are demangled here, once per report, so that the hot path carries ids only.
//! Nothing here reads a clock or decides about colors or destinations.

pub mod captures;
pub mod compute;
pub mod copies;
pub(crate) mod cost;
mod gaps;
pub mod host;
#[cfg(feature = "serde")]
pub mod json;
pub mod memory;
pub(crate) mod monitor;
mod names;
pub mod ranges;
mod sequence;
mod text;
pub(crate) mod verdict;
mod waits;

use std::fmt;

use captures::CaptureTable;
use compute::{ComputeSplit, KernelGeometry};
use copies::{CopyClass, CopyFit, CopyOverlap};
pub use gaps::{GapRow, GapSubject};
use host::HostReport;
use memory::MemoryReport;
use ranges::RangesReport;
pub use sequence::Sequence;
pub use verdict::{Ranked, RecoverableBy, StepBasis, Verdict, verdict_of};
pub use waits::Awaited;

use crate::attribution::leaf::{Group, Leaves, Overlap};
use crate::attribution::statistics::{CopyPath, Durations};
use crate::attribution::{Attributor, DeviceAccount, HostLead};
use crate::cost::{Cost, Mode};
use crate::dictionary::Dictionary;
use crate::process_info::{End, ProcessInfo};
use crate::record::{Device, Loss, PcieLink, Timestamp};
use crate::steps::Steps;
use crate::text_format::{Page, Style};
use crate::utilization::Utilization;
use crate::whatif::WhatIf;

/// Everything that is reported about one process.
#[derive(Clone, Debug)]
pub struct Report {
    /// The traced process.
    pub process: ProcessInfo,
    /// From the first record of any kind to the last, nanoseconds.
    pub observed_ns: u64,
    /// What is missing or doubtful.
    pub completeness: Completeness,
    /// Devices on which anything ran, by ordinal.
    pub devices: Vec<DeviceReport>,
    /// API functions by total time, the largest first.
    pub api: Vec<ApiRow>,
    /// What the launching threads were doing; `None` when nobody looked.
    pub host: Option<HostReport>,
    /// Ranges that the program named; `None` without any.
    pub ranges: Option<RangesReport>,
    /// Memory that was allocated; `None` when that was not recorded.
    pub memory: Option<MemoryReport>,
    /// The answer.
    pub verdict: Verdict,
    /// What tracing itself took; `None` when the trace does not say. Filled in by [`crate::capture`].
    pub cost: Option<Cost>,
    /// What the gauges of devices said; empty when nobody read them. Filled in by [`crate::capture`].
    pub gauges: Utilization,
    /// The part of the run that it is about; `None` when it is about all of it. Filled in by whoever read a part.
    pub part: Option<Part>,
    /// The captures of the run; empty when it was measured as a whole. Filled in by [`crate::capture`].
    pub captures: CaptureTable,
}

/// A part of a run, nanoseconds after the run's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its begin.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// How long the run is in the trace.
    pub of_ns: u64,
}

/// How much of the truth the report rests on. Every counter is a number of records unless it says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completeness {
    /// Kernels received.
    pub kernels: u64,
    /// Copies received.
    pub copies: u64,
    /// Memsets received.
    pub memsets: u64,
    /// API calls received, nested ones included.
    pub api_calls: u64,
    /// API calls made by another API call on the same thread; left out of the API statistics.
    pub nested_api_calls: u64,
    /// Synchronizations received.
    pub syncs: u64,
    /// Event recordings received.
    pub events: u64,
    /// Overhead records received.
    pub overheads: u64,
    /// Begins and ends of ranges, and marks, received.
    pub ranges: u64,
    /// HostSamples at host threads received.
    pub samples: u64,
    /// Allocations, releases and changes of memory pools received.
    pub memory_events: u64,
    /// Migrations and page faults of managed memory received.
    pub managed_events: u64,
    /// What never became a record.
    pub loss: Loss,
    /// Records whose begin or end is zero or far in the future; not on the timeline.
    pub bad_timestamps: u64,
    /// Kernel launches for which no kernel came.
    pub launches_without_activity: u64,
    /// Device operations whose launching call was not seen.
    pub activities_without_launch: u64,
    /// Operations that begin before their launching call, or end before they begin.
    pub clamped_clocks: u64,
    /// Device time that arrived after its place on the timeline was final, nanoseconds.
    pub late_ns: u64,
    /// The part of `late_ns` that was corrected afterwards, nanoseconds.
    pub late_corrected_ns: u64,
    /// Distinct kernels whose statistics were merged into one row because the table was full.
    pub kernel_table_overflow: u64,
    /// After an abrupt end: the newest flush mark, before which everything that was complete is here, and the
    /// nanoseconds between it and the one before.
    pub whole_until: Option<(Timestamp, u64)>,
    /// How the trace ended.
    pub end: End,
    /// Damage that the reader of the trace met, one sentence each.
    pub damage: Vec<String>,
}

impl Completeness {
    /// Records received, of all kinds.
    #[must_use]
    pub fn records(&self) -> u64 {
        let work = self.kernels + self.copies + self.memsets + self.api_calls + self.syncs + self.events;
        work + self.overheads + self.ranges + self.samples + self.memory_events + self.managed_events
    }
}

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// What it is; only the ordinal is known when the device record is missing.
    pub device: Device,
    /// Its link to the host, if that was described.
    pub pcie: Option<PcieLink>,
    /// From the begin of its first operation to the end of its last, nanoseconds.
    pub window_ns: u64,
    /// The window by cause. Sums to `window_ns` exactly.
    pub leaves: Leaves,
    /// The window without start-up, by cause; the verdict rests on it.
    pub steady_leaves: Leaves,
    /// Its steps, when any are complete.
    pub steps: Option<Steps>,
    /// What one step launches, in order; `None` without steps.
    pub sequence: Option<Sequence>,
    /// What could be gained at most.
    pub what_if: Option<WhatIf>,
    /// How far the launching threads ran ahead of it after start-up.
    pub host_lead: HostLead,
    /// Idle time after start-up by call, kernel, copy or what the host did, the longest first.
    pub gaps: Vec<GapRow>,
    /// What idle time waited for where events tell, after start-up, the longest first.
    pub awaited: Vec<Awaited>,
    /// Operations that CUDA graphs launched; a graph that is recorded as a whole is one.
    pub graph_operations: u64,
    /// How long those ran, nanoseconds, each for itself.
    pub graph_ns: u64,
    /// What ran beneath what.
    pub overlap: Overlap,
    /// Kernels by total time, the largest first.
    pub kernels: Vec<KernelRow>,
    /// Copies by direction and memory, the largest total time first.
    pub copies: Vec<CopyRow>,
    /// Computation by how its grids fill the device.
    pub compute: ComputeSplit,
    /// Copies beside and beneath computation.
    pub copy_overlap: CopyOverlap,
}

/// Kernels of one name on one device.
#[derive(Clone, Debug)]
pub struct KernelRow {
    /// Demangled name.
    pub name: String,
    /// Whether it is counted as communication.
    pub communication: bool,
    /// Their durations.
    pub durations: Durations,
    /// How their grids fill the device; `None` when the records do not say.
    pub geometry: Option<KernelGeometry>,
}

/// Copies of one kind on one device.
#[derive(Clone, Debug)]
pub struct CopyRow {
    /// Direction and memory.
    pub path: CopyPath,
    /// Bytes moved.
    pub bytes: u64,
    /// Their durations.
    pub durations: Durations,
    /// What limits them.
    pub class: CopyClass,
    /// Duration over size; `None` when their sizes do not tell.
    pub fit: Option<CopyFit>,
    /// What the link can do, 10^9 bytes per second: the best mean rate of large copies in this direction on this device,
    /// with any memory, or what its PCI Express link reaches ([`copies::LINK_REACH`]) where that is more.
    pub link_gigabytes_per_second: Option<f64>,
}

impl CopyRow {
    /// Bytes by summed duration, in 10^9 bytes per second; 0 without duration. Bytes per nanosecond are the same.
    #[must_use]
    pub fn gigabytes_per_second(&self) -> f64 {
        if self.durations.total() == 0 { 0.0 } else { self.bytes as f64 / self.durations.total() as f64 }
    }
}

/// Calls of one API function, by whichever thread.
#[derive(Clone, Debug)]
pub struct ApiRow {
    /// Name without version suffix.
    pub name: String,
    /// Calls that were not made by another API call.
    pub calls: u64,
    /// Calls that did not return success.
    pub failed: u64,
    /// Time in them, nanoseconds.
    pub total_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
}

impl Report {
    /// Describes what `attributor` knows now. `damage` is what a trace reader had to skip; empty when live.
    #[must_use]
    pub fn new(
        session: &ProcessInfo,
        attributor: &Attributor,
        dictionary: &Dictionary,
        loss: &Loss,
        end: End,
        damage: Vec<String>,
    ) -> Self {
        let whole_until = attributor.last_flush().filter(|_| end == End::Abrupt);
        let completeness = Completeness { loss: *loss, whole_until, end, damage, ..attributor.completeness() };
        let devices: Vec<_> =
            attributor.devices().map(|account| device_report(account, attributor, dictionary)).collect();
        let host = HostReport::of(attributor, dictionary, &devices, completeness.loss.failed_samples);
        let verdict = verdict_of(attributor, &devices, host.as_ref(), &completeness);
        Self {
            process: session.clone(),
            observed_ns: attributor.observed_ns(),
            completeness,
            devices,
            api: api_rows(attributor, dictionary),
            host,
            ranges: RangesReport::of(attributor, dictionary),
            memory: MemoryReport::of(attributor, dictionary),
            verdict,
            cost: None,
            gauges: Utilization::default(),
            part: None,
            captures: CaptureTable::default(),
        }
    }

    /// How many times as fast the program could become at most if what `group` stands for were gone: the smallest
    /// over the devices, since all must get there. `None` where nothing says, as for copies of ordinary memory over a link that
    /// is not known.
    #[must_use]
    pub fn ceiling(&self, group: Group) -> Option<f64> {
        verdict::ceiling_if_fixed(group, &self.devices)
    }

    /// Whether no device work was recorded on purpose: the verdict then rests on gauges and looks, and has no share.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.devices.is_empty() && self.cost.is_some_and(|cost| cost.mode == Mode::Monitor)
    }

    /// How long the run was observed, nanoseconds: without records, for as long as tracing was on.
    #[must_use]
    pub(crate) fn shown_ns(&self) -> u64 {
        let watched = self.cost.filter(|_| self.is_watched());
        watched.map_or(self.observed_ns, |cost| cost.observed_ns.max(self.observed_ns))
    }

    /// The verdict in one line, for a run that is still going.
    #[must_use]
    pub fn live_line(&self) -> String {
        text::live_line(self)
    }

    /// The short report: at most 25 lines of 100 columns, without color.
    #[must_use]
    pub fn summary(&self) -> String {
        self.summary_within(Style::default())
    }

    /// As [`summary`](Self::summary), in this style.
    #[must_use]
    pub fn summary_within(&self, style: Style) -> String {
        text::short(self, style)
    }

    /// The tables of ranges that the program named; empty without any.
    #[must_use]
    pub fn range_tables(&self) -> String {
        let mut out = Page::new(Style::default());
        if let Some(ranges) = &self.ranges {
            ranges.tables(&mut out);
        }
        out.into_text()
    }

    /// The short report and every table behind it.
    #[must_use]
    pub fn full(&self) -> String {
        self.full_within(usize::MAX, Style::default())
    }

    /// As [`full`](Self::full), with at most `kernels` rows in the table of kernels of each device.
    #[must_use]
    pub fn full_with_kernels(&self, kernels: usize) -> String {
        self.full_within(kernels, Style::default())
    }

    /// As [`full_with_kernels`](Self::full_with_kernels), in this style. The tables have a fixed width.
    #[must_use]
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

/// The documented JSON: [`json::Document`].
#[cfg(feature = "serde")]
impl serde::Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json::Document::new(self).serialize(serializer)
    }
}

fn device_report(account: &DeviceAccount, attributor: &Attributor, dictionary: &Dictionary) -> DeviceReport {
    let statistics = account.statistics();
    let device =
        dictionary.device(account.id()).cloned().unwrap_or_else(|| Device { id: account.id(), ..Device::default() });
    let (compute, geometries) = compute::split(account, &device, dictionary);
    let mut kernels: Vec<_> = statistics
        .kernels()
        .map(|(name, row)| KernelRow {
            name: name.map_or_else(|| "(other kernels)".to_owned(), |id| names::demangled(dictionary.name(id))),
            communication: row.communication,
            durations: row.durations.clone(),
            geometry: name.and_then(|id| geometries.get(&id).copied()),
        })
        .collect();
    kernels.sort_by(|a, b| b.durations.total().cmp(&a.durations.total()).then_with(|| a.name.cmp(&b.name)));
    debug_assert!(attributor.devices().any(|other| other.id() == account.id()));
    DeviceReport {
        device,
        pcie: dictionary.link(account.id()).copied(),
        window_ns: account.window_ns(),
        leaves: *account.leaves(),
        steady_leaves: account.steady_leaves(),
        steps: Some(account.steps()).filter(|steps| !steps.rows.is_empty()),
        sequence: Sequence::of(attributor, account.id(), dictionary),
        what_if: attributor.what_if(account.id()),
        host_lead: account.host_lead(),
        gaps: gaps::gaps(account, dictionary),
        awaited: waits::awaited(account),
        graph_operations: account.graph_operations(),
        graph_ns: account.graph_ns(),
        overlap: *account.overlap(),
        kernels,
        copies: copies::rows(statistics.copies(), dictionary.link(account.id())),
        compute,
        copy_overlap: CopyOverlap::of(account.leaves(), account.overlap()),
    }
}

fn api_rows(attributor: &Attributor, dictionary: &Dictionary) -> Vec<ApiRow> {
    let mut rows: Vec<_> = attributor
        .api_statistics()
        .map(|(function, row)| ApiRow {
            name: names::function(dictionary, function),
            calls: row.calls,
            failed: row.failed,
            total_ns: row.total_ns,
            max_ns: row.max_ns,
        })
        .collect();
    rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
    rows
}
