//! What tracing took, for programs.

use serde::Serialize;

use crate::cost::{Cost, Mode};
use crate::report::Untraced;

#[derive(Debug, Serialize)]
pub(super) struct CostJson {
    mode: &'static str,
    whole_graphs: bool,
    nodes_since_unix_ns: Option<u64>,
    unrecorded_nodes_estimate_ns: Option<u64>,
    observed_ns: u64,
    records_estimate_ns: u64,
    cupti_ns: u64,
    callback_ns: u64,
    /// Absent when this system does not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    threads_cpu_ns: Option<u64>,
    share_at_most: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bursts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slowed_since_bursts_low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slowed_since_bursts_high: Option<f64>,
    steps_down: Vec<StepDownJson>,
}

#[derive(Debug, Serialize)]
struct StepDownJson {
    to: &'static str,
    at_unix_ns: u64,
}

pub(super) fn cost(cost: &Cost) -> CostJson {
    let step = |step: &crate::cost::StepDown| StepDownJson { to: step.to.name(), at_unix_ns: step.at.nanos() };
    CostJson {
        mode: cost.mode.name(),
        whole_graphs: cost.whole_graphs,
        nodes_since_unix_ns: Some(cost.nodes_since.nanos()).filter(|&nanos| nanos > 0),
        unrecorded_nodes_estimate_ns: Some(cost.unrecorded_nodes_ns).filter(|&nanos| nanos > 0),
        observed_ns: cost.observed_ns,
        records_estimate_ns: cost.records_ns,
        cupti_ns: cost.cupti_ns,
        callback_ns: cost.callback_ns,
        threads_cpu_ns: Some(cost.threads_ns).filter(|&nanos| nanos > 0),
        share_at_most: cost.share(),
        bursts: Some(cost.bursts).filter(|_| cost.mode == Mode::Auto),
        burst_ns: Some(cost.burst_ns).filter(|_| cost.mode == Mode::Auto),
        slowed_since_bursts_low: cost.slowed.map(|(low, _)| low),
        slowed_since_bursts_high: cost.slowed.map(|(_, high)| high),
        steps_down: cost.steps_down().map(step).collect(),
    }
}

/// A step of a device without gpuwhy.
#[derive(Debug, Serialize)]
pub(super) struct UntracedJson {
    step_ns: u64,
    share_of_tracing: f64,
    source: &'static str,
}

pub(super) fn untraced(from: Untraced) -> UntracedJson {
    UntracedJson { step_ns: from.step_ns, share_of_tracing: from.share_of_tracing, source: from.source.name() }
}
