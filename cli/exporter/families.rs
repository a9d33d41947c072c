//! Metrics: their names, types and labels, and their output in Prometheus's text format.
//!
//! Labels that dcgm-exporter has too have the same names and meanings, so that `on(Hostname, UUID)` joins.
//! `job` and `instance` belong to Prometheus and are never used. `docs/guide/metrics.md` explains each
//! metric.

use std::fmt::Write;

use gpuwhy_report::run::STARTING_UP;
use profiler_core::leaf::{Cause, Leaf};

use super::node::{Known, ProcessState, Summary};
use super::numbers::{DIRECTIONS, DeviceMetrics, FUNCTIONS, TRACING, losses};

/// Content type of Prometheus's text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metric family: all metrics with one name.
#[derive(Debug)]
pub struct Family {
    /// Name without `gpuwhy_`.
    pub name: &'static str,
    /// Prometheus type: `counter` or `gauge`.
    pub kind: &'static str,
    pub help: &'static str,
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: "counter", help }
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: "gauge", help }
}

const DEVICE_SECONDS: Family =
    counter("device_seconds_total", "Device time by cause, from the first operation on; the causes sum to it.");
const LEAF_SECONDS: Family = counter("device_leaf_seconds_total", "Device time by leaf, a part of a cause.");
const STEPS: Family = counter("steps_total", "Steps that were found.");
const STEP_SECONDS: Family = gauge("step_seconds", "Median duration of the remembered steps.");
const KERNELS: Family = counter("kernels_total", "Kernels that ran.");
const COPIED: Family = counter("copied_bytes_total", "Bytes copied by direction.");
const COLLECTIVES: Family = counter("collectives_total", "Communication kernels, by what their names say.");
const COLLECTIVE_SECONDS: Family =
    counter("collective_seconds_total", "Time of communication kernels, overlapped by computation or not.");
const OPERATIONS: Family =
    counter("collective_operations_total", "Completed operations of communicators that NCCL reported.");
const OPERATION_BYTES: Family = counter("collective_bytes_total", "Their bytes, as nccl-tests counts them.");
const EXPOSED_SECONDS: Family =
    counter("collective_exposed_seconds_total", "Time of communication kernels in which nothing computed.");
const BOTTLENECK: Family =
    gauge("bottleneck", "1 for the cause that matters most now, or for starting_up during start-up.");
const RECOVERABLE: Family =
    gauge("recoverable_ratio", "Part of the steady time that could be had back at most without the cause, 0 to 1.");
const LOST: Family = counter("lost_records_total", "Records and samples that were lost.");
const UNOBSERVED: Family =
    counter("unobserved_seconds_total", "Time of captures in which CUPTI could not record anything.");
const TRACING_SECONDS: Family = counter("tracing_seconds_total", "What tracing took at most, by where.");
const CAPTURES: Family = counter("captures_total", "Captures begun.");
const DEVICES_LEFT_OUT: Family = gauge("devices_left_out", "Devices of the process that have no metrics here.");
const INFO: Family = gauge("process_info", "1; what the process is.");
const STATE: Family = gauge("process_state", "1 for the state of the process.");
const PROCESSES: Family = gauge("exporter_processes", "Processes that the exporter knows, by state.");
const LEFT_OUT: Family =
    gauge("exporter_left_out", "Processes without metrics: too many that run or have ended, or of another version.");
const REFUSED: Family = gauge("exporter_refused_folders", "Folders of sockets that are not this user's alone.");
const UNREACHABLE: Family = gauge(
    "exporter_unreachable_processes",
    "Processes with gpuwhy that the exporter sees in /proc and cannot ask: of other users, or with another /tmp.",
);
const ANSWER_SECONDS: Family = gauge("exporter_answer_seconds", "Response time of the processes.");
const BUILD_INFO: Family = gauge("build_info", "1; the version of the exporter.");
const START_TIME: Family =
    gauge("exporter_start_time_seconds", "When the exporter was started, seconds since the Unix epoch.");

