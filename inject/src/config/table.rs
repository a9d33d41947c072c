//! All settings: name, default, accepted values and effect.
//!
//! The same parser reads defaults and other values. `docs/guide/environment.md` is generated from this table,
//! and a test compares them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuwhy_trace::cost::Mode;

use crate::config::choices::{CommandLine, CuptiSharing, GpuMetrics, Graphs, NativeStacks, ReportStyle, Sampling};
use crate::config::kernels::{self, KernelRequest, WantedMetrics};
use crate::config::pattern::Pattern;
use crate::config::request::{AtEnd, RangeKind, RangeName, Schedule};
use crate::config::value::{is_off, on_or_off, one_of, or_off, parse_bytes, parse_duration, parse_percent};
use crate::log::Level;

/// A setting with values of type `T`.
#[derive(Debug)]
pub struct Setting<T> {
    /// Environment variable.
    pub name: &'static str,
    /// Value if it is not set.
    pub default: &'static str,
    /// Accepted values, for the message about an invalid value.
    pub expected: &'static str,
    /// Effect, with units.
    pub meaning: &'static str,
    /// Parses a value.
    pub parse: fn(&str) -> Option<T>,
}

/// A setting without the type of its values.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Environment variable.
    pub name: &'static str,
    /// Value if it is not set.
    pub default: &'static str,
    /// Effect, with units and accepted values.
    pub meaning: &'static str,
}

impl<T> Setting<T> {
    const fn variable(&self) -> Variable {
        Variable { name: self.name, default: self.default, meaning: self.meaning }
    }

    #[expect(clippy::expect_used, reason = "a test reads every default")]
    pub fn default_value(&self) -> T {
        (self.parse)(self.default).expect("the default is understood")
    }
}

fn optional_pattern(text: &str) -> Option<Option<Pattern>> {
    Some(if is_off(text) { None } else { Some(Pattern::new(text)) })
}

/// Maximum length of a run's name, characters: that of a label in metrics.
const RUN_LENGTH: usize = 64;

