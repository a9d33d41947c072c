//! Plays a session to a client: delivers each record at its time, through the right buffer, on the right
//! thread.
//!
//! Buffers that the real library returned are returned again at their recorded time, with the same records in
//! the same order, on a worker thread of this library. A flush of the client also delivers, on the flushing
//! thread, the other records that were complete at the play clock, unless an incomplete record is in the same
//! buffer (`player/flush.rs`).
//!
//! At maximum speed play waits for a client without a free buffer, since the client only has to keep up with
//! real time. At a given speed its records are dropped and counted, as CUPTI does.

mod flush;
mod launches;

pub use launches::Launch;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cupti_sys::recording::GraphNode;
use cupti_sys::{CallbackSite, CuptiResult, Domain, Kind, ResourceCallback};

use crate::client::{BufferCallbacks, Client};
use crate::clock::{Clock, Speed};
use crate::corrupt::corrupt;
use crate::counters::Unit;
use crate::fault::{BufferFault, Faults, LATE, Phase};
use crate::ffi::{self, Worker};
use crate::filter::Filter;
use crate::layout;
use crate::loan::{self, Loan};
use crate::session::{Action, Item, Place, Session};
use crate::violation::{Rule, Violations};

/// Counts of the records by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counts {
    /// Records delivered.
    pub delivered: u64,
    /// Records of kinds or functions that the client had not enabled.
    pub left_out: u64,
    /// Records lost for lack of a buffer, here or in the recorded run.
    pub dropped: u64,
    /// Buffers returned, including empty ones.
    pub buffers: u64,
    /// Calls of `cuptiActivityFlushAll`.
    pub flushes: u64,
    /// Number of times that a requested fault was triggered.
    pub faults: u64,
}

/// A session, its client, and the state of play.
#[derive(Debug)]
pub struct Player {
    /// The session to play.
    pub session: Session,
    /// The play clock.
    pub clock: Clock,
    /// The client's settings. Never locked while a callback runs.
    pub client: Mutex<Client>,
    /// Violations by the client.
    pub violations: Violations,
    /// Injected faults.
    pub faults: Faults,
    /// Hardware counters.
    pub unit: Unit,
    /// Locked while records are delivered, including callbacks. Functions that a callback may call do not
    /// lock it.
    delivery: Mutex<Delivery>,
    flushing: AtomicU32,
    /// True once a buffer was requested.
    begun: AtomicBool,
    /// Dropped records that the client has not queried yet.
    unreported: AtomicUsize,
}

#[derive(Debug)]
struct Delivery {
    next_step: usize,
    /// For each item, true if it was delivered, left out, or dropped.
    done: Vec<bool>,
    /// Number of items, in the order of creation, that a flush has examined.
    begun: usize,
    /// The buffer that records are written to.
    open: Option<Loan>,
    /// Number of flushes since play stopped; `None` during play.
    paused: Option<u32>,
    /// Buffers that a flush has taken out of use and could not return.
    withheld: Vec<flush::Withheld>,
    worker: Option<Worker>,
    counts: Counts,
}

/// Thread that returns a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Worker,
    Caller,
}

/// True if an item is a node of a graph and the client has enabled records of complete graphs.
fn as_whole(filter: &Filter, item: &Item) -> bool {
    item.graph != Place::Outside && filter.wants(Kind::GRAPH_TRACE.0, None, item.decided)
}

impl Player {
    /// Ready to play from the start.
    #[must_use]
    pub fn new(session: Session, speed: Speed, faults: Faults) -> Self {
        let delivery = Delivery {
            next_step: 0,
            done: vec![false; session.items().len()],
            begun: 0,
            open: None,
            paused: Some(0),
            withheld: Vec::new(),
            worker: None,
            counts: Counts::default(),
        };
        Self {
            clock: Clock::new(speed, session.origin.start, session.end()),
            session,
            client: Mutex::default(),
            violations: Violations::default(),
            faults,
            unit: Unit::default(),
            delivery: Mutex::new(delivery),
            flushing: AtomicU32::new(0),
            begun: AtomicBool::new(false),
            unreported: AtomicUsize::new(0),
        }
    }

    /// The client's settings.
    pub fn client(&self) -> MutexGuard<'_, Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts of the records by their outcome.
    pub fn counts(&self) -> Counts {
        Counts { faults: self.faults.struck(), ..self.delivery().counts }
    }

