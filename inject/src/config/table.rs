//! Every setting, once: its name, its default, what it takes and what it does.
//!
//! The default is a value like any other, read by the same parser. `docs/guide/environment.md` is made from this table,
//! and a test compares them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuwhy_trace::cost::Mode;

use crate::config::choices::{CommandLine, CuptiSharing, GpuMetrics, Graphs, NativeStacks, ReportStyle, Sampling};
use crate::config::pattern::Pattern;
use crate::config::request::{AtEnd, RangeKind, RangeName, Schedule};
use crate::config::setting::Setting;
pub use crate::config::setting::Variable;
use crate::config::value::{is_off, on_or_off, or_off, parse_bytes, parse_duration, parse_percent};
use crate::config::{kernels, variable};
use crate::log::Level;

fn optional_pattern(text: &str) -> Option<Option<Pattern>> {
    Some(if is_off(text) { None } else { Some(Pattern::new(text)) })
}

/// [`variable::OUTPUT`]
pub const OUTPUT: Setting<Option<Pattern>> = Setting {
    name: variable::OUTPUT,
    default: "gpuwhy-%p.gpuwhy",
    expected: "a file name pattern or `off`",
    meaning: "For everyone who collects traces: the trace file. `%p` is the process id, `%h` the host name, \
              `%q{VAR}` the value of VAR (`unset` without one), `%%` a percent sign. `off` writes none. A file \
              that exists stays: the new one gets a number.",
    parse: optional_pattern,
};

/// [`variable::MODE`]
pub const MODE: Setting<Mode> = Setting {
    name: variable::MODE,
    default: "light",
    expected: "monitor, auto, light or full",
    meaning: "For programs that must not slow down, and for users who need every call. `monitor` records \
              ranges and [samples](../reference/report.md#monitor-mode) alone; `auto` also bursts of `light` \
              where samples leave the cause open; `light` device work and the calls that launch, copy, wait, \
              allocate or load; `full` every call, allocation and synchronization.",
    parse: Mode::named,
};

/// [`variable::CUDA_GRAPH_TRACE`]
pub const CUDA_GRAPH_TRACE: Setting<Graphs> = Setting {
    name: variable::CUDA_GRAPH_TRACE,
    default: "node",
    expected: "node, graph or auto",
    meaning: "For programs that launch CUDA graphs, whose nodes are costly to record. `node` records each \
              node, `graph` a launch as one piece, `auto` begins with `graph` and \
              [changes](../design/overhead.md#changing-during-a-run) to nodes where they are cheap. `graph` \
              and `auto` need CUPTI 13.2 and GPUWHY_CUPTI_SHARING=exclusive.",
    parse: Graphs::parse,
};

/// [`variable::MAX_OVERHEAD`]
pub const MAX_OVERHEAD: Setting<Option<f64>> = Setting {
    name: variable::MAX_OVERHEAD,
    default: "off",
    expected: "a percentage such as 1% or 0.5%, or `off`",
    meaning: "For programs in production: the part of the launching threads' time that tracing may take, such \
              as `1%`. After three seconds above it by gpuwhy's estimate, the next cheaper GPUWHY_MODE holds \
              to the end. In mode `auto` it limits the bursts.",
    parse: |text| or_off(text, parse_percent),
};

/// [`variable::REPORT`]
pub const REPORT: Setting<ReportStyle> = Setting {
    name: variable::REPORT,
    default: "summary",
    expected: "off, summary or full",
    meaning: "For everyone: what stderr gets when the program ends. `off` is nothing, `summary` the verdict, \
              `full` every kernel, copy and call.",
    parse: ReportStyle::parse,
};

/// [`variable::LIVE`]
pub const LIVE: Setting<Option<Duration>> = Setting {
    name: variable::LIVE,
    default: "off",
    expected: "a duration such as 500ms or 2s, or `off`",
    meaning: "For users who watch a run in its terminal: how often stderr gets a line with the verdict, such \
              as `500ms`, `2s` or `1m`.",
    parse: |text| or_off(text, |text| parse_duration(text).filter(|time| !time.is_zero())),
};

/// [`variable::LOG`]
pub const LOG: Setting<Level> = Setting {
    name: variable::LOG,
    default: "warn",
    expected: "off, error, warn, info or debug",
    meaning: "For users who find out why gpuwhy does not work: what it says about itself on stderr. `off`, \
              `error`, `warn`, `info` or `debug`.",
    parse: Level::parse,
};

