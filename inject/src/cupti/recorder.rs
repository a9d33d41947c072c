//! Switches activity on and off, and says what could not be.
//!
//! Callbacks are registered before the first kind is enabled. A kind that this CUPTI or this machine refuses is a
//! note in the report, except for kernels, without which there is nothing to say.
//!
//! On may be called where a capture begins, on an application thread in the middle of a CUDA call, as NVIDIA's
//! injection sample does it. Off is only called from the flushing thread: it may wait for what such a thread holds.
//! What happens when one meets the other is in [`toggle`](super::toggle).

use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use cupti_sys::{CallbackSite, Cupti, Domain, Error, Kind, ResourceCallback, Subscriber, ThreadIdType};
use gpuwhy_trace::cost::Mode;

use crate::cupti::kinds;
use crate::cupti::ownership::CuptiOwnership;
use crate::cupti::toggle::{SwitchOutcome, TracingSwitch};

/// The first library (CUDA 13.0 update 1) whose release notes no longer list a deadlock in disabling kernel records.
const KERNELS_CAN_BE_DISABLED: u32 = 130_001;

/// The first library that records CUDA graphs as a whole without harm: CUDA 13.2. With CUPTI 12.9 to 13.1 the first
/// launch of a graph that copies memory fails (`CUDA_ERROR_LAUNCH_FAILED`) when CUPTI was flushed before it
/// (docs/design/overhead.md).
const WHOLE_GRAPHS_ARE_SAFE: u32 = 130_200;

/// Between two flushes that fetch the rest, and how many there are at most: a kernel that runs for longer than a tenth
/// of a second keeps its buffer with CUPTI.
const LEFTOVER_PERIOD: Duration = Duration::from_millis(2);
const MAX_LEFTOVER_BUFFERS: usize = 50;

/// The driver's function by whose record other tools are noticed.
pub const CANARY_FUNCTION: &str = "cuDriverGetVersion";

/// Whether this library records CUDA graphs as a whole without crashing programs.
pub fn whole_graphs_are_safe(cupti: &Cupti) -> bool {
    cupti.version().is_ok_and(|version| version >= WHOLE_GRAPHS_ARE_SAFE)
}

/// What is wanted of CUPTI, and whether it is on.
#[derive(Debug)]
pub struct ActivityRecorder {
    cupti: &'static Cupti,
    ownership: CuptiOwnership,
    /// Kinds that cost: off until the first capture.
    kinds: Vec<Kind>,
    /// Those of them that only the fullest mode records.
    full_kinds: Vec<Kind>,
    calls: [Calls; 2],
    /// A [`Mode`] as a number: what is recorded at most. `Relaxed`: written on the flushing thread only.
    level: AtomicU8,
    /// Whether anything of CUPTI's is ever recorded: not in a run that is only watched from its beginning.
    records: bool,
    /// Whether a graph is one record, from before CUDA starts until nodes are cheap, a step down to watching, CUPTI is
    /// left to others, or measuring is over. `Relaxed`: written on the flushing thread only.
    whole_graphs: AtomicBool,
    /// Kinds that stay on once they were.
    stays: Vec<Kind>,
    /// Whether CUDA had a context before: then API functions chosen one by one bring no records, and whole kinds are
    /// needed.
    late: bool,
    turn: TracingSwitch,
}

/// The API functions of a domain, chosen one by one.
#[derive(Debug)]
struct Calls {
    domain: Domain,
    ids: Vec<u32>,
    /// The others, which only the fullest mode records; empty in a run that did not begin with it.
    rest: Vec<u32>,
    /// None could be chosen, so all of the domain are recorded. `Relaxed`: [`TracingSwitch`] orders it.
    all: AtomicBool,
}

