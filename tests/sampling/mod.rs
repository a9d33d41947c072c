//! Host samples, from a Python program through libprof.so into the trace: a recorded session plays while a
//! live interpreter works and waits.

mod graph_nodes;
mod lines;
mod names;
mod native;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Stage, stderr};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceReader;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::{HostSample, InterpreterLock, Loss, Record, ThreadState, Timestamp};

/// Host samples of a trace.
struct Samples {
    samples: Vec<HostSample>,
    loss: Loss,
    session: ProcessInfo,
    dictionary: Dictionary,
}

impl Samples {
    fn read(trace: &Path) -> Self {
        let mut reader = TraceReader::new(File::open(trace).unwrap()).unwrap();
        let (mut samples, mut loss, mut mark) = (Vec::new(), Loss::default(), Timestamp::ZERO);
        while let Some(item) = reader.next_event().unwrap() {
            match item {
                Event::Record(Record::Sample(sample)) => {
                    assert!(sample.at > mark, "{sample:?} after the mark {mark:?}");
                    samples.push(sample);
                }
                Event::Flush(at) => mark = at,
                Event::Loss(newer) => loss = *newer,
                _ => {}
            }
        }
        let (session, dictionary, _) = reader.into_parts();
        Self { samples, loss, session, dictionary }
    }

    /// Functions of a stack, innermost first.
    fn stack(&self, sample: &HostSample) -> Vec<&str> {
        self.dictionary.stack(sample.stack).map(|frame| self.dictionary.name(frame.function)).collect()
    }
}

fn python() -> Option<&'static str> {
    let works = |name: &&str| {
        let question = "import sys; sys.exit(not (9 <= sys.version_info[1] <= 14))";
        let mut asked = Command::new(name);
        asked.args(["-c", question]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let found = ["python3", "python3.12", "python3.11", "python3.10", "python3.9"].into_iter().find(works);
    if found.is_none() {
        println!("SKIPPED: no CPython 3.9 to 3.14 on this machine");
    }
    found
}

#[test]
fn a_python_program_is_seen_where_it_works_and_where_it_waits() {
    let Some(python) = python() else { return };
    let stage = Stage::new();
    let mut program = stage.program("resnet_workers0", python);
    program.arg("-S").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sampling/train.py"));
    program.env("GPUWHY_REPLAY_SPEED", "1").env("UNTIL", "1500000000").env("GPUWHY_REPORT", "off");
    let output = program.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));

    let samples = Samples::read(&stage.path("trace.gpuwhy"));
    assert!(!samples.session.notes.iter().any(|note| note.contains("Python")), "{:?}", samples.session.notes);
    let mut time = BTreeMap::<(&str, ThreadState), [u64; 2]>::new();
    for sample in &samples.samples {
        let stack = samples.stack(sample);
        let Some(place) = stack.iter().position(|name| *name == "train") else { continue };
        assert_eq!(stack[place + 1..], ["main", "<module>"]);
        let inner = if place == 0 { "train" } else { stack[place - 1] };
        let [wall, ready] = time.entry((inner, sample.state)).or_default();
        *wall += sample.at.since(sample.since);
        *ready += sample.on_cpu + sample.runnable;
    }
    println!("{} samples, {} failed: {time:?}", samples.samples.len(), samples.loss.failed_samples);
    // One function sleeps and the other works, on a core or waiting for one: on a busy machine both wait for
    // cores.
    let [asleep, working] = [("load_batch", ThreadState::Sleep), ("compute", ThreadState::Running)].map(|key| {
        let [wall, ready] = time[&key];
        ready as f64 / wall as f64
    });
    assert!(asleep < working && working > 0.25, "{time:?}");

    // The forked child waits in a read, and leaves neither a report nor a trace.
    if Path::new("/proc/thread-self/children").exists() {
        let is_one_in_a_read =
            |sample: &HostSample| (sample.children, sample.children_running, sample.children_in_io) == (1, 0, 1);
        assert!(samples.samples.iter().any(is_one_in_a_read));
    }
    assert_eq!(std::fs::read_dir(stage.folder.path()).unwrap().count(), 1);

    // One thread: each sample starts where the previous one ended, unless that one was too late for its flush
    // mark.
    let gaps: Vec<_> = samples.samples.windows(2).filter(|pair| pair[0].at != pair[1].since).collect();
    assert!(gaps.len() as u64 <= samples.loss.failed_samples, "{gaps:?}, {:?}", samples.loss);
    assert!(samples.samples.iter().any(|sample| sample.interpreter_lock == InterpreterLock::ThisThread));
}

#[test]
fn switched_off_nothing_is_looked_at() {
    let Some(python) = python() else { return };
    let stage = Stage::new();
    let mut program = stage.program("sync_item", python);
    program.arg("-S").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sampling/train.py"));
    program.env("GPUWHY_SAMPLING", "off").env("UNTIL", "1500000000").env("GPUWHY_REPLAY_SPEED", "10");
    assert!(program.output().unwrap().status.success());
    assert!(Samples::read(&stage.path("trace.gpuwhy")).samples.is_empty());
}

#[test]
fn a_program_without_python_is_reported_so_in_a_note() {
    let stage = Stage::new();
    let output = stage.host("sync_item").env("GPUWHY_SAMPLING", "on").output().unwrap();
    assert!(output.status.success());
    let samples = Samples::read(&stage.path("trace.gpuwhy"));
    let note = "no Python stacks: no Python interpreter in this process";
    assert!(samples.session.notes.iter().any(|said| said == note), "{:?}", samples.session.notes);
    assert!(stderr(&output).starts_with(&format!("gpuwhy: {note}")), "{}", stderr(&output));
    // The threads of the recording are not in this process.
    assert!(samples.samples.is_empty());
}
