//! Stored kernel durations for comparison: a file next to the tests.
//!
//! The file is replaced atomically, so a reader never sees a partial one. Two processes that update it at
//! once can overwrite each other's changes.

use std::env;
use std::path::{Path, PathBuf};
use std::{fs, io};

use gpuwhy_report::text_format::duration;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::run_rules;

/// Variable that requests an update of the file instead of a comparison.
const BLESS: &str = "GPUWHY_BLESS";
const VERSION: u32 = 1;

/// Tests of a process run in parallel and update the same file.
static RENEWING: Mutex<()> = Mutex::new(());

/// A file of medians (of modules: means) next to the tests, readable and kept under version control, and the case that
/// a test covers.
///
/// With `GPUWHY_BLESS=1` in the environment, the measured times go into the file and no check fails. Otherwise they
/// are compared with the file, and a kernel without an entry fails.
///
/// ```json
/// {
///   "gpuwhy_baseline": 1,
///   "kernels": [
///     { "case": "4096x4096", "kernel": "kernel softmax", "device": "NVIDIA H200", "median_ns": 2150, "launches": 100 }
///   ]
/// }
/// ```
/// The key of an entry is what has the time (`kernel` or `module` with the name that the test gives, or `step`), the
/// case, and the device, since times of one device do not apply to another. Tests of one process may share a file, and
/// so may several processes that only read it.
///
/// ```no_run
/// # fn softmax(size: u64) {}
/// use gpuwhy::{Baseline, Expectations, measure};
///
/// let baseline = Baseline::new("tests/baseline.json");
/// for size in [1024, 4096] {
///     let baseline = baseline.case(format!("{size}x{size}"));
///     let (_, report) = measure(|_| softmax(size))?;
///     Expectations::new().kernel_within("softmax", 1.10, &baseline).assert(&report);
/// }
/// # Ok::<(), gpuwhy::SessionError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    path: PathBuf,
    case: String,
    renew: bool,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct BaselineFile {
    gpuwhy_baseline: u32,
    kernels: Vec<BaselineEntry>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct BaselineEntry {
    case: String,
    kernel: String,
    device: String,
    median_ns: u64,
    launches: u64,
    /// Medians of several runs; empty for one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    runs_ns: Vec<u64>,
}

/// Limit for a kernel, module or step, derived from a baseline.
#[derive(Debug)]
pub(crate) struct Limit {
    /// Longest allowed time, nanoseconds.
    pub(crate) nanos: u64,
    /// Stored medians of one or more runs, nanoseconds.
    pub(crate) stored: Vec<u64>,
    /// Derivation of the limit, as text that starts with a space.
    pub(crate) basis: String,
}

impl Baseline {
    /// Baseline in the file at `path`, which need not exist yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), case: String::new(), renew: false }
    }

    /// The same file, for a test that runs the same kernels with different inputs.
    #[must_use]
    pub fn case(&self, case: impl Into<String>) -> Self {
        Self { path: self.path.clone(), case: case.into(), renew: self.renew }
    }

    /// The same file, but updated instead of compared with, as with `GPUWHY_BLESS=1`.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self { renew: true, ..self.clone() }
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the file can be read; it need not exist.
    ///
    /// # Errors
    /// The file cannot be read, or is no baseline.
    pub fn check(&self) -> io::Result<()> {
        self.read().map(drop).map_err(io::Error::other)
    }

    /// Limit for the key `kernel` on `device`: `ratio` times the stored median. `None` when the baseline is updated
    /// with the medians of the runs and the number of `launches` in one.
    pub(crate) fn limit(
        &self,
        kernel: &str,
        device: &str,
        medians_ns: &[u64],
        launches: u64,
        ratio: f64,
    ) -> Result<Option<Limit>, String> {
        let _one_by_one = RENEWING.lock();
        let mut document = self.read()?;
        let known = document
            .kernels
            .iter()
            .position(|entry| (&*entry.case, &*entry.kernel, &*entry.device) == (&*self.case, kernel, device));
        let bless = self.renew || env::var_os(BLESS).is_some_and(|value| !value.is_empty() && value != "0");
        if !bless {
            let Some(at) = known else {
                let case = if self.case.is_empty() { String::new() } else { format!(" in case {:?}", self.case) };
                let path = self.path.display();
                return Err(format!(
                    "{path}: nothing about {kernel:?} on {device}{case}; to store it, run once with {BLESS}=1, or \
                     pass --bless to `gpuwhy check`"
                ));
            };
            let BaselineEntry { median_ns, runs_ns, .. } = &document.kernels[at];
            let stored = if runs_ns.is_empty() { vec![*median_ns] } else { runs_ns.clone() };
            let basis = format!(" ({ratio} x {} of {})", duration(*median_ns), self.path.display());
            return Ok(Some(Limit { nanos: (*median_ns as f64 * ratio) as u64, stored, basis }));
        }
        let entry = BaselineEntry {
            case: self.case.clone(),
            kernel: kernel.to_owned(),
            device: device.to_owned(),
            median_ns: run_rules::median(medians_ns),
            launches,
            runs_ns: if medians_ns.len() > 1 { medians_ns.to_vec() } else { Vec::new() },
        };
        match known {
            Some(at) => document.kernels[at] = entry,
            None => document.kernels.push(entry),
        }
        document.kernels.sort_by(|a, b| (&a.kernel, &a.case, &a.device).cmp(&(&b.kernel, &b.case, &b.device)));
        self.write(&document)?;
        Ok(None)
    }

    fn read(&self) -> Result<BaselineFile, String> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(BaselineFile { gpuwhy_baseline: VERSION, kernels: Vec::new() });
            }
            Err(error) => return Err(self.error(&error)),
        };
        let document: BaselineFile = serde_json::from_str(&text).map_err(|error| self.error(&error))?;
        if document.gpuwhy_baseline != VERSION {
            return Err(self.error(&format!("version {}, known is {VERSION}", document.gpuwhy_baseline)));
        }
        Ok(document)
    }

    fn write(&self, document: &BaselineFile) -> Result<(), String> {
        let mut text = serde_json::to_string_pretty(document).map_err(|error| self.error(&error))?;
        text.push('\n');
        let mut beside = self.path.clone().into_os_string();
        beside.push(format!(".{}", std::process::id()));
        fs::write(&beside, text).and_then(|()| fs::rename(&beside, &self.path)).map_err(|error| self.error(&error))
    }

    fn error(&self, error: &dyn std::fmt::Display) -> String {
        format!("{}: {error}", self.path.display())
    }
}
