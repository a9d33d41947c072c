//! Effects of `-v`, `-vv` and `-q` on stderr.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn gpuwhy(folder: &Path, arguments: &[&str]) -> Command {
    let mut gpuwhy = Command::new(env!("CARGO_BIN_EXE_gpuwhy"));
    gpuwhy.args(arguments).current_dir(folder).env("GPUWHY_CONTROL", folder.join("gpuwhy")).stdin(Stdio::null());
    gpuwhy
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Creates the folder of control sockets, with a socket in it.
fn socket(folder: &Path, name: &str) -> UnixListener {
    let sockets = folder.join("gpuwhy");
    fs::create_dir(&sockets).unwrap();
    fs::set_permissions(&sockets, Permissions::from_mode(0o700)).unwrap();
    UnixListener::bind(sockets.join(name)).unwrap()
}

#[test]
fn events_are_shown_on_demand_only() {
    let folder = tempfile::tempdir().unwrap();
    drop(socket(folder.path(), "4711.sock"));
    let said = stderr(&gpuwhy(folder.path(), &["top", "--once", "-v"]).output().unwrap());
    assert!(said.contains("INFO") && said.contains("4711.sock") && said.contains("removed=true"), "{said}");
    assert!(!said.contains("DEBUG"), "{said}");
    assert!(!folder.path().join("gpuwhy/4711.sock").exists());
    let folder = tempfile::tempdir().unwrap();
    assert!(stderr(&gpuwhy(folder.path(), &["-vv", "top", "--once"]).output().unwrap()).contains("DEBUG"));
    for quiet in [&["top", "--once"][..], &["top", "--once", "-q"]] {
        assert_eq!(stderr(&gpuwhy(folder.path(), quiet).output().unwrap()), "");
    }
    assert_eq!(gpuwhy(folder.path(), &["top", "-q", "-v"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn events_without_a_stderr_are_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" -vv top --once 2>&-", env!("CARGO_BIN_EXE_gpuwhy")]);
    let output = shell.current_dir(folder.path()).env("GPUWHY_CONTROL", folder.path().join("gpuwhy")).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn quiet_leaves_errors() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x.gpuwhy"), "no trace").unwrap();
    let output = gpuwhy(folder.path(), &["-q", "report", "x.gpuwhy"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("x.gpuwhy"), "{}", stderr(&output));
}
