//! The public interface of the crate, item by item, against `gpuprof.txt` beside this file: a change of it is seen in
//! review, and is a version.
//!
//! rustdoc's JSON knows it; the released toolchain writes that with `RUSTC_BOOTSTRAP=1`. What the crate re-exports is one
//! line each. After an intended change: `GPUPROF_BLESS=1 cargo test --test api`.

mod render;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use render::Api;
use serde_json::Value;

/// Versions of rustdoc's JSON that `render` reads alike.
const KNOWN_FORMATS: std::ops::RangeInclusive<u64> = 45..=57;

fn rustdoc(root: &Path) -> Value {
    // A folder of its own, beside the one that cargo holds while tests run; dependencies are only checked there.
    let target = PathBuf::from(env!("CARGO_BIN_EXE_gpuprof")).ancestors().nth(2).unwrap().join("api");
    let output = Command::new(env!("CARGO"))
        .current_dir(root)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTDOCFLAGS")
        .args(["rustdoc", "--quiet", "--lib", "--no-default-features", "--", "-Z", "unstable-options"])
        .args(["--output-format", "json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&fs::read(target.join("doc/gpuprof.json")).unwrap()).unwrap()
}

#[test]
fn the_public_interface_is_the_one_that_was_agreed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let json = rustdoc(root);
    let format = json["format_version"].as_u64().unwrap();
    if !KNOWN_FORMATS.contains(&format) {
        println!("SKIPPED: this toolchain writes version {format} of rustdoc's JSON, known are {KNOWN_FORMATS:?}");
        return;
    }
    let lines: BTreeSet<String> = Api::new(&json).lines();
    assert!(lines.len() > 50, "{lines:#?}");
    let found = lines.into_iter().collect::<Vec<_>>().join("\n") + "\n";
    let file = root.join("tests/api/gpuprof.txt");
    if std::env::var_os("GPUPROF_BLESS").is_some() {
        fs::write(&file, &found).unwrap();
    }
    let agreed = fs::read_to_string(&file).unwrap_or_default();
    let only = |these: &str, others: &str| {
        let others: BTreeSet<&str> = others.lines().collect();
        these.lines().filter(|line| !others.contains(line)).map(|line| format!("  {line}\n")).collect::<String>()
    };
    let (gone, new) = (only(&agreed, &found), only(&found, &agreed));
    assert!(agreed == found, "gone:\n{gone}new:\n{new}if this is meant, run with GPUPROF_BLESS=1");
}
