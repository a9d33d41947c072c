//! User settings: environment variables and their values.
//!
//! An invalid value never stops the program: the default replaces it, and one line on stderr names the
//! variable. `table` has the settings, `value` the syntax of values, and `error` the errors and their texts.

mod choices;
mod error;
mod kernels;
pub(crate) mod pattern;
pub(crate) mod request;
mod table;
mod value;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use gpuwhy_report::cupti::When;
use gpuwhy_trace::cost::Mode;
use profiler_core::monitoring::BurstLimits;

pub use crate::config::pattern::Pattern;
use crate::config::request::{AtEnd, CaptureRange, RangeKind, Request};
use crate::cost::Budget;

pub use choices::{CommandLine, CuptiSharing, GpuMetrics, Graphs, NativeStacks, ReportStyle, Sampling};
pub use error::{SettingsError, warned};
pub use kernels::{ChipMetrics, KernelRequest, MOST_LAUNCHES, SUGGESTED, WantedMetrics, parse_metrics};
pub use request::{MAX_STEPS, RangeName};
use table::Setting;
pub use table::names::*;
pub use table::{FOR_TESTS, VARIABLES, Variable};
pub use value::{parse_bytes, parse_duration};

pub use crate::log::Level;

/// Variables that `gpuwhy run` has warned about, separated by commas: libprof.so does not repeat the
/// warnings.
pub const WARNED: &str = "GPUWHY_WARNED";

/// Socket of the process that tells the user of `gpuwhy run` why there is no report; libprof.so sends its
/// progress there.
pub const WATCHER: &str = "GPUWHY_WATCHER";

/// Library that the CUDA driver loads. Defined by CUDA: it is how libprof.so is loaded.
pub const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";
/// Library that NVTX loads. Defined by NVTX.
pub const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";
/// Profiler plugin of NCCL. Defined by NCCL.
pub const NCCL_PLUGIN: &str = "NCCL_PROFILER_PLUGIN";
/// Value of [`NCCL_PLUGIN`] for this library: the name that `build.rs` sets, without a path.
pub const NCCL_PLUGIN_NAME: &str = "libprof.so";

/// Fraction of the launching threads' time that records of nodes of CUDA graphs may take unless [`MAX_OVERHEAD`] is
/// set: a program is to take at most 1.03 times as long.
const GRAPHS_MAY_TAKE: f64 = 0.03;

/// Limits on bursts in mode auto. [`MAX_OVERHEAD`] sets another budget.
const BURSTS: BurstLimits = BurstLimits { every_ns: 120_000_000_000, longest_ns: 2_000_000_000, budget: 0.01 };

/// Values of all settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Trace file, unless disabled.
    pub output: Option<Pattern>,
    /// Amount of recording at the start.
    pub mode: Mode,
    /// Granularity of the records of CUDA graphs.
    pub graphs: Graphs,
    /// Limit on the cost of tracing.
    pub budget: Option<Budget>,
    /// Limits on bursts in mode auto; `None` in other modes.
    pub bursts: Option<BurstLimits>,
    /// Report that is printed at the end.
    pub report: ReportStyle,
    /// Interval of the live line with the bottleneck.
    pub live: Option<Duration>,
    /// Log level.
    pub log: Level,
    /// File with the history of runs.
    pub history: Option<PathBuf>,
    /// Explicit path of libcupti.
    pub cupti_path: Option<PathBuf>,
    /// Raw recording.
    pub record: Option<Pattern>,
    /// Maximum wait at exit.
    pub exit_timeout: Duration,
    /// Record stream dependencies.
    pub dependencies: bool,
    /// Record allocations.
    pub memory_usage: bool,
    /// Time between flushes.
    pub flush: Duration,
    /// Use of CUPTI by other tools.
    pub cupti_sharing: CuptiSharing,
    /// Maximum memory for activity buffers, bytes.
    pub memory: u64,
    /// Sample host threads.
    pub sampling: Sampling,
    /// Native functions in the stacks of host threads.
    pub native_stacks: NativeStacks,
    /// Kernels to measure with GPU counters; `None` for none.
    pub kernels: Option<KernelRequest>,
    /// Readings of the devices.
    pub gpu_metrics: GpuMetrics,
    /// Parts of the run that are measured.
    pub capture: Request,
    /// Open a control socket.
    pub control: bool,
    /// Name of the run, if the user set one.
    pub run: Option<String>,
    /// Parts of the command line that are kept.
    pub command_line: CommandLine,
    /// Keep the text of the source lines that the report names.
    pub source_lines: bool,
    /// Record page faults of managed memory: not under a limit on the cost, which cannot count them.
    pub faults: bool,
}

