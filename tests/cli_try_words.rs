//! What `gpuwhy try` says about what it does not try, and how to keep what helps.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::cli_try::{Place, TRAIN, document, outcomes};
use crate::cli_try_loops::stage;
use crate::support::{GPUWHY, stderr};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces").join(name)
}

/// The result for a report, of a command that does nothing.
fn of_report(place: &Place, trace: &str, options: &[&str]) -> Output {
    let trace = fixture(trace);
    place.command(&[&["--from", trace.to_str().unwrap()], options].concat(), &["true"]).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn what_is_not_tried_comes_first_with_the_reason() {
    let Some(place) = Place::new() else { return };
    let change = of_report(&place, "file_log.gpuwhy", &[]);
    let said = text(&change);
    assert_eq!(change.status.code(), Some(1), "{said}");
    assert!(said.starts_with("Not tried: file_output at programs2.py:31 "), "{said}");
    assert!(
        said.contains("a change of the program, which `gpuwhy try --patch FIX.diff -- COMMAND` measures\n"),
        "{said}"
    );
    assert!(said.ends_with("Nothing was tried.\n"), "{said}");
    let none = text(&of_report(&place, "kernels_measured.gpuwhy", &[]));
    assert_eq!(none, "Not tried: the report names no change.\nNothing was tried.\n");
    let rounding = text(&of_report(&place, "hf_generate.gpuwhy", &[]));
    assert!(rounding.contains("attention_build at hf_generate.py:7"), "{rounding}");
    assert!(
        rounding.contains("compile at hf_generate.py:7 need --allow rounding, as last digits change\n"),
        "{rounding}"
    );
    let document = |options: &[&str]| {
        let output = of_report(&place, "hf_generate.gpuwhy", &[&["--json", "--pairs=2"], options].concat());
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let found = document(&[]);
    let row = found["not_tried"].as_array().unwrap().iter().find(|row| row["id"] == "attention_build").unwrap();
    assert!(row["why"] == "rounding" && row["text"].is_string(), "{found}");
    // A remedy that is named is tried.
    for options in [&["--remedy", "attention_build"][..], &["--allow", "rounding"]] {
        let found = document(options);
        assert!(outcomes(&found).iter().any(|(id, outcome)| *id == "attention_build" && *outcome != "not_allowed"));
    }
}

#[test]
fn a_terminal_is_asked_once_about_last_digits() {
    let Some(place) = Place::new() else { return };
    // A terminal of Python's; what is typed is there before the question.
    let spawn = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    for (typed, is_tried) in [("y\n", true), ("\n", false)] {
        let trace = fixture("hf_generate.gpuwhy");
        let plain = place.command(&[], &[]);
        let mut terminal = Command::new("python3");
        terminal.args(["-c", spawn, GPUWHY, "try", "--pairs=2", "--from"]).arg(trace).args(["--", "true"]);
        terminal.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?)))).env_remove("PYTHONPATH");
        let answer = place.path().join("answer");
        fs::write(&answer, typed).unwrap();
        let output = terminal.stdin(fs::File::open(answer).unwrap()).output().unwrap();
        let said = text(&output);
        assert!(said.contains("also try attention_build, compile, which change last digits? [y/N]"), "{said}");
        assert_eq!(
            said.contains("attention_build needs --allow") || said.contains("attention_build at"),
            !is_tried,
            "{said}"
        );
        assert_eq!(said.contains("1 attention_build"), is_tried, "{said}");
    }
}

#[test]
fn the_lines_to_keep_are_shown_and_written_as_a_diff() {
    let Some(place) = Place::new() else { return };
    let git = |arguments: &[&str]| Command::new("git").args(arguments).current_dir(place.path()).output();
    if git(&["init", "--quiet"]).is_err() {
        println!("SKIPPED: no git");
        return;
    }
    let options = ["--pairs=2", "--remedy", "fused_optimizer", "--remedy", "pinned", "--write-patch", "keep.diff"];
    let said = text(&place.tried(&options, TRAIN));
    let line = "optimizer = torch.optim.AdamW((parameter for parameter in [torch.nn.Parameter()]), fused=True)";
    assert!(said.contains(&format!("train.py:3: {line}\n")), "{said}");
    assert!(said.contains("\n2 pinned, on top of 1 ") && said.contains("x in all"), "{said}");
    assert_eq!(fs::read_to_string(place.path().join("train.py")).unwrap(), TRAIN);
    let check = git(&["apply", "--check", "keep.diff"]).unwrap();
    assert!(check.status.success(), "{check:?}");
    assert!(git(&["apply", "keep.diff"]).unwrap().status.success());
    let kept = fs::read_to_string(place.path().join("train.py")).unwrap();
    assert!(kept.contains(line) && kept.contains("pin_memory=True"), "{kept}");
    // What is kept is no change any more.
    let document = place.json(&["--remedy", "fused_optimizer"], &kept);
    assert_eq!((outcomes(&document), &document["patch"]), (vec![("fused_optimizer", "not_applicable")], &Value::Null));
}

#[test]
fn without_git_the_answer_is_there_and_no_diff() {
    let Some((place, python)) = stage() else { return };
    fs::write(place.path().join("train.py"), TRAIN).unwrap();
    let options = ["--pairs=2", "--remedy", "pinned", "--write-patch", "keep.diff"];
    let executable = Command::new(python).args(["-c", "import sys; print(sys.executable, end='')"]).output().unwrap();
    let mut command = place.command(&options, &[&text(&executable), "train.py"]);
    let output = command.env("PATH", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(text(&output).contains("To keep: train.py:4: ") && !place.path().join("keep.diff").exists(), "{output:?}");
    let words = "keep.diff is not written: --patch and --write-patch need git, which cannot be started";
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
}

#[test]
fn a_file_that_is_there_is_not_overwritten() {
    let Some(place) = Place::new() else { return };
    fs::write(place.path().join("keep.diff"), "mine").unwrap();
    let options = ["--remedy", "pinned", "--write-patch", "keep.diff"];
    let output = place.command(&options, &["true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("keep.diff: this file is there already"), "{output:?}");
    assert_eq!(fs::read_to_string(place.path().join("keep.diff")).unwrap(), "mine");
}

#[test]
fn a_diff_that_cannot_be_written_is_said_before_the_runs_or_beside_the_answer() {
    let Some(place) = Place::new() else { return };
    fs::write(place.path().join("file"), "").unwrap();
    for (file, why) in [("none/keep.diff", "No such file or directory"), ("file/keep.diff", "Not a directory")] {
        let output = place.command(&["--write-patch", file], &["touch", "started"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(&format!("--write-patch {file}: its folder: {why}")), "{}", stderr(&output));
    }
    for change in [["--patch", "fix.diff"], ["--against", "true"], ["--env", "A=1"]] {
        let options = [&change[..], &["--write-patch", "keep.diff"]].concat();
        let output = place.command(&options, &["touch", "started"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("cannot be used with"), "{}", stderr(&output));
    }
    assert!(!place.path().join("started").exists());
    // The program makes the file itself.
    let program = format!("open('keep.diff', 'w').write('its own')\n{TRAIN}");
    let options = ["--json", "--pairs=2", "--remedy", "pinned", "--write-patch", "keep.diff"];
    let output = place.tried(&options, &program);
    assert_eq!(outcomes(&document(&output)), [("pinned", "helps")]);
    assert!(stderr(&output).contains("keep.diff is not written: "), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(place.path().join("keep.diff")).unwrap(), "its own");
}
