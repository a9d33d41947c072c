//! Perfetto's own format: exact to the nanosecond, a quarter of the JSON, and with counters.
//!
//! Tracks: the process with its threads (calls, and a track for the ranges of each thread and domain), each device with
//! its streams, counters of launches that wait and of copied bytes, and the verdict over all of it. Arrows lead from
//! each launch to its first operation.

mod events;
mod lanes;
mod packets;
mod wire;

use std::path::Path;

use profiler_core::trace::Item;

use crate::Outcome;
use crate::attributed::attributed;
use crate::error::ExportError;
use crate::output::Output;
use crate::source::{Progress, TraceFile};
use crate::survey::Survey;

use self::events::Events;

/// Writes `trace` to `out`.
pub fn write(trace: &TraceFile, out: &Path, progress: &mut Progress<'_>) -> Result<Outcome, ExportError> {
    let (survey, passed) = Survey::of(trace, &mut |done, total| progress(done / 3, total))?;
    let (report, _) = attributed(trace, &mut |done, total| progress(total / 3 + done / 3, total))?;
    let failed = |error| ExportError::io(out, error);
    let mut outcome = Outcome { notes: passed.notes(), ..Outcome::default() };
    let mut events = Events::new(Output::create(out)?, &survey, &passed.session);
    events.tracks(&passed.dictionary, &report.live_line()).map_err(failed)?;
    trace.pass(&mut |done, total| progress(total / 3 * 2 + done / 3, total), |item, scope| {
        let Item::Record(record) = item else { return Ok(()) };
        match events.record(record, scope.dictionary).map_err(failed)? {
            true => outcome.written += 1,
            false => outcome.without_place += 1,
        }
        Ok(())
    })?;
    let (output, late) = events.finish().map_err(failed)?;
    if late > 0 {
        outcome.notes.push(format!("{late} values of counters are not in the order of time"));
    }
    output.finish()?;
    Ok(outcome)
}
