//! Every setting, once: its name, its default, what it takes and what it does.
//!
//! The default is a value like any other, read by the same parser. `docs/guide/environment.md` is made from this table,
//! and a test compares them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use profiler_core::cost::Mode;

use crate::config::choices::{CommandLine, CuptiSharing, GpuMetrics, Graphs, NativeStacks, ReportStyle, Sampling};
use crate::config::pattern::Pattern;
use crate::config::request::{AtEnd, RangeKind, RangeName, Schedule};
use crate::config::setting::Setting;
pub use crate::config::setting::Variable;
use crate::config::value::{is_off, on_or_off, or_off, parse_bytes, parse_duration, parse_percent};
use crate::config::variable;
use crate::config::kernels;
use crate::log::Level;

fn optional_pattern(text: &str) -> Option<Option<Pattern>> {
    Some(if is_off(text) { None } else { Some(Pattern::new(text)) })
}

/// [`variable::OUTPUT`]
pub const OUTPUT: Setting<Option<Pattern>> = Setting {
    name: variable::OUTPUT,
    default: "gpuwhy-%p.gpuwhy",
    expected: "a file name pattern or `off`",
    meaning: "Trace file. `%p` is the process id, `%h` the host name, `%q{VAR}` the value of VAR (`unset` \
                  without one), `%%` a percent sign. `off` writes none. A file that exists is not overwritten: the new one gets a \
                  number. Folders that are missing are made. Only the user can read the file (mode 600).",
    parse: optional_pattern,
};

/// [`variable::MODE`]
pub const MODE: Setting<Mode> = Setting {
    name: variable::MODE,
    default: "light",
    expected: "monitor, auto, light or full",
    meaning: "How much is recorded at most: `monitor` no device work and no API call, only ranges (NVTX), what host threads do \
                  and how busy the devices are, which divides device time only with GPUWHY_GPU_METRICS=auto ([what its verdict rests \
                  on](../reference/report.md#monitor-mode)); `auto` the same, and bursts of `light` where samples leave the bottleneck \
                  open or the step time drifts (GPUWHY_BURST_EVERY); `light` device work and the API calls that launch, copy, wait, allocate or load; \
                  `full` every API call, memory usage, synchronizations and events too.",
    parse: Mode::named,
};

/// [`variable::CUDA_GRAPH_TRACE`]
pub const CUDA_GRAPH_TRACE: Setting<Graphs> = Setting {
    name: variable::CUDA_GRAPH_TRACE,
    default: "node",
    expected: "node, graph or auto",
    meaning: "`node` records each node of a CUDA graph, `graph` a launch of a graph as one piece of computation whose inside is not \
                  known. `graph` and `auto` need CUPTI 13.2 or later: older libraries can crash the program over whole graphs, so with \
                  them nodes are recorded all the same. `auto` begins with whole graphs and goes over to nodes once 16 launches in half a \
                  second or more say that nodes would take less than an estimated 2 % of the time of their graphs, or less than \
                  GPUWHY_MAX_OVERHEAD where that is set; the report says which, and why. Never the other way: CUPTI 13.0 crashes the \
                  program when whole graphs are switched on in mid-run. How many nodes a graph has is told when it is instantiated; \
                  graphs of which that is not known stay whole. While CUPTI is left to other tools (GPUWHY_CUPTI_SHARING=yield) it is \
                  always nodes, which those expect. A program linked with gpuwhy records nodes under `auto`, too.",
    parse: Graphs::parse,
};

/// [`variable::MAX_OVERHEAD`]
pub const MAX_OVERHEAD: Setting<Option<f64>> = Setting {
    name: variable::MAX_OVERHEAD,
    default: "off",
    expected: "a percentage such as 1% or 0.5%, or `off`",
    meaning: "Part of the launching threads' time that tracing may take, such as `1%`: after three seconds in a row above it by \
                  gpuwhy's own estimate the next cheaper GPUWHY_MODE holds, down to `monitor`, and the report says when. Takes \
                  precedence over GPUWHY_MODE, which sets the starting mode. gpuwhy never switches back up. With GPUWHY_MODE=auto: \
                  what bursts may cost.",
    parse: |text| or_off(text, parse_percent),
};

/// [`variable::REPORT`]
pub const REPORT: Setting<ReportStyle> = Setting {
    name: variable::REPORT,
    default: "summary",
    expected: "off, summary or full",
    meaning: "What is printed to stderr when the program ends: `off`, `summary` or `full` (every kernel, copy and call).",
    parse: ReportStyle::parse,
};

