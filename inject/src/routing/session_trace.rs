//! The collector's side of a session: the records that belong to it, and the file that they are written to.
//!
//! A session's records are those of work launched between its start and end, found as for a capture
//! ([`Router`]). There is no report here: the program reads the file. An error of the file stops the writing
//! and is reported at the end; it affects no other part.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::{Event, EventScope, Sink};
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Loss, Timestamp};
use host_sampler::own::Own;
use profiler_core::attribution::Attributor;

use crate::routing::router::Router;

/// Time for which device work that is still running at the end of a session is awaited: as for a capture.
pub const DRAIN: Duration = Duration::from_secs(2);
/// Flush marks after which everything has arrived that was complete at the time of the request: the flush of
/// the first mark may already have been in progress.
const MARKS: u32 = 2;

/// A session in progress.
pub struct SessionTrace {
    router: Router,
    /// Only used to check for launched work that is still to arrive.
    attributor: Attributor,
    writer: Result<TraceWriter<Own<File>>, io::Error>,
    /// Loss counters at the start of the session.
    loss_before: Option<Loss>,
    /// Current loss counters.
    loss: Loss,
    /// Newest flush mark.
    mark: Timestamp,
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
    /// Creates a session that starts at `at`; `late` means that CUDA had a context before measuring began.
    /// Fails if the header cannot be written.
    pub fn new(file: File, session: &ProcessInfo, at: Timestamp, late: bool) -> io::Result<Self> {
        let mut attributor = Attributor::new();
        attributor.stop_what_if();
        let mut router = Router::default();
        router.calls_may_be_missing(late);
        router.begin(1, at);
        Ok(Self {
            router,
            attributor,
            writer: Ok(TraceWriter::new(Own::of_file(file)?, session)?),
            loss_before: None,
            loss: Loss::default(),
            mark: Timestamp::ZERO,
            flushes: Vec::new(),
            ending: None,
        })
    }

    /// Sets the loss counters at the start: earlier losses do not belong to the session.
    pub fn begin(&mut self, loss: &Loss) {
        self.loss_before = Some(*loss);
        self.loss = *loss;
    }

    /// Notifies `done` once everything that was complete at the time `at` is in the file.
    pub fn flush(&mut self, at: Timestamp, done: Sender<()>) {
        self.flushes.push(Flush { at, marks: 0, done });
    }

    /// Ends the session as of `at`.
    pub fn end(&mut self, at: Timestamp, done: Sender<Result<(), String>>) {
        self.router.end(1, at);
        self.ending = Some(Ending { at, asked: Instant::now(), marks: 0, done });
    }

    /// Handles a flush mark: everything that completed before `at` has arrived.
    fn flushed(&mut self, at: Timestamp, dictionary: &Dictionary) {
        self.router.flushed(at);
        self.store(dictionary);
        self.attributor.flushed(at, dictionary);
        let loss = self.own_loss();
        self.write(&loss.into(), dictionary);
        self.write(&Event::Flush(at), dictionary);
        self.flushes.retain_mut(|flush| {
            flush.marks += 1;
            let complete = flush.marks >= MARKS && at >= flush.at;
            if complete {
                // Fails if the receiver has stopped waiting.
                let _ = flush.done.send(());
            }
            !complete
        });
        if let Some(ending) = &mut self.ending {
            ending.marks += 1;
        }
        self.mark = at;
    }

    /// True if the session is over and its file can be finished, as of the newest flush mark.
    pub fn is_over(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| {
            let complete = ending.marks >= MARKS && self.mark >= ending.at;
            complete && (!self.attributor.awaits_work() || ending.asked.elapsed() > DRAIN)
        })
    }

    /// Writes the records that belong to the session.
    fn store(&mut self, dictionary: &Dictionary) {
        let Self { router, attributor, writer, .. } = self;
        router.hand_over(|_, event| {
            if let Event::Record(record) = event {
                attributor.push(record, dictionary);
            }
            write(writer, event, dictionary);
        });
    }

    fn write(&mut self, event: &Event, dictionary: &Dictionary) {
        write(&mut self.writer, event, dictionary);
    }

    /// Completes the file and notifies the waiting caller.
    pub fn finish(mut self, at: Timestamp, end: End, dictionary: &Dictionary) {
        self.router.conclude();
        self.store(dictionary);
        let loss = self.own_loss();
        let written = self.writer.and_then(|writer| writer.finish(end, at, &loss, dictionary));
        if let Some(ending) = self.ending {
            let _ = ending.done.send(written.map(drop).map_err(|error| error.to_string()));
        }
    }

    fn own_loss(&self) -> Loss {
        let since = self.loss_before.map_or(self.loss, |before| self.loss.since(&before));
        Loss { dropped_by_gpuwhy: since.dropped_by_gpuwhy + self.router.missed(), ..since }
    }
}

impl Sink for SessionTrace {
    /// Handles an event of any capture. Events about captures and about the complete run do not belong to the
    /// session.
    #[inline]
    fn event(&mut self, event: &Event, dictionary: &Dictionary) {
        match event {
            Event::Record(record) => {
                self.router.route(record);
                self.store(dictionary);
            }
            Event::Loss(loss) => self.loss = **loss,
            Event::Flush(at) => self.flushed(*at, dictionary),
            _ if event.scope() == EventScope::AllCaptures => self.write(event, dictionary),
            _ => {}
        }
    }
}

/// Writes a trace without records.
pub fn write_empty(file: File, session: &ProcessInfo, at: Timestamp) -> io::Result<()> {
    let writer = TraceWriter::new(Own::of_file(file)?, session)?;
    writer.finish(End::Clean, at, &Loss::default(), &Dictionary::default()).map(drop)
}

fn write(writer: &mut Result<TraceWriter<Own<File>>, io::Error>, event: &Event, dictionary: &Dictionary) {
    if let Ok(open) = writer
        && let Err(error) = open.event(event, dictionary)
    {
        *writer = Err(error);
    }
}
