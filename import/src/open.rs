//! From a trace file to its report.
//!
//! A trace of ours goes through `recompute` to the engine that the injected library gives the same events while the
//! program runs, so both say the same. A Kineto trace goes there directly; a database of Nsight Systems as a
//! temporary trace.

use std::io::Read;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use gpuwhy_report::run::{Part, Report};
use gpuwhy_trace::format::{TraceError, TraceReader};
use gpuwhy_trace::record::Timestamp;
use profiler_core::attribution::leaf::Group;

use crate::error::OpenError;
use crate::format::Format;
use crate::input::Input;
use crate::kineto::Imported;
use crate::progress::{Progress, unwatched};
use crate::recompute::{report_from, report_of_part};
use crate::trace_file::TraceFile;
use crate::translate::{self, NOT_SEVERAL};
use crate::window::Window;

/// Reads the trace file at `path` and makes its report.
///
/// The file is a trace of gpuwhy or of the PyTorch profiler (Kineto's JSON), or
/// an SQLite file of Nsight Systems (`nsys export --type sqlite`), which takes the feature `nsys` here and `export` of
/// the crate `gpuwhy`; each of them packed with gzip or not.
/// Its contents say which, not its name. A pipe will do. What is packed 200 to 1 or more is taken for an attack, and
/// has to be unpacked by hand. A trace that was cut off or damaged is no error: the report covers what can
/// be read, and its completeness says what is missing and where.
///
/// # Errors
/// When the file cannot be opened, is no trace, was written in a format of the future, or ends before anything was
/// recorded. The error names the file, and the offset where there is one.
pub fn open(path: impl AsRef<Path>) -> Result<Report, OpenError> {
    open_capture(path, None)
}

/// As [`open`], about one capture of a run that was measured in pieces. `None` is the newest. A number that does not
/// exist gives an empty report whose [`captures`](Report::captures) say which there are.
///
/// # Errors
/// As [`open`].
pub fn open_capture(path: impl AsRef<Path>, capture: Option<u32>) -> Result<Report, OpenError> {
    open_watched(path, capture, &mut unwatched)
}

/// As [`open_capture`]; `progress` is told now and then how many bytes of the file are read, and how many it has.
///
/// # Errors
/// As [`open`], and when `progress` ends the work.
pub fn open_watched(
    path: impl AsRef<Path>,
    capture: Option<u32>,
    progress: &mut Progress<'_>,
) -> Result<Report, OpenError> {
    Input::open(path)?.report(Request { capture, ..Request::default() }, progress)
}

/// As [`open`], about a part of the run: from `from` to `to` after its start. What overlaps the part is in it whole,
/// device work with the call that launched it (up to two seconds before); the report's [`part`](Report::part) says what
/// it is about. Blocks that are about another time are not decoded. Only traces of gpuwhy, packed or not, can be read
/// in part, and not from a pipe, as they are read twice.
///
/// # Errors
/// As [`open`], when the file is of another kind, when the part ends before it begins, and when it lies behind the end
/// of the trace.
pub fn open_window(path: impl AsRef<Path>, from: Duration, to: Duration) -> Result<Report, OpenError> {
    Input::open(path)?.report(Request { window: Some((from, to)), ..Request::default() }, &mut unwatched)
}

/// Makes the report of a trace that comes from anywhere, as [`open`] does for a file.
///
/// # Errors
/// When `source` is no trace, was written in a format of the future, or ends before anything was recorded.
pub fn read(source: impl Read) -> Result<Report, TraceError> {
    report_from(TraceReader::new(source)?, None)
}

/// What a report is to be about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// The process, of a file that holds several; `None` is the one with most device work.
    pub pid: Option<u32>,
    /// The capture of a run that was measured in pieces; `None` is the newest.
    pub capture: Option<u32>,
    /// The part of the run, by time after its start; see [`open_window`].
    pub window: Option<(Duration, Duration)>,
}

impl Input {
    /// Makes the report that is asked for.
    ///
    /// # Errors
    /// As [`open`] and [`open_window`], when there is no such process, and when `progress` ends the work.
    pub fn report(self, request: Request, progress: &mut Progress<'_>) -> Result<Report, OpenError> {
        let report = match request.window {
            Some((from, to)) => part(&self, from, to, progress),
            None => whole(self, request, progress),
        };
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
    if format == Format::Sqlite {
        let database = translate::database(&input, bytes, &interrupted)?;
        let trace = translate::nsys(&input, database, request.pid, progress)?;
        return TraceFile::of(&input, trace)?.report(request.capture, progress);
    }
    if request.pid.is_some() {
        return Err(OpenError::refused(input.path(), NOT_SEVERAL));
    }
    let report = if let Format::Json { mark } = format {
        bytes.consume(mark);
        let imported = Imported::read(bytes);
        imported
            .and_then(|imported| imported.report(&mut || progress(input.bytes(), input.bytes())))
            .map_err(|error| OpenError::kineto(input.path(), error))
    } else {
        let report = TraceReader::new(bytes).and_then(|reader| report_from(reader, request.capture));
        report.map_err(|error| OpenError::trace(input.path(), error))
    };
    // Reading that ends early is no error, so what came of it is thrown away here.
    if interrupted.get() { Err(OpenError::interrupted(input.path())) } else { report }
}

fn part(input: &Input, from: Duration, to: Duration, progress: &mut Progress<'_>) -> Result<Report, OpenError> {
    let path = input.path();
    let refused = |why: String| OpenError::refused(path, why);
    let failed = |error| OpenError::trace(path, error);
    if to <= from {
        return Err(refused(format!("a part from {from:?} to {to:?} ends before it begins")));
    }
    if !input.is_file() {
        return Err(refused("a part takes a file, since it is read twice; this is a pipe".to_owned()));
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
        return Err(refused(format!("the trace is {length:.2?} long, nothing of it lies behind {from:?}")));
    }
    let mut second = TraceReader::new(input.unpacked(progress, &interrupted)?).map_err(failed)?;
    second.only(window.read_from(), time(to));
    let mut report = report_of_part(second, None, Some(window), None).map_err(failed)?;
    if interrupted.get() {
        return Err(OpenError::interrupted(path));
    }
    report.part = Some(Part { from_ns: since_start(time(from)), to_ns: end, of_ns: length.as_nanos() as u64 });
    if report.verdict.group == Group::NoWork {
        report.verdict.recommendation = "No device work in this part: the report of the whole run has more.".to_owned();
    }
    report
        .process
        .notes
        .push(format!("a part of the run: from {from:?} to {:?} after its start", Duration::from_nanos(end)));
    Ok(report)
}
