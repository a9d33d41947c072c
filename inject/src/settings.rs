//! What the user can set, and nothing else: one table of environment variables.
//!
//! The table is the source of `docs/ENVIRONMENT.md` (a test compares them), of `gpuprof run --help`, and of the
//! parser below, so a variable cannot exist without its documentation. A value that cannot be understood never
//! stops the host program: it is replaced by the default, and one line on stderr names the variable.
//! What is wrong, and in which words, is `complaint`.

mod complaint;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use profiler_core::cost::Mode;

pub use complaint::Complaint;

use crate::capture::request::{AtEnd, Range, RangeKind, RangeName, Request, Schedule, parse_signal};
use crate::log::Level;
use crate::output::Pattern;

/// One environment variable.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What holds when it is not set.
    pub default: &'static str,
    /// What it does, with units and the values it takes.
    pub meaning: &'static str,
}

/// How much is recorded.
pub const MODE: &str = "GPUPROF_MODE";
/// Whether a CUDA graph is one record.
pub const CUDA_GRAPHS: &str = "GPUPROF_CUDA_GRAPHS";
/// How much tracing may take.
pub const MAX_OVERHEAD: &str = "GPUPROF_MAX_OVERHEAD";
/// Where the trace is written.
pub const OUTPUT: &str = "GPUPROF_OUTPUT";
/// How much is printed at the end.
pub const REPORT: &str = "GPUPROF_REPORT";
/// How often a verdict is printed while the program runs.
pub const LIVE: &str = "GPUPROF_LIVE";
/// How talkative the library is.
pub const LOG: &str = "GPUPROF_LOG";
/// Which libcupti to load.
pub const CUPTI_PATH: &str = "GPUPROF_CUPTI_PATH";
/// Raw recording for the replay library.
pub const RECORD: &str = "GPUPROF_RECORD";
/// Size limit of the raw recording.
pub const RECORD_LIMIT: &str = "GPUPROF_RECORD_LIMIT";
/// Longest wait at exit.
pub const EXIT_TIMEOUT: &str = "GPUPROF_EXIT_TIMEOUT";
/// Whether stream dependencies are recorded.
pub const DEPENDENCIES: &str = "GPUPROF_DEPENDENCIES";
/// Whether allocations are recorded.
pub const MEMORY_USAGE: &str = "GPUPROF_CUDA_MEMORY_USAGE";
/// Whether the program is replayed without one cost.
pub const WHAT_IF: &str = "GPUPROF_WHAT_IF";
/// Time between flushes.
pub const FLUSH: &str = "GPUPROF_FLUSH";
/// Another injection library.
pub const CHAIN: &str = "GPUPROF_CHAIN";
/// Memory for activity buffers.
pub const MEMORY: &str = "GPUPROF_MEMORY";
/// Whether host threads are looked at.
pub const SAMPLING: &str = "GPUPROF_SAMPLING";

/// What the CUDA driver loads. Not ours: it is how libprof.so got here.
pub const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";
/// What NVTX loads. Not ours.
pub const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";
/// What begins and ends a capture.
pub const CAPTURE_RANGE: &str = "GPUPROF_CAPTURE_RANGE";
/// Which range of the program.
pub const NVTX_CAPTURE: &str = "GPUPROF_NVTX_CAPTURE";
/// What follows the end of a capture.
pub const CAPTURE_RANGE_END: &str = "GPUPROF_CAPTURE_RANGE_END";
/// Which steps are captured.
pub const STEPS: &str = "GPUPROF_STEPS";
/// Time before the first capture.
pub const DELAY: &str = "GPUPROF_DELAY";
/// Longest capture.
pub const DURATION: &str = "GPUPROF_DURATION";
/// Whether there is a control socket.
pub const CONTROL: &str = "GPUPROF_CONTROL";
/// Signal after the last capture.
pub const KILL: &str = "GPUPROF_KILL";

