//! NVML readings and hardware counters: from a driver, an NVML and a libcupti that play them, through the
//! real libprof.so into the trace.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::BufReader;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use gpuwhy_trace::counters::{
    CounterEvent, CounterLoss, GaugeReading, Metric, MetricSet, ProcessReading, Sample, UnavailableReason,
};
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceReader;
use gpuwhy_trace::record::Record;

use crate::support::{GPUWHY, Stage, report, stderr};

/// Duration of a recorded sample, nanoseconds.
const INTERVAL: u64 = 5_000_000;
/// Approximate length of the recording that is played, nanoseconds: later samples are not reached.
const RECORDED: u64 = 2_600_000_000;
const NVML: &str = "power=650000,temperature=61,hbm=72,clock=1755,memory_clock=3201,highest=1980,reasons=4,used=5e9,\
                    energy=7e6,traffic=1e9";
const METRICS: [&str; 6] = [
    "gpc__cycles_elapsed.avg.per_second",
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum.per_second",
    "dram__bytes_write.sum.per_second",
];

/// Device events of a trace.
#[derive(Debug, Default)]
struct Seen {
    sets: Vec<MetricSet>,
    samples: Vec<Sample>,
    gauges: Vec<GaugeReading>,
    processes: Vec<ProcessReading>,
    losses: Vec<CounterLoss>,
    kernels: usize,
}

impl Seen {
    fn of(stage: &Stage) -> Self {
        let mut seen = Self::default();
        let file = File::open(stage.path("trace.gpuwhy")).unwrap();
        let mut reader = TraceReader::new(BufReader::new(file)).unwrap();
        while let Some(item) = reader.next_event().unwrap() {
            match item {
                Event::Counters(event) => match *event {
                    CounterEvent::Set(set) => seen.sets.push(set),
                    CounterEvent::Sample(sample) => seen.samples.push(sample),
                    CounterEvent::Gauges(gauges) => seen.gauges.push(gauges),
                    CounterEvent::Process(process) => seen.processes.push(process),
                    CounterEvent::Loss(loss) => seen.losses.push(loss),
                },
                Event::Record(Record::Kernel(_)) => seen.kernels += 1,
                _ => {}
            }
        }
        seen
    }

    fn refused(&self) -> Option<UnavailableReason> {
        self.losses.last().and_then(|loss| loss.refused)
    }
}

/// Samples from the start of the recording to its end: sample number `n` reads `n` % of the bandwidth, from 0
/// to 99 repeatedly. `more` statements precede them.
fn recorded(chip: &str, more: &str) -> String {
    let mut text = format!("chip {chip}\ninterval {INTERVAL}\nmetrics {}\n{more}", METRICS.join(" "));
    for number in 0..RECORDED / INTERVAL {
        let begin = number * INTERVAL;
        let dram = number % 100;
        writeln!(text, "sample {begin} {} 1.75e9 75 12.5 {dram} {dram}e9 1e9", begin + INTERVAL).unwrap();
    }
    text
}

/// Command for a program on a machine with a device, at the recorded speed.
fn program(stage: &Stage, says: &str, counters: Option<&str>) -> Command {
    let mut host = stage.host("resnet_workers0");
    let nvml = Path::new(GPUWHY).parent().unwrap().join("examples/libreplay_nvml.so");
    assert!(nvml.is_file(), "{} was not built: run `cargo test --workspace`", nvml.display());
    symlink(nvml, stage.path("libnvidia-ml.so.1")).unwrap();
    host.env("LD_PRELOAD", stage.driver()).env("LD_LIBRARY_PATH", stage.folder.path()).env("REPLAY_NVML", says);
    if let Some(counters) = counters {
        fs::write(stage.path("counters.txt"), counters).unwrap();
        host.env("GPUWHY_REPLAY_COUNTERS", stage.path("counters.txt"));
    }
    host.env("GPUWHY_REPLAY_SPEED", "1").env("GPUWHY_REPORT", "off");
    host
}

