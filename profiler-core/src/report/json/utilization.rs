//! Utilization of devices, for programs. Absent ones are null, with the reason beside them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::utilization::{Counter, DeviceUtilization, Utilization};

#[derive(Debug, Serialize)]
pub(super) struct UtilizationJson {
    absence: Option<String>,
    devices: Vec<DeviceUtilizationJson>,
}

#[derive(Debug, Serialize)]
struct DeviceUtilizationJson {
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
pub(super) fn utilization(utilization: &Utilization) -> Option<UtilizationJson> {
    let device = |device: &DeviceUtilization| DeviceUtilizationJson {
        device: device.device.0,
        covered_ns: device.busy.over_ns,
        busy: device.busy.mean(),
        memory: device.memory.mean(),
        counters: Counter::ALL.into_iter().map(|counter| (counter.name(), device.counter(counter))).collect(),
        failed_readings: device.failed,
        no_rates: device.no_rates.map(|why| why.words()),
        no_counters: device.no_counters.map(|why| why.words()),
    };
    (!utilization.is_empty()).then(|| UtilizationJson {
        absence: utilization.absence.map(|why| why.words()),
        devices: utilization.devices.iter().map(device).collect(),
    })
}
