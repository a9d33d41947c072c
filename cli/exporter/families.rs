//! Metrics: their names, types and labels.
//!
//! Labels that dcgm-exporter has too have the same names and meanings, so that `on(Hostname, UUID)` joins.
//! `job` and `instance` belong to Prometheus and are never used. `docs/guide/metrics.md` explains each
//! metric.

use gpuwhy_report::metrics::CollectiveFunction;
use gpuwhy_report::run::STARTING_UP;
use gpuwhy_report::state::{DeviceMetrics, Metrics, Status};
use gpuwhy_trace::record::{CopyKind, Loss};
use profiler_core::leaf::{Cause, LEAF_COUNT, Leaf};
use profiler_core::steps::IterationKind;

/// Metric family: all metrics with one name.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Name without `gpuwhy_`.
    pub name: &'static str,
    /// Prometheus type: `counter` or `gauge`.
    pub kind: &'static str,
    pub help: &'static str,
}

/// A value with its labels, without those common to the metrics of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub family: &'static Family,
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

impl Sample {
    pub fn new(family: &'static Family, labels: &[(&'static str, &str)], value: f64) -> Self {
        Self { family, labels: labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(), value }
    }
}

/// Defines the families in the order of the page.
macro_rules! families {
    ($($family:ident = $kind:ident $name:literal, $help:literal;)*) => {
        $(pub const $family: Family = Family { name: $name, kind: stringify!($kind), help: $help };)*
        pub const FAMILIES: &[Family] = &[$($family),*];
    };
}

families! {
    DEVICE_SECONDS = counter "device_seconds_total", "Device time by cause, from the first operation on; the causes sum to it.";
    LEAF_SECONDS = counter "device_leaf_seconds_total", "Device time by leaf, a part of a cause.";
    STEPS = counter "steps_total", "Steps that were found.";
    STEP_SECONDS = gauge "step_seconds", "Median duration of the remembered steps.";
    KERNELS = counter "kernels_total", "Kernels that ran.";
    COPIED = counter "copied_bytes_total", "Bytes copied by direction.";
    MEMORY_USED = gauge "device_memory_used_bytes", "Memory of the device in use by all processes, at the last reading.";
    MEMORY_TOTAL = gauge "device_memory_total_bytes", "Memory of the device.";
    MEMORY_GROWTH = gauge "device_memory_growth_bytes_per_step", "Memory that each step takes and keeps; absent unless memory grows.";
    COLLECTIVES = counter "collectives_total", "Communication kernels, by what their names say.";
    COLLECTIVE_SECONDS = counter "collective_seconds_total", "Time of communication kernels, overlapped by computation or not.";
    OPERATIONS = counter "collective_operations_total", "Completed operations of communicators that NCCL reported.";
    OPERATION_BYTES = counter "collective_bytes_total", "Their bytes, as nccl-tests counts them.";
    EXPOSED_SECONDS = counter "collective_exposed_seconds_total", "Time of communication kernels in which nothing computed.";
    BOTTLENECK = gauge "bottleneck", "1 for the cause that matters most now, or for starting_up during start-up.";
    RECOVERABLE = gauge "recoverable_ratio", "Part of the steady time that could be had back at most without the cause, 0 to 1.";
    ITERATIONS = gauge "iterations", "Iterations of a server in the capture, by kind.";
    ITERATION_SECONDS = gauge "iteration_seconds", "Median duration of the remembered iterations, by kind.";
    TOKENS_PER_SECOND = gauge "iteration_tokens_per_second", "Generated tokens per second of the iterations' time, by kind.";
    LOST = counter "lost_records_total", "Records and samples that were lost.";
    UNOBSERVED = counter "unobserved_seconds_total", "Time of captures in which CUPTI could not record anything.";
    TRACING_SECONDS = counter "tracing_seconds_total", "What tracing took at most, by where.";
    CAPTURES = counter "captures_total", "Captures begun.";
    DEVICES_LEFT_OUT = gauge "devices_left_out", "Devices of the process that have no metrics here; absent if there are none.";
    INFO = gauge "process_info", "1; what the process is.";
    STATE = gauge "process_state", "1 for the state of the process.";
    PROCESSES = gauge "exporter_processes", "Processes that the exporter knows, by state.";
    LEFT_OUT = gauge "exporter_left_out", "Processes without metrics: too many that run or have ended, or of another version.";
    REFUSED = gauge "exporter_refused_folders", "Folders of sockets that are not this user's alone.";
    UNREACHABLE = gauge "exporter_unreachable_processes", "Processes with gpuwhy that the exporter sees in /proc and cannot ask: of other users, or with another /tmp.";
    ANSWER_SECONDS = gauge "exporter_answer_seconds", "Response time of the processes.";
    BUILD_INFO = gauge "build_info", "1; the version of the exporter.";
    START_TIME = gauge "exporter_start_time_seconds", "When the exporter was started, seconds since the Unix epoch.";
}

