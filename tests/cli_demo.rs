//! `gpuwhy demo`: the list of recordings, the message without any, and the destinations of its text and
//! traces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{GPUWHY, built};

fn demo(from: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpuwhy")).args(["demo", "--from"]).arg(from).args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn recordings_are_listed_in_the_order_of_the_index() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["copy.cupti.zst", "gpt.cupti.zst", "own.cupti"] {
        fs::write(folder.path().join(file), "").unwrap();
    }
    fs::write(folder.path().join("index.txt"), "gpt A transformer in training\ncopy Pageable copies\n").unwrap();

    let output = demo(folder.path(), &["--list"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let list = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["gpt", "copy", "own"]);
    assert!(list.contains("A transformer in training"));
}

#[test]
fn a_folder_without_recordings_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains(folder.path().to_str().unwrap()) && message.contains("no recordings"), "{message}");
}

#[test]
fn an_unknown_recording_is_answered_with_the_known_ones() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("gpt.cupti.zst"), "").unwrap();
    let output = demo(folder.path(), &["mlp"]);
    assert_eq!(output.status.code(), Some(2));
    let message = stderr(&output);
    assert!(message.contains("mlp") && message.contains("gpt"), "{message}");
}

/// Plays a recording that comes with gpuwhy; temporary files go to `folder`.
fn play(folder: &Path, arguments: &[&str]) -> Command {
    // Otherwise the demo would build it now.
    built("libprof.so");
    let mut command = Command::new(GPUWHY);
    command.arg("demo").args(arguments).env("TMPDIR", folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn all_text_goes_to_stdout_and_traces_stay_where_a_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = play(folder.path(), &["--fast", "copy_pageable"]).output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nBottleneck: ") && text.contains("demo -o DIR") && !text.contains("\ntrace: "), "{text}");
    assert_eq!(entries(folder.path()), [""; 0].map(PathBuf::from), "nothing stays behind");
    let traces = folder.path().join("traces");
    let named = traces.to_str().unwrap();
    let below = traces.join("not/there");
    let output = play(folder.path(), &["--fast", "copy_pageable", "-o", below.to_str().unwrap()]).output().unwrap();
    assert!(output.status.code() == Some(1) && !traces.exists(), "{}", stderr(&output));
    let output = play(folder.path(), &["--fast", "copy_pageable", "-o", named]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let read = format!("{GPUWHY} report {}", traces.join("copy_pageable.gpuwhy").display());
    let places = ["== copy_pageable", "\nBottleneck: ", &read].map(|part| text.find(part));
    assert!(places.is_sorted() && places[0].is_some(), "{text}");
    assert!(traces.join("copy_pageable.gpuwhy").is_file());
    let output = play(folder.path(), &["--fast", "-q", "copy_pageable", "-o", named]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len(), stderr(&output).as_str()), (Some(0), 0, ""));
    // Without traces, only the reports.
    let output = play(folder.path(), &["--fast", "-q", "copy_pageable"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("gpuwhy: process ") && text.contains("\nBottleneck: "), "{text}");
    assert!(!text.contains("== ") && !text.contains("demo -o DIR"), "{text}");
}

#[test]
fn an_interrupted_demo_removes_what_it_wrote() {
    let folder = tempfile::tempdir().unwrap();
    // Five seconds at the recorded speed.
    let traces = folder.path().join("traces");
    let mut child =
        play(folder.path(), &["gpt", "-o", traces.to_str().unwrap()]).stdout(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    while !traces.join("gpt.gpuwhy").exists() {
        assert!(since.elapsed() < Duration::from_secs(60), "no trace appears");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(entries(&traces), [""; 0].map(PathBuf::from));
}
