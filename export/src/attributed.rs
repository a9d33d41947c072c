//! The report of a trace: what the engine says, for the formats that have a place for it.

use profiler_core::attribution::segments::Segment;
use profiler_core::capture::Captures;
use profiler_core::collective::CollectiveEvent;
use profiler_core::dictionary::Dictionary;
use profiler_core::record::{DeviceId, Loss, Record, Timestamp};
use profiler_core::report::Report;
use profiler_core::trace::Item;

use crate::error::ExportError;
use gpuwhy_import::{Passed, Progress, TraceFile};

/// Reads `trace` once and makes the report that `gpuwhy report` makes: of the newest capture, when there are several.
///
/// # Errors
///
/// When the trace cannot be read at all.
pub fn attributed(trace: &TraceFile, progress: &mut Progress<'_>) -> Result<(Report, Passed), ExportError> {
    read(trace, progress, &mut |_| {}, false)
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
}

/// As [`attributed`], with `beside` taking the records and what devices did.
///
/// # Errors
///
/// When the trace cannot be read at all.
pub fn attributed_beside(
    trace: &TraceFile,
    progress: &mut Progress<'_>,
    mut beside: impl FnMut(Beside<'_>),
) -> Result<(Report, Passed), ExportError> {
    read(trace, progress, &mut beside, true)
}

fn read(
    trace: &TraceFile,
    progress: &mut Progress<'_>,
    beside: &mut dyn FnMut(Beside<'_>),
    segments: bool,
) -> Result<(Report, Passed), ExportError> {
    let mut captures = Captures::new(None);
    if segments {
        captures.log_segments();
    }
    let (mut loss, mut last) = (Loss::default(), Timestamp::ZERO);
    let passed = trace.pass(progress, |item, scope| {
        match item {
            Item::Record(record) => {
                captures.push(record, scope.dictionary);
                beside(Beside::Record(record, scope.dictionary));
            }
            Item::Flush(at) => {
                captures.flushed(*at, scope.dictionary);
                last = last.max(*at);
                beside(Beside::Flushed(*at));
                if segments {
                    beside(Beside::Segments(captures.take_segments()));
                }
            }
            Item::Loss(newer) => loss = *newer,
            Item::Capture(mark) => captures.mark(*mark, scope.session, &loss, scope.dictionary),
            Item::Cost(cost) => captures.cost(*cost),
            Item::Utilization(reading) => captures.utilization(*reading),
            Item::Counters(event) => captures.counters(event),
            Item::Collective(event) => {
                captures.collective(event);
                beside(Beside::Collective(event));
            }
            Item::End(_, at) => last = last.max(*at),
        }
        Ok::<_, ExportError>(())
    })?;
    captures.finish(last, &passed.session, &passed.loss, &passed.dictionary);
    beside(Beside::Finished(last));
    if segments {
        beside(Beside::Segments(captures.take_segments()));
    }
    let report = captures.report(&passed.session, &passed.dictionary, &passed.loss, passed.end, passed.damaged());
    Ok((report, passed))
}
