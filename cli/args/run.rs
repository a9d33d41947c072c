//! Options of `gpuwhy run`.
//!
//! Most options set a variable of libprof.so, whose parser also checks their values.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gpuwhy_inject::config;

use super::values::value_of;

// The modes with their overheads come from measurements: benches/gpu/publish.py writes the file.
pub(super) const RUN_HELP: &str = concat!(
    "\
gpuwhy sets CUDA_INJECTION64_PATH, NVTX_INJECTION64_PATH and its own variables, and then becomes the command (exec):
process id, terminal, signals and exit status are those of the command. Most options set a GPUWHY_* variable of
libprof.so; --nccl sets NCCL_PROFILER_PLUGIN, and --pytorch sets PYTHONPATH. Without its option, a variable stays as it
is; only GPUWHY_HISTORY then gets a default value if it has none.

",
    include_str!("prices.txt"),
    "
The costs last as long as the run. By default only nodes of CUDA graphs have a limit, 3 % after ten seconds: a long run
of small kernels stays at the cost of its mode. --max-overhead limits all records, by an estimate that leaves out what
CUPTI costs by its presence. Above it for three seconds, bursts follow (none in a program with CUDA graphs), or the next
cheaper mode. For hours: --max-overhead 1%, --mode auto, or -d 30 for the first 30 seconds.

PLACEHOLDERS of --output:
  %p process id   %h host name   %q{VAR} the environment variable VAR   %% a percent sign

If the command and what it started used no CUDA, or were not measured, a line says so and why, unless the report is off.
It comes from a process beside the command (Linux 5.3 or later; not if the command is process 1 of a container).

--pytorch puts a sitecustomize.py in a temporary folder at the front of PYTHONPATH. Python imports it at its start; it
waits for the program's import of torch, and runs the sitecustomize.py that was there before. It does not work with
python -I, -E and -S. autograd-nvtx and autograd-shapes-nvtx do not work together with torch.profiler, functions-nvtx
does not work together with torch.compile. Each range adds microseconds to its operator: steps that small kernels fill
took 1.2 times as long on an H200, with shapes 1.5 to 1.6 times; under torch.profiler 1.4 to 1.5 times.

With --pytorch memory, PyTorch (2.1 or later) records the Python stack of each allocation of GPU memory. That adds
microseconds to each; steps took 1.06 to 1.33 times as long on an H200. The report tells the blocks by class and line at
the peak and when memory runs out, and which line's blocks grow with the steps. A program that records PyTorch's memory
history itself is left alone.

EXIT CODES:
  those of the command, except
  2    an option is not understood, or the value of a GPUWHY_* variable; the command was not started
  125  gpuwhy failed before the command started
  126  the command was found but could not be executed
  127  the command was not found

EXAMPLES:
  gpuwhy run -- python train.py --epochs 1
  gpuwhy run --output /data/traces/%h-%p.gpuwhy -- torchrun --nproc-per-node 8 train.py
  gpuwhy run --output 'rank%q{SLURM_PROCID}.gpuwhy' --report off -- srun python train.py
  gpuwhy run --pytorch autograd-nvtx -- python train.py
  gpuwhy run --pytorch memory -- python train.py
  gpuwhy run --max-overhead 1% -- python serve.py
  gpuwhy run -c cudaProfilerApi --capture-range-end repeat -- python train.py
  gpuwhy run --steps 10,0,2,5,1 -p step -- python train.py
  gpuwhy run --cupti-path /usr/local/cuda/extras/CUPTI/lib64/libcupti.so -- ./simulate"
);