fn run(stage: &Stage, host: &mut Command) -> (Seen, String) {
    let output = host.output().unwrap();
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    (Seen::of(stage), text)
}

#[test]
fn gauges_are_read_without_being_asked_for() {
    let stage = Stage::new();
    let (seen, text) = run(&stage, &mut program(&stage, NVML, Some(&recorded("GH100", ""))));
    assert_eq!((text.as_str(), seen.sets.len(), seen.samples.len()), ("", 0, 0));
    assert!(seen.gauges.len() >= 4 && seen.kernels > 1000, "{seen:?}");
    let last = seen.gauges.last().unwrap();
    assert_eq!(
        (last.power_mw, last.temperature_c, last.memory_temperature_c, last.sm_clock_mhz, last.memory_clock_mhz),
        (Some(650_000), Some(61), Some(72), Some(1755), Some(3201))
    );
    assert_eq!((last.throttle, last.memory_used_bytes), (Some(4), Some(5_000_000_000)));
    assert_eq!((last.nvlink_sent_bytes, last.nvlink_received_bytes), (None, None));
    // A gigabyte passes between two reads of the 32-bit counters, which are read more often than readings are
    // recorded.
    let traffic: Vec<u64> = seen.gauges.iter().map(|gauges| gauges.pcie_received_bytes.unwrap()).collect();
    assert!(traffic.windows(2).all(|pair| pair[1] >= pair[0] + 1_000_000_000), "{traffic:?}");
    assert!(
        traffic.iter().all(|bytes| bytes % 1_000_000_000 == 0) && *traffic.last().unwrap() > 1 << 32,
        "{traffic:?}"
    );
    // Energy is slow to read, so it is read only at the start and at the end.
    let energy: Vec<u64> = seen.gauges.iter().filter_map(|gauges| gauges.energy_mj).collect();
    assert_eq!(energy, [7_000_000, 7_001_000]);
    assert!(seen.gauges.windows(2).all(|pair| pair[0].at <= pair[1].at), "{seen:?}");
}

#[test]
fn other_processes_are_read_where_this_one_is_listed() {
    let other = ",busy=98,process=1:66:71e9";
    let stage = Stage::new();
    let (seen, text) = run(&stage, &mut program(&stage, &format!("{NVML}{other},self"), None));
    assert_eq!(text, "");
    assert!((2..=6).contains(&seen.processes.len()), "about one a second: {:?}", seen.processes);
    let name = fs::read_to_string("/proc/1/comm").unwrap();
    for process in &seen.processes {
        assert_eq!((process.pid, process.busy_percent, process.memory_bytes), (1, Some(66), Some(71_000_000_000)));
        assert!(process.name.as_str().starts_with(name.trim()), "{process:?}");
    }
    assert!(seen.gauges.iter().any(|gauges| gauges.busy_percent == Some(98)), "{:?}", seen.gauges);
    // Process ids of another namespace would name the wrong process.
    let stage = Stage::new();
    let (seen, _) = run(&stage, &mut program(&stage, &format!("{NVML}{other}"), None));
    assert!(seen.processes.is_empty(), "{:?}", seen.processes);
}

