//! The command line as clap sees it, and its translation into the `Props` of each subcommand.
//!
//! This is the only file that knows clap.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use prof::settings;

use gpuprof_export::Format;
use gpuprof_export::stats::{Statistic, StatsOptions, TableFormat, TimeFilter, TimeUnit};

use crate::{control, demo, diff, doctor, export, report, run, stats};

/// Tells, while a CUDA program runs, why it is not faster.
#[derive(Parser)]
#[command(name = "gpuprof", version = env!("GPUPROF_VERSION"), after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start a command with gpuprof loaded into every CUDA process of it
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Print what a trace says
    #[command(after_help = REPORT_HELP)]
    Report(ReportArgs),
    /// Compare two traces of one program: what changed, why, and whether it could be chance
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Write traces in the format of another tool
    #[command(after_help = EXPORT_HELP)]
    Export(ExportArgs),
    /// Print the statistics of `nsys stats` about a trace
    #[command(after_help = STATS_HELP)]
    Stats(StatsArgs),
    /// List this user's processes that run with gpuprof, and what holds them back
    #[command(after_help = STATUS_HELP)]
    Status(StatusArgs),
    /// Begin a capture in a running process
    #[command(after_help = TELL_HELP)]
    Start(ProcessArgs),
    /// End the capture in a running process; it goes on at full speed
    #[command(after_help = TELL_HELP)]
    Stop(ProcessArgs),
    /// Print the report of a running process so far
    #[command(after_help = TELL_HELP)]
    Snapshot(ProcessArgs),
    /// Print the verdict of a running process again and again, as lines of JSON
    #[command(after_help = WATCH_HELP)]
    Watch(WatchArgs),
    /// Check whether this machine can be profiled, and say what to do where it cannot
    #[command(after_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Play recorded sessions through the real library; needs no GPU
    #[command(after_help = DEMO_HELP)]
    Demo(DemoArgs),
    /// Load a libcupti and call into it. `doctor` runs this in a process of its own.
    #[command(name = doctor::probe::SUBCOMMAND, hide = true)]
    Probe(ProbeArgs),
}

const EXAMPLES: &str = "\
EXAMPLES:
  gpuprof run -- python train.py         profile a program; the verdict comes at its end
  gpuprof run --live 1s -- ./simulate    with a line about the bottleneck every second
  gpuprof report gpuprof-4711.gpuprof    read a trace again
  gpuprof diff before.gpuprof after.gpuprof
                                         what a change brought, and why
  gpuprof export --to chrome gpuprof-4711.gpuprof
                                         for Perfetto, HTA and TensorBoard
  gpuprof stats gpuprof-4711.gpuprof     the tables of nsys stats
  gpuprof doctor                         can this machine be profiled?
  gpuprof demo                           see it work without a GPU";

const RUN_HELP: &str = "\
gpuprof sets CUDA_INJECTION64_PATH, NVTX_INJECTION64_PATH and its own variables and then becomes the command
(exec): same process id, terminal, signals and exit status as without gpuprof. The options are the GPUPROF_* variables of
libprof.so; an option that is left out leaves its variable as it is.

PLACEHOLDERS of --output:
  %p process id   %h host name   %q{VAR} the environment variable VAR   %% a percent sign

--pytorch works through a sitecustomize.py in a temporary folder at the front of PYTHONPATH: Python imports it at its
start, it waits for the program's own import of torch, and runs the sitecustomize.py that was there before. Not for
python -I, -E and -S, and not together with torch.profiler (autograd) or torch.compile (functions). Ranges cost:
microseconds for each operator.

EXIT CODES:
  those of the command, except
  2    a GPUPROF_* variable is misspelt or not understood; the command was not started
  125  gpuprof failed before the command started
  126  the command was found but could not be executed
  127  the command was not found

