//! Source lines inside kernels: from a libcupti that plays PC samples, through the real libprof.so and the
//! modules next to the trace, to the page. Recording needs the feature `pc-sampling`; showing is in every
//! build.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::kernels::{Outcome, PcCount, PcFunction, PcWindow};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Loss, Timestamp};
use serde_json::Value;

use crate::kernels;
use crate::support::{GPUWHY, Stage, stderr};

/// Checksum of the module, as returned by `cuptiGetCubinCrc` of CUPTI 13.0.85.
const MODULE: &str = "00000000c4e7679c";
/// Line 5 of its source is at offsets 0x90, 0xc0 and 0x180 of `gather`, line 4 at 0xb0.
const SAMPLES: &str = "gather 0x0 selected 30
gather 0x90 long_scoreboard 500
gather 0xc0 long_scoreboard 300
gather 0xb0 selected 40
gather 0xb0 wait 30
copy 0xc0 long_scoreboard 90
copy 0xd0 barrier 10";

fn module() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/gather.cubin")
}

/// Adds the PC samples to the file that the replay library plays.
fn play(stage: &Stage) {
    let path = stage.path("counters.txt");
    let head = "chip GH100\ninterval 5000000\nmetrics sm__cycles_active.avg\n".to_owned();
    let mut file = fs::read_to_string(&path).unwrap_or(head);
    file.push_str(&format!("module {MODULE} {}\n", module().display()));
    for line in SAMPLES.lines() {
        file.push_str(&format!("pc {MODULE} {line}\n"));
    }
    // A library without line information, whose module is not kept.
    file.push_str("pc 7 cublas 0x10 wait 200\n");
    fs::write(path, file).unwrap();
}

/// Writes a trace with these samples, and its module next to it, as a build with the feature does.
fn write(stage: &Stage) {
    const REASONS: [&str; 4] = ["selected", "long_scoreboard", "wait", "barrier"];
    const FUNCTIONS: [(u64, &str); 3] = [(0xc4e7_679c, "gather"), (0xc4e7_679c, "copy"), (7, "cublas")];
    let count = |line: &str| {
        let [function, offset, reason, samples] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let index = |found: Option<usize>| found.unwrap() as u32;
        PcCount {
            function: index(FUNCTIONS.iter().position(|&(_, name)| name == function)),
            offset: u64::from_str_radix(&offset[2..], 16).unwrap(),
            reason: index(REASONS.iter().position(|&name| name == reason)),
            samples: samples.parse().unwrap(),
        }
    };
    let window = PcWindow {
        outcome: Outcome::Measured,
        end: Timestamp::from_nanos(200_000_000),
        period_cycles: 1 << 18,
        reasons: REASONS.map(|name| format!("smsp__pcsamp_warps_issue_stalled_{name}")).to_vec(),
        functions: FUNCTIONS.map(|(module, name)| PcFunction { module, symbol: name.to_owned() }).to_vec(),
        counts: SAMPLES.lines().chain(["cublas 0x10 wait 200"]).map(count).collect(),
        samples: 1_200,
        ..PcWindow::default()
    };
    let dictionary = Dictionary::new();
    let file = fs::File::create(stage.path("trace.gpuwhy")).unwrap();
    let mut writer = TraceWriter::new(file, &ProcessInfo::default()).unwrap();
    writer.event(&Event::ProgramCounters(Arc::new(window)), &dictionary).unwrap();
    writer.finish(End::Clean, Timestamp::from_nanos(300_000_000), &Loss::default(), &dictionary).unwrap();
    fs::create_dir(stage.path("trace.gpuwhy.cubins")).unwrap();
    fs::copy(module(), kept(stage)).unwrap();
}

/// Path of the module next to the trace.
fn kept(stage: &Stage) -> PathBuf {
    stage.path(&format!("trace.gpuwhy.cubins/{MODULE}.cubin"))
}

/// The recorded GPT with PC sampling for a short time.
fn host(stage: &Stage) -> Command {
    play(stage);
    let mut host = stage.host("gpt");
    host.env("GPUWHY_REPLAY_COUNTERS", "counters.txt").env("GPUWHY_KERNEL_SOURCE", "200ms");
    host.env("GPUWHY_GPU_METRICS", "off");
    host
}

