//! Operations from NCCL's own NVTX ranges, if there is no profiler plugin: NCCL 2.25 and later, domain
//! `NCCL`.
//!
//! A range has a struct with communicator, bytes, and root or peer; its schema has a fixed number (`nvtx.h`
//! and `nvtx_payload_schemas.h` of NCCL). Between `ncclGroupStart` and the outermost `ncclGroupEnd`, calls
//! only queue operations, and the range of that end contains the launches. A group with several communicators
//! launches one kernel per communicator, so its operations cannot be assigned to a launch; they are reported
//! without one.

use std::collections::HashMap;

use gpuwhy_trace::collective::{CollectiveEvent, Communicator, Function, QueuedOperation};
use gpuwhy_trace::record::{RangeEventKind, ThreadId, Timestamp};
use nvtx_sys::Extended;
use rustc_hash::FxBuildHasher;

pub const DOMAIN: &str = "NCCL";
/// Range names.
const GROUP_START: &str = "ncclGroupStart";
const GROUP_END: &str = "ncclGroupEnd";

/// First number of these communicators, above those of the plugin.
const FIRST_NUMBER: u32 = 1 << 20;
/// Maximum number of communicators, and of threads whose ranges are followed; further ones are ignored.
const LIMIT: usize = 1 << 12;
/// Maximum nesting depth of ranges, and number of operations in a group.
const DEPTH: usize = 64;
const GROUPED: usize = 1 << 12;

/// Sizes of the structs, bytes: communicator and bytes; the same with one or two 32-bit numbers.
const PLAIN: u32 = 16;
const NUMBERED: u32 = 24;

/// An open range.
#[derive(Clone, Copy, Debug)]
enum OpenRange {
    Operation(QueuedOperation),
    GroupStart,
    GroupEnd,
    Other,
}

#[derive(Debug, Default)]
struct ThreadRanges {
    open: Vec<(Timestamp, OpenRange)>,
    /// Number of open ranges beyond the maximum depth.
    beyond: usize,
    groups: u32,
    queued: Vec<QueuedOperation>,
}

/// Ranges of all threads.
#[derive(Debug, Default)]
pub struct Ranges {
    threads: HashMap<u32, ThreadRanges, FxBuildHasher>,
    communicators: HashMap<u64, u32, FxBuildHasher>,
}

impl Ranges {
    /// Handles the start or end of a range of the domain on `thread`; `name` and `payload` belong to a start.
    /// Adds the resulting events to `made`.
    pub fn take(
        &mut self,
        thread: u32,
        (kind, at): (RangeEventKind, Timestamp),
        name: &str,
        payload: Option<&Extended>,
        made: &mut Vec<CollectiveEvent>,
    ) {
        if self.threads.len() >= LIMIT && !self.threads.contains_key(&thread) {
            return;
        }
        match kind {
            RangeEventKind::Push => {
                let open = match (name, payload.and_then(operation)) {
                    (_, Some((id, operation))) => match self.communicator(id, made) {
                        Some(communicator) => OpenRange::Operation(QueuedOperation {
                            communicator,
                            thread: ThreadId(thread),
                            ..operation
                        }),
                        None => OpenRange::Other,
                    },
                    (GROUP_START, _) => OpenRange::GroupStart,
                    (GROUP_END, _) => OpenRange::GroupEnd,
                    _ => OpenRange::Other,
                };
                let known = self.threads.entry(thread).or_default();
                if known.open.len() < DEPTH { known.open.push((at, open)) } else { known.beyond += 1 }
            }
            RangeEventKind::Pop => self.threads.entry(thread).or_default().pop(at, made),
            _ => {}
        }
    }

    /// Returns the number of a communicator, and reports it at its first use.
    fn communicator(&mut self, id: u64, made: &mut Vec<CollectiveEvent>) -> Option<u32> {
        if let Some(number) = self.communicators.get(&id) {
            return Some(*number);
        }
        let number = u32::try_from(self.communicators.len()).ok().filter(|&count| (count as usize) < LIMIT)?;
        let number = FIRST_NUMBER + number;
        self.communicators.insert(id, number);
        made.push(CollectiveEvent::Communicator(Communicator { number, id, ..Communicator::default() }));
        Some(number)
    }
}

