//! Perfetto's own format: exact to the nanosecond, a quarter of the size of the JSON, and with counters.
//!
//! Tracks: the process with its threads (calls, and a track for the ranges of each thread and domain), each
//! device with its streams and its steps including the time per cause, counters of pending launches and
//! copied bytes, and the bottleneck at the top. Arrows lead from each launch to its first operation.

mod events;
mod leaves;
mod packets;
mod wire;

use std::collections::BTreeSet;
use std::io;

use gpuwhy_trace::event::Event;

use crate::attributed::attributed;
use crate::counters::CounterValues;
use crate::destination::Destination;
use crate::error::ExportError;
use crate::options::ExportOutcome;
use crate::output::Output;
use crate::prescan::Prescan;
use gpuwhy_import::{Progress, TraceFile, share};

use self::events::Events;
use self::packets::TrackOrigin;

/// Writes `trace` in Perfetto's format.
pub fn write(trace: &TraceFile, to: Destination, progress: &mut Progress<'_>) -> Result<ExportOutcome, ExportError> {
    write_all(&[TracePart { trace, shift: 0, name: String::new() }], to, progress)
}

/// A trace on a common timeline.
pub struct TracePart<'a> {
    pub trace: &'a TraceFile,
    /// Offset added to its times, nanoseconds.
    pub shift: i64,
    /// Prefix of the names of its process and devices.
    pub name: String,
}

/// Writes several traces to one file, one process for each.
pub fn write_all(
    parts: &[TracePart<'_>],
    to: Destination,
    progress: &mut Progress<'_>,
) -> Result<ExportOutcome, ExportError> {
    let path = to.path().to_owned();
    let failed = |error| ExportError::io(&path, error);
    let mut output = Output::create(to)?;
    let mut outcome = ExportOutcome::default();
    let count = parts.len().max(1) as u64;
    let mut processes = BTreeSet::new();
    for (number, part) in (0..).zip(parts) {
        let mut progress = |done, total| progress(total / count * number + done / count, total);
        // Processes of different hosts may have the same id; viewers would merge them. Linux process ids end
        // at 2^22.
        let mut process = part.trace.session().process_id;
        while !processes.insert(process) {
            process = process.wrapping_add(1 << 22);
        }
        let place = TrackOrigin { number, process, shift: part.shift, name: &part.name };
        let late = write_part(part.trace, place, &mut output, &mut outcome, &mut progress, &failed)?;
        if late > 0 {
            outcome.notes.push(format!("{}{late} values of counters are not in the order of time", part.name));
        }
    }
    output.finish()?;
    Ok(outcome)
}

/// Writes one trace. Returns the number of late counter values.
fn write_part(
    trace: &TraceFile,
    place: TrackOrigin<'_>,
    output: &mut Output,
    outcome: &mut ExportOutcome,
    progress: &mut Progress<'_>,
    failed: &dyn Fn(io::Error) -> ExportError,
) -> Result<u64, ExportError> {
    let (prescan, passed) = Prescan::of(trace, &mut share(progress, 0..5))?;
    let (report, _) = attributed(trace, &mut share(progress, 5..15))?;
    outcome.notes.extend(passed.notes().into_iter().map(|note| format!("{}{note}", place.name)));
    let mut events = Events::new(output, &prescan, &passed.session, place);
    events.tracks(&passed.dictionary, &report.live_line()).map_err(failed)?;
    for device in &report.devices {
        events.steps(device).map_err(failed)?;
    }
    let mut values = CounterValues::default();
    trace.pass(&mut share(progress, 15..100), |event, scope| {
        if let Event::Counters(event) = event {
            values.of(event).iter().try_for_each(|value| events.sampled(value)).map_err(failed)?;
        }
        events.captured.take(event, scope.dictionary);
        let Event::Record(record) = event else { return Ok::<_, ExportError>(()) };
        match events.record(record, scope.dictionary).map_err(failed)? {
            true => outcome.written += 1,
            false => outcome.leave_out(record.kind()),
        }
        Ok(())
    })?;
    events.finish().map_err(failed)
}