/// The metrics of a process but its state. Their labels have a fixed set of values, whatever the process responds.
pub fn samples(status: &Status, metrics: &Metrics) -> Vec<Sample> {
    let mut samples: Vec<_> = metrics.devices.iter().flat_map(of_device).collect();
    let mut add = |family, labels: &[(&'static str, &str)], value| samples.push(Sample::new(family, labels, value));
    for of in &metrics.memory {
        let uuid = metrics.devices.iter().find(|device| device.id == of.id).and_then(|device| device.uuid.as_deref());
        let (ordinal, uuid) = (of.id.to_string(), uuid.unwrap_or_default());
        let mut add = |family, value| add(family, &[("ordinal", &ordinal), ("UUID", uuid)], value);
        add(&MEMORY_USED, of.used_bytes as f64);
        of.total_bytes.into_iter().for_each(|bytes| add(&MEMORY_TOTAL, bytes as f64));
        of.growth_bytes.into_iter().for_each(|bytes| add(&MEMORY_GROWTH, bytes));
    }
    for name in Cause::ALL.iter().map(|cause| cause.name()).chain([STARTING_UP]) {
        add(&BOTTLENECK, &[("bottleneck", name)], f64::from(u8::from(metrics.live_bottleneck == name)));
    }
    for row in &metrics.ranking {
        let cause = Cause::ALL.iter().find(|cause| cause.name() == row.cause);
        if let Some(cause) = cause.filter(|_| row.recoverable <= 1.0) {
            add(&RECOVERABLE, &[("cause", cause.name())], row.recoverable);
        }
    }
    for kind in IterationKind::ALL.map(IterationKind::name) {
        let Some(of) = metrics.iterations.iter().find(|of| of.kind == kind) else { continue };
        add(&ITERATIONS, &[("kind", kind)], of.count as f64);
        add(&ITERATION_SECONDS, &[("kind", kind)], seconds(of.median_ns));
        of.tokens_per_second.into_iter().for_each(|rate| add(&TOKENS_PER_SECOND, &[("kind", kind)], rate));
    }
    // The kinds that are counted in records or samples.
    let no_records = ["broken_bytes", "unobserved_ns", "own_kernels"];
    for kind in Loss::default().kinds().iter().filter(|kind| !no_records.contains(&kind.name)) {
        let lost = metrics.loss.get(kind.name).copied().unwrap_or(0);
        // Recorded only on request: no series of each rank for it.
        if kind.name != "dropped_memory_calls" || lost > 0 {
            add(&LOST, &[("where", kind.name)], lost as f64);
        }
    }
    add(&UNOBSERVED, &[], seconds(status.unobserved_ns));
    if let Some(tracing) = &metrics.tracing {
        add(&TRACING_SECONDS, &[("where", "records")], seconds(tracing.records_ns));
        add(&TRACING_SECONDS, &[("where", "cupti")], seconds(tracing.cupti_ns));
        add(&TRACING_SECONDS, &[("where", "callbacks")], seconds(tracing.callbacks_ns));
        add(&TRACING_SECONDS, &[("where", "threads")], seconds(tracing.threads_ns));
    }
    add(&CAPTURES, &[], status.captures as f64);
    if metrics.devices_beyond > 0 {
        add(&DEVICES_LEFT_OUT, &[], metrics.devices_beyond as f64);
    }
    let attempt = metrics.attempt.map(|attempt| attempt.to_string()).unwrap_or_default();
    let (pid, cupti) = (status.pid.to_string(), metrics.cupti_version.to_string());
    let about = [
        ("pid", pid.as_str()),
        ("program", &metrics.program),
        ("mode", metrics.mode.as_deref().unwrap_or_default()),
        ("attempt", &attempt),
        ("gpuwhy_version", &metrics.gpuwhy_version),
        ("driver_version", &metrics.driver_version),
        ("cupti_version", &cupti),
    ];
    add(&INFO, &about, 1.0);
    samples
}

fn of_device(device: &DeviceMetrics) -> Vec<Sample> {
    let mut samples = Vec::new();
    let ordinal = device.id.to_string();
    let mut add = |family, label: Option<(&'static str, &str)>, value| {
        let place = [("ordinal", ordinal.as_str()), ("UUID", device.uuid.as_deref().unwrap_or_default())];
        let labels: Vec<_> = place.into_iter().chain(label).collect();
        samples.push(Sample::new(family, &labels, value));
    };
    // Bounded, so that their sum does not overflow.
    let nanos = |leaf: Leaf| device.leaves.get(leaf.name()).copied().unwrap_or(0).min(u64::MAX / LEAF_COUNT as u64);
    let leaves = Leaf::ALL.map(nanos);
    for cause in Cause::ALL {
        add(&DEVICE_SECONDS, Some(("cause", cause.name())), seconds(cause.total(&leaves)));
    }
    for (leaf, nanos) in Leaf::ALL.into_iter().zip(leaves) {
        add(&LEAF_SECONDS, Some(("leaf", leaf.name())), seconds(nanos));
    }
    add(&STEPS, None, device.steps as f64);
    device.step_median_ns.into_iter().for_each(|nanos| add(&STEP_SECONDS, None, seconds(nanos)));
    add(&KERNELS, None, device.kernels as f64);
    for name in CopyKind::ALL.map(CopyKind::name) {
        let bytes = device.copied_bytes.get(name).copied().unwrap_or(0);
        (bytes > 0).then(|| add(&COPIED, Some(("direction", name)), bytes as f64));
    }
    for function in CollectiveFunction::ALL {
        let label = Some(("function", function.name()));
        let rows = device.collectives.iter().filter(|row| function_of(&row.function) == function);
        let sums = rows.fold([0, 0], |sums, row| added(sums, [row.count, row.total_ns]));
        if sums[0] > 0 {
            add(&COLLECTIVES, label, sums[0] as f64);
            add(&COLLECTIVE_SECONDS, label, seconds(sums[1]));
        }
        let rows = device.operations.iter().filter(|row| function_of(&row.function) == function);
        let sums = rows.fold([0, 0, 0], |sums, row| added(sums, [row.count, row.bytes, row.exposed_ns]));
        let values = [sums[0] as f64, sums[1] as f64, seconds(sums[2])];
        for (family, value) in [&OPERATIONS, &OPERATION_BYTES, &EXPOSED_SECONDS].into_iter().zip(values) {
            (value > 0.0).then(|| add(family, label, value));
        }
    }
    samples
}

/// Functions of other versions count as the last.
fn function_of(name: &str) -> CollectiveFunction {
    CollectiveFunction::ALL.into_iter().find(|function| function.name() == name).unwrap_or(CollectiveFunction::Other)
}

fn added<const N: usize>(sums: [u64; N], row: [u64; N]) -> [u64; N] {
    std::array::from_fn(|index| sums[index].saturating_add(row[index]))
}

/// Nanoseconds as seconds. A double has 53 bits, so values up to 104 days are exact to the nanosecond.
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
