//! Small copies between host and device, and launches of CUDA graphs, as marks of the domain `gpuwhy`: they show the
//! iterations of a server while no device work is recorded.
//!
//! Runs in the program's calls. What an iteration needs is bounded here, so that a trace of hours stays small.

use std::cell::Cell;
use std::os::unix::process::parent_id;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, mem};

use cupti_sys::Submission;
use gpuwhy_trace::record::RangeEventKind;
use gpuwhy_trace::submission::SubmissionMark;
use nvtx_sys::{Attributes, Handler as _, Message, Payload, RegisteredString, Text};
use profiler_core::steps::{LONGEST_INPUT, LONGEST_READ};

use crate::nvtx::Ranges;
use crate::rings::writer;

/// Most copies from the host that a thread reports between two copies to the host: servers make 5 to 20.
const MOST_FROM_HOST: u32 = 32;
/// Most calls per second that are watched: 2 % of a core at 1 us each; a server makes some hundred to some thousand.
const MOST_A_SECOND: u64 = 20_000;
/// Time without them after a second of more.
const PAUSE: Duration = Duration::from_secs(60);
/// Seconds with marks after which a program without iterations is no server.
const SECONDS_TO_SERVE: u32 = 60;
/// Parts of the name by which a program calls itself a server. Workers of Ray and of others set a title.
const SERVERS: [&str; 10] = [
    "rayworkerwrapper",
    "serve",
    "server",
    "servereplica",
    "serving",
    "sglang",
    "torchserve",
    "tritonserver",
    "trtllm",
    "vllm",
];

/// Number of the domain, and of the texts of the three kinds of marks. Set before any callback is enabled.
static NAMES: OnceLock<(u32, [RegisteredString; 3])> = OnceLock::new();
/// Number of calls, and of marks. `Relaxed`: statistics.
static CALLS: AtomicU64 = AtomicU64::new(0);
static MARKS: AtomicU64 = AtomicU64::new(0);
/// True if the marks are those of a server. `Relaxed`: seeing it one flush later is fine.
static SERVES: AtomicBool = AtomicBool::new(false);

thread_local! {
    static SINCE: Cell<Since> = const { Cell::new(Since::NOTHING) };
}

/// Defines the names of the marks.
pub fn prepare() {
    NAMES.get_or_init(|| {
        let domain = Ranges::create_domain(Text::Narrow(SubmissionMark::DOMAIN.as_bytes()));
        let texts = SubmissionMark::ALL.map(|mark| Ranges::register_string(Text::Narrow(mark.name().as_bytes())));
        (domain.0, texts)
    });
}

/// Called when iterations of a server were found.
pub fn serves() {
    SERVES.store(true, Ordering::Relaxed);
}

/// Decides whether the calls are watched: a pause after a second of so many that it may cost the program time, and the
/// end in one that is no server, whose marks would fill the trace.
#[derive(Debug, Default)]
pub struct Watch {
    /// Start of the current interval, and the numbers of calls and marks before it.
    since: Option<(Instant, [u64; 2])>,
    paused: Option<Instant>,
    seconds_with_marks: u32,
    warned: bool,
}

impl Watch {
    /// Returns true if the calls are to be watched again from `now` on, false if no longer.
    pub fn change(&mut self, now: Instant) -> Option<bool> {
        let is_server = || SERVES.load(Ordering::Relaxed) || is_server();
        self.after(now, [&CALLS, &MARKS].map(|count| count.load(Ordering::Relaxed)), is_server)
    }

    fn after(&mut self, now: Instant, counts: [u64; 2], is_server: impl FnOnce() -> bool) -> Option<bool> {
        if self.paused.is_some_and(|since| now.saturating_duration_since(since) >= PAUSE) {
            (self.paused, self.since) = (None, None);
            return Some(true);
        }
        let (since, before) = *self.since.get_or_insert((now, counts));
        let over = now.saturating_duration_since(since);
        if over < Duration::from_secs(1) {
            return None;
        }
        self.since = Some((now, counts));
        let rate = ((counts[0] - before[0]) as f64 / over.as_secs_f64()) as u64;
        if rate > MOST_A_SECOND {
            self.paused = Some(now);
            if !mem::replace(&mut self.warned, true) {
                tracing::warn!(
                    "iterations are not watched for a minute: the program copies and launches graphs {rate} times a second"
                );
            }
            return Some(false);
        }
        self.seconds_with_marks += u32::from(counts[1] > before[1]);
        let ends = self.seconds_with_marks == SECONDS_TO_SERVE && counts[1] > before[1] && !is_server();
        ends.then_some(false)
    }
}

/// Called when the program submits such work.
pub fn submitted(work: Submission) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    let mut since = SINCE.get();
    let mark = since.mark(work);
    SINCE.set(since);
    if let (Some((mark, bytes)), Some((domain, texts))) = (mark, NAMES.get()) {
        MARKS.fetch_add(1, Ordering::Relaxed);
        let message = Message::Registered(texts[mark as usize]);
        let event = Attributes { message, payload: Payload::Unsigned(bytes), ..Attributes::default() };
        writer::with(|writer| writer.begin(RangeEventKind::Mark, *domain, 0, &event));
    }
}

/// Work of a thread since its last copy to the host.
#[derive(Clone, Copy, Debug)]
struct Since {
    /// Copies from the host.
    from_host: u32,
    /// True if a graph was launched.
    graph: bool,
}

impl Since {
    const NOTHING: Self = Self { from_host: 0, graph: false };

