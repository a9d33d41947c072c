//! The disk is unwritable from the start or later: the program and the analysis continue without a trace.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::program::{EXIT_TIMEOUTS_OF_HANGS, Outcome, outcome, program};
use super::table;
use crate::support::{GPUWHY, Stage, stays};

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
    /// The shell's `ulimit -f`, in KiB: the signal `SIGXFSZ` kills by default.
    SizeLimit(u32),
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
    ("full at once", Disk::Preloaded("full:0")),
    ("full after 6000 bytes", Disk::Preloaded("full:6000")),
    ("an I/O error", Disk::Preloaded("broken")),
    ("1 s for each write", Disk::Preloaded("slow:1000")),
    ("a file size limit of 4 KiB (SIGXFSZ)", Disk::SizeLimit(4)),
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
        Disk::Preloaded(fault) => {
            let library = std::path::Path::new(GPUWHY).parent().unwrap().join("examples/libfaulty_disk.so");
            assert!(library.is_file(), "{} was not built: run `cargo test --workspace`", library.display());
            command.env("LD_PRELOAD", library).env("FAULTY_DISK", fault);
            if fault.starts_with("slow") {
                command.env("GPUWHY_EXIT_TIMEOUT", EXIT_TIMEOUTS_OF_HANGS[0]);
            }
        }
        Disk::SizeLimit(kibibytes) => {
            let mut shell = Command::new("bash");
            shell.args(["-c", &format!("ulimit -f {kibibytes}; exec \"$0\" \"$@\"")]);
            shell.arg(command.get_program()).args(command.get_args());
            shell.current_dir(stage.folder.path());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => shell.env(name, value),
                    None => shell.env_remove(name),
                };
            }
            command = shell;
        }
        Disk::Vanishes => {
            trace = stage.path("gone/trace.gpuwhy");
            let folder = stage.path("gone");
            fs::create_dir(&folder).unwrap();
            stays(&mut command, 500, "gone.removed").env("GPUWHY_OUTPUT", &trace);
            let (seen, removed) = (trace.clone(), stage.path("gone.removed"));
            thread::spawn(move || {
                while !seen.exists() {
                    thread::sleep(Duration::from_millis(1));
                }
                fs::remove_dir_all(folder).unwrap();
                fs::write(removed, "").unwrap();
            });
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

#[test]
fn a_bad_disk_costs_the_trace_and_nothing_else() {
    let whole = run(&Disk::Preloaded("full:1000000000")).trace.unwrap().0;
    let mut rows = Vec::new();
    for (name, disk) in DISKS {
        let seen = run(disk);
        seen.is_the_programs_own(name);
        let (trace, said) = seen.words(whole);
        rows.push(vec![(*name).to_owned(), trace, said]);
    }
    table::check("disks", &["the trace goes to", "trace", "said"], &rows);
}
