//! What the report says about the price of tracing; the numbers are in [`crate::cost`].

use super::Report;
use crate::cost::{Cost, GRAPH_NODE_NANOS, Mode};
use crate::record::Timestamp;
use crate::text_format::{Page, duration, wrapped};

/// From this share of the time on it is said what nodes of graphs take. A PyTorch replay that lost 21 % of its time to them is
/// estimated at 26 %; a program that launches ahead of the device loses less (docs/design/overhead.md).
const NODES_SHARE: f64 = 0.02;

/// Some lines on what tracing took; none for traces that do not say.
pub(super) fn lines(out: &mut Page, report: &Report) {
    let Some(cost) = &report.cost else { return };
    let mut parts = vec![format!("mode {}", cost.mode.name())];
    if cost.whole_graphs
        && cost.nodes_since == Timestamp::ZERO
        && report.devices.iter().any(|device| device.graph_operations > 0)
    {
        parts.push("CUDA graphs as a whole".to_owned());
    }
    if let Some(share) = cost.share().filter(|_| cost.mode != Mode::Monitor) {
        let but = if cost.mode == Mode::Full { ", without the calls that only this mode records" } else { "" };
        parts.push(format!(
            "launching threads held up by at most about {:.1} % (records priced as on an H200{but})",
            share * 100.0
        ));
    }
    parts.push(match cost.core_share() {
        Some(share) => format!("gpuwhy's threads {:.1} % of a core", share * 100.0),
        None => "processor time of gpuwhy's threads not known".to_owned(),
    });
    wrapped(out, "tracing: ", &parts.join(", "));
    for sentence in graphs(cost, report).into_iter().chain(given_up(cost, report)) {
        wrapped(out, "  - ", &sentence);
    }
}

/// How CUDA graphs were recorded and why, where there are any.
fn graphs(cost: &Cost, report: &Report) -> Option<String> {
    let operations: u64 = report.devices.iter().map(|device| device.graph_operations).sum();
    let ran: u64 = report.devices.iter().map(|device| device.graph_ns).sum();
    let percent = |nanos: u64, of: u64| format!("{:.1} %", nanos as f64 / of.max(1) as f64 * 100.0);
    if operations == 0 {
        return None;
    }
    if cost.nodes_since != Timestamp::ZERO {
        let until = cost.nodes_since.since(report.process.start);
        let why = match cost.unrecorded_nodes_ns {
            0 => "and by nodes since CUPTI was left to other tools, which expect them".to_owned(),
            nanos => format!(
                "in which their nodes would have taken little (an estimated {} of the time): so by nodes since then",
                percent(nanos, until)
            ),
        };
        return Some(format!("CUDA graphs were recorded as a whole for {}, {why}.", duration(until)));
    }
    if cost.whole_graphs {
        let why = match cost.unrecorded_nodes_ns {
            0 => "How many nodes they have is not known".to_owned(),
            nanos => format!(
                "Their nodes would take an estimated {} of the time, {} of that of the graphs",
                percent(nanos, cost.observed_ns),
                percent(nanos, ran)
            ),
        };
        return Some(format!(
            "CUDA graphs were recorded as a whole, {operations} launches. {why}; --cuda-graph-trace node \
             (GPUWHY_CUDA_GRAPH_TRACE=node) tells what runs inside."
        ));
    }
    let nanos = operations * GRAPH_NODE_NANOS;
    (nanos as f64 >= NODES_SHARE * cost.observed_ns as f64).then(|| {
        format!(
            "Of that {} for {operations} nodes of CUDA graphs, each a record of its own, most of it within cudaGraphLaunch and so \
             part of launch_api above; --cuda-graph-trace graph (GPUWHY_CUDA_GRAPH_TRACE=graph) records a launch as one, with \
             CUPTI 13.2 or later. That cannot be changed while the program runs.",
            percent(nanos, cost.observed_ns)
        )
    })
}

/// A sentence for each step down.
pub(super) fn given_up(cost: &Cost, report: &Report) -> Vec<String> {
    let sentence = |at: u64, to: Mode| {
        let lost = match to {
            Mode::Monitor => {
                "device work and API calls are not recorded since then, and the answer is about the time before; the launch \
                 path does not get its full speed back"
            }
            _ => "calls that say nothing about time, memory and stream waits are not recorded since then",
        };
        format!("Stepped down to {} after {}, because tracing took more than allowed: {lost}.", to.name(), duration(at))
    };
    cost.steps_down().map(|step| sentence(step.at.since(report.process.start), step.to)).collect()
}