impl Settings {
    /// Reads the process environment.
    pub fn from_env() -> (Self, Vec<SettingsError>) {
        let variables: Vec<_> = env::vars_os().collect();
        Self::from_variables(&variables)
    }

    /// Reads `variables`; the last value of a name counts.
    pub fn from_variables(variables: &[(OsString, OsString)]) -> (Self, Vec<SettingsError>) {
        let unknown = variables.iter().filter_map(|(name, _)| error::unknown(name)).collect();
        let mut reader = VariableReader { variables, errors: unknown };
        let mode = reader.get(&table::MODE);
        let max_overhead = reader.get(&table::MAX_OVERHEAD);
        let native_stacks = reader.get(&table::NATIVE_STACKS);
        let stacks_unasked = mode.monitors() && !reader.is_set(NATIVE_STACKS);
        let settings = Self {
            output: reader.get(&table::OUTPUT),
            mode,
            graphs: reader.get(&table::CUDA_GRAPH_TRACE),
            budget: None,
            bursts: (mode == Mode::Auto)
                .then(|| BurstLimits { budget: max_overhead.unwrap_or(BURSTS.budget), ..BURSTS }),
            report: reader.get(&table::REPORT),
            live: reader.get(&table::LIVE),
            log: reader.get(&table::LOG),
            history: reader.get(&table::HISTORY),
            cupti_path: reader.get(&table::CUPTI_PATH),
            record: reader.get(&table::RAW_RECORDING),
            exit_timeout: reader.get(&table::EXIT_TIMEOUT),
            dependencies: reader.get(&table::DEPENDENCIES),
            memory_usage: reader.get(&table::MEMORY_USAGE),
            flush: reader.get(&table::FLUSH),
            cupti_sharing: reader.get(&table::CUPTI_SHARING),
            memory: reader.get(&table::BUFFER_MEMORY),
            sampling: reader.get(&table::SAMPLING),
            native_stacks: if stacks_unasked { NativeStacks::WithPython } else { native_stacks },
            kernels: read_kernels(&mut reader),
            gpu_metrics: reader.get(&table::GPU_METRICS),
            control: reader.get(&table::CONTROL),
            run: reader.get(&table::RUN),
            command_line: reader.get(&table::COMMAND_LINE),
            source_lines: reader.get(&table::SOURCE_LINES),
            faults: max_overhead.is_none(),
            capture: read_capture(&mut reader, mode),
        };
        let unlimited = reader.is_set(MAX_OVERHEAD) && max_overhead.is_none();
        let settings = Self { budget: settings.budget(max_overhead, unlimited), ..settings };
        let VariableReader { mut errors, .. } = reader;
        let patterns = [(OUTPUT, &settings.output), (RAW_RECORDING, &settings.record)];
        errors.extend(patterns.into_iter().filter_map(|(variable, pattern)| {
            let placeholder = pattern.as_ref()?.unknown_placeholder()?;
            Some(SettingsError::Placeholder { variable, placeholder })
        }));
        (settings, errors)
    }

    /// Limit on the cost of tracing: what the user allows, else that of nodes of CUDA graphs. In mode auto it limits
    /// the bursts, and no step down is needed.
    fn budget(&self, max_overhead: Option<f64>, unlimited: bool) -> Option<Budget> {
        // What was requested explicitly is recorded.
        let bursts = self.graphs == Graphs::Auto
            && self.capture.is_complete()
            && self.cupti_sharing == CuptiSharing::Exclusive
            && self.kernels.is_none();
        match max_overhead {
            _ if self.mode.monitors() => None,
            Some(share) => Some(Budget { share, only_graphs: false, bursts }),
            None if bursts && !unlimited && self.mode == Mode::Light => {
                Some(Budget { share: GRAPHS_MAY_TAKE, only_graphs: true, bursts })
            }
            None => None,
        }
    }

