//! The report of a trace: what the engine says, for the formats that have a place for it.

use gpuwhy_report::capture::Captures;
use gpuwhy_report::run::Report;
use gpuwhy_trace::collective::CollectiveEvent;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{DeviceId, Record, Timestamp};
use profiler_core::attribution::segments::Segment;
use profiler_core::steps::OverflowStep;

use crate::earlier_steps::{EarlierSteps, SeriesOfReport, StepSpool};
use crate::error::ExportError;
use gpuwhy_import::{Passed, Progress, TraceFile};

/// Reads `trace` once and makes the report that `gpuwhy report` makes: of the newest capture, when there are several.
/// Fails when the trace cannot be read at all.
pub fn attributed(trace: &TraceFile, progress: &mut Progress<'_>) -> Result<(Report, Passed), ExportError> {
    read(trace, progress, &mut |_| {}, Wanted::default())
}

/// As [`attributed`], with all steps of the devices: the report has the newest ones. Fails when the trace cannot be
/// read at all, or the temporary file for the steps cannot be written.
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

/// What whoever reads beside the engine is given.
pub enum Beside<'a> {
    /// A record, before anything that it leads to.
    Record(&'a Record, &'a Dictionary),
    /// An operation of a communicator.
    Collective(&'a CollectiveEvent),
    /// Everything that completed before has been given.
    Flushed(Timestamp),
    /// Nothing more comes of the run, which ended then.
    Finished(Timestamp),
    /// What devices did, as far as it is final.
    Segments(Vec<(DeviceId, Vec<Segment>)>),
    /// Steps that the engine has forgotten, with their capture.
    Steps(Vec<(u32, DeviceId, OverflowStep)>),
    /// The capture that the report is about, and the series that its devices' steps are from.
    StepSeries(Option<SeriesOfReport>),
}

/// What is noted beside the report.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    segments: bool,
    steps: bool,
}

/// As [`attributed`], with `beside` taking the records and what devices did. Fails when the trace cannot be read at
/// all.
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
    if wanted.segments {
        captures.log_segments();
    }
    if wanted.steps {
        captures.keep_step_overflow();
    }
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
                    beside(Beside::Segments(captures.take_segments()));
                }
                if wanted.steps {
                    beside(Beside::Steps(captures.take_step_overflow()));
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
        beside(Beside::Segments(captures.take_segments()));
    }
    if wanted.steps {
        beside(Beside::Steps(captures.take_step_overflow()));
        beside(Beside::StepSeries(captures.step_overflow_series()));
    }
    let report = captures.report(&passed.session, &passed.dictionary, passed.end, passed.damaged());
    Ok((report, passed))
}
