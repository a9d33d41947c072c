//! Which device work belongs to which repetition: that which was launched by a call made during it.

use std::fs::File;
use std::io::BufReader;

use profiler_core::record::{CorrelationId, Device, DeviceId, Loss, Record, Timestamp};
use profiler_core::trace::{Item, TraceError, TraceReader};
use rustc_hash::FxHashMap;

/// What the trace says of the repetitions.
#[derive(Debug, Default)]
pub struct Found {
    /// Time of each repetition in which something ran, nanoseconds, ascending.
    pub times_ns: Vec<u64>,
    /// Kernels, copies and memsets in them.
    pub operations: u64,
    /// The device of the first operation.
    pub device: Option<Device>,
    /// What the trace lacks: a repetition may be longer than it looks.
    pub loss: Loss,
}

/// Finds the device work of `calls`, which are begin and end on the clock of the records, in the order of time.
pub fn find(trace: File, calls: &[(u64, u64)]) -> Result<Found, TraceError> {
    let mut reader = TraceReader::new(BufReader::new(trace))?;
    let mut repetition_of: FxHashMap<CorrelationId, usize> = FxHashMap::default();
    let mut work: Vec<(CorrelationId, Timestamp, Timestamp, DeviceId)> = Vec::new();
    let mut found = Found::default();
    while let Some(item) = reader.next_item()? {
        let record = match item {
            Item::Record(record) => record,
            Item::Loss(loss) => {
                found.loss = loss;
                continue;
            }
            _ => continue,
        };
        match record {
            Record::Api(call) => {
                let at = call.start.nanos();
                let next = calls.partition_point(|&(begin, _)| begin <= at);
                if let Some(index) = next.checked_sub(1).filter(|&index| at <= calls[index].1) {
                    repetition_of.insert(call.correlation, index);
                }
            }
            _ => work.extend(record.device_work().map(|done| (done.correlation, done.start, done.end, done.device))),
        }
    }
    let mut spans: Vec<Option<(Timestamp, Timestamp)>> = vec![None; calls.len()];
    for (correlation, start, end, device) in work {
        let Some(&index) = repetition_of.get(&correlation) else { continue };
        let span = spans[index].get_or_insert((start, end));
        *span = (span.0.min(start), span.1.max(end));
        found.operations += 1;
        if found.device.is_none() {
            found.device = reader.dictionary().device(device).cloned();
        }
    }
    found.times_ns = spans.into_iter().flatten().map(|(start, end)| end.since(start)).collect();
    found.times_ns.sort_unstable();
    Ok(found)
}
