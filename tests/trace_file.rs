//! The trace as a file of the user: its permissions, its name, and its record of the command line.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::{GPUWHY, Stage, report, stderr};

/// Plays with additional variables; returns stderr without the report.
fn play(stage: &Stage, variables: &[(&str, &str)]) -> String {
    let host = stage.host("multi_stream");
    // A careless umask, and a program with a secret among its arguments.
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 000; exec \"$0\" --print --api-key=SESAME"]).arg(host.get_program());
    shell.current_dir(stage.folder.path()).envs(host.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = shell.env("GPUWHY_REPORT", "off").envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stderr(&output)
}

#[test]
fn only_the_user_can_read_a_trace_and_its_folder_is_made() {
    let stage = Stage::new();
    assert_eq!(play(&stage, &[("GPUWHY_OUTPUT", "run1/a/x.gpuwhy"), ("GPUWHY_RAW_RECORDING", "run2/x.cupti")]), "");
    let mode = |name: &str| std::fs::metadata(stage.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode("run1"), mode("run1/a")], [0o755; 2], "not for others to write to");
    assert_eq!([mode("run1/a/x.gpuwhy"), mode("run2/x.cupti")], [0o600; 2]);
    assert_eq!(report(&stage.path("run1/a/x.gpuwhy")).0, 0);
}

#[test]
fn a_name_with_a_variable_that_is_not_set_is_said_and_not_hidden() {
    let stage = Stage::new();
    let said = play(&stage, &[("GPUWHY_OUTPUT", "%q{NO_SUCH_VARIABLE}.gpuwhy")]);
    assert!(said.contains("GPUWHY_OUTPUT: the variable NO_SUCH_VARIABLE is not set"), "{said}");
    assert!(stage.path("unset.gpuwhy").exists());
    let said = play(&stage, &[("GPUWHY_OUTPUT", "%z.gpuwhy")]);
    assert!(said.contains("GPUWHY_OUTPUT: %z is no placeholder"), "{said}");
    assert!(stage.path("%z.gpuwhy").exists());
}

#[test]
fn a_variable_that_nothing_reads_is_said_once_and_measuring_goes_on() {
    let stage = Stage::new();
    let said = play(&stage, &[("GPUWHY_LIFE", "2s")]);
    assert!(said.contains("did you mean GPUWHY_LIVE?") && said.lines().count() == 1, "{said}");
    assert_eq!(report(&stage.path("trace.gpuwhy")).0, 0);
}

#[test]
fn secrets_are_kept_out_of_the_trace_and_arguments_on_request() {
    for (how, kept) in [("full", 3), ("name", 1), ("off", 0)] {
        let stage = Stage::new();
        play(&stage, &[("GPUWHY_COMMAND_LINE", how)]);
        let trace = stage.path("trace.gpuwhy");
        assert!(!std::fs::read(&trace).unwrap().windows(6).any(|bytes| bytes == b"SESAME"));
        let (code, report) = report(&trace);
        let command = report["process"]["command"].as_array().unwrap_or_else(|| panic!("{report:#}")).clone();
        assert_eq!((code, command.len()), (0, kept), "{how}: {command:?}");
        assert!(kept < 3 || command[2] == "--api-key=***", "{command:?}");
        // Commands that show the trace omit it.
        let text = Command::new(GPUWHY).arg("report").arg(&trace).output().unwrap();
        assert!(
            text.status.success() && String::from_utf8_lossy(&text.stdout).contains("Recorded "),
            "{}",
            stderr(&text)
        );
        let sql = Command::new(GPUWHY).arg("query").arg(&trace).arg("SELECT command FROM processes").output().unwrap();
        assert!(sql.status.success(), "{}", stderr(&sql));
    }
}
