//! Makes the report of a trace file.
//!
//! A gpuwhy trace goes through `recompute` to the engine. The injected library feeds the same events to the
//! same engine while the program runs, so both reports agree. A Kineto trace goes to the engine directly, a
//! database of Nsight Systems by way of a temporary trace.

use std::io::Read;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use gpuwhy_report::run::operators::{OperatorSource, OperatorsBy};
use gpuwhy_report::run::{Report, RunPart, guessed_operators};
use gpuwhy_trace::format::{TraceError, TraceReader};
use gpuwhy_trace::record::Timestamp;
use profiler_core::leaf::Cause;

use crate::error::OpenError;
use crate::format::Format;
use crate::input::Input;
use crate::kineto::Imported;
use crate::progress::{Progress, unwatched};
use crate::recompute::{report_from, report_of_part};
use crate::request::Request;
use crate::trace_file::TraceFile;
use crate::translate::{self, NOT_SEVERAL};
use crate::window::Window;

/// Reads the trace file at `path` and makes its report.
///
/// The file is a trace of gpuwhy or of the PyTorch profiler (Kineto's JSON), or an SQLite file of Nsight
/// Systems (`nsys export --type sqlite`), which needs the feature `nsys` here and `export` of the crate
/// `gpuwhy`; each may be compressed with gzip. The format is recognized by the contents, not by the name. The
/// file may be a pipe. A compression ratio of 200 to 1 or more is treated as an attack; decompress such a file
/// first. A trace that was cut off or damaged is not an error: the report covers the readable part, and its
/// completeness shows what is missing and where.
///
/// # Errors
/// Fails if the file cannot be opened, is not a trace, has a newer format, or ends before the first record.
/// The error names the file, and the offset if there is one.
pub fn open(path: impl AsRef<Path>) -> Result<Report, OpenError> {
    open_capture(path, None)
}

/// As [`open`], for one capture of a run with several captures. `None` selects the newest. A number that does
/// not exist yields an empty report, whose [`captures`](Report::captures) list the existing ones.
///
/// # Errors
/// As [`open`].
pub fn open_capture(path: impl AsRef<Path>, capture: Option<u32>) -> Result<Report, OpenError> {
    open_watched(path, capture, &mut unwatched)
}

/// As [`open_capture`]; calls `progress` at intervals with the number of bytes read and the size of the file.
///
/// # Errors
/// As [`open`], and if `progress` stops the work.
pub fn open_watched(
    path: impl AsRef<Path>,
    capture: Option<u32>,
    progress: &mut Progress<'_>,
) -> Result<Report, OpenError> {
    Input::open(path)?.report(Request { capture, ..Request::default() }, progress)
}

/// As [`open`], for a part of the run: from `from` to `to` after its start. Everything that overlaps the part
/// is included completely, device work with the call that launched it (up to two seconds before); the
/// report's [`part`](Report::part) names the part. Blocks outside the part are not decoded. Only traces of
/// gpuwhy, compressed or not, can be read in part, and not from a pipe, because they are read twice.
///
/// # Errors
/// As [`open`], and if the file is of another kind, if the part ends before it starts, or if it starts after
/// the end of the trace.
pub fn open_window(path: impl AsRef<Path>, from: Duration, to: Duration) -> Result<Report, OpenError> {
    Input::open(path)?.report(Request { window: Some((from, to)), ..Request::default() }, &mut unwatched)
}

/// Makes the report of a trace from any source, as [`open`] does for a file.
///
/// # Errors
/// Fails if `source` is not a trace, has a newer format, or ends before the first record.
pub fn read(source: impl Read) -> Result<Report, TraceError> {
    report_from(TraceReader::new(source)?, None)
}