EXAMPLES:
  gpuprof run -- python train.py --epochs 1
  gpuprof run --output /data/traces/%h-%p.gpuprof -- torchrun --nproc-per-node 8 train.py
  gpuprof run --output 'rank%q{SLURM_PROCID}.gpuprof' --report off -- srun python train.py
  gpuprof run --pytorch autograd-nvtx -- python train.py
  gpuprof run -c cudaProfilerApi --capture-range-end repeat -- python train.py
  gpuprof run --steps 10,0,2,5,1 -p step -- python train.py
  gpuprof run --cupti /usr/local/cuda/extras/CUPTI/lib64/libcupti.so -- ./simulate";

const REPORT_HELP: &str = "\
With --json each trace gives one JSON object on one line, in the order of the files.

EXIT CODES:
  0  every trace was read
  1  every trace was reported, but at least one is truncated or damaged; the report says where
  2  at least one trace could not be read at all; the others were reported

EXAMPLES:
  gpuprof report gpuprof-4711.gpuprof
  gpuprof report --top 30 *.gpuprof | less
  gpuprof report --json gpuprof-4711.gpuprof | jq .verdict";

const DIFF_HELP: &str = "\
A is the run before a change, B the one after it. A typical step of each (the mean of those between the
quartiles) is divided by cause, so that the changes of the causes sum to the change of the step.

EXIT CODES:
  0  the traces were compared
  1  they are not comparable: different programs, or a run without work
  2  one of them could not be read
  3  compared, and B is slower by more than --fail-if-slower allows

EXAMPLES:
  gpuprof diff before.gpuprof after.gpuprof
  gpuprof diff --fail-if-slower 5 main.gpuprof branch.gpuprof
  gpuprof diff --json before.gpuprof after.gpuprof | jq '.devices[0].leaf_changes'";

const EXPORT_HELP: &str = "\
One trace becomes one file, several become files in a folder. docs/EXPORT.md describes each format.

EXIT CODES:
  0  every trace was written
  1  every trace was written, but at least one lacks something; stderr says what
  2  at least one trace could not be read or written; the others were written

EXAMPLES:
  gpuprof export --to chrome gpuprof-4711.gpuprof -o trace.json.gz
  gpuprof export --to chrome rank*.gpuprof -o log/
  gpuprof export --to chrome --step-range step gpuprof-4711.gpuprof
  gpuprof export --to sqlite gpuprof-4711.gpuprof && nsys stats gpuprof-4711.sqlite";

const STATS_HELP: &str = "\
Names, columns and units are those of nsys 2024 and later; docs/EXPORT.md says where the numbers may differ.

REPORTS:
  cuda_api_sum          cuda_api_trace         cuda_api_gpu_sum
  cuda_gpu_kern_sum     cuda_gpu_kern_gb_sum   cuda_gpu_trace
  cuda_gpu_mem_time_sum cuda_gpu_mem_size_sum  cuda_gpu_sum
  cuda_kern_exec_sum    cuda_kern_exec_trace
  nvtx_sum              nvtx_pushpop_sum       nvtx_startend_sum

EXIT CODES:
  0  every report was printed
  1  printed, but something is missing from the trace or a report has no rows; stderr says what
  2  the trace could not be read

EXAMPLES:
  gpuprof stats gpuprof-4711.gpuprof
  gpuprof stats --report cuda_gpu_kern_sum,cuda_api_sum --format csv gpuprof-4711.gpuprof
  gpuprof stats --report cuda_gpu_trace --filter-time 1s/1.5s --timeunit usec gpuprof-4711.gpuprof";

const STATUS_HELP: &str = "\
EXIT CODES:
  0  the processes were listed, also when there is none

EXAMPLES:
  gpuprof status
  gpuprof status --json | jq -r 'select(.lost > 0) | .pid'";

const TELL_HELP: &str = "\
EXIT CODES:
  0  the process has answered; the answer says whether anything changed
  1  there is no such process, or it does not answer

EXAMPLES:
  gpuprof start 4711; sleep 10; gpuprof stop 4711
  gpuprof snapshot 4711";

const WATCH_HELP: &str = "\
EXIT CODES:
  0  the process has ended
  1  there is no such process, or it does not answer

EXAMPLES:
  gpuprof watch 4711
  gpuprof watch --interval 200 4711 | jq -r .line";