    /// Limits of the bursts that follow if tracing costs more than the budget. If that is one of CUDA graphs alone,
    /// none follow: their budget is 0.
    pub fn later_bursts(&self) -> BurstLimits {
        let share = |budget: Budget| if budget.only_graphs { 0.0 } else { budget.share };
        BurstLimits { budget: self.budget.map_or(BURSTS.budget, share), ..BURSTS }
    }

    /// True if a CUDA graph is a single record. Enabled kinds affect other tools too, which expect nodes.
    pub fn whole_graphs(&self, cupti_sharing: CuptiSharing) -> bool {
        !self.mode.monitors() && self.graphs == Graphs::Whole && cupti_sharing == CuptiSharing::Exclusive
    }

    /// True if these settings alone lead to a bug of CUPTI.
    pub fn meets(&self, when: When) -> bool {
        let leads = match when {
            When::Always => true,
            When::Switched => {
                self.bursts.is_some() || self.cupti_sharing == CuptiSharing::Yield || !self.capture.is_complete()
            }
            When::WholeGraphs => self.graphs == Graphs::Whole && !self.mode.monitors(),
            When::Yielded => self.cupti_sharing == CuptiSharing::Yield,
            When::Graphs | When::Managed | When::Hours | When::Reloads => false,
        };
        leads && self.mode != Mode::Monitor
    }

    /// Returns notes for the report on what is not recorded, and why. `whole_graphs_fail`: so does the libcupti found.
    pub fn describe_tracing(&self, cupti_sharing: CuptiSharing, whole_graphs_fail: Option<String>) -> Vec<String> {
        let mut notes = Vec::new();
        if self.mode == Mode::Monitor {
            notes.push(format!(
                "{MODE}=monitor: no device work and no API calls are recorded; utilization of whole devices is read from NVML four \
                 times a second"
            ));
        }
        if let Some(limits) = self.bursts {
            notes.push(format!(
                "{MODE}=auto: device work and API calls are recorded only in bursts of at most {:.1} s, at most 2 and one in \
                 each {:.0} s, for at most {:.1} % of the time",
                limits.longest_ns as f64 / 1e9,
                limits.every_ns as f64 / 1e9,
                limits.budget * 100.0
            ));
        }
        if self.mode == Mode::Auto && self.graphs == Graphs::Whole {
            notes.push(format!(
                "{CUDA_GRAPH_TRACE}=graph has no effect with {MODE}=auto: CUDA graphs are recorded by nodes"
            ));
        }
        if !self.mode.monitors() && self.graphs == Graphs::Whole {
            notes.push(match (cupti_sharing, whole_graphs_fail) {
                (CuptiSharing::Exclusive, Some(sentence)) => format!("{CUDA_GRAPH_TRACE}=graph has no effect: {sentence}"),
                (CuptiSharing::Exclusive, None) => format!(
                    "CUDA graphs are recorded as a whole ({CUDA_GRAPH_TRACE}=graph): each counts as computation, its contents are unknown"
                ),
                (CuptiSharing::Yield, _) => format!(
                    "{CUDA_GRAPH_TRACE}=graph has no effect: with {CUPTI_SHARING}=yield other tools need the nodes too"
                ),
            });
        }
        notes
    }
}

/// Returns the values that a variable accepts, if `value` is invalid.
pub fn expected(variable: &str, value: &str) -> Option<&'static str> {
    let (_, errors) = Settings::from_variables(&[(variable.into(), value.into())]);
    errors.into_iter().find_map(|error| match error {
        SettingsError::Value { expected, .. } => Some(expected),
        _ => None,
    })
}

/// Reads variables, and collects their errors.
struct VariableReader<'a> {
    variables: &'a [(OsString, OsString)],
    errors: Vec<SettingsError>,
}

