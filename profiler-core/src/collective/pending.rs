//! Operations that are queued and not finished, for queries while the program hangs.
//!
//! Operations of a communicator finish in the order in which they were queued. So a finished operation means
//! that the previous ones are finished too, even if their kernels were not found.

use std::collections::VecDeque;

use gpuwhy_trace::collective::{CollectiveEvent, Communicator, Execution, QueuedOperation};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::json_text::Object;
use gpuwhy_trace::record::{HostSample, NameId, Record, Timestamp};

use super::Collective;
use crate::attribution::line_of;

/// Maximum operations kept per communicator, the newest.
const KEPT: usize = 1_024;
/// Maximum number of communicators, and of threads with a stored newest sample.
const COMMUNICATORS: usize = 1_024;
const THREADS: usize = 64;
/// Maximum number of communicators, and of operations of each, in a reply.
const REPORTED_COMMUNICATORS: usize = 64;
const REPORTED_OPERATIONS: usize = 16;

/// A communicator and its operations.
#[derive(Clone, Debug)]
struct Tracked {
    known: Communicator,
    queued: u64,
    outstanding: VecDeque<(u64, QueuedOperation)>,
}

/// Tracks queued and finished operations while a program runs.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    communicators: Vec<Tracked>,
    /// The newest sample of each thread.
    samples: Vec<HostSample>,
    newest_caller: Option<QueuedOperation>,
}

impl Pending {
    /// Processes an event.
    pub fn event(&mut self, event: &CollectiveEvent) {
        match *event {
            CollectiveEvent::Communicator(known) if self.communicators.len() < COMMUNICATORS => {
                self.communicators.push(Tracked { known, queued: 0, outstanding: VecDeque::new() });
            }
            CollectiveEvent::Communicator(_) => {}
            CollectiveEvent::Operation(operation) => {
                self.newest_caller = Some(operation);
                let number = operation.communicator;
                let tracked = self.communicators.iter_mut().find(|tracked| tracked.known.number == number);
                let Some(tracked) = tracked.filter(|_| operation.way != Execution::Captured) else { return };
                if operation.way == Execution::Kernel {
                    if tracked.outstanding.len() == KEPT {
                        tracked.outstanding.pop_front();
                    }
                    tracked.outstanding.push_back((tracked.queued, operation));
                }
                tracked.queued += 1;
            }
        }
    }

    /// Processes a record; host samples show the locations of threads.
    #[inline]
    pub fn push(&mut self, record: &Record) {
        if let Record::Sample(sample) = record {
            match self.samples.iter().position(|known| known.thread == sample.thread) {
                Some(index) if self.samples[index].at <= sample.at => self.samples[index] = *sample,
                None if self.samples.len() < THREADS => self.samples.push(*sample),
                _ => {}
            }
        }
    }

    /// Marks an operation as finished.
    pub fn done(&mut self, row: &Collective) {
        let mut known = self.communicators.iter_mut();
        let Some(tracked) = known.find(|tracked| tracked.known.id == row.communicator) else { return };
        let is_it = |(_, operation): &(u64, QueuedOperation)| {
            (operation.function, operation.sequence) == (row.function, row.sequence)
        };
        if let Some(index) = tracked.outstanding.iter().position(is_it) {
            tracked.outstanding.drain(..=index);
        }
    }

    /// Fields of the reply to `hang`. `docs/guide/control.md` defines them.
    pub fn state(&self, now: Timestamp, dictionary: &Dictionary) -> Object {
        let mut reported: Vec<&Tracked> = self.communicators.iter().collect();
        reported.sort_by_key(|tracked| tracked.outstanding.is_empty());
        let communicators = reported.into_iter().take(REPORTED_COMMUNICATORS).map(|one| one.state(now, dictionary));
        Object::new().field("line", self.line(dictionary)).field("communicators", communicators.collect::<Vec<_>>())
    }

    /// Location of the thread that queued last.
    fn line(&self, dictionary: &Dictionary) -> Option<String> {
        let thread = self.newest_caller.map(|operation| operation.thread);
        let of_caller = self.samples.iter().find(|sample| Some(sample.thread) == thread);
        let sample = of_caller.or_else(|| self.samples.iter().max_by_key(|sample| sample.at))?;
        let line = line_of(sample.stack, dictionary)?;
        let name = |id: NameId| dictionary.name(id);
        let file = name(line.file);
        Some(format!("{}:{} {}", file.rsplit('/').next().unwrap_or(file), line.line, name(line.function)))
    }
}