impl ActivityRecorder {
    /// Registers the callbacks and looks up what there is to switch; nothing is on yet but one function of each domain,
    /// which programs hardly call, and whole graphs if they are wanted. `on_request` are kinds beyond the usual ones;
    /// those that `mode` brings go with it when it is lowered; `late` says that CUDA has a context already.
    /// Also returns notes for the report. When it fails the subscriber is released: it would only keep other tools out.
    pub fn prepare(
        cupti: &'static Cupti,
        ownership: CuptiOwnership,
        mode: Mode,
        whole_graphs: bool,
        on_request: &[Kind],
        late: bool,
    ) -> Result<(Self, Vec<String>), Error> {
        let mut notes = Vec::new();
        let records = mode != Mode::Monitor;
        // How others are noticed was seen with this library and later ones.
        let old = cupti.version().is_ok_and(|version| version < KERNELS_CAN_BE_DISABLED);
        if old && ownership.is_yielded() {
            ownership.set_yields(false);
            notes.push("GPUWHY_CUPTI_SHARING=yield needs CUPTI of CUDA 13.0 update 1 or later".to_owned());
        }
        if records {
            let threads = cupti.set_thread_id_type(ThreadIdType::SYSTEM);
            note(&mut notes, "thread ids of API calls are not the kernel's", threads);
            if let Err(error) = ownership.register() {
                ownership.give_back();
                return Err(error);
            }
            for domain in [Domain::RUNTIME, Domain::DRIVER] {
                enable_canary(cupti, domain);
            }
        }
        let calls = [Domain::RUNTIME, Domain::DRIVER].map(|domain| {
            let (wanted, others): (Vec<_>, Vec<_>) = api_functions(cupti, domain)
                .filter(|_| cupti.can_filter_api())
                .partition(|(_, name)| kinds::wants(name));
            let ids = |calls: Vec<(u32, String)>| calls.into_iter().map(|(id, _)| id).collect();
            // The call by which other tools are noticed.
            let canary = others.iter().filter(|(_, name)| ownership.is_yielded() && name == CANARY_FUNCTION);
            let canary: Vec<_> = canary.map(|&(id, _)| id).collect();
            let rest = if mode == Mode::Full { ids(others) } else { Vec::new() };
            Calls { domain, ids: [ids(wanted), canary].concat(), rest, all: AtomicBool::new(false) }
        });
        // Now or never: enabled later, the next launch of a graph that was instantiated before crashes the program
        // (docs/design/overhead.md). So it stays on between captures too.
        let enabled = if whole_graphs { cupti.enable(Kind::GRAPH_TRACE) } else { Ok(()) };
        let whole_graphs = whole_graphs && enabled.is_ok();
        note(&mut notes, "CUDA graphs are recorded by nodes", enabled);
        if whole_graphs {
            // How many nodes they have is told when they are instantiated, and never again.
            let told = ownership.with(|subscriber| {
                subscriber.enable_resource(ResourceCallback::GRAPHNODE_CLONED)?;
                subscriber.enable_resource(ResourceCallback::GRAPHEXEC_CREATED)
            });
            note(&mut notes, "node counts of CUDA graphs are unknown", told.unwrap_or(Ok(())));
        }
        let switch = Self {
            cupti,
            ownership,
            kinds: kinds::KINDS.iter().chain(on_request).copied().collect(),
            whole_graphs: whole_graphs.into(),
            full_kinds: if mode == Mode::Full { on_request.to_vec() } else { Vec::new() },
            calls,
            level: AtomicU8::new(mode as u8),
            records,
            stays: if old { vec![Kind::CONCURRENT_KERNEL] } else { Vec::new() },
            late,
            turn: TracingSwitch::new(),
        };
        Ok((switch, notes))
    }

    /// Has devices and contexts describe themselves, each when CUDA or the context starts: for a program that is
    /// measured from then on. Answers with notes for the report.
    pub fn describe(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for &kind in kinds::DESCRIPTIONS.iter().filter(|_| self.records) {
            note(&mut notes, &format!("no {kind} records"), self.cupti.enable(kind));
        }
        notes
    }

    /// Whether what begins now is recorded, and goes on being recorded until [`leave`](Self::leave).
    pub fn is_on(&self) -> bool {
        self.turn.is_on()
    }

    /// Whether no records are being made.
    pub fn is_off(&self) -> bool {
        self.turn.is_off()
    }