/// [`variable::LIVE`]
pub const LIVE: Setting<Option<Duration>> = Setting {
    name: variable::LIVE,
    default: "off",
    expected: "a duration such as 500ms or 2s, or `off`",
    meaning: "Prints a one-line verdict to stderr this often while the program runs: a duration such as `500ms`, `2s` or \
                  `1m`, or `off`.",
    parse: |text| or_off(text, |text| parse_duration(text).filter(|time| !time.is_zero())),
};

/// [`variable::LOG`]
pub const LOG: Setting<Level> = Setting {
    name: variable::LOG,
    default: "warn",
    expected: "off, error, warn, info or debug",
    meaning: "What the library says about itself on stderr: `off`, `error`, `warn`, `info` or `debug`.",
    parse: Level::parse,
};

/// [`variable::HISTORY`]
pub const HISTORY: Setting<Option<PathBuf>> = Setting {
    name: variable::HISTORY,
    default: "off",
    expected: "an absolute file name or `off`",
    meaning: "File to which a line of about 2 kB about the run is added at its end, for `gpuwhy history`: step, verdict, causes, \
                  command line. `gpuwhy run` and the Python module set it to `gpuwhy/history.jsonl` in XDG_STATE_HOME or \
                  ~/.local/state, unless it is set; `off` keeps none. Of a job only rank 0 writes. A file that cannot be written, \
                  holds something else than a history, or is of more than 8 MiB, is left alone; a line on stderr says so if the variable names the file, and with `gpuwhy run -v` otherwise.",
    parse: |text| or_off(text, |text| Some(PathBuf::from(text)).filter(|path| path.is_absolute())),
};

/// [`variable::CUPTI_PATH`]
pub const CUPTI_PATH: Setting<Option<PathBuf>> = Setting {
    name: variable::CUPTI_PATH,
    default: "auto",
    expected: "a file name or `auto`",
    meaning: "File of the libcupti to load when none is in the process yet. `auto` searches for one.",
    parse: |text| Some(if text == "auto" { None } else { Some(PathBuf::from(text)) }),
};

/// [`variable::RAW_RECORDING`]
pub const RAW_RECORDING: Setting<Option<Pattern>> = Setting {
    name: variable::RAW_RECORDING,
    default: "off",
    expected: "a file name pattern or `off`",
    meaning: "Also writes every activity buffer as CUPTI delivered it to this file (same patterns as GPUWHY_OUTPUT), to \
                  be played back by the replay library. A file that exists is left alone: the recording gets a number, and a line on \
                  stderr says so. Large; for bug reports and test fixtures.",
    parse: optional_pattern,
};

/// [`variable::EXIT_TIMEOUT`]
pub const EXIT_TIMEOUT: Setting<Duration> = Setting {
    name: variable::EXIT_TIMEOUT,
    default: "3s",
    expected: "a duration of at most 1h such as 3s",
    meaning: "Longest time that the end of the program may wait for the last records, at most `1h`. What did not \
                  arrive by then is counted in the report.",
    parse: |text| parse_duration(text).filter(|&wait| wait <= Duration::from_secs(3600)),
};

/// [`variable::DEPENDENCIES`]
pub const DEPENDENCIES: Setting<bool> = Setting {
    name: variable::DEPENDENCIES,
    default: "off",
    expected: "on or off",
    meaning: "`on` also records synchronizations and events, that is, which stream waited for which. On the launch path it costs \
                  as much as everything else together, and the verdict does not need it.",
    parse: on_or_off,
};

/// [`variable::MEMORY_USAGE`]
pub const MEMORY_USAGE: Setting<bool> = Setting {
    name: variable::MEMORY_USAGE,
    default: "off",
    expected: "on or off",
    meaning: "`on` also records every allocation and release of device, pinned and managed memory, and of memory pools: how much \
                  is held, the peak, when it was and which call took it.",
    parse: on_or_off,
};