const DOCTOR_HELP: &str = "\
Each line says ok, warn (works, but mind this) or FAIL (will not work), and what to do about it.

EXIT CODES:
  0  nothing stands in the way of a profile
  1  at least one line says FAIL

EXAMPLES:
  gpuprof doctor
  gpuprof doctor --cupti /opt/cuda/extras/CUPTI/lib64/libcupti.so
  gpuprof doctor --json | jq '.checks[] | select(.status != \"ok\")'";

const DEMO_HELP: &str = "\
The recordings were made on real GPUs; libprof.so receives them as it receives those of a live program.

EXIT CODES:
  0  every chosen recording was played
  1  one could not be played

EXAMPLES:
  gpuprof demo
  gpuprof demo --list
  gpuprof demo --fast --all";

#[derive(Args)]
pub struct RunArgs {
    /// Where the trace goes, one file for each CUDA process; `off` for none [default: gpuprof-%p.gpuprof]
    #[arg(short, long, value_name = "PATTERN")]
    output: Option<String>,
    /// What is printed on stderr when a CUDA process ends [default: summary]
    #[arg(long, value_name = "HOW")]
    report: Option<ReportMode>,
    /// Print a line about the bottleneck every so often, for example 1s or 500ms
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    live: Option<String>,
    /// How much libprof.so says about itself on stderr
    #[arg(long, value_name = "LEVEL")]
    log: Option<LogLevel>,
    /// What is measured: none (the whole run), cudaProfilerApi, or nvtx [default: none]
    #[arg(short = 'c', long, value_name = "WHAT", help_heading = "What is measured")]
    capture_range: Option<String>,
    /// The range for `--capture-range nvtx`, or the step for --steps: range, range@domain, *@domain
    #[arg(short = 'p', long, value_name = "RANGE", help_heading = "What is measured")]
    nvtx_capture: Option<String>,
    /// After a capture: none, stop, stop-shutdown, repeat or repeat:N [default: stop-shutdown]
    #[arg(long, value_name = "THEN", help_heading = "What is measured")]
    capture_range_end: Option<String>,
    /// Capture chosen steps, as torch.profiler's schedule: skip,wait,warmup,active,repeat
    #[arg(long, value_name = "STEPS", help_heading = "What is measured")]
    steps: Option<String>,
    /// Begin no capture before so many seconds have passed (also 500ms, 2m)
    #[arg(short = 'y', long, value_name = "SECONDS", help_heading = "What is measured")]
    delay: Option<String>,
    /// End a capture after so many seconds
    #[arg(short = 'd', long, value_name = "SECONDS", help_heading = "What is measured")]
    duration: Option<String>,
    /// Signal to the program when measuring ends before it: none, sigterm, sigint, sigkill [default: none]
    #[arg(long, value_name = "SIGNAL", help_heading = "What is measured")]
    kill: Option<String>,
    /// Use this libcupti instead of searching for one
    #[arg(long, value_name = "PATH")]
    cupti: Option<PathBuf>,
    /// Have PyTorch make NVTX ranges by itself, without a change to the program
    #[arg(long, value_name = "WHICH")]
    pytorch: Option<PyTorchRanges>,
    /// Replace a CUDA_INJECTION64_PATH or NVTX_INJECTION64_PATH that another tool has set
    #[arg(long)]
    force: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ReportMode {
    /// Nothing
    Off,
    /// The verdict and its evidence
    Summary,
    /// All tables
    Full,
}

#[derive(Clone, Copy, ValueEnum)]
enum PyTorchRanges {
    /// A range for each operator, forwards and backwards, as torch.autograd.profiler.emit_nvtx makes them
    #[value(name = "autograd-nvtx")]
    Autograd,
    /// The same with the sizes of tensors in the names
    #[value(name = "autograd-shapes-nvtx")]
    AutogradShapes,
    /// A range for each call of a function of torch from Python
    #[value(name = "functions-nvtx")]
    Functions,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
}

/// Checks an interval before the command starts. The library could only go on without one.
fn interval(text: &str) -> Result<String, String> {
    let number = ["ms", "s", "m"].iter().find_map(|unit| text.strip_suffix(unit));
    match number.and_then(|number| number.parse::<u32>().ok()) {
        Some(1..) => Ok(text.to_owned()),
        _ if text == "off" => Ok(text.to_owned()),
        _ => Err("expected a whole number of ms, s or m, such as 500ms or 2s, or `off`".to_owned()),
    }
}

/// The name of a value on the command line, which is also its name in the environment.
fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl From<RunArgs> for run::Props {
    fn from(args: RunArgs) -> Self {
        Self {
            output: args.output,
            report: args.report.map(name),
            live: args.live,
            log: args.log.map(name),
            capture: [
                (settings::CAPTURE_RANGE, args.capture_range),
                (settings::NVTX_CAPTURE, args.nvtx_capture),
                (settings::CAPTURE_RANGE_END, args.capture_range_end),
                (settings::STEPS, args.steps),
                (settings::DELAY, args.delay),
                (settings::DURATION, args.duration),
                (settings::KILL, args.kill),
            ]
            .into_iter()
            .filter_map(|(variable, value)| Some((variable, value?)))
            .collect(),
            cupti: args.cupti,
            pytorch: args.pytorch.map(name),
            force: args.force,
            command: args.command,
        }
    }
}

#[derive(Args)]
pub struct ReportArgs {
    /// Trace files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Print all tables behind the verdict
    #[arg(long, conflicts_with = "json")]
    full: bool,
    /// Print all tables, with the N kernels that took longest
    #[arg(long, value_name = "N", conflicts_with_all = ["json", "full"])]
    top: Option<usize>,
    /// Print the tables of the ranges (NVTX) that the program named too
    #[arg(long, conflicts_with = "json")]
    ranges: bool,
    /// Report this capture of a run that was measured in pieces [default: the newest]
    #[arg(long, value_name = "N")]
    capture: Option<u32>,
}

impl From<ReportArgs> for report::Props {
    fn from(args: ReportArgs) -> Self {
        let extent = match (args.top, args.full) {
            (Some(kernels), _) => report::Extent::Top(kernels),
            (None, true) => report::Extent::Full,
            (None, false) => report::Extent::Summary,
        };
        Self { files: args.files, json: args.json, extent, ranges: args.ranges, capture: args.capture }
    }
}

#[derive(Args)]
pub struct DiffArgs {
    /// Trace of the first run
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Trace of the second run
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// At most N kernels in the table of those that changed
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "json")]
    top: usize,
    /// Exit with 3 when B's step is longer by more than this, and chance does not explain it
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_if_slower: Option<f64>,
}

