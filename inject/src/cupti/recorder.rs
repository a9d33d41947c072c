//! Switches activity records on and off, and reports those that are not available.
//!
//! Callbacks are registered before the first kind is enabled. A kind that this CUPTI or this machine refuses
//! becomes a note in the report, except for kernels, without which there is no report.
//!
//! Switching on may happen at the start of a capture, on an application thread in the middle of a CUDA call,
//! as in NVIDIA's injection sample. Only the flushing thread switches off: that may wait for a lock that such
//! a thread holds. [`toggle`](super::toggle) describes what happens when the two meet.

use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use cupti_sys::{CallbackSite, Cupti, Domain, Error, Kind, ResourceCallback, Subscriber, ThreadIdType};
use gpuwhy_report::cupti::Bug;
use gpuwhy_trace::cost::Mode;

use crate::cupti::kinds;
use crate::cupti::ownership::CuptiOwnership;
use crate::cupti::toggle::{SwitchOutcome, TracingSwitch};

/// Interval between two flushes that fetch leftover buffers, and their maximum number: a kernel that runs for
/// longer than a tenth of a second keeps its buffer in CUPTI.
const LEFTOVER_PERIOD: Duration = Duration::from_millis(2);
const MAX_LEFTOVER_BUFFERS: usize = 50;

/// Note if page faults cannot be recorded.
const NO_FAULTS: &str = "no page faults of managed memory";

/// Driver function whose record shows whether another tool has the buffers.
pub const PROBE_FUNCTION: &str = "cuDriverGetVersion";

/// What the libcupti of this process does wrong and what to do, if it has this bug.
pub fn sentence_of(bug: &Bug, cupti: &Cupti) -> Option<String> {
    let version = cupti.version().ok().filter(|&version| bug.is_in(version))?;
    Some(bug.sentence(version, &cupti.path().to_string_lossy()))
}

/// Configuration of CUPTI's records, and whether they are on.
#[derive(Debug)]
pub struct ActivityRecorder {
    cupti: &'static Cupti,
    ownership: CuptiOwnership,
    /// Kinds that have a cost: off until the first capture.
    kinds: Vec<Kind>,
    /// Those that only mode full records.
    full_kinds: Vec<Kind>,
    calls: [Calls; 2],
    /// True if graphs get their full speed back when it is switched off; see [`restore_speed`](Self::restore_speed).
    /// `Relaxed`: set before the switch is left.
    restores_speed: AtomicBool,
    /// A [`Mode`] as a number: the maximum that is recorded. `Relaxed`: written only on the flushing thread.
    level: AtomicU8,
    /// True if there are ever CUPTI records: not in a run that is only watched from its start.
    records: bool,
    /// True if a graph is a single record: from before CUDA starts until the mode steps down
    /// to watching, CUPTI is left to other tools, or measuring is over. `Relaxed`: written only on the
    /// flushing thread.
    whole_graphs: AtomicBool,
    /// Kinds that are never switched off.
    stays: Vec<Kind>,
    /// True if CUDA had a context before measuring: individually enabled API functions then make no records,
    /// and complete kinds are needed.
    late: bool,
    turn: TracingSwitch,
    /// Functions that allocate managed memory, and true once the program has called one. `SeqCst`, as the switch:
    /// [`enable`](Self::enable) sets the switch and reads this, [`record_faults`](Self::record_faults) reads the switch
    /// after this was set. One of them sees the other; else each could leave the page faults to the other.
    managed_calls: Vec<u32>,
    has_managed: AtomicBool,
    /// False under GPUWHY_MAX_OVERHEAD: nothing measures what page faults add to the cost.
    records_faults: bool,
}

/// API functions of a domain, enabled individually.
#[derive(Debug)]
struct Calls {
    domain: Domain,
    ids: Vec<u32>,
    /// Further functions, which only mode full records; empty in a run that did not start in it.
    rest: Vec<u32>,
    /// No function could be enabled individually, so all of the domain are recorded. `Relaxed`:
    /// [`TracingSwitch`] orders it.
    all: AtomicBool,
}