#[derive(Args, Debug, Default)]
pub struct RunArgs {
    /// Write the trace here, a file per CUDA process, or `off` [default: gpuwhy-%p.gpuwhy]
    #[arg(short, long, value_name = "PATTERN")]
    pub output: Option<String>,
    /// Print on stderr when a CUDA process ends: off, summary, full [default: summary]
    #[arg(long, value_name = "HOW", value_parser = value_of(config::REPORT))]
    pub report: Option<String>,
    /// Print a line about the bottleneck this often, such as 1s or 500ms
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = value_of(config::LIVE))]
    pub live: Option<String>,
    /// Name of the run, the same on all ranks [default: the launcher's job]
    #[arg(long = "run", value_name = "NAME", value_parser = value_of(config::RUN))]
    pub run_name: Option<String>,
    /// Log of libprof.so on stderr: off, error, warn, info, debug [default: warn]
    #[arg(long, value_name = "LEVEL", value_parser = value_of(config::LOG))]
    pub log: Option<String>,
    /// Recording mode, from least to most detail: monitor, auto, light, full [default: light]
    #[arg(long, value_name = "MODE", help_heading = "Overhead", value_parser = value_of(config::MODE))]
    pub mode: Option<String>,
    /// Limit tracing to this share of the launching threads' time, such as 1% [default: 3% for nodes of CUDA graphs]
    #[arg(long, value_name = "PERCENT", help_heading = "Overhead", value_parser = value_of(config::MAX_OVERHEAD))]
    pub max_overhead: Option<String>,
    /// Detail of CUDA graphs: auto (nodes, in bursts if slow), node, graph [default: auto]
    #[arg(long, value_name = "LEVEL", help_heading = "Overhead", value_parser = value_of(config::CUDA_GRAPH_TRACE))]
    pub cuda_graph_trace: Option<String>,
    /// What starts a capture: cudaProfilerApi, nvtx, command, none (whole run) [default: none]
    #[arg(short = 'c', long, value_name = "WHAT", help_heading = "Capture range", value_parser = value_of(config::CAPTURE_RANGE))]
    pub capture_range: Option<String>,
    /// NVTX range to capture, or step for -c command, --steps: range[@domain]
    #[arg(short = 'p', long, value_name = "RANGE", help_heading = "Capture range", value_parser = value_of(config::NVTX_CAPTURE))]
    pub nvtx_capture: Option<String>,
    /// Do this after a capture: none, stop, stop-shutdown, repeat, repeat:N [default: stop-shutdown]
    #[arg(long, value_name = "THEN", help_heading = "Capture range", value_parser = value_of(config::CAPTURE_RANGE_END))]
    pub capture_range_end: Option<String>,
    /// Capture steps as torch.profiler does: skip,wait,warmup,active,repeat
    #[arg(long, value_name = "STEPS", help_heading = "Capture range", value_parser = value_of(config::STEPS))]
    pub steps: Option<String>,
    /// Delay of the first capture in seconds (also 500ms, 2m)
    #[arg(short = 'y', long, value_name = "SECONDS", help_heading = "Capture range", allow_hyphen_values = true, value_parser = value_of(config::DELAY))]
    pub delay: Option<String>,
    /// Maximum duration of a capture in seconds
    #[arg(short = 'd', long, value_name = "SECONDS", help_heading = "Capture range", allow_hyphen_values = true, value_parser = value_of(config::DURATION))]
    pub duration: Option<String>,
    /// Keep CUPTI (exclusive) or lend it to other profilers (yield) [default: exclusive]
    #[arg(long, value_name = "exclusive|yield", help_heading = "Capture range", value_parser = value_of(config::CUPTI_SHARING))]
    pub cupti_sharing: Option<String>,
    /// Record allocations: the memory held, its peak and who took it [default: off]
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on", value_parser = value_of(config::MEMORY_USAGE))]
    pub cuda_memory_usage: Option<String>,
    /// GPU metrics: off, gauges (NVML), auto, on or on:HZ (hardware counters) [default: gauges; without a value: on]
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "on", value_parser = value_of(config::GPU_METRICS))]
    pub gpu_metrics: Option<String>,
    /// Add a line about the run to this file, or `off`
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Use this libcupti instead of searching for one
    #[arg(long = "cupti-path", value_name = "PATH", value_parser = shared_library)]
    pub cupti: Option<PathBuf>,
    /// Have PyTorch emit NVTX ranges, or tell who holds its memory
    #[arg(long, value_name = "WHICH")]
    pub pytorch: Option<PyTorchMode>,
    /// Replace other tools' injection variables; allow nsys or ncu as COMMAND
    #[arg(long)]
    pub force: bool,
    /// Have NCCL report communicator, size and algorithm of collectives
    #[arg(long)]
    pub nccl: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct WatchArgs {
    /// Wait here, instead of in a process that is started for it
    #[arg(long)]
    pub detached: bool,
    /// The process that becomes the program
    pub process: u32,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// What PyTorch tells by itself.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum PyTorchMode {
    /// A range for each operator of the forward and backward passes, as by torch.autograd.profiler.emit_nvtx
    #[value(name = "autograd-nvtx")]
    Autograd,
    /// The same with the sizes of tensors in the names
    #[value(name = "autograd-shapes-nvtx")]
    AutogradShapes,
    /// A range for each call of a function of torch from Python
    #[value(name = "functions-nvtx")]
    Functions,
    /// Blocks of its memory by class and line: at the peak, out of memory, at the end; and what grows with the steps
    Memory,
}

/// Checks that the file is an ELF library. Otherwise the program would run with another libcupti or none.
fn shared_library(text: &str) -> Result<PathBuf, String> {
    let mut magic = [0; 4];
    match File::open(text).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) if magic == *b"\x7fELF" => Ok(text.into()),
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error.to_string()),
        _ => Err("it is no shared library (ELF)".to_owned()),
    }
}

/// Name of a value on the command line, which is also its name in the environment.
pub fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