/// Every variable that libprof.so reads.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: OUTPUT,
        default: "gpuprof-%p.gpuprof",
        meaning: "Trace file. `%p` is the process id, `%h` the host name, `%q{VAR}` the value of VAR, `%%` a percent sign. \
                  `off` writes none. A file that exists is not overwritten: the new one gets a number.",
    },
    Variable {
        name: MODE,
        default: "light",
        meaning: "How much is recorded at most: `watch` no device work and no API call, only ranges (NVTX) and what host threads do, \
                  without a division of device time; `light` device work and the API calls that launch, copy, wait, allocate or load; \
                  `full` every API call, memory usage, synchronisations and events too.",
    },
    Variable {
        name: CUDA_GRAPHS,
        default: "auto",
        meaning: "`node` records each node of a CUDA graph, `graph` a launch of a graph as one piece of computation whose inside is not \
                  known, `auto` nodes, but whole graphs when GPUPROF_MAX_OVERHEAD is set: CUPTI takes the choice when a graph \
                  is instantiated, so it cannot be stepped down to later.",
    },
    Variable {
        name: MAX_OVERHEAD,
        default: "off",
        meaning: "Part of the launching threads' time that tracing may take, such as `1%`: after three seconds in a row above it by \
                  gpuprof's own estimate the next cheaper GPUPROF_MODE holds, down to `watch`, and the report says when. It goes \
                  before GPUPROF_MODE, which is the most that is recorded, and nothing is stepped up again.",
    },
    Variable {
        name: REPORT,
        default: "summary",
        meaning: "What is printed to stderr when the program ends: `off`, `summary` or `full` (every kernel, copy and call).",
    },
    Variable {
        name: LIVE,
        default: "off",
        meaning: "Prints a one-line verdict to stderr this often while the program runs: a duration such as `500ms`, `2s` or \
                  `1m`, or `off`.",
    },
    Variable {
        name: LOG,
        default: "warn",
        meaning: "What the library says about itself on stderr: `off`, `error`, `warn`, `info` or `debug`.",
    },
    Variable {
        name: CUPTI_PATH,
        default: "found automatically",
        meaning: "File of the libcupti to load when none is in the process yet.",
    },
    Variable {
        name: RECORD,
        default: "off",
        meaning: "Also writes every activity buffer as CUPTI delivered it to this file (same patterns as GPUPROF_OUTPUT), to \
                  be played back by the replay library. Large; for bug reports and test fixtures.",
    },
    Variable {
        name: RECORD_LIMIT,
        default: "64M",
        meaning: "The raw recording stops growing at this size: bytes, or with a suffix `K`, `M`, `G` (powers of 1024).",
    },
    Variable {
        name: EXIT_TIMEOUT,
        default: "3s",
        meaning: "Longest time that the end of the program may wait for the last records. What did not arrive by then is \
                  counted in the report.",
    },
    Variable {
        name: DEPENDENCIES,
        default: "off",
        meaning: "`on` also records synchronisations and events, that is, which stream waited for which. On the launch path it costs \
                  as much as everything else together, and the verdict does not need it.",
    },
    Variable {
        name: MEMORY_USAGE,
        default: "off",
        meaning: "`on` also records every allocation and release of device, page-locked and managed memory, and of memory pools: how much \
                  is held, the peak, when it was and which call took it.",
    },
    Variable {
        name: WHAT_IF,
        default: "auto",
        meaning: "Whether the run is replayed without one cost at a time, for the ceilings of the report: `on`, `off`, or `auto`, \
                  which gives it up when records come faster than they can be taken in. `gpuprof report` makes it up from the \
                  trace.",
    },
    Variable {
        name: FLUSH,
        default: "100ms",
        meaning: "Time between two flushes of CUPTI's buffers: what a killed program loses at most, about twice over. Between \
                  `10ms` and `10s`.",
    },
    Variable {
        name: CAPTURE_RANGE,
        default: "none",
        meaning: "What is measured: `none` the whole run, `cudaProfilerApi` from cudaProfilerStart to cudaProfilerStop, `nvtx` while \
                  the range of GPUPROF_NVTX_CAPTURE is open. Until a capture begins nothing is recorded and the program runs free.",
    },
    Variable {
        name: NVTX_CAPTURE,
        default: "none",
        meaning: "The range that is captured, or, with GPUPROF_STEPS, a step: `range`, `range@domain`, `*@domain`, `range@*`; without a \
                  domain the default one.",
    },
    Variable {
        name: CAPTURE_RANGE_END,
        default: "stop-shutdown",
        meaning: "What follows the end of a capture: `none` the capture goes on, `stop` no other begins by itself, `stop-shutdown` \
                  measuring is over and the report comes while the program goes on, `repeat` or `repeat:N` the next range is \
                  captured too, at most N in all.",
    },
    Variable {
        name: STEPS,
        default: "off",
        meaning: "Captures chosen steps, as torch.profiler's schedule: `skip,wait,warmup,active,repeat`, for example `10,0,2,5,1`. After \
                  `skip` steps, `repeat` cycles (0: without end) of `wait` free steps, `warmup` steps whose records are thrown away, \
                  and `active` captured ones. A step is the range of GPUPROF_NVTX_CAPTURE; without one steps are detected, for which \
                  tracing is on all the time, and a capture begins and ends when a step has become known.",
    },
    Variable {
        name: DELAY,
        default: "0s",
        meaning: "No capture begins before this time after the start of CUDA, except by command.",
    },
    Variable {
        name: CONTROL,
        default: "on",
        meaning: "`off` opens no socket for `gpuprof status`, `start`, `stop`, `snapshot` and `watch` (docs/CONTROL.md).",
    },
    Variable { name: DURATION, default: "off", meaning: "A capture ends after this time at the latest." },
    Variable {
        name: KILL,
        default: "none",
        meaning: "Signal that the process sends itself when measuring ends before it (`stop-shutdown`): `none`, `sigterm`, `sigint`, \
                  `sigkill`, or a number.",
    },
    Variable {
        name: CHAIN,
        default: "off",
        meaning: "Another injection library, loaded and initialised after this one: the driver itself loads only one. It works \
                  beside gpuprof unless it needs CUPTI too, which serves one tool in a process.",
    },
    Variable {
        name: MEMORY,
        default: "256M",
        meaning: "Most host memory for activity buffers, taken in buffers of 1 MiB as needed: CUPTI 13 holds one for each launching thread. When it is used up, records are dropped and counted.",
    },
    Variable {
        name: SAMPLING,
        default: "auto",
        meaning: "Whether the threads that call CUDA are looked at from the side, for at most 1 % of one core: CPU time, what they \
                  wait in, Python stack (CPython 3.9 to 3.14), garbage collection, child processes. `auto` does what this system \
                  allows and notes in the report what it does not, `on` also says so on stderr, `off` looks at nothing.",
    },
];

