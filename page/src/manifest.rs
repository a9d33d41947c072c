//! First data that the page's script reads: the report, and the location of all other data.

use std::collections::BTreeMap;

use gpuwhy_report::run::{CallLineRow, DeviceReport, Report};
use gpuwhy_report::words;
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::counters::roofs::{Limit, Roof};
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::steps::{IterationKind, LoggedStep};
use profiler_core::whatif::{BestCase, ScenarioKind};
use serde::Serialize;

use crate::counter_lanes::CounterLane;
use crate::curves::Curve;
use crate::html::mark;
use crate::lane::Lane;
use crate::lost::Lost;
use crate::options::PAGE_VERSION;
use crate::plan::Plan;
use crate::simulated::Simulated;
use crate::sources::Excerpt;

/// Maximum number of modules, and of threads, with work of CUDA graphs.
const PARTS: usize = 1_024;

/// See the [module](self).
#[derive(Serialize)]
pub(crate) struct Manifest<'a> {
    page_version: u32,
    source: PageSource,
    report: &'a Report,
    /// Missing or doubtful data of the trace.
    missing: Vec<String>,
    /// Data of the trace that is not in the page.
    left_out: Vec<String>,
    leaves: Vec<LeafWords>,
    causes: Vec<CauseWords>,
    /// Names and words of what a launching thread may do.
    activities: Vec<(&'static str, &'static str)>,
    /// Names and words of compute limits, and of kernel rooflines.
    limits: Vec<(&'static str, &'static str)>,
    roofs: Vec<(&'static str, &'static str)>,
    timeline: Option<Timeline>,
    /// Best cases worth showing, the largest first.
    gains: Vec<Gain>,
    /// Text of each line of the report's `host`, and what it does; of its `calls`; and of its `kernel_lines`.
    lines: Vec<(String, &'static str)>,
    call_lines: Vec<String>,
    launch_lines: Vec<String>,
    /// What captured work of CUDA graphs, with the number of operations and their nanoseconds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    graph_work: Vec<(String, u64, u64)>,
    pub(crate) sources: Vec<Excerpt>,
}

/// Origin of a page, for display.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PageSource {
    pub(crate) title: String,
    pub(crate) file: String,
}

#[derive(Serialize)]
struct LeafWords {
    name: &'static str,
    words: &'static str,
    cause: usize,
    busy: bool,
}

#[derive(Serialize)]
struct CauseWords {
    name: &'static str,
    words: &'static str,
    mark: &'static str,
    /// The scenario without this cost.
    without: Option<&'static str>,
}

/// A best case in the words of the text report.
#[derive(Serialize)]
struct Gain {
    device: u32,
    kind: &'static str,
    /// To follow "if".
    condition: &'static str,
    step_ns: u64,
    words: String,
}

#[derive(Serialize)]
pub(crate) struct Timeline {
    /// Nanoseconds since the Unix epoch, as text, because JSON readers round large numbers.
    origin_unix_ns: String,
    /// From the start of tracing to the origin.
    pub(crate) after_start_ns: u64,
    window_ns: u64,
    intervals: usize,
    span_ns: u64,
    /// Nanoseconds after the origin; `None` if events of the complete run are included.
    windows: Option<Vec<(u64, u64)>>,
    lanes: Vec<Lane>,
    steps: Vec<StepDifferences>,
    lost: Lost,
    uncorrected_ns: u64,
    #[serde(rename = "replay")]
    pub(crate) simulated: Option<Simulated>,
    pub(crate) counters: Vec<CounterLane>,
    pub(crate) curves: Vec<Curve>,
}

/// The steps of a device, as differences: from the end of the previous step to the start, and the duration.
#[derive(Serialize)]
struct StepDifferences {
    device: u32,
    rows: Vec<(u64, u64)>,
    /// Kinds of the iterations of a server; empty for other steps.
    kinds: Vec<&'static str>,
}