    /// True if the client wants any record now.
    pub fn records(&self) -> bool {
        !self.client().filter.is_idle(self.clock.now())
    }

    /// True once the first buffer was requested: too late for some attributes.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Number of dropped records since the last call.
    pub fn take_dropped(&self) -> usize {
        self.unreported.swap(0, Ordering::SeqCst)
    }

    /// Plays all steps up to `until`, in nanoseconds on the recording's clock; returns when that is done.
    ///
    /// Another call continues from there. Must not be called from a callback.
    pub fn play(&self, until: u64) {
        self.faults.enter(Phase::Running);
        if self.delivery().next_step == 0 {
            self.announce();
        }
        loop {
            let next = {
                let mut delivery = self.delivery();
                let next = delivery.next_step;
                delivery.paused = None;
                self.request_ahead(&mut delivery);
                self.clock.allow(self.session.steps().get(next).map_or(u64::MAX, |step| step.at).min(until));
                self.clock.begin();
                next
            };
            let Some(step) = self.session.steps().get(next).filter(|step| step.at <= until) else { break };
            if let Some(behind) = self.clock.reading_time() {
                self.unit.wait_for_samplers(step.at.saturating_sub(self.session.origin.start), behind);
            }
            self.clock.wait_until(step.at);
            let mut delivery = self.delivery();
            delivery.next_step = next + 1;
            match &step.action {
                Action::Deliver { items, context, stream } => {
                    self.deliver(&mut delivery, items.clone(), *context, *stream);
                }
                Action::Dropped(records) => self.drop_records(&mut delivery, *records),
                Action::GraphNode(node) => {
                    drop(delivery);
                    self.tell_node(node);
                }
                // The client flushes on its own schedule; the records of the recorded flush are delivered in
                // the following steps.
                Action::Flush => {}
            }
        }
        self.clock.wait_until(until.min(self.session.end()));
        self.delivery().paused = Some(0);
        self.faults.enter(Phase::Finish);
    }

    /// Calls an API function as the program would, on this thread: a runtime function calls the driver
    /// function with the same name, as the real ones do. The subscriber is notified of the calls that it has
    /// enabled; no record is written. Returns true if the recording knows the name.
    pub fn call(&self, name: &str) -> bool {
        let Some(function) = self.session.function(name) else { return false };
        let nested = name.strip_prefix("cuda").and_then(|rest| self.session.function(&format!("cu{rest}")));
        self.tell_call(function, CallbackSite::ENTER);
        if let Some(nested) = nested {
            self.tell_call(nested, CallbackSite::ENTER);
            self.tell_call(nested, CallbackSite::EXIT);
        }
        self.tell_call(function, CallbackSite::EXIT);
        true
    }

    /// Calls a driver function on a thread that has no part in the recording, such as one of the client's. If
    /// its calls are recorded, the record takes a buffer of this thread, which is returned at once.
    pub fn call_aside(&self, name: &str) {
        let function = self.session.function(name).filter(|&(domain, _)| Domain(domain) == Domain::DRIVER);
        let Some((_, id)) = function else { return };
        let now = self.clock.now();
        let buffers = {
            let client = self.client();
            client.buffers.filter(|_| client.filter.wants(Kind::DRIVER.0, Some(id), now))
        };
        let Some(buffers) = buffers else { return };
        let mut delivery = self.delivery();
        let in_use = delivery.open.take();
        delivery.open = self.request(&delivery, buffers, false);
        let written =
            delivery.open.as_mut().is_some_and(|own| own.write(&layout::driver_call(id, now, ffi::thread_id())));
        self.hand_over(&mut delivery, By::Worker, 0, 0);
        delivery.open = in_use;
        delivery.counts.delivered += u64::from(written);
    }

    fn tell_call(&self, (domain, id): (u32, u32), site: CallbackSite) {
        let listener = self.client().listener(Domain(domain), id);
        if let Some(subscriber) = listener {
            ffi::tell_api(&subscriber, Domain(domain), id, site);
        }
    }