/// Whether the what-if replay runs beside the accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhatIf {
    /// Until records come faster than they can be taken in.
    Auto,
    /// Whatever it costs.
    On,
    /// Not at all.
    Off,
}

/// Whether host threads are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// As far as it is possible.
    Auto,
    /// The same, and what is not possible is said at once.
    On,
    /// Not at all.
    Off,
}

/// How much is printed at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportStyle {
    /// Nothing.
    Off,
    /// Verdict, leaves, top kernels.
    Summary,
    /// Everything.
    Full,
}

/// What the variables say.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Trace file, unless switched off.
    pub output: Option<Pattern>,
    /// How much is recorded at first.
    pub mode: Mode,
    /// Whether a CUDA graph is one record; `None`: as [`CUDA_GRAPHS`] says for `auto`.
    pub graphs: Option<bool>,
    /// Part of the launching threads' time that tracing may take.
    pub max_overhead: Option<f64>,
    /// Printed at the end.
    pub report: ReportStyle,
    /// Interval of the live verdict.
    pub live: Option<Duration>,
    /// Log level.
    pub log: Level,
    /// Explicit libcupti.
    pub cupti_path: Option<PathBuf>,
    /// Raw recording.
    pub record: Option<Pattern>,
    /// Size limit of the raw recording, bytes.
    pub record_limit: u64,
    /// Longest wait at exit.
    pub exit_timeout: Duration,
    /// Record stream dependencies.
    pub dependencies: bool,
    /// Record allocations.
    pub memory_usage: bool,
    /// Time between flushes.
    pub flush: Duration,
    /// Injection library to load after this one.
    pub chain: Option<PathBuf>,
    /// Most memory for activity buffers, bytes.
    pub memory: u64,
    /// Look at host threads.
    pub sampling: Sampling,
    /// [`WHAT_IF`].
    pub what_if: WhatIf,
    /// What is measured.
    pub capture: Request,
    /// Open a control socket.
    pub control: bool,
}