/// [`variable::HISTORY`]
pub const HISTORY: Setting<Option<PathBuf>> = Setting {
    name: variable::HISTORY,
    default: "off",
    expected: "an absolute file name or `off`",
    meaning: "For users of `gpuwhy check --history`: the file that gets a line about the run. `gpuwhy run` and the \
              Python module set it to `gpuwhy/history.jsonl` in XDG_STATE_HOME or ~/.local/state. In a job \
              only rank 0 writes.",
    parse: |text| or_off(text, |text| Some(PathBuf::from(text)).filter(|path| path.is_absolute())),
};

/// [`variable::CUPTI_PATH`]
pub const CUPTI_PATH: Setting<Option<PathBuf>> = Setting {
    name: variable::CUPTI_PATH,
    default: "auto",
    expected: "a file name or `auto`",
    meaning: "For machines with several CUDA toolkits, or with none in the usual place: the libcupti to load \
              when none is in the process yet. `auto` searches for one.",
    parse: |text| Some(if text == "auto" { None } else { Some(PathBuf::from(text)) }),
};

/// [`variable::RAW_RECORDING`]
pub const RAW_RECORDING: Setting<Option<Pattern>> = Setting {
    name: variable::RAW_RECORDING,
    default: "off",
    expected: "a file name pattern or `off`",
    meaning: "File for every activity buffer as CUPTI delivered it, up to 64 MiB, to be played back by the \
              replay library. Same patterns as GPUWHY_OUTPUT.",
    parse: optional_pattern,
};

/// [`variable::EXIT_TIMEOUT`]
pub const EXIT_TIMEOUT: Setting<Duration> = Setting {
    name: variable::EXIT_TIMEOUT,
    default: "3s",
    expected: "a duration of at most 1h such as 3s",
    meaning: "Longest time that the end of the program waits for the last records, at most `1h`.",
    parse: |text| parse_duration(text).filter(|&wait| wait <= Duration::from_secs(3600)),
};

/// [`variable::DEPENDENCIES`]
pub const DEPENDENCIES: Setting<bool> = Setting {
    name: variable::DEPENDENCIES,
    default: "off",
    expected: "on or off",
    meaning: "For users who ask which stream waited for which: `on` also records synchronizations and events. \
              On the launch path it costs as much as everything else together, and the verdict does not need \
              it.",
    parse: on_or_off,
};

/// [`variable::MEMORY_USAGE`]
pub const MEMORY_USAGE: Setting<bool> = Setting {
    name: variable::MEMORY_USAGE,
    default: "off",
    expected: "on or off",
    meaning: "For programs that run out of memory: `on` also records allocations and releases of device, \
              pinned and managed memory and of pools. The report then has the memory held, its peak and the \
              call that took it.",
    parse: on_or_off,
};

/// [`variable::FLUSH`]
pub const FLUSH: Setting<Duration> = Setting {
    name: variable::FLUSH,
    default: "100ms",
    expected: "a duration from 10ms to 10s",
    meaning: "Time between two flushes of CUPTI's buffers, from `10ms` to `10s`. A killed program loses about \
              two of them.",
    parse: |text| {
        let range = Duration::from_millis(10)..=Duration::from_secs(10);
        parse_duration(text).filter(|period| range.contains(period))
    },
};

/// [`variable::CAPTURE_RANGE`]
pub const CAPTURE_RANGE: Setting<RangeKind> = Setting {
    name: variable::CAPTURE_RANGE,
    default: "none",
    expected: "none, cudaProfilerApi, nvtx or command",
    meaning: "For users who measure a [part of a run](captures.md). `none` measures all of it, \
              `cudaProfilerApi` from cudaProfilerStart to cudaProfilerStop, `nvtx` while the range of \
              GPUWHY_NVTX_CAPTURE is open, `command` what `gpuwhy start` asks for.",
    parse: RangeKind::parse,
};

/// [`variable::NVTX_CAPTURE`]
pub const NVTX_CAPTURE: Setting<Option<RangeName>> = Setting {
    name: variable::NVTX_CAPTURE,
    default: "none",
    expected: "a range such as step, step@domain or *@domain",
    meaning: "For programs with NVTX ranges: the range that is captured, or, with GPUWHY_STEPS or \
              GPUWHY_CAPTURE_RANGE=command, a step. `range`, `range@domain`, `*@domain` or `range@*`; without \
              a domain the default one.",
    parse: |text| if text == "none" { Some(None) } else { RangeName::parse(text).map(Some) },
};

/// [`variable::CAPTURE_RANGE_END`]
pub const CAPTURE_RANGE_END: Setting<AtEnd> = Setting {
    name: variable::CAPTURE_RANGE_END,
    default: "stop-shutdown",
    expected: "none, stop, stop-shutdown, repeat or repeat:N",
    meaning: "For users who measure a part of a run: what follows it. `none`: the capture goes on; `stop`: no \
              other begins by itself; `stop-shutdown`: the report comes while the program goes on; `repeat` or \
              `repeat:N`: the next range is captured too, at most N in all.",
    parse: AtEnd::parse,
};

