//! Metrics of a process, from its response to `metrics`.

use std::collections::BTreeMap;

use gpuwhy_report::state::{self, Metrics, Status};
use serde_json::Value;

use super::families::{self, Sample};

/// Maximum characters of a label value.
pub const LABEL: usize = 64;

/// Run label of a process whose program name is unknown.
const UNNAMED: &str = "unnamed";

/// Metrics of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessMetrics {
    pub status: Status,
    pub metrics: Metrics,
    pub samples: Vec<Sample>,
}

impl ProcessMetrics {
    /// Parses a response; `None` when it is not a response to `metrics`.
    pub fn of(json: &Value) -> Option<Self> {
        if json["type"] != "metrics" || !json["devices"].is_array() {
            return None;
        }
        let (status, metrics) = (state::read(json), state::read(json));
        Some(Self { samples: families::samples(&status, &metrics), status, metrics })
    }

    /// Labels that processes share which differ only in the label `process`: host, run and rank. An unnamed run has
    /// the name of its program, which is not unique: else each start would become a new run. Cut as the labels are: two
    /// processes with the same labels would be one series twice, which Prometheus refuses.
    pub fn place(&self) -> (String, String, Option<u64>) {
        let Metrics { host, run, program, rank, .. } = &self.metrics;
        let names = [run.as_deref().unwrap_or_default(), program, UNNAMED];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        let cut = |text: &str| text.chars().take(LABEL).collect();
        (cut(host), cut(name), *rank)
    }

    /// Replaces the numbers by newer ones of the same process. Counters never decrease, because a monitoring
    /// system takes a decrease for a restart. When late records move time from one cause to another, the
    /// counter of the first keeps its value until the new one exceeds it.
    pub fn update(&mut self, mut newer: Self) {
        let key = |sample: &Sample| (sample.family.name, sample.labels.clone());
        let old: BTreeMap<_, _> = self.samples.iter().map(|sample| (key(sample), sample.value)).collect();
        for new in newer.samples.iter_mut().filter(|sample| sample.family.kind == "counter") {
            new.value = old.get(&key(new)).map_or(new.value, |old| new.value.max(*old));
        }
        *self = newer;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Value of the sample of a family whose last label has this value.
    fn value(numbers: &ProcessMetrics, family: &str, label: &str) -> Option<f64> {
        let is_it = |sample: &&Sample| {
            sample.family.name == family && sample.labels.last().is_none_or(|(_, value)| value == label)
        };
        numbers.samples.iter().find(is_it).map(|sample| sample.value)
    }

    #[test]
    fn whatever_an_answer_holds_is_read_or_counts_as_not_said() {
        for none in [json!(null), json!([]), json!({"type": "error"}), json!({"type": "metrics", "devices": 3})] {
            assert_eq!(ProcessMetrics::of(&none), None, "{none}");
        }
        let hostile = json!({
            "type": "metrics", "pid": -1, "run": "a\n\u{7}b".repeat(1_000), "rank": "x", "loss": 3, "tracing": [],
            "live_bottleneck": "of_tomorrow", "ranking": [{"cause": "sync", "recoverable": 7}, 3],
            "devices": [3, {"leaves": {"compute": u64::MAX, "lock": u64::MAX, "host_cpu": u64::MAX, "of_tomorrow": 1},
                            "collectives": [{"function": "of_tomorrow", "count": 2}, 1],
                            "operations": [{"function": "of_tomorrow", "bytes": 7}, {"function": 3, "bytes": -1}]}],
        });
        let numbers = ProcessMetrics::of(&hostile).unwrap();
        assert_eq!((numbers.status.pid, numbers.metrics.rank), (0, None));
        assert_eq!(numbers.place().1.chars().count(), LABEL);
        let some = |family: &str, is_it: &dyn Fn(f64) -> bool| {
            numbers.samples.iter().any(|sample| sample.family.name == family && is_it(sample.value))
        };
        assert!(!some("bottleneck", &|value| value > 0.0) && !some("recoverable_ratio", &|_| true));
        assert!(some("device_leaf_seconds_total", &|value| value > 0.0) && !some("tracing_seconds_total", &|_| true));
        assert!(!some("device_seconds_total", &|value| value > u64::MAX as f64 / 1e9), "the sums are bounded");
        assert_eq!(value(&numbers, "collectives_total", "other"), Some(2.0), "of another version");
        assert_eq!(value(&numbers, "collective_bytes_total", "other"), Some(7.0));
        assert_eq!(value(&numbers, "lost_records_total", "dropped_by_cupti"), Some(0.0));
        let labels: std::collections::BTreeSet<_> =
            numbers.samples.iter().flat_map(|sample| &sample.labels).map(|(_, value)| value).collect();
        assert!(!labels.contains(&"of_tomorrow".to_owned()), "{labels:?}");
    }

    #[test]
    fn counters_never_go_back_and_gauges_do() {
        let answer = |compute: u64, idle: u64, median: u64| {
            let json = json!({"type": "metrics", "live_bottleneck": "sync", "tracing": {"records_ns": compute},
                "loss": {"dropped_by_cupti": compute},
                "devices": [{"id": 1, "leaves": {"compute": compute, "host_cpu": idle}, "step_median_ns": median}]});
            ProcessMetrics::of(&json).unwrap()
        };
        let second = 1_000_000_000;
        let mut numbers = answer(10 * second, 100 * second, 7 * second);
        numbers.update(answer(30 * second, 80 * second, 5 * second));
        let leaf = |name| value(&numbers, "device_leaf_seconds_total", name);
        assert_eq!([leaf("compute"), leaf("host_cpu")], [Some(30.0), Some(100.0)]);
        assert_eq!(value(&numbers, "step_seconds", ""), Some(5.0));
        assert_eq!(value(&numbers, "tracing_seconds_total", "records"), Some(30.0));
        assert_eq!(value(&numbers, "lost_records_total", "dropped_by_cupti"), Some(30e9));
    }
}
