//! Captures end to end: the recorded programs call cudaProfilerStart and cudaProfilerStop, and the trace has
//! exactly the work launched in between.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::support::captured::{Truth, read, run};
use crate::support::program::Program;
use crate::support::{GPUWHY, Stage, counted, keeps_up, stays, stderr};
use serde_json::Value;

const MS: u64 = 1_000_000;

/// A program that calls the profiler API at the given times, milliseconds: start, stop, start, ...
fn host(stage: &Stage, fixture: &str, calls: &[u64]) -> Command {
    let mut host = stage.host(fixture);
    for (at, function) in calls.iter().zip(["cudaProfilerStart", "cudaProfilerStop"].into_iter().cycle()) {
        host.args(["--call", &format!("{at}:{function}")]);
    }
    host.env("GPUWHY_CAPTURE_RANGE", "cudaProfilerApi");
    host
}

fn report(stage: &Stage, arguments: &[&str]) -> Value {
    let output =
        Command::new(GPUWHY).args(["report", "--json"]).args(arguments).arg(stage.path("trace.gpuwhy")).output();
    serde_json::from_slice(&output.unwrap().stdout).unwrap()
}

#[test]
fn exactly_what_was_launched_between_start_and_stop_is_in_the_trace() {
    // Launch-bound; far ahead of the device, so that much work is in flight at the edges; graphs; several
    // streams.
    for (fixture, from, to) in
        [("mlp", 3400, 3600), ("sync_item", 400, 700), ("graph_torch", 500, 900), ("multi_stream", 600, 1100)]
    {
        let truth = Truth::of(fixture);
        for (flush, speed) in [("100ms", "max"), ("10ms", "1")] {
            let stage = Stage::new();
            let mut host = host(&stage, fixture, &[from, to]);
            run(host.env("GPUWHY_FLUSH", flush).env("GPUWHY_REPLAY_SPEED", speed));
            let (captures, _) = read(&stage.path("trace.gpuwhy"));
            let capture = &captures[&1];
            assert!(capture.work.len() > 50, "{fixture}: the range is to have something in it: {}", capture.work.len());
            truth.check(capture, &format!("{fixture} {flush} {speed}"));
            if speed == "max" {
                assert_eq!((capture.begin, capture.end), (from * MS, to * MS), "{fixture}");
            }
            let report = report(&stage, &[]);
            assert_eq!(report["completeness"]["launches_without_activity"], 0, "{fixture}");
            assert_eq!(report["completeness"]["activities_without_launch"], 0, "{fixture}");
        }
    }
}

#[test]
fn ranges_that_repeat_are_captures_of_their_own() {
    let truth = Truth::of("multi_stream");
    let times = [300, 400, 401, 500, 500, 600, 800, 850, 900, 1000];
    for (at_end, count) in [("repeat", 5), ("repeat:3", 3), ("repeat:1", 1), ("stop", 1), ("stop-shutdown", 1)] {
        for speed in ["max", "1"] {
            let stage = Stage::new();
            let mut host = host(&stage, "multi_stream", &times);
            let output = run(host.env("GPUWHY_CAPTURE_RANGE_END", at_end).env("GPUWHY_REPLAY_SPEED", speed));
            let (captures, _) = read(&stage.path("trace.gpuwhy"));
            assert_eq!(captures.len(), count, "{at_end}: {}", stderr(&output));
            for (number, capture) in &captures {
                truth.check(capture, &format!("{at_end} {speed} {number}"));
                let edges = &times[(*number as usize - 1) * 2..][..2];
                assert!(capture.begin >= edges[0] * MS && capture.end >= edges[1] * MS);
            }
            let newest = report(&stage, &[]);
            assert_eq!(newest["capture"], count, "{at_end}");
            for row in newest["captures"].as_array().unwrap() {
                let number = row["number"].to_string();
                let one = report(&stage, &["--capture", &number]);
                assert_eq!(one["capture"], row["number"]);
                assert_eq!(one["completeness"]["records"]["kernels"], row["kernels"]);
                assert_eq!(row["trigger"], "cudaProfilerApi");
            }
        }
    }
}

#[test]
fn in_mode_full_switching_off_does_not_end_the_calls_that_start_captures() {
    let truth = Truth::of("multi_stream");
    let stage = Stage::new();
    // Full records the calls of the profiler API too; recording goes off 0.2 s after the first range.
    let mut host = host(&stage, "multi_stream", &[300, 400, 900, 1000]);
    host.env("GPUWHY_CAPTURE_RANGE_END", "repeat").env("GPUWHY_REPLAY_SPEED", "1").env("GPUWHY_MODE", "full");
    run(&mut host);
    let (captures, _) = read(&stage.path("trace.gpuwhy"));
    assert_eq!(captures.len(), 2);
    captures.iter().for_each(|(number, capture)| truth.check(capture, &number.to_string()));
}

