//! What the user can set, and nothing else: environment variables and what they say.
//!
//! A value that cannot be understood never stops the host program: it is replaced by the default, and one line on
//! stderr names the variable. The variables themselves are in `variable`, the ways to write a value in `value`, and
//! what is wrong with one, and in which words, in `error`.

mod error;
pub(crate) mod pattern;
pub(crate) mod request;
mod value;
mod variable;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use profiler_core::cost::Mode;

use crate::config::pattern::Pattern;
use crate::config::request::{AtEnd, Range, RangeKind, RangeName, Request, Schedule, parse_signal};
use crate::config::value::{is_off, on_or_off, parse_bytes, parse_percent};

pub use error::SettingsError;
pub use value::parse_duration;
pub use variable::*;

pub use crate::log::Level;

/// What a record of a CUDA graph is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graphs {
    /// A node.
    Nodes,
    /// A launch.
    Whole,
    /// A launch at first, and a node once those are known to be cheap.
    Auto,
}

impl Graphs {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "node" => Some(Self::Nodes),
            "graph" => Some(Self::Whole),
            "auto" => Some(Self::Auto),
            _ => None,
        }
    }
}

/// Whether other tools can use CUPTI: `GPUWHY_CUPTI_SHARING`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CuptiSharing {
    /// This library keeps CUPTI to the end of the process.
    Exclusive,
    /// Other tools can use CUPTI: this library releases it, and pauses while another tool records.
    Yield,
}

impl CuptiSharing {
    /// From its name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "exclusive" => Some(Self::Exclusive),
            "yield" => Some(Self::Yield),
            _ => None,
        }
    }
}

/// Whether the what-if simulation runs beside the accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhatIf {
    /// Until records come faster than they can be taken in.
    Auto,
    /// Whatever it costs.
    On,
    /// Not at all.
    Off,
}

/// Whether host threads are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// As far as it is possible.
    Auto,
    /// The same, and what is not possible is said at once.
    On,
    /// Not at all.
    Off,
}

/// How much of the program's command line is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandLine {
    /// All but what looks like a secret.
    Full,
    /// The program without its arguments.
    Name,
    /// Nothing.
    Off,
}

impl CommandLine {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "full" => Some(Self::Full),
            "name" => Some(Self::Name),
            _ => is_off(text).then_some(Self::Off),
        }
    }
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
    /// What a record of a CUDA graph is about.
    pub graphs: Graphs,
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
    /// Record page faults of the host on managed memory.
    pub um_cpu_page_faults: bool,
    /// Record page faults of devices on managed memory.
    pub um_gpu_page_faults: bool,
    /// Time between flushes.
    pub flush: Duration,
    /// Injection library to load after this one.
    pub chain: Option<PathBuf>,
    /// Whether other tools get CUPTI.
    pub cupti_sharing: CuptiSharing,
    /// Most memory for activity buffers, bytes.
    pub memory: u64,
    /// Sample host threads.
    pub sampling: Sampling,
    /// [`WHAT_IF`].
    pub what_if: WhatIf,
    /// What is measured.
    pub capture: Request,
    /// Open a control socket.
    pub control: bool,
    /// How much of the command line is kept.
    pub command_line: CommandLine,
}

impl Settings {
    /// Reads the process environment.
    #[must_use]
    pub fn from_env() -> (Self, Vec<SettingsError>) {
        let variables: Vec<_> = env::vars_os().collect();
        Self::from_variables(&variables)
    }

