//! One name has one value: the text, the JSON, pages, comparisons and the tools for agents say the same of a trace.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gpuwhy_page_reader as read;
use serde_json::{Value, json};

use crate::support::{GPUWHY, stderr};

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testing/fixtures/traces");

fn trace(name: &str) -> PathBuf {
    Path::new(TRACES).join(format!("{name}.gpuwhy"))
}

fn output(arguments: &[&str], name: &str) -> String {
    let output = Command::new(GPUWHY).args(arguments).arg(trace(name)).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The text in one line.
fn text(arguments: &[&str], name: &str) -> String {
    output(&[&["report", "--recompute"], arguments].concat(), name).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn json_of(name: &str) -> Value {
    serde_json::from_str(&output(&["report", "--recompute", "--json"], name)).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The answer of a tool for agents.
fn told(folder: &Path, tool: &str, arguments: &Value) -> Value {
    let mut server = Command::new(GPUWHY);
    server.arg("mcp").arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let params = json!({"name": tool, "arguments": arguments});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    writeln!(server.stdin.take().unwrap(), "{call}").unwrap();
    let answer: Value = serde_json::from_slice(&server.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(answer["result"]["isError"], json!(false), "{answer}");
    answer["result"]["structuredContent"].clone()
}

#[test]
fn the_gain_and_the_best_case_have_one_value() {
    for (name, kind) in [
        ("sleeper", "no_host_work"),
        ("file_log", "no_host_work"),
        ("numpy_post", "reads_reduced"),
        ("checkpoint", "reads_reduced"),
    ] {
        let (text, json) = (text(&[], name), json_of(name));
        let gain = told(Path::new(TRACES), "report", &json!({"trace": format!("{name}.gpuwhy")}))["gain"].clone();
        assert!(text.contains(gain.as_str().unwrap()), "{name}: {gain} {text}");
        let best = &json["bottleneck"]["best_case"];
        assert_eq!(best["kind"], kind, "{name}");
        let scenarios = json["devices"][0]["what_if"]["scenarios"].as_array().unwrap();
        assert!(scenarios.contains(best), "{name}: {best}");
        let answer = told(Path::new(TRACES), "report", &json!({"trace": format!("{name}.gpuwhy")}));
        assert_eq!(&answer["best_case"], best, "{name}");
    }
}

#[test]
fn shares_of_lines_and_of_causes_are_parts_of_the_share_of_the_bottleneck() {
    for name in ["sleeper", "file_log", "numpy_post", "checkpoint", "hf_generate"] {
        let json = json_of(name);
        let (cause, share) = (json["bottleneck"]["cause"].as_str().unwrap(), number(&json["bottleneck"]["share"]));
        let is_part = |row: &&Value| match row["cause"].as_str().unwrap() {
            "kernel_build" => cause == "kernel_build",
            other => cause == "host_cpu" && !other.starts_with("loader_"),
        };
        let lines = json["host"]["lines"].as_array().unwrap().iter().filter(is_part);
        let sum: f64 = lines.map(|row| number(&row["share"])).sum();
        assert!((0.75 * share..=1.001 * share).contains(&sum), "{name}: {sum} of {share}");
    }
}

#[test]
fn how_busy_the_gpu_is_has_one_value() {
    for (name, share) in [("sleeper", "computing 8 %"), ("file_log", "computing 11 %"), ("checkpoint", "computing 7 %")]
    {
        assert!(text(&[], name).contains(share), "{name}");
        let (shown, busy) = (share[10..].trim_end_matches(" %"), number(&json_of(name)["devices"][0]["busy"]));
        // Copies count, too.
        let shown = shown.parse::<f64>().unwrap() / 100.0;
        assert!((shown - 0.006..shown + 0.1).contains(&busy), "{name}: {busy}");
    }
}

#[test]
fn a_sleep_has_one_share() {
    let json = json_of("sleeper");
    let line = json["host"]["lines"].as_array().unwrap().iter().find(|row| row["line"] == 79).unwrap();
    let of_line = number(&line["share"]);
    let sum = |leaves: &Value, of: &[&str]| of.iter().map(|leaf| number(&leaves[*leaf])).sum::<f64>();
    let device = &json["devices"][0];
    let steady = &device["steady_leaves"];
    let outside = sum(steady, &["host_cpu", "host_blocked", "runtime_api"]);
    // As large a part of the CPU work as the line has of its share.
    let part = sum(steady, &["host_blocked"]) / outside;
    let of_bottleneck = of_line / number(&json["bottleneck"]["share"]);
    assert!((part - of_bottleneck).abs() < 0.05, "{part} {of_bottleneck}");
    let whole: f64 = device["leaves"].as_object().unwrap().values().map(number).sum();
    assert_eq!(whole, number(&device["window_ns"]), "the leaves still sum to the window");
    let detail = text(&["--full"], "sleeper");
    assert!(detail.contains("Of these steps: CPU asleep or blocked (host_blocked) 5"), "{detail}");
    let (_, after) = detail.split_once("The GPU was idle while the launching threads were sleeping ").unwrap();
    let percent: f64 = after.split(' ').next().unwrap().parse().unwrap();
    assert!((percent / 100.0 - of_line).abs() < 0.03, "{percent} {of_line}");
}

#[test]
fn a_part_gains_no_more_than_the_whole() {
    for name in ["sleeper", "file_log", "checkpoint", "busy_cores"] {
        let json = json_of(name);
        let scenarios = json["devices"][0]["what_if"]["scenarios"].as_array().unwrap();
        let all = number(&scenarios.iter().find(|row| row["kind"] == "device_only").unwrap()["speedup"]);
        let of_host = ["no_host_work", "launches_free", "no_syncs", "no_allocations", "data_ready"];
        for fix in json["bottleneck"]["plan"].as_array().unwrap() {
            if of_host.iter().any(|kind| fix["kind"] == *kind) {
                assert!(number(&fix["speedup"]) <= all * 1.000_001, "{name}: {fix} of {all}");
            } else {
                break;
            }
        }
    }
}

#[test]
fn nothing_is_predicted_of_steps_that_measuring_stretched() {
    let full = text(&["--full"], "kernels_measured");
    assert!(full.contains("Gains from changes on the CPU are not predicted") && !full.contains("Best case"), "{full}");
    // The advice is that of the measured kernels.
    // 91 % of the 4.37 of 8.56 ms of a step.
    let gain = "a step would then be about 1.88x faster";
    assert!(
        full.contains("What to do: Kernel bank_conflict: Bank conflicts cause 97 %") && full.contains(gain),
        "{full}"
    );
    let kernels = output(&["kernels"], "kernels_measured").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(kernels.contains(gain), "{kernels}");
}

#[test]
fn older_steps_are_not_left_out() {
    // 1,378 steps, of which 1,024 are kept.
    let d2d = text(&[], "d2d_clones");
    assert!(d2d.contains("(of the last 1024)") && !d2d.contains("Left out"), "{d2d}");
    assert!(text(&[], "sleeper").contains("Left out: start-up"));
}

#[test]
fn monitoring_names_the_line_that_its_samples_saw() {
    let json = json_of("mon_d2d_clones");
    let lines = json["host"]["lines"].as_array().unwrap();
    assert!(lines.iter().any(|row| row["line"].as_u64() > Some(0)), "{lines:?}");
    let shares: f64 = lines.iter().map(|row| number(&row["share"])).sum();
    assert!((0.5..=1.001).contains(&shares), "{shares}");
    let text = text(&[], "mon_d2d_clones");
    assert!(text.contains("The launching thread was ") && text.contains(" of the time after start-up."), "{text}");
    assert!(!text.contains("NVLink 0.00"), "{text}");
}

#[test]
fn a_page_has_the_numbers_of_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    output(&["report", "--html", page.to_str().unwrap()], "sleeper");
    let page = std::fs::read_to_string(page).unwrap();
    let manifest: Value = serde_json::from_slice(&read::block(&page, "doc").unwrap()).unwrap();
    assert_eq!(manifest["report"]["bottleneck"]["best_case"], json_of("sleeper")["bottleneck"]["best_case"]);
    let gain = told(Path::new(TRACES), "report", &json!({"trace": "sleeper.gpuwhy"}))["gain"].clone();
    assert!(page.contains(gain.as_str().unwrap()), "{gain}");
}

#[test]
fn tools_for_agents_take_a_trace_by_one_name_and_list_bottlenecks() {
    let sql = "SELECT count(*) AS n FROM kernels";
    let one = told(Path::new(TRACES), "query", &json!({"sql": sql, "trace": "numpy_post.gpuwhy"}));
    assert_eq!(one, told(Path::new(TRACES), "query", &json!({"sql": sql, "traces": ["numpy_post.gpuwhy"]})));
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(trace("numpy_post"), folder.path().join("a.gpuwhy")).unwrap();
    let listed = told(folder.path(), "list_traces", &json!({}));
    assert_eq!(listed["traces"][0]["bottleneck"], "host_cpu", "{listed}");
}

/// Sentences that another number of the same report, or a measurement, once contradicted.
#[test]
fn sentences_agree_with_the_numbers_beside_them() {
    for (name, wanted, never) in [
        // torch.compile leaves launches, and builds for each new length unless shapes are dynamic.
        ("hf_generate", "(torch.compile, with dynamic=True if shapes change): at most ", "): more than "),
        ("hf_generate", "The last build is after 54 % of the launches after start-up", "in the simulation, too"),
        // Alone it was 1.06x as fast.
        ("neighbor", "hardly delays this program. Probably another process", "Bottleneck:"),
        ("neighbor", "That gains little here. What gains more: Launch fewer", "Bottleneck:"),
        ("kernels_measured", "of repeating units in which gpuwhy measured kernels", "unusual"),
        ("kernels_live_counters", "latency 33 % (most in atomics)", "furthest below"),
        ("mem", "needs capturable=True in the optimizer", "to be built,"),
        ("mem", "waiting for kernels to be built or loaded.", "as steps differ"),
        ("file_log", "faster, because a CPU that is further ahead also hides other delays", "as steps differ"),
        ("changing", "Copy from pinned memory at programs2.py:97", "meanwhile at"),
        ("numpy_post", "make two tensors with torch.empty(..., pin_memory=True)", "make one tensor"),
        ("monitor_auto_changing", "on (samples of up to 20 s before)", "it was unknown"),
        ("mon_d2d_clones", "% (95 % confidence) of the 4.00 s", "any of these"),
        ("mon_d2d_clones", "that are not needed at programs2.py:92 (d2d_clones): 86 %", "The GPU computes"),
    ] {
        let text = text(&[], name);
        assert!(text.contains(wanted) && !text.contains(never), "{name}: {wanted}: {text}");
    }
}