impl ThreadRanges {
    fn pop(&mut self, at: Timestamp, made: &mut Vec<CollectiveEvent>) {
        if self.beyond > 0 {
            self.beyond -= 1;
            return;
        }
        // A pop without a push belongs to a range from before this library was attached.
        let Some((begin, open)) = self.open.pop() else { return };
        match open {
            OpenRange::Operation(operation) if self.groups == 0 => {
                made.push(operation_event(operation, Some((begin, at)), at));
            }
            OpenRange::Operation(operation) if self.queued.len() < GROUPED => self.queued.push(operation),
            OpenRange::Operation(operation) => made.push(operation_event(operation, None, at)),
            OpenRange::GroupStart => self.groups = self.groups.saturating_add(1),
            OpenRange::GroupEnd => {
                self.groups = self.groups.saturating_sub(1);
                if self.groups == 0 {
                    let first = self.queued.first().map(|operation| operation.communicator);
                    let is_one = self.queued.iter().all(|operation| Some(operation.communicator) == first);
                    let launch = is_one.then_some((begin, at));
                    made.extend(self.queued.drain(..).map(|operation| operation_event(operation, launch, at)));
                }
            }
            OpenRange::Other => {}
        }
    }
}

fn operation_event(
    operation: QueuedOperation,
    launch: Option<(Timestamp, Timestamp)>,
    at: Timestamp,
) -> CollectiveEvent {
    let (launch_begin, launch_end) = launch.unwrap_or_default();
    CollectiveEvent::Operation(QueuedOperation { at, launch_begin, launch_end, ..operation })
}

