//! `gpuwhy start --at-step` end to end: ranks that run at different speeds capture the same steps.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::captured::{Truth, read};
use crate::support::{GPUWHY, Stage, keeps_up, report, stays, stderr};
use serde_json::Value;
use tempfile::TempDir;

/// Times before the first step of the recording, and after the start of four steps, milliseconds.
const BEFORE: u64 = 250;
const AFTER_FOUR: u64 = 650;

/// A rank of a job, whose step `n` is the range from 300 + 100 n to 390 + 100 n milliseconds of the
/// recording. It pauses at the time `stays_at` until it is released.
fn rank(stage: &Stage, runtime: &Path, number: usize, stays_at: u64, arguments: &[(&str, &str)]) -> Child {
    let mut host = stage.host("multi_stream");
    host.args(["--ranges", "after"]);
    let step = |step: u64| [(300 + step * 100, "nvtxRangePushA=step"), (390 + step * 100, "nvtxRangePop")];
    let mut calls: Vec<_> = (0..9).flat_map(step).chain([(stays_at, "waitFor=go")]).collect();
    calls.sort_unstable();
    for (at, call) in calls {
        host.args(["--call", &format!("{at}:{call}")]);
    }
    // The second rank runs at a third of the speed.
    let speed = ["0.3", "0.1"][number];
    host.env("GPUWHY_CONTROL", sockets(runtime)).env("GPUWHY_REPLAY_SPEED", speed).env("RANK", number.to_string());
    host.env("GPUWHY_CAPTURE_RANGE", "command").env("GPUWHY_NVTX_CAPTURE", "step").envs(arguments.iter().copied());
    host.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

fn sockets(runtime: &Path) -> PathBuf {
    runtime.join("gpuwhy")
}

/// Ranks with their sockets, and commands for all of them.
struct Job {
    ranks: Vec<(Stage, Child)>,
    runtime: TempDir,
}

impl Job {
    /// Starts a rank for each of these times, at which it pauses.
    fn start(stays_at: &[u64], variables: &[(&str, &str)]) -> Self {
        let runtime = tempfile::tempdir().unwrap();
        let start = |(number, &stays_at): (usize, &u64)| {
            let stage = Stage::new();
            let child = rank(&stage, runtime.path(), number, stays_at, variables);
            (stage, child)
        };
        let ranks: Vec<_> = stays_at.iter().enumerate().map(start).collect();
        let job = Self { ranks, runtime };
        wait_until(|| job.ranks.iter().all(|(_, child)| job.socket(child).exists()));
        job
    }

    fn socket(&self, child: &Child) -> PathBuf {
        sockets(self.runtime.path()).join(format!("{}.sock", child.id()))
    }

    /// Exit code, the sorted lines of stdout, stderr.
    fn tell(&self, arguments: &[&str]) -> (Option<i32>, Vec<String>, String) {
        let mut command = Command::new(GPUWHY);
        let output = command.args(arguments).env("GPUWHY_CONTROL", sockets(self.runtime.path())).output().unwrap();
        let mut lines: Vec<_> = String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        (output.status.code(), lines, stderr(&output))
    }

    fn steps(&self, rank: usize) -> u64 {
        let id = u64::from(self.ranks[rank].1.id());
        let (_, lines, _) = self.tell(&["top", "--json"]);
        let mut all = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.find(|status| status["pid"] == id).map_or(0, |status| status["steps_begun"].as_u64().unwrap())
    }

    fn go_on(&self) {
        self.ranks.iter().for_each(|(stage, _)| stage.go_on("go"));
    }

    /// Lets all ranks run to their end; returns start and end of their captures, milliseconds of the
    /// recording.
    fn end(self) -> Vec<Vec<(u64, u64)>> {
        self.go_on();
        let captures = |(stage, mut child): (Stage, Child)| {
            assert!(child.wait().unwrap().success());
            let trace = stage.path("trace.gpuwhy");
            if !trace.exists() {
                return Vec::new();
            }
            let truth = Truth::of("multi_stream");
            let (captures, _) = read(&trace);
            captures.values().for_each(|capture| truth.check(capture, "at a step"));
            captures.values().map(|capture| (capture.begin / 1_000_000, capture.end / 1_000_000)).collect()
        };
        self.ranks.into_iter().map(captures).collect()
    }
}

#[track_caller]
fn wait_until(done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn ranks_capture_the_same_steps_whenever_they_get_there() {
    let job = Job::start(&[BEFORE, BEFORE], &[]);
    let via = format!("env {GPUWHY}");
    let (code, lines, said) = job.tell(&["start", "--all", "--at-step", "4", "--steps", "2", "--via", &via]);
    assert!(code == Some(0) && lines.len() == 2, "{lines:?} {said}");
    for rank in 0..2 {
        let expected = format!("capture 1 begins at step 4 (rank {rank}), for 2 steps; ");
        assert!(lines.iter().any(|line| line.contains(&expected)), "{lines:?}");
    }
    let (_, status, _) = job.tell(&["top", "--once"]);
    assert!(status.iter().any(|line| line.contains("a capture begins at step 4; ")), "{status:?}");
    // Both captures span the start of step 4 to the end of step 5, and contain exactly the launches in
    // between.
    let edges = |captures: &[(u64, u64)]| matches!(captures, [(700..=719, 890..=909)]);
    let captures = job.end();
    assert!(captures.iter().all(|of_rank| edges(of_rank)), "{captures:?}");
}

#[test]
fn a_rank_that_is_past_the_step_says_so_with_its_number() {
    let job = Job::start(&[AFTER_FOUR, BEFORE], &[]);
    wait_until(|| job.steps(0) == 4);
    assert_eq!(job.steps(1), 0, "the second rank is far behind");
    for via in [None, Some(format!("env {GPUWHY}"))] {
        let mut arguments = vec!["start", "--all", "--at-step", "2"];
        arguments.extend(via.iter().flat_map(|via| ["--via", via]));
        let (found, lines, said) = job.tell(&arguments);
        let past = format!("process {} (rank 0) is past step 2: ", job.ranks[0].1.id());
        assert!(lines.iter().any(|line| line.contains(&past) && line.ends_with(" steps have begun")), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("capture 1 begins at step 2 (rank 1), until")), "{lines:?}");
        assert_eq!(found, Some(1));
        assert!(said.contains("`gpuwhy stop --all` cancels those that do"), "{said}");
    }
    let (_, lines, _) = job.tell(&["stop", "--all"]);
    let canceled = format!("{}: the capture that waited for its step is canceled", job.ranks[1].1.id());
    assert!(lines.contains(&canceled), "{lines:?}");
    let mut job = job;
    job.ranks[1].1.kill().unwrap();
    job.ranks[1].1.wait().unwrap();
    job.ranks.pop();
    assert_eq!(job.end(), [vec![]], "no capture has begun");
}

#[test]
fn a_process_that_cannot_count_steps_says_why() {
    let id = |job: &Job| job.ranks[0].1.id().to_string();
    let whole = Job::start(&[BEFORE], &[("GPUWHY_CAPTURE_RANGE", "none")]);
    let (code, lines, _) = whole.tell(&["start", &id(&whole), "--at-step", "50"]);
    let why = "is capturing: a capture at a step can only begin while none is active";
    assert!(code == Some(1) && lines[0].starts_with("nothing changed: ") && lines[0].ends_with(why), "{lines:?}");
    let unnamed = Job::start(&[BEFORE], &[("GPUWHY_NVTX_CAPTURE", "")]);
    let (code, lines, _) = unnamed.tell(&["start", &id(&unnamed), "--at-step", "50"]);
    assert!(code == Some(1) && lines[0].contains("does not count steps: start it with `gpuwhy run -c"), "{lines:?}");
    // It still accepts other commands.
    assert_eq!(unnamed.tell(&["start", &id(&unnamed)]).1, ["capture 1 has begun"]);
    for wrong in [&["--steps", "2"][..], &["--at-step", "x"], &["--at-step", "3", "--steps", "0"]] {
        assert_eq!(unnamed.tell(&[&["start", "--all"], wrong].concat()).0, Some(2), "{wrong:?}");
    }
    for (_, mut child) in whole.ranks.into_iter().chain(unnamed.ranks) {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn detected_steps_can_be_named_where_a_schedule_detects_them() {
    let stage = Stage::new();
    let runtime = tempfile::tempdir().unwrap();
    /// Time before step 1000 of 8,000, milliseconds.
    const EARLY: u64 = 100;
    // A step has one kernel.
    let mut host = stage.host("sync_item");
    stays(&mut host, EARLY, "go").env("GPUWHY_CONTROL", sockets(runtime.path()));
    keeps_up(&mut host, (2..22).map(|slice| slice * 50)).env("GPUWHY_REPLAY_SPEED", "1").env("GPUWHY_FLUSH", "10ms");
    host.env("GPUWHY_STEPS", "1000000").stderr(Stdio::null()).stdout(Stdio::null());
    let child = host.spawn().unwrap();
    let job = Job { ranks: vec![(stage, child)], runtime };
    wait_until(|| job.socket(&job.ranks[0].1).exists());
    let (code, lines, said) = job.tell(&["start", "--all", "--at-step", "1000", "--steps", "1000"]);
    assert_eq!(code, Some(0), "{lines:?} {said}");
    assert!(lines[0].contains("capture 1 begins at step 1000, for 1000 steps; "), "{lines:?} {said}");
    job.go_on();
    let Job { mut ranks, .. } = job;
    let (stage, mut child) = ranks.remove(0);
    assert!(child.wait().unwrap().success());
    let (_, report) = report(&stage.path("trace.gpuwhy"));
    let captures = &report["captures"];
    assert_eq!((captures.as_array().unwrap().len(), &captures[0]["trigger"]), (1, &Value::from("command")));
    // Start and end are known only some flushes later, so the count is close to the requested one.
    let kernels = captures[0]["kernels"].as_u64().unwrap();
    assert!((100..5000).contains(&kernels) && captures[0]["end_unix_ns"].is_u64(), "{captures}");
}
