//! Another profiler in the process: CUPTI serves one at a time, neither harms the other, and missed work is
//! counted.
//!
//! The other profiler is the host program itself, which makes the same calls as PyTorch's Kineto
//! (`otherTool`). gpuwhy detects it by one driver call, of which a fake driver
//! (`support/libcuda.c`) notifies the replay library.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::process::Command;

use crate::support::captured::{Capture, Truth, read, run};
use crate::support::{GPUWHY, Stage, stderr};
use gpuwhy_trace::format::TraceReader;

const MS: u64 = 1_000_000;
/// Two ranges of the program, milliseconds of the recording. Tracing lingers for 200 ms after the first.
const RANGES: &[(u64, u64)] = &[(300, 500), (1200, 1500)];

/// A program that is captured in these ranges, or completely, and in which another profiler acts at the given
/// times.
fn host(stage: &Stage, policy: &str, ranges: &[(u64, u64)], other: &[(u64, &str)]) -> Command {
    let mut calls: Vec<(u64, String)> = ranges
        .iter()
        .copied()
        .flat_map(|(from, to)| [(from, "nvtxRangePushA=epoch".to_owned()), (to, "nvtxRangePop".to_owned())])
        .collect();
    calls.extend(other.iter().map(|(at, does)| (*at, format!("otherTool={does}"))));
    calls.sort();
    let mut host = stage.host("multi_stream");
    host.args(["--ranges", "after"]);
    for (at, call) in calls {
        host.args(["--call", &format!("{at}:{call}")]);
    }
    if !ranges.is_empty() {
        host.env("GPUWHY_CAPTURE_RANGE", "nvtx").env("GPUWHY_NVTX_CAPTURE", "epoch");
    }
    host.env("GPUWHY_CAPTURE_RANGE_END", "repeat").env("GPUWHY_CUPTI_SHARING", policy);
    host.env("LD_PRELOAD", stage.driver());
    // A third of the recorded speed and frequent checks, so that results of a check are recent even on a busy
    // machine.
    host.env("GPUWHY_REPLAY_SPEED", "0.3").env("GPUWHY_FLUSH", "20ms").env("GPUWHY_LOG", "info");
    host
}

/// stderr of the program, and its captures.
fn captures(
    stage: &Stage,
    policy: &str,
    ranges: &[(u64, u64)],
    other: &[(u64, &str)],
) -> (String, BTreeMap<u32, Capture>) {
    let text = stderr(&run(&mut host(stage, policy, ranges, other)));
    let (mut captures, _) = read(&stage.path("trace.gpuwhy"));
    // Records before the first mark belong to the first capture.
    if let Some(unmarked) = captures.remove(&0) {
        captures.get_mut(&1).unwrap().work = unmarked.work;
    }
    assert_eq!(captures.len(), 2, "{text}");
    (text, captures)
}

fn unobserved(stage: &Stage, capture: &str) -> u64 {
    let trace = stage.path("trace.gpuwhy");
    let output = Command::new(GPUWHY).args(["report", "--json", "--capture", capture]).arg(trace).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report["completeness"]["unobserved_ns"].as_u64().unwrap()
}

/// Number of buffers with records that the other tool got, and true if one of them was gpuwhy's.
fn got(text: &str) -> (u64, bool) {
    let (_, with) = text.rsplit_once("buffers").unwrap().0.rsplit_once(" with ").unwrap();
    (with.trim().parse().unwrap(), text.contains("some of another tool"))
}

/// Time at which the other tool got CUPTI, nanoseconds of the recording: the requested time, or later on a
/// busy machine.
fn taken(stage: &Stage, text: &str) -> u64 {
    let trace = BufReader::new(File::open(stage.path("trace.gpuwhy")).unwrap());
    let start = TraceReader::new(trace).unwrap().session().start;
    let at = line(text, "has CUPTI").rsplit_once(" at ").unwrap().1.trim_end_matches(" ns");
    at.parse::<u64>().unwrap() - start.nanos()
}

/// The line about an action of the other tool.
fn line<'a>(text: &'a str, does: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(&format!("other tool: {does}"))).expect(text)
}

#[test]
fn whoever_holds_cupti_keeps_others_out() {
    let truth = Truth::of("multi_stream");
    let stage = Stage::new();
    let (text, captures) = captures(&stage, "hold", RANGES, &[(900, "begin"), (1000, "end")]);
    assert!(text.contains("other tool: refused: MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"), "{text}");
    captures.iter().for_each(|(number, capture)| truth.check(capture, &number.to_string()));
    assert_eq!(unobserved(&stage, "2"), 0);
}

