//! The collector's side: turns NCCL events of a thread's ring into operations.
//!
//! A launch starts and ends, and the operations of its kernel follow on the same thread, with the number of
//! that launch. So an operation never gets a wrong launch, whichever events were dropped in between.

use gpuwhy_trace::collective::{CollectiveEvent, Communicator, QueuedOperation};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{RangeEventKind, ThreadId, Timestamp};
use nvtx_sys::Extended;

use crate::nccl;
use crate::nccl::ranges::Ranges;
use crate::rings::nccl::{NcclEvent, ReadEvent};

/// Newest launch of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct NewestLaunch {
    number: u16,
    context: u32,
    begin: Timestamp,
    end: Timestamp,
}

/// Makes operations from the events of all rings.
#[derive(Debug, Default)]
pub struct Operations {
    /// By ring: its thread, and the thread's last launch.
    launches: Vec<(u32, NewestLaunch)>,
    communicators: usize,
    ranges: Ranges,
    made: Vec<CollectiveEvent>,
}

impl Operations {
    /// Takes the new communicators.
    pub fn learn(&mut self, dictionary: &mut Dictionary) {
        for row in nccl::communicators(self.communicators) {
            self.communicators += 1;
            let number = u32::try_from(self.communicators).unwrap_or(0);
            let name = dictionary.intern_name(&row.name);
            self.made.push(CollectiveEvent::Communicator(Communicator { number, name, ..row.known }));
        }
    }

    /// Takes the next event of a ring, from `thread`.
    pub fn take(&mut self, ring: usize, thread: u32, read: &ReadEvent) {
        if self.launches.len() <= ring {
            self.launches.resize(ring + 1, Default::default());
        }
        let Some((known, launch)) = self.launches.get_mut(ring) else { return };
        if *known != thread {
            (*known, *launch) = (thread, NewestLaunch::default());
        }
        match read.event {
            NcclEvent::LaunchBegin(context) => {
                *launch = NewestLaunch { number: read.launch, context, begin: read.at, end: Timestamp::ZERO };
            }
            NcclEvent::LaunchEnd(context) => {
                let is_open = launch.begin != Timestamp::ZERO && launch.end == Timestamp::ZERO;
                if is_open && (launch.number, launch.context) == (read.launch, context) {
                    launch.end = read.at;
                }
            }
            NcclEvent::Operation(context, words) => {
                let is_own = launch.begin != Timestamp::ZERO
                    && (launch.number, launch.context) == (read.launch, context)
                    && words.way == gpuwhy_trace::collective::Execution::Kernel;
                let (launch_begin, launch_end) = if is_own { (launch.begin, launch.end) } else { Default::default() };
                self.made.push(CollectiveEvent::Operation(QueuedOperation {
                    communicator: context,
                    thread: ThreadId(thread),
                    at: read.at,
                    launch_begin,
                    launch_end,
                    function: words.function,
                    data_type: words.data_type,
                    algorithm: words.algorithm,
                    protocol: words.protocol,
                    channels: words.channels,
                    count: words.count,
                    sequence: words.sequence,
                    root_or_peer: words.root_or_peer,
                    way: words.way,
                    by_range: false,
                }));
            }
        }
    }

    /// Takes a range of NCCL's domain, unless the plugin reports all operations.
    pub fn range(&mut self, thread: u32, what: (RangeEventKind, Timestamp), name: &str, payload: Option<&Extended>) {
        if !nccl::is_reported() {
            self.ranges.take(thread, what, name, payload, &mut self.made);
        }
    }

    /// Returns the events since the last call: communicators first, then operations in the order of time.
    pub fn drain(&mut self) -> std::vec::Drain<'_, CollectiveEvent> {
        self.made.sort_by_key(|event| match event {
            CollectiveEvent::Communicator(_) => Timestamp::ZERO,
            CollectiveEvent::Operation(operation) => operation.at,
        });
        self.made.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rings::nccl::OperationWords;

    fn read(at: u64, launch: u16, event: NcclEvent) -> ReadEvent {
        ReadEvent { at: Timestamp::from_nanos(at), launch, event }
    }

    fn operation(context: u32, sequence: u64) -> NcclEvent {
        NcclEvent::Operation(context, OperationWords { sequence: Some(sequence), ..OperationWords::default() })
    }

    /// Sequence, and start and end of the launch.
    fn made(operations: &mut Operations) -> Vec<(u64, u64, u64)> {
        let reported = operations.drain().filter_map(|event| match event {
            CollectiveEvent::Communicator(_) => None,
            CollectiveEvent::Operation(reported) => {
                Some((reported.sequence.unwrap_or(0), reported.launch_begin.nanos(), reported.launch_end.nanos()))
            }
        });
        reported.collect()
    }

    #[test]
    fn operations_have_the_launch_before_them_and_no_other() {
        let mut operations = Operations::default();
        let events = [
            (5, 10, 1, NcclEvent::LaunchBegin(1)),
            (5, 20, 1, NcclEvent::LaunchEnd(1)),
            (5, 21, 1, operation(1, 7)),
            (5, 22, 1, operation(1, 8)),
            // Of another communicator, and one whose launch was dropped.
            (5, 23, 1, operation(2, 9)),
            (5, 24, 2, operation(1, 10)),
            // Ended twice, and by another communicator.
            (5, 30, 3, NcclEvent::LaunchBegin(1)),
            (5, 31, 3, NcclEvent::LaunchEnd(2)),
            (5, 40, 3, NcclEvent::LaunchEnd(1)),
            (5, 41, 3, NcclEvent::LaunchEnd(1)),
            (5, 42, 3, operation(1, 11)),
            // Another thread has the ring now.
            (6, 50, 3, operation(1, 12)),
            (6, 51, 3, NcclEvent::LaunchEnd(1)),
        ];
        for (thread, at, launch, event) in events {
            operations.take(2, thread, &read(at, launch, event));
        }
        let expected = [(7, 10, 20), (8, 10, 20), (9, 0, 0), (10, 0, 0), (11, 30, 40), (12, 0, 0)];
        assert_eq!(made(&mut operations), expected);
        assert_eq!(made(&mut operations), []);
    }
}