/// A finite number that is not negative.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    number
        .ok()
        .filter(|number| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| "expected a number, such as 5".to_owned())
}

impl From<DiffArgs> for diff::Props {
    fn from(args: DiffArgs) -> Self {
        Self { a: args.a, b: args.b, json: args.json, kernels: args.top, fail_if_slower: args.fail_if_slower }
    }
}

#[derive(Args)]
pub struct ExportArgs {
    /// Trace files of gpuprof
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The format
    #[arg(long, value_name = "FORMAT")]
    to: ExportFormat,
    /// The file to write, or the folder for several [default: in the working directory, named after the trace]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Ranges of this name are training steps (chrome: they become ProfilerStep#0, #1, ...)
    #[arg(long, value_name = "NAME")]
    step_range: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ExportFormat {
    /// JSON of the PyTorch profiler: Perfetto, HolisticTraceAnalysis, TensorBoard, chrome://tracing
    Chrome,
    /// The SQLite file of an Nsight Systems export: your SQL, `nsys stats`
    Sqlite,
    /// A line of JSON for each record
    Json,
    /// Perfetto's own format: smaller than chrome, with counters and the verdict
    Perfetto,
}

impl From<ExportArgs> for export::Props {
    fn from(args: ExportArgs) -> Self {
        let format = match args.to {
            ExportFormat::Chrome => Format::Chrome,
            ExportFormat::Sqlite => Format::Sqlite,
            ExportFormat::Json => Format::Json,
            ExportFormat::Perfetto => Format::Perfetto,
        };
        Self { traces: args.traces, format, output: args.output, step_range: args.step_range }
    }
}

#[derive(Args)]
pub struct StatsArgs {
    /// Trace file of gpuprof
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The reports, separated by commas
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', default_value = stats::DEFAULT)]
    report: Vec<Statistic>,
    /// The form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    format: StatsFormat,
    /// The unit of times: nsec, usec, msec or sec
    #[arg(long, value_name = "UNIT", default_value = "nsec")]
    timeunit: TimeUnit,
    /// Only what overlaps START/END, counted from the start of tracing: 1.5s/2s, 200ms/, /3000000
    #[arg(long, value_name = "STRETCH")]
    filter_time: Option<TimeFilter>,
}

#[derive(Clone, Copy, ValueEnum)]
enum StatsFormat {
    /// Columns aligned for people
    Table,
    /// Comma-separated
    Csv,
    /// Tab-separated
    Tsv,
    /// An array of objects for each report
    Json,
}

impl From<StatsArgs> for stats::Props {
    fn from(args: StatsArgs) -> Self {
        let format = match args.format {
            StatsFormat::Table => TableFormat::Table,
            StatsFormat::Csv => TableFormat::Csv,
            StatsFormat::Tsv => TableFormat::Tsv,
            StatsFormat::Json => TableFormat::Json,
        };
        let filter = args.filter_time.unwrap_or_default();
        Self { trace: args.trace, reports: args.report, options: StatsOptions { format, unit: args.timeunit, filter } }
    }
}

#[derive(Args)]
pub struct StatusArgs {
    /// Print a line of JSON for each process
    #[arg(long)]
    json: bool,
}

impl From<StatusArgs> for control::Props {
    fn from(args: StatusArgs) -> Self {
        Self::Status { json: args.json }
    }
}

#[derive(Args)]
pub struct ProcessArgs {
    /// Process id, as `gpuprof status` lists it
    #[arg(value_name = "PID")]
    process: u32,
}

impl ProcessArgs {
    /// A command of the protocol for this process.
    pub fn tell(self, command: &'static str) -> control::Props {
        control::Props::Tell { process: self.process, command }
    }
}

#[derive(Args)]
pub struct WatchArgs {
    /// Process id, as `gpuprof status` lists it
    #[arg(value_name = "PID")]
    process: u32,
    /// Milliseconds between two lines, at least 100
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    interval: u64,
}

impl From<WatchArgs> for control::Props {
    fn from(args: WatchArgs) -> Self {
        Self::Watch { process: args.process, interval: args.interval }
    }
}

#[derive(Args)]
pub struct DoctorArgs {
    /// Check this libcupti instead of searching for one
    #[arg(long, value_name = "PATH")]
    cupti: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

impl From<DoctorArgs> for doctor::Props {
    fn from(args: DoctorArgs) -> Self {
        Self { cupti: args.cupti, json: args.json }
    }
}

#[derive(Args)]
pub struct ProbeArgs {
    /// The libcupti to load
    libcupti: PathBuf,
}

impl From<ProbeArgs> for doctor::probe::Props {
    fn from(args: ProbeArgs) -> Self {
        Self { libcupti: args.libcupti }
    }
}

#[derive(Args)]
pub struct DemoArgs {
    /// Recordings to play [default: the first two]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Play all recordings
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// List the recordings and play none
    #[arg(long)]
    list: bool,
    /// Play as fast as possible instead of at the recorded speed
    #[arg(long)]
    fast: bool,
    /// Folder with recordings, such as your own [default: those that come with gpuprof]
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Folder for the traces [default: a new one in the folder for temporary files]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl From<DemoArgs> for demo::Props {
    fn from(args: DemoArgs) -> Self {
        let choice = match (args.all, args.names.is_empty()) {
            (true, _) => demo::Choice::All,
            (false, true) => demo::Choice::Default,
            (false, false) => demo::Choice::Named(args.names),
        };
        Self { choice, from: args.from, list: args.list, fast: args.fast, output: args.output }
    }
}