impl Settings {
    /// Reads the process environment.
    #[must_use]
    pub fn from_env() -> (Self, Vec<Complaint>) {
        let variables: Vec<_> = env::vars_os().collect();
        Self::from_variables(&variables)
    }

    /// Reads `variables`, of which the last one of a name counts.
    #[must_use]
    pub fn from_variables(variables: &[(OsString, OsString)]) -> (Self, Vec<Complaint>) {
        let mut bad: Vec<_> = variables.iter().filter_map(|(name, _)| complaint::unknown(name)).collect();
        let lookup = |name: &'static str| {
            let found = variables.iter().rev().find(|(set, _)| set == name);
            found.map(|(_, value)| value.as_os_str())
        };
        let settings = Self {
            output: read(
                &lookup,
                &mut bad,
                OUTPUT,
                "a file name pattern or `off`",
                Some(Pattern::new("gpuprof-%p.gpuprof")),
                |text| Some(if is_off(text) { None } else { Some(Pattern::new(text)) }),
            ),
            mode: read(&lookup, &mut bad, MODE, "watch, light or full", Mode::Light, Mode::named),
            graphs: read(&lookup, &mut bad, CUDA_GRAPHS, "auto, node or graph", None, |text| match text {
                "auto" => Some(None),
                "node" => Some(Some(false)),
                "graph" => Some(Some(true)),
                _ => None,
            }),
            max_overhead: read(
                &lookup,
                &mut bad,
                MAX_OVERHEAD,
                "a percentage such as 1% or 0.5%, or `off`",
                None,
                |text| {
                    if is_off(text) { Some(None) } else { parse_percent(text).map(Some) }
                },
            ),
            report: read(&lookup, &mut bad, REPORT, "off, summary or full", ReportStyle::Summary, |text| match text {
                "summary" | "1" | "on" => Some(ReportStyle::Summary),
                "full" => Some(ReportStyle::Full),
                _ => is_off(text).then_some(ReportStyle::Off),
            }),
            live: read(&lookup, &mut bad, LIVE, "a duration such as 500ms or 2s, or `off`", None, |text| {
                if is_off(text) { Some(None) } else { parse_duration(text).filter(|d| !d.is_zero()).map(Some) }
            }),
            log: read(&lookup, &mut bad, LOG, "off, error, warn, info or debug", Level::Warn, Level::parse),
            cupti_path: read(&lookup, &mut bad, CUPTI_PATH, "a file name", None, |text| {
                Some(Some(PathBuf::from(text)))
            }),
            record: read(&lookup, &mut bad, RECORD, "a file name pattern or `off`", None, |text| {
                Some(if is_off(text) { None } else { Some(Pattern::new(text)) })
            }),
            record_limit: read(&lookup, &mut bad, RECORD_LIMIT, "a size such as 64M", 64 << 20, parse_bytes),
            exit_timeout: read(
                &lookup,
                &mut bad,
                EXIT_TIMEOUT,
                "a duration such as 3s",
                Duration::from_secs(3),
                parse_duration,
            ),
            dependencies: read(&lookup, &mut bad, DEPENDENCIES, "on or off", false, |text| match text {
                "on" | "1" | "yes" | "true" => Some(true),
                _ => is_off(text).then_some(false),
            }),
            memory_usage: read(&lookup, &mut bad, MEMORY_USAGE, "on or off", false, |text| match text {
                "on" | "1" | "yes" | "true" => Some(true),
                _ => is_off(text).then_some(false),
            }),
            flush: read(&lookup, &mut bad, FLUSH, "a duration from 10ms to 10s", Duration::from_millis(100), |text| {
                parse_duration(text).filter(|d| (Duration::from_millis(10)..=Duration::from_secs(10)).contains(d))
            }),
            control: read(&lookup, &mut bad, CONTROL, "on or off", true, |text| match text {
                "on" | "1" | "yes" | "true" => Some(true),
                _ => is_off(text).then_some(false),
            }),
            capture: read_capture(&lookup, &mut bad),
            chain: read(&lookup, &mut bad, CHAIN, "a file name or `off`", None, |text| {
                Some(if is_off(text) { None } else { Some(PathBuf::from(text)) })
            }),
            memory: read(&lookup, &mut bad, MEMORY, "a size of at least 8M", 256 << 20, |text| {
                parse_bytes(text).filter(|&bytes| bytes >= 8 << 20)
            }),
            what_if: read(&lookup, &mut bad, WHAT_IF, "auto, on or off", WhatIf::Auto, |text| match text {
                "auto" => Some(WhatIf::Auto),
                "on" | "1" | "yes" | "true" => Some(WhatIf::On),
                _ => is_off(text).then_some(WhatIf::Off),
            }),
            sampling: read(&lookup, &mut bad, SAMPLING, "auto, on or off", Sampling::Auto, |text| match text {
                "auto" => Some(Sampling::Auto),
                "on" | "1" | "yes" | "true" => Some(Sampling::On),
                _ => is_off(text).then_some(Sampling::Off),
            }),
        };
        (settings, bad)
    }

    /// Whether a CUDA graph is one record.
    pub fn whole_graphs(&self) -> bool {
        self.mode != Mode::Watch && self.graphs.unwrap_or(self.max_overhead.is_some())
    }

    /// Notes for the report on what is not recorded, and why.
    pub fn describe_tracing(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.mode == Mode::Watch {
            notes.push(format!(
                "{MODE}=watch: no device work and no API calls are recorded, and device utilisation is not read"
            ));
        }
        if self.whole_graphs() {
            let why = if self.graphs.is_some() { CUDA_GRAPHS } else { MAX_OVERHEAD };
            notes.push(format!(
                "CUDA graphs are recorded as a whole ({why} is set): each counts as computation, what runs inside is not known"
            ));
        }
        notes
    }
}

