//! The report of a trace as computed by the engine, for the formats that can contain it.

use gpuwhy_report::capture::Captures;
use gpuwhy_report::run::Report;
use gpuwhy_trace::collective::CollectiveEvent;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{DeviceId, Record, Timestamp};
use profiler_core::attribution::Attributor;
use profiler_core::attribution::segments::Segment;
use profiler_core::steps::OverflowStep;

use crate::earlier_steps::{EarlierSteps, SeriesOfReport, StepSpool};
use crate::error::ExportError;
use gpuwhy_import::{Passed, Progress, TraceFile};

/// Reads `trace` once and computes the same report as `gpuwhy report`: that of the newest capture, if there
/// are several. Fails if the trace cannot be read.
pub fn attributed(trace: &TraceFile, progress: &mut Progress<'_>) -> Result<(Report, Passed), ExportError> {
    read(trace, progress, &mut |_| {}, Wanted::default())
}

/// Like [`attributed`], but with all steps of the devices; the report contains only the newest ones. Fails if
/// the trace cannot be read or the temporary file for the steps cannot be written.
pub fn attributed_with_steps(
    trace: &TraceFile,
    progress: &mut Progress<'_>,
) -> Result<(Report, Passed, EarlierSteps), ExportError> {
    let (mut spool, mut of_report) = (StepSpool::default(), None);
    let mut failed = None;
    let (report, passed) = read(
        trace,
        progress,
        &mut |beside| match beside {
            Beside::Steps(steps) => failed = failed.take().or(spool.add(&steps).err()),
            Beside::StepSeries(series) => of_report = series,
            _ => {}
        },
        Wanted { steps: true, ..Wanted::default() },
    )?;
    match failed {
        Some(error) => Err(error),
        None => Ok((report, passed, spool.finish(of_report)?)),
    }
}

/// Data passed to a consumer that runs in parallel with the engine.
pub enum Beside<'a> {
    /// A record, before any result derived from it.
    Record(&'a Record, &'a Dictionary),
    /// A collective event.
    Collective(&'a CollectiveEvent),
    /// Everything that completed before this time has been passed.
    Flushed(Timestamp),
    /// The end of the run; no further data follows.
    Finished(Timestamp),
    /// Final segments of the devices' timelines.
    Segments(Vec<(u32, DeviceId, Vec<Segment>)>),
    /// Steps that the engine has dropped, with their capture.
    Steps(Vec<(u32, DeviceId, OverflowStep)>),
    /// The capture of the report, and the series of its devices' steps.
    StepSeries(Option<SeriesOfReport>),
}

/// Optional data in addition to the report.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    segments: bool,
    steps: bool,
}

/// Like [`attributed`], and passes the records and the devices' segments to `beside`. Fails if the trace
/// cannot be read.
pub fn attributed_beside(
    trace: &TraceFile,
    progress: &mut Progress<'_>,
    mut beside: impl FnMut(Beside<'_>),
) -> Result<(Report, Passed), ExportError> {
    read(trace, progress, &mut beside, Wanted { segments: true, ..Wanted::default() })
}

fn read(
    trace: &TraceFile,
    progress: &mut Progress<'_>,
    beside: &mut dyn FnMut(Beside<'_>),
    wanted: Wanted,
) -> Result<(Report, Passed), ExportError> {
    let mut captures = Captures::new(None);
    captures.options.segments = wanted.segments;
    captures.options.step_overflow = wanted.steps;
    let mut last = Timestamp::ZERO;
    let passed = trace.pass(progress, |event, scope| {
        captures.event(event, scope.session, scope.dictionary);
        match event {
            Event::Record(record) => beside(Beside::Record(record, scope.dictionary)),
            Event::Collective(event) => beside(Beside::Collective(event)),
            Event::Flush(at) => {
                last = last.max(*at);
                beside(Beside::Flushed(*at));
                if wanted.segments {
                    beside(Beside::Segments(captures.take(Attributor::take_segments)));
                }
                if wanted.steps {
                    beside(Beside::Steps(captures.take(Attributor::take_step_overflow)));
                }
            }
            Event::End(_, at) => last = last.max(*at),
            _ => {}
        }
        Ok::<_, ExportError>(())
    })?;
    captures.finish(last, &passed.session, &passed.dictionary);
    beside(Beside::Finished(last));
    if wanted.segments {
        beside(Beside::Segments(captures.take(Attributor::take_segments)));
    }
    if wanted.steps {
        beside(Beside::Steps(captures.take(Attributor::take_step_overflow)));
        beside(Beside::StepSeries(captures.reported().map(|(number, engine)| (number, engine.step_overflow_series()))));
    }
    let report = captures.report(&passed.session, &passed.dictionary, passed.end, passed.damaged());
    Ok((report, passed))
}
