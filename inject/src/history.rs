//! Writes a line about this run for `gpuwhy check --history`, if `GPUWHY_HISTORY` is set.
//!
//! It is written once the report is available, on a separate thread: a file system that hangs delays the end
//! of the program by at most a second.

use std::path::Path;
use std::time::Duration;

use crossbeam_channel::bounded;
use gpuwhy_report::history::{BEGINNING, LARGEST_FILE, Run, may_grow};

use crate::config;
use crate::shared::RunOutcome;
use crate::sys::files;
use crate::worker::Worker;

/// Maximum wait for the file, unless the exit timeout is shorter.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Adds a line about the run. Errors are logged.
pub fn add(path: &Path, outcome: &RunOutcome, exit_timeout: Duration) {
    let trace = outcome.trace.as_deref().map(|trace| std::path::absolute(trace).unwrap_or_else(|_| trace.to_owned()));
    let trace = trace.map(|trace| trace.to_string_lossy().into_owned());
    let Some(run) = Run::of(&outcome.report, trace.as_deref()) else { return };
    let said = |error: &str| {
        let path = path.display();
        tracing::warn!("{path}: {error}; this run is not in the history ({}=off omits this message)", config::HISTORY);
    };
    let worker = match Worker::start("gpuwhy-history") {
        Ok(worker) => worker,
        Err(error) => return said(&format!("cannot start a thread: {error}")),
    };
    let (give, done) = bounded(1);
    let (line, file) = (run.line(), path.to_owned());
    worker.work(move || {
        let _ = give.try_send(files::append(&file, &line, LARGEST_FILE, (BEGINNING, may_grow)));
    });
    match done.recv_timeout(LONGEST_WAIT.min(exit_timeout)) {
        Ok(Ok(())) => tracing::debug!("{}: a line about this run was added", path.display()),
        Ok(Err(error)) => said(&error.to_string()),
        Err(_) => said("the file system does not respond"),
    }
}
