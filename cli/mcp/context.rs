//! What tools share: the folder, the reports that were made, and the call in progress.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io};

use anyhow::{Context as _, Result, anyhow, bail};
use gpuwhy::Report;
use gpuwhy_import::{Input, Request};
use gpuwhy_report::run::operators::OperatorsBy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use super::folder::Folder;
use crate::{history, report};

/// Reports that are kept.
const KEPT: usize = 8;
/// Longest time of a call; clients give up earlier.
const LONGEST_CALL: Duration = Duration::from_secs(300);

/// What tools share.
#[derive(Debug)]
pub struct Context {
    pub folder: Folder,
    /// What the user has allowed.
    pub allowed: Vec<Permission>,
    /// True in a process for one call.
    pub is_worker: bool,
    pub call: Call,
    /// Reports with the files that they were made from, the last used one at the end.
    reports: Vec<(Version, Report)>,
}

/// What a tool may only do if the user has allowed it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Permission {
    /// Start and stop captures.
    Control,
    /// Run commands.
    Run,
}

impl Permission {
    /// The option that gives it.
    pub fn option(self) -> &'static str {
        match self {
            Self::Control => "--allow-control",
            Self::Run => "--allow-run",
        }
    }
}

/// A file as it was when it was read.
#[derive(Clone, Debug, PartialEq)]
struct Version {
    path: PathBuf,
    capture: Option<u32>,
    bytes: u64,
    modified: Option<SystemTime>,
}

/// The call in progress.
#[derive(Clone, Debug)]
pub struct Call {
    cancelled: Arc<AtomicBool>,
    deadline: Instant,
}

impl Call {
    pub fn begun(cancelled: &Arc<AtomicBool>) -> Self {
        Self { cancelled: Arc::clone(cancelled), deadline: Instant::now() + LONGEST_CALL }
    }

    /// `Break` once the client has cancelled the call or is gone, or it has taken too long.
    pub fn state(&self) -> ControlFlow<()> {
        let is_over = self.cancelled.load(Ordering::Relaxed) || Instant::now() >= self.deadline || is_unread();
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Lets the call take this time instead.
    pub fn lasts(&mut self, limit: Duration) {
        self.deadline = Instant::now() + limit;
    }

    /// Lets the call end earlier.
    pub fn within(&mut self, limit: Duration) {
        self.deadline = self.deadline.min(Instant::now() + limit);
    }
}

/// True if nobody reads stdout any more.
fn is_unread() -> bool {
    let stdout = io::stdout();
    let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
    let polled = poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    polled.is_ok() && asked[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

impl Context {
    pub fn new(folder: Folder, allowed: Vec<Permission>) -> Self {
        Self { folder, allowed, is_worker: false, call: Call::begun(&Arc::default()), reports: Vec::new() }
    }

    /// The report of a trace, with the gains that `gpuwhy try` has measured since. Fails when `name` is outside of the
    /// folder, no trace, or has no such capture.
    pub fn report(&mut self, name: &str, capture: Option<u32>) -> Result<Report> {
        let path = self.folder.resolved(name)?;
        let metadata = fs::metadata(&path).with_context(|| name.to_owned())?;
        let version = Version { path, capture, bytes: metadata.len(), modified: metadata.modified().ok() };
        let entry = match self.reports.iter().position(|(of, _)| *of == version) {
            Some(place) => self.reports.remove(place),
            None => {
                let report = read(&version.path, capture, &self.call)?;
                // Another version of the file is out of date.
                self.reports.retain(|(of, _)| (&of.path, of.capture) != (&version.path, capture));
                (version, report)
            }
        };
        let mut report = entry.1.clone();
        self.reports.push(entry);
        if self.reports.len() > KEPT {
            self.reports.remove(0);
        }
        report.apply_measured(&history::measured());
        Ok(report)
    }

    /// Like [`report`](Self::report), with the documented JSON of the report.
    pub fn document(&mut self, name: &str, capture: Option<u32>) -> Result<(Report, Value)> {
        let report = self.report(name, capture)?;
        let document = serde_json::to_value(&report)?;
        Ok((report, document))
    }
}

fn read(path: &Path, capture: Option<u32>, call: &Call) -> Result<Report> {
    let request = Request { capture, operators: Some(OperatorsBy::Shapes), ..Request::default() };
    let made = Input::open(path).and_then(|input| input.report(request, &mut |_, _| call.state()));
    match made {
        Ok(report) => match capture.filter(|_| report.captures.shown != capture) {
            Some(wished) => bail!(report::no_capture(&report, wished, path)),
            None => Ok(report),
        },
        Err(error) if error.is_interrupted() => Err(anyhow!("{error}: reading it took too long, or was cancelled")),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_kept_until_its_file_changes() {
        let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces");
        let place = tempfile::tempdir().unwrap();
        let trace = place.path().join("a.gpuwhy");
        fs::copy(traces.join("mon_d2d_clones.gpuwhy"), &trace).unwrap();
        let mut context = Context::new(Folder::open(place.path()).unwrap(), Vec::new());
        let first = context.report("a.gpuwhy", None).unwrap();
        // A call that is over could not read the file again.
        context.call.deadline = Instant::now();
        assert_eq!(context.report("./a.gpuwhy", None).unwrap().process, first.process);
        fs::copy(traces.join("graph_inference.gpuwhy"), &trace).unwrap();
        let error = context.report("a.gpuwhy", None).unwrap_err().to_string();
        assert!(error.contains("a.gpuwhy") && error.contains("too long"), "{error}");
        context.call = Call::begun(&Arc::default());
        assert_ne!(context.report("a.gpuwhy", None).unwrap().process, first.process);
        assert_eq!(context.reports.len(), 1, "the report of the former file is gone");
        let error = context.report("a.gpuwhy", Some(3)).unwrap_err().to_string();
        assert!(error.contains("there is no capture 3"), "{error}");
        for number in 0..=KEPT {
            let name = format!("{number}.gpuwhy");
            fs::copy(&trace, place.path().join(&name)).unwrap();
            context.report(&name, None).unwrap();
        }
        assert_eq!(context.reports.len(), KEPT);
    }
}
