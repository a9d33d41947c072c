//! How the time of a monitored run divides, for programs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::monitoring::{MonitoredPart, MonitoredTime};

#[derive(Debug, Serialize)]
pub(super) struct MonitoredJson {
    window_ns: u64,
    start_up_ns: u64,
    not_told_apart_ns: u64,
    busy_low: f64,
    busy_high: f64,
    covered: f64,
    gpu_samples: u64,
    host_samples: u64,
    bottleneck: &'static str,
    groups: BTreeMap<&'static str, PartJson>,
}

#[derive(Debug, Serialize)]
struct PartJson {
    ns: u64,
    low: f64,
    high: f64,
}

pub(super) fn monitored(time: &MonitoredTime) -> MonitoredJson {
    let part = |part: &MonitoredPart| (part.group.name(), PartJson { ns: part.nanos, low: part.low, high: part.high });
    MonitoredJson {
        window_ns: time.window_ns,
        start_up_ns: time.start_up_ns,
        not_told_apart_ns: time.not_told_ns,
        busy_low: time.busy.0,
        busy_high: time.busy.1,
        covered: time.covered,
        gpu_samples: time.samples.0,
        host_samples: time.samples.1,
        bottleneck: time.bottleneck.name(),
        groups: time.parts.iter().map(part).collect(),
    }
}
