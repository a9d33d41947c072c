//! Help texts of the command, and its reaction to an invalid command line.

use std::process::{Command, Output};

fn gpuwhy(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpuwhy")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn help_has_examples_and_names_every_exit_code() {
    let cases: [(&[&str], &[&str]); 5] = [
        (&["--help"], &["gpuwhy run -- ", "gpuwhy doctor", "gpuwhy demo", "--verbose", "--quiet"]),
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
fn every_verb_has_a_manual_page_and_completions() {
    let folder = tempfile::tempdir().unwrap();
    let output = gpuwhy(&["completions", "--packages", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let listed = stdout(&gpuwhy(&["--help"]));
    let verbs = listed.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let verbs: Vec<_> =
        verbs.filter_map(|line| line.split_whitespace().next()).filter(|verb| *verb != "help").collect();
    assert!(verbs.len() > 13, "{listed}");
    for verb in verbs {
        let page = read(&format!("man1/gpuwhy-{verb}.1"));
        assert!(page.contains(".SH OPTIONS") && page.contains("EXIT CODES:"), "{verb}: {page}");
        for shell in ["gpuwhy.bash", "_gpuwhy", "gpuwhy.fish"] {
            assert!(read(&format!("completions/{shell}")).contains(verb), "{shell} lacks {verb}");
        }
    }
    assert!(!folder.path().join("man1/gpuwhy-probe.1").exists(), "a hidden verb has no page");
    for (shell, file) in [("bash", "gpuwhy.bash"), ("zsh", "_gpuwhy"), ("fish", "gpuwhy.fish")] {
        assert_eq!(stdout(&gpuwhy(&["completions", shell])), read(&format!("completions/{file}")));
    }
    let output = gpuwhy(&["completions", "--packages", "/proc/nowhere"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to /proc/nowhere"), "{output:?}");
}

#[test]
fn paragraphs_of_help_fill_their_lines() {
    let listed = stdout(&gpuwhy(&["--help"]));
    let verbs = listed.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let verbs: Vec<_> = verbs.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(verbs.len() > 13, "{listed}");
    for verb in verbs {
        let help = stdout(&gpuwhy(&[verb, "--help"]));
        let lines: Vec<_> = help.lines().collect();
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        for pair in lines.windows(2).filter(|pair| is_prose(pair[0]) && is_prose(pair[1])) {
            let next = pair[1].split_whitespace().next().unwrap();
            let width = pair[0].chars().count() + 1 + next.chars().count();
            assert!(width > 100, "{verb}: torn before {next:?}: {}", pair[0]);
        }
    }
}

#[test]
fn the_subcommand_for_the_child_process_is_not_advertised() {
    assert!(!stdout(&gpuwhy(&["--help"])).contains("probe"));
}

#[test]
fn verbs_of_nsys_lead_to_the_query_of_that_name() {
    for verb in ["stats", "analyze"] {
        let output = gpuwhy(&[verb, "trace.gpuwhy"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("'query {verb}'")), "{output:?}");
    }
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