impl ActivityRecorder {
    /// Registers the callbacks and determines what to switch. Only one rarely called function per domain is
    /// on after this, and whole graphs if configured. `on_request` are kinds beyond the usual ones; those
    /// that `mode` adds are dropped when it is lowered; `late` means that CUDA has a context already;
    /// `records_faults` that page faults of managed memory are recorded. Also returns notes for the report. On
    /// failure the subscriber is released, since it would only keep other tools out.
    pub fn prepare(
        cupti: &'static Cupti,
        ownership: CuptiOwnership,
        mode: Mode,
        whole_graphs: bool,
        on_request: &[Kind],
        late: bool,
        records_faults: bool,
    ) -> Result<(Self, Vec<String>), Error> {
        let mut notes = Vec::new();
        let records = mode != Mode::Monitor;
        let old = sentence_of(&Bug::KERNELS_STAY_ON, cupti);
        if records {
            let threads = cupti.set_thread_id_type(ThreadIdType::SYSTEM);
            note(&mut notes, "thread ids of API calls are not the kernel's", threads);
            if let Err(error) = ownership.register() {
                ownership.give_back();
                return Err(error);
            }
            for domain in [Domain::RUNTIME, Domain::DRIVER] {
                enable_probe(cupti, domain);
            }
        }
        if records && cupti.can_name_graph_nodes() {
            // Also while waiting for a capture: the graphs that it will replay may be made before it.
            let reported = ownership.with(|subscriber| {
                subscriber.enable_resource(ResourceCallback::GRAPHNODE_CREATED)?;
                subscriber.enable_resource(ResourceCallback::GRAPHNODE_CLONED)
            });
            note(&mut notes, "the origins of nodes of CUDA graphs are unknown", reported.unwrap_or(Ok(())));
        }
        let calls = [Domain::RUNTIME, Domain::DRIVER].map(|domain| {
            let (wanted, others): (Vec<_>, Vec<_>) = api_functions(cupti, domain)
                .filter(|_| cupti.can_filter_api())
                .partition(|(_, name)| kinds::wants(name));
            let ids = |calls: Vec<(u32, String)>| calls.into_iter().map(|(id, _)| id).collect();
            // The call that detects other tools.
            let probe = others.iter().filter(|(_, name)| ownership.is_yielded() && name == PROBE_FUNCTION);
            let probe: Vec<_> = probe.map(|&(id, _)| id).collect();
            let rest = if mode == Mode::Full { ids(others) } else { Vec::new() };
            Calls { domain, ids: [ids(wanted), probe].concat(), rest, all: AtomicBool::new(false) }
        });
        // Only possible now: if it is enabled later, the next launch of a graph that was already instantiated
        // crashes the program (docs/design/overhead.md). So it stays on between captures too.
        let enabled = if whole_graphs { cupti.enable(Kind::GRAPH_TRACE) } else { Ok(()) };
        let whole_graphs = whole_graphs && enabled.is_ok();
        note(&mut notes, "CUDA graphs are recorded by nodes", enabled);
        if whole_graphs {
            // CUPTI reports the number of nodes only when a graph is instantiated.
            let reported = ownership.with(|subscriber| {
                subscriber.enable_resource(ResourceCallback::GRAPHNODE_CLONED)?;
                subscriber.enable_resource(ResourceCallback::GRAPHEXEC_CREATED)
            });
            note(&mut notes, "node counts of CUDA graphs are unknown", reported.unwrap_or(Ok(())));
        }
        let managed_calls = api_functions(cupti, Domain::DRIVER).filter(|(_, name)| kinds::allocates_managed(name));
        let managed_calls: Vec<_> = managed_calls.filter(|_| records).map(|(id, _)| id).collect();
        ownership.with(|subscriber| {
            for &id in &managed_calls {
                // Fails for none that this CUPTI can name.
                let _ = subscriber.enable_api(Domain::DRIVER, id);
            }
        });
        let switch = Self {
            cupti,
            ownership,
            kinds: kinds::KINDS.iter().chain(on_request).copied().collect(),
            whole_graphs: whole_graphs.into(),
            full_kinds: if mode == Mode::Full { on_request.to_vec() } else { Vec::new() },
            calls,
            restores_speed: AtomicBool::new(false),
            level: AtomicU8::new(mode as u8),
            records,
            stays: if old.is_some() { vec![Kind::CONCURRENT_KERNEL] } else { Vec::new() },
            late,
            turn: TracingSwitch::new(),
            managed_calls,
            has_managed: AtomicBool::new(false),
            records_faults,
        };
        Ok((switch, notes))
    }

    /// Enables the records that describe devices and contexts when CUDA or the context starts: for a program
    /// that is measured from then on. Returns notes for the report.
    pub fn describe(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for &kind in kinds::DESCRIPTIONS.iter().filter(|_| self.records) {
            note(&mut notes, &format!("no {kind} records"), self.cupti.enable(kind));
        }
        notes
    }

    /// True if recording is on, and stays on until [`leave`](Self::leave).
    pub fn is_on(&self) -> bool {
        self.turn.is_on()
    }

