//! The thread that turns buffers into a trace and a verdict.
//!
//! One thread owns everything that grows: dictionary, attributor, trace. Nothing it does can hold up the host: the
//! callbacks only ever put a buffer into a channel. When the disk is full or the trace cannot be written the verdict
//! goes on; when this thread dies, buffers are dropped and counted.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use cupti_sys::{CompletedBuffer, Cupti};
use profiler_core::attribution::Attributor;
use profiler_core::record::{HostSample, Loss, Record, StackId, Timestamp};
use profiler_core::report::Report;
use profiler_core::session::{End, Session};
use profiler_core::trace::TraceWriter;

use crate::activity::{Delivery, Inlet};
use crate::decode::{Decoded, Decoder};
use crate::flusher;
use crate::log;
use crate::nvtx;
use crate::output;
use crate::raw::RawRecording;
use crate::sampler::{Batch, Stacks, Tally};
use crate::settings::{self, Settings};

/// When one part in so many of all buffers waits to be decoded, the collector is falling behind.
const BACKLOG_PARTS: usize = 4;

/// What the run came to.
#[derive(Debug)]
pub struct Outcome {
    /// The report.
    pub report: Report,
    /// The trace file, if one was written.
    pub trace: Option<PathBuf>,
}

/// Everything the thread owns.
pub struct Collector {
    cupti: &'static Cupti,
    inlet: Arc<Inlet>,
    decoder: Decoder,
    ranges: nvtx::Drain,
    stacks: Stacks,
    tally: Tally,
    attributor: Attributor,
    trace: Trace,
    raw: Option<RawRecording>,
    session: Session,
    loss: Loss,
    live: Option<Live>,
    what_if_stopped: bool,
    foreign_buffers_said: bool,
}

/// The trace file's states.
enum Trace {
    /// No record yet: a process that only looks at the GPU leaves no file.
    Waiting(PathBuf),
    /// Being written.
    Open(Box<TraceWriter<File>>, PathBuf),
    /// Switched off, or given up after an error that was reported.
    Off,
}

/// When the next live line is due, on the clock of the records, so that a replay prints the same lines.
#[derive(Debug)]
struct Live {
    interval: Duration,
    next: Timestamp,
}

impl Collector {
    /// A collector for this process.
    pub fn new(cupti: &'static Cupti, settings: &Settings, session: Session, inlet: Arc<Inlet>) -> Self {
        let raw = settings.record.as_ref().and_then(|pattern| {
            let path = pattern.expand(session.process_id, &session.host);
            RawRecording::create(path, settings.record_limit, cupti, &inlet.sizes, &session)
        });
        Self {
            cupti,
            inlet,
            decoder: Decoder::new(cupti),
            ranges: nvtx::Drain::default(),
            stacks: Stacks::new(),
            tally: Tally::default(),
            attributor: Attributor::new(),
            trace: settings.output.as_ref().map_or(Trace::Off, |pattern| {
                let path = pattern.expand(session.process_id, &session.host);
                // Where the program stood when it started; it may have gone elsewhere by its first kernel.
                Trace::Waiting(std::path::absolute(&path).unwrap_or(path))
            }),
            raw,
            loss: Loss::default(),
            live: settings.live.map(|interval| Live { interval, next: after(session.start, interval) }),
            session,
            what_if_stopped: false,
            foreign_buffers_said: false,
        }
    }

    /// Takes deliveries until the last one.
    pub fn run(mut self, deliveries: &Receiver<Delivery>, outcome: &Sender<Outcome>) {
        for delivery in deliveries {
            match delivery {
                Delivery::Buffer(buffer) => self.buffer(buffer),
                Delivery::Looks(batch) => self.looks(&batch),
                Delivery::Ranges => self.ranges(flusher::wall_clock()),
                Delivery::Flushed { before, dropped_by_cupti } => self.flushed(before, dropped_by_cupti),
                Delivery::Finish { at, end, dropped_by_cupti } => {
                    let _ = outcome.send(self.finish(at, end, dropped_by_cupti));
                    return;
                }
            }
        }
    }

    fn buffer(&mut self, buffer: CompletedBuffer) {
        if let Some(raw) = &mut self.raw {
            raw.buffer(&buffer, &self.inlet.sizes, flusher::now(self.cupti));
        }
        let inlet = Arc::clone(&self.inlet);
        let mut records = buffer.records(&inlet.sizes);
        for record in &mut records {
            match self.decoder.decode(record) {
                Decoded::Record(record) => {
                    if let Record::Api(call) = &record {
                        self.tally.count(call.thread);
                    }
                    self.attributor.push(&record, self.decoder.dictionary());
                    if let Trace::Waiting(path) = &mut self.trace {
                        self.trace = open(std::mem::take(path), &self.session);
                    }
                    self.write(|trace, decoder| trace.push(&record, decoder.dictionary()));
                }
                Decoded::Description => {}
                Decoded::Unknown => self.loss.unknown_kinds += 1,
            }
        }
        if let Some(broken) = records.remainder() {
            self.loss.broken_buffers += 1;
            self.loss.broken_bytes += broken.bytes as u64;
        }
        self.inlet.pool.put(buffer.into_buffer());
        self.ranges(flusher::wall_clock());
    }

    /// Takes over the program's ranges and marks up to now. They begin no trace: until there is a record from CUPTI
    /// they stay where they are.
    fn ranges(&mut self, until: Timestamp) {
        if matches!(self.trace, Trace::Waiting(_)) {
            return;
        }
        for event in self.ranges.events(until, self.decoder.dictionary_mut()) {
            let record = Record::Range(event);
            self.attributor.push(&record, self.decoder.dictionary());
            self.trace.write(|trace| trace.push(&record, self.decoder.dictionary()));
        }
    }