#[test]
fn ranges_without_a_pause_are_exact_while_the_device_is_far_behind() {
    // Some work is still running at every flush, so CUPTI holds back calls and kernels until long after the
    // range.
    for (fixture, width, ranges) in [("multi_stream", 25, 40), ("sync_item", 7, 80)] {
        let truth = Truth::of(fixture);
        let first = if fixture == "gpt" { 3400 } else { 300 };
        let edges: Vec<u64> =
            (0..ranges).flat_map(|range| [first + range * width, first + (range + 1) * width]).collect();
        let stage = Stage::new();
        let mut host = host(&stage, fixture, &edges);
        run(host.env("GPUWHY_CAPTURE_RANGE_END", "repeat").env("GPUWHY_REPLAY_SPEED", "1"));
        let (captures, _) = read(&stage.path("trace.gpuwhy"));
        assert_eq!(captures.len() as u64, ranges, "{fixture}");
        for (number, capture) in &captures {
            truth.check(capture, &format!("{fixture} {number}"));
        }
        assert!(captures.values().map(|capture| capture.work.len()).sum::<usize>() > 300, "{fixture}");
        let completeness = report(&stage, &[])["completeness"].clone();
        assert_eq!(completeness["dropped_by_gpuwhy"], 0, "{fixture}: {completeness}");
    }
}

#[test]
fn a_range_that_begins_while_tracing_is_switched_off_calls_it_back() {
    let truth = Truth::of("multi_stream");
    // Tracing lingers for 0.2 s after the first range; then disabling each of six kinds takes 60 ms.
    let edges = [520, 560, 900, 1100, 1110, 1300];
    let stage = Stage::new();
    let mut host = host(&stage, "multi_stream", &edges[..2]);
    // Play waits until the first of the six is being disabled.
    host.args(["--call", "899:waitForFault"]);
    for (at, function) in edges[2..].iter().zip(["cudaProfilerStart", "cudaProfilerStop"].into_iter().cycle()) {
        host.args(["--call", &format!("{at}:{function}")]);
    }
    host.env("GPUWHY_CAPTURE_RANGE_END", "repeat").env("GPUWHY_REPLAY_SPEED", "1").env("GPUWHY_LOG", "debug");
    let output = run(host.env("GPUWHY_REPLAY_FAULT", "cuptiActivityDisable=60ms"));
    let text = stderr(&output);
    assert!(text.contains("a capture began while CUPTI was being switched off"), "it is to be tried: {text}");
    let (captures, _) = read(&stage.path("trace.gpuwhy"));
    assert_eq!(captures.len(), 3);
    // On a busy machine one call takes longer than the timeout of the wait. Missing work is then reported and
    // counted.
    let missed = text.contains("the first launches of the capture may be missing")
        && report(&stage, &["--capture", "2"])["completeness"]["unobserved_ns"].as_u64() > Some(0);
    for (number, capture) in captures.iter().filter(|(number, _)| **number != 2 || !missed) {
        truth.check(capture, &number.to_string());
        assert!(capture.work.len() > 20, "{number}: {}", capture.work.len());
    }
    let begin = captures[&2].begin / MS;
    assert!((900..1000).contains(&begin), "it waits for one call at most: {begin}");
}

#[test]
fn the_report_at_exit_is_that_of_the_newest_capture_from_the_trace() {
    for speed in ["max", "1"] {
        let stage = Stage::new();
        let mut host = host(&stage, "sync_item", &[200, 300, 310, 600]);
        host.env("GPUWHY_CAPTURE_RANGE_END", "repeat").env("GPUWHY_REPLAY_SPEED", speed);
        let live = stderr(&run(&mut host));
        let again = Command::new(GPUWHY).arg("report").arg(stage.path("trace.gpuwhy")).output().unwrap();
        let live = live.rsplit_once("trace: ").unwrap().0;
        assert_eq!(live.trim(), String::from_utf8(again.stdout).unwrap().trim(), "{speed}");
        assert!(live.contains("Captures: 2; this is the report of number 2"), "{live}");
    }
}

#[test]
fn a_range_that_never_ends_is_captured_to_the_end() {
    let truth = Truth::of("sync_item");
    for at_end in ["none", "stop"] {
        let stage = Stage::new();
        let calls: &[u64] = if at_end == "none" { &[700, 800] } else { &[700] };
        run(host(&stage, "sync_item", calls).env("GPUWHY_CAPTURE_RANGE_END", at_end));
        let (captures, _) = read(&stage.path("trace.gpuwhy"));
        assert!(captures[&1].work == truth.between(700 * MS, u64::MAX), "{at_end}");
    }
}

