//! Rules about the time of modules in a replay of a CUDA graph.
//!
//! The time is the mean of the replays whose nodes were recorded, so it is the same measure in a run that went on in
//! bursts. A rule about an unknown module fails: it cannot be shown to hold.

use gpuwhy_report::run::{ModuleTime, Report};
use gpuwhy_report::text_format::{duration, edits};
use profiler_core::api::ApiClass;

use crate::baseline::Baseline;
use crate::run_rules::{self, Timed, list, measured};

/// Why a module may not be known although others are, and what to do.
const PARTIAL: &str = "in some CUDA graphs not every kernel has a complete stack (reading ends after 1 s in all and at 64 \
                       frames, and does not reach into embedded graphs), and these are left out; capture fewer graphs";

/// The mean of a module.
pub(crate) fn time(report: &Report, name: &str) -> Result<Timed, String> {
    let ModuleTime { module, replays, mean_ns } = module(report, name)?;
    Ok(Timed {
        place: 0,
        device: String::new(),
        what: format!("{name}: "),
        nanos: *mean_ns,
        count: *replays,
        found: format!("{module}: mean {} of {replays} recorded replays", duration(*mean_ns)),
    })
}

/// Compares a module of one or more runs with a baseline, or updates it.
pub(crate) fn within(runs: &[&Report], name: &str, ratio: f64, baseline: &Baseline) -> Result<Option<String>, String> {
    let mut devices: Vec<&str> = runs.iter().flat_map(|run| &run.devices).map(|device| &*device.device.name).collect();
    devices.sort_unstable();
    devices.dedup();
    let times = |run: &Report| Ok(vec![Timed { device: devices.join(", "), ..time(run, name)? }]);
    run_rules::within(runs, times, &format!("module {name}"), ratio, baseline)
}

/// The module with this name. The error says why it is not known, and what to do.
fn module<'a>(report: &'a Report, name: &str) -> Result<&'a ModuleTime, String> {
    let known = report.graph_origins.as_ref().map_or(&[][..], |origins| &origins.per_replay);
    if known.is_empty() {
        return Err(why_none(report));
    }
    known.iter().find(|row| row.module == name).ok_or_else(|| {
        let wanted = name.to_lowercase();
        let mut near: Vec<_> = known.iter().map(|row| &*row.module).collect();
        near.sort_by_key(|known| {
            let known = known.to_lowercase();
            (!known.contains(&wanted) && !wanted.contains(&known), edits(&known, &wanted))
        });
        let near = list(near.into_iter().map(str::to_owned));
        let partial = if report.graph_origins.as_ref().is_some_and(|origins| origins.partial_graphs > 0) {
            format!("; {PARTIAL}")
        } else {
            String::new()
        };
        format!("no module is named {name:?}; the nearest are {near}{partial}")
    })
}

/// Why no module is known, and what to do.
fn why_none(report: &Report) -> String {
    if let Err(why) = measured(report) {
        return why;
    }
    let has_launches = report.api.iter().any(|row| ApiClass::of(&row.name) == ApiClass::GraphLaunch);
    let is_whole = report.cost.as_ref().is_some_and(|cost| cost.whole_graphs);
    let why = match &report.graph_origins {
        None if !has_launches => {
            "no CUDA graph was replayed, and only those show the time of modules; limit kernels or the step instead"
        }
        None if !is_whole => {
            "what captured the kernels of CUDA graphs was not recorded: record with gpuwhy, from before they are captured"
        }
        Some(origins) if origins.all().count > 0 => match origins.counts.with_place.count {
            0 => "the kernels of CUDA graphs have no line in Python: the program runs none, or GPUWHY_SAMPLING is off",
            _ if origins.modules.iter().any(|row| row.module.is_some()) => PARTIAL,
            _ => "no `forward` of a class ran when CUDA graphs were captured (names of classes need CPython 3.11)",
        },
        _ => "CUDA graphs were recorded as a whole: record with GPUWHY_CUDA_GRAPH_TRACE=node",
    };
    why.to_owned()
}
