//! The reports of `nsys stats` and the rules of `nsys analyze`, in succession.

use std::io::{self, BufWriter};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use gpuwhy_export::named::NamedQuery;
use gpuwhy_export::nsys::{Reports, Subject};
use gpuwhy_export::stats::Printer;
use gpuwhy_export::tables::labels;
use gpuwhy_export::{OpenError, TraceFile};

use super::choice::is_lake;
use crate::args::query::QueryArgs;
use crate::{inputs, message, progress};

/// Prints the reports, and returns true if no data is missing. Reports each kind of missing data once on
/// stderr. Fails when a trace cannot be read or lacks the range, or stdout cannot be written.
pub fn run(args: &QueryArgs, reports: &[NamedQuery], paths: &[PathBuf]) -> Result<bool> {
    if paths.is_empty() {
        bail!("{}: name traces, or folders of traces", reports[0].name);
    }
    if let Some(lake) = paths.iter().find(|path| is_lake(path)) {
        bail!("{} reads traces, and {} is a lake: recipes and SQL ask lakes", reports[0].name, lake.display());
    }
    let paths = inputs::expanded(paths)?;
    let files: Vec<TraceFile> =
        paths.iter().map(|path| inputs::open(path, args.pid)).collect::<Result<_, OpenError>>()?;
    let mut subjects = Vec::new();
    for (trace, label) in files.iter().zip(labels(&files, args.run.as_deref())) {
        let filter = match &args.of_reports.filter_nvtx {
            Some(range) => progress::shown(|progress| range.interval(trace, progress))?
                .with_context(|| format!("{}: it has no such range", trace.path().display()))?,
            None => args.of_reports.filter_time.unwrap_or_default(),
        };
        subjects.push(Subject { trace, label, filter });
    }
    let loaded = progress::shown(|progress| Reports::load(subjects, reports, progress))?;
    let names = reports.iter().map(|report| report.name.to_owned());
    let mut printer = Printer::new(BufWriter::new(io::stdout().lock()), args.options(), names);
    let mut said: Vec<String> = Vec::new();
    let mut say = |notes: &[String]| {
        for note in notes {
            if !said.contains(note) {
                message::say(note);
                said.push(note.clone());
            }
        }
    };
    say(&loaded.notes);
    for report in reports {
        say(&loaded.print(report, &mut printer)?);
    }
    printer.finish()?;
    Ok(said.is_empty())
}