/// Parses a struct of NCCL: the communicator, and the operation. A struct of another size is from a version
/// before 2.25, which does not name the communicator, or from a future one.
fn operation(payload: &Extended) -> Option<(u64, QueuedOperation)> {
    let (function, size) = match payload.schema {
        4 => (Function::AllGather, PLAIN),
        5 => (Function::AllReduce, NUMBERED),
        6 => (Function::Broadcast, NUMBERED),
        7 => (Function::ReduceScatter, NUMBERED),
        8 => (Function::Reduce, NUMBERED),
        9 => (Function::Send, NUMBERED),
        10 => (Function::Receive, NUMBERED),
        16 => (Function::AllToAll, PLAIN),
        17 => (Function::Gather, NUMBERED),
        18 => (Function::Scatter, NUMBERED),
        _ => return None,
    };
    let [communicator, count, number] = payload.words;
    // Without a communicator the call fails.
    if payload.size != size || communicator == 0 {
        return None;
    }
    let has_number =
        !matches!(function, Function::AllGather | Function::AllReduce | Function::ReduceScatter | Function::AllToAll);
    #[expect(clippy::cast_possible_truncation, reason = "the first of two numbers of 32 bits")]
    let root_or_peer = if has_number { (number as u32).cast_signed() } else { 0 };
    Some((
        communicator,
        QueuedOperation { function, count, root_or_peer, by_range: true, ..QueuedOperation::default() },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(schema: u32, size: u32, words: [u64; 3]) -> Extended {
        Extended { schema, size, words }
    }

    /// Communicator, function, bytes, root or peer, start and end of the launch.
    type Reported = (u32, Function, u64, i32, u64, u64);

    #[derive(Default)]
    struct Program {
        ranges: Ranges,
        made: Vec<CollectiveEvent>,
        now: u64,
    }

    impl Program {
        fn push(&mut self, thread: u32, name: &str, payload: Option<Extended>) {
            self.now += 10;
            let at = Timestamp::from_nanos(self.now);
            self.ranges.take(thread, (RangeEventKind::Push, at), name, payload.as_ref(), &mut self.made);
        }

        fn pop(&mut self, thread: u32) {
            self.now += 10;
            let at = Timestamp::from_nanos(self.now);
            self.ranges.take(thread, (RangeEventKind::Pop, at), "", None, &mut self.made);
        }

        fn call(&mut self, thread: u32, name: &str, payload: Option<Extended>) {
            self.push(thread, name, payload);
            self.pop(thread);
        }

        fn reported(&mut self) -> Vec<Reported> {
            let operations = self.made.drain(..).filter_map(|event| match event {
                CollectiveEvent::Operation(reported) => Some(reported),
                CollectiveEvent::Communicator(_) => None,
            });
            let reported = operations.map(|reported| {
                assert!(reported.by_range && reported.sequence.is_none());
                let QueuedOperation { communicator, function, count, root_or_peer, launch_begin, launch_end, .. } =
                    reported;
                (communicator, function, count, root_or_peer, launch_begin.nanos(), launch_end.nanos())
            });
            reported.collect()
        }
    }

    #[test]
    fn a_call_is_its_own_launch_and_a_group_has_that_of_its_end() {
        let mut program = Program::default();
        let reduce = |communicator| Some(payload(5, 24, [communicator, 4096, 3]));
        program.call(1, "ncclAllReduce", reduce(0xabc));
        assert_eq!(
            program.made[0],
            CollectiveEvent::Communicator(Communicator { number: FIRST_NUMBER, id: 0xabc, ..Default::default() })
        );
        assert_eq!(program.reported(), [(FIRST_NUMBER, Function::AllReduce, 4096, 0, 10, 20)]);
        // A nested group: the outer end launches.
        program.call(1, "ncclGroupStart", None);
        program.call(1, "ncclGroupStart", None);
        program.call(1, "ncclSend", Some(payload(9, 24, [0xabc, 10, 7])));
        program.call(2, "ncclAllGather", Some(payload(4, 16, [0xabc, 20, 0])));
        program.call(1, "ncclGroupEnd", None);
        assert_eq!(
            program.reported(),
            [(FIRST_NUMBER, Function::AllGather, 20, 0, 90, 100)],
            "another thread is in no group"
        );
        program.call(1, "ncclRecv", Some(payload(10, 24, [0xabc, 30, u64::from(u32::MAX)])));
        program.call(1, "ncclGroupEnd", None);
        let launch = (program.now - 10, program.now);
        let expected = [(Function::Send, 10, 7), (Function::Receive, 30, -1)];
        let expected =
            expected.map(|(function, bytes, peer)| (FIRST_NUMBER, function, bytes, peer, launch.0, launch.1));
        assert_eq!(program.reported(), expected);
        // Two communicators: the kernels cannot be assigned to them.
        program.call(1, "ncclGroupStart", None);
        program.call(1, "ncclAllReduce", reduce(0xabc));
        program.call(1, "ncclAllReduce", reduce(0xdef));
        program.call(1, "ncclGroupEnd", None);
        let reported = program.reported();
        assert_eq!(
            reported.iter().map(|reported| (reported.0, reported.4, reported.5)).collect::<Vec<_>>(),
            [(FIRST_NUMBER, 0, 0), (FIRST_NUMBER + 1, 0, 0)]
        );
    }

    #[test]
    fn what_is_no_struct_of_a_known_size_tells_nothing() {
        let mut program = Program::default();
        for wrong in [
            payload(5, 16, [4096, 3, 0]),
            payload(4, 8, [4096, 0, 0]),
            payload(5, 24, [0, 4096, 3]),
            payload(11, 24, [1, 2, 3]),
            payload(u32::MAX, u32::MAX, [1, 2, 3]),
        ] {
            program.call(1, "ncclAllReduce", Some(wrong));
        }
        program.call(1, "ncclAllReduce", None);
        // Pops without pushes, ends without starts, and ranges nested deeper than the maximum.
        program.pop(3);
        program.call(1, "ncclGroupEnd", None);
        for _ in 0..2 * DEPTH {
            program.push(1, "ncclCommInitRank", None);
        }
        (0..2 * DEPTH).for_each(|_| program.pop(1));
        assert_eq!(program.made, []);
        program.call(1, "ncclAllReduce", Some(payload(5, 24, [1, 2, 3])));
        assert_eq!(program.reported().len(), 1, "ranges are whole again");
        // More operations than a group may have, and more threads.
        program.call(1, "ncclGroupStart", None);
        for _ in 0..GROUPED + 1 {
            program.call(1, "ncclSend", Some(payload(9, 24, [1, 1, 1])));
        }
        assert_eq!(program.reported().len(), 1, "told without a launch");
        program.call(1, "ncclGroupEnd", None);
        assert_eq!(program.reported().len(), GROUPED);
        for thread in 0..2 * LIMIT as u32 {
            program.call(thread, "ncclSend", Some(payload(9, 24, [u64::from(thread) + 1, 1, 1])));
        }
        assert!(program.ranges.threads.len() <= LIMIT && program.ranges.communicators.len() <= LIMIT);
    }
}