#[test]
fn without_a_range_nothing_is_recorded_and_no_file_is_left() {
    let stage = Stage::new();
    let output = run(host(&stage, "mlp", &[]).arg("--counts"));
    let text = stderr(&output);
    assert!(text.contains("nothing was captured"), "{text}");
    assert!(!stage.path("trace.gpuwhy").exists());
    // There is not even a device record.
    assert_eq!(counted(&text, "delivered"), 0, "{text}");
}

#[test]
fn the_driver_describes_the_devices_of_a_program_that_waited_for_its_capture() {
    let stage = Stage::new();
    let library = stage.driver();
    run(host(&stage, "multi_stream", &[600, 900]).env("LD_PRELOAD", &library));
    let device = report(&stage, &[])["devices"][0].clone();
    assert_eq!(device["name"], "NVIDIA Test Device");
    assert_eq!(device["compute"]["multiprocessors"], 132);
    assert!(device["compute"]["geometry"]["theoretical_occupancy"].as_f64().unwrap() > 0.0, "{device}");
    let whole = Stage::new();
    run(whole.host("multi_stream").env("LD_PRELOAD", &library));
    assert_eq!(report(&whole, &[])["devices"][0]["name"], "NVIDIA H200", "CUPTI's own word counts where there is one");
}

#[test]
fn after_the_shutdown_the_report_is_out_and_nothing_is_recorded_any_more() {
    let stage = Stage::new();
    // The program continues after the report is printed, and exits with its own status.
    let mut host = host(&stage, "multi_stream", &[300, 500]);
    stays(&mut host, 720, "reported").args(["--counts", "--print", "done", "--exit-code", "5"]);
    let mut child = host.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("trace: ") {
        assert!(said.read_line(&mut text).unwrap() > 0, "{text}");
    }
    stage.go_on("reported");
    said.read_to_string(&mut text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(5), &b"done\n"[..]), "{text}");
    assert_eq!(text.matches("trace: ").count(), 1, "{text}");
    assert!(text.find("trace: ") < text.find("Counts"), "the report comes before the program ends: {text}");
    assert_eq!(report(&stage, &[])["completeness"]["end"], "clean");
    assert!(counted(&text, "left_out") > 2_000, "most of the run comes after the shutdown: {text}");
}

#[test]
fn after_the_shutdown_graphs_are_not_recorded_either() {
    let stage = Stage::new();
    let mut host = host(&stage, "graph_torch", &[600, 800]);
    host.env("GPUWHY_REPLAY_SPEED", "1").env("GPUWHY_REPLAY_VERSION", "130200");
    host.env("GPUWHY_CUDA_GRAPH_TRACE", "graph").arg("--counts");
    let text = stderr(&host.output().unwrap());
    assert!(text.contains("trace: "), "{text}");
    // There would be no buffers for the 170 graphs that follow; a few are in flight.
    assert!(counted(&text, "dropped") < 100, "{text}");
}

#[test]
fn delay_and_duration_choose_by_time() {
    let truth = Truth::of("multi_stream");
    // The program pauses until the capture has started. Then it plays at a third of the recorded speed, so
    // that the end of the capture is known before the end of play.
    let stage = Stage::new();
    let mut host = stage.host("multi_stream");
    stays(&mut host, 700, "begun").env("GPUWHY_REPLAY_SPEED", "0.3");
    host.env("GPUWHY_DELAY", "600ms").env("GPUWHY_DURATION", "300ms");
    let child = host.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let program = Program { stage, child };
    program.wait_for(|| program.socket().exists());
    program.wait_for(|| program.ask("status")["state"] == "capturing");
    program.stage.go_on("begun");
    let (stage, _) = program.end();
    let report = report(&stage, &[]);
    let row = &report["captures"][0];
    let start = report["process"]["start_time_unix_ns"].as_u64().unwrap();
    let [begin, end] = ["begin_unix_ns", "end_unix_ns"].map(|edge| row[edge].as_u64().unwrap() - start);
    // Never early; the delay depends on the scheduler.
    assert!(begin >= 600 * MS && end >= 900 * MS && end > begin, "{row}");
    assert_eq!(row["trigger"], "delay");
    let (captures, _) = read(&stage.path("trace.gpuwhy"));
    truth.check(&captures[&1], "delay");
}