impl Input {
    /// Makes the requested report.
    ///
    /// # Errors
    /// As [`open`] and [`open_window`], and if there is no such process, or if `progress` stops the work.
    pub fn report(self, request: Request, progress: &mut Progress<'_>) -> Result<Report, OpenError> {
        let report = match request.window {
            Some(_) => part(&self, request, progress),
            None => whole(self, request, progress),
        };
        let report = report.map(|mut report| {
            if let Some(by) = request.operators {
                // Ranges have no lines, but samples of launches may.
                let has_lines = report.kernel_lines.as_ref().is_some_and(|lines| !lines.rows.is_empty());
                let recorded = report
                    .operators
                    .take()
                    .filter(|of| !(has_lines && by == OperatorsBy::Line && of.source == OperatorSource::Ranges));
                report.operators = recorded.or_else(|| Some(guessed_operators(&report, by)));
            }
            report
        });
        report.inspect(|report| {
            for damage in &report.completeness.damage {
                tracing::info!(damage, "damaged");
            }
        })
    }
}

fn whole(input: Input, request: Request, progress: &mut Progress<'_>) -> Result<Report, OpenError> {
    let interrupted = Rc::default();
    let mut bytes = input.unpacked(progress, &interrupted)?;
    let format = Format::of(bytes.fill_buf().map_err(|error| input.failed(error, &interrupted))?);
    if let Format::NotRead(advice) = format {
        return Err(OpenError::refused(input.path(), advice));
    }
    if format == Format::Sqlite {
        let database = translate::database(&input, bytes, &interrupted)?;
        let translated = translate::nsys(&input, database, request.pid, progress)?;
        return TraceFile::translated(&input, translated)?
            .with_operators(request.operators, progress)?
            .report(request.capture, progress);
    }
    if request.pid.is_some() && !matches!(format, Format::Json { .. }) {
        return Err(OpenError::refused(input.path(), NOT_SEVERAL));
    }
    let report = if let Format::Json { mark } = format {
        bytes.consume(mark);
        let imported = Imported::read(bytes, request.pid, request.operators);
        imported
            .and_then(|imported| imported.report(&mut || progress(input.bytes(), input.bytes())))
            .map_err(|error| OpenError::kineto(input.path(), error))
    } else {
        let report = TraceReader::new(bytes).and_then(|reader| report_of_part(reader, request, None, None));
        report.map_err(|error| OpenError::of_trace(input.path(), error))
    };
    // Reading that ends early is not an error, so an interrupted report is discarded here.
    if interrupted.get() { Err(OpenError::interrupted(input.path())) } else { report }
}

fn part(input: &Input, request: Request, progress: &mut Progress<'_>) -> Result<Report, OpenError> {
    let (from, to) = request.window.unwrap_or_default();
    let path = input.path();
    let refused = |why: String| OpenError::refused(path, why);
    let failed = |error| OpenError::trace(path, error);
    if to <= from {
        return Err(refused(format!("a part from {from:?} to {to:?} ends before it begins")));
    }
    if !input.is_file() {
        return Err(refused(
            "a part can be read only from a file, because it is read twice; this is a pipe".to_owned(),
        ));
    }
    let interrupted = Rc::default();
    let first = TraceReader::new(input.unpacked(progress, &interrupted)?).map_err(failed)?;
    let start = first.session().start;
    let time = |since: Duration| {
        Timestamp::from_nanos(start.nanos().saturating_add(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)))
    };
    let window = Window::find(first, time(from), time(to));
    let since_start = |at: Timestamp| at.nanos().saturating_sub(start.nanos());
    let (length, end) = (since_start(window.last()), since_start(window.end()));
    let length = Duration::from_nanos(length);
    if from >= length && !interrupted.get() {
        return Err(refused(format!("the trace is {length:.2?} long, so nothing in it is after {from:?}")));
    }
    let mut second = TraceReader::new(input.unpacked(progress, &interrupted)?).map_err(failed)?;
    second.only(window.read_from(), time(to));
    let mut report =
        report_of_part(second, Request { capture: None, ..request }, Some(window), None).map_err(failed)?;
    if interrupted.get() {
        return Err(OpenError::interrupted(path));
    }
    report.part = Some(RunPart { from_ns: since_start(time(from)), to_ns: end, of_ns: length.as_nanos() as u64 });
    if report.bottleneck.cause == Cause::NoWork {
        report.bottleneck.recommendation = "No device work in this part; see the report of the whole run.".to_owned();
    }
    report
        .process
        .notes
        .push(format!("a part of the run: from {from:?} to {:?} after its start", Duration::from_nanos(end)));
    Ok(report)
}