/// The same, but it runs until PC sampling is over.
fn sampled(stage: &Stage) -> Command {
    let mut host = host(stage);
    host.args(["--call", "10000:programCounters=over"]);
    host
}

fn shown(stage: &Stage, options: &[&str]) -> Output {
    let mut command = Command::new(GPUWHY);
    // Hides disassemblers of this machine.
    command.env("PATH", stage.path("bin")).env_remove("CUDA_HOME").env_remove("CUDA_PATH").env_remove("VIRTUAL_ENV");
    command.env_remove("CONDA_PREFIX").arg("kernels").args(options).arg(stage.path("trace.gpuwhy")).output().unwrap()
}

fn json(stage: &Stage) -> Value {
    let output = shown(stage, &["--source", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)))
}

fn text(stage: &Stage) -> String {
    let output = shown(stage, &["--source"]);
    assert!(output.status.success(), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[cfg_attr(not(feature = "pc-sampling"), ignore = "SKIPPED: needs --features pc-sampling")]
fn program_counters_are_sampled_and_modules_kept() {
    let stage = Stage::new();
    let output = sampled(&stage).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let source = &json(&stage)["source"];
    assert_eq!(source["outcomes"][0], "measured", "{}", stderr(&output));
    assert_eq!((&source["samples"], &source["lost_samples"]), (&1_200.into(), &0.into()), "{source:#}");
    let kept = kept(&stage);
    assert_eq!(fs::read(&kept).unwrap(), fs::read(module()).unwrap());
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600, "for the user alone");
    assert_eq!(fs::metadata(kept.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(stage.report().pointer("/bottleneck/cause").unwrap(), "gpu_compute");
}

#[test]
fn program_counters_are_reported_by_source_line() {
    let stage = Stage::new();
    write(&stage);
    let report = json(&stage);
    let source = &report["source"];
    assert_eq!(source["outcomes"][0], "measured");
    assert_eq!((&source["samples"], &source["lost_samples"]), (&1_200.into(), &0.into()), "{source:#}");
    let gather = &source["functions"][0];
    assert_eq!((&gather["name"], &gather["samples"]), (&"gather".into(), &900.into()));
    let line = &gather["lines"][0];
    assert_eq!((&line["file"], &line["line"], &line["samples"]), (&"/src/gather.cu".into(), &5.into(), &800.into()));
    assert_eq!(line["stalls"]["long_scoreboard"], 800);
    assert!(line["waiting_low"].as_f64() > Some(0.9), "{line:#}");
    assert_eq!((&gather["hot_line"], &gather["lines"][1]["line"]), (&0.into(), &4.into()));
    assert!(source["functions"][1]["lines"].as_array().unwrap().is_empty(), "cublas has no module");
    let page = text(&stage);
    for part in ["gather.cu:5", "To do: load earlier", "nvdisasm", "cublas"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // Without the modules, only the lines are missing.
    fs::remove_dir_all(stage.path("trace.gpuwhy.cubins")).unwrap();
    let gather = json(&stage)["source"]["functions"][0].clone();
    assert_eq!((&gather["samples"], gather["lines"].as_array().unwrap().len()), (&900.into(), 0));
    assert!(text(&stage).contains("-lineinfo"));
}

#[test]
fn a_disassembler_puts_instructions_into_words() {
    let stage = Stage::new();
    write(&stage);
    fs::create_dir(stage.path("bin")).unwrap();
    let program = stage.path("bin/nvdisasm");
    let script = "#!/bin/sh\necho '\t.section\t.text.gather,\"ax\"'\necho '  /*0090*/  LDG.E R3, desc[UR4][R2.64] ;'\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let page = text(&stage);
    assert!(page.contains("LDG.E R3, desc[UR4][R2.64]") && !page.contains("not in PATH"), "{page}");
    fs::write(&program, "#!/bin/sh\necho broken >&2\nexit 3\n").unwrap();
    assert!(text(&stage).contains("gather.cu:5"));
}

#[test]
#[cfg_attr(not(feature = "pc-sampling"), ignore = "SKIPPED: needs --features pc-sampling")]
fn kernels_are_measured_after_program_counters() {
    let shapes = kernels::shapes(kernels::ENOUGH);
    let stage = Stage::new();
    let mut host = kernels::host_after(&stage, &shapes, Some("programCounters=over"));
    play(&stage);
    let output = host.env("GPUWHY_KERNEL_SOURCE", "100ms").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&stage);
    assert_eq!((&report["source"]["samples"], &report["source"]["foreign_samples"]), (&1_200.into(), &0.into()));
    let outcomes: Vec<_> =
        report["measured"].as_array().unwrap().iter().map(|of| of["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["measured", "measured"], "{}", stderr(&output));
    assert!(report["measured"][0]["lines"].is_array());
}

#[test]
#[cfg_attr(not(feature = "pc-sampling"), ignore = "SKIPPED: needs --features pc-sampling")]
fn a_refusal_is_reported_and_everything_else_is_as_without() {
    for (fault, outcome, reason) in [
        ("cuptiPCSamplingEnable=35", "refused", "may not read the counters"),
        ("cuptiProfilerGetCounterAvailability=26", "busy", "holds its counters"),
        ("cuptiPCSamplingSetConfigurationAttribute=999", "refused", "error 999"),
        ("cuptiPCSamplingStart=8", "refused", "error 8"),
        ("cuptiPCSamplingGetData=999", "not_launched", "nothing ran"),
        ("cuptiGetDeviceId=1", "not_launched", "no module was loaded"),
    ] {
        let stage = Stage::new();
        let mut host = host(&stage);
        host.env("GPUWHY_REPLAY_FAULT", fault).args(["--call", "10000:programCounters=refused"]);
        if fault.starts_with("cuptiGetDeviceId") {
            // Other code queries the device too, so the fault is not specific to the sampler; give it the
            // time of the run.
            host.env("GPUWHY_REPLAY_SPEED", "1");
        }
        let output = host.output().unwrap();
        assert!(output.status.success(), "{fault}: {}", stderr(&output));
        let source = json(&stage)["source"].clone();
        assert_eq!((&source["outcomes"][0], &source["samples"]), (&outcome.into(), &0.into()), "{fault}: {source:#}");
        assert!(source["reasons"][0].as_str().unwrap().contains(reason), "{fault}: {source:#}");
        assert!(text(&stage).contains("not sampled: "), "{fault}");
        assert_eq!(stage.report().pointer("/bottleneck/cause").unwrap(), "gpu_compute", "{fault}");
    }
    // A failure after sampling is over loses no samples.
    let stage = Stage::new();
    let mut host = host(&stage);
    host.env("GPUWHY_REPLAY_FAULT", "cuptiPCSamplingDisable=999").args(["--call", "10000:programCounters=begun"]);
    let output = host.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(json(&stage)["source"]["samples"], 1_200);
}

#[test]
#[cfg_attr(not(feature = "pc-sampling"), ignore = "SKIPPED: needs --features pc-sampling")]
fn a_context_or_a_program_that_ends_early_leaves_what_was_sampled() {
    for end in [Some("10000:programCounters=endContext"), None] {
        let stage = Stage::new();
        let mut host = host(&stage);
        host.env("GPUWHY_KERNEL_SOURCE", "30s").args(["--call", "10000:programCounters=begun"]);
        if let Some(end) = end {
            host.args(["--call", end]);
        }
        let output = host.output().unwrap();
        assert!(output.status.success(), "{end:?}: {}", stderr(&output));
        assert_eq!(json(&stage)["source"]["samples"], 1_200, "{end:?}: {}", stderr(&output));
    }
    // Too short for a window: the report notes that, and there are no samples.
    let stage = Stage::new();
    assert!(host(&stage).args(["--until", "1"]).status().unwrap().success());
    if stage.path("trace.gpuwhy").exists() {
        assert_eq!(json(&stage)["source"]["outcomes"][0], "not_launched");
    }
}

#[test]
fn nothing_is_sampled_or_kept_unless_it_is_asked_for() {
    let stage = Stage::new();
    assert!(host(&stage).env_remove("GPUWHY_KERNEL_SOURCE").status().unwrap().success());
    assert!(!stage.path("trace.gpuwhy.cubins").exists());
    let report = json(&stage);
    assert!(report["source"]["outcomes"].as_array().unwrap().is_empty());
    assert!(text(&stage).contains("gpuwhy kernels --source -- COMMAND"));
    let plain = shown(&stage, &["--json"]);
    let plain: Value = serde_json::from_slice(&plain.stdout).unwrap();
    assert!(plain.get("source").is_none() && plain["unmeasured"][0].get("lines").is_none());
}

#[test]
#[cfg_attr(not(feature = "pc-sampling"), ignore = "SKIPPED: needs --features pc-sampling")]
fn the_command_samples_a_program_and_shows_its_lines() {
    let stage = Stage::new();
    let mut host = sampled(&stage);
    host.env_remove("GPUWHY_KERNEL_SOURCE");
    let mut command = Command::new(GPUWHY);
    command.args(["kernels", "--source", "--json", "--top", "1", "--output", "traces", "--"]);
    command.arg(host.get_program()).args(host.get_args()).current_dir(stage.path("."));
    for (name, value) in host.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = shown.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{shown}"));
    let source = serde_json::from_str::<Value>(line).unwrap()["source"].clone();
    assert_eq!((&source["outcomes"][0], &source["samples"]), (&"measured".into(), &1_200.into()), "{source:#}");
    assert_eq!(source["functions"][0]["lines"][0]["line"], 5, "{source:#}");
    let kept = fs::read_dir(stage.path("traces")).unwrap().flatten().map(|entry| entry.file_name());
    let modules: Vec<_> = kept.map(|name| name.to_string_lossy().ends_with(".cubins")).collect();
    assert_eq!((modules.len(), modules.contains(&true)), (2, true), "the trace and its modules are kept");
}

#[test]
#[cfg(not(feature = "pc-sampling"))]
fn a_build_without_pc_sampling_says_how_to_make_one() {
    let stage = Stage::new();
    let output = Command::new(GPUWHY).args(["kernels", "--source", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no PC sampling") && stderr(&output).contains("--features pc-sampling"));
    let output = host(&stage).output().unwrap();
    assert!(output.status.success() && stderr(&output).contains("--features pc-sampling"), "{}", stderr(&output));
    assert!(json(&stage)["source"]["outcomes"].as_array().unwrap().is_empty());
    assert!(!stage.path("trace.gpuwhy.cubins").exists());
}

#[test]
#[cfg_attr(not(feature = "pc-sampling"), ignore = "SKIPPED: needs --features pc-sampling")]
fn the_option_sets_the_variable_and_keeps_a_duration_that_is_set() {
    let stage = Stage::new();
    let reported = |options: &[&str], set: Option<&str>| {
        let _ = fs::remove_file(stage.path("told"));
        let mut command = Command::new(GPUWHY);
        command.arg("kernels").args(options).args(["--", "sh", "-c", "echo $GPUWHY_KERNEL_SOURCE > told"]);
        command.env_remove("GPUWHY_KERNEL_SOURCE").envs(set.map(|value| ("GPUWHY_KERNEL_SOURCE", value)));
        let output = command.current_dir(stage.path(".")).output().unwrap();
        let reported = fs::read_to_string(stage.path("told")).ok().map(|reported| reported.trim().to_owned());
        (reported, output.status.code(), stderr(&output))
    };
    for (options, set, wanted) in [
        (&["--source"][..], None, "on"),
        (&["--source", "--json"], Some(""), "on"),
        (&["--source"], Some("off"), "on"),
        (&["--source"], Some("200ms"), "200ms"),
        (&[], Some("2s"), "2s"),
        (&[], None, ""),
    ] {
        let (reported, _, said) = reported(options, set);
        assert_eq!(reported.as_deref(), Some(wanted), "{options:?} {set:?}: {said}");
    }
    // An invalid value is reported before the program starts.
    let (reported, code, said) = reported(&["--source"], Some("2h"));
    assert!(reported.is_none() && code == Some(2), "{reported:?} {code:?}");
    assert!(said.contains("GPUWHY_KERNEL_SOURCE=\"2h\"") && said.contains("50ms to 1m"), "{said}");
}