    /// True if no records are being made.
    pub fn is_off(&self) -> bool {
        self.turn.is_off()
    }

    /// Switches on, and returns notes for the report; also while another thread switches off. From any
    /// thread. Fails if kernels cannot be recorded. It is off then.
    pub fn on(&self) -> Result<SwitchOutcome<Vec<String>>, Error> {
        self.turn.on(|| self.enable())
    }

    /// Resumes recording after another tool has had the buffers. Only from the flushing thread, while it is
    /// on. Fails if another tool records, or if kernels cannot be recorded.
    pub fn regain(&self) -> Result<(), Error> {
        self.ownership.claim()?;
        // A buffer that the other tool lent in the meantime would take the first records.
        let _ = self.cupti.flush(false);
        self.enable().map(drop)
    }

    /// Ownership of CUPTI.
    pub fn ownership(&self) -> &CuptiOwnership {
        &self.ownership
    }

    /// True in mode monitor: on, but without CUPTI records.
    pub fn is_monitor(&self) -> bool {
        self.records_at_most(Mode::Monitor)
    }

    /// True if CUPTI may hold records of this library.
    pub fn may_have_recorded(&self) -> bool {
        self.records
    }

    /// True if all kinds can be switched off again.
    pub fn can_be_off(&self) -> bool {
        self.stays.is_empty()
    }

    /// From the next time on that it is switched off, kernel records go off twice: graphs that were instantiated while
    /// they were on get their full speed back only then (docs/design/overhead.md).
    pub fn restore_speed(&self) {
        self.restores_speed.store(true, Ordering::Relaxed);
    }

    /// True if a CUDA graph is a single record.
    pub fn has_whole_graphs(&self) -> bool {
        self.whole_graphs.load(Ordering::Relaxed)
    }

    fn records_at_most(&self, mode: Mode) -> bool {
        self.level.load(Ordering::Relaxed) <= mode as u8
    }

    /// Records less from now on. Only from the flushing thread. A kind that another thread is just switching
    /// on stays on until everything is switched off the next time.
    pub fn lower(&self, mode: Mode) {
        self.level.store(mode as u8, Ordering::Relaxed);
        if self.ownership.is_taken() {
            return;
        }
        // Disabling a function that was never on returns an error, which is expected.
        for Calls { domain, ids, rest, all } in &self.calls {
            let watching = mode == Mode::Monitor;
            for &id in rest.iter().chain(ids.iter().filter(|_| watching)) {
                let _ = self.cupti.disable_api(*domain, id);
            }
            if watching && all.load(Ordering::Relaxed) {
                let _ = self.cupti.disable(whole(*domain));
            }
        }
        if mode == Mode::Monitor {
            self.record_nodes();
        }
        let kinds = if mode == Mode::Monitor { &self.kinds } else { &self.full_kinds };
        let faults = self.fault_kind().filter(|_| mode == Mode::Monitor);
        for kind in kinds.iter().copied().filter(|kind| !self.stays.contains(kind)).chain(faults) {
            let _ = self.cupti.disable(kind);
        }
        self.restore_callbacks();
    }

    /// Records the nodes of CUDA graphs from now on. Only from the flushing thread. Irreversible: see
    /// [`prepare`](Self::prepare).
    pub fn record_nodes(&self) {
        // Only once: later, another tool may have it on.
        if self.whole_graphs.swap(false, Ordering::Relaxed) {
            let _ = self.cupti.disable(Kind::GRAPH_TRACE);
        }
    }

    /// True if this is the program's first allocation of managed memory: [`record_faults`](Self::record_faults) must
    /// follow.
    pub fn allocates_managed(&self, domain: Domain, id: u32) -> bool {
        let allocates = domain == Domain::DRIVER && self.managed_calls.contains(&id);
        allocates && !self.has_managed.swap(true, Ordering::SeqCst)
    }

    /// Records page faults of managed memory, unless recording is off: then it does when it is switched on. Only from
    /// the flushing thread.
    pub fn record_faults(&self) {
        if self.is_off() || self.is_monitor() || self.ownership.is_taken() {
            return;
        }
        if self.fault_kind().is_none() {
            tracing::warn!("{NO_FAULTS}: nothing measures their cost, which GPUWHY_MAX_OVERHEAD limits");
        } else if let Err(error) = self.cupti.enable_device_faults() {
            tracing::info!("{NO_FAULTS}: {error}");
        }
    }

    /// The kind of page faults, once the program has managed memory.
    fn fault_kind(&self) -> Option<Kind> {
        let records = self.records_faults && self.has_managed.load(Ordering::SeqCst);
        records.then_some(Kind::UNIFIED_MEMORY_COUNTER)
    }

