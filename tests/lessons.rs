//! The lessons of `examples/` that need no GPU show the expected result; the others print what is missing, or
//! show theirs too. `tests/gpu/run.sh --only lessons` runs them all on a machine with a GPU.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Stage, built, stderr};

fn run(name: &str) -> Output {
    let stage = Stage::new();
    let mut lesson = Command::new(built(&format!("examples/{name}")));
    for (variable, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GPUWHY_")) {
        lesson.env_remove(variable);
    }
    lesson.current_dir(stage.folder.path()).env("TMPDIR", stage.folder.path()).output().unwrap()
}

#[test]
fn a_trace_is_looked_at_without_a_gpu() {
    let output = run("08_trace_without_gpu");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("as promised: the bottleneck is sync"), "{text}");
}

#[test]
fn the_other_lessons_say_what_they_need() {
    let lessons = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names: Vec<_> = std::fs::read_dir(lessons)
        .unwrap()
        .filter_map(|file| file.unwrap().file_name().to_str()?.strip_suffix(".rs").map(str::to_owned))
        .filter(|name| name != "08_trace_without_gpu")
        .collect();
    names.sort();
    assert_eq!(names.len(), 7, "{names:?}");
    for name in names {
        let output = run(&name);
        let text = stderr(&output);
        let helps = ["libcupti", "libcuda", "gpuwhy: "].iter().any(|word| text.contains(word));
        assert!(output.status.success() || output.status.code() == Some(2) && helps, "{name}: {text}");
    }
}