#[test]
fn samples_reach_the_trace_in_the_recordings_time() {
    let stage = Stage::new();
    let mut host = program(&stage, NVML, Some(&recorded("GH100", "")));
    let (seen, text) = run(&stage, host.env("GPUWHY_GPU_METRICS", "on"));
    assert_eq!(text, "");
    let [set] = seen.sets.as_slice() else { panic!("{:?}", seen.sets) };
    let wanted = [
        Metric::Clock,
        Metric::MultiprocessorsActive,
        Metric::Issue,
        Metric::Dram,
        Metric::DramRead,
        Metric::DramWrite,
    ];
    assert_eq!((set.chip.as_str(), set.metrics.as_slice()), ("GH100", wanted.as_slice()));
    assert_eq!((set.interval_ns, set.highest_clock_hz, set.multiprocessors), (INTERVAL, 1_980_000_000, 132));
    let loss = seen.losses.last().unwrap();
    assert_eq!((loss.lost, loss.incomplete, loss.first_dropped, loss.refused), (0, 0, 1, None));
    // The first sample is dropped, because it starts seconds earlier; all later ones are there, with the
    // recorded values.
    assert!(seen.samples.len() > 100, "{} samples", seen.samples.len());
    let start = seen.samples[0].begin.nanos();
    for (place, sample) in seen.samples.iter().enumerate() {
        assert_eq!(sample.begin.nanos(), start + place as u64 * INTERVAL);
        assert_eq!(sample.end.since(sample.begin), INTERVAL);
    }
    let dram: Vec<f32> = seen.samples.iter().map(|sample| sample.value(set, Metric::Dram).unwrap()).collect();
    assert!(dram.windows(2).all(|pair| pair[1] == (pair[0] + 1.0) % 100.0), "{dram:?}");
    assert!(seen.samples.iter().all(|sample| sample.value(set, Metric::Issue) == Some(12.5)));
    assert!(!seen.gauges.is_empty(), "gauges beside samples");
}

#[test]
fn a_named_rate_is_sampled_at() {
    let stage = Stage::new();
    let mut host = program(&stage, NVML, Some(&recorded("GH100", "")));
    let (seen, _) = run(&stage, host.env("GPUWHY_GPU_METRICS", "on:50"));
    assert_eq!(seen.sets[0].interval_ns, 20_000_000);
    assert!(seen.samples.iter().all(|sample| sample.end.since(sample.begin) == 20_000_000), "{:?}", seen.samples);
    assert!(seen.samples.len() > 20);
}

#[test]
fn a_refusal_is_kept_and_said_only_to_those_who_asked() {
    for (fault, refusal, words) in [
        ("cuptiPmSamplingGetCounterAvailability=26", UnavailableReason::Busy, "another tool has the GPU's counters"),
        ("cuptiPmSamplingSetConfig=26", UnavailableReason::Busy, "dcgmi profile --pause"),
        ("cuptiPmSamplingStart=35", UnavailableReason::NotPermitted, "NVreg_RestrictProfilingToAdminUsers=0"),
        ("cuptiPmSamplingEnable=43", UnavailableReason::NotSupported, "use the whole GPU"),
        ("cuptiProfilerInitialize=999", UnavailableReason::Failed(999), "CUPTI answered UNKNOWN (999)"),
    ] {
        let stage = Stage::new();
        let mut host = program(&stage, NVML, Some(&recorded("GH100", "")));
        host.env("GPUWHY_REPLAY_FAULT", fault).env("GPUWHY_GPU_METRICS", "on");
        let (seen, text) = run(&stage, &mut host);
        assert_eq!((seen.refused(), seen.samples.len()), (Some(refusal), 0), "{fault}");
        assert_eq!(text.matches("GPU counters of device 0 are not sampled: ").count(), 1, "{fault}: {text}");
        assert!(text.contains(words), "{fault}: {text}");
        assert!(seen.gauges.len() >= 4 && seen.kernels > 1000, "{fault}: everything else goes on");
    }
}

#[test]
fn a_library_without_counters_leaves_gauges() {
    let stage = Stage::new();
    let mut host = program(&stage, NVML, None);
    let (seen, text) = run(&stage, host.env("GPUWHY_GPU_METRICS", "auto"));
    // The replay library has the functions, and responds like a libcupti without counters.
    assert_eq!((text.as_str(), seen.refused()), ("", Some(UnavailableReason::TooOld)));
    assert!(seen.samples.is_empty() && seen.gauges.len() >= 4);
}

