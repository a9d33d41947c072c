//! The collector's side of a session: which records are its own, and the file that they go into.
//!
//! The records are those of what was launched between begin and end, found as those of a capture are
//! (`CaptureRouter`). Nothing is reported here: the program reads the file. An error of the file ends the writing and
//! is told at the end; it disturbs nobody else.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use host_sampler::own::Own;
use profiler_core::attribution::Attributor;
use profiler_core::dictionary::Dictionary;
use profiler_core::event::Event;
use profiler_core::process_info::{End, ProcessInfo};
use profiler_core::record::{Loss, Record, Timestamp};
use profiler_core::trace::TraceWriter;

use crate::collect::capture_router::CaptureRouter;

/// Device work that is still under way at the end of a session is waited for so long: as that of a capture.
pub const DRAIN: Duration = Duration::from_secs(2);
/// Flush marks after which everything has come that was complete when they were asked for: the flush of the first may
/// have been under way then.
const MARKS: u32 = 2;

/// A session that is being written.
pub struct SessionTrace {
    router: CaptureRouter,
    /// Only asked whether launched work is still to come.
    attributor: Attributor,
    writer: Result<TraceWriter<Own<File>>, io::Error>,
    /// Counters as they stood at the begin.
    loss_before: Option<Loss>,
    /// Records on their way; empty between calls.
    routed: Vec<Record>,
    flushes: Vec<Flush>,
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Flush {
    at: Timestamp,
    marks: u32,
    done: Sender<()>,
}

#[derive(Debug)]
struct Ending {
    at: Timestamp,
    asked: Instant,
    marks: u32,
    done: Sender<Result<(), String>>,
}

impl std::fmt::Debug for SessionTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionTrace").field("ending", &self.ending).finish_non_exhaustive()
    }
}

impl SessionTrace {
    /// A session that begins at `at`; `late` says that CUDA had a context before measuring began.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn new(file: File, session: &ProcessInfo, at: Timestamp, late: bool) -> io::Result<Self> {
        let mut attributor = Attributor::new();
        attributor.stop_what_if();
        let mut router = CaptureRouter::new(false);
        router.calls_may_be_missing(late);
        router.begin(1, at);
        Ok(Self {
            router,
            attributor,
            writer: Ok(TraceWriter::new(Own::of_file(file)?, session)?),
            loss_before: None,
            routed: Vec::new(),
            flushes: Vec::new(),
            ending: None,
        })
    }

    /// Takes an event; a record if it belongs to the session.
    pub fn event(&mut self, event: &Event, dictionary: &Dictionary) {
        if let Event::Record(record) = event {
            let routed = &mut self.routed;
            self.router.route(record, |_, record| routed.push(*record));
            self.store(dictionary);
        } else {
            write(&mut self.writer, |writer| writer.event(event, dictionary));
        }
    }

    fn store(&mut self, dictionary: &Dictionary) {
        for record in self.routed.drain(..) {
            self.attributor.push(&record, dictionary);
            write(&mut self.writer, |writer| writer.event(&Event::Record(record), dictionary));
        }
    }

    /// Counters as they stand at the begin: what was lost before is none of the session's.
    pub fn begin(&mut self, loss: &Loss) {
        self.loss_before = Some(*loss);
    }

    /// Answers `done` when everything that was complete `at` this time is in the file.
    pub fn flush(&mut self, at: Timestamp, done: Sender<()>) {
        self.flushes.push(Flush { at, marks: 0, done });
    }

    /// The session ends as of `at`.
    pub fn end(&mut self, at: Timestamp, done: Sender<Result<(), String>>) {
        self.router.end(1, at);
        self.ending = Some(Ending { at, asked: Instant::now(), marks: 0, done });
    }

    /// A flush mark. Answers whether the session is over and its file can be finished.
    pub fn flushed(&mut self, before: Timestamp, loss: &Loss, dictionary: &Dictionary) -> bool {
        let routed = &mut self.routed;
        self.router.flushed(before, |_, record| routed.push(*record));
        self.store(dictionary);
        self.attributor.flushed(before, dictionary);
        let loss = self.loss(loss);
        self.event(&Event::Loss(loss), dictionary);
        self.event(&Event::Flush(before), dictionary);
        self.flushes.retain_mut(|flush| {
            flush.marks += 1;
            let complete = flush.marks >= MARKS && before >= flush.at;
            if complete {
                // Refused when nobody waits any more.
                let _ = flush.done.send(());
            }
            !complete
        });
        let awaits_work = self.attributor.awaits_work();
        self.ending.as_mut().is_some_and(|ending| {
            ending.marks += 1;
            let complete = ending.marks >= MARKS && before >= ending.at;
            complete && (!awaits_work || ending.asked.elapsed() > DRAIN)
        })
    }

    /// Completes the file and tells whoever waits.
    pub fn finish(mut self, at: Timestamp, end: End, loss: &Loss, dictionary: &Dictionary) {
        let routed = &mut self.routed;
        self.router.conclude(|_, record| routed.push(*record));
        self.store(dictionary);
        let loss = self.loss(loss);
        let written = self.writer.and_then(|writer| writer.finish(end, at, &loss, dictionary));
        if let Some(ending) = self.ending {
            let _ = ending.done.send(written.map(drop).map_err(|error| error.to_string()));
        }
    }

    fn loss(&self, now: &Loss) -> Loss {
        let since = self.loss_before.map_or(*now, |before| now.since(&before));
        Loss { dropped_by_gpuwhy: since.dropped_by_gpuwhy + self.router.missed(), ..since }
    }
}

fn write(
    writer: &mut Result<TraceWriter<Own<File>>, io::Error>,
    write: impl FnOnce(&mut TraceWriter<Own<File>>) -> io::Result<()>,
) {
    if let Ok(open) = writer
        && let Err(error) = write(open)
    {
        *writer = Err(error);
    }
}