#[test]
fn between_captures_another_tool_has_its_turn() {
    let truth = Truth::of("multi_stream");
    let stage = Stage::new();
    let (text, captures) = captures(&stage, "yield", RANGES, &[(900, "begin"), (1000, "pause")]);
    assert!(text.contains("other tool: has CUPTI: [CuptiResult(0), CuptiResult(0)]"), "{text}");
    let (buffers, handed_ours) = got(line(&text, "pauses"));
    assert!(buffers > 0 && !handed_ours, "{text}");
    captures.iter().for_each(|(number, capture)| truth.check(capture, &number.to_string()));
    assert_eq!(unobserved(&stage, "2"), 0);
}

#[test]
fn a_capture_that_finds_another_tool_recording_says_what_it_missed() {
    let truth = Truth::of("multi_stream");
    let stage = Stage::new();
    let (text, captures) = captures(&stage, "yield", &[(100, 250), (620, 1800)], &[(560, "begin"), (700, "end")]);
    assert!(text.contains("another tool uses CUPTI"), "{text}");
    let (buffers, handed_ours) = got(line(&text, "ends"));
    assert!(buffers > 0 && !handed_ours, "{text}");
    truth.check(&captures[&1], "before");
    let second = &captures[&2];
    let missed = unobserved(&stage, "2");
    // The other tool counts as finished only after half a second without activity.
    assert!((570 * MS..second.end - second.begin).contains(&missed), "{missed} ns missed");
    let (most, least) = (truth.between(700 * MS, second.end), truth.between(second.begin + missed, second.end));
    assert!(second.work.iter().all(|id| most.contains(id)) && least.iter().all(|id| second.work.contains(id)));
    assert!(least.len() > 20, "{}", least.len());
    assert!(text.replace("\n  ", " ").contains("Nothing was recorded for"), "the report says so: {text}");
}

#[test]
fn another_tool_that_comes_in_the_middle_is_noticed_and_recording_goes_on_when_it_is_done() {
    let truth = Truth::of("multi_stream");
    let stage = Stage::new();
    let (text, captures) = captures(&stage, "yield", &[], &[(600, "begin"), (700, "pause")]);
    assert!(text.contains("another tool has taken over CUPTI") && text.contains("recording resumes"), "{text}");
    // The buffers of ours that CUPTI held at that moment go to the other tool. This cannot be avoided; the
    // loss is counted.
    assert!(got(line(&text, "pauses")).0 > 0 && text.contains("never delivered"), "{text}");
    let (first, second) = (&captures[&1], &captures[&2]);
    // The first capture is complete up to the last successful call to CUPTI before the takeover, the second
    // from the time when CUPTI was available again.
    let taken = taken(&stage, &text);
    assert!((200 * MS..=taken).contains(&first.end), "{} of {taken}", first.end);
    // Work that the device had not finished by then is not known to have run; the report counts it.
    let launched = truth.between(0, first.end);
    assert!(launched.starts_with(&first.work));
    assert!(second.begin >= 1200 * MS, "{}", second.begin);
    assert_eq!(second.work, truth.between(second.begin, u64::MAX), "{text}");
    assert!(first.work.len() > 20 && second.work.len() > 20);
    let missed = unobserved(&stage, "2");
    assert_eq!(missed, second.begin - first.end, "all that lies between is accounted for");
}

#[test]
fn nothing_is_recorded_by_a_clock_that_another_tool_has_left() {
    let truth = Truth::of("multi_stream");
    let stage = Stage::new();
    let text = stderr(&run(&mut host(&stage, "yield", &[], &[(600, "begin"), (620, "clock"), (700, "pause")])));
    assert!(text.contains("other tool: clock: SUCCESS"), "{text}");
    assert_eq!(text.matches("has left its own clock in CUPTI").count(), 1, "{text}");
    assert!(!text.contains("recording resumes"), "{text}");
    let (captures, _) = read(&stage.path("trace.gpuwhy"));
    let work: Vec<_> = captures.values().flat_map(|capture| capture.work.clone()).collect();
    let whole = truth.between(0, 600 * MS);
    assert!(work.len() > 20 && whole.starts_with(&work), "{} of {}: {text}", work.len(), whole.len());
    assert!(unobserved(&stage, "1") > 0 && text.replace("\n  ", " ").contains("Nothing was recorded for"), "{text}");
}