    /// Reads `variables`, of which the last one of a name counts.
    #[must_use]
    pub fn from_variables(variables: &[(OsString, OsString)]) -> (Self, Vec<SettingsError>) {
        let mut bad: Vec<_> = variables.iter().filter_map(|(name, _)| error::unknown(name)).collect();
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
                Some(Pattern::new("gpuwhy-%p.gpuwhy")),
                |text| Some(if is_off(text) { None } else { Some(Pattern::new(text)) }),
            ),
            mode: read(&lookup, &mut bad, MODE, "monitor, light or full", Mode::Light, Mode::named),
            graphs: read(&lookup, &mut bad, CUDA_GRAPH_TRACE, "node, graph or auto", Graphs::Nodes, Graphs::parse),
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
            record: read(&lookup, &mut bad, RAW_RECORDING, "a file name pattern or `off`", None, |text| {
                Some(if is_off(text) { None } else { Some(Pattern::new(text)) })
            }),
            record_limit: read(&lookup, &mut bad, RAW_RECORDING_LIMIT, "a size such as 64M", 64 << 20, parse_bytes),
            exit_timeout: read(
                &lookup,
                &mut bad,
                EXIT_TIMEOUT,
                "a duration of at most 1h such as 3s",
                Duration::from_secs(3),
                |text| parse_duration(text).filter(|&wait| wait <= Duration::from_secs(3600)),
            ),
            dependencies: read(&lookup, &mut bad, DEPENDENCIES, "on or off", false, on_or_off),
            memory_usage: read(&lookup, &mut bad, MEMORY_USAGE, "on or off", false, on_or_off),
            um_cpu_page_faults: read(&lookup, &mut bad, UM_CPU_PAGE_FAULTS, "on or off", false, on_or_off),
            um_gpu_page_faults: read(&lookup, &mut bad, UM_GPU_PAGE_FAULTS, "on or off", false, on_or_off),
            flush: read(&lookup, &mut bad, FLUSH, "a duration from 10ms to 10s", Duration::from_millis(100), |text| {
                parse_duration(text).filter(|d| (Duration::from_millis(10)..=Duration::from_secs(10)).contains(d))
            }),
            control: read(&lookup, &mut bad, CONTROL, "on or off", true, on_or_off),
            capture: read_capture(&lookup, &mut bad),
            chain: read(&lookup, &mut bad, CHAIN, "a file name or `off`", None, |text| {
                Some(if is_off(text) { None } else { Some(PathBuf::from(text)) })
            }),
            cupti_sharing: read(
                &lookup,
                &mut bad,
                CUPTI_SHARING,
                "exclusive or yield",
                CuptiSharing::Exclusive,
                CuptiSharing::parse,
            ),
            memory: read(&lookup, &mut bad, BUFFER_MEMORY, "a size from 8M to 64G", 256 << 20, |text| {
                // The channels have room for every buffer there is, from the start.
                parse_bytes(text).filter(|bytes| (8 << 20..=64 << 30).contains(bytes))
            }),
            what_if: read(&lookup, &mut bad, WHAT_IF, "auto, on or off", WhatIf::Auto, |text| match text {
                "auto" => Some(WhatIf::Auto),
                _ => on_or_off(text).map(|on| if on { WhatIf::On } else { WhatIf::Off }),
            }),
            sampling: read(&lookup, &mut bad, SAMPLING, "auto, on or off", Sampling::Auto, |text| match text {
                "auto" => Some(Sampling::Auto),
                _ => on_or_off(text).map(|on| if on { Sampling::On } else { Sampling::Off }),
            }),
            command_line: read(
                &lookup,
                &mut bad,
                COMMAND_LINE,
                "full, name or off",
                CommandLine::Full,
                CommandLine::parse,
            ),
        };
        let patterns = [(OUTPUT, &settings.output), (RAW_RECORDING, &settings.record)];
        bad.extend(patterns.into_iter().filter_map(|(variable, pattern)| {
            let placeholder = pattern.as_ref()?.unknown_placeholder()?;
            Some(SettingsError::Placeholder { variable, placeholder })
        }));
        (settings, bad)
    }

    /// Whether a CUDA graph is one record at first. What is on holds for other tools too, which expect nodes.
    pub fn whole_graphs(&self, cupti_sharing: CuptiSharing) -> bool {
        self.mode != Mode::Monitor && self.graphs != Graphs::Nodes && cupti_sharing == CuptiSharing::Exclusive
    }

    /// Notes for the report on what is not recorded, and why. `whole_graphs_are_safe` with the libcupti that was found.
    pub fn describe_tracing(&self, cupti_sharing: CuptiSharing, whole_graphs_are_safe: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if self.mode == Mode::Monitor {
            notes.push(format!(
                "{MODE}=monitor: no device work and no API calls are recorded; utilization of whole devices is read from NVML four \
                 times a second"
            ));
        }
        if self.mode != Mode::Monitor && self.graphs == Graphs::Whole {
            notes.push(match cupti_sharing {
                CuptiSharing::Exclusive if !whole_graphs_are_safe => format!(
                    "{CUDA_GRAPH_TRACE}=graph has no effect: CUDA graphs are recorded by nodes, because CUPTI before 13.2 can crash \
                     programs when it records whole graphs; {CUPTI_PATH} can name a newer libcupti"
                ),
                CuptiSharing::Exclusive => format!(
                    "CUDA graphs are recorded as a whole ({CUDA_GRAPH_TRACE}=graph): each counts as computation, its contents are unknown"
                ),
                CuptiSharing::Yield => format!(
                    "{CUDA_GRAPH_TRACE}=graph has no effect: with {CUPTI_SHARING}=yield other tools need the nodes too"
                ),
            });
        }
        notes
    }
}

