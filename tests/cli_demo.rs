//! `gpuprof demo` as far as it goes before it plays: which recordings there are, and what is said without any.

use std::path::Path;
use std::process::{Command, Output};

fn demo(from: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpuprof")).args(["demo", "--from"]).arg(from).args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn recordings_are_listed_in_the_order_of_the_index() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["copy.cupti.zst", "gpt.cupti.zst", "own.cupti"] {
        std::fs::write(folder.path().join(file), "").unwrap();
    }
    std::fs::write(folder.path().join("index.txt"), "gpt A transformer in training\ncopy Pageable copies\n").unwrap();

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
    std::fs::write(folder.path().join("gpt.cupti.zst"), "").unwrap();
    let output = demo(folder.path(), &["mlp"]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("mlp") && message.contains("gpt"), "{message}");
}