#[test]
fn that_yielding_is_in_vain_for_another_copy_of_cupti_is_said() {
    for copies in [1, 2] {
        let stage = Stage::new();
        let mut host = host(&stage, "yield", &[], &[]);
        // Libraries are found in load order, so the first one is in use. The second is any library.
        let files = [stage.path("libcupti.so.13"), stage.path("libcupti.so.12")];
        fs::copy(crate::support::built("libcupti_replay.so"), &files[0]).unwrap();
        fs::copy(stage.driver(), &files[1]).unwrap();
        let preload: Vec<_> = files[..copies].iter().map(|file| file.display().to_string()).collect();
        host.env("LD_PRELOAD", preload.join(":")).env("GPUWHY_CUPTI_PATH", &files[0]).env("GPUWHY_REPLAY_SPEED", "max");
        let text = stderr(&run(&mut host));
        assert_eq!(text.contains("copies of CUPTI in the program"), copies == 2, "{text}");
    }
}

#[test]
fn a_cupti_that_fails_meanwhile_costs_records_and_nothing_else() {
    let stage = Stage::new();
    let mut bare = host(&stage, "yield", RANGES, &[]);
    let bare = bare.env_remove("CUDA_INJECTION64_PATH").env_remove("NVTX_INJECTION64_PATH").output().unwrap();
    for fault in [
        "cuptiUnsubscribe=1@start",
        "cuptiActivityRegisterCallbacks=39@running",
        "cuptiActivityEnable=999@running",
        "cuptiActivityFlushAll=15@running",
        "buffers=foreign",
        "buffers=late",
    ] {
        let stage = Stage::new();
        // The other tool starts between the ranges, and is active again when the second starts.
        let mut host = host(&stage, "yield", RANGES, &[(850, "begin"), (900, "pause"), (1150, "begin"), (1300, "end")]);
        host.env("GPUWHY_REPLAY_FAULT", fault).env("GPUWHY_EXIT_TIMEOUT", "2s").env("GPUWHY_REPLAY_SPEED", "2");
        let output = host.output().unwrap();
        assert_eq!((output.status, &output.stdout), (bare.status, &bare.stdout), "{fault}: {}", stderr(&output));
    }
}

#[test]
fn a_program_that_announces_its_captures_to_cupti_is_reported_that_it_cannot_yield() {
    let stage = Stage::new();
    let mut host = stage.host("multi_stream");
    for call in ["300:cudaProfilerStart", "500:cudaProfilerStop", "900:otherTool=begin"] {
        host.args(["--call", call]);
    }
    host.env("GPUWHY_CAPTURE_RANGE", "cudaProfilerApi").env("GPUWHY_CAPTURE_RANGE_END", "repeat");
    let text = stderr(&run(host.env("GPUWHY_CUPTI_SHARING", "yield").env("GPUWHY_REPLAY_SPEED", "1")));
    assert!(text.contains("other tool: refused"), "{text}");
    let notes = stage.report()["process"]["notes"].to_string();
    assert!(notes.contains("GPUWHY_CUPTI_SHARING=yield has no effect"), "{notes}");
}

/// stderr of a program with another tool before the profiler, or after its start.
fn beside(stage: &Stage, policy: &str, first: Option<&str>, later: Option<&str>) -> String {
    let calls: Vec<_> = later.map(|step| (600, step)).into_iter().chain([(900, "end")]).collect();
    let mut host = host(stage, policy, &[], &calls);
    host.args(["--print", "the program's own"]).args(first.iter().flat_map(|step| ["--other-tool", step]));
    let output = run(&mut host);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "the program's own\n");
    stderr(&output)
}

#[test]
fn a_tool_that_was_first_keeps_cupti_by_either_interface() {
    for step in ["begin", "subscribe_v2"] {
        for policy in ["exclusive", "yield"] {
            let stage = Stage::new();
            let text = beside(&stage, policy, Some(step), None);
            assert!(line(&text, "has CUPTI").contains("has CUPTI"), "{text}");
            assert!(text.contains("another profiler already holds CUPTI in this process"), "{step} {policy}: {text}");
            assert!(line(&text, "ends").contains("ends with"), "it is still subscribed: {text}");
            assert!(!stage.path("trace.gpuwhy").exists(), "{step} {policy}: {text}");
        }
    }
}

#[test]
fn a_tool_of_the_second_interface_that_comes_later_is_told_and_the_trace_is_whole() {
    let truth = Truth::of("multi_stream");
    for policy in ["exclusive", "yield"] {
        let stage = Stage::new();
        let text = beside(&stage, policy, None, Some("subscribe_v2"));
        assert!(text.contains("other tool: refused: MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)"), "{policy}: {text}");
        let (captures, _) = read(&stage.path("trace.gpuwhy"));
        let work: Vec<_> = captures.values().flat_map(|capture| capture.work.clone()).collect();
        assert_eq!(work, truth.between(0, u64::MAX), "{policy}: {text}");
    }
}