/// [`variable::STEPS`]
pub const STEPS: Setting<Option<Schedule>> = Setting {
    name: variable::STEPS,
    default: "off",
    expected: "skip,wait,warmup,active,repeat such as 10,0,2,5,1, or `off`",
    meaning: "For users of torch.profiler's schedule: `skip,wait,warmup,active,repeat`, such as `10,0,2,5,1`. \
              After `skip` steps, `repeat` cycles (0: without end) of free, discarded and captured steps. A \
              step is the range of GPUWHY_NVTX_CAPTURE; without one steps are detected, and tracing stays on.",
    parse: |text| if text == "off" { Some(None) } else { Schedule::parse(text).map(Some) },
};

/// [`variable::DELAY`]
pub const DELAY: Setting<Duration> = Setting {
    name: variable::DELAY,
    default: "0s",
    expected: "a duration such as 10s",
    meaning: "For programs with a long start: no capture begins before this time after the start of CUDA, \
              except by command.",
    parse: parse_duration,
};

/// [`variable::CONTROL`]
pub const CONTROL: Setting<bool> = Setting {
    name: variable::CONTROL,
    default: "on",
    expected: "on, off or an absolute folder name",
    meaning: "For machines that allow no socket in the usual place: `off` opens none for [live \
              control](control.md). With a folder the socket is there, and commands with the same setting look \
              only there.",
    parse: |text| on_or_off(text).or_else(|| Path::new(text).is_absolute().then_some(true)),
};

/// Characters of a run's name: that of a label in metrics.
const RUN_LENGTH: usize = 64;

/// [`variable::RUN`]
pub const RUN: Setting<Option<String>> = Setting {
    name: variable::RUN,
    default: "off",
    expected: "a name of at most 64 printable characters, or `off`",
    meaning: "For [metrics](metrics.md) of jobs without a launcher: the name of the run, the same on all of \
              its ranks. Without it the launcher's number of the job is the name.",
    parse: |text| {
        let is_name = (1..=RUN_LENGTH).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        or_off(text, |text| is_name.then(|| text.to_owned()))
    },
};

/// [`variable::COMMAND_LINE`]
pub const COMMAND_LINE: Setting<CommandLine> = Setting {
    name: variable::COMMAND_LINE,
    default: "full",
    expected: "full, name or off",
    meaning: "For programs with secrets among their arguments: how much of the command line the trace keeps \
              and `gpuwhy top` shows. `full` is all of it, with `***` in place of what looks like a secret \
              (docs/design/reliability.md); `name` the program alone; `off` nothing.",
    parse: CommandLine::parse,
};

/// [`variable::DURATION`]
pub const DURATION: Setting<Option<Duration>> = Setting {
    name: variable::DURATION,
    default: "off",
    expected: "a duration such as 10s, or `off`",
    meaning: "For long runs: a capture ends after this time at the latest.",
    parse: |text| or_off(text, parse_duration),
};

/// [`variable::CUPTI_SHARING`]
pub const CUPTI_SHARING: Setting<CuptiSharing> = Setting {
    name: variable::CUPTI_SHARING,
    default: "exclusive",
    expected: "exclusive or yield",
    meaning: "For programs that start torch.profiler or another tool of CUPTI, which serves one per process. \
              `exclusive` refuses the other tool. With `yield` gpuwhy \
              [pauses](../design/reliability.md#other-tools) while it records, which needs CUPTI of CUDA 13.0 \
              update 1.",
    parse: CuptiSharing::parse,
};

/// [`variable::BUFFER_MEMORY`]
pub const BUFFER_MEMORY: Setting<u64> = Setting {
    name: variable::BUFFER_MEMORY,
    default: "256M",
    expected: "a size from 8M to 64G",
    meaning: "For programs whose report says that records were dropped: the most host memory for activity \
              buffers, from `8M` to `64G`, taken as needed. CUPTI 13 holds a buffer of 1 MiB for each \
              launching thread.",
    parse: |text| {
        // The channels have room for every buffer there is, from the start.
        parse_bytes(text).filter(|bytes| (8 << 20..=64 << 30).contains(bytes))
    },
};

/// [`variable::SAMPLING`]
pub const SAMPLING: Setting<Sampling> = Setting {
    name: variable::SAMPLING,
    default: "auto",
    expected: "auto, on or off",
    meaning: "For systems that do not let threads be sampled: `off` does not try. `auto` samples the threads \
              that call CUDA, with at most 1 % of one core, and notes in the report what the system does not \
              allow; `on` also says so on stderr.",
    parse: Sampling::parse,
};