#[test]
fn a_unit_that_sends_nothing_is_left_out() {
    // This NVML counts no traffic, so links would be sampled; those of PCI Express never complete.
    let silent = "silent pcie__read_bytes.sum.per_second pcie__write_bytes.sum.per_second\n";
    let stage = Stage::new();
    let mut host = program(&stage, "power=650000", Some(&recorded("GH100", silent)));
    let (seen, text) = run(&stage, host.env("GPUWHY_GPU_METRICS", "on"));
    assert_eq!(text, "");
    let lists: Vec<_> = seen.sets.iter().map(|set| set.metrics.as_slice()).collect();
    assert!(lists.len() == 2 && lists[0].contains(&Metric::PcieRead), "{lists:?}");
    assert!(!lists[1].contains(&Metric::PcieRead) && lists[1].contains(&Metric::Dram), "{lists:?}");
    let loss = seen.losses.last().unwrap();
    assert!(loss.incomplete >= 40 && loss.refused.is_none() && seen.samples.len() > 50, "{loss:?}");
}

#[test]
fn nothing_is_read_where_that_is_asked_for() {
    let stage = Stage::new();
    let mut host = program(&stage, NVML, Some(&recorded("GH100", "")));
    let (seen, _) = run(&stage, host.env("GPUWHY_GPU_METRICS", "off"));
    assert!(seen.gauges.is_empty() && seen.samples.is_empty() && seen.losses.is_empty() && seen.kernels > 1000);
}

#[test]
fn an_overflow_and_errors_that_stay_end_sampling_alone() {
    for (fault, refused) in
        [("cuptiPmSamplingDecodeData=8", None), ("cuptiPmSamplingDecodeData=999", Some(UnavailableReason::Failed(999)))]
    {
        let stage = Stage::new();
        let mut host = program(&stage, NVML, Some(&recorded("GH100", "")));
        host.env("GPUWHY_REPLAY_FAULT", fault).env("GPUWHY_GPU_METRICS", "on");
        let (seen, text) = run(&stage, &mut host);
        let loss = seen.losses.last().unwrap();
        assert_eq!((loss.refused, seen.samples.len()), (refused, 0), "{fault}: {text}");
        assert_eq!(loss.lost > 0, refused.is_none(), "{fault}: {loss:?}");
        assert_eq!(text.contains("are no longer sampled"), refused.is_some(), "{fault}: {text}");
        assert!(seen.gauges.len() >= 4 && seen.kernels > 1000, "{fault}");
    }
}

#[test]
fn a_hanging_function_does_not_hold_up_the_end() {
    let stage = Stage::new();
    let mut host = program(&stage, NVML, Some(&recorded("GH100", "")));
    host.env("GPUWHY_REPLAY_FAULT", "cuptiPmSamplingDecodeData=hang").env("GPUWHY_GPU_METRICS", "on");
    let (seen, text) = run(&stage, &mut host);
    assert!(seen.samples.is_empty() && seen.kernels > 1000, "{text}");
}

#[test]
fn exits_and_forks_wait_while_counters_are_opened() {
    // The program ends while its counters are being opened. The replay library aborts where the real one
    // crashes, or kills the child where it hangs.
    for arguments in [["--until", "400"].as_slice(), &["--until", "400", "--fork", "end", "--child", "exit"]] {
        let stage = Stage::new();
        let mut host = program(&stage, NVML, Some(&recorded("GH100", "")));
        host.args(arguments).env("GPUWHY_REPLAY_FAULT", "cuptiPmSamplingStart=1200ms");
        let (_, text) = run(&stage, host.env("GPUWHY_MODE", "monitor").env("GPUWHY_GPU_METRICS", "on"));
        assert_eq!(text, "", "{arguments:?}");
    }
}

#[test]
fn samples_are_those_of_the_capture() {
    let stage = Stage::new();
    let mut host = program(&stage, NVML, Some(&recorded("GH100", "")));
    let (whole, _) = run(&stage, host.env("GPUWHY_GPU_METRICS", "on"));
    let stage = Stage::new();
    let mut host = program(&stage, NVML, Some(&recorded("GH100", "")));
    host.env("GPUWHY_GPU_METRICS", "on").env("GPUWHY_DELAY", "1s");
    let (later, text) = run(&stage, &mut host);
    assert!(!later.samples.is_empty() && !later.gauges.is_empty(), "{text}");
    let begin = whole.samples[0].begin;
    // It starts a second after the start of CUDA; the recording, and with it the other run, started together
    // with CUDA.
    assert!(later.samples[0].begin.since(begin) > 500_000_000, "{:?} {:?}", later.samples[0], whole.samples[0]);
    assert!(later.gauges[0].at.since(begin) > 500_000_000, "{:?}", later.gauges[0]);
}