/// Defines the settings and the names of their variables, list by list. A row is: constant, type of the
/// values, variable, default, accepted values, parser, effect.
macro_rules! settings {
    ($($(#[$doc:meta])* $list:ident {$(
        $name:ident: $type:ty = $variable:literal, $default:literal, $expected:literal, $parse:expr, $meaning:literal;
    )*})*) => {
        $($(
            #[doc = concat!("`", $variable, "`")]
            pub const $name: Setting<$type> = Setting {
                name: $variable,
                default: $default,
                expected: $expected,
                meaning: $meaning,
                parse: $parse,
            };
        )*)*

        $($(#[$doc])* pub const $list: &[Variable] = &[$($name.variable()),*];)*

        /// Names of the variables.
        pub mod names {
            $($(#[doc = concat!("`", $variable, "`")] pub const $name: &str = $variable;)*)*
        }
    };
}

settings! {
    /// Every variable that libprof.so reads, except those for tests.
    VARIABLES {
        OUTPUT: Option<Pattern> = "GPUWHY_OUTPUT", "gpuwhy-%p.gpuwhy", "a file name pattern or `off`", optional_pattern,
            "For everyone who collects traces: the trace file. `%p` is the process id, `%h` the host name, `%q{VAR}` \
             the value of VAR (`unset` without one), `%%` a percent sign. `off` writes none. An existing file is \
             kept: the new one gets a number.";
        MODE: Mode = "GPUWHY_MODE", "light", "monitor, auto, light or full", Mode::named,
            "For programs that must not slow down, and for users who need every call. `monitor` records only ranges, \
             [samples](../reference/report.md#monitor-mode) and the \
             [iterations of a server](../design/monitoring.md#iterations-of-a-server); `auto` also bursts of `light` \
             where samples leave the bottleneck open; `light` device work and the calls that launch, copy, wait, \
             allocate or load; \
             `full` every call, allocation and synchronization.";
        CUDA_GRAPH_TRACE: Graphs = "GPUWHY_CUDA_GRAPH_TRACE", "auto", "auto, node or graph",
            |text| one_of(text, &[("auto", Graphs::Auto), ("node", Graphs::Nodes), ("graph", Graphs::Whole)]),
            "For programs that launch CUDA graphs, whose nodes are costly to record. `auto` records each node, until \
             they take more than 3 % for ten seconds: then [recording ends](../design/overhead.md#the-budget-of-nodes); \
             `node` always each node; `graph` each launch as a whole, which needs CUPTI 13.2 and \
             GPUWHY_CUPTI_SHARING=exclusive.";
        MAX_OVERHEAD: Option<f64> = "GPUWHY_MAX_OVERHEAD", "off", "a percentage such as 1% or 0.5%, or `off`",
            |text| or_off(text, parse_percent),
            "For programs in production: the share of the launching threads' time that tracing may take, such as \
             `1%`. After three seconds above it by gpuwhy's estimate, the next cheaper GPUWHY_MODE applies until the \
             end; after `light`, bursts if the complete run is measured and the program makes no CUDA graphs. In mode \
             `auto` it limits the bursts. Unless it is set, only nodes of CUDA graphs are limited, to 3 %: all other \
             records cost the same as long as the run lasts. Page faults of managed memory, whose cost is not \
             known, are not recorded under a limit. `off` limits nothing.";
        REPORT: ReportStyle = "GPUWHY_REPORT", "summary", "off, summary or full",
            |text| {
                use ReportStyle::{Full, Off, Summary};
                one_of(text, &[("off", Off), ("summary", Summary), ("1", Summary), ("on", Summary), ("full", Full)])
            },
            "For everyone: what is printed on stderr when the program ends. `off`: nothing; `summary`: the \
             bottleneck; `full`: every kernel, copy and call.";
        LIVE: Option<Duration> = "GPUWHY_LIVE", "off", "a duration such as 500ms or 2s, or `off`",
            |text| or_off(text, |text| parse_duration(text).filter(|time| !time.is_zero())),
            "For users who watch a run in its terminal: interval between lines with the bottleneck on stderr, such \
             as `500ms`, `2s` or `1m`.";
        LOG: Level = "GPUWHY_LOG", "warn", "off, error, warn, info or debug", Level::parse,
            "For users who debug gpuwhy: level of its messages on stderr. `off`, `error`, `warn`, `info` or `debug`.";
        HISTORY: Option<PathBuf> = "GPUWHY_HISTORY", "off", "an absolute file name or `off`",
            |text| or_off(text, |text| Some(PathBuf::from(text)).filter(|path| path.is_absolute())),
            "For users of `gpuwhy check --history`: the file that gets a line about the run. `gpuwhy run` and the \
             Python module set it to `gpuwhy/history.jsonl` in XDG_STATE_HOME or ~/.local/state. In a job only rank \
             0 writes.";
        CUPTI_PATH: Option<PathBuf> = "GPUWHY_CUPTI_PATH", "auto", "a file name or `auto`",
            |text| Some(if text == "auto" { None } else { Some(PathBuf::from(text)) }),
            "For machines with several CUDA toolkits, or none in the usual place: the libcupti to load if the \
             process has none yet. `auto` searches for one.";
        DEPENDENCIES: bool = "GPUWHY_DEPENDENCIES", "off", "on or off", on_or_off,
            "For users who need to know which stream waited for which: `on` also records synchronizations and \
             events. On the launch path this costs as much as everything else together, and the bottleneck does not \
             need it.";
        MEMORY_USAGE: bool = "GPUWHY_CUDA_MEMORY_USAGE", "off", "on or off", on_or_off,
            "For programs that run out of memory: `on` also records allocations and releases of device, pinned and \
             managed memory and of pools. The report then also shows the memory that they hold, the rest of the \
             memory in use, and who owns it at the peak.";
        CAPTURE_RANGE: RangeKind = "GPUWHY_CAPTURE_RANGE", "none", "none, cudaProfilerApi, nvtx or command",
            RangeKind::parse,
            "For users who measure [part of a run](captures.md). `none` measures all of it, `cudaProfilerApi` from \
             cudaProfilerStart to cudaProfilerStop, `nvtx` while the range of GPUWHY_NVTX_CAPTURE is open, `command` \
             what `gpuwhy start` requests.";
        NVTX_CAPTURE: Option<RangeName> = "GPUWHY_NVTX_CAPTURE", "none", "a range such as step, step@domain or *@domain",
            |text| if text == "none" { Some(None) } else { RangeName::parse(text).map(Some) },
            "For programs with NVTX ranges: the range that is captured, or, with GPUWHY_STEPS or \
             GPUWHY_CAPTURE_RANGE=command, that is a step. `range`, `range@domain`, `*@domain` or `range@*`; without \
             a domain, the default one.";
        CAPTURE_RANGE_END: AtEnd = "GPUWHY_CAPTURE_RANGE_END", "stop-shutdown", "none, stop, stop-shutdown, repeat or repeat:N",
            AtEnd::parse,
            "For users who measure part of a run: what happens at its end. `none`: the capture continues; `stop`: no \
             other one starts by itself; `stop-shutdown`: the report is printed while the program continues; \
             `repeat` or `repeat:N`: the next range is captured too, at most N in all.";
        STEPS: Option<Schedule> = "GPUWHY_STEPS", "off", "skip,wait,warmup,active,repeat such as 10,0,2,5,1, or `off`",
            |text| if text == "off" { Some(None) } else { Schedule::parse(text).map(Some) },
            "For users of torch.profiler's schedule: `skip,wait,warmup,active,repeat`, such as `10,0,2,5,1`. After \
             `skip` steps, `repeat` cycles (0: no limit) of untraced, discarded and captured steps. A step is the \
             range of GPUWHY_NVTX_CAPTURE; without one, steps are detected, and tracing stays on.";
        DELAY: Duration = "GPUWHY_DELAY", "0s", "a duration such as 10s", parse_duration,
            "For programs with a long start-up: no capture starts before this time after the start of CUDA, except \
             by command.";
        CONTROL: bool = "GPUWHY_CONTROL", "on", "on, off or an absolute folder name",
            |text| on_or_off(text).or_else(|| Path::new(text).is_absolute().then_some(true)),
            "For machines that allow no socket in the usual place: `off` disables [live control](control.md). With a \
             folder, the socket is created there, and commands with the same setting search only there.";
        RUN: Option<String> = "GPUWHY_RUN", "off", "a name of at most 64 printable characters, or `off`",
            |text| {
                let is_name = (1..=RUN_LENGTH).contains(&text.chars().count()) && !text.chars().any(char::is_control);
                or_off(text, |text| is_name.then(|| text.to_owned()))
            },
            "For [metrics](metrics.md) of jobs without a launcher: the name of the run, the same on all ranks. \
             Without it, the launcher's job id is the name.";
        COMMAND_LINE: CommandLine = "GPUWHY_COMMAND_LINE", "full", "full, name or off",
            |text| one_of(text, &[("full", CommandLine::Full), ("name", CommandLine::Name), ("off", CommandLine::Off)]),
            "For programs with secrets among their arguments: how much of the command line the trace keeps and \
             `gpuwhy top` shows. `full`: all of it, with `***` in place of likely secrets \
             (docs/design/reliability.md); `name`: only the program; `off`: nothing.";
        SOURCE_LINES: bool = "GPUWHY_SOURCE_LINES", "on", "on or off", on_or_off,
            "For programs whose source code must stay where it is: `off` keeps it out of the trace. `on`: when \
             recording ends, the text of at most 16 lines that the report names goes into the trace, with the \
             statements around them, what assigns and imports their names, and lines of their files that make data \
             loaders or switch gradients or deterministic kernels: at most 64 KiB, with `***` in place of \
             likely secrets, and only of files that have not changed since the process began.";
        DURATION: Option<Duration> = "GPUWHY_DURATION", "off", "a duration such as 10s, or `off`",
            |text| or_off(text, parse_duration),
            "For long runs: maximum duration of a capture.";
        CUPTI_SHARING: CuptiSharing = "GPUWHY_CUPTI_SHARING", "exclusive", "exclusive or yield",
            |text| one_of(text, &[("exclusive", CuptiSharing::Exclusive), ("yield", CuptiSharing::Yield)]),
            "For programs that start torch.profiler or another tool of CUPTI, which serves one per process. \
             `exclusive` refuses the other tool. With `yield` gpuwhy [pauses](../design/reliability.md#other-tools) \
             while the other tool records, which needs CUPTI of CUDA 13.0 update 1.";
        BUFFER_MEMORY: u64 = "GPUWHY_BUFFER_MEMORY", "256M", "a size from 8M to 64G",
            |text| {
                // From the start, the channels have room for all buffers.
                parse_bytes(text).filter(|bytes| (8 << 20..=64 << 30).contains(bytes))
            },
            "For programs whose report says that records were dropped: maximum host memory for activity buffers, \
             from `8M` to `64G`, allocated as needed. CUPTI 13 holds a buffer of 1 MiB for each launching thread.";
        SAMPLING: Sampling = "GPUWHY_SAMPLING", "auto", "auto, on or off",
            |text| match text {
                "auto" => Some(Sampling::Auto),
                _ => on_or_off(text).map(|on| if on { Sampling::On } else { Sampling::Off }),
            },
            "For systems that do not allow threads to be sampled: `off` does not try, nor read the stacks of captured \
             CUDA graphs. `auto` samples the threads that call CUDA, using at most 1 % of one core, and notes in the \
             report what the system does not allow; `on` also prints that on stderr.";
        NATIVE_STACKS: NativeStacks = "GPUWHY_NATIVE_STACKS", "off", "auto or off",
            |text| one_of(text, &[("auto", NativeStacks::Auto), ("off", NativeStacks::Off)]),
            "For programs limited by their C and C++ code (x86-64): `auto` adds its functions to the stacks of host \
             samples, where the system [allows it](../design/reliability.md). Five programs took 1.04 to 1.24 times \
             as long. In modes `monitor` and `auto` it is on by default for Python programs.";
        KERNELS: Option<KernelRequest> = "GPUWHY_KERNELS", "off", "a number from 1 to 64, also with a regular expression such as 5:gemm|softmax, or `off`",
            kernels::parse_chosen,
            "For authors of kernels: how many are [measured](kernels.md) with hardware counters while the program \
             runs, those with the most to gain. `5:gemm\\|softmax` selects among those whose name matches. A \
             measured launch is delayed by about 20 ms.";
        KERNEL_METRICS: Vec<WantedMetrics> = "GPUWHY_KERNEL_METRICS", "off", "metrics separated by commas: names such as dram__bytes_read.sum, regular expressions such as regex:^dram__ and sections such as section:SpeedOfLight, or `off`",
            kernels::parse_metrics,
            "For authors of kernels who know which metric they need: what GPUWHY_KERNELS [measures](kernels.md#metrics-by-name) \
             in place of the metrics of all pages. Names without a rollup such as `.sum` stand for all rollups.";
        GPU_METRICS: GpuMetrics = "GPUWHY_GPU_METRICS", "gauges", "auto, off, gauges, on or on:HZ with 10 to 10000 samples a second",
            GpuMetrics::parse,
            "For users who want to know [what limits the GPU](inside-the-gpu.md). `gauges` reads power, clocks, \
             memory and traffic from NVML; `auto` also samples hardware counters where possible; `on` also prints on \
             stderr why they are unavailable; `on:HZ` sets the rate; `off` reads nothing.";
    }
    /// Variables for tests of gpuwhy, which CONTRIBUTING.md lists. They may change at any time.
    FOR_TESTS {
        FLUSH: Duration = "GPUWHY_FLUSH", "100ms", "a duration from 10ms to 10s",
            |text| {
                let range = Duration::from_millis(10)..=Duration::from_secs(10);
                parse_duration(text).filter(|period| range.contains(period))
            },
            "Time between two flushes of CUPTI's buffers, from `10ms` to `10s`. A killed program loses about two of \
             them.";
        EXIT_TIMEOUT: Duration = "GPUWHY_EXIT_TIMEOUT", "3s", "a duration of at most 1h such as 3s",
            |text| parse_duration(text).filter(|&wait| wait <= Duration::from_secs(3600)),
            "Longest time that the end of the program waits for the last records, at most `1h`.";
        RAW_RECORDING: Option<Pattern> = "GPUWHY_RAW_RECORDING", "off", "a file name pattern or `off`",
            optional_pattern,
            "File for every activity buffer as CUPTI delivered it, up to 64 MiB, to be played back by the replay \
             library. Same patterns as GPUWHY_OUTPUT.";
    }
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;
    use crate::config::Settings;

    /// Formats the table as Markdown: the contents of `docs/guide/environment.md`.
    fn markdown() -> String {
        let mut text = String::from(
            "# Environment variables of libprof.so\n\n\
             Generated from the table that the parser reads (`inject/src/config/table.rs`). A value that is not understood is\n\
             replaced by the default, and an unknown `GPUWHY_*` variable has no effect; a line on stderr names what was\n\
             probably meant. Neither stops the program, but `gpuwhy run` reports both first, and does not start a program if a\n\
             value is not understood. Each meaning starts with who needs the variable.\n\n\
             | variable | default | meaning |\n|---|---|---|\n",
        );
        for Variable { name, default, meaning } in VARIABLES {
            text.push_str(&format!("| `{name}` | {default} | {meaning} |\n"));
        }
        text.push_str(
            "\nNot for libprof.so: `GPUWHY_LIB` is the path of the libprof.so that the command `gpuwhy` loads into programs,\n\
             `GPUWHY_BLESS=1` makes tests that use the crate renew their baselines.\n",
        );
        text
    }

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