    /// Releases the subscriber if CUPTI is left to other tools from now on, which expect nodes of CUDA
    /// graphs. Only from the flushing thread, while it is off.
    pub fn give_back_if_wanted(&self) {
        if !self.ownership.is_wanted() {
            return;
        }
        self.record_nodes();
        (0..MAX_LEFTOVER_BUFFERS).for_each(|_| self.fetch_leftover());
        // Otherwise a capture has started meanwhile, and this is repeated after it.
        if self.is_off() {
            self.ownership.leave();
            self.ownership.give_back();
        }
    }

    /// Fetches records that were still in progress when their kind was switched off, if CUPTI has a buffer of
    /// this library: the next tool that registers callbacks would get it. Repeat up to
    /// [`MAX_LEFTOVER_BUFFERS`] times.
    fn fetch_leftover(&self) {
        if cupti_sys::lent_buffers() > 0 {
            thread::sleep(LEFTOVER_PERIOD);
            let _ = self.cupti.flush(false);
        }
    }

    fn enable(&self) -> Result<Vec<String>, Error> {
        let mut notes = Vec::new();
        if self.is_monitor() {
            return Ok(notes);
        }
        self.ownership.claim()?;
        let full = !self.records_at_most(Mode::Light);
        for &kind in self.kinds.iter().filter(|kind| full || !self.full_kinds.contains(kind)) {
            match self.cupti.enable(kind) {
                Err(error) if kind == Kind::CONCURRENT_KERNEL => {
                    // The kinds enabled up to here would cost the program time without a use.
                    for &enabled in &self.kinds {
                        let _ = self.cupti.disable(enabled);
                    }
                    return Err(error);
                }
                result => note(&mut notes, &format!("no {kind} records"), result),
            }
        }
        if self.fault_kind().is_some() {
            note(&mut notes, NO_FAULTS, self.cupti.enable_device_faults());
        }
        for Calls { domain, ids, rest, all } in &self.calls {
            let in_vain = if self.late {
                Some("CUDA was used before measuring began")
            } else {
                self.ownership.was_shared().then_some("another tool may have used CUPTI")
            };
            let wanted = ids.iter().chain(rest.iter().filter(|_| full)).filter(|_| in_vain.is_none());
            let enabled = wanted.filter(|&&id| self.cupti.enable_api(*domain, id).is_ok()).count();
            all.store(enabled == 0, Ordering::Relaxed);
            if enabled == 0 {
                let kind = whole(*domain);
                let why = in_vain.unwrap_or("this CUPTI cannot select API calls");
                notes.push(format!("{why}: all {kind} calls are recorded, which costs more"));
                note(&mut notes, &format!("no {kind} records"), self.cupti.enable(kind));
            }
        }
        Ok(notes)
    }

    /// Called once no capture needs records: [`off`](Self::off) must follow. `false` if it is not on. Call it
    /// where no capture can start meanwhile.
    pub fn leave(&self) -> bool {
        self.turn.leave()
    }

    /// Switches off after [`leave`](Self::leave); only from the flushing thread. If a capture starts
    /// meanwhile, switches on again. Returns true if it is on. Fails if it had to be switched on again and
    /// kernels cannot be recorded.
    pub fn off(&self) -> Result<bool, Error> {
        let yielded = self.ownership.is_yielded();
        let lost = yielded && (self.ownership.is_taken() || self.ownership.answers() == Some(false));
        if lost {
            // The enabled kinds belong to another tool by now, which disables them.
            self.ownership.lose();
        }
        if lost || !self.records {
            return self.turn.off(iter::empty::<fn()>(), || self.enable().map(drop));
        }
        // Disabling a function that was never on returns an error, which is expected.
        let calls = self.calls.iter().flat_map(|Calls { domain, ids, rest, all }| {
            // The complete kind only if it was on: disabling it might also disable the one function that must
            // stay.
            let kind = all.load(Ordering::Relaxed).then(|| Recording::Kind(whole(*domain)));
            ids.iter().chain(rest).map(|&id| Recording::Call(*domain, id)).chain(kind)
        });
        let kinds = self.kinds.iter().copied().filter(|kind| !self.stays.contains(kind));
        let kinds = kinds.chain(self.fault_kind()).map(Recording::Kind);
        let again = [Recording::On(Kind::CONCURRENT_KERNEL), Recording::Kind(Kind::CONCURRENT_KERNEL)];
        let kinds = kinds.chain(again.into_iter().filter(|_| self.restores_speed.load(Ordering::Relaxed)));
        // Last of all: kernel records that are still on then belong to another tool.
        let last = iter::repeat_n(Recording::Rest, MAX_LEFTOVER_BUFFERS)
            .chain([Recording::CuptiOwnership])
            .filter(|_| yielded);
        let parts = calls.chain(kinds).chain(last).map(|part| {
            move || {
                let _ = match part {
                    Recording::Call(domain, id) => self.cupti.disable_api(domain, id),
                    Recording::Kind(kind) => self.cupti.disable(kind),
                    Recording::On(kind) => self.cupti.enable(kind),
                    Recording::Rest => return self.fetch_leftover(),
                    Recording::CuptiOwnership => return self.ownership.leave(),
                };
            }
        });
        let result = self.turn.off(parts, || self.enable().map(drop));
        self.restore_callbacks();
        result
    }