#[test]
fn the_command_asks_for_samples_where_a_person_does() {
    let stage = Stage::new();
    let says = |options: &[&str], variable: Option<&str>| {
        let mut command = Command::new(GPUWHY);
        command.current_dir(stage.folder.path()).env_remove("GPUWHY_GPU_METRICS").arg("run").args(options);
        command.args(["--", "sh", "-c", "echo $GPUWHY_GPU_METRICS"]);
        if let Some(value) = variable {
            command.env("GPUWHY_GPU_METRICS", value);
        }
        let output = command.output().unwrap();
        (String::from_utf8_lossy(&output.stdout).trim().to_owned(), stderr(&output))
    };
    assert_eq!(says(&[], None).0, "");
    assert_eq!(says(&[], Some("gauges")).0, "gauges");
    assert_eq!(says(&["--gpu-metrics"], Some("gauges")).0, "on");
    // The code that reads the variable selects the samples of mode monitor, so the variable alone has the
    // same effect.
    assert_eq!(says(&["--mode", "monitor"], None).0, "");
    assert_eq!(says(&["--mode", "monitor"], Some("gauges")).0, "gauges");
    assert_eq!(says(&["--mode", "monitor", "--gpu-metrics=off"], None).0, "off");
    assert_eq!(says(&["--gpu-metrics=on:500"], None).0, "on:500");
    assert_eq!(says(&["--gpu-metrics=on:10000"], None).0, "on:10000");
    let (stdout, stderr) = says(&["--gpu-metrics=on:50000"], None);
    assert!(stdout.is_empty() && stderr.contains("10 to 10000 samples a second"), "{stderr}");
}

/// A GPT in training, sampled at 1 kHz on an H100 (driver 580.159.04, CUPTI 13.0.85). The range profiler
/// measured single kernels on an H200: 46.3 % of the issue slots for the backward pass of this attention,
/// which ran at 1.77 GHz, 46.4 % for the forward pass, 77.5 % of the tensor cores for a matrix product of
/// this shape, and none for a copy.
#[test]
fn samples_of_a_recorded_training_tell_what_its_kernels_use() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/gpt_counters.gpuwhy");
    let (code, json) = report(&trace);
    assert_eq!(code, 0);
    let device = &json["devices"][0];
    let limits = &device["compute_limits"];
    let parts = limits["steady_ns"].as_object().unwrap();
    let part = |name: &str| parts[name].as_u64().unwrap();
    let compute = device["steady_leaves"]["compute"].as_u64().unwrap();
    assert_eq!(parts.values().map(|nanos| nanos.as_u64().unwrap()).sum::<u64>(), compute);
    let share = |name: &str| part(name) as f64 / compute as f64;
    assert!(share("unresolved") < 0.25, "{limits}");
    assert!(share("memory") > 0.12 && share("memory") < 0.35, "{limits}");
    assert!(share("tensor") > 0.10 && share("tensor") < 0.25, "{limits}");
    assert!(share("lowered_clock") > 0.02 && share("lowered_clock") < 0.10, "{limits}");
    let kernels = device["kernels"].as_array().unwrap();
    let limits_of = |part: &str| {
        let kernel = kernels.iter().find(|kernel| kernel["name"].as_str().unwrap().contains(part)).unwrap();
        let number = |name: &str| kernel["limits"][name].as_f64().unwrap();
        (kernel["limits"]["roof"].as_str().unwrap().to_owned(), number("used"), number("clock_hz"))
    };
    let (roof, used, clock) = limits_of("sdpa_sm90_flash_bprop");
    assert_eq!(roof, "issue");
    assert!((used - 0.463).abs() < 0.03 && (clock / 1e9 - 1.77).abs() < 0.05, "{used} at {clock}");
    let (roof, used, _) = limits_of("sdpa_sm90_flash_fprop");
    assert!(roof == "issue" && (used - 0.464).abs() < 0.03, "{roof} {used}");
    let (roof, used, _) = limits_of("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT");
    assert!(roof == "tensor" && (used - 0.775).abs() < 0.05, "{roof} {used}");
    let (roof, used, _) = limits_of("direct_copy_kernel_cuda");
    assert!(roof == "issue" && used > 0.5, "{roof} {used}");
}

