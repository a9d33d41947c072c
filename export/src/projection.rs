//! Pushed ranges of the program projected onto the streams: what was launched within them.
//!
//! Work belongs to the ranges of its launching thread that hold the launching call as a whole, the innermost one and
//! all around it. The projection of a range lasts from the begin of its first operation to the end of its last. A range
//! in which nothing was launched has none and no row.

use std::cmp::Reverse;

use gpuwhy_trace::record::{DeviceId, DeviceWork, NameId, StreamId, Timestamp};
use rustc_hash::FxHashMap;

use crate::error::ExportError;
use crate::instances::{Instance, Instances, Wanted};
use crate::launches::{join, operations};
use gpuwhy_import::{Progress, TraceFile};

/// A pushed range over what was launched in it on one stream.
#[derive(Clone, Copy, Debug)]
pub struct ProjectedRange {
    /// Its text.
    pub message: NameId,
    /// Where its operations ran.
    pub device: DeviceId,
    /// Where its operations ran.
    pub stream: StreamId,
    pub first: Timestamp,
    /// The end of the last.
    pub last: Timestamp,
}

/// Every pushed range on every stream that it launched something on, and what could not be placed. Fails when the trace
/// cannot be read at all.
pub fn projected_ranges(
    trace: &TraceFile,
    progress: &mut Progress<'_>,
) -> Result<(Vec<ProjectedRange>, Vec<String>), ExportError> {
    let (ranges, _) = Instances::read(trace, Wanted::All, progress, &mut Vec::new())?;
    let mut rows: FxHashMap<(u32, DeviceId, StreamId), ProjectedRange> = FxHashMap::default();
    let (_, without_call) = join(trace, progress, operations, |call, record, _| {
        let Some(DeviceWork { device, stream, start, end, .. }) = record.device_work() else { return Ok(()) };
        for place in ranges.around(call) {
            let Instance { message, started, .. } = ranges.all[place as usize];
            if !started {
                let new = ProjectedRange { message, device, stream, first: start, last: end };
                let row = rows.entry((place, device, stream)).or_insert(new);
                row.first = row.first.min(start);
                row.last = row.last.max(end);
            }
        }
        Ok(())
    })?;
    let without_call = (without_call > 0)
        .then(|| format!("{without_call} operations whose launching call is not in the trace are in no range"));
    let mut rows: Vec<ProjectedRange> = rows.into_values().collect();
    rows.sort_by_key(|row| (row.first, Reverse(row.last)));
    Ok((rows, without_call.into_iter().collect()))
}
