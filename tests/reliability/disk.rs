//! The disk is unwritable from the start or later: the program and the analysis continue without a trace.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::program::{EXIT_TIMEOUTS_OF_HANGS, Outcome, outcome, program};
use super::table;
use crate::support::{GPUWHY, Stage, stays, sum};

/// The program waits for this file in its stage before it plays the rest.
const BEGUN: &str = "fault.begun";

/// Fault of the disk.
enum Disk {
    /// `GPUWHY_OUTPUT` has this value.
    Output(&'static str),
    /// The folder of the trace does not exist.
    Missing,
    /// The trace's name is a link to a device.
    Link,
    /// The library of `testing/cupti-replay/tests/disk` is preloaded with this fault.
    Preloaded(&'static str),
    /// The same, beginning when the trace has records, in the middle of play.
    Later(&'static str),
    /// The folder is deleted after the trace was created.
    Vanishes,
}

const DISKS: &[(&str, Disk)] = &[
    ("a folder that does not exist", Disk::Missing),
    ("a folder that cannot be written to", Disk::Output("/proc/x.gpuwhy")),
    ("a folder in place of a file", Disk::Output(".")),
    ("a link to a device", Disk::Link),
    ("/dev/full", Disk::Output("/dev/full")),
    ("/dev/null", Disk::Output("/dev/null")),
    ("full at once", Disk::Preloaded("full")),
    ("full later", Disk::Later("full")),
    ("an I/O error", Disk::Preloaded("broken")),
    // Longer than the exit timeout of this run.
    ("10 s for each write", Disk::Later("slow:10000")),
    ("a file size limit (SIGXFSZ)", Disk::Later("limited")),
    ("the folder is removed meanwhile", Disk::Vanishes),
];

fn run(disk: &Disk) -> Outcome {
    let stage = Stage::new();
    let mut command = program(&stage);
    let mut trace = stage.path("trace.gpuwhy");
    match disk {
        Disk::Output(path) => {
            command.env("GPUWHY_OUTPUT", path);
        }
        Disk::Missing => {
            trace = stage.path("missing/folder/trace.gpuwhy");
            command.env("GPUWHY_OUTPUT", &trace);
        }
        Disk::Link => std::os::unix::fs::symlink("/dev/null", &trace).unwrap(),
        Disk::Preloaded(fault) | Disk::Later(fault) => {
            let library = Path::new(GPUWHY).parent().unwrap().join("examples/libfaulty_disk.so");
            assert!(library.is_file(), "{} was not built: run `cargo test --workspace`", library.display());
            command.env("LD_PRELOAD", library).env("FAULTY_DISK", fault);
            if fault.starts_with("slow") {
                command.env("GPUWHY_EXIT_TIMEOUT", EXIT_TIMEOUTS_OF_HANGS[0]);
            }
            if matches!(disk, Disk::Later(_)) {
                let begun = stage.path(BEGUN);
                stays(&mut command, 500, BEGUN).env("FAULTY_DISK_FROM", &begun);
                let trace = trace.clone();
                when(&stage, move || has_records(&trace), move || fs::write(begun, "").unwrap());
            }
        }
        Disk::Vanishes => {
            trace = stage.path("gone/trace.gpuwhy");
            let folder = stage.path("gone");
            fs::create_dir(&folder).unwrap();
            stays(&mut command, 500, BEGUN).env("GPUWHY_OUTPUT", &trace);
            let (seen, removed) = (trace.clone(), stage.path(BEGUN));
            when(
                &stage,
                move || seen.exists(),
                move || {
                    fs::remove_dir_all(folder).unwrap();
                    fs::write(removed, "").unwrap();
                },
            );
        }
    }
    let mut seen = outcome(&mut command, &trace);
    let folder = stage.folder.path().to_string_lossy().into_owned();
    for said in &mut seen.said {
        assert!(!said.contains("internal error"), "{said}");
        *said = said.replace(&folder, "DIR");
    }
    seen
}

/// Does something on another thread once a condition holds, if it does before the folder of the stage is gone.
fn when(stage: &Stage, holds: impl Fn() -> bool + Send + 'static, then: impl FnOnce() + Send + 'static) {
    let folder = stage.folder.path().to_owned();
    thread::spawn(move || {
        while !holds() {
            if !folder.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        then();
    });
}

fn has_records(trace: &Path) -> bool {
    // Until the file has its beginning there is no report.
    let output = Command::new(GPUWHY).args(["report", "--json"]).arg(trace).output().unwrap();
    serde_json::from_slice(&output.stdout).is_ok_and(|report: Value| sum(&report["completeness"]["records"]) > 0)
}

#[test]
fn a_bad_disk_costs_the_trace_and_nothing_else() {
    let whole = run(&Disk::Preloaded("slow:0")).trace.unwrap().0;
    let mut rows = Vec::new();
    for (name, disk) in DISKS {
        let seen = run(disk);
        seen.is_the_programs_own(name);
        let (trace, said) = seen.words(whole);
        rows.push(vec![(*name).to_owned(), trace, said]);
    }
    table::check("disks", &["the trace goes to", "trace", "said"], &rows);
}