    /// The mark of this work, and its bytes; `None` if an iteration does not need it.
    fn mark(&mut self, work: Submission) -> Option<(SubmissionMark, u64)> {
        match work {
            Submission::ToHost(bytes) if bytes <= LONGEST_READ => {
                *self = Self::NOTHING;
                Some((SubmissionMark::ToHost, bytes))
            }
            // The first of these tells that the copies before it loaded a model.
            Submission::FromHost(bytes) if bytes > LONGEST_INPUT => {
                let before = mem::take(&mut self.from_host);
                (before > 0).then_some((SubmissionMark::FromHost, bytes))
            }
            Submission::FromHost(bytes) if self.from_host < MOST_FROM_HOST => {
                self.from_host += 1;
                Some((SubmissionMark::FromHost, bytes))
            }
            Submission::Graph if !mem::replace(&mut self.graph, true) => Some((SubmissionMark::Graph, 0)),
            _ => None,
        }
    }
}

/// True if this process, or the one that spawned it as a worker, calls itself a server.
pub fn is_server() -> bool {
    let command = |process: &str| fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let own = command("self");
    names_a_server(&own)
        || String::from_utf8_lossy(&own).contains("multiprocessing")
            && names_a_server(&command(&parent_id().to_string()))
}

/// True if the program does by its own name, or that of the script or module which Python runs; or if the word after
/// that is `serve`. Other arguments may name the server that a client or a training talks to.
fn names_a_server(command: &[u8]) -> bool {
    let command = String::from_utf8_lossy(command);
    let file_name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let mut words = command.split('\0');
    let mut name = words.next().map(file_name).unwrap_or_default();
    if name.starts_with("python") {
        name = loop {
            match words.next() {
                None | Some("-c") => return false,
                Some("-X" | "-W") => drop(words.next()),
                Some("-m") => break words.next().unwrap_or_default().to_ascii_lowercase(),
                Some(option) if option.starts_with('-') => {}
                Some(script) => break file_name(script),
            }
        };
    }
    name.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| SERVERS.contains(&part))
        || words.next() == Some("serve")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_iteration_needs_is_bounded() {
        use Submission::{FromHost, Graph, ToHost};
        let mut since = Since::NOTHING;
        let mut count = |work: Submission, times: usize| (0..times).filter_map(|_| since.mark(work)).count();
        assert_eq!([count(FromHost(384), 100), count(Graph, 100), count(ToHost(LONGEST_READ + 1), 9)], [32, 1, 0]);
        assert_eq!([count(ToHost(384), 1), count(FromHost(384), 1), count(Graph, 2)], [1, 1, 1], "a new iteration");
        // Weights among small tensors.
        assert_eq!([count(FromHost(LONGEST_INPUT + 1), 9), count(FromHost(384), 40)], [1, 32]);
    }

    #[test]
    fn only_a_whole_second_of_many_calls_is_too_much_and_pauses_a_minute() {
        let (start, mut watch) = (Instant::now(), Watch::default());
        let mut after = |millis, calls| watch.after(start + Duration::from_millis(millis), [calls, 0], || false);
        assert_eq!([after(0, 900_000), after(900, 990_000), after(2_000, 922_000)], [None; 3]);
        assert_eq!([after(2_500, 980_000), after(3_000, 942_001), after(4_000, 942_002)], [None, Some(false), None]);
        assert_eq!([after(62_900, 942_002), after(63_000, 942_002), after(64_000, 950_000)], [None, Some(true), None]);
    }

    #[test]
    fn a_program_that_is_no_server_is_watched_for_a_minute_of_marks() {
        let start = Instant::now();
        for serves in [false, true] {
            let mut watch = Watch::default();
            let mut after = |second, marks| watch.after(start + Duration::from_secs(second), [marks; 2], || serves);
            assert!((0..60).all(|second| after(second, second).is_none()));
            assert!((60..900).all(|second| after(second, 59).is_none()), "no mark");
            assert_eq!(after(900, 60), (!serves).then_some(false));
            assert!((901..1_000).all(|second| after(second, second).is_none()));
        }
    }

    #[test]
    fn servers_are_known_by_their_command_line() {
        for command in [
            "/usr/bin/python3\0/opt/venv/bin/vllm\0serve\0model",
            "python\0-X\0dev\0-u\0-m\0sglang.launch_server\0--model\0x",
            "python3.12\0-m\0vllm.entrypoints.openai.api_server",
            "python3\0examples/python/server.py",
            "/usr/bin/python3\0/usr/bin/lmdeploy\0serve\0api_server",
            "VLLM::EngineCore",
            "VLLM::Worker_TP0",
            "sglang::scheduler_TP1",
            "ray::ServeReplica:default:Model",
            "ray::RayWorkerWrapper.execute_method",
            "/opt/tritonserver/bin/tritonserver\0--model-repository=/models",
            "torchserve\0--start",
            "trtllm-serve\0model",
            "text-generation-server\0serve",
        ] {
            assert!(names_a_server(command.as_bytes()), "{command}");
        }
        for command in [
            "python\0train.py",
            "python\0/srv/server/train.py\0--server=x",
            "python\0train.py\0--config\0server.yaml",
            "torchrun\0--rdzv-endpoint\0server:29400\0train.py",
            "python\0-m\0torch.distributed.run\0--rdzv-endpoint\0server:29400\0train.py",
            "python\0train.py\0/data/serving",
            "python\0train.py\0--mode\0serve",
            "python\0-X\0server\0train.py",
            "python\0-c\0import server",
            "python\0observe.py\0reserved",
            "ray::IDLE",
            "python",
            "",
        ] {
            assert!(!names_a_server(command.as_bytes()), "{command}");
        }
    }
}
