//! Body of a MEMORY_CALLS block: groups of calls, as in GRAPH_NODES.

use super::block::MAX_EVENTS;
use super::graph_nodes::{Before, number_of, stack_of};
use super::varint::{self, Cursor, Malformed};
use crate::memory_call::{MemoryCall, MemoryFunction};
use crate::record::{ContextId, DeviceId, NameId, ThreadId, Timestamp};

/// The one kind of group. Numbers are never reused.
const CALLS: u8 = 1;

/// Earliest and latest time of `calls`; both 0 if there are no times.
pub(super) fn times(calls: &[MemoryCall]) -> (u64, u64) {
    let times = calls.iter().flat_map(|call| [call.start.nanos(), call.end.nanos()]).filter(|&at| at != 0);
    times.map(|at| (at, at)).reduce(|extent, at| (extent.0.min(at.0), extent.1.max(at.1))).unwrap_or_default()
}

/// Appends `calls`, with times relative to `base`.
pub(super) fn encode(calls: &[MemoryCall], base: u64, body: &mut Vec<u8>) {
    let mut bytes = Vec::new();
    varint::put(&mut bytes, calls.len() as u64);
    let mut before = first(base);
    for call in calls {
        let new = [
            u64::from(call.function as u8) << 1 | u64::from(call.captures),
            call.end.nanos(),
            call.end.nanos().wrapping_sub(call.start.nanos()),
            call.thread.0.into(),
            call.device.map_or(0, |device| u64::from(device.0) + 1),
            call.context.0.into(),
            call.address,
            call.handle,
            call.bytes,
            call.result.into(),
            number_of(call.stack),
            call.library.map_or(0, |name| u64::from(name.0) + 1),
        ];
        varint::put_all(&mut bytes, &before.differences(new));
    }
    body.push(CALLS);
    varint::put_bytes(body, &bytes);
}

/// The inverse of [`encode`]. Returns the number of groups of unknown kinds and of calls of unknown functions. A
/// malformed body yields no calls.
pub(super) fn decode(body: &[u8], base: u64, give: impl FnMut(MemoryCall)) -> Result<u64, Malformed> {
    let mut calls = Vec::new();
    let mut unknown = 0;
    let mut cursor = Cursor::new(body);
    while !cursor.is_empty() {
        let kind = cursor.byte()?;
        let mut group = Cursor::new(cursor.bytes()?);
        if kind != CALLS {
            unknown += 1;
            continue;
        }
        let count = group.varint()?;
        if count > (MAX_EVENTS - calls.len()) as u64 {
            return Err(Malformed);
        }
        let mut before = first(base);
        for _ in 0..count {
            let row = before.add(|| group.varint())?;
            match call_of(row)? {
                Some(call) => calls.push(call),
                None => unknown += 1,
            }
        }
    }
    calls.into_iter().for_each(give);
    Ok(unknown)
}

fn call_of(row: [u64; 12]) -> Result<Option<MemoryCall>, Malformed> {
    let [function, end, lasted, thread, device, context, address, handle, bytes, result, stack, library] = row;
    let narrow = |number: u64| u32::try_from(number).map_err(|_| Malformed);
    let id = |number: u64| number.checked_sub(1).map(narrow).transpose();
    let known = u8::try_from(function >> 1).ok().and_then(MemoryFunction::of_number);
    let call = MemoryCall {
        function: known.unwrap_or(MemoryFunction::Allocate),
        start: Timestamp::from_nanos(end.wrapping_sub(lasted)),
        end: Timestamp::from_nanos(end),
        thread: ThreadId(narrow(thread)?),
        device: id(device)?.map(DeviceId),
        context: ContextId(narrow(context)?),
        address,
        handle,
        bytes,
        result: narrow(result)?,
        captures: function & 1 == 1,
        stack: stack_of(stack)?,
        library: id(library)?.map(NameId),
    };
    Ok(known.map(|_| call))
}

fn first(base: u64) -> Before<12> {
    let mut before = [0; 12];
    before[1] = base;
    Before(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::StackId;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(1_790_000_000_000_000_000 + nanos)
    }

    fn calls() -> Vec<MemoryCall> {
        let call = |(index, function): (usize, MemoryFunction)| MemoryCall {
            function,
            start: at(100 * index as u64),
            end: at(100 * index as u64 + 40),
            thread: ThreadId(4711),
            address: 0x7f00_0000_0000 + ((index as u64) << 21),
            bytes: 2 << 20,
            stack: StackId(index as u32),
            ..MemoryCall::default()
        };
        let extreme = MemoryCall {
            thread: ThreadId(u32::MAX),
            device: Some(MemoryCall::HOST),
            context: ContextId(u32::MAX),
            address: u64::MAX,
            handle: u64::MAX,
            bytes: u64::MAX,
            result: u32::MAX,
            captures: true,
            library: Some(NameId(u32::MAX)),
            ..MemoryCall::default()
        };
        MemoryFunction::ALL.into_iter().enumerate().map(call).chain([extreme]).collect()
    }

    #[test]
    fn calls_come_back_in_their_order() {
        let (calls, mut body, mut read) = (calls(), Vec::new(), Vec::new());
        encode(&calls, times(&calls).0, &mut body);
        assert_eq!(decode(&body, times(&calls).0, |call| read.push(call)), Ok(0));
        assert_eq!(read, calls);
        assert_eq!(times(&calls), (at(0).nanos(), at(100 * 21 + 40).nanos()));
        assert!(body.len() < 40 * calls.len(), "{}", body.len());
    }

    #[test]
    fn a_body_that_is_cut_or_announces_too_much_gives_nothing() {
        let mut body = Vec::new();
        encode(&calls(), 0, &mut body);
        for length in 1..body.len() {
            let mut read = Vec::new();
            assert_eq!(decode(&body[..length], 0, |call| read.push(call)), Err(Malformed), "{length}");
            assert!(read.is_empty());
        }
        let mut hostile = vec![CALLS];
        varint::put_bytes(&mut hostile, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]);
        assert_eq!(decode(&hostile, 0, |_| {}), Err(Malformed));
    }

    #[test]
    fn groups_and_functions_of_newer_versions_are_stepped_over() {
        let mut body = vec![9];
        varint::put_bytes(&mut body, b"newer");
        encode(&calls()[..2], 0, &mut body);
        let mut group = Vec::new();
        varint::put(&mut group, 1);
        varint::put_all(&mut group, &first(0).differences([100 << 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        body.push(CALLS);
        varint::put_bytes(&mut body, &group);
        let mut read = Vec::new();
        assert_eq!(decode(&body, 0, |call| read.push(call)), Ok(2));
        assert_eq!(read, calls()[..2]);
    }
}
