//! Projects pushed ranges of the program onto the streams, over the work launched within them.
//!
//! Work belongs to those ranges of its launching thread that enclose the entire launching call: the innermost
//! one and all around it. The projection of a range lasts from the start of its first operation to the end of
//! its last. A range without launches has no projection and no row.

use std::cmp::Reverse;

use gpuwhy_trace::record::{DeviceId, DeviceWork, NameId, StreamId, Timestamp};
use rustc_hash::FxHashMap;

use crate::error::ExportError;
use crate::instances::{Instance, Instances, Wanted};
use crate::launches::{join, operations};
use gpuwhy_import::{Progress, TraceFile};

/// A pushed range, projected onto the work launched within it on one stream.
#[derive(Clone, Copy, Debug)]
pub struct ProjectedRange {
    /// Text of the range.
    pub message: NameId,
    /// Device of its operations.
    pub device: DeviceId,
    /// Stream of its operations.
    pub stream: StreamId,
    pub first: Timestamp,
    /// End of the last operation.
    pub last: Timestamp,
}

/// All pushed ranges, projected onto every stream on which they launched work, and the work that could not be
/// assigned. Fails if the trace cannot be read.
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