/// [`variable::NATIVE_STACKS`]
pub const NATIVE_STACKS: Setting<NativeStacks> = Setting {
    name: variable::NATIVE_STACKS,
    default: "off",
    expected: "auto or off",
    meaning: "For programs limited by their C and C++ code (x86-64): `auto` adds its functions to the stacks \
              of host samples, where the system [allows it](../design/reliability.md). Five programs took 1.04 \
              to 1.24 times as long. In modes `monitor` and `auto` it is on for Python programs.",
    parse: NativeStacks::parse,
};

/// [`variable::GPU_METRICS`]
pub const GPU_METRICS: Setting<GpuMetrics> = Setting {
    name: variable::GPU_METRICS,
    default: "gauges",
    expected: "auto, off, gauges, on or on:HZ with 10 to 10000 samples a second",
    meaning: "For users who ask what limits the GPU itself ([how](inside-the-gpu.md)). `gauges` reads power, \
              clocks, memory and traffic by NVML; `auto` also samples hardware counters where possible; `on` \
              says a refusal on stderr; `on:HZ` names the rate; `off` reads nothing.",
    parse: GpuMetrics::parse,
};

/// Variables for tests of gpuwhy, which CONTRIBUTING.md lists. They may change at any time.
pub const FOR_TESTS: &[Variable] = &[FLUSH.variable(), EXIT_TIMEOUT.variable(), RAW_RECORDING.variable()];

/// Every other variable that libprof.so reads.
pub const VARIABLES: &[Variable] = &[
    OUTPUT.variable(),
    MODE.variable(),
    CUDA_GRAPH_TRACE.variable(),
    MAX_OVERHEAD.variable(),
    REPORT.variable(),
    LIVE.variable(),
    LOG.variable(),
    HISTORY.variable(),
    CUPTI_PATH.variable(),
    DEPENDENCIES.variable(),
    MEMORY_USAGE.variable(),
    CAPTURE_RANGE.variable(),
    NVTX_CAPTURE.variable(),
    CAPTURE_RANGE_END.variable(),
    STEPS.variable(),
    DELAY.variable(),
    CONTROL.variable(),
    RUN.variable(),
    COMMAND_LINE.variable(),
    DURATION.variable(),
    CUPTI_SHARING.variable(),
    BUFFER_MEMORY.variable(),
    SAMPLING.variable(),
    NATIVE_STACKS.variable(),
    kernels::KERNELS.variable(),
    kernels::KERNEL_SOURCE.variable(),
    GPU_METRICS.variable(),
];

/// The table as Markdown: the contents of `docs/guide/environment.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "# Environment variables of libprof.so\n\n\
         Generated from the table that the parser reads (`inject/src/config/table.rs`). A value that is not understood is\n\
         replaced by the default, and a `GPUWHY_*` that is not in this table has no effect: each with a line on stderr\n\
         that names what was probably meant. Neither stops the program. `gpuwhy run` says both before it starts one, and does\n\
         not start it where a value is not understood. Each meaning begins with who needs the variable.\n\n\
         | variable | default | meaning |\n|---|---|---|\n",
    );
    for Variable { name, default, meaning } in VARIABLES {
        text.push_str(&format!("| `{name}` | {default} | {meaning} |\n"));
    }
    text.push_str(
        "\nNot for libprof.so: `GPUWHY_LIB` names the libprof.so that the command `gpuwhy` loads into programs,\n\
         `GPUWHY_BLESS=1` has tests that use the crate renew their baselines.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;
    use crate::config::Settings;

    #[test]
    fn every_default_is_understood() {
        let (_, errors) = Settings::from_variables(&[]);
        assert_eq!(errors, []);
        let set: Vec<_> =
            VARIABLES.iter().chain(FOR_TESTS).map(|setting| (setting.name.into(), setting.default.into())).collect();
        assert_eq!(Settings::from_variables(&set).1, []);
    }

    #[test]
    fn the_documentation_is_this_table() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/environment.md");
        if env::var_os("GPUWHY_BLESS").is_some() {
            std::fs::write(file, markdown()).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(file).unwrap(),
            markdown(),
            "run the tests with GPUWHY_BLESS=1 to renew {file}"
        );
        let contributing = include_str!("../../../CONTRIBUTING.md");
        for Variable { name, default, meaning } in FOR_TESTS {
            assert!(contributing.contains(&format!("| `{name}` | {default} | {meaning} |")), "{name}");
        }
    }
}
