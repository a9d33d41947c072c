use std::collections::BTreeSet;
use std::fs;

use serde_json::json;

use super::families::FAMILIES;
use super::node::Node;
use super::numbers::ProcessMetrics;

fn text(labels: serde_json::Value, with_leaves: bool) -> String {
    let mut json = json!({"type": "metrics", "pid": 7, "start_unix_ns": 1, "state": "capturing", "host": "n1",
        "program": "train.py", "live_bottleneck": "sync", "ranking": [{"cause": "sync", "recoverable": 0.25}],
        "tracing": {"records_ns": 5}, "loss": {"dropped_by_cupti": 3},
        "devices": [{"id": 0, "uuid": "GPU-1", "leaves": {"compute": 1_500_000_000_u64, "host_cpu": 1},
            "kernels": 2, "steps": 3, "step_median_ns": 4_000_000, "copied_bytes": {"host_to_device": 9},
            "collectives": [{"function": "all_reduce", "count": 5, "total_ns": 500_000_000}],
            "operations": [{"function": "all_reduce", "count": 6, "bytes": 4096, "exposed_ns": 250_000_000}]}]});
    json.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
    let mut node = Node::default();
    node.insert("/s/7.sock", ProcessMetrics::of(&json).unwrap());
    super::text::text(node.processes(), &node.summary(), with_leaves)
}

