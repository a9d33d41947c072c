//! What gauges said, for programs. Absent ones are null, with the reason beside them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::utilization::{Counter, DeviceUtilization, Utilization};

#[derive(Debug, Serialize)]
pub(super) struct GaugesJson {
    absence: Option<String>,
    devices: Vec<DeviceGaugesJson>,
}

#[derive(Debug, Serialize)]
struct DeviceGaugesJson {
    device: u32,
    covered_ns: u64,
    busy: Option<f64>,
    memory: Option<f64>,
    counters: BTreeMap<&'static str, Option<f64>>,
    failed_readings: u64,
    no_rates: Option<String>,
    no_counters: Option<String>,
}

/// `None` when nobody looked.
pub(super) fn gauges(gauges: &Utilization) -> Option<GaugesJson> {
    let device = |device: &DeviceUtilization| DeviceGaugesJson {
        device: device.device.0,
        covered_ns: device.busy.over_ns,
        busy: device.busy.mean(),
        memory: device.memory.mean(),
        counters: Counter::ALL.into_iter().map(|counter| (counter.name(), device.counter(counter))).collect(),
        failed_readings: device.failed,
        no_rates: device.no_rates.map(|why| why.words()),
        no_counters: device.no_counters.map(|why| why.words()),
    };
    (!gauges.is_empty()).then(|| GaugesJson {
        absence: gauges.absence.map(|why| why.words()),
        devices: gauges.devices.iter().map(device).collect(),
    })
}