impl Timeline {
    pub(crate) fn new(
        plan: &Plan,
        lanes: Vec<Lane>,
        steps: BTreeMap<u32, Vec<LoggedStep>>,
        (lost, uncorrected_ns): (Lost, u64),
    ) -> Self {
        let rows = |(device, logged): (u32, Vec<LoggedStep>)| {
            let mut position = plan.origin;
            let shown = || logged.iter().filter(|step| step.start.nanos() >= plan.origin);
            let kinds = shown().map_while(|step| step.kind).map(IterationKind::name).collect();
            let rows = shown().map(|step| {
                let (start, end) = (step.start.nanos().max(position), step.end.nanos());
                let row = (start - position, end.saturating_sub(start));
                position = start + row.1;
                row
            });
            StepDifferences { device, rows: rows.collect(), kinds }
        };
        Self {
            origin_unix_ns: plan.origin.to_string(),
            after_start_ns: 0,
            window_ns: plan.window,
            intervals: plan.intervals.count,
            span_ns: plan.intervals.span,
            windows: plan.kept.windows.clone(),
            lanes,
            steps: steps.into_iter().map(rows).collect(),
            lost,
            uncorrected_ns,
            simulated: None,
            counters: Vec::new(),
            curves: Vec::new(),
        }
    }
}

impl<'a> Manifest<'a> {
    pub(crate) fn new(
        report: &'a Report,
        source: PageSource,
        left_out: Vec<String>,
        timeline: Option<Timeline>,
    ) -> Self {
        let cause_of = |leaf: Leaf| Cause::ALL.iter().position(|&cause| cause == leaf.cause()).unwrap_or(0);
        Self {
            page_version: PAGE_VERSION,
            source,
            report,
            missing: report.missing(),
            left_out,
            leaves: Leaf::ALL
                .into_iter()
                .map(|leaf| LeafWords {
                    name: leaf.name(),
                    words: words::cause(leaf),
                    cause: cause_of(leaf),
                    busy: leaf.is_busy(),
                })
                .collect(),
            causes: Cause::ALL
                .into_iter()
                .map(|cause| CauseWords {
                    name: cause.name(),
                    words: words::bottleneck(cause),
                    mark: mark(cause),
                    without: ScenarioKind::without(cause).map(ScenarioKind::name),
                })
                .collect(),
            activities: HostCause::ALL.into_iter().map(|cause| (cause.name(), words::activity(cause))).collect(),
            limits: Limit::ALL.into_iter().map(|limit| (limit.name(), words::limit(limit))).collect(),
            roofs: Roof::ALL.into_iter().map(|roof| (roof.name(), words::roof(roof))).collect(),
            timeline,
            gains: gains(report),
            lines: report
                .host
                .iter()
                .flat_map(|host| &host.lines)
                .map(|line| (line.place(), words::activity(line.cause)))
                .collect(),
            call_lines: report.host.iter().flat_map(|host| &host.calls).map(CallLineRow::place).collect(),
            launch_lines: report
                .kernel_lines
                .iter()
                .flat_map(|lines| &lines.lines)
                .map(|line| line.place.text())
                .collect(),
            graph_work: report
                .graph_origins
                .iter()
                .flat_map(|origins| origins.parts(PARTS))
                .map(|(work, _, name)| (name, work.count, work.total_ns))
                .collect(),
            sources: Vec::new(),
        }
    }
}

fn gains(report: &Report) -> Vec<Gain> {
    let of = |device: &DeviceReport| {
        let shown = device.what_if.iter().flat_map(words::worth_showing);
        let id = device.device.id.0;
        let gain = move |best_case: &BestCase| Gain {
            device: id,
            kind: best_case.kind.name(),
            condition: words::condition(best_case.kind),
            step_ns: best_case.step_ns,
            words: words::faster(best_case.speedup, best_case.interval),
        };
        shown.map(gain).collect::<Vec<_>>()
    };
    report.devices.iter().flat_map(of).collect()
}
