//! Names of launching threads: from the kernel into the trace, and from there into other formats. And the
//! thread that holds the interpreter's lock while a launching one waits.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use gpuwhy_trace::record::ThreadId;
use serde_json::Value;

use super::lines::recording;
use super::{Samples, python};
use crate::support::{GPUWHY, Stage, stderr};

#[test]
fn a_launching_thread_has_its_name() {
    let Some(python) = python() else { return };
    let stage = Stage::new();
    let session = stage.path("session.cupti");
    let mut program = stage.program("sync_item", python);
    program.arg("-S").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sampling/named.py"));
    program.env("GPUWHY_REPLAY", &session).env("GPUWHY_REPLAY_SPEED", "1").env("GPUWHY_REPORT", "off");
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut thread = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut thread).unwrap();
    let thread: u32 = thread.trim().parse().unwrap();
    recording(&session, thread);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));

    let samples = Samples::read(&stage.path("trace.gpuwhy"));
    assert_eq!(samples.dictionary.thread_name(ThreadId(thread)), Some("pt_autograd_0"));
    // A name that only repeats that of the program is none.
    assert_eq!(samples.dictionary.thread_names().len(), 1);

    let gpuwhy = |arguments: &[&str]| {
        let output = Command::new(GPUWHY).args(arguments).current_dir(stage.folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(gpuwhy(&["query", "trace.gpuwhy", "SELECT * FROM threads"]).contains("pt_autograd_0"));
    gpuwhy(&["export", "--to", "chrome", "trace.gpuwhy", "-o", "trace.json"]);
    let chrome = std::fs::read_to_string(stage.path("trace.json")).unwrap();
    assert!(chrome.contains(&format!("pt_autograd_0, thread {thread}")));

    // The first thread launches nothing, and is sampled because it holds the lock.
    let host = &stage.report()["host"];
    let function = |row: &Value| row["function"].as_str().unwrap_or_default().to_owned();
    // How often it is seen depends on the machine; the sampler's own test waits until it is.
    let mut holders =
        host["lock_holders"].as_array().unwrap().iter().filter(|row| !row["file"].as_str().unwrap().is_empty());
    assert!(holders.all(|row| function(row) == "hog"), "{host}");
}
