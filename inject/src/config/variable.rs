//! The one table of environment variables.
//!
//! It is the source of `docs/guide/environment.md` (a test compares them), of `gpuwhy run --help`, and of the names that the
//! parser asks for, so a variable cannot exist without its documentation.

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
pub const MODE: &str = "GPUWHY_MODE";
/// Whether a CUDA graph is one record.
pub const CUDA_GRAPH_TRACE: &str = "GPUWHY_CUDA_GRAPH_TRACE";
/// How much tracing may take.
pub const MAX_OVERHEAD: &str = "GPUWHY_MAX_OVERHEAD";
/// Where the trace is written.
pub const OUTPUT: &str = "GPUWHY_OUTPUT";
/// How much is printed at the end.
pub const REPORT: &str = "GPUWHY_REPORT";
/// How often a verdict is printed while the program runs.
pub const LIVE: &str = "GPUWHY_LIVE";
/// How much is logged.
pub const LOG: &str = "GPUWHY_LOG";
/// Which libcupti to load.
pub const CUPTI_PATH: &str = "GPUWHY_CUPTI_PATH";
/// Raw recording for the replay library.
pub const RAW_RECORDING: &str = "GPUWHY_RAW_RECORDING";
/// Size limit of the raw recording.
pub const RAW_RECORDING_LIMIT: &str = "GPUWHY_RAW_RECORDING_LIMIT";
/// Longest wait at exit.
pub const EXIT_TIMEOUT: &str = "GPUWHY_EXIT_TIMEOUT";
/// Whether stream dependencies are recorded.
pub const DEPENDENCIES: &str = "GPUWHY_DEPENDENCIES";
/// Whether allocations are recorded.
pub const MEMORY_USAGE: &str = "GPUWHY_CUDA_MEMORY_USAGE";
/// Whether the host's page faults on managed memory are recorded.
pub const UM_CPU_PAGE_FAULTS: &str = "GPUWHY_CUDA_UM_CPU_PAGE_FAULTS";
/// Whether page faults of devices on managed memory are recorded.
pub const UM_GPU_PAGE_FAULTS: &str = "GPUWHY_CUDA_UM_GPU_PAGE_FAULTS";
/// Whether the program is replayed without one cost.
pub const WHAT_IF: &str = "GPUWHY_WHAT_IF";
/// Time between flushes.
pub const FLUSH: &str = "GPUWHY_FLUSH";
/// Another injection library.
pub const CHAIN: &str = "GPUWHY_CHAIN";
/// Whether other tools get CUPTI.
pub const CUPTI_SHARING: &str = "GPUWHY_CUPTI_SHARING";
/// Memory for activity buffers.
pub const BUFFER_MEMORY: &str = "GPUWHY_BUFFER_MEMORY";
/// Whether host threads are sampled.
pub const SAMPLING: &str = "GPUWHY_SAMPLING";

/// How much of the command line is kept.
pub const COMMAND_LINE: &str = "GPUWHY_COMMAND_LINE";

/// What the CUDA driver loads. Not ours: it is how libprof.so got here.
pub const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";
/// What NVTX loads. Not ours.
pub const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";
/// What begins and ends a capture.
pub const CAPTURE_RANGE: &str = "GPUWHY_CAPTURE_RANGE";
/// Which range of the program.
pub const NVTX_CAPTURE: &str = "GPUWHY_NVTX_CAPTURE";
/// What follows the end of a capture.
pub const CAPTURE_RANGE_END: &str = "GPUWHY_CAPTURE_RANGE_END";
/// Which steps are captured.
pub const STEPS: &str = "GPUWHY_STEPS";
/// Time before the first capture.
pub const DELAY: &str = "GPUWHY_DELAY";
/// Longest capture.
pub const DURATION: &str = "GPUWHY_DURATION";
/// Whether there is a control socket.
pub const CONTROL: &str = "GPUWHY_CONTROL";
/// Signal after the last capture.
pub const KILL: &str = "GPUWHY_KILL";