    /// `cuptiActivityFlushAll`.
    ///
    /// # Errors
    /// [`CuptiResult::INVALID_OPERATION`] from inside a callback, where the real library deadlocks.
    pub fn flush(&self, forced: bool) -> Result<(), CuptiResult> {
        if let Some(callback) = ffi::callback_on_this_thread() {
            self.violations.note(Rule::FlushInCallback, || format!("from {callback}"));
            return Err(CuptiResult::INVALID_OPERATION);
        }
        if self.flushing.fetch_add(1, Ordering::SeqCst) > 0 {
            self.violations.note(Rule::ConcurrentFlush, || {
                format!("thread {:?} came second", std::thread::current().name().unwrap_or("without a name"))
            });
        }
        self.flush_alone(&mut self.delivery(), forced);
        self.flushing.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    /// A forced flush of another tool. It runs after a flush of the client.
    pub fn flush_of_another_tool(&self) {
        self.flush_alone(&mut self.delivery(), true);
    }

    /// Notifies the subscriber of the events that precede the first record.
    fn announce(&self) {
        let tell = |id: ResourceCallback, context: Option<u32>, graph: Option<u32>| {
            let listener = self.client().listener(Domain::RESOURCE, id.0);
            if let Some(subscriber) = listener {
                ffi::tell_resource(&subscriber, id, context, graph);
            }
        };
        for context in self.session.contexts() {
            tell(ResourceCallback::CONTEXT_CREATED, Some(context), None);
        }
        // A recording does not contain the time when graphs were instantiated. These nodes have no ids: it names
        // them itself if it knows them.
        for (graph, nodes) in self.session.graphs() {
            for _ in 0..nodes {
                tell(ResourceCallback::GRAPHNODE_CLONED, None, None);
            }
            tell(ResourceCallback::GRAPHEXEC_CREATED, None, Some(graph));
        }
    }

    /// Notifies the subscriber of a node, on this thread, as the program does while it captures.
    fn tell_node(&self, node: &GraphNode) {
        let id = if node.is_copy { ResourceCallback::GRAPHNODE_CLONED } else { ResourceCallback::GRAPHNODE_CREATED };
        let listener = self.client().listener(Domain::RESOURCE, id.0);
        if let Some(subscriber) = listener {
            ffi::tell_node(&subscriber, id, node.node, node.original);
        }
    }

    fn deliver(&self, delivery: &mut Delivery, items: Range<usize>, context: u64, stream: u32) {
        self.release_complete(delivery);
        let filter = self.client().filter.clone();
        let wanted: Vec<usize> = items.filter(|&index| self.claim(delivery, &filter, index)).collect();
        // Records that have begun and are delivered later are in another buffer, which the library has held
        // all along.
        let in_use = if self.is_in_use(delivery) { delivery.open.take() } else { None };
        for index in wanted {
            self.put(delivery, index, false);
        }
        if delivery.open.as_ref().is_some_and(|open| !open.is_empty()) {
            self.hand_over(delivery, By::Worker, context, stream);
        }
        delivery.open = in_use.or(delivery.open.take());
        self.request_ahead(delivery);
    }

    /// Claims a record. Returns true if it is wanted and was not claimed before.
    fn claim(&self, delivery: &mut Delivery, filter: &Filter, index: usize) -> bool {
        let Some(item) = self.session.items().get(index) else { return false };
        match delivery.done.get_mut(index) {
            Some(done) if !*done => *done = true,
            _ => return false,
        }
        let wanted = match as_whole(filter, item) {
            // The record of this node represents the others.
            true => matches!(item.graph, Place::Last(_)),
            false => filter.wants(item.kind, item.function, item.decided),
        };
        delivery.counts.left_out += u64::from(!wanted);
        wanted
    }

    /// Writes a claimed record. `running` leaves out its end.
    fn put(&self, delivery: &mut Delivery, index: usize, running: bool) {
        let Some(mut item) = self.session.items().get(index) else { return };
        if let Some(whole) = self.session.whole_graph(item) {
            let asked_for = as_whole(&self.client().filter, item);
            item = if asked_for { whole } else { item };
        }
        let mut record = Cow::Borrowed(self.session.bytes(item));
        if let (true, Some((_, end))) = (running, layout::times(item.kind)) {
            layout::put_u64(record.to_mut(), end, 0);
        }
        if let Some(fault) = self.faults.record() {
            corrupt(record.to_mut(), item.kind, fault, index as u64);
        }
        if self.write(delivery, &record) {
            delivery.counts.delivered += 1;
        } else {
            self.drop_records(delivery, 1);
        }
    }

    fn write(&self, delivery: &mut Delivery, record: &[u8]) -> bool {
        if let Some(open) = &mut delivery.open {
            if open.write(record) {
                return true;
            }
            if open.is_empty() {
                self.violations.note(Rule::SmallBuffer, || format!("a record of {} bytes does not fit", record.len()));
                self.hand_over(delivery, By::Worker, 0, 0);
                return false;
            }
        }
        let Some(buffers) = self.client().buffers else {
            self.violations.note(Rule::NoCallbacks, || format!("a record of {} bytes is lost", record.len()));
            return false;
        };
        // The next buffer is requested before the full one is returned, so the library briefly holds two; a
        // client with only one gets it back first.
        let next = self.request(delivery, buffers, false);
        self.hand_over(delivery, By::Worker, 0, 0);
        delivery.open = next.or_else(|| self.request(delivery, buffers, self.clock.is_patient()));
        let Some(open) = &mut delivery.open else { return false };
        if open.write(record) {
            return true;
        }
        self.violations.note(Rule::SmallBuffer, || format!("a record of {} bytes does not fit", record.len()));
        self.hand_over(delivery, By::Worker, 0, 0);
        false
    }

    /// Reacts to an enabled kind: during play the next record needs a buffer.
    pub fn enabled(&self) {
        let mut delivery = self.delivery();
        if delivery.next_step > 0 {
            self.request_ahead(&mut delivery);
        }
    }

    /// Requests a buffer; if `patient`, repeatedly.
    fn request(&self, delivery: &Delivery, buffers: BufferCallbacks, patient: bool) -> Option<Loan> {
        self.begun.store(true, Ordering::SeqCst);
        let terms = loan::Terms {
            open: delivery.open.as_ref(),
            zeroed: self.client().zeroed_buffers,
            version: self.session.origin.version,
            patient,
        };
        loan::request(buffers.requested, &terms, &self.violations)
    }

    fn hand_over(&self, delivery: &mut Delivery, by: By, context: u64, stream: u32) {
        let Some(loan) = delivery.open.take() else { return };
        let (address, size, valid) = loan.give_back(&self.violations);
        delivery.counts.buffers += 1;
        // If the callbacks were removed after the buffer was lent, the library keeps it forever, as CUPTI
        // does.
        let Some(buffers) = self.client().buffers else { return };
        let fault = self.faults.buffer();
        let valid = match fault {
            Some(BufferFault::Torn) => valid.saturating_sub(12),
            Some(BufferFault::Oversized) => size + 4096,
            _ => valid,
        };
        let job = |address, size, valid| ffi::Return {
            completed: buffers.completed,
            context,
            stream,
            returned: (address, size, valid),
        };
        match fault {
            Some(BufferFault::Never) => return,
            Some(BufferFault::Late) => return job(address, size, valid).run_after(LATE),
            Some(BufferFault::Nested) => self.interrupt(delivery, buffers, &job),
            _ => {}
        }
        let mut jobs = vec![job(address, size, valid)];
        match fault {
            Some(BufferFault::Twice) => jobs.push(job(address, size, valid)),
            Some(BufferFault::Foreign) => jobs.push(job(ffi::foreign_memory(), size, valid)),
            _ => {}
        }
        for job in jobs {
            match by {
                By::Caller => job.run(),
                By::Worker => delivery.worker.get_or_insert_with(Worker::start).run(job),
            }
        }
    }

    /// Calls the client in every other way just before its callback.
    fn interrupt(
        &self,
        delivery: &Delivery,
        buffers: BufferCallbacks,
        job: &impl Fn(*mut u8, usize, usize) -> ffi::Return,
    ) {
        ffi::in_callback("a callback within another", || {
            if let Some(loan) = self.request(delivery, buffers, false) {
                let (address, size, _) = loan.give_back(&self.violations);
                job(address, size, 0).run();
            }
            self.announce();
        });
    }

    fn drop_records(&self, delivery: &mut Delivery, records: u64) {
        delivery.counts.dropped += records;
        self.unreported.fetch_add(usize::try_from(records).unwrap_or(usize::MAX), Ordering::SeqCst);
    }

    fn delivery(&self) -> MutexGuard<'_, Delivery> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
