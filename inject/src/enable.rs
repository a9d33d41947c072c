//! Switches activity on and off, and says what could not be.
//!
//! Callbacks are registered before the first kind is enabled. A kind that this CUPTI or this machine refuses is a
//! note in the report, except for kernels, without which there is nothing to say.
//!
//! On may be called where a capture begins, on an application thread in the middle of a CUDA call, as NVIDIA's
//! injection sample does it. Off is only called from the flushing thread: it may wait for what such a thread holds.
//! No lock is held around either, so nobody waits for a thread that is inside CUPTI.

use std::sync::atomic::{AtomicU8, Ordering};

use cupti_sys::{ActivityHandler, CallbackSite, Cupti, Domain, Error, Kind, Subscriber, ThreadIdType};

use crate::interest;

/// The first library (CUDA 13.0 update 1) whose release notes no longer list a deadlock in disabling kernel records.
const KERNELS_CAN_BE_DISABLED: u32 = 130_001;

/// The states of the switch. `Acquire`/`Release`: whoever sees ON sees what was enabled.
const OFF: u8 = 0;
const SWITCHING: u8 = 1;
const ON: u8 = 2;

/// What is wanted of CUPTI, and whether it is on.
#[derive(Debug)]
pub struct Switch {
    cupti: &'static Cupti,
    /// Kinds that cost: off until the first capture.
    kinds: Vec<Kind>,
    /// API functions, chosen one by one; by domain.
    calls: Vec<(Domain, Vec<u32>)>,
    /// Kinds that stay on once they were.
    stays: Vec<Kind>,
    state: AtomicU8,
}

impl Switch {
    /// Registers the callbacks and looks up what there is to switch; nothing that costs is on yet. Kinds that
    /// describe devices and contexts are, because they are reported once only and cost no launch anything.
    /// `on_request` are kinds beyond the usual ones. Also returns notes for the report.
    pub fn prepare<H: ActivityHandler>(
        cupti: &'static Cupti,
        on_request: &[Kind],
    ) -> Result<(Self, Vec<String>), Error> {
        let mut notes = Vec::new();
        note(
            &mut notes,
            "thread ids of API calls are not the kernel's",
            cupti.set_thread_id_type(ThreadIdType::SYSTEM),
        );
        cupti.register_callbacks::<H>()?;
        for &kind in interest::DESCRIPTIONS {
            note(&mut notes, &format!("no {kind} records"), cupti.enable(kind));
        }
        for domain in [Domain::RUNTIME, Domain::DRIVER] {
            open_door(cupti, domain);
        }
        let calls = [Domain::RUNTIME, Domain::DRIVER].map(|domain| {
            let wanted = api_functions(cupti, domain).filter(|(_, name)| interest::wants(name));
            (domain, if cupti.can_filter_api() { wanted.map(|(id, _)| id).collect() } else { Vec::new() })
        });
        let old = cupti.version().is_ok_and(|version| version < KERNELS_CAN_BE_DISABLED);
        let switch = Self {
            cupti,
            kinds: interest::KINDS.iter().chain(on_request).copied().collect(),
            calls: calls.into(),
            stays: if old { vec![Kind::CONCURRENT_KERNEL] } else { Vec::new() },
            state: AtomicU8::new(OFF),
        };
        Ok((switch, notes))
    }

    /// Whether records are being made.
    pub fn is_on(&self) -> bool {
        self.state.load(Ordering::Acquire) != OFF
    }

    /// Switches on, and answers with notes for the report; `None` when it is on already, or when another thread is
    /// switching.
    ///
    /// # Errors
    /// When kernels cannot be recorded. Then it is off.
    pub fn on(&self) -> Result<Option<Vec<String>>, Error> {
        if self.state.compare_exchange(OFF, SWITCHING, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return Ok(None);
        }
        let result = self.enable();
        self.state.store(if result.is_ok() { ON } else { OFF }, Ordering::Release);
        result.map(Some)
    }

    fn enable(&self) -> Result<Vec<String>, Error> {
        let mut notes = Vec::new();
        for &kind in &self.kinds {
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
        for (domain, calls) in &self.calls {
            let enabled = calls.iter().filter(|&&id| self.cupti.enable_api(*domain, id).is_ok()).count();
            if enabled == 0 {
                let kind = whole(*domain);
                let text =
                    format!("this CUPTI cannot choose API calls: all {kind} calls are recorded, which costs more");
                notes.push(text);
                note(&mut notes, &format!("no {kind} records"), self.cupti.enable(kind));
            }
        }
        Ok(notes)
    }

    /// Switches off. Only from the flushing thread.
    pub fn off(&self) {
        if self.state.compare_exchange(ON, SWITCHING, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        // What was never on answers with an error, which is no news.
        for (domain, calls) in &self.calls {
            let disabled = calls.iter().filter(|&&id| self.cupti.disable_api(*domain, id).is_ok()).count();
            if disabled == 0 {
                let _ = self.cupti.disable(whole(*domain));
            }
        }
        for &kind in self.kinds.iter().filter(|kind| !self.stays.contains(kind)) {
            let _ = self.cupti.disable(kind);
        }
        self.state.store(OFF, Ordering::Release);
    }
}

/// Has one function recorded from before CUDA starts, one that programs hardly call. CUPTI 13.0 accepts functions that are
/// enabled later and never records them, unless one of their domain was on when CUDA started (measured on an H200: 0 of
/// 100 launches without it, 100 of 100 with it; what it costs an empty launch cannot be told from noise).
fn open_door(cupti: &Cupti, domain: Domain) {
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
    (1..=interest::LAST_CALLBACK_ID).filter_map(move |id| Some((id, cupti.callback_name(domain, id)?)))
}

fn note(notes: &mut Vec<String>, what: &str, result: Result<(), Error>) {
    if let Err(error) = result {
        notes.push(format!("{what}: {error}"));
    }
}
