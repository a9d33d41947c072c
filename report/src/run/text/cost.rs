//! Text about the overhead of tracing; the numbers come from [`gpuwhy_trace::cost`].

use gpuwhy_trace::cost::{Cost, Mode};
use gpuwhy_trace::record::Timestamp;

use crate::run::{Report, untraced};
use crate::text_format::{Page, counted, duration, wrapped};

/// Appends lines about the overhead of recording; none for traces without that information.
pub(super) fn lines(out: &mut Page, report: &Report) {
    let Some(cost) = &report.cost else { return };
    let mut parts = vec![format!("mode {}", cost.mode.name())];
    if cost.whole_graphs
        && cost.nodes_since == Timestamp::ZERO
        && report.devices.iter().any(|device| device.graph_operations > 0)
    {
        parts.push("CUDA graphs as a whole".to_owned());
    }
    if let Some(untraced) = untraced::longest(report).filter(|_| !cost.mode.monitors()) {
        let longer = 100.0 * untraced.share_of_tracing / (1.0 - untraced.share_of_tracing).max(f64::EPSILON);
        parts.push(format!("a step takes about {longer:.1} % longer ({})", untraced.source.words()));
    } else if let Some(share) = cost.share().filter(|_| cost.mode != Mode::Monitor) {
        let but = match cost.mode {
            Mode::Full => ", without the calls that only this mode records",
            // Its time between them counts too.
            _ if cost.bursts > 0 => ", in the mean of the run and its bursts",
            _ => "",
        };
        parts.push(format!(
            "launching threads slowed down by up to about {:.1} % (estimated with costs measured on an H200{but})",
            share * 100.0
        ));
    }
    parts.extend(bursts(cost));
    parts.push(match cost.core_share() {
        Some(share) => format!("gpuwhy's threads {:.1} % of a core", share * 100.0),
        None => "CPU time of gpuwhy's threads unknown".to_owned(),
    });
    wrapped(out, "Cost of recording: ", &parts.join(", "));
    if let Some(sentence) = graphs(cost, report) {
        wrapped(out, "  - ", &sentence);
    }
}

/// Overhead of bursts, in addition to the estimate for the records taken in them.
fn bursts(cost: &Cost) -> Vec<String> {
    if cost.bursts == 0 {
        return Vec::new();
    }
    let percent = |ratio: f64| format!("{:.1}", (ratio - 1.0) * 100.0);
    let recorded = format!("{} of {} in all", counted(cost.bursts.into(), "burst"), duration(cost.burst_ns));
    let slowed = match cost.slowed {
        Some((low, high)) => format!("since the first burst steps take {} to {} % longer", percent(low), percent(high)),
        None => "how much slower launches stay after a burst is not known, as there are too few named steps".to_owned(),
    };
    vec![recorded, slowed]
}

/// Sentence about CUDA graphs that were recorded as a whole, and why; `None` without one.
fn graphs(cost: &Cost, report: &Report) -> Option<String> {
    let operations: u64 = report.devices.iter().map(|device| device.graph_operations).sum();
    let ran: u64 = report.devices.iter().map(|device| device.graph_ns).sum();
    let percent = |nanos: u64, of: u64| format!("{:.1} %", nanos as f64 / of.max(1) as f64 * 100.0);
    if operations == 0 || !cost.whole_graphs {
        return None;
    }
    if cost.nodes_since != Timestamp::ZERO {
        let until = cost.nodes_since.since(report.process.start);
        return Some(format!(
            "CUDA graphs were recorded as a whole for {}, and node by node since CUPTI was shared with other tools, which expect \
             that.",
            duration(until)
        ));
    }
    let why = match cost.unrecorded_nodes_ns {
        0 => "How many nodes they have is unknown".to_owned(),
        nanos => format!(
            "Recording their nodes would add an estimated {} to the run, {} to the time of the graphs",
            percent(nanos, cost.observed_ns),
            percent(nanos, ran)
        ),
    };
    Some(format!(
        "CUDA graphs were recorded as one unit, {}. {why}. --cuda-graph-trace node (GPUWHY_CUDA_GRAPH_TRACE=node) shows what \
         runs inside.",
        counted(operations, "launch")
    ))
}

/// One sentence for each reduction of the recording.
pub(in crate::run) fn given_up(cost: &Cost, report: &Report) -> Vec<String> {
    let sentence = |at: u64, to: Mode| {
        let lost = match to {
            Mode::Auto if cost.bursts > 0 => {
                "since then GPU work and CUDA calls are recorded only in bursts, and this report is about the time before; launches do \
                 not get their full speed back. GPUWHY_MAX_OVERHEAD=off records all of them"
            }
            Mode::Auto => {
                "since then GPU work and CUDA calls are not recorded, and this report is about the time before; launches do not \
                 get their full speed back. GPUWHY_MAX_OVERHEAD=off records all of them"
            }
            Mode::Monitor => {
                "since then GPU work and CUDA calls are not recorded, and this report is about the time before; launches do not \
                 get their full speed back"
            }
            _ => "since then CUDA calls that need no GPU time, memory events and stream waits are not recorded",
        };
        let done = match to {
            Mode::Auto if cost.bursts > 0 => "was reduced to bursts".to_owned(),
            Mode::Auto => "ended".to_owned(),
            to => format!("was reduced to mode {}", to.name()),
        };
        format!("Recording {done} after {}, because it took more than allowed: {lost}.", duration(at))
    };
    cost.steps_down().map(|step| sentence(step.at.since(report.process.start), step.to)).collect()
}