/// [`variable::FLUSH`]
pub const FLUSH: Setting<Duration> = Setting {
    name: variable::FLUSH,
    default: "100ms",
    expected: "a duration from 10ms to 10s",
    meaning: "Time between two flushes of CUPTI's buffers. A killed program loses about two of them, more where the machine \
              is too busy to flush in time or a kernel runs long. Between `10ms` and `10s`. After 4 MiB of records the \
              next one comes sooner, so that memory does not grow with the rate.",
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
    meaning: "What is measured: `none` the whole run, `cudaProfilerApi` from cudaProfilerStart to cudaProfilerStop, `nvtx` while \
                  the range of GPUWHY_NVTX_CAPTURE is open, `command` what `gpuwhy start` asks for. Until a capture begins the program runs free; of it CUPTI \
                  records launches of CUDA graphs, unless GPUWHY_CUDA_GRAPH_TRACE=node, as that has to be on from the start, and they are \
                  thrown away.",
    parse: RangeKind::parse,
};

/// [`variable::NVTX_CAPTURE`]
pub const NVTX_CAPTURE: Setting<Option<RangeName>> = Setting {
    name: variable::NVTX_CAPTURE,
    default: "none",
    expected: "a range such as step, step@domain or *@domain",
    meaning: "The range that is captured, or, with GPUWHY_STEPS or GPUWHY_CAPTURE_RANGE=command, a step: `range`, `range@domain`, `*@domain`, `range@*`; without a \
                  domain the default one.",
    parse: |text| if text == "none" { Some(None) } else { RangeName::parse(text).map(Some) },
};

/// [`variable::CAPTURE_RANGE_END`]
pub const CAPTURE_RANGE_END: Setting<AtEnd> = Setting {
    name: variable::CAPTURE_RANGE_END,
    default: "stop-shutdown",
    expected: "none, stop, stop-shutdown, repeat or repeat:N",
    meaning: "What follows the end of a capture: `none` the capture goes on, `stop` no other begins by itself, `stop-shutdown` \
                  measuring is over and the report comes while the program goes on, `repeat` or `repeat:N` the next range is \
                  captured too, at most N in all.",
    parse: AtEnd::parse,
};

/// [`variable::STEPS`]
pub const STEPS: Setting<Option<Schedule>> = Setting {
    name: variable::STEPS,
    default: "off",
    expected: "skip,wait,warmup,active,repeat such as 10,0,2,5,1, or `off`",
    meaning: "Captures chosen steps, as torch.profiler's schedule: `skip,wait,warmup,active,repeat`, for example `10,0,2,5,1`. After \
                  `skip` steps, `repeat` cycles (0: without end) of `wait` free steps, `warmup` steps whose records are thrown away, \
                  and `active` captured ones. A step is the range of GPUWHY_NVTX_CAPTURE; without one steps are detected, for which \
                  tracing is on all the time, and a capture begins and ends when a step has become known.",
    parse: |text| if text == "off" { Some(None) } else { Schedule::parse(text).map(Some) },
};

/// [`variable::DELAY`]
pub const DELAY: Setting<Duration> = Setting {
    name: variable::DELAY,
    default: "0s",
    expected: "a duration such as 10s",
    meaning: "No capture begins before this time after the start of CUDA, except by command.",
    parse: parse_duration,
};

/// [`variable::CONTROL`]
pub const CONTROL: Setting<bool> = Setting {
    name: variable::CONTROL,
    default: "on",
    expected: "on, off or an absolute folder name",
    meaning: "`off` opens no socket for `gpuwhy status`, `start`, `stop`, `snapshot`, `watch`, `top` and `exporter` \
                  (docs/guide/control.md). A folder: the socket is there, and commands with the same setting look only there.",
    parse: |text| on_or_off(text).or_else(|| Path::new(text).is_absolute().then_some(true)),
};

/// Characters of a run's name: that of a label in metrics.
const RUN_LENGTH: usize = 64;

/// [`variable::RUN`]
pub const RUN: Setting<Option<String>> = Setting {
    name: variable::RUN,
    default: "off",
    expected: "a name of at most 64 printable characters, or `off`",
    meaning: "Name of the run, the same on all of its ranks, for [metrics](metrics.md). Without it the launcher's number of the                   job is the name.",
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
    meaning: "How much of the program's command line is kept in the trace and shown by `gpuwhy status`: `full` all of it, with `***` \
                  in place of what looks like a secret (docs/design/reliability.md says what does: values under names such as `--api-key`, `DB_PASSWORD` or `\"token\":`, \
                  passwords in URLs and logins, access tokens of well-known forms); `name` the program alone; `off` nothing.",
    parse: CommandLine::parse,
};