/// What is to be measured. A range without a name is a complaint, and then the whole run is measured.
fn read_capture<'a>(lookup: &impl Fn(&'static str) -> Option<&'a OsStr>, bad: &mut Vec<Complaint>) -> Request {
    let kind = read(lookup, bad, CAPTURE_RANGE, "none, cudaProfilerApi or nvtx", RangeKind::None, RangeKind::parse);
    let expected = "a range such as step, step@domain or *@domain";
    let name = read(lookup, bad, NVTX_CAPTURE, expected, None, |text| RangeName::parse(text).map(Some));
    let expected = "skip,wait,warmup,active,repeat such as 10,0,2,5,1, or `off`";
    let steps = read(lookup, bad, STEPS, expected, None, |text| {
        if text == "off" { Some(None) } else { Schedule::parse(text).map(Some) }
    });
    let range = match (steps, kind, name) {
        (Some(schedule), _, name) => Range::Steps(schedule, name),
        (None, RangeKind::ProfilerApi, _) => Range::ProfilerApi,
        (None, RangeKind::Nvtx, Some(name)) => Range::Named(name),
        (None, RangeKind::Nvtx, None) => {
            let expected = "the range that GPUPROF_CAPTURE_RANGE=nvtx is to capture";
            bad.push(Complaint::Value { variable: NVTX_CAPTURE, value: String::new(), expected });
            Range::Whole
        }
        (None, RangeKind::None, _) => Range::Whole,
    };
    let expected = "none, stop, stop-shutdown, repeat or repeat:N";
    Request {
        range,
        at_end: read(lookup, bad, CAPTURE_RANGE_END, expected, AtEnd::StopShutdown, AtEnd::parse),
        delay: read(lookup, bad, DELAY, "a duration such as 10s", Duration::ZERO, parse_duration),
        duration: read(lookup, bad, DURATION, "a duration such as 10s, or `off`", None, |text| {
            if is_off(text) { Some(None) } else { parse_duration(text).map(Some) }
        }),
        kill: read(lookup, bad, KILL, "none, sigterm, sigint, sigkill or a number", None, parse_signal),
    }
}

