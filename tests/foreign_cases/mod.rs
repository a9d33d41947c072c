//! Files of other profilers, as users have them: `testing/fixtures/foreign/README.md` says what each one is.

mod kineto;
mod nsys;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{GPUWHY, stderr};

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/testing/fixtures/foreign")).join(name)
}

/// Values of the plan that the file was made from.
fn truth(name: &str) -> Value {
    let all: Value = serde_json::from_str(&std::fs::read_to_string(file("truth.json")).unwrap()).unwrap();
    all[name].clone()
}

/// `gpuwhy VERB ARGUMENTS FILE`.
fn gpuwhy(verb: &str, arguments: &[&str], name: &str) -> Output {
    Command::new(GPUWHY).arg(verb).args(arguments).arg(file(name)).output().unwrap()
}

/// The report of the default screen, and its exit code.
fn text(name: &str) -> (i32, String) {
    let output = gpuwhy("report", &[], name);
    let said = stderr(&output);
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap() + &said)
}

/// The report as JSON.
fn json(name: &str) -> Value {
    let output = gpuwhy("report", &["--json"], name);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{name}: {error}: {}", stderr(&output)))
}

/// Kernels and the sum of their times are those of the plan.
fn has_its_kernels(name: &str) {
    let (report, truth) = (json(name), truth(name));
    let capture = &report["captures"][0];
    assert_eq!(capture["kernels"], truth["kernels"], "{name}");
}