#[test]
fn metrics_are_written_as_prometheus_reads_them() {
    let iterations = json!([{"kind": "decode", "count": 63, "median_ns": 65_000_000, "tokens_per_second": 1_373.5}]);
    let memory = json!([{"id": 0, "used_bytes": 61_000_000_000_u64, "total_bytes": null, "growth_bytes": 3_100_000.5}]);
    let page = text(
        json!({"run": "a\"b\\c", "rank": 3, "iterations": iterations, "memory": memory,
        "devices_beyond": 4}),
        true,
    );
    let labels = "run=\"a\\\"b\\\\c\",rank=\"3\",Hostname=\"n1\"";
    let device = format!("{labels},ordinal=\"0\",UUID=\"GPU-1\"");
    for line in [
        format!("gpuwhy_device_seconds_total{{{device},cause=\"gpu_compute\"}} 1.5"),
        format!("gpuwhy_device_seconds_total{{{device},cause=\"host_cpu\"}} 0.000000001"),
        format!("gpuwhy_device_leaf_seconds_total{{{device},leaf=\"compute\"}} 1.5"),
        format!("gpuwhy_steps_total{{{device}}} 3"),
        format!("gpuwhy_step_seconds{{{device}}} 0.004"),
        format!("gpuwhy_device_memory_used_bytes{{{device}}} 61000000000"),
        format!("gpuwhy_device_memory_growth_bytes_per_step{{{device}}} 3100000.5"),
        format!("gpuwhy_iterations{{{labels},kind=\"decode\"}} 63"),
        format!("gpuwhy_iteration_seconds{{{labels},kind=\"decode\"}} 0.065"),
        format!("gpuwhy_iteration_tokens_per_second{{{labels},kind=\"decode\"}} 1373.5"),
        format!("gpuwhy_collective_seconds_total{{{device},function=\"all_reduce\"}} 0.5"),
        format!("gpuwhy_collective_operations_total{{{device},function=\"all_reduce\"}} 6"),
        format!("gpuwhy_collective_bytes_total{{{device},function=\"all_reduce\"}} 4096"),
        format!("gpuwhy_collective_exposed_seconds_total{{{device},function=\"all_reduce\"}} 0.25"),
        format!("gpuwhy_bottleneck{{{labels},bottleneck=\"sync\"}} 1"),
        format!("gpuwhy_bottleneck{{{labels},bottleneck=\"copy\"}} 0"),
        format!("gpuwhy_bottleneck{{{labels},bottleneck=\"starting_up\"}} 0"),
        format!("gpuwhy_recoverable_ratio{{{labels},cause=\"sync\"}} 0.25"),
        format!("gpuwhy_lost_records_total{{{labels},where=\"dropped_by_cupti\"}} 3"),
        format!("gpuwhy_devices_left_out{{{labels}}} 4"),
        format!("gpuwhy_process_state{{{labels},state=\"capturing\"}} 1"),
        "gpuwhy_exporter_processes{state=\"capturing\"} 1".to_owned(),
        "gpuwhy_exporter_left_out 0".to_owned(),
        format!("gpuwhy_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    let mut seen = BTreeSet::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        assert!(seen.insert(line.rsplit_once(' ').unwrap().0), "twice: {line}");
    }
    let typed = page.lines().filter(|line| line.starts_with("# TYPE"));
    assert_eq!(typed.clone().collect::<BTreeSet<_>>().len(), typed.count(), "lines of a family follow each other");
}

#[test]
fn each_state_has_its_label_and_a_state_of_another_version_ends_nothing() {
    for (state, label) in [
        ("capturing", "capturing"),
        ("watching", "watching"),
        ("waiting", "waiting"),
        ("finished", "finished"),
        ("resting", "waiting"),
    ] {
        let page = text(json!({ "state": state }), false);
        let ones: Vec<_> =
            page.lines().filter(|line| line.starts_with("gpuwhy_process_state{") && line.ends_with(" 1")).collect();
        assert!(ones.len() == 1 && ones[0].contains(&format!("state=\"{label}\"")), "{state}: {ones:?}");
        assert!(page.contains(&format!("gpuwhy_exporter_processes{{state=\"{label}\"}} 1\n")), "{state}: {page}");
    }
}

#[test]
fn a_process_that_starts_up_names_no_cause() {
    let page = text(json!({"live_bottleneck": "starting_up", "ranking": []}), false);
    let named: Vec<_> =
        page.lines().filter(|line| line.starts_with("gpuwhy_bottleneck{") && line.ends_with(" 1")).collect();
    assert!(named.len() == 1 && named[0].contains("bottleneck=\"starting_up\""), "{named:?}");
    assert!(!page.contains("gpuwhy_recoverable_ratio{") && !page.contains("memory_used_bytes{"), "{page}");
}

#[test]
fn a_run_without_a_name_has_that_of_its_program_and_series_are_few() {
    let page = text(json!({}), false);
    assert!(
        page.contains(
            "gpuwhy_kernels_total{run=\"train.py\",rank=\"\",Hostname=\"n1\",ordinal=\"0\",UUID=\"GPU-1\"} 2"
        )
    );
    assert!(!page.contains("leaf") && !page.contains("devices_left_out{"));
    let series = page.lines().filter(|line| !line.starts_with('#') && line.contains("rank=")).count();
    assert!(series <= 60, "{series} series a rank");
}

/// Names of our metrics in a text, except those that recording rules define.
fn named(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (start, _) in text.match_indices("gpuwhy_") {
        let before = text[..start].chars().next_back().unwrap_or(' ');
        let name: String =
            text[start..].chars().take_while(|c| c.is_ascii_alphanumeric() || "_:".contains(*c)).collect();
        if before != ':' && !name.contains(':') {
            names.insert(name);
        }
    }
    names
}

#[test]
fn rules_dashboard_and_guide_name_metrics_that_exist() {
    let known: BTreeSet<_> = FAMILIES.iter().map(|family| format!("gpuwhy_{}", family.name)).collect();
    let read = |file: &str| fs::read_to_string(format!("{}/docs/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    for file in ["monitoring/rules.yml", "monitoring/rules_test.yml", "monitoring/dashboard.json"] {
        let unknown: Vec<_> = named(&read(file)).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    let guide = read("guide/metrics.md");
    let missing: Vec<_> = FAMILIES.iter().filter(|family| !guide.contains(&format!("`{}`", family.name))).collect();
    assert!(missing.is_empty(), "the guide lacks {missing:?}");
    let dashboard: serde_json::Value = serde_json::from_str(&read("monitoring/dashboard.json")).unwrap();
    let rules = read("monitoring/rules.yml");
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() >= 6);
    for expression in panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten()) {
        let expression = expression["expr"].as_str().unwrap();
        for word in expression.split(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c))) {
            let rule = ["run:", "rank:", "UUID:"].iter().any(|level| word.starts_with(level));
            assert!(!rule || rules.contains(&format!("record: {word}\n")), "{word}");
        }
    }
}
