//! Copies, memsets and calls that hold the host.
//!
//! Whether a copy is asynchronous is in the name of the call that issued it, as in nsys: the record of the copy says
//! how the driver carried it out.

use profiler_core::dictionary::Dictionary;
use profiler_core::record::{ApiCall, ApiFunctionId, Copy, CopyKind, MemoryKind, Memset, Record};
use profiler_core::trace::Item;

use super::largest::Largest;
use super::rule::{Found, Request, Rule};
use crate::error::ExportError;
use crate::stats::input::{Input, Notes};
use crate::stats::labels;
use crate::stats::launches::{join, operations as device_work};
use crate::stats::table::Cell;

/// Copies to a device up to this size are staged by the driver while the call returns (user guide of Nsight Systems and
/// "API synchronization behavior" of the CUDA documentation), bytes.
const STAGED_BYTES: u64 = 64 << 10;

/// Name with version suffix, as nsys shows it here.
fn name(function: ApiFunctionId, dictionary: &Dictionary) -> &str {
    dictionary.api_function(function).map_or("?", |function| dictionary.name(function.name))
}

fn is_async(call: &str) -> bool {
    call.contains("Async")
}

fn copy_is_found(rule: Rule, copy: &Copy, call: &str) -> bool {
    match rule {
        Rule::MemcpyAsync => is_async(call) && [copy.source, copy.destination].contains(&MemoryKind::Pageable),
        Rule::MemcpySync => {
            let staged = copy.kind == CopyKind::HostToDevice && copy.bytes <= STAGED_BYTES;
            !is_async(call) && call.contains("Memcpy") && copy.kind != CopyKind::DeviceToDevice && !staged
        }
        _ => false,
    }
}

fn memset_is_found(memset: &Memset, call: &str) -> bool {
    !is_async(call) && call.contains("Memset") && matches!(memset.memory, MemoryKind::Pinned | MemoryKind::Managed)
}

/// Copies or memsets, the longest first.
pub(super) fn operations(
    request: &Request,
    input: &mut Input<'_, '_>,
    notes: &mut Notes,
) -> Result<Found, ExportError> {
    let (filter, unit) = (input.filter, input.unit);
    let mut largest: Largest<u64, (Record, ApiFunctionId)> = Largest::new(request.rows);
    let (passed, _) = join(input, device_work, |call: &ApiCall, record, scope| {
        let call_name = name(call.function, scope.dictionary);
        let (start, end) = match record {
            Record::Copy(copy) if copy_is_found(request.rule, copy, call_name) => (copy.start, copy.end),
            Record::Memset(memset) if request.rule == Rule::MemsetSync && memset_is_found(memset, call_name) => {
                (memset.start, memset.end)
            }
            _ => return Ok(()),
        };
        if filter.admits(scope.session.start, start, end) {
            largest.push(end.since(start), (*record, call.function));
        }
        Ok(())
    })?;
    notes.0.extend(passed.notes());
    let (rows, left_out) = largest.finish();
    let row = |(record, function): (Record, ApiFunctionId)| {
        let place = |device: u32, context: u32, stream: u32| {
            let number = |value: u32| Cell::Number(value.into());
            [number(passed.session.process_id), number(device), number(context), Cell::Empty, number(stream)]
        };
        let text = |kind| Cell::Text(labels::memory(kind).to_owned());
        let bytes = |bytes: u64| Cell::Decimal(bytes as f64 / 1e6, 3);
        let since = |at: profiler_core::record::Timestamp| unit.whole(at.since(passed.session.start));
        let mut cells = Vec::new();
        match record {
            Record::Copy(copy) => {
                cells.extend([unit.whole(copy.end.since(copy.start)), since(copy.start)]);
                cells.extend([text(copy.source), text(copy.destination), bytes(copy.bytes)]);
                cells.extend(place(copy.device.0, copy.context.0, copy.stream.0));
            }
            Record::Memset(memset) => {
                cells.extend([unit.whole(memset.end.since(memset.start)), since(memset.start)]);
                cells.extend([text(memset.memory), bytes(memset.bytes)]);
                cells.extend(place(memset.device.0, memset.context.0, memset.stream.0));
            }
            _ => {}
        }
        cells.push(Cell::Text(name(function, &passed.dictionary).to_owned()));
        cells
    };
    Ok((rows.into_iter().map(row).collect(), left_out))
}

/// Calls that wait for all that a stream, context or device was given.
fn waits_for_everything(call: &str) -> bool {
    let stem = labels::function(call);
    matches!(
        stem.trim_end_matches("_ptsz"),
        "cudaDeviceSynchronize" | "cudaStreamSynchronize" | "cuCtxSynchronize" | "cuStreamSynchronize"
    )
}

/// Waiting calls, the longest first.
pub(super) fn calls(request: &Request, input: &mut Input<'_, '_>, notes: &mut Notes) -> Result<Found, ExportError> {
    let (filter, unit) = (input.filter, input.unit);
    let mut largest: Largest<u64, ApiCall> = Largest::new(request.rows);
    let passed = input.trace.pass(input.progress, |item, scope| {
        if let Item::Record(Record::Api(call)) = item
            && filter.admits(scope.session.start, call.start, call.end)
            && waits_for_everything(name(call.function, scope.dictionary))
        {
            largest.push(call.end.since(call.start), *call);
        }
        Ok::<_, ExportError>(())
    })?;
    notes.0.extend(passed.notes());
    let (rows, left_out) = largest.finish();
    let row = |call: ApiCall| {
        vec![
            unit.whole(call.end.since(call.start)),
            unit.whole(call.start.since(passed.session.start)),
            Cell::Number(passed.session.process_id.into()),
            Cell::Number(call.thread.0.into()),
            Cell::Text(name(call.function, &passed.dictionary).to_owned()),
        ]
    };
    Ok((rows.into_iter().map(row).collect(), left_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_told_apart_by_call_memory_and_size() {
        let copy = |kind, source, destination, bytes| Copy { kind, source, destination, bytes, ..Copy::default() };
        let up = copy(CopyKind::HostToDevice, MemoryKind::Pageable, MemoryKind::Device, 65_537);
        assert!(copy_is_found(Rule::MemcpySync, &up, "cudaMemcpy_v3020"));
        assert!(!copy_is_found(Rule::MemcpySync, &Copy { bytes: 65_536, ..up }, "cudaMemcpy_v3020"));
        assert!(!copy_is_found(Rule::MemcpySync, &up, "cudaMemcpyAsync_v3020"));
        assert!(copy_is_found(Rule::MemcpyAsync, &up, "cudaMemcpyAsync_v3020"));
        let pinned = Copy { source: MemoryKind::Pinned, ..up };
        assert!(!copy_is_found(Rule::MemcpyAsync, &pinned, "cudaMemcpyAsync_v3020"));
        let down = copy(CopyKind::DeviceToHost, MemoryKind::Device, MemoryKind::Pageable, 4);
        assert!(copy_is_found(Rule::MemcpySync, &down, "cuMemcpyDtoH_v2"));
        let within = copy(CopyKind::DeviceToDevice, MemoryKind::Device, MemoryKind::Device, 1 << 30);
        assert!(!copy_is_found(Rule::MemcpySync, &within, "cudaMemcpy_v3020"));
    }

    #[test]
    fn waits_for_events_are_not_waits_for_everything() {
        for name in ["cudaDeviceSynchronize_v3020", "cudaStreamSynchronize_ptsz_v7000", "cuCtxSynchronize"] {
            assert!(waits_for_everything(name), "{name}");
        }
        assert!(!waits_for_everything("cudaEventSynchronize_v3020"));
    }
}
