//! What the command says about itself, and how it treats a command line that it does not understand.

use std::process::{Command, Output};

fn gpuwhy(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpuwhy")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn help_has_examples_and_names_every_exit_code() {
    let cases: [(&[&str], &[&str]); 6] = [
        (&["--help"], &["gpuwhy run -- ", "gpuwhy doctor", "gpuwhy demo", "--verbose", "--quiet"]),
        (&["explain", "--help"], &["  0  ", "  2  "]),
        (&["run", "--help"], &["  125  ", "  126  ", "  127  ", "%q{VAR}"]),
        (&["report", "--help"], &["  0  ", "  1  ", "  2  "]),
        (&["doctor", "--help"], &["  0  ", "  1  "]),
        (&["demo", "--help"], &["  0  ", "  1  "]),
    ];
    for (arguments, wanted) in cases {
        let output = gpuwhy(arguments);
        assert_eq!(output.status.code(), Some(0));
        let help = stdout(&output);
        assert!(help.contains("EXAMPLES:"), "{arguments:?}: {help}");
        for text in wanted {
            assert!(help.contains(text), "{arguments:?} lacks {text:?}: {help}");
        }
    }
}

#[test]
fn the_subcommand_for_the_child_process_is_not_advertised() {
    assert!(!stdout(&gpuwhy(&["--help"])).contains("probe"));
}

#[test]
fn the_version_is_that_of_the_package() {
    let output = gpuwhy(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    let version = stdout(&output);
    assert!(version.starts_with(concat!("gpuwhy ", env!("CARGO_PKG_VERSION"))), "{version}");
}

#[test]
fn a_command_line_that_makes_no_sense_gives_2() {
    for arguments in
        [&[][..], &["fly"], &["report"], &["doctor", "--no-such-option"], &["report", "--top", "many", "x"]]
    {
        let output = gpuwhy(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
        assert!(!output.stderr.is_empty());
    }
}
