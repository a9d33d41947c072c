//! The HTML pages of `report --html`, `diff --html`, `merge --html` and `view`.
//!
//! What is in a page is library code; here are the order of files and what is said about them.

use std::path::{Path, PathBuf};

use anyhow::Result;
use gpuwhy::Report;
use gpuwhy_export::{Destination, Output, Shape};
use gpuwhy_import::TraceFile;
use gpuwhy_page::{Options, Outcome};
use profiler_core::diff::Diff;
use profiler_core::ranks::RanksReport;

use crate::{inputs, interrupt, message, progress};

/// Where a page goes.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The file.
    pub path: PathBuf,
    /// Whether a file that exists is replaced.
    pub force: bool,
    /// Whether the user learns where it is by other means.
    pub is_shown: bool,
}

impl Target {
    /// Says where the page is, unless it went to a stream.
    fn tell(&self, is_named: bool) {
        if is_named && !self.is_shown {
            message::note(&format!("the page is {}", self.path.display()));
        }
    }
}

/// Writes the page of one trace.
///
/// # Errors
///
/// When the trace cannot be read or the page may not or cannot be written.
pub fn report(trace: &Path, pid: Option<u32>, options: &Options, target: &Target) -> Result<Outcome> {
    let to = Destination::new(&target.path, Shape::Stream, target.force, &[trace.to_owned()])?;
    let trace = inputs::open(trace, pid)?;
    let is_named = to.is_named();
    if is_named {
        interrupt::watch()?;
    }
    let name = to.path().display().to_string();
    let mut output = Output::create(to)?;
    let outcome = progress::shown(|progress| gpuwhy_page::write_report(&trace, options, &mut output, progress))?;
    output.finish()?;
    for note in outcome.damage.iter().take(1) {
        message::say(&format!("{}: damaged: {note}; the page shows what can be read", trace.path().display()));
    }
    for note in &outcome.left_out {
        message::note(&format!("{name}: {note}"));
    }
    target.tell(is_named);
    Ok(outcome)
}

/// Writes the page of a comparison; `inputs` are the files that it is about.
///
/// # Errors
///
/// When the page may not or cannot be written.
pub fn diff(
    diff: &Diff,
    a: (&Report, &str),
    b: (&Report, &str),
    title: Option<&str>,
    (target, inputs): (&Target, &[PathBuf]),
) -> Result<()> {
    let to = Destination::new(&target.path, Shape::Stream, target.force, inputs)?;
    let is_named = to.is_named();
    let mut output = Output::create(to)?;
    gpuwhy_page::write_diff(diff, a, b, title, &mut output)?;
    output.finish()?;
    target.tell(is_named);
    Ok(())
}

/// Writes the page of the ranks of a job, whose traces are `files`, in the order of `compared`.
///
/// # Errors
///
/// When a trace cannot be read or the page may not or cannot be written.
pub fn ranks(
    compared: &RanksReport,
    files: &[&TraceFile],
    title: Option<&str>,
    (target, inputs): (&Target, &[PathBuf]),
) -> Result<()> {
    let to = Destination::new(&target.path, Shape::Stream, target.force, inputs)?;
    let is_named = to.is_named();
    if is_named {
        interrupt::watch()?;
    }
    let mut output = Output::create(to)?;
    progress::shown(|progress| gpuwhy_page::write_ranks(compared, files, title, &mut output, progress))?;
    output.finish()?;
    target.tell(is_named);
    Ok(())
}
