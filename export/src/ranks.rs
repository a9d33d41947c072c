//! Traces of several ranks: comparison, and merging onto one timeline.

use gpuwhy_compare::ranks::{Collectives, RanksReport};
use gpuwhy_trace::record::Record;
use profiler_core::collective::Joiner;

use crate::attributed::{Beside, attributed_beside};
use crate::destination::Destination;
use crate::error::ExportError;
use crate::options::ExportOutcome;
use crate::perfetto;
use crate::row_store::RowStore;
use crate::tables::Label;
use gpuwhy_import::{Progress, TraceFile};

/// Compares the ranks. Also returns descriptions of missing data in the traces, for the user.
///
/// # Errors
/// If a trace cannot be read.
pub fn compare(
    traces: &[(TraceFile, Label)],
    progress: &mut Progress<'_>,
) -> Result<(RanksReport, Vec<String>), ExportError> {
    let count = traces.len().max(1) as u64;
    let (mut store, mut summaries, mut notes) = (RowStore::new(), Vec::with_capacity(traces.len()), Vec::new());
    for (number, (trace, label)) in (0..).zip(traces) {
        let (mut collectives, mut joiner) = (Collectives::default(), Joiner::default());
        let mut progress = |done, total| progress(total / count * number + done / count, total);
        let (report, passed) = attributed_beside(trace, &mut progress, |beside| match beside {
            Beside::Record(record, dictionary) => {
                joiner.push(record, dictionary);
                if let Record::Kernel(kernel) = record {
                    collectives.push(kernel, dictionary);
                }
            }
            Beside::Collective(event) => joiner.event(event),
            Beside::Flushed(at) => joiner.flushed(at, |row| collectives.operation(row)),
            Beside::Finished(at) => joiner.finish(at, |row| collectives.operation(row)),
            Beside::Segments(segments) => collectives.segments(&segments),
            // Not requested.
            Beside::Steps(_) | Beside::StepSeries(_) => {}
        })?;
        notes.extend(passed.notes().into_iter().map(|note| format!("{}: {note}", trace.path().display())));
        let rows = collectives.rows();
        summaries.push(collectives.summary(label.rank, &report, &rows));
        store.push(&rows)?;
    }
    Ok((RanksReport::compare(&summaries, &mut store)?, notes))
}

/// Writes the traces in Perfetto's format, one process for each, on the clock of the first one: `compared`
/// contains the clock offsets of the others.
///
/// # Errors
/// If a trace cannot be read, or the file cannot be written.
pub fn merge(
    traces: &[(TraceFile, Label)],
    compared: &RanksReport,
    to: Destination,
    progress: &mut Progress<'_>,
) -> Result<ExportOutcome, ExportError> {
    let shifts = compared.shifts();
    let ranks: Vec<perfetto::TracePart<'_>> = traces
        .iter()
        .zip(shifts)
        .map(|((trace, label), shift)| perfetto::TracePart { trace, shift, name: format!("rank {}: ", label.rank) })
        .collect();
    perfetto::write_all(&ranks, to, progress)
}
