//! Body of a COLLECTIVES block: groups of events, each preceded by its length so that a reader can skip
//! unknown kinds.
//!
//! Consecutive operations form one group. Each is written field by field as the difference to the previous
//! one.

use super::block::MAX_EVENTS;
use super::varint::{self, Cursor, Malformed, unzigzag, zigzag};
use super::wire::{Wire, wire};
use crate::collective::{
    Algorithm, CollectiveEvent, Communicator, DataType, Execution, Function, Protocol, QueuedOperation,
};
use crate::record::{ThreadId, Timestamp};

/// Contents of a group. Numbers are never reused.
mod what {
    pub(super) const COMMUNICATOR: u8 = 1;
    pub(super) const OPERATIONS: u8 = 2;
    /// Operations reported by NVTX ranges.
    pub(super) const RANGES: u8 = 3;
}

/// Bits of an operation's flags.
mod flag {
    pub(super) const SEQUENCE: u64 = 1;
    pub(super) const LAUNCH: u64 = 2;
    pub(super) const ENDED: u64 = 4;
    pub(super) const CAPTURED: u64 = 8;
    pub(super) const COPY_ENGINE: u64 = 16;
}

/// Earliest and latest time in `events`; both 0 if there are no times.
pub(super) fn times(events: &[CollectiveEvent]) -> (u64, u64) {
    let spans = events.iter().filter_map(|event| match event {
        CollectiveEvent::Communicator(_) => None,
        CollectiveEvent::Operation(operation) => {
            let at = operation.at.nanos();
            let first = if operation.launch_begin == Timestamp::ZERO { at } else { operation.launch_begin.nanos() };
            Some((first.min(at), at))
        }
    });
    spans.reduce(|extent, span| (extent.0.min(span.0), extent.1.max(span.1))).unwrap_or_default()
}

/// Appends `events`, with times relative to `base`.
pub(super) fn encode(events: &[CollectiveEvent], base: u64, body: &mut Vec<u8>) {
    let mut group = Vec::new();
    let mut rest = events;
    while let Some(first) = rest.first() {
        group.clear();
        let (kind, taken) = match first {
            CollectiveEvent::Communicator(communicator) => {
                communicator.put(&mut group);
                (what::COMMUNICATOR, 1)
            }
            CollectiveEvent::Operation(QueuedOperation { by_range, .. }) => {
                let operation = |event: &CollectiveEvent| match event {
                    CollectiveEvent::Operation(operation) => {
                        Some(*operation).filter(|reported| reported.by_range == *by_range)
                    }
                    CollectiveEvent::Communicator(_) => None,
                };
                let operations: Vec<_> = rest.iter().map_while(operation).collect();
                put_operations(&operations, base, &mut group);
                (if *by_range { what::RANGES } else { what::OPERATIONS }, operations.len())
            }
        };
        body.push(kind);
        varint::put_bytes(body, &group);
        rest = rest.get(taken..).unwrap_or_default();
    }
}

/// The inverse of [`encode`]. Returns the number of groups of unknown kinds. A malformed body yields no
/// events.
pub(super) fn decode(body: &[u8], base: u64, give: impl FnMut(CollectiveEvent)) -> Result<u64, Malformed> {
    let mut events = Vec::new();
    let mut unknown = 0;
    let mut cursor = Cursor::new(body);
    while !cursor.is_empty() {
        let kind = cursor.byte()?;
        let mut group = Cursor::new(cursor.bytes()?);
        match kind {
            what::COMMUNICATOR => events.push(CollectiveEvent::Communicator(Wire::get(&mut group)?)),
            what::OPERATIONS | what::RANGES => operations(&mut group, base, kind == what::RANGES, &mut events)?,
            _ => unknown += 1,
        }
        if events.len() > MAX_EVENTS {
            return Err(Malformed);
        }
    }
    events.into_iter().for_each(give);
    Ok(unknown)
}

wire! { Communicator { number, id, name, nodes, ranks, rank } }

fn put_operations(operations: &[QueuedOperation], base: u64, group: &mut Vec<u8>) {
    varint::put(group, operations.len() as u64);
    let mut before = QueuedOperation { at: Timestamp::from_nanos(base), ..QueuedOperation::default() };
    let difference = |value: u64, before: u64| zigzag(value.wrapping_sub(before));
    for operation in operations {
        let (at, begin, end) = (operation.at.nanos(), operation.launch_begin.nanos(), operation.launch_end.nanos());
        let flags = operation.sequence.map_or(0, |_| flag::SEQUENCE)
            | if begin == 0 { 0 } else { flag::LAUNCH }
            | if end == 0 { 0 } else { flag::ENDED }
            | match operation.way {
                Execution::Kernel => 0,
                Execution::Captured => flag::CAPTURED,
                Execution::CopyEngine => flag::COPY_ENGINE,
            };
        let numbers = [
            flags,
            operation.communicator.into(),
            operation.thread.0.into(),
            difference(at, before.at.nanos()),
            operation.function.code().into(),
            operation.data_type.code().into(),
            operation.algorithm.code().into(),
            operation.protocol.code().into(),
            operation.channels.into(),
            operation.count,
            zigzag(i64::from(operation.root_or_peer).cast_unsigned()),
        ];
        varint::put_all(group, &numbers);
        if let Some(sequence) = operation.sequence {
            varint::put(group, difference(sequence, before.sequence.unwrap_or(0)));
        }
        if begin != 0 {
            varint::put(group, difference(begin, at));
        }
        if end != 0 {
            varint::put(group, difference(end, at));
        }
        before = QueuedOperation { sequence: operation.sequence.or(before.sequence), ..*operation };
    }
}