    /// Has CUPTI call back again for the functions whose records were disabled, such as those that start captures.
    fn restore_callbacks(&self) {
        // Fails for none that succeeded before.
        self.ownership.with(|subscriber| subscriber.restore_api());
    }
}

/// One item that can be switched off.
#[derive(Clone, Copy)]
enum Recording {
    Call(Domain, u32),
    Kind(Kind),
    /// A kind that is switched on again.
    On(Kind),
    /// Buffers that [`ActivityRecorder::fetch_leftover`] fetches.
    Rest,
    /// Ownership of the buffers.
    CuptiOwnership,
}

/// Enables one rarely called function from before CUDA starts. CUPTI 13.0 accepts functions that are enabled
/// later and never records them, unless one of their domain was on when CUDA started (measured on an H200: 0
/// of 100 launches without it, 100 of 100 with it; its cost per empty launch is below the noise).
fn enable_probe(cupti: &Cupti, domain: Domain) {
    let seldom = |name: &str| matches!(name.split("_v").next(), Some("cudaProfilerStop" | "cuProfilerStop"));
    if let Some((id, _)) = api_functions(cupti, domain).find(|(_, name)| seldom(name)) {
        // Fails before 12.5, where complete kinds are recorded.
        let _ = cupti.enable_api(domain, id);
    }
}

/// Kind of all calls of a domain.
fn whole(domain: Domain) -> Kind {
    if domain == Domain::RUNTIME { Kind::RUNTIME } else { Kind::DRIVER }
}

/// Direction of a call of the profiler API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfilerCall {
    /// `cudaProfilerStart`, `cuProfilerStart`
    Start,
    /// `cudaProfilerStop`, `cuProfilerStop`
    Stop,
}

/// Numbers of the four functions of the profiler API.
#[derive(Debug, Default)]
pub struct ProfilerCalls(Vec<(Domain, u32, ProfilerCall)>);

impl ProfilerCalls {
    /// Enables callbacks for these functions; returns those for which it succeeded.
    pub fn listen(cupti: &Cupti, subscriber: &Subscriber) -> Self {
        let mut calls = Vec::new();
        for domain in [Domain::RUNTIME, Domain::DRIVER] {
            for (id, name) in api_functions(cupti, domain) {
                let call = match name.split("_v").next() {
                    Some("cudaProfilerStart" | "cuProfilerStart") => ProfilerCall::Start,
                    Some("cudaProfilerStop" | "cuProfilerStop") => ProfilerCall::Stop,
                    _ => continue,
                };
                if subscriber.enable_api(domain, id).is_ok() {
                    calls.push((domain, id, call));
                }
            }
        }
        Self(calls)
    }

    /// True if no callback is enabled.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Meaning of this side of a call: a capture starts when a start returns, and ends when a stop is called.
    pub fn meaning(&self, domain: Domain, id: u32, site: CallbackSite) -> Option<ProfilerCall> {
        let found = self.0.iter().find(|&&(known, number, _)| (known, number) == (domain, id));
        found.map(|&(_, _, call)| call).filter(|call| match call {
            ProfilerCall::Start => site == CallbackSite::EXIT,
            ProfilerCall::Stop => site == CallbackSite::ENTER,
        })
    }
}

/// Every API function that this CUPTI can name, with its number.
pub fn api_functions(cupti: &Cupti, domain: Domain) -> impl Iterator<Item = (u32, String)> {
    (1..=kinds::LAST_CALLBACK_ID).filter_map(move |id| Some((id, cupti.callback_name(domain, id)?)))
}

fn note(notes: &mut Vec<String>, what: &str, result: Result<(), Error>) {
    if let Err(error) = result {
        notes.push(format!("{what}: {error}"));
    }
}
