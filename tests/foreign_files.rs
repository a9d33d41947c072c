//! An existing file that is not ours is never written to, no matter which variable or option names it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{GPUWHY, Stage, built, stderr};

const TEXT: &str = "# A project\n\nRead me.\n";

/// A program with these variables, or `gpuwhy` with these arguments; `FILE` is the file, `TRACE` a trace.
enum Way {
    Variable(&'static str),
    Run(&'static str),
    Command(&'static [&'static str]),
}

/// Ways to name the file, each with a part of the message.
const WAYS: &[(Way, &str)] = &[
    (Way::Variable("GPUWHY_HISTORY"), "holds something else, so nothing is added to it"),
    (Way::Run("--history"), "holds something else, so nothing is added to it"),
    (Way::Variable("GPUWHY_OUTPUT"), "trace: "),
    (Way::Run("--output"), "trace: "),
    (Way::Variable("GPUWHY_RAW_RECORDING"), "GPUWHY_RAW_RECORDING: "),
    (Way::Command(&["export", "--to", "json", "TRACE", "-o", "FILE"]), "exists"),
    (Way::Command(&["export", "--to", "parquet", "TRACE", "-o", "FILE"]), ""),
    (Way::Command(&["export", "--to", "gpuwhy", "TRACE", "-o", "FILE"]), "exists"),
    (Way::Command(&["report", "--html", "FILE", "TRACE"]), "exists"),
    (Way::Command(&["diff", "--html", "FILE", "TRACE", "TRACE"]), "exists"),
    (Way::Command(&["check", "--baseline", "FILE", "--bless", "--step-within", "1.5", "TRACE"]), "README.md"),
    (Way::Command(&["exporter", "--textfile", "FILE"]), ""),
    (Way::Command(&["lake", "add", "--to", "FILE", "TRACE"]), ""),
    (Way::Command(&["demo", "--fast", "-o", "FILE"]), "cannot make this folder"),
    (Way::Command(&["completions", "--packages", "FILE"]), "cannot write to"),
];

fn done(stage: &Stage, way: &Way, file: &Path, trace: &Path) -> Output {
    let mut command = match way {
        Way::Variable(name) => {
            let mut host = stage.host("mlp");
            host.env(name, file).env("GPUWHY_REPORT", if *name == "GPUWHY_OUTPUT" { "summary" } else { "off" });
            host
        }
        Way::Run(option) => {
            let host = stage.host("mlp");
            let mut command = Command::new(GPUWHY);
            command.args(["run", option]).arg(file).arg("--").arg(host.get_program());
            for (name, value) in host.get_envs().filter(|(name, _)| *name != "CUDA_INJECTION64_PATH") {
                if let Some(value) = value.filter(|_| *name != *"GPUWHY_OUTPUT" && *name != *"NVTX_INJECTION64_PATH") {
                    command.env(name, value);
                }
            }
            command.env("GPUWHY_LIB", built("libprof.so")).env("XDG_STATE_HOME", stage.path("state"));
            command
        }
        Way::Command(words) => {
            let mut command = Command::new(GPUWHY);
            command.args(words.iter().map(|word| match *word {
                "FILE" => file.as_os_str(),
                "TRACE" => trace.as_os_str(),
                word => word.as_ref(),
            }));
            command
        }
    };
    command.current_dir(stage.folder.path()).output().unwrap()
}

#[test]
fn a_file_that_is_not_ours_stays_as_it_is() {
    let stage = Stage::new();
    let trace = stage.path("kept.gpuwhy");
    let output = stage.host("mlp").env("GPUWHY_OUTPUT", &trace).env("GPUWHY_REPORT", "off").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let folder = stage.path("project");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("README.md");
    fs::write(&file, TEXT).unwrap();
    for (way, said) in WAYS {
        let output = done(&stage, way, &file, &trace);
        let message = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
        let name = match way {
            Way::Variable(name) | Way::Run(name) => (*name).to_owned(),
            Way::Command(words) => words.join(" "),
        };
        assert_eq!(fs::read_to_string(&file).unwrap(), TEXT, "{name}: {message}");
        assert!(message.to_lowercase().contains(&said.to_lowercase()), "{name}: {message}");
        // `gpuwhy run` must keep the exit code of its program.
        assert_eq!(output.status.success(), !matches!(way, Way::Command(_)), "{name}: {message}");
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let is_numbered = path.file_name().is_some_and(|name| name == "README-1.md");
            assert!(path == file || is_numbered, "{name} leaves {}", path.display());
            if path != file {
                let shown = path.display().to_string();
                assert!(message.contains(&shown) || message.contains("README-1.md"), "{name}: {message}");
                fs::remove_file(path).unwrap();
            }
        }
    }
}