fn operations(
    group: &mut Cursor<'_>,
    base: u64,
    by_range: bool,
    events: &mut Vec<CollectiveEvent>,
) -> Result<(), Malformed> {
    let count = group.varint()?;
    if count > MAX_EVENTS.saturating_sub(events.len()) as u64 {
        return Err(Malformed);
    }
    let (mut at, mut sequence) = (base, 0u64);
    for _ in 0..count {
        let flags = group.varint()?;
        let (communicator, thread) = (group.varint32()?, ThreadId(group.varint32()?));
        at = at.wrapping_add(unzigzag(group.varint()?));
        let mut operation = QueuedOperation {
            communicator,
            thread,
            at: Timestamp::from_nanos(at),
            function: Function::from_code(group.varint()?),
            data_type: DataType::from_code(group.varint()?),
            algorithm: Algorithm::from_code(group.varint()?),
            protocol: Protocol::from_code(group.varint()?),
            channels: group.varint()?.try_into().map_err(|_| Malformed)?,
            count: group.varint()?,
            root_or_peer: unzigzag(group.varint()?).cast_signed().try_into().map_err(|_| Malformed)?,
            by_range,
            ..QueuedOperation::default()
        };
        if flags & flag::SEQUENCE != 0 {
            sequence = sequence.wrapping_add(unzigzag(group.varint()?));
            operation.sequence = Some(sequence);
        }
        let mut time = |present: u64| -> Result<Timestamp, Malformed> {
            let known = flags & present != 0;
            let nanos = if known { at.wrapping_add(unzigzag(group.varint()?)) } else { 0 };
            Ok(Timestamp::from_nanos(nanos))
        };
        operation.launch_begin = time(flag::LAUNCH)?;
        operation.launch_end = time(flag::ENDED)?;
        operation.way = if flags & flag::CAPTURED != 0 {
            Execution::Captured
        } else if flags & flag::COPY_ENGINE != 0 {
            Execution::CopyEngine
        } else {
            Execution::Kernel
        };
        events.push(CollectiveEvent::Operation(operation));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::NameId;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(1_790_000_000_000_000_000 + nanos)
    }

    fn events() -> Vec<CollectiveEvent> {
        let communicator = Communicator { number: 1, id: u64::MAX, name: NameId(7), nodes: 2, ranks: 16, rank: 15 };
        let full = QueuedOperation {
            communicator: 1,
            thread: ThreadId(4711),
            at: at(900),
            launch_begin: at(100),
            launch_end: at(800),
            function: Function::ReduceScatter,
            data_type: DataType::Bfloat16,
            algorithm: Algorithm::NvlsTree,
            protocol: Protocol::Ll128,
            channels: 32,
            count: 1 << 40,
            sequence: Some(5),
            root_or_peer: -1,
            way: Execution::Kernel,
            by_range: false,
        };
        let range = QueuedOperation { by_range: true, sequence: None, ..full };
        let bare = QueuedOperation { at: at(5), way: Execution::Captured, ..QueuedOperation::default() };
        let back = QueuedOperation { sequence: Some(0), root_or_peer: i32::MAX, way: Execution::CopyEngine, ..full };
        let largest = QueuedOperation { count: u64::MAX, sequence: Some(u64::MAX), launch_end: at(0), ..full };
        let operations = [full, range, bare, back, largest].map(CollectiveEvent::Operation);
        let mut events = vec![CollectiveEvent::Communicator(communicator)];
        events.extend(operations);
        events.push(CollectiveEvent::Communicator(Communicator { number: 2, ..Communicator::default() }));
        events.extend(operations);
        events
    }

    #[test]
    fn events_come_back_in_their_order() {
        let (events, mut body, mut read) = (events(), Vec::new(), Vec::new());
        encode(&events, times(&events).0, &mut body);
        assert_eq!(decode(&body, times(&events).0, |event| read.push(event)), Ok(0));
        assert_eq!(read, events);
        assert_eq!(times(&events), (at(5).nanos(), at(900).nanos()));
        assert_eq!(times(&events[..1]), (0, 0));
    }

    #[test]
    fn a_body_that_is_cut_or_announces_too_much_gives_nothing() {
        let (events, mut body) = (events(), Vec::new());
        encode(&events, 0, &mut body);
        for length in 0..body.len() {
            let mut read = Vec::new();
            let result = decode(&body[..length], 0, |event| read.push(event));
            // A prefix that ends at a group boundary is valid.
            assert!(result.is_ok() || read.is_empty(), "{length}");
        }
        let mut hostile = vec![what::OPERATIONS];
        varint::put_bytes(&mut hostile, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]);
        assert_eq!(decode(&hostile, 0, |_| {}), Err(Malformed));
    }

    #[test]
    fn groups_and_numbers_of_newer_versions_are_stepped_over() {
        let mut body = vec![9];
        varint::put_bytes(&mut body, b"newer");
        encode(&events()[..2], 0, &mut body);
        let mut read = Vec::new();
        assert_eq!(decode(&body, 0, |event| read.push(event)), Ok(1));
        assert_eq!(read, events()[..2]);
    }
}