impl Tracked {
    fn state(&self, now: Timestamp, dictionary: &Dictionary) -> Object {
        let first = self.outstanding.front().map_or(self.queued, |&(number, _)| number);
        let operations = self.outstanding.iter().take(REPORTED_OPERATIONS).map(|(number, operation)| {
            Object::new()
                .field("number", number)
                .field("function", operation.function.name())
                .field("count", operation.count)
                .field("data_type", operation.data_type.name())
                .field("age_ns", now.since(operation.at))
        });
        Object::new()
            .field("communicator", format!("{:016x}", self.known.id))
            .field("name", dictionary.name(self.known.name))
            .field("ranks", self.known.ranks)
            .field("queued", self.queued)
            .field("finished", first)
            .field("outstanding", operations.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Basis;
    use gpuwhy_trace::collective::Function;
    use gpuwhy_trace::record::{Frame, StackId, ThreadId};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn queue(pending: &mut Pending, communicator: u32, sequence: u64, way: Execution) {
        let (thread, at, sequence) = (ThreadId(5), at(10 + sequence), Some(sequence));
        let (function, count) = (Function::AllReduce, 64);
        let operation =
            QueuedOperation { communicator, thread, at, sequence, function, count, way, ..Default::default() };
        pending.event(&CollectiveEvent::Operation(operation));
    }

    #[test]
    fn what_is_done_goes_with_all_before_it_and_the_rest_is_reported_with_its_line() {
        let (mut pending, mut dictionary) = (Pending::default(), Dictionary::new());
        let name = dictionary.intern_name("dp");
        for (number, id) in [(1, 0xab), (2, 0xcd)] {
            let known = Communicator { number, id, name, ranks: 4, ..Communicator::default() };
            pending.event(&CollectiveEvent::Communicator(known));
        }
        (0..5).for_each(|sequence| queue(&mut pending, 1, sequence, Execution::Kernel));
        queue(&mut pending, 1, 9, Execution::Captured);
        queue(&mut pending, 2, 0, Execution::CopyEngine);
        // Of an unknown communicator.
        queue(&mut pending, 7, 0, Execution::Kernel);
        let row = Collective {
            communicator: 0xab,
            function: Function::AllReduce,
            sequence: Some(2),
            basis: Basis::Plugin,
            ..Collective::default()
        };
        pending.done(&row);
        // The same row again, and one that was never queued: no change.
        pending.done(&row);
        pending.done(&Collective { communicator: 0xab, function: Function::Broadcast, ..row });
        let [function, file] = ["step", "/home/user/train.py"].map(|name| dictionary.intern_name(name));
        let stack = dictionary.intern_frame(Frame { caller: StackId::NONE, function, file, line: 41 });
        for (thread, seconds, stack) in [(6, 30, StackId::NONE), (5, 20, stack), (5, 19, StackId::NONE)] {
            let thread = ThreadId(thread);
            pending.push(&Record::Sample(HostSample { thread, at: at(seconds), stack, ..HostSample::default() }));
        }
        let state: serde_json::Value = serde_json::from_str(&pending.state(at(100), &dictionary).end()).unwrap();
        assert_eq!(state["line"], "train.py:41 step");
        let [first, second] = [&state["communicators"][0], &state["communicators"][1]];
        assert_eq!((&first["communicator"], &first["name"]), (&"00000000000000ab".into(), &"dp".into()));
        assert_eq!((&first["queued"], &first["finished"], &first["ranks"]), (&5.into(), &3.into(), &4.into()));
        let reported = first["outstanding"].as_array().unwrap();
        let numbers: Vec<_> = reported.iter().map(|one| one["number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [3, 4]);
        assert_eq!((&reported[0]["age_ns"], &reported[0]["count"]), (&87_000_000_000_u64.into(), &64.into()));
        assert_eq!((&second["queued"], &second["finished"]), (&1.into(), &1.into()), "a copy has no kernel that ends");
    }
}