#[cfg(test)]
pub const FAMILIES: [&Family; 27] = [
    &DEVICE_SECONDS,
    &LEAF_SECONDS,
    &STEPS,
    &STEP_SECONDS,
    &KERNELS,
    &COPIED,
    &COLLECTIVES,
    &COLLECTIVE_SECONDS,
    &OPERATIONS,
    &OPERATION_BYTES,
    &EXPOSED_SECONDS,
    &BOTTLENECK,
    &RECOVERABLE,
    &LOST,
    &UNOBSERVED,
    &TRACING_SECONDS,
    &CAPTURES,
    &DEVICES_LEFT_OUT,
    &INFO,
    &STATE,
    &PROCESSES,
    &LEFT_OUT,
    &REFUSED,
    &UNREACHABLE,
    &ANSWER_SECONDS,
    &BUILD_INFO,
    &START_TIME,
];

/// Text with the metrics of all processes and of the exporter itself.
pub fn text<'a>(processes: impl Iterator<Item = &'a Known> + Clone, summary: &Summary, with_leaves: bool) -> String {
    let mut page = MetricsText::default();
    devices(&mut page, processes.clone(), with_leaves);
    for_processes(&mut page, processes);
    for (state, count) in &summary.states {
        page.line(&PROCESSES, &[("state", state.name())], *count as f64);
    }
    page.line(&LEFT_OUT, &[], summary.left_out as f64);
    page.line(&REFUSED, &[], summary.refused as f64);
    page.line(&UNREACHABLE, &[("user", "own")], summary.unreachable.own as f64);
    page.line(&UNREACHABLE, &[("user", "other")], summary.unreachable.others as f64);
    page.line(&ANSWER_SECONDS, &[], summary.answered_in.as_secs_f64());
    page.line(&BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    if let Some(start) = summary.start_unix {
        page.line(&START_TIME, &[], start.as_secs_f64());
    }
    page.text
}

fn devices<'a>(page: &mut MetricsText, processes: impl Iterator<Item = &'a Known> + Clone, with_leaves: bool) {
    let all = || processes.clone().flat_map(|known| known.numbers.devices.iter().map(move |device| (known, device)));
    for (known, device) in all() {
        let labels = Labels::of_device(known, device);
        for cause in Cause::ALL {
            let nanos = cause.total(&device.leaves);
            page.with(&DEVICE_SECONDS, &labels, &[("cause", cause.name())], seconds(nanos));
        }
    }
    for (known, device) in all().filter(|_| with_leaves) {
        let labels = Labels::of_device(known, device);
        for leaf in Leaf::ALL {
            page.with(&LEAF_SECONDS, &labels, &[("leaf", leaf.name())], seconds(device.leaves[leaf as usize]));
        }
    }
    for (known, device) in all() {
        page.with(&STEPS, &Labels::of_device(known, device), &[], device.steps as f64);
    }
    for (known, device) in all() {
        if let Some(nanos) = device.step_median_ns {
            page.with(&STEP_SECONDS, &Labels::of_device(known, device), &[], seconds(nanos));
        }
    }
    for (known, device) in all() {
        page.with(&KERNELS, &Labels::of_device(known, device), &[], device.kernels as f64);
    }
    for (known, device) in all() {
        for (direction, bytes) in DIRECTIONS.iter().zip(device.copied).filter(|(_, bytes)| *bytes > 0) {
            page.with(&COPIED, &Labels::of_device(known, device), &[("direction", direction)], bytes as f64);
        }
    }
    for (family, time) in [(&COLLECTIVES, false), (&COLLECTIVE_SECONDS, true)] {
        for (known, device) in all() {
            for (function, (count, nanos)) in FUNCTIONS.iter().zip(device.collectives).filter(|(_, (n, _))| *n > 0) {
                let value = if time { seconds(nanos) } else { count as f64 };
                page.with(family, &Labels::of_device(known, device), &[("function", function)], value);
            }
        }
    }
    for (place, family) in [&OPERATIONS, &OPERATION_BYTES, &EXPOSED_SECONDS].into_iter().enumerate() {
        for (known, device) in all() {
            for (function, numbers) in FUNCTIONS.iter().zip(device.operations).filter(|(_, all)| all[place] > 0) {
                let value = if place == 2 { seconds(numbers[place]) } else { numbers[place] as f64 };
                page.with(family, &Labels::of_device(known, device), &[("function", function)], value);
            }
        }
    }
}