    fn looks(&mut self, batch: &Batch) {
        self.loss.failed_samples += batch.failed;
        for look in &batch.looks {
            let stack = self.stacks.intern(&look.frames, self.decoder.dictionary_mut());
            self.loss.failed_samples += u64::from(stack.is_none());
            let record = Record::Sample(HostSample { stack: stack.unwrap_or(StackId::NONE), ..look.sample });
            self.attributor.push(&record, self.decoder.dictionary());
            // Looks alone open no trace: that takes something of the GPU.
            self.trace.write(|trace| trace.push(&record, self.decoder.dictionary()));
        }
    }

    fn flushed(&mut self, before: Timestamp, dropped_by_cupti: u64) {
        // Before the mark, which vouches for the ranges too. What a thread is just writing down is later than it.
        self.ranges(flusher::wall_clock());
        self.count_loss(dropped_by_cupti);
        self.tally.publish(&self.inlet.launchers);
        self.attributor.flushed(before, self.decoder.dictionary());
        self.keep_up();
        let loss = self.loss;
        self.write(|trace, decoder| trace.flush(before, &loss, decoder.dictionary()));
        if let Some(raw) = &mut self.raw {
            raw.flushed(before, dropped_by_cupti);
        }
        let due = self.live.as_ref().is_some_and(|live| before >= live.next);
        if due {
            let line = self.make_report(End::Abrupt).live_line();
            log::print(&format!("{line}\n"));
            if let Some(live) = &mut self.live {
                live.next = after(before, live.interval);
            }
        }
    }

    fn finish(mut self, at: Timestamp, end: End, dropped_by_cupti: u64) -> Outcome {
        self.ranges(Timestamp::from_nanos(u64::MAX));
        self.count_loss(dropped_by_cupti);
        if end == End::TimedOut {
            self.loss.undelivered_buffers = self.inlet.pool.in_use() as u64;
        }
        self.attributor.finish(at, self.decoder.dictionary());
        if let Some(raw) = &mut self.raw {
            raw.flushed(at, dropped_by_cupti);
            raw.end();
        }
        let report = self.make_report(end);
        let mut path = None;
        if let Trace::Open(trace, file) = std::mem::replace(&mut self.trace, Trace::Off) {
            if let Err(error) = trace.finish(end, at, &self.loss, self.decoder.dictionary()) {
                log::warning!("{}: {error}; the trace lacks its last part", file.display());
            } else if !file.exists() {
                log::warning!("{}: was removed while it was written; there is no trace", file.display());
            }
            path = Some(file);
        }
        Outcome { report, trace: path }
    }

    /// Sheds what can be made up for later before anything must be lost.
    fn keep_up(&mut self) {
        let backlog = self.inlet.deliveries.len();
        if !self.what_if_stopped && backlog * BACKLOG_PARTS > self.inlet.pool.limit() {
            self.what_if_stopped = true;
            self.attributor.stop_what_if();
            log::warning!(
                "{backlog} buffers of records wait: the what-if replay is left out here (`gpuprof report` makes it up from the trace)"
            );
        }
    }

    fn make_report(&self, end: End) -> Report {
        Report::new(&self.session, &self.attributor, self.decoder.dictionary(), &self.loss, end, Vec::new())
    }

    fn count_loss(&mut self, dropped_by_cupti: u64) {
        self.loss.dropped_by_cupti = self.loss.dropped_by_cupti.max(dropped_by_cupti);
        self.loss.dropped_by_gpuprof = self.inlet.dropped.load(Ordering::Relaxed);
        self.loss.dropped_ranges = nvtx::dropped();
        let foreign = self.inlet.foreign_bytes.swap(0, Ordering::Relaxed);
        if foreign > 0 && !self.foreign_buffers_said {
            self.foreign_buffers_said = true;
            log::warning!(
                "another profiler's activity buffers come to gpuprof: its records are left alone, and some of ours may \
                 have gone to it; run the two apart"
            );
        }
    }

    /// Writes to the trace if there is one; gives it up at the first error, with a line that says so.
    fn write(&mut self, write: impl FnOnce(&mut TraceWriter<File>, &Decoder) -> std::io::Result<()>) {
        self.trace.write(|trace| write(trace, &self.decoder));
    }
}

impl Trace {
    fn write(&mut self, write: impl FnOnce(&mut TraceWriter<File>) -> std::io::Result<()>) {
        let Self::Open(trace, path) = self else { return };
        if let Err(error) = write(trace) {
            log::warning!("{}: {error}; the trace ends here, the report goes on", path.display());
            *self = Self::Off;
        }
    }
}

fn open(path: PathBuf, session: &Session) -> Trace {
    let opened = output::create_new(path.clone()).and_then(|(file, path)| Ok((TraceWriter::new(file, session)?, path)));
    match opened {
        Ok((trace, path)) => {
            log::info!("writing {}", path.display());
            Trace::Open(Box::new(trace), path)
        }
        Err(error) => {
            log::warning!(
                "{}: {error}; no trace is written (set {} to a writable place)",
                path.display(),
                settings::OUTPUT
            );
            Trace::Off
        }
    }
}

fn after(time: Timestamp, interval: Duration) -> Timestamp {
    let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
    Timestamp::from_nanos(time.nanos().saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwritable_place_switches_the_trace_off() {
        let trace = open(PathBuf::from("/proc/no-such-folder/x.gpuprof"), &Session::default());
        assert!(matches!(trace, Trace::Off));
    }
}