/// [`variable::DURATION`]
pub const DURATION: Setting<Option<Duration>> = Setting {
    name: variable::DURATION,
    default: "off",
    expected: "a duration such as 10s, or `off`",
    meaning: "A capture ends after this time at the latest.",
    parse: |text| or_off(text, parse_duration),
};

/// [`variable::CUPTI_SHARING`]
pub const CUPTI_SHARING: Setting<CuptiSharing> = Setting {
    name: variable::CUPTI_SHARING,
    default: "exclusive",
    expected: "exclusive or yield",
    meaning: "CUPTI serves one tool per process. `exclusive` keeps CUPTI to the end, so that another profiler in the process is \
                  refused. With `yield` gpuwhy pauses when another tool starts and resumes when that tool has finished, unless it \
                  leaves its own clock in CUPTI (torch.profiler). The time between is counted as `unobserved_ns`. `yield` needs CUPTI of CUDA 13.0 update 1, and has no effect with GPUWHY_CAPTURE_RANGE=cudaProfilerApi; \
                  GPUWHY_MODE=monitor leaves CUPTI to others either way. See docs/design/reliability.md.",
    parse: CuptiSharing::parse,
};

/// [`variable::BUFFER_MEMORY`]
pub const BUFFER_MEMORY: Setting<u64> = Setting {
    name: variable::BUFFER_MEMORY,
    default: "256M",
    expected: "a size from 8M to 64G",
    meaning: "Most host memory for activity buffers, from `8M` to `64G`, taken in buffers of 1 MiB as needed: CUPTI 13 holds one for each launching thread. When it is used up, records are dropped and counted.",
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
    meaning: "Samples the threads that call CUDA, using at most 1 % of one core: CPU time, what they wait for, Python stack (CPython 3.9 to 3.14), garbage collection, child processes. `auto` does what this system \
                  allows and notes in the report what it does not allow, `on` also says so on stderr, `off` disables sampling.",
    parse: Sampling::parse,
};

/// [`variable::NATIVE_STACKS`]
pub const NATIVE_STACKS: Setting<NativeStacks> = Setting {
    name: variable::NATIVE_STACKS,
    default: "off",
    expected: "auto or off",
    meaning: "`auto` adds functions of C and C++ to the stacks of host samples (x86-64): those of waiting threads from `/proc`, those of \
                  running threads from perf events, where the system allows them. The report notes what it does not allow. The limit of \
                  1 % of one core holds for all of it; a running thread is also interrupted by a timer 200 times a second of its \
                  CPU time, and five programs took 1.04 to 1.24 times as long with it. With GPUWHY_MODE=monitor or auto the default \
                  is `auto` in Python programs, with 50 times a second, and perf events only where no filter of system calls \
                  (seccomp) holds. Needs GPUWHY_SAMPLING.",
    parse: NativeStacks::parse,
};

/// [`variable::GPU_METRICS`]
pub const GPU_METRICS: Setting<GpuMetrics> = Setting {
    name: variable::GPU_METRICS,
    default: "gauges",
    expected: "auto, off, gauges, on or on:HZ with 10 to 10000 samples a second",
    meaning: "What is read of the GPUs themselves. `gauges`: power, temperature, clocks and what lowers them, memory in use and traffic, \
                  ten times a second by NVML. `auto` also samples hardware counters, 200 times a second, where no other tool has them and \
                  the driver allows it; the report notes a refusal. `on` also says a refusal on stderr; `on:HZ` names the rate. Sampling \
                  counts the whole GPU, takes about 150 MB of host memory and at most 1 % of one core (5 % with `on:HZ`, a whole core \
                  above 1000): beyond that the rate is lowered. It excludes ncu, GPU metrics of nsys and, before Hopper, profiling metrics of DCGM. With \
                  GPUWHY_MODE=monitor or auto the samples divide the GPU's time. None are taken unless asked for. The program's exit and forks wait while sampling is started, some 0.1 to 0.3 s (2 s at most).",
    parse: GpuMetrics::parse,
};

/// Every variable that libprof.so reads.
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
    RAW_RECORDING.variable(),
    EXIT_TIMEOUT.variable(),
    DEPENDENCIES.variable(),
    MEMORY_USAGE.variable(),
    FLUSH.variable(),
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
    kernels::KERNEL_NAMES.variable(),
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
         not start it where a value is not understood.\n\n\
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
        let set: Vec<_> = VARIABLES.iter().map(|setting| (setting.name.into(), setting.default.into())).collect();
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
    }
}
