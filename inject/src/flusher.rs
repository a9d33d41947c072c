//! Makes CUPTI deliver its records periodically.
//!
//! CUPTI keeps a buffer until it is full. A live bottleneck, and a trace that survives `kill -9`, need the
//! records sooner, so one thread of this library flushes at a fixed period, and earlier if many records have
//! accumulated. Only this thread ever flushes: concurrent calls of `cuptiActivityFlushAll` deadlock, and a
//! call from a callback is forbidden.
//!
//! A flush does not deliver all completed records. CUPTI holds a buffer back while any record in it is
//! incomplete: a kernel that runs or waits in a queue, a call that has not returned; and with it the other
//! records of that thread. So the mark that goes to the collector, "everything before this time has arrived",
//! is limited by the time at which CUPTI got the oldest buffer that it still holds.

use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use cupti_sys::Cupti;
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::Timestamp;

use crate::capture::controller::CaptureController;
use crate::capture::plan::CaptureEvent;
use crate::counters::library_calls::STOP_TIMEOUT;
use crate::cupti::other_tool::OtherToolDetector;
use crate::log;
use crate::nvtx::{range_watch, submissions};
use crate::runtime::Profiler;
use crate::shared::{FlusherCommand, Message, Shared};
use crate::sys::{clock, threads};

/// Maximum wait after the last flush while CUPTI still holds buffers: it may deliver them just after the
/// flush returns. Once per process, and only while buffers are missing.
const STRAGGLERS: Duration = Duration::from_millis(50);

/// Maximum time by which a mark is held back for a buffer that CUPTI keeps: as long as the engine waits for a
/// launch. Records that come later are counted as late or as dropped. It bounds the effect of a kernel that
/// never ends on the live bottleneck.
const WITHHELD_NANOS: u64 = 2_000_000_000;

/// Flushes until it is stopped. `over` is called once, when measuring ends before that.
pub fn run(
    cupti: &'static Cupti,
    period: Duration,
    commands: &Receiver<FlusherCommand>,
    controller: &CaptureController,
    shared: &Shared,
    over: impl FnOnce(),
) {
    shared.set_flusher(threads::thread_id());
    let mut over = Some(over);
    let mut detector = OtherToolDetector::default();
    let mut flusher = Flusher::new(cupti, shared);
    let mut watch = submissions::Watch::default();
    loop {
        log::write_waiting();
        let stopping = execute(commands.recv_timeout(controller.wait(period)), controller);
        if !stopping {
            warn_of_missed_events(controller);
            controller.event(CaptureEvent::Tick);
            if let Some(on) = watch.change(Instant::now()) {
                controller.watch_submissions(on);
            }
            if controller.stop_if_done(&mut detector)
                && let Some(over) = over.take()
            {
                over();
            }
            if !controller.is_on() && !controller.is_draining() {
                flusher.idle();
                continue;
            }
        } else {
            stop_measuring_devices(shared);
        }
        let at = clock::now(cupti);
        cupti_sys::mark_lent(at.nanos());
        // Before CUDA is initialized calls have no records, so a missing request means nothing.
        if shared.has_delivered() && controller.check_other_tool(&mut detector, at) {
            shared.give_up(cupti_sys::forget_lent());
        }
        // Between bursts CUPTI has no records to deliver, and is left alone.
        let records = controller.makes_records() || controller.is_draining() || stopping;
        if controller.switch.may_have_recorded() && records {
            flusher.flush(stopping);
        }
        if !flusher.mark(at, records, stopping) || stopping {
            return;
        }
    }
}

/// Carries out a command. Returns true if the thread is to end.
fn execute(command: Result<FlusherCommand, RecvTimeoutError>, controller: &CaptureController) -> bool {
    match command {
        Err(RecvTimeoutError::Timeout) | Ok(FlusherCommand::FlushNow) => return false,
        Ok(FlusherCommand::LowerMode(mode)) => {
            controller.switch.lower(mode);
            return false;
        }
        Ok(FlusherCommand::RecordNodes) => {
            controller.switch.record_nodes();
            return false;
        }
        Ok(FlusherCommand::RecordFaults) => {
            controller.switch.record_faults();
            return false;
        }
        Ok(FlusherCommand::Finish) | Err(RecvTimeoutError::Disconnected) => {}
        Ok(FlusherCommand::ShutDown) => controller.switch_off(),
    }
    true
}

/// Ends the measurement of kernels and of counters, so that their last results come before the end.
fn stop_measuring_devices(shared: &Shared) {
    if let Some(kernels) = Profiler::installed().and_then(|profiler| profiler.kernels.as_ref()) {
        kernels.finish(&shared.messages);
    }
    if !shared.counters.stop(STOP_TIMEOUT) {
        tracing::debug!("the thread of the counters does not end");
    }
}

