//! Plays a trace as if it were live: feeds the engine from the file, and shows its results at the rate of the
//! run.
//!
//! The output is what `libprof.so` would have sent at that moment, made by the same code, so a playback shows
//! what a viewer would have seen.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use gpuwhy::Report;
use gpuwhy_import::{Observer, RunState, TraceFile};
use gpuwhy_report::capture::Captures;
use gpuwhy_report::state::Status;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event;
use gpuwhy_trace::json_text::Object;
use gpuwhy_trace::record::Timestamp;

use super::dashboard::Update;
use super::process::ProcessKey;
use super::source::SourceEvent;
use crate::control::connection::parsed;
use crate::interrupt;

/// Interval between checks for a pause and for the end.
const TICK: Duration = Duration::from_millis(20);

/// Controls of a playback.
#[derive(Clone, Debug, Default)]
pub struct Steering {
    /// True if the time is stopped.
    pub paused: Arc<AtomicBool>,
    /// True if the display has ended.
    pub stopped: Arc<AtomicBool>,
}

/// Plays a trace to its end. Fails when the file cannot be read.
pub fn play(
    trace: &Path,
    speed: f64,
    interval: Duration,
    events: Sender<SourceEvent>,
    steering: &Steering,
) -> Result<()> {
    let file = TraceFile::open(trace)?;
    let run = length(&file)?;
    let mut player = Player {
        trace: trace.to_owned(),
        speed,
        every: Duration::from_secs_f64(interval.as_secs_f64() * speed),
        run,
        events,
        steering: steering.clone(),
        begun: None,
        next: Timestamp::ZERO,
    };
    let stopped = Arc::clone(&steering.stopped);
    let report = file.observe(None, &mut player, &mut |_, _| {
        if stopped.load(Ordering::Relaxed) { std::ops::ControlFlow::Break(()) } else { interrupt::state() }
    });
    match report {
        Ok(report) => {
            player.pace(run.1);
            player.tell(run.1, &report, "finished");
            Ok(())
        }
        Err(error) if error.is_interrupted() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Last state of a trace, which [`play`] sends last. Fails when the file cannot be read.
pub fn end(trace: &Path) -> Result<SourceEvent> {
    let report = TraceFile::open(trace)?.report(None, &mut |_, _| interrupt::state())?;
    let (key, line) = line(trace, &report, "finished");
    Ok(SourceEvent::Answer(key, Box::new(parsed(&line)?)))
}

/// Times of the first and the last flush of a trace.
fn length(file: &TraceFile) -> Result<(Timestamp, Timestamp)> {
    let (mut first, mut last) = (None, Timestamp::ZERO);
    let passed = file.pass::<gpuwhy_import::OpenError>(&mut |_, _| interrupt::state(), |event, _| {
        if let event::Event::Flush(at) | event::Event::End(_, at) = *event {
            first.get_or_insert(at);
            last = last.max(at);
        }
        Ok(())
    })?;
    let begin = passed.session.start;
    Ok((first.map_or(begin, |first| if begin == Timestamp::ZERO { first } else { begin.min(first) }), last))
}

struct Player {
    trace: PathBuf,
    speed: f64,
    /// Interval between two states, in the time of the run.
    every: Duration,
    /// Start and end of the run.
    run: (Timestamp, Timestamp),
    events: Sender<SourceEvent>,
    steering: Steering,
    /// Start of the run on this clock.
    begun: Option<Instant>,
    /// When the next state is due, on the run's clock.
    next: Timestamp,
}

impl Observer for Player {
    fn begin(&mut self, _captures: &mut Captures) {}

    fn flushed(&mut self, at: Timestamp, seen: RunState<'_>) {
        if at < self.next || self.is_stopped() {
            return;
        }
        let every = u64::try_from(self.every.as_nanos()).unwrap_or(u64::MAX);
        self.next = Timestamp::from_nanos(at.nanos().saturating_add(every));
        let report = seen.report();
        self.pace(at);
        self.tell(at, &report, "capturing");
    }

    fn taken(&mut self, _captures: &mut Captures, _dictionary: &Dictionary, _is_last: bool) {}
}

impl Player {
    fn is_stopped(&self) -> bool {
        self.steering.stopped.load(Ordering::Relaxed) || interrupt::state().is_break()
    }

    /// Waits until the time `at` of the run, at its speed. Does not advance while the playback is paused.
    fn pace(&mut self, at: Timestamp) {
        let due = Duration::from_nanos(at.since(self.run.0)).div_f64(self.speed);
        let mut begun = *self.begun.get_or_insert_with(Instant::now);
        let mut now = Instant::now();
        while !self.is_stopped() {
            let paused = self.steering.paused.load(Ordering::Relaxed);
            if !paused && begun + due <= now {
                break;
            }
            thread::sleep(if paused { TICK } else { TICK.min(begun + due - now) });
            let later = Instant::now();
            if paused {
                begun += later - now;
            }
            now = later;
        }
        self.begun = Some(begun);
    }

    fn tell(&self, at: Timestamp, report: &Report, state: &str) {
        let (key, line) = line(&self.trace, report, state);
        let (from, to) = self.run;
        let played = Update::Played(at.since(from), to.since(from));
        let json = parsed(&line).map(|json| SourceEvent::Answer(key, Box::new(json)));
        // The receiver may be gone, which is detected elsewhere.
        let _ = self.events.send(SourceEvent::Update(played));
        if let Ok(event) = json {
            let _ = self.events.send(event);
        }
    }
}

/// Response that the process would have sent to `live`.
fn line(trace: &Path, report: &Report, state: &str) -> (ProcessKey, String) {
    let session = &report.process;
    let loss = &report.completeness.loss;
    let status = Status {
        pid: session.process_id.into(),
        command: session.command.join(" ").chars().take(200).collect(),
        state: state.to_owned(),
        captures: report.captures.rows.iter().map(|row| u64::from(row.number)).max().unwrap_or(1),
        bottleneck: report.bottleneck.cause.name().to_owned(),
        share: report.bottleneck.share,
        line: report.live_line(),
        kernels: report.completeness.kernels,
        lost: loss.dropped_by_cupti + loss.dropped_by_gpuwhy + loss.dropped_ranges,
        unobserved_ns: loss.unobserved_ns,
        trace: Some(trace.to_string_lossy().into_owned()),
        ..Status::default()
    };
    let key = ProcessKey { host: String::new(), process: session.process_id.to_string() };
    (key, Object::of_type("live").with(&status.object()).with(&report.live_state().object()).end())
}