#[test]
fn steps_that_are_detected_are_captured() {
    let stage = Stage::new();
    let mut host = stage.host("sync_item");
    // There are no flushes after the end of the capture.
    keeps_up(&mut host, (0..9).map(|slice| slice * 50)).env("GPUWHY_FLUSH", "10ms");
    run(host.env("GPUWHY_STEPS", "1000,0,0,1000,1").env("GPUWHY_REPLAY_SPEED", "0.3"));
    let report = report(&stage, &[]);
    let captures = &report["captures"];
    assert_eq!((captures.as_array().unwrap().len(), &captures[0]["trigger"]), (1, &Value::from("steps")), "{captures}");
    // A step has one kernel. Start and end are known only some flushes later, so the count is close to the
    // requested one.
    let kernels = captures[0]["kernels"].as_u64().unwrap();
    assert!((100..5000).contains(&kernels) && captures[0]["end_unix_ns"].is_u64(), "{captures}");
    let notes = report["process"]["notes"].to_string();
    assert!(notes.contains("tracing is on also while nothing is captured"), "{notes}");
}

#[test]
fn rules_of_cupti_hold_and_a_fork_in_a_capture_is_left_alone() {
    for (when, child) in [("after", "exit"), ("end", "exit"), ("end", "nothing")] {
        let stage = Stage::new();
        let mut host = host(&stage, "multi_stream", &[300, 500, 600, 800]);
        run(host.env("GPUWHY_CAPTURE_RANGE_END", "repeat").args(["--fork", when, "--child", child]));
        assert_eq!(report(&stage, &[])["captures"].as_array().unwrap().len(), 2);
    }
}

/// A program whose main thread pushes and pops ranges at the given times, milliseconds; `None` is a pop.
fn host_with_ranges(stage: &Stage, fixture: &str, ranges: &[(u64, Option<&str>)]) -> Command {
    let mut host = stage.host(fixture);
    host.args(["--ranges", "after"]);
    for (at, name) in ranges {
        let function = name.map_or("nvtxRangePop".to_owned(), |name| format!("nvtxRangePushA={name}"));
        host.args(["--call", &format!("{at}:{function}")]);
    }
    host
}

#[test]
fn a_range_of_the_program_is_captured_from_its_push_to_its_pop() {
    let truth = Truth::of("multi_stream");
    // Ranges inside belong to the capture, even one of the same name; its next occurrence is another capture.
    let ranges = [
        (200, Some("other")),
        (300, Some("epoch")),
        (400, Some("epoch")),
        (450, None),
        (600, None),
        (650, None),
        (700, Some("epoch")),
        (800, None),
    ];
    for (at_end, expected) in [("repeat", vec![(300, 600), (700, 800)]), ("stop", vec![(300, 600)])] {
        let stage = Stage::new();
        let mut host = host_with_ranges(&stage, "multi_stream", &ranges);
        host.env("GPUWHY_CAPTURE_RANGE", "nvtx").env("GPUWHY_NVTX_CAPTURE", "epoch");
        run(host.env("GPUWHY_CAPTURE_RANGE_END", at_end));
        let (captures, _) = read(&stage.path("trace.gpuwhy"));
        let edges: Vec<_> = captures.values().map(|capture| (capture.begin / MS, capture.end / MS)).collect();
        assert_eq!(edges, expected, "{at_end}");
        let report = report(&stage, &[]);
        let context = format!("{at_end}: {}", report["completeness"]);
        captures.values().for_each(|capture| truth.check(capture, &context));
        assert_eq!(report["captures"][0]["trigger"], "nvtx");
    }
    let stage = Stage::new();
    let mut host = host_with_ranges(&stage, "multi_stream", &ranges);
    host.env("GPUWHY_CAPTURE_RANGE", "nvtx").env("GPUWHY_NVTX_CAPTURE", "epoch@elsewhere");
    let text = stderr(&run(&mut host));
    let why = "no capture began by the range epoch@elsewhere; the first ranges that the program opened: ";
    let opened = text.split(why).nth(1).unwrap_or_else(|| panic!("{text}"));
    assert!(opened.contains("epoch, ") && opened.contains("step 0@worker"), "{text}");
}

#[test]
fn steps_with_a_name_follow_the_schedule() {
    let truth = Truth::of("multi_stream");
    let steps: Vec<_> = (3..12).flat_map(|step| [(step * 100, Some("step")), (step * 100 + 90, None)]).collect();
    let stage = Stage::new();
    let mut host = host_with_ranges(&stage, "multi_stream", &steps);
    // The first step is skipped; then one waits, one warms up and two are captured, twice.
    run(host.env("GPUWHY_STEPS", "1,1,1,2,2").env("GPUWHY_NVTX_CAPTURE", "step"));
    let (captures, _) = read(&stage.path("trace.gpuwhy"));
    let edges: Vec<_> = captures.values().map(|capture| (capture.begin / MS, capture.end / MS)).collect();
    assert_eq!(edges, [(600, 790), (1000, 1190)]);
    captures.values().for_each(|capture| truth.check(capture, "steps"));
}