/// Every variable that libprof.so reads.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: OUTPUT,
        default: "gpuwhy-%p.gpuwhy",
        meaning: "Trace file. `%p` is the process id, `%h` the host name, `%q{VAR}` the value of VAR (`unset` \
                  without one), `%%` a percent sign. `off` writes none. A file that exists is not overwritten: the new one gets a \
                  number. Folders that are missing are made. Only the user can read the file (mode 600).",
    },
    Variable {
        name: MODE,
        default: "light",
        meaning: "How much is recorded at most: `monitor` no device work and no API call, only ranges (NVTX), what host threads do \
                  and how busy NVML says the devices are, without a division of device time ([what its verdict rests \
                  on](report.md#watching)); `light` device work and the API calls that launch, copy, wait, allocate or load; \
                  `full` every API call, memory usage, synchronizations and events too.",
    },
    Variable {
        name: CUDA_GRAPH_TRACE,
        default: "node",
        meaning: "`node` records each node of a CUDA graph, `graph` a launch of a graph as one piece of computation whose inside is not \
                  known. `graph` and `auto` need CUPTI 13.2 or later: older libraries can crash the program over whole graphs, so with \
                  them nodes are recorded all the same. `auto` begins with whole graphs and goes over to nodes once 16 launches in half a \
                  second or more say that nodes would take less than an estimated 2 % of the time of their graphs, or less than \
                  GPUWHY_MAX_OVERHEAD where that is set; the report says which, and why. Never the other way: CUPTI 13.0 crashes the \
                  program when whole graphs are switched on in mid-run. How many nodes a graph has is told when it is instantiated; \
                  graphs of which that is not known stay whole. While CUPTI is left to other tools (GPUWHY_CUPTI_SHARING=yield) it is \
                  always nodes, which those expect. A program linked with gpuwhy records nodes under `auto`, too.",
    },
    Variable {
        name: MAX_OVERHEAD,
        default: "off",
        meaning: "Part of the launching threads' time that tracing may take, such as `1%`: after three seconds in a row above it by \
                  gpuwhy's own estimate the next cheaper GPUWHY_MODE holds, down to `monitor`, and the report says when. Takes \
                  precedence over GPUWHY_MODE, which sets the starting mode. gpuwhy never switches back up.",
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
        name: RAW_RECORDING,
        default: "off",
        meaning: "Also writes every activity buffer as CUPTI delivered it to this file (same patterns as GPUWHY_OUTPUT), to \
                  be played back by the replay library. Large; for bug reports and test fixtures.",
    },
    Variable {
        name: RAW_RECORDING_LIMIT,
        default: "64M",
        meaning: "The raw recording stops growing at this size: bytes, or with a suffix `K`, `M`, `G` (powers of 1024).",
    },
    Variable {
        name: EXIT_TIMEOUT,
        default: "3s",
        meaning: "Longest time that the end of the program may wait for the last records, at most `1h`. What did not \
                  arrive by then is counted in the report.",
    },
    Variable {
        name: DEPENDENCIES,
        default: "off",
        meaning: "`on` also records synchronizations and events, that is, which stream waited for which. On the launch path it costs \
                  as much as everything else together, and the verdict does not need it.",
    },
    Variable {
        name: MEMORY_USAGE,
        default: "off",
        meaning: "`on` also records every allocation and release of device, pinned and managed memory, and of memory pools: how much \
                  is held, the peak, when it was and which call took it.",
    },
    Variable {
        name: UM_CPU_PAGE_FAULTS,
        default: "off",
        meaning: "`on` also records each page of managed memory that the host missed, and every migration: for `um_sum` and its \
                  like in `gpuwhy stats`. May slow the program down a lot.",
    },
    Variable {
        name: UM_GPU_PAGE_FAULTS,
        default: "off",
        meaning: "`on` also records the pages of managed memory that devices missed, and every migration. May slow the program \
                  down a lot.",
    },
    Variable {
        name: WHAT_IF,
        default: "auto",
        meaning: "Whether the run is simulated without one cost at a time, for the ceilings of the report: `on`, `off`, or `auto`, \
                  which stops when records come faster than they can be processed. `gpuwhy report` then computes the ceilings \
                  from the trace.",
    },
    Variable {
        name: FLUSH,
        default: "100ms",
        meaning: "Time between two flushes of CUPTI's buffers: what a killed program loses at most, about twice over. Between \
                  `10ms` and `10s`. After 4 MiB of records the next one comes sooner, so that memory does not grow with the rate.",
    },
    Variable {
        name: CAPTURE_RANGE,
        default: "none",
        meaning: "What is measured: `none` the whole run, `cudaProfilerApi` from cudaProfilerStart to cudaProfilerStop, `nvtx` while \
                  the range of GPUWHY_NVTX_CAPTURE is open. Until a capture begins the program runs free; of it CUPTI \
                  records launches of CUDA graphs, unless GPUWHY_CUDA_GRAPH_TRACE=node, as that has to be on from the start, and they are \
                  thrown away.",
    },
    Variable {
        name: NVTX_CAPTURE,
        default: "none",
        meaning: "The range that is captured, or, with GPUWHY_STEPS, a step: `range`, `range@domain`, `*@domain`, `range@*`; without a \
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
                  and `active` captured ones. A step is the range of GPUWHY_NVTX_CAPTURE; without one steps are detected, for which \
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
        meaning: "`off` opens no socket for `gpuwhy status`, `start`, `stop`, `snapshot` and `watch` (docs/guide/control.md).",
    },
    Variable {
        name: COMMAND_LINE,
        default: "full",
        meaning: "How much of the program's command line is kept in the trace and shown by `gpuwhy status`: `full` all of it, with `***` \
                  in place of what looks like a secret (the value of an option or variable that names a password, secret, token, \
                  credential or key, a password in a URL, access tokens of well-known forms); `name` the program alone; `off` nothing.",
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
        meaning: "Another injection library, loaded and initialized after this one: the driver itself loads only one. It works \
                  beside gpuwhy unless it needs CUPTI too, which serves one tool in a process.",
    },
    Variable {
        name: CUPTI_SHARING,
        default: "exclusive",
        meaning: "CUPTI serves one tool per process. `exclusive` keeps CUPTI to the end, so that another profiler in the process is \
                  refused. With `yield` gpuwhy pauses when another tool starts and resumes when that tool has finished, unless it \
                  leaves its own clock in CUPTI (torch.profiler). The time between is counted as `unobserved_ns`. `yield` needs CUPTI of CUDA 13.0 update 1, and has no effect with GPUWHY_CAPTURE_RANGE=cudaProfilerApi or page faults; \
                  GPUWHY_MODE=monitor leaves CUPTI to others either way. See docs/design/reliability.md.",
    },
    Variable {
        name: BUFFER_MEMORY,
        default: "256M",
        meaning: "Most host memory for activity buffers, from `8M` to `64G`, taken in buffers of 1 MiB as needed: CUPTI 13 holds one for each launching thread. When it is used up, records are dropped and counted.",
    },
    Variable {
        name: SAMPLING,
        default: "auto",
        meaning: "Samples the threads that call CUDA, using at most 1 % of one core: CPU time, what they wait for, Python stack (CPython 3.9 to 3.14), garbage collection, child processes. `auto` does what this system \
                  allows and notes in the report what it does not allow, `on` also says so on stderr, `off` disables sampling.",
    },
];

/// The table as Markdown: the contents of `docs/guide/environment.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "# Environment variables of libprof.so\n\n\
         Generated from the table that the parser reads (`inject/src/config/variable.rs`). A value that is not understood is\n\
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