    /// Switches on, with notes for the report; also when it is just being switched off. From any thread. Fails when
    /// kernels cannot be recorded. Then it is off.
    pub fn on(&self) -> Result<SwitchOutcome<Vec<String>>, Error> {
        self.turn.on(|| self.enable())
    }

    /// Records again after another tool has had the buffers. Only from the flushing thread, while it is on. Fails when
    /// another tool records, or kernels cannot be recorded.
    pub fn regain(&self) -> Result<(), Error> {
        self.ownership.claim()?;
        // A buffer that the other tool has lent in the meantime would take what is recorded first.
        let _ = self.cupti.flush(false);
        self.enable().map(drop)
    }

    /// Who has CUPTI.
    pub fn ownership(&self) -> &CuptiOwnership {
        &self.ownership
    }

    /// Whether the run is only watched: on, and nothing of CUPTI's is recorded.
    pub fn is_watching(&self) -> bool {
        self.records_at_most(Mode::Monitor)
    }

    /// Whether CUPTI may have records of ours.
    pub fn may_have_recorded(&self) -> bool {
        self.records
    }

    /// Whether all kinds can be switched off once they were on.
    pub fn can_be_off(&self) -> bool {
        self.stays.is_empty()
    }

    /// Whether a CUDA graph is one record.
    pub fn has_whole_graphs(&self) -> bool {
        self.whole_graphs.load(Ordering::Relaxed)
    }

    fn records_at_most(&self, mode: Mode) -> bool {
        self.level.load(Ordering::Relaxed) <= mode as u8
    }

    /// Records less from here on. Only from the flushing thread. What another thread is switching on just now stays on
    /// until the next time that everything is switched off.
    pub fn lower(&self, mode: Mode) {
        self.level.store(mode as u8, Ordering::Relaxed);
        if self.ownership.is_taken() {
            return;
        }
        // What was never on answers with an error, which is no news.
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
        for kind in kinds.iter().copied().filter(|kind| !self.stays.contains(kind)) {
            let _ = self.cupti.disable(kind);
        }
    }

    /// Records the nodes of CUDA graphs from here on. Only from the flushing thread. It holds for good: see
    /// [`prepare`](Self::prepare).
    pub fn record_nodes(&self) {
        // Once: later it may be another tool that has them on.
        if self.whole_graphs.swap(false, Ordering::Relaxed) {
            let _ = self.cupti.disable(Kind::GRAPH_TRACE);
        }
    }

    /// Releases the subscriber if CUPTI is left to other tools from now on, which expect nodes of CUDA graphs. Only
    /// from the flushing thread, while it is off.
    pub fn give_back_if_wanted(&self) {
        if !self.ownership.is_wanted() {
            return;
        }
        self.record_nodes();
        (0..MAX_LEFTOVER_BUFFERS).for_each(|_| self.fetch_leftover());
        // Otherwise a capture has begun meanwhile, and it is done when that is over.
        if self.is_off() {
            self.ownership.leave();
            self.ownership.give_back();
        }
    }

    /// Fetches records of what was still on its way when its kind was switched off, if CUPTI has a buffer of ours:
    /// whoever registers its callbacks next would be handed it. To be repeated up to [`MAX_LEFTOVER_BUFFERS`] times.
    fn fetch_leftover(&self) {
        if cupti_sys::lent_buffers() > 0 {
            thread::sleep(LEFTOVER_PERIOD);
            let _ = self.cupti.flush(false);
        }
    }