/// The value of one variable: unset or empty is the default, not understood is the default and a complaint.
fn read<'a, T>(
    lookup: &impl Fn(&'static str) -> Option<&'a OsStr>,
    bad: &mut Vec<Complaint>,
    variable: &'static str,
    expected: &'static str,
    default: T,
    parse: impl Fn(&str) -> Option<T>,
) -> T {
    let Some(value) = lookup(variable).filter(|value| !value.is_empty()) else { return default };
    if let Some(parsed) = value.to_str().map(str::trim).and_then(parse) {
        return parsed;
    }
    bad.push(Complaint::Value { variable, value: value.to_string_lossy().into_owned(), expected });
    default
}

fn is_off(text: &str) -> bool {
    matches!(text, "off" | "none" | "no" | "0" | "false")
}

/// `500ms`, `2s`, `1.5s`, `1m`; a bare number is seconds.
fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits.parse().ok()?;
    let seconds = match &text[digits.len()..] {
        "ns" => number * 1e-9,
        "us" => number * 1e-6,
        "ms" => number * 1e-3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// `1%` or `1`: a hundredth. More than 0 and at most 100.
fn parse_percent(text: &str) -> Option<f64> {
    let number: f64 = text.strip_suffix('%').unwrap_or(text).trim().parse().ok()?;
    (number > 0.0 && number <= 100.0).then_some(number / 100.0)
}

/// `4096`, `512K`, `64M`, `2G`, with an optional `B` or `iB`.
fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// The table as Markdown: the contents of `docs/ENVIRONMENT.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "# Environment variables of libprof.so\n\n\
         Generated from the table that the parser reads (`inject/src/settings.rs`). A value that is not understood is\n\
         replaced by the default, and a `GPUPROF_*` that is not in this table has no effect: each with a line on stderr\n\
         that names what was probably meant. Neither stops the program. `gpuprof run` refuses both before it starts one.\n\n\
         | variable | default | meaning |\n|---|---|---|\n",
    );
    for Variable { name, default, meaning } in VARIABLES {
        text.push_str(&format!("| `{name}` | {default} | {meaning} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&'static str, &str)]) -> (Settings, Vec<Complaint>) {
        let variables: Vec<_> = pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        Settings::from_variables(&variables)
    }

    #[test]
    fn defaults_hold_when_nothing_is_set() {
        let (settings, bad) = parse(&[]);
        assert!(bad.is_empty());
        assert_eq!(settings.output, Some(Pattern::new("gpuprof-%p.gpuprof")));
        assert_eq!(settings.report, ReportStyle::Summary);
        assert_eq!(settings.live, None);
        assert_eq!(settings.flush, Duration::from_millis(100));
    }

    #[test]
    fn values_are_read() {
        let (settings, bad) =
            parse(&[(LIVE, "500ms"), (REPORT, "off"), (OUTPUT, "off"), (RECORD_LIMIT, "2K"), (LOG, "debug")]);
        assert!(bad.is_empty());
        assert_eq!(settings.live, Some(Duration::from_millis(500)));
        assert_eq!(settings.report, ReportStyle::Off);
        assert_eq!(settings.output, None);
        assert_eq!(settings.record_limit, 2048);
        assert_eq!(settings.log, Level::Debug);
    }

    #[test]
    fn a_bad_value_names_its_variable_and_keeps_the_default() {
        for (variable, value) in
            [(LIVE, "often"), (REPORT, "all"), (FLUSH, "1ms"), (MEMORY, "-3"), (EXIT_TIMEOUT, "3 weeks")]
        {
            let (settings, bad) = parse(&[(variable, value)]);
            assert_eq!(bad.len(), 1, "{variable}={value}");
            assert!(bad[0].to_string().contains(variable) && bad[0].to_string().contains(value));
            let default = VARIABLES.iter().find(|known| known.name == variable).unwrap().default;
            assert!(bad[0].to_string().ends_with(default), "{}", bad[0]);
            assert_eq!(settings.flush, Duration::from_millis(100));
        }
    }

    #[test]
    fn names_that_do_not_exist_are_named_beside_values() {
        let (settings, bad) = parse(&[("HOME", "/root"), ("GPUPROF_LIVES", "1s"), (LIVE, "2s"), (REPORT, "loud")]);
        assert_eq!(settings.live, Some(Duration::from_secs(2)));
        let said: Vec<_> = bad.iter().map(Complaint::to_string).collect();
        assert!(said.len() == 2 && said[0].contains("GPUPROF_LIVES") && said[1].contains("loud"), "{said:?}");
    }

    #[test]
    fn what_is_measured_is_read() {
        assert!(parse(&[]).0.capture.is_whole());
        let (settings, bad) = parse(&[
            (CAPTURE_RANGE, "nvtx"),
            (NVTX_CAPTURE, "epoch@train"),
            (CAPTURE_RANGE_END, "repeat:3"),
            (DURATION, "2"),
            (KILL, "sigterm"),
        ]);
        assert!(bad.is_empty(), "{bad:?}");
        let capture = settings.capture;
        assert_eq!(capture.range, Range::Named(RangeName::parse("epoch@train").unwrap()));
        assert_eq!((capture.at_end, capture.kill), (AtEnd::Repeat(Some(3)), Some(15)));
        assert_eq!(capture.duration, Some(Duration::from_secs(2)));
        let (settings, bad) = parse(&[(CAPTURE_RANGE, "nvtx")]);
        assert!(settings.capture.is_whole() && bad.len() == 1 && bad[0].to_string().contains(NVTX_CAPTURE));
        assert!(parse(&[(STEPS, "1,0,0,2")]).0.capture.detects_steps());
    }

    #[test]
    fn durations_and_sizes() {
        assert_eq!(parse_duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2"), Some(Duration::from_secs(2)));
        assert_eq!(parse_duration("-1s"), None);
        assert_eq!(parse_duration("1e400s"), None);
        assert_eq!(parse_bytes("64MiB"), Some(64 << 20));
        assert_eq!(parse_bytes("99999999999999999999G"), None);
        assert_eq!(parse_bytes("18446744073709551615G"), None);
    }

    #[test]
    fn the_documentation_is_this_table() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ENVIRONMENT.md");
        if env::var_os("GPUPROF_BLESS").is_some() {
            std::fs::write(file, markdown()).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(file).unwrap(),
            markdown(),
            "run the tests with GPUPROF_BLESS=1 to renew {file}"
        );
    }
}
