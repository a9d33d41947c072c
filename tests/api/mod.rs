//! The public interface, item by item: that of the crate against `gpuwhy.txt` next to this file, and the data
//! of a report and of a comparison against `report.txt`. This makes interface changes visible in review; they
//! need a new version.
//!
//! The interface comes from rustdoc's JSON, which the released toolchain writes with `RUSTC_BOOTSTRAP=1`.
//! Each re-export is one line. After an intended change: `GPUWHY_BLESS=1 cargo test --test api`.

mod render;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use render::Api;
use serde_json::Value;

/// Versions of rustdoc's JSON that `render` can read.
const KNOWN_FORMATS: std::ops::RangeInclusive<u64> = 45..=57;

/// rustdoc's JSON for a package, or `None` if this toolchain's JSON version is unknown.
fn rustdoc(package: &str, options: &[&str]) -> Option<Value> {
    // A separate folder, because cargo holds a lock on its own while tests run; dependencies are only checked
    // there.
    let target = PathBuf::from(env!("CARGO_BIN_EXE_gpuwhy")).ancestors().nth(2).unwrap().join("api");
    let output = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTDOCFLAGS")
        .args(["rustdoc", "--quiet", "--lib", "--package", package])
        .args(options)
        .args(["--", "-Z", "unstable-options", "--output-format", "json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = target.join(format!("doc/{}.json", package.replace('-', "_")));
    let json: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let format = json["format_version"].as_u64().unwrap();
    if !KNOWN_FORMATS.contains(&format) {
        println!("SKIPPED: this toolchain writes version {format} of rustdoc's JSON, known are {KNOWN_FORMATS:?}");
        return None;
    }
    Some(json)
}

/// Checks that the lines are those of the file.
fn agreed(lines: BTreeSet<String>, file: &str) {
    assert!(lines.len() > 50, "{lines:#?}");
    let found = lines.into_iter().collect::<Vec<_>>().join("\n") + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api").join(file);
    if std::env::var_os("GPUWHY_BLESS").is_some() {
        fs::write(&file, &found).unwrap();
    }
    let agreed = fs::read_to_string(&file).unwrap_or_default();
    let only = |these: &str, others: &str| {
        let others: BTreeSet<&str> = others.lines().collect();
        these.lines().filter(|line| !others.contains(line)).map(|line| format!("  {line}\n")).collect::<String>()
    };
    let (gone, new) = (only(&agreed, &found), only(&found, &agreed));
    assert!(agreed == found, "gone:\n{gone}new:\n{new}if this is meant, run with GPUWHY_BLESS=1");
}

#[test]
fn the_public_interface_is_the_one_that_was_agreed() {
    let Some(json) = rustdoc("gpuwhy", &["--no-default-features"]) else { return };
    agreed(Api::new(&json).lines(), "gpuwhy.txt");
}

#[test]
fn what_a_report_and_a_comparison_hold_is_what_was_agreed() {
    // The paths of their definitions, by which rustdoc knows them.
    let roots = [
        "gpuwhy_report::run::model::Report",
        "gpuwhy_compare::diff::model::Diff",
        "gpuwhy_compare::diff::model::NotComparable",
    ];
    let (mut names, mut lines) = (BTreeSet::from(roots.map(str::to_owned)), BTreeSet::new());
    // From the top down: each package adds the types used from those below it.
    for package in ["gpuwhy-compare", "gpuwhy-report", "profiler-core", "gpuwhy-trace"] {
        let Some(json) = rustdoc(package, &["--features", "serde"]) else { return };
        let api = Api::reached_from(&json, &names);
        lines.extend(api.lines());
        names.extend(api.beyond);
    }
    agreed(lines, "report.txt");
}