    fn enable(&self) -> Result<Vec<String>, Error> {
        let mut notes = Vec::new();
        if self.is_watching() {
            return Ok(notes);
        }
        self.ownership.claim()?;
        let full = !self.records_at_most(Mode::Light);
        for &kind in self.kinds.iter().filter(|kind| full || !self.full_kinds.contains(kind)) {
            match self.cupti.enable(kind) {
                Err(error) if kind == Kind::CONCURRENT_KERNEL => {
                    // What is on by now would cost the program time for nothing.
                    for &enabled in &self.kinds {
                        let _ = self.cupti.disable(enabled);
                    }
                    return Err(error);
                }
                result => note(&mut notes, &format!("no {kind} records"), result),
            }
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

    /// No capture needs it any more: [`off`](Self::off) is to follow. `false` when it is not on. To be called where no
    /// capture can begin meanwhile.
    pub fn leave(&self) -> bool {
        self.turn.leave()
    }

    /// Switches off what [`leave`](Self::leave) has left; only from the flushing thread. A capture that begins
    /// meanwhile has it switched on again. Answers whether it is on. Fails when it was to be switched on again and
    /// kernels cannot be recorded.
    pub fn off(&self) -> Result<bool, Error> {
        let yielded = self.ownership.is_yielded();
        let lost = yielded && (self.ownership.is_taken() || self.ownership.answers() == Some(false));
        if lost {
            // What is on is another tool's by now, which disables it.
            self.ownership.lose();
        }
        if lost || !self.records {
            return self.turn.off(iter::empty::<fn()>(), || self.enable().map(drop));
        }
        // What was never on answers with an error, which is no news.
        let calls = self.calls.iter().flat_map(|Calls { domain, ids, rest, all }| {
            // The whole kind only when it was on: it might take along the one function that must stay.
            let kind = all.load(Ordering::Relaxed).then(|| Part::Kind(whole(*domain)));
            ids.iter().chain(rest).map(|&id| Part::Call(*domain, id)).chain(kind)
        });
        let kinds = self.kinds.iter().copied().filter(|kind| !self.stays.contains(kind)).map(Part::Kind);
        // Only behind everything else: then kernels that are recorded are somebody else's.
        let last = iter::repeat_n(Part::Rest, MAX_LEFTOVER_BUFFERS).chain([Part::CuptiOwnership]).filter(|_| yielded);
        let parts = calls.chain(kinds).chain(last).map(|part| {
            move || {
                let _ = match part {
                    Part::Call(domain, id) => self.cupti.disable_api(domain, id),
                    Part::Kind(kind) => self.cupti.disable(kind),
                    Part::Rest => return self.fetch_leftover(),
                    Part::CuptiOwnership => return self.ownership.leave(),
                };
            }
        });
        self.turn.off(parts, || self.enable().map(drop))
    }
}

/// One thing that can be switched off.
#[derive(Clone, Copy)]
enum Part {
    Call(Domain, u32),
    Kind(Kind),
    /// What [`ActivityRecorder::fetch_leftover`] fetches.
    Rest,
    /// The claim to the buffers.
    CuptiOwnership,
}

/// Has one function recorded from before CUDA starts, one that programs hardly call. CUPTI 13.0 accepts functions that
/// are enabled later and never records them, unless one of their domain was on when CUDA started (measured on an H200:
/// 0 of 100 launches without it, 100 of 100 with it; what it costs an empty launch cannot be told from noise).
fn enable_canary(cupti: &Cupti, domain: Domain) {
    let seldom = |name: &str| matches!(name.split("_v").next(), Some("cudaProfilerStop" | "cuProfilerStop"));
    if let Some((id, _)) = api_functions(cupti, domain).find(|(_, name)| seldom(name)) {
        // Refused before 12.5, where whole kinds are recorded.
        let _ = cupti.enable_api(domain, id);
    }
}

/// The kind of all calls of a domain.
fn whole(domain: Domain) -> Kind {
    if domain == Domain::RUNTIME { Kind::RUNTIME } else { Kind::DRIVER }
}

/// Which way a call of the profiler API points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfilerCall {
    /// `cudaProfilerStart`, `cuProfilerStart`
    Start,
    /// `cudaProfilerStop`, `cuProfilerStop`
    Stop,
}

/// The numbers of the four functions of the profiler API.
#[derive(Debug, Default)]
pub struct ProfilerCalls(Vec<(Domain, u32, ProfilerCall)>);

impl ProfilerCalls {
    /// Has the handler told of them; answers those that could be.
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

    /// Whether there is nothing to listen to.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What this side of a call means: a capture begins when a start returns, and ends when a stop is called.
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
