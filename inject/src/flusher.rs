//! Makes CUPTI hand over what it has, again and again.
//!
//! CUPTI keeps a buffer until it is full. A live verdict, and a trace that survives `kill -9`, need the records
//! sooner, so one thread of our own flushes at a fixed period, and before that when much has come. Only this thread ever flushes: concurrent calls of
//! `cuptiActivityFlushAll` deadlock, and one from a callback is forbidden.
//!
//! A flush brings less than all that is complete. CUPTI keeps a buffer back while anything in it is not: a kernel that
//! runs or waits in a queue, a call that has not returned; and with it what else was recorded on that thread. So the
//! mark that goes to the collector, "everything before this time has come", is held at the time since when CUPTI has had
//! the oldest buffer that it still has.

use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use cupti_sys::Cupti;
use profiler_core::process_info::End;
use profiler_core::record::Timestamp;

use crate::capture::controller::Director;
use crate::capture::plan::Event;
use crate::cupti::other_tool::Company;
use crate::log;
use crate::message::{Delivery, Inlet, Order};
use crate::sys::{clock, threads};
use crate::utilization::UtilizationReader;

/// How long the last flush is waited for beyond its return while CUPTI still holds buffers: it may hand them over just
/// after that. Once in the life of a process, and only while something is missing.
const STRAGGLERS: Duration = Duration::from_millis(50);

/// A mark is held back so long for a buffer that CUPTI keeps: as long as the engine waits for a launch. Records that
/// come later are counted as late or as dropped. It bounds what a kernel that never ends does to the live verdict.
const WITHHELD_NANOS: u64 = 2_000_000_000;

/// Flushes until told to end. `over` is called once, when measuring has come to its end by itself.
pub fn run(
    cupti: &'static Cupti,
    period: Duration,
    orders: &Receiver<Order>,
    director: &Director,
    inlet: &Inlet,
    over: impl FnOnce(),
) {
    // A buffer may arrive a moment after the flush that released it has returned, so a flush only vouches for what
    // the one before it had left nowhere else.
    inlet.meters.add_this_thread();
    inlet.set_flusher(threads::thread_id());
    let mut vouched = clock::now(cupti);
    let mut flushed_at = vouched;
    let mut marked = Timestamp::ZERO;
    let mut dropped_by_cupti = 0;
    let (mut complained, mut uncounted) = (false, false);
    let mut over = Some(over);
    let mut gauges = UtilizationReader::new();
    let mut company = Company::default();
    loop {
        log::write_waiting();
        let stopping = match orders.recv_timeout(director.wait(period)) {
            Err(RecvTimeoutError::Timeout) | Ok(Order::Look) => false,
            Ok(Order::Lower(mode)) => {
                director.lower(mode);
                false
            }
            Ok(Order::Nodes) => {
                director.record_nodes();
                false
            }
            Ok(Order::Finish) | Err(RecvTimeoutError::Disconnected) => true,
            Ok(Order::ShutDown) => {
                director.switch_off();
                true
            }
        };
        if !stopping {
            director.event(Event::Tick);
            if director.settle(&mut company)
                && let Some(over) = over.take()
            {
                over();
            }
            if !director.is_on() && !director.is_draining() {
                gauges.pause();
                // Nothing is recorded, so CUPTI has nothing to hand over; what the program says by itself goes on.
                // No mark goes out, so none has to be kept; but the first buffer of the next capture is not to seem old.
                cupti_sys::mark_lent(clock::now(cupti).nanos());
                let looks = inlet.outbox.take(Timestamp::ZERO);
                let _ = inlet.deliveries.try_send(Delivery::Looks(looks));
                let _ = inlet.deliveries.try_send(Delivery::Idle);
                continue;
            }
        }
        if director.is_watching() && !stopping {
            // Refused only when the collector is far behind; the next reading has the totals.
            gauges.tick(|reading| {
                let _ = inlet.deliveries.try_send(Delivery::Gauges(reading));
            });
        }
        let at = clock::now(cupti);
        cupti_sys::mark_lent(at.nanos());
        // Before CUDA is up calls have no records, so silence would say nothing.
        if inlet.has_delivered() && director.look_around(&mut company, at) {
            inlet.give_up(cupti_sys::forget_lent());
        }
        if director.may_have_recorded() {
            inlet.unflushed.begin_flush();
            let mut flushed = cupti.flush(false);
            if stopping {
                // Forced: kernels that still run come without an end, and never again. Only right when nobody waits for it.
                flushed = flushed.and(cupti.flush(true));
                wait_for_stragglers();
            }
            inlet.unflushed.end_flush();
            // At exit the driver may be gone already, which is normal.
            if let Err(error) = flushed
                && !stopping
                && !complained
            {
                log::warning!("{error}; records arrive only as buffers fill up");
                complained = true;
            }
            match cupti.dropped_records() {
                Ok(dropped) => dropped_by_cupti += dropped,
                Err(error) if !stopping && !uncounted => {
                    log::warning!("{error}; records that CUPTI drops are not counted");
                    uncounted = true;
                }
                Err(_) => {}
            }
        }
        let before = std::mem::replace(&mut vouched, left_nothing_before(at, cupti_sys::oldest_lent()));
        let previous = std::mem::replace(&mut flushed_at, at);
        let (looks, delivery) = if stopping {
            (inlet.outbox.close(), Delivery::Finish { at: clock::now(cupti), end: End::Clean, dropped_by_cupti })
        } else {
            marked = marked.max(before);
            if before < previous {
                log::debug!("CUPTI keeps records back that it has had for {} ns", previous.since(before));
            }
            (inlet.outbox.take(marked), Delivery::Flushed { before: marked, dropped_by_cupti })
        };
        if inlet.deliveries.send(Delivery::Looks(looks)).is_err()
            || inlet.deliveries.send(delivery).is_err()
            || stopping
        {
            return;
        }
    }
}

/// What was complete before this time is not with CUPTI any more, after a flush that began `at` and left a buffer with
/// it that it has had since `oldest`.
fn left_nothing_before(at: Timestamp, oldest: Option<u64>) -> Timestamp {
    let held = oldest.unwrap_or(u64::MAX).max(at.nanos().saturating_sub(WITHHELD_NANOS));
    at.min(Timestamp::from_nanos(held))
}

fn wait_for_stragglers() {
    let begun = Instant::now();
    while cupti_sys::lent_buffers() > 0 && begun.elapsed() < STRAGGLERS {
        thread::sleep(Duration::from_millis(1));
    }
    log::debug!("{} buffers are with CUPTI after the last flush", cupti_sys::lent_buffers());
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
