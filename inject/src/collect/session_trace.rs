//! The collector's side of a session: which records are its own, and the file that they go into.
//!
//! The records are those of what was launched between begin and end, found as those of a capture are
//! ([`Router`]). Nothing is reported here: the program reads the file. An error of the file ends the writing and
//! is told at the end; it disturbs nobody else.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::{Event, Sink};
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Loss, Timestamp};
use host_sampler::own::Own;
use profiler_core::attribution::Attributor;

use crate::collect::router::Router;

/// Device work that is still under way at the end of a session is waited for so long: as that of a capture.
pub const DRAIN: Duration = Duration::from_secs(2);
/// Flush marks after which everything has come that was complete when they were asked for: the flush of the first may
/// have been under way then.
const MARKS: u32 = 2;

/// A session that is being written.
pub struct SessionTrace {
    router: Router,
    /// Only asked whether launched work is still to come.
    attributor: Attributor,
    writer: Result<TraceWriter<Own<File>>, io::Error>,
    /// Counters as they stood at the begin.
    loss_before: Option<Loss>,
    /// Counters as they stand.
    loss: Loss,
    /// The newest flush mark.
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
    /// A session that begins at `at`; `late` says that CUDA had a context before measuring began. Fails when the header
    /// cannot be written.
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

    /// Counters as they stand at the begin: what was lost before is none of the session's.
    pub fn begin(&mut self, loss: &Loss) {
        self.loss_before = Some(*loss);
        self.loss = *loss;
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

    /// Everything that completed before `at` has come.
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
                // Refused when nobody waits any more.
                let _ = flush.done.send(());
            }
            !complete
        });
        if let Some(ending) = &mut self.ending {
            ending.marks += 1;
        }
        self.mark = at;
    }

    /// Whether the session is over and its file can be finished, as of the newest flush mark.
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

    /// Completes the file and tells whoever waits.
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
    /// Takes an event of whichever capture. What is said of captures and of the whole run is none of the session's.
    #[inline]
    fn event(&mut self, event: &Event, dictionary: &Dictionary) {
        match event {
            Event::Record(record) => {
                self.router.route(record);
                self.store(dictionary);
            }
            Event::Counters(_) | Event::Collective(_) => self.write(event, dictionary),
            Event::Loss(loss) => self.loss = **loss,
            Event::Flush(at) => self.flushed(*at, dictionary),
            _ => {}
        }
    }
}

fn write(writer: &mut Result<TraceWriter<Own<File>>, io::Error>, event: &Event, dictionary: &Dictionary) {
    if let Ok(open) = writer
        && let Err(error) = open.event(event, dictionary)
    {
        *writer = Err(error);
    }
}
