//! Metrics of a process, parsed from its response to `metrics`.
//!
//! Responses come from programs of other versions, and from files. So a missing field, or one with the wrong
//! type, counts as absent, lists are bounded, and unknown names are ignored: each label has a fixed set of
//! values.

use gpuwhy_report::run::STARTING_UP;
use gpuwhy_trace::record::Loss;
use profiler_core::leaf::{Cause, LEAF_COUNT, Leaf, Leaves};
use serde_json::Value;

const DEVICES: usize = 16;
/// Maximum characters of a label value.
const LABEL: usize = 64;
/// Run label of a process whose program name is unknown.
const UNNAMED: &str = "unnamed";
/// Directions of copies.
pub const DIRECTIONS: [&str; 6] =
    ["unknown", "host_to_device", "device_to_host", "device_to_device", "host_to_host", "peer_to_peer"];
/// Functions of communication kernels, from their names.
pub const FUNCTIONS: [&str; 8] =
    ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv", "reduce", "other"];
/// Sources of tracing overhead.
pub const TRACING: [&str; 4] = ["records", "cupti", "callbacks", "threads"];

/// Names of the kinds of loss that are counted in records or samples.
pub fn losses() -> impl Iterator<Item = &'static str> {
    let no_records = ["broken_bytes", "unobserved_ns", "own_kernels"];
    Loss::default().kinds().into_iter().map(|kind| kind.name).filter(move |name| !no_records.contains(name))
}

/// Metrics of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    pub pid: u64,
    /// Nanoseconds since the Unix epoch; distinguishes processes that reuse an id.
    pub start: u64,
    /// State as the process reports it.
    pub state: String,
    pub host: String,
    pub program: String,
    pub run: Option<String>,
    pub rank: Option<u64>,
    pub attempt: Option<u64>,
    pub mode: String,
    pub gpuwhy_version: String,
    pub driver_version: String,
    pub cupti_version: u64,
    pub captures: u64,
    pub bottleneck: Option<Cause>,
    /// True if it is too early for a bottleneck.
    pub starting_up: bool,
    /// 0 to 1, by cause.
    pub recoverable: Vec<(Cause, f64)>,
    /// In the order of [`losses`].
    pub lost: Vec<u64>,
    pub unobserved_ns: u64,
    /// Nanoseconds, in the order of [`TRACING`].
    pub tracing: Option<[u64; TRACING.len()]>,
    pub devices: Vec<DeviceMetrics>,
    pub devices_beyond: u64,
}

/// Metrics of a device in one process.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceMetrics {
    /// Ordinal in the process.
    pub id: u64,
    /// Empty when unknown.
    pub uuid: String,
    /// Nanoseconds.
    pub leaves: Leaves,
    pub kernels: u64,
    pub steps: u64,
    pub step_median_ns: Option<u64>,
    /// Bytes, in the order of [`DIRECTIONS`].
    pub copied: [u64; DIRECTIONS.len()],
    /// Count and nanoseconds, in the order of [`FUNCTIONS`].
    pub collectives: [(u64, u64); FUNCTIONS.len()],
    /// Count, bytes and exposed nanoseconds, in the order of [`FUNCTIONS`].
    pub operations: [[u64; 3]; FUNCTIONS.len()],
}

impl Numbers {
    /// Parses a response; `None` when it is not a response to `metrics`.
    pub fn of(json: &Value) -> Option<Self> {
        if json["type"] != "metrics" || !json["devices"].is_array() {
            return None;
        }
        let tracing = &json["tracing"];
        let ranking = json["ranking"].as_array().into_iter().flatten();
        Some(Self {
            pid: number(json, "pid"),
            start: number(json, "start_unix_ns"),
            state: label(json, "state"),
            host: label(json, "host"),
            program: label(json, "program"),
            run: Some(label(json, "run")).filter(|run| !run.is_empty()),
            rank: json["rank"].as_u64(),
            attempt: json["attempt"].as_u64(),
            mode: label(json, "mode"),
            gpuwhy_version: label(json, "gpuwhy_version"),
            driver_version: label(json, "driver_version"),
            cupti_version: number(json, "cupti_version"),
            captures: number(json, "captures"),
            bottleneck: cause(&json["live_bottleneck"]),
            starting_up: json["live_bottleneck"] == STARTING_UP,
            recoverable: ranking
                .filter_map(|row| cause(&row["cause"]).zip(row["recoverable"].as_f64()))
                .filter(|(_, share)| (0.0..=1.0).contains(share))
                .take(Cause::ALL.len())
                .collect(),
            lost: losses().map(|name| number(&json["loss"], name)).collect(),
            unobserved_ns: number(json, "unobserved_ns"),
            tracing: tracing.is_object().then(|| TRACING.map(|name| number(tracing, &format!("{name}_ns")))),
            devices: json["devices"].as_array().into_iter().flatten().take(DEVICES).map(device).collect(),
            devices_beyond: number(json, "devices_beyond"),
        })
    }

    /// Name of the run, or of the program for an unnamed run. Has no unique number: each start would become a
    /// new run.
    pub fn run_label(&self) -> String {
        let program = if self.program.is_empty() { UNNAMED } else { &self.program };
        self.run.as_deref().unwrap_or(program).to_owned()
    }

    /// Labels that processes share which differ only in the label `process`.
    pub fn place(&self) -> (String, String, Option<u64>) {
        (self.host.clone(), self.run_label(), self.rank)
    }

    pub fn rank_label(&self) -> String {
        self.rank.map(|rank| rank.to_string()).unwrap_or_default()
    }