/// What is expected of a variable, if this value of it is not understood.
#[must_use]
pub fn expected(variable: &str, value: &str) -> Option<&'static str> {
    let (_, errors) = Settings::from_variables(&[(variable.into(), value.into())]);
    errors.into_iter().find_map(|error| match error {
        SettingsError::Value { expected, .. } => Some(expected),
        _ => None,
    })
}

/// What is to be measured. A range without a name is a error, and then the whole run is measured.
fn read_capture<'a>(lookup: &impl Fn(&'static str) -> Option<&'a OsStr>, bad: &mut Vec<SettingsError>) -> Request {
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
            bad.push(SettingsError::RangeWithoutName);
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

/// The value of one variable: unset or empty is the default, not understood is the default and a error.
fn read<'a, T>(
    lookup: &impl Fn(&'static str) -> Option<&'a OsStr>,
    bad: &mut Vec<SettingsError>,
    variable: &'static str,
    expected: &'static str,
    default: T,
    parse: impl Fn(&str) -> Option<T>,
) -> T {
    let Some(value) = lookup(variable).filter(|value| !value.is_empty()) else { return default };
    if let Some(parsed) = value.to_str().map(str::trim).and_then(parse) {
        return parsed;
    }
    bad.push(SettingsError::Value { variable, value: value.to_string_lossy().into_owned(), expected });
    default
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&'static str, &str)]) -> (Settings, Vec<SettingsError>) {
        let variables: Vec<_> = pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        Settings::from_variables(&variables)
    }

    #[test]
    fn defaults_hold_when_nothing_is_set() {
        let (settings, bad) = parse(&[]);
        assert!(bad.is_empty());
        assert_eq!(settings.output, Some(Pattern::new("gpuwhy-%p.gpuwhy")));
        assert_eq!(settings.report, ReportStyle::Summary);
        assert_eq!(settings.live, None);
        assert_eq!(settings.flush, Duration::from_millis(100));
    }

    #[test]
    fn values_are_read() {
        let (settings, bad) =
            parse(&[(LIVE, "500ms"), (REPORT, "off"), (OUTPUT, "off"), (RAW_RECORDING_LIMIT, "2K"), (LOG, "debug")]);
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
            [(LIVE, "often"), (REPORT, "all"), (FLUSH, "1ms"), (BUFFER_MEMORY, "-3"), (EXIT_TIMEOUT, "3 weeks")]
                .into_iter()
                // What could not be waited for or taken: no memory for so many buffers, no clock for such a time.
                .chain([
                    (BUFFER_MEMORY, "18446744073709551615"),
                    (BUFFER_MEMORY, "65G"),
                    (EXIT_TIMEOUT, "1e19"),
                    (EXIT_TIMEOUT, "61m"),
                ])
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
        let (settings, bad) = parse(&[("HOME", "/root"), ("GPUWHY_LIVES", "1s"), (LIVE, "2s"), (REPORT, "loud")]);
        assert_eq!(settings.live, Some(Duration::from_secs(2)));
        let said: Vec<_> = bad.iter().map(SettingsError::to_string).collect();
        assert!(said.len() == 2 && said[0].contains("GPUWHY_LIVES") && said[1].contains("loud"), "{said:?}");
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
        assert!(settings.capture.is_whole() && bad == [SettingsError::RangeWithoutName]);
        assert!(parse(&[(STEPS, "1,0,0,2")]).0.capture.detects_steps());
    }
}