impl VariableReader<'_> {
    /// True if a variable has a value.
    fn is_set(&self, variable: &str) -> bool {
        self.variables.iter().rev().find(|(name, _)| name == variable).is_some_and(|(_, value)| !value.is_empty())
    }

    /// Returns the value of a setting: the default if it is unset or empty, the default and an error if it is
    /// invalid.
    fn get<T>(&mut self, setting: &Setting<T>) -> T {
        let set = self.variables.iter().rev().find(|(name, _)| name == setting.name);
        let Some((_, value)) = set.filter(|(_, value)| !value.is_empty()) else { return setting.default_value() };
        if let Some(parsed) = value.to_str().map(str::trim).and_then(setting.parse) {
            return parsed;
        }
        self.errors.push(SettingsError::Value {
            variable: setting.name,
            value: value.to_string_lossy().into_owned(),
            expected: setting.expected,
            default: setting.default,
        });
        setting.default_value()
    }
}

fn read_kernels(reader: &mut VariableReader<'_>) -> Option<KernelRequest> {
    let metrics = reader.get(&table::KERNEL_METRICS);
    reader.get(&table::KERNELS).map(|request| KernelRequest { metrics, ..request })
}

/// Reads the parts of the run to measure. A range without a name is an error; the complete run is measured
/// then.
fn read_capture(reader: &mut VariableReader<'_>, mode: Mode) -> Request {
    let kind = reader.get(&table::CAPTURE_RANGE);
    let name = reader.get(&table::NVTX_CAPTURE);
    let steps = reader.get(&table::STEPS);
    let range = match (steps, kind, name) {
        (Some(schedule), _, name) => CaptureRange::Steps(schedule, name),
        (None, RangeKind::ProfilerApi, _) => CaptureRange::ProfilerApi,
        (None, RangeKind::Nvtx, Some(name)) => CaptureRange::Named(name),
        (None, RangeKind::Nvtx, None) => {
            reader.errors.push(SettingsError::RangeWithoutName);
            CaptureRange::Whole
        }
        (None, RangeKind::Command, name) => CaptureRange::Commands(name),
        (None, RangeKind::None, _) => CaptureRange::Whole,
    };
    let request = Request {
        range,
        at_end: reader.get(&table::CAPTURE_RANGE_END),
        delay: reader.get(&table::DELAY),
        duration: reader.get(&table::DURATION),
    };
    if mode != Mode::Auto {
        return request;
    }
    let asked = [CAPTURE_RANGE, STEPS, DELAY, DURATION].map(|variable| reader.is_set(variable).then_some(variable));
    reader.errors.extend(asked.into_iter().flatten().map(|variable| SettingsError::CaptureWithAuto { variable }));
    Request { range: CaptureRange::Bursts, at_end: AtEnd::Repeat(None), ..Request::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::request::RangeName;

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
        let (settings, bad) = parse(&[(LIVE, "500ms"), (REPORT, "off"), (OUTPUT, "off"), (LOG, "debug")]);
        assert!(bad.is_empty());
        assert_eq!(settings.live, Some(Duration::from_millis(500)));
        assert_eq!(settings.report, ReportStyle::Off);
        assert_eq!(settings.output, None);
        assert_eq!(settings.log, Level::Debug);
    }

    #[test]
    fn a_bad_value_names_its_variable_and_keeps_the_default() {
        for (variable, value) in
            [(LIVE, "often"), (REPORT, "all"), (FLUSH, "1ms"), (BUFFER_MEMORY, "-3"), (EXIT_TIMEOUT, "3 weeks")]
                .into_iter()
                // Values that cannot work: no memory for that many buffers, no clock for that long a time.
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
            let default = VARIABLES.iter().chain(FOR_TESTS).find(|known| known.name == variable).unwrap().default;
            assert!(bad[0].to_string().ends_with(default), "{}", bad[0]);
            assert_eq!(settings.flush, Duration::from_millis(100));
        }
    }

    #[test]
    fn kernels_are_chosen_by_number_and_name() {
        let chosen = |value| {
            let kernels = parse(&[(KERNELS, value)]).0.kernels.unwrap();
            (kernels.most, kernels.names.map(|names| names.to_string()))
        };
        assert_eq!(chosen("5"), (5, None));
        assert_eq!(chosen("5:gemm|a::b"), (5, Some("gemm|a::b".to_owned())));
        for bad in ["65", ":gemm", "5:a(b"] {
            assert_eq!(parse(&[(KERNELS, bad)]).1.len(), 1, "{bad}");
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
    fn mode_auto_has_limits_and_no_captures_of_others() {
        let (settings, bad) = parse(&[(MODE, "auto")]);
        assert!(bad.is_empty() && settings.gpu_metrics == GpuMetrics::Gauges, "{bad:?}");
        assert_eq!(settings.native_stacks, NativeStacks::WithPython);
        assert_eq!(parse(&[(MODE, "light")]).0.native_stacks, NativeStacks::Off);
        let metrics = |pairs| parse(pairs).0.gpu_metrics;
        assert_eq!(metrics(&[(MODE, "monitor")]), GpuMetrics::Gauges, "counters are sampled only if asked for");
        assert_eq!(metrics(&[(MODE, "monitor"), (GPU_METRICS, "auto")]), GpuMetrics::Auto);
        assert_eq!(parse(&[(MODE, "monitor"), (NATIVE_STACKS, "off")]).0.native_stacks, NativeStacks::Off);
        let limits = settings.bursts.unwrap();
        assert_eq!((limits.every_ns, limits.longest_ns, limits.budget), (120_000_000_000, 2_000_000_000, 0.01));
        let (settings, bad) =
            parse(&[(MODE, "auto"), (MAX_OVERHEAD, "2%"), (GPU_METRICS, "gauges"), (DURATION, "5s"), (STEPS, "1")]);
        let said: Vec<_> = bad.iter().map(SettingsError::to_string).collect();
        assert!(said.len() == 2 && said[0].contains(STEPS) && said[1].contains("GPUWHY_MODE=auto"), "{said:?}");
        assert_eq!((settings.capture.range, settings.capture.duration), (CaptureRange::Bursts, None));
        assert_eq!((settings.gpu_metrics, settings.budget), (GpuMetrics::Gauges, None));
        assert_eq!(settings.bursts.map(|limits| limits.budget), Some(0.02));
        assert_eq!(parse(&[(MODE, "light"), (MAX_OVERHEAD, "2%")]).0.bursts, None);
    }

    #[test]
    fn nodes_of_graphs_have_a_budget_unless_all_are_wanted() {
        let graphs = Budget { share: GRAPHS_MAY_TAKE, only_graphs: true, bursts: true };
        let budget = |pairs| parse(pairs).0.budget;
        assert_eq!(budget(&[]), Some(graphs));
        let all = Budget { share: 0.02, only_graphs: false, bursts: true };
        assert_eq!(budget(&[(MAX_OVERHEAD, "2%")]), Some(all));
        assert_eq!(parse(&[(MAX_OVERHEAD, "2%")]).0.later_bursts().budget, 0.02);
        let nodes = [(CUDA_GRAPH_TRACE, "node"), (MAX_OVERHEAD, "2%")];
        assert_eq!(budget(&nodes), Some(Budget { bursts: false, ..all }));
        for without in [
            (MAX_OVERHEAD, "off"),
            (CUDA_GRAPH_TRACE, "node"),
            (CUDA_GRAPH_TRACE, "graph"),
            (MODE, "full"),
            (MODE, "monitor"),
            (DURATION, "5s"),
            (CUPTI_SHARING, "yield"),
            (KERNELS, "5"),
        ] {
            assert_eq!(parse(&[without]).0.budget, None, "{without:?}");
        }
    }

    #[test]
    fn what_is_measured_is_read() {
        assert!(parse(&[]).0.capture.is_complete());
        let (settings, bad) = parse(&[
            (CAPTURE_RANGE, "nvtx"),
            (NVTX_CAPTURE, "epoch@train"),
            (CAPTURE_RANGE_END, "repeat:3"),
            (DURATION, "2"),
        ]);
        assert!(bad.is_empty(), "{bad:?}");
        let capture = settings.capture;
        assert_eq!(capture.range, CaptureRange::Named(RangeName::parse("epoch@train").unwrap()));
        assert_eq!(capture.at_end, AtEnd::Repeat(Some(3)));
        assert_eq!(capture.duration, Some(Duration::from_secs(2)));
        let (settings, bad) = parse(&[(CAPTURE_RANGE, "nvtx")]);
        assert!(settings.capture.is_complete() && bad == [SettingsError::RangeWithoutName]);
        assert!(parse(&[(STEPS, "1,0,0,2")]).0.capture.detects_steps());
    }
}