fn for_processes<'a>(page: &mut MetricsText, processes: impl Iterator<Item = &'a Known> + Clone) {
    let all = || processes.clone().map(|known| (known, Labels::of_process(known)));
    for (known, labels) in all() {
        for cause in Cause::ALL {
            let named = f64::from(u8::from(known.numbers.bottleneck == Some(cause)));
            page.with(&BOTTLENECK, &labels, &[("bottleneck", cause.name())], named);
        }
        page.with(&BOTTLENECK, &labels, &[("bottleneck", STARTING_UP)], f64::from(u8::from(known.numbers.starting_up)));
    }
    for (known, labels) in all() {
        for (cause, share) in &known.numbers.recoverable {
            page.with(&RECOVERABLE, &labels, &[("cause", cause.name())], *share);
        }
    }
    for (known, labels) in all() {
        for (kind, count) in losses().zip(&known.numbers.lost) {
            page.with(&LOST, &labels, &[("where", kind)], *count as f64);
        }
    }
    for (known, labels) in all() {
        page.with(&UNOBSERVED, &labels, &[], seconds(known.numbers.unobserved_ns));
    }
    for (known, labels) in all() {
        for (name, nanos) in TRACING.iter().zip(known.numbers.tracing.iter().flatten()) {
            page.with(&TRACING_SECONDS, &labels, &[("where", name)], seconds(*nanos));
        }
    }
    for (known, labels) in all() {
        page.with(&CAPTURES, &labels, &[], known.numbers.captures as f64);
    }
    for (known, labels) in all() {
        page.with(&DEVICES_LEFT_OUT, &labels, &[], known.numbers.devices_beyond as f64);
    }
    for (known, labels) in all() {
        let numbers = &known.numbers;
        let (pid, cupti) = (numbers.pid.to_string(), numbers.cupti_version.to_string());
        let attempt = numbers.attempt.map(|attempt| attempt.to_string()).unwrap_or_default();
        let about = [
            ("pid", pid.as_str()),
            ("program", &numbers.program),
            ("mode", &numbers.mode),
            ("attempt", &attempt),
            ("gpuwhy_version", &numbers.gpuwhy_version),
            ("driver_version", &numbers.driver_version),
            ("cupti_version", &cupti),
        ];
        page.with(&INFO, &labels, &about, 1.0);
    }
    for (known, labels) in all() {
        for state in ProcessState::ALL {
            page.with(&STATE, &labels, &[("state", state.name())], f64::from(u8::from(known.state == state)));
        }
    }
}

/// Nanoseconds as seconds. A double has 53 bits, so values up to 104 days are exact to the nanosecond.
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Labels common to all metrics of a process or a device.
struct Labels(Vec<(&'static str, String)>);

impl Labels {
    fn of_process(known: &Known) -> Self {
        let numbers = &known.numbers;
        let mut labels =
            vec![("run", numbers.run_label()), ("rank", numbers.rank_label()), ("Hostname", numbers.host.clone())];
        // Distinguishes processes with the same run and rank, such as the children of a rank.
        if known.number > 1 {
            labels.push(("process", known.number.to_string()));
        }
        Self(labels)
    }

    fn of_device(known: &Known, device: &DeviceMetrics) -> Self {
        let mut labels = Self::of_process(known);
        labels.0.push(("ordinal", device.id.to_string()));
        labels.0.push(("UUID", device.uuid.clone()));
        labels
    }
}

/// Text being written. The lines of a family must be contiguous.
#[derive(Default)]
struct MetricsText {
    text: String,
    family: &'static str,
}

impl MetricsText {
    fn with(&mut self, family: &Family, labels: &Labels, more: &[(&str, &str)], value: f64) {
        let labels = labels.0.iter().map(|(name, value)| (*name, value.as_str()));
        let all: Vec<_> = labels.chain(more.iter().copied()).collect();
        self.line(family, &all, value);
    }

    fn line(&mut self, family: &Family, labels: &[(&str, &str)], value: f64) {
        let Family { name, kind, help } = family;
        let out = &mut self.text;
        if self.family != *name {
            let _ = write!(out, "# HELP gpuwhy_{name} {help}\n# TYPE gpuwhy_{name} {kind}\n");
            self.family = name;
        }
        let _ = write!(out, "gpuwhy_{name}");
        for (index, (label, value)) in labels.iter().enumerate() {
            let _ = write!(out, "{}{label}=\"", if index == 0 { '{' } else { ',' });
            for letter in value.chars() {
                match letter {
                    '\\' => out.push_str("\\\\"),
                    '"' => out.push_str("\\\""),
                    '\n' => out.push_str("\\n"),
                    letter => out.push(letter),
                }
            }
            out.push('"');
        }
        if !labels.is_empty() {
            out.push('}');
        }
        let _ = writeln!(out, " {value}");
    }
}
