//! `gpuwhy lake follow`: what it writes while programs run is what `lake add` writes when they have ended.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gpuwhy_export::lake::{Lake, visit};
use gpuwhy_export::tables::Table;

use super::lake::files;
use super::{gpuwhy, play_rank};
use crate::support::{GPUWHY, Stage, stderr};

/// A table and its columns, the last of which are compared and not sorted by.
type Wanted = (Table, &'static [&'static str]);

const STEPS: Wanted = (Table::Steps, &["rank", "device", "step", "source", "start_ns", "end_ns", "operations"]);
const STEP_LEAVES: Wanted = (Table::StepLeaves, &["rank", "device", "step", "leaf", "duration_ns"]);
const COLLECTIVES: Wanted = (
    Table::Collectives,
    &["rank", "communicator", "function", "ordinal", "bytes", "start_ns", "end_ns", "exposed_ns", "basis"],
);
const LEAVES: Wanted = (Table::Leaves, &["rank", "device", "leaf", "duration_ns", "steady_ns"]);
const PROCESSES: Wanted = (Table::Processes, &["rank", "process", "program", "observed_ns", "ending", "verdict"]);

/// The rows of a table in a lake, sorted.
fn asked((table, names): Wanted, lake: &Path) -> Vec<String> {
    let mut rows = Vec::new();
    for file in Lake::new(lake).files(table).unwrap() {
        assert_eq!(file.run, "job");
        let read = visit(&file.path, names, &mut |cells| {
            rows.push(format!("{cells:?}"));
            Ok(())
        });
        // A file may be replaced while it is looked for.
        if let Err(error) = read {
            assert!(error.to_string().contains("No such file"), "{error}");
        }
    }
    rows.sort();
    rows
}

