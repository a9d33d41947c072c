//! What was queued and is not finished, for whoever asks while the program stands still.
//!
//! Operations of a communicator are done in the order in which they were queued. So one that is done says that those
//! before it are, also if their kernels were not found.

use std::collections::VecDeque;

use super::{Collective, CollectiveEvent, Communicator, QueuedOperation, Way};
use crate::attribution::line_of;
use crate::dictionary::Dictionary;
use crate::json_text::Object;
use crate::record::{HostSample, NameId, Record, Timestamp};

/// Operations of a communicator that are kept, the newest.
const KEPT: usize = 1_024;
/// Communicators that are kept, and threads whose newest sample is.
const COMMUNICATORS: usize = 1_024;
const THREADS: usize = 64;
/// Communicators and operations of an answer.
const TOLD_COMMUNICATORS: usize = 64;
const TOLD_OPERATIONS: usize = 16;

/// A communicator and its operations.
#[derive(Clone, Debug)]
struct Tracked {
    known: Communicator,
    queued: u64,
    outstanding: VecDeque<(u64, QueuedOperation)>,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Pending {
    communicators: Vec<Tracked>,
    /// The newest sample of each thread.
    samples: Vec<HostSample>,
    newest_caller: Option<QueuedOperation>,
}

impl Pending {
    /// Takes an event.
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
                let Some(tracked) = tracked.filter(|_| operation.way != Way::Captured) else { return };
                if operation.way == Way::Kernel {
                    if tracked.outstanding.len() == KEPT {
                        tracked.outstanding.pop_front();
                    }
                    tracked.outstanding.push_back((tracked.queued, operation));
                }
                tracked.queued += 1;
            }
        }
    }

    /// Takes a record; samples of threads say where they are.
    #[inline]
    pub fn push(&mut self, record: &Record) {
        if let Record::Sample(sample) = record {
            match self.samples.iter().position(|known| known.thread == sample.thread) {
                Some(place) if self.samples[place].at <= sample.at => self.samples[place] = *sample,
                None if self.samples.len() < THREADS => self.samples.push(*sample),
                _ => {}
            }
        }
    }

    /// An operation is done.
    pub fn done(&mut self, row: &Collective) {
        let mut known = self.communicators.iter_mut();
        let Some(tracked) = known.find(|tracked| tracked.known.id == row.communicator) else { return };
        let is_it = |(_, operation): &(u64, QueuedOperation)| {
            (operation.function, operation.sequence) == (row.function, row.sequence)
        };
        if let Some(place) = tracked.outstanding.iter().position(is_it) {
            tracked.outstanding.drain(..=place);
        }
    }

    /// The fields of an answer to `hang`. `docs/guide/control.md` defines them.
    #[must_use]
    pub fn state(&self, now: Timestamp, dictionary: &Dictionary) -> Object {
        let mut told: Vec<&Tracked> = self.communicators.iter().collect();
        told.sort_by_key(|tracked| tracked.outstanding.is_empty());
        Object::new()
            .optional_text("line", self.line(dictionary).as_deref())
            .objects("communicators", told.into_iter().take(TOLD_COMMUNICATORS).map(|one| one.state(now, dictionary)))
    }

    /// Where the thread is that queued last.
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
        let operations = self.outstanding.iter().take(TOLD_OPERATIONS).map(|(number, operation)| {
            Object::new()
                .number("number", *number)
                .text("function", operation.function.name())
                .number("count", operation.count)
                .text("data_type", operation.data_type.name())
                .number("age_ns", now.since(operation.at))
        });
        Object::new()
            .text("communicator", &format!("{:016x}", self.known.id))
            .text("name", dictionary.name(self.known.name))
            .number("ranks", self.known.ranks.into())
            .number("queued", self.queued)
            .number("finished", first)
            .objects("outstanding", operations)
    }
}
