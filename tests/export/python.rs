//! Third-party readers from the Python package index, each in a separate environment below the target folder.
//!
//! An environment is created once from a pinned `requirements.txt`. Without Python, venv or the index there
//! is none; the tests then print `SKIPPED` and the reason.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::support::stderr;

/// Runs `tests/export/FOLDER/SCRIPT` with the packages in the `requirements.txt` next to it. Returns the JSON
/// that it prints, or prints the reason and returns `None` when the readers are unavailable here.
///
/// # Panics
///
/// When the script fails.
pub fn answered(folder: &str, script: &str, arguments: &[&dyn AsRef<OsStr>]) -> Option<Value> {
    static MADE: Mutex<BTreeMap<String, Result<PathBuf, String>>> = Mutex::new(BTreeMap::new());
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/export").join(folder);
    let python = MADE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(folder.to_owned())
        .or_insert_with(|| environment(folder, &place))
        .clone();
    match python {
        Err(reason) => {
            println!("SKIPPED: the readers of {folder} cannot be installed: {reason}");
            None
        }
        Ok(python) => {
            let arguments = arguments.iter().map(AsRef::as_ref);
            let output = Command::new(python).arg(place.join(script)).args(arguments).output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
            Some(serde_json::from_slice(&output.stdout).unwrap())
        }
    }
}

fn environment(name: &str, place: &Path) -> Result<PathBuf, String> {
    let requirements = place.join("requirements.txt");
    let wanted = fs::read_to_string(&requirements).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (python, made) = (folder.join("bin/python"), folder.join("made-from.txt"));
    if fs::read_to_string(&made).is_ok_and(|made| made == wanted) {
        return Ok(python);
    }
    done(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut install = Command::new(&python);
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--retries",
        "1",
        "-r",
    ]);
    done(install.arg(&requirements))?;
    fs::write(made, wanted).unwrap();
    Ok(python)
}

fn done(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let message = stderr(&output);
    if output.status.success() { Ok(()) } else { Err(message.lines().last().unwrap_or("failed").to_owned()) }
}