    /// Replaces the numbers by newer ones of the same process. Counters never decrease, because a monitoring
    /// system takes a decrease for a restart. When late records move time from one cause to another, the
    /// counter of the first keeps its value until the new one exceeds it.
    pub fn follow(&mut self, mut newer: Self) {
        let most = |new: &mut u64, old: u64| *new = (*new).max(old);
        for (new, old) in newer.lost.iter_mut().zip(&self.lost) {
            most(new, *old);
        }
        for (new, old) in newer.tracing.iter_mut().flatten().zip(self.tracing.iter().flatten()) {
            most(new, *old);
        }
        for (name, old) in [(&mut newer.unobserved_ns, self.unobserved_ns), (&mut newer.captures, self.captures)] {
            most(name, old);
        }
        for old in &self.devices {
            let Some(new) = newer.devices.iter_mut().find(|new| new.id == old.id) else { continue };
            new.leaves.iter_mut().zip(old.leaves).for_each(|(new, old)| most(new, old));
            new.copied.iter_mut().zip(old.copied).for_each(|(new, old)| most(new, old));
            for (new, old) in new.collectives.iter_mut().zip(old.collectives) {
                most(&mut new.0, old.0);
                most(&mut new.1, old.1);
            }
            for (new, old) in new.operations.iter_mut().flatten().zip(old.operations.into_iter().flatten()) {
                most(new, old);
            }
            most(&mut new.kernels, old.kernels);
            most(&mut new.steps, old.steps);
        }
        *self = newer;
    }
}

fn device(json: &Value) -> DeviceMetrics {
    let mut leaves = [0; LEAF_COUNT];
    for leaf in Leaf::ALL {
        leaves[leaf as usize] = number(&json["leaves"], leaf.name());
    }
    let mut collectives = [(0, 0); FUNCTIONS.len()];
    for row in json["collectives"].as_array().into_iter().flatten().take(FUNCTIONS.len()) {
        let place = function(row);
        collectives[place].0 += number(row, "count");
        collectives[place].1 += number(row, "total_ns");
    }
    let mut operations = [[0; 3]; FUNCTIONS.len()];
    for row in json["operations"].as_array().into_iter().flatten().take(FUNCTIONS.len()) {
        let numbers = ["count", "bytes", "exposed_ns"].map(|name| number(row, name));
        operations[function(row)].iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
    }
    DeviceMetrics {
        id: number(json, "id"),
        uuid: label(json, "uuid"),
        leaves,
        kernels: number(json, "kernels"),
        steps: number(json, "steps"),
        step_median_ns: json["step_median_ns"].as_u64(),
        copied: DIRECTIONS.map(|name| number(&json["copied_bytes"], name)),
        collectives,
        operations,
    }
}

/// Index of a row's function. Unknown functions of other versions count as the last.
fn function(row: &Value) -> usize {
    FUNCTIONS.iter().position(|&name| row["function"] == name).unwrap_or(FUNCTIONS.len() - 1)
}

fn cause(name: &Value) -> Option<Cause> {
    Cause::ALL.into_iter().find(|cause| name.as_str() == Some(cause.name()))
}

/// Limited to half of the range, so that the sum of two values does not overflow.
fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or(0).min(u64::MAX / 2)
}

fn label(json: &Value, name: &str) -> String {
    cut(json[name].as_str().unwrap_or_default())
}

fn cut(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(LABEL).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whatever_an_answer_holds_is_read_or_counts_as_not_said() {
        for none in [json!(null), json!([]), json!({"type": "error"}), json!({"type": "metrics", "devices": 3})] {
            assert_eq!(Numbers::of(&none), None, "{none}");
        }
        let hostile = json!({
            "type": "metrics", "pid": -1, "run": "a\n\u{7}b".repeat(1_000), "rank": "x", "loss": 3, "tracing": [],
            "live_bottleneck": "of_tomorrow", "ranking": [{"cause": "sync", "recoverable": 7}, 3],
            "devices": [3, {"leaves": {"compute": u64::MAX, "of_tomorrow": 1},
                            "collectives": [{"function": "of_tomorrow", "count": 2}, 1],
                            "operations": [{"function": "of_tomorrow", "bytes": 7}, {"function": 3, "bytes": -1}]}],
        });
        let numbers = Numbers::of(&hostile).unwrap();
        assert_eq!((numbers.pid, numbers.rank, numbers.bottleneck, numbers.recoverable.len()), (0, None, None, 0));
        assert_eq!(numbers.run.as_ref().unwrap().len(), LABEL);
        assert_eq!(numbers.devices[1].leaves[0], u64::MAX / 2);
        assert_eq!(numbers.devices[1].collectives[FUNCTIONS.len() - 1], (2, 0), "of another version");
        assert_eq!(numbers.devices[1].operations[FUNCTIONS.len() - 1], [0, 7, 0]);
        assert_eq!(numbers.lost.len(), losses().count());
    }

    #[test]
    fn counters_never_go_back_and_gauges_do() {
        let answer = |compute: u64, idle: u64, median: u64| {
            let json = json!({"type": "metrics", "live_bottleneck": "sync", "tracing": {"records_ns": compute},
                "loss": {"dropped_by_cupti": compute},
                "devices": [{"id": 1, "leaves": {"compute": compute, "host_cpu": idle}, "step_median_ns": median}]});
            Numbers::of(&json).unwrap()
        };
        let mut numbers = answer(10, 100, 7);
        numbers.follow(answer(30, 80, 5));
        let device = &numbers.devices[0];
        assert_eq!([device.leaves[0], device.leaves[Leaf::HostCpu as usize]], [30, 100]);
        assert_eq!((device.step_median_ns, numbers.tracing.unwrap()[0], numbers.lost[0]), (Some(5), 30, 30));
    }

    #[test]
    fn names_are_those_that_libprof_writes() {
        let copies = gpuwhy_trace::record::CopyKind::default();
        assert_eq!(DIRECTIONS[0], copies.name());
    }
}