fn follow_once(folder: &Path, lake: &Path) -> String {
    let output = gpuwhy(&[&"lake", &"follow", &"--once", &"--run", &"job", &folder, &"--to", &lake]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stderr(&output)
}

fn add(traces: &Path, lake: &Path) {
    let output = gpuwhy(&[&"lake", &"add", &"--run", &"job", &traces, &"--to", &lake]);
    assert!(output.status.code().is_some_and(|code| code < 2), "{}", stderr(&output));
}

fn same(wanted: Wanted, followed: &Path, added: &Path) {
    let (found, expected) = (asked(wanted, followed), asked(wanted, added));
    let (table, count) = (wanted.0.name(), expected.len());
    if let Some(place) = (0..found.len().max(count)).find(|&place| found.get(place) != expected.get(place)) {
        panic!("{table}: {} rows, {count} expected; {:?}, {:?}", found.len(), found.get(place), expected.get(place));
    }
}

/// How a process ended; `None` before it has a row.
fn ending(lake: &Path) -> Option<String> {
    let row = asked((Table::Processes, &["ending"]), lake).pop()?;
    ["running", "abrupt", "clean"].into_iter().find(|ending| row.contains(ending)).map(str::to_owned)
}

#[test]
fn ended_programs_are_added_once_and_as_lake_add_does() {
    let ranks = Stage::new();
    play_rank(&ranks, "mlp", 0);
    play_rank(&ranks, "sync_item", 1);
    let mut nccl = ranks.host("multi_stream");
    nccl.env("GPUWHY_REPLAY", ranks.path("nccl.cupti")).env("NCCL_PROFILER_PLUGIN", "libprof.so").args(["--nccl", "5"]);
    nccl.env("RANK", "2").env("WORLD_SIZE", "3").env("GPUWHY_OUTPUT", "rank2.gpuwhy");
    assert!(nccl.status().unwrap().success());
    let (followed, added) = (ranks.path("followed"), ranks.path("added"));
    add(ranks.folder.path(), &added);
    follow_once(ranks.folder.path(), &followed);
    for wanted in [STEPS, STEP_LEAVES, COLLECTIVES, LEAVES, PROCESSES] {
        same(wanted, &followed, &added);
    }
    assert!(asked(STEPS, &followed).len() > 20 && asked(COLLECTIVES, &followed).len() == 75);
    same((Table::Communicators, &["rank", "communicator", "name", "ranks"]), &followed, &added);
    let before = files(&followed);
    assert!(before.iter().all(|file| !file.to_string_lossy().contains("/live-")), "{before:?}");
    // The lake has them: a second time adds nothing, after compaction too.
    assert!(follow_once(ranks.folder.path(), &followed).contains("0 steps of 0 processes in 0 files"));
    assert_eq!(files(&followed), before);
    assert_eq!(gpuwhy(&[&"lake", &"compact", &followed]).status.code(), Some(0));
    let compacted = files(&followed);
    follow_once(ranks.folder.path(), &followed);
    assert_eq!(files(&followed), compacted);
    let output = gpuwhy(&[&"lake", &"add", &"--run", &"job", &ranks.path("rank0.gpuwhy"), &"--to", &followed]);
    assert_eq!(output.status.code(), Some(2), "it has the rank already");
}

#[test]
fn whoever_follows_anew_goes_on_where_the_lake_ends() {
    let stage = Stage::new();
    play_rank(&stage, "mlp", 0);
    let (folder, followed, added) = (stage.path("growing"), stage.path("followed"), stage.path("added"));
    let trace = stage.path("rank0.gpuwhy");
    add(&trace, &added);
    let bytes = fs::read(&trace).unwrap();
    fs::create_dir(&folder).unwrap();
    let growing = folder.join("rank0.gpuwhy");
    let mut seen = 0;
    // Four times it looks as if the program were gone, and then it writes on.
    for part in 1..=4 {
        let (from, to) = (bytes.len() * (part - 1) / 4, bytes.len() * part / 4);
        let mut file = OpenOptions::new().create(true).append(true).open(&growing).unwrap();
        file.write_all(&bytes[from..to]).unwrap();
        follow_once(&folder, &followed);
        let steps = asked(STEPS, &followed).len();
        assert!(steps >= seen, "{steps} after {seen}");
        seen = steps;
        assert_eq!(ending(&followed).as_deref(), Some(if part < 4 { "abrupt" } else { "clean" }));
    }
    same(LEAVES, &followed, &added);
    same(PROCESSES, &followed, &added);
    // Each step has a row or is counted: the last one at each end had another length then.
    let counter = asked((Table::Completeness, &["counter", "value"]), &followed);
    let left_out = counter.iter().find(|row| row.contains("steps_left_out")).unwrap();
    let left_out: usize = left_out.split("Integer(").nth(1).unwrap().trim_end_matches([')', ']']).parse().unwrap();
    let all = asked(STEPS, &added).len();
    assert!(left_out <= 3 && seen + left_out == all && seen > 100, "{seen} rows, {left_out} left out of {all}");
}

/// A process that is killed when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < deadline, "waited for {what} in vain");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_killed_program_has_its_steps_until_then() {
    let stage = Stage::new();
    let (folder, lake, added) = (stage.path("traces"), stage.path("lake"), stage.path("added"));
    fs::create_dir(&folder).unwrap();
    let mut host = stage.host("gpt");
    host.env("RANK", "0").env("WORLD_SIZE", "2").env("GPUWHY_OUTPUT", folder.join("rank0.gpuwhy"));
    host.env("GPUWHY_REPLAY_SPEED", "0.05").stdout(Stdio::null()).stderr(Stdio::null());
    let mut program = Killed(host.spawn().unwrap());
    let mut follower = Command::new(GPUWHY);
    follower.args(["lake", "follow", "--every", "1s", "--run", "job"]).arg(&folder).arg("--to").arg(&lake);
    let mut follower = Killed(follower.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    wait_for("the running process", || ending(&lake).is_some());
    assert_eq!(ending(&lake).as_deref(), Some("running"));
    // A second one would write every row twice.
    let second = gpuwhy(&[&"lake", &"follow", &"--once", &folder, &"--to", &lake]);
    assert_eq!(second.status.code(), Some(2));
    assert!(stderr(&second).contains(&format!("process {}", follower.0.id())), "{}", stderr(&second));
    let busy = || asked((Table::Leaves, &["leaf", "duration_ns"]), &lake).iter().any(|row| !row.contains("Integer(0)"));
    wait_for("work of the program", busy);
    program.0.kill().unwrap();
    program.0.wait().unwrap();
    wait_for("the end of the process", || ending(&lake).as_deref() == Some("abrupt"));
    let interrupted = Command::new("kill").args(["-TERM", &follower.0.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let status = follower.0.wait().unwrap();
    let mut said = String::new();
    follower.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(status.code().is_some(), "{said}");
    add(&folder, &added);
    same(STEPS, &lake, &added);
    same(STEP_LEAVES, &lake, &added);
    same(LEAVES, &lake, &added);
    let locked = files(&lake).iter().any(|file| file.to_string_lossy().contains(".gpuwhy"));
    assert!(!locked, "{:?}", files(&lake));
}
