//! How long kernels took when somebody last looked: a file beside the tests.
//!
//! Replaced as a whole, so that a reader never sees half of it; two processes that renew it at once can undo each
//! other.

use std::env;
use std::path::{Path, PathBuf};
use std::{fs, io};

use gpuwhy_report::text_format::duration;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Renews the file instead of judging by it.
const BLESS: &str = "GPUWHY_BLESS";
const VERSION: u32 = 1;

/// Tests of a process run side by side and renew the same file.
static RENEWING: Mutex<()> = Mutex::new(());

/// A file of medians beside the tests, to be read by people and kept with the code, and the case that a test is about.
///
/// With `GPUWHY_BLESS=1` in the environment what is measured goes into the file and nothing fails; otherwise it is
/// judged by the file, and what is not in there fails.
///
/// ```json
/// {
///   "gpuwhy_baseline": 1,
///   "kernels": [
///     { "case": "4096x4096", "kernel": "softmax", "device": "NVIDIA H200", "median_ns": 21504, "launches": 100 }
///   ]
/// }
/// ```
/// A kernel is known by the part of its name that the test gives, by the case, and by the device, since times of one
/// device say nothing of another. Tests of one process may share a file, and so
/// may several that only read it.
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
struct Document {
    gpuwhy_baseline: u32,
    kernels: Vec<Entry>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    case: String,
    kernel: String,
    device: String,
    median_ns: u64,
    launches: u64,
}

/// What a kernel or a step may take by a baseline.
#[derive(Debug)]
pub(crate) struct Limit {
    /// At most so many nanoseconds.
    pub(crate) nanos: u64,
    /// The stored median, nanoseconds.
    pub(crate) stored: u64,
    /// What the limit rests on, in words that begin with a blank.
    pub(crate) basis: String,
}

impl Baseline {
    /// The file at `path`, which need not exist yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), case: String::new(), renew: false }
    }

    /// The same file, for a test that runs the same kernels with other inputs.
    #[must_use]
    pub fn case(&self, case: impl Into<String>) -> Self {
        Self { path: self.path.clone(), case: case.into(), renew: self.renew }
    }

    /// The same file, renewed as with `GPUWHY_BLESS=1` instead of judged by.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self { renew: true, ..self.clone() }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What `kernel` may take at most on `device`: `ratio` times the stored median. `None` when the baseline is being
    /// renewed, with `median_ns` of so many `launches`.
    pub(crate) fn limit(
        &self,
        kernel: &str,
        device: &str,
        median_ns: u64,
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
            let stored = document.kernels[at].median_ns;
            let basis = format!(" ({ratio} x {} of {})", duration(stored), self.path.display());
            return Ok(Some(Limit { nanos: (stored as f64 * ratio) as u64, stored, basis }));
        }
        let entry = Entry {
            case: self.case.clone(),
            kernel: kernel.to_owned(),
            device: device.to_owned(),
            median_ns,
            launches,
        };
        match known {
            Some(at) => document.kernels[at] = entry,
            None => document.kernels.push(entry),
        }
        document.kernels.sort_by(|a, b| (&a.kernel, &a.case, &a.device).cmp(&(&b.kernel, &b.case, &b.device)));
        self.write(&document)?;
        Ok(None)
    }

    fn read(&self) -> Result<Document, String> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Document { gpuwhy_baseline: VERSION, kernels: Vec::new() });
            }
            Err(error) => return Err(self.error(&error)),
        };
        let document: Document = serde_json::from_str(&text).map_err(|error| self.error(&error))?;
        if document.gpuwhy_baseline != VERSION {
            return Err(self.error(&format!("version {}, known is {VERSION}", document.gpuwhy_baseline)));
        }
        Ok(document)
    }

    fn write(&self, document: &Document) -> Result<(), String> {
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
