//! `gpuwhy try` with programs that print much, leave processes, or use no CUDA.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cli_try::{Place, is_alive, outcomes, written};
use crate::support::{GPUWHY, built, stderr};

const OPTIONS: [&str; 8] = ["--json", "--allow", "all", "--pairs", "2", "--remedy", "tf32", "--budget=10m"];

/// The document about a command.
fn tried(place: &Place, command: &[&str]) -> Value {
    let output = place.command(&OPTIONS, command).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn what_a_program_prints_takes_no_place() {
    let Some(place) = Place::new() else { return };
    let flood = "yes 0123456789 | head -c 20000000; yes 0123456789 | head -c 20000000 >&2; du -sk tmp > used";
    assert_eq!(tried(&place, &["sh", "-c", flood])["remedies"][0]["output"], "equal");
    let used = written(&place.path().join("used"));
    let kilobytes: u64 = used.split_whitespace().next().unwrap().parse().unwrap();
    assert!(kilobytes < 1_000, "{kilobytes}");
}

#[test]
fn no_process_of_a_run_is_left() {
    let Some(place) = Place::new() else { return };
    // Daemons: of another session, and the child of a process that has ended. Each run waits for files of its own.
    let script = "rm -f first second; setsid sleep 1000 >/dev/null 2>&1 & echo $! > first
(setsid sh -c 'sleep 1000 & echo $! > second' >/dev/null 2>&1 &)
while [ ! -s first ] || [ ! -s second ]; do sleep 0.01; done";
    tried(&place, &["sh", "-c", script]);
    for name in ["first", "second"] {
        assert!(!is_alive(&written(&place.path().join(name))), "{name}");
    }
}

#[test]
fn processes_that_were_there_before_are_kept() {
    let Some(place) = Place::new() else { return };
    let mut command = Command::new("sh");
    let script = "sleep 1000 >/dev/null 2>&1 & echo $! > kept; exec \"$0\" \"$@\"";
    command.args(["-c", script, GPUWHY, "try"]).args(OPTIONS).args(["--", "true"]).current_dir(place.path());
    command.env("TMPDIR", place.path().join("tmp")).env("GPUWHY_HISTORY", "off");
    assert!(command.output().unwrap().status.success());
    let kept = written(&place.path().join("kept"));
    assert!(is_alive(&kept));
    assert!(Command::new("kill").arg(kept).status().unwrap().success());
}

#[test]
fn orphans_that_no_run_started_are_kept() {
    let Some(place) = Place::new() else { return };
    // The shell that becomes gpuwhy has a child, whose child becomes gpuwhy's own during the first run.
    let before = "( while [ ! -e began ]; do sleep 0.01; done
( sleep 1000 >/dev/null 2>&1 & echo $! > orphan ); mv orphan kept ) >/dev/null 2>&1 & exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", before, GPUWHY, "try"]).args(OPTIONS).current_dir(place.path());
    command.args(["--", "sh", "-c", "echo > began; while [ ! -e kept ]; do sleep 0.01; done"]);
    command.env("TMPDIR", place.path().join("tmp")).env("GPUWHY_HISTORY", "off");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let kept = written(&place.path().join("kept"));
    assert!(is_alive(&kept));
    assert!(Command::new("kill").arg(kept).status().unwrap().success());
}

#[test]
fn processes_that_cleared_their_environment_are_ended() {
    let Some(place) = Place::new() else { return };
    // Neither ends by itself when gpuwhy is interrupted.
    let script = "trap '' INT TERM; setsid sleep 1000 >/dev/null 2>&1 & echo $! > left
while :; do sleep 0.01; done";
    let mut gpuwhy = place.command(&OPTIONS, &["env", "-i", "sh", "-c", script]);
    let mut gpuwhy = gpuwhy.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let left = written(&place.path().join("left"));
    assert!(Command::new("kill").args(["-TERM", &gpuwhy.id().to_string()]).status().unwrap().success());
    assert!(!gpuwhy.wait().unwrap().success());
    assert!(!is_alive(&left));
}

#[test]
fn nothing_is_said_of_a_program_without_cuda_or_of_a_short_one() {
    let Some(place) = Place::new() else { return };
    let claims = |document: &Value| {
        let row = &document["remedies"][0];
        (row["gain"].is_number(), row["why"].as_str().unwrap_or_default().to_owned())
    };
    for script in ["printf 'x 1\\n'", "sleep 0.3; printf 'x 1\\n'"] {
        let document = tried(&place, &["sh", "-c", script]);
        assert_eq!(outcomes(&document), [("tf32", "no_difference")]);
        let (has_gain, why) = claims(&document);
        assert!(!has_gain && why.contains("libcuda.so"), "{document}");
    }
    assert!(!place.path().join("history.jsonl").exists());
    fs::copy(built("libcupti_replay.so"), place.path().join("libcuda.so.1")).unwrap();
    let program = "import ctypes, time; ctypes.CDLL('./libcuda.so.1'); time.sleep(1)";
    assert_eq!(claims(&tried(&place, &["python3", "-c", program])), (true, String::new()));
    let output = place.command(&OPTIONS[1..], &["true"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("nothing can be said: no process") && text.ends_with("No gain could be measured.\n"),
        "{text}"
    );
}