struct Flusher<'a> {
    cupti: &'static Cupti,
    shared: &'a Shared,
    /// Start of the last flush.
    flushed_at: Timestamp,
    /// CUPTI holds no record that was complete before this time. A buffer may arrive a moment after the flush
    /// that released it has returned, so the mark of a flush is the result of the previous one.
    complete_before: Timestamp,
    /// Newest mark sent; marks never decrease.
    marked: Timestamp,
    dropped_by_cupti: u64,
    flush_failed: bool,
    count_failed: bool,
}

impl<'a> Flusher<'a> {
    fn new(cupti: &'static Cupti, shared: &'a Shared) -> Self {
        let now = clock::now(cupti);
        Self {
            cupti,
            shared,
            flushed_at: now,
            complete_before: now,
            marked: Timestamp::ZERO,
            dropped_by_cupti: 0,
            flush_failed: false,
            count_failed: false,
        }
    }

    /// Called while recording is off, so CUPTI has no records; the program's own events are still delivered.
    /// No mark is sent, so none has to be kept; but the first buffer of the next capture must not seem old.
    fn idle(&self) {
        cupti_sys::mark_lent(clock::now(self.cupti).nanos());
        let samples = self.shared.sample_queue.take(Timestamp::ZERO);
        let _ = self.shared.messages.try_send(Message::Samples(samples));
        let _ = self.shared.messages.try_send(Message::Idle);
    }

    /// Makes CUPTI deliver its records, and reads the number it dropped.
    fn flush(&mut self, stopping: bool) {
        self.shared.unflushed.begin_flush();
        let mut flushed = self.cupti.flush(false);
        if stopping {
            // Forced: kernels that still run are delivered without an end, and never again. Only correct at
            // the end.
            flushed = flushed.and(self.cupti.flush(true));
            wait_for_stragglers();
        }
        self.shared.unflushed.end_flush();
        let dropped = self.cupti.dropped_records();
        self.dropped_by_cupti += dropped.as_ref().copied().unwrap_or(0);
        if stopping {
            return; // At exit the driver may be gone already, which is normal.
        }
        if let Err(error) = flushed
            && !std::mem::replace(&mut self.flush_failed, true)
        {
            tracing::warn!("{error}; records arrive only as buffers fill up");
        }
        if let Err(error) = dropped
            && !std::mem::replace(&mut self.count_failed, true)
        {
            tracing::warn!("{error}; records that CUPTI drops are not counted");
        }
    }

    /// Sends samples and the mark of a flush that started `at`, or the end. Returns true if the collector
    /// receives them.
    fn mark(&mut self, at: Timestamp, records: bool, stopping: bool) -> bool {
        let oldest = cupti_sys::oldest_lent().filter(|_| records);
        let before = std::mem::replace(&mut self.complete_before, left_nothing_before(at, oldest));
        let previous = std::mem::replace(&mut self.flushed_at, at);
        let dropped_by_cupti = self.dropped_by_cupti;
        let (samples, message) = if stopping {
            let at = clock::now(self.cupti);
            (self.shared.sample_queue.close(), Message::Finish { at, end: End::Clean, dropped_by_cupti })
        } else {
            self.marked = self.marked.max(before);
            if before < previous {
                tracing::debug!("CUPTI has held records back for {} ns", previous.since(before));
            }
            let before = self.marked;
            (self.shared.sample_queue.take(before), Message::Flushed { before, dropped_by_cupti })
        };
        let messages = &self.shared.messages;
        messages.send(Message::Samples(samples)).is_ok() && messages.send(message).is_ok()
    }
}

fn warn_of_missed_events(controller: &CaptureController) {
    let missed = controller.take_missed_events() + range_watch::take_missed();
    if missed > 0 {
        tracing::warn!("{missed} events of captures were ignored: another thread held a lock for too long");
    }
}

/// Time before which CUPTI holds no completed records, after a flush that started `at` and left a buffer that
/// CUPTI has had since `oldest`.
fn left_nothing_before(at: Timestamp, oldest: Option<u64>) -> Timestamp {
    let held = oldest.unwrap_or(u64::MAX).max(at.nanos().saturating_sub(WITHHELD_NANOS));
    at.min(Timestamp::from_nanos(held))
}

fn wait_for_stragglers() {
    let begun = Instant::now();
    while cupti_sys::lent_buffers() > 0 && begun.elapsed() < STRAGGLERS {
        thread::sleep(Duration::from_millis(1));
    }
    tracing::debug!("CUPTI still has {} buffers after the last flush", cupti_sys::lent_buffers());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_held_back_by_the_oldest_buffer_but_not_for_ever() {
        let at = Timestamp::from_nanos(10 * WITHHELD_NANOS);
        let mark = |oldest| left_nothing_before(at, oldest).nanos();
        assert_eq!(mark(None), at.nanos());
        assert_eq!(mark(Some(at.nanos())), at.nanos(), "lent after the flush began");
        assert_eq!(mark(Some(at.nanos() - 5)), at.nanos() - 5);
        assert_eq!([mark(Some(0)), mark(Some(at.nanos() - WITHHELD_NANOS))], [9 * WITHHELD_NANOS; 2]);
    }
}