/// A quarter of each sample is busy, by the counter of the engine; `more` statements precede the samples.
fn quarter_busy(more: &str) -> String {
    let engine = "gr__cycles_active.avg.pct_of_peak_sustained_elapsed";
    let mut text = format!("chip GH100\ninterval {INTERVAL}\nmetrics {} {} {engine}\n{more}", METRICS[0], METRICS[1]);
    for begin in (0..RECORDED / INTERVAL).map(|number| number * INTERVAL) {
        writeln!(text, "sample {begin} {} 1.75e9 20 25", begin + INTERVAL).unwrap();
    }
    text
}

fn monitored(stage: &Stage, counters: &str) -> (Seen, String) {
    let mut host = program(stage, NVML, Some(counters));
    let settings = [("MODE", "monitor"), ("GPU_METRICS", "on"), ("NATIVE_STACKS", "auto"), ("REPORT", "full")];
    host.envs(settings.map(|(name, value)| (format!("GPUWHY_{name}"), value)));
    let (seen, text) = run(stage, &mut host);
    (seen, text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn monitor_mode_divides_the_time_by_samples_alone() {
    let stage = Stage::new();
    let (seen, text) = monitored(&stage, &quarter_busy(""));
    assert_eq!(seen.kernels, 0);
    assert!(seen.sets[0].metrics.position(Metric::EngineActive).is_some(), "{:?}", seen.sets);
    let json = stage.report();
    let time = &json["monitored"];
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let reported: u64 = time["causes"].as_object().unwrap().values().map(|part| number(&part["ns"])).sum();
    assert_eq!(reported + number(&time["unresolved_ns"]), number(&time["window_ns"]), "{time}");
    assert!(number(&time["window_ns"]) > 500_000_000 && number(&time["gpu_samples"]) > 100, "{time}");
    let busy = ["busy_low", "busy_high"].map(|bound| time[bound].as_f64().unwrap());
    assert!((busy[0] - 0.24).abs() < 0.002 && (busy[1] - 0.26).abs() < 0.002, "{time}");
    let compute = &time["causes"]["gpu_compute"];
    assert!(compute["low"].as_f64().unwrap() <= 0.25 && compute["high"].as_f64().unwrap() >= 0.25, "{time}");
    assert_eq!(time["bottleneck"], json["bottleneck"]["cause"]);
    // The output at exit, which the report of the trace must repeat.
    for wanted in ["The time divides into computing 2", "unresolved", "GPU samples"] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    let evidence = json["bottleneck"]["evidence"][1].as_str().unwrap();
    assert!(text.contains(evidence), "{evidence:?} is not in {text}");
}

#[test]
fn without_the_counter_of_the_engine_bounds_are_wider() {
    let stage = Stage::new();
    let silent = "silent gr__cycles_active.avg.pct_of_peak_sustained_elapsed\n";
    let (seen, _) = monitored(&stage, &recorded("GH100", silent));
    let last = seen.sets.last().unwrap();
    assert!(last.metrics.position(Metric::EngineActive).is_none(), "{:?}", seen.sets);
    let time = stage.report()["monitored"].clone();
    // 75 % of the multiprocessors on average.
    let busy = ["busy_low", "busy_high"].map(|bound| time[bound].as_f64().unwrap());
    assert!((busy[0] - 0.75).abs() < 0.001 && busy[1] == 1.0, "{time}");
}
