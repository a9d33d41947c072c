//! The thread that samples launching threads while they make no CUDA call.
//!
//! It costs those threads no time: it reads clocks and files of `/proc` and, if there is a Python
//! interpreter, its memory. If a thread has not run since its last sample, only its clock is read. The
//! sampler measures its cost on its own clock and pauses a hundred times as long: 1 % of one core at most.
//! Native stacks have half of that.
//!
//! It draws no conclusions.

use std::time::{Duration, Instant};
use std::{process, thread};

use cupti_sys::Cupti;
use host_sampler::children::Children;
use host_sampler::native::Native;
use host_sampler::process::Process;
use host_sampler::python::Python;

use crate::capture::controller::CaptureController;
use crate::config::{NativeStacks, Sampling};
use crate::sampler::names::ThreadNames;
use crate::sampler::native::NativeStackReader;
use crate::sampler::pass::{Tools, WatchedThread};
use crate::shared::Shared;
use crate::shared::launchers::Launchers;
use crate::shared::samples::SampleBatch;
use crate::sys::{clock, threads};

mod generated;
mod names;
mod native;
mod pass;
pub mod stacks;

/// Minimum pause: the phases that distinguish data loading from launching last milliseconds.
const SHORTEST: Duration = Duration::from_millis(1);
/// Maximum pause: the flush period of CUPTI.
const LONGEST: Duration = Duration::from_millis(100);
/// Interval between two checks whether a capture has started.
const IDLE: Duration = Duration::from_millis(10);
/// Interval at which the choice of threads is renewed.
const RENEWAL: Duration = Duration::from_millis(100);
/// Data sources for samples in this process.
#[derive(Debug)]
pub struct Sampler {
    process: Process,
    python: Option<Python>,
    native: Option<NativeStackReader>,
    /// True if programs are sampled all the time, and conclusions drawn from the launching thread alone.
    monitors: bool,
}

impl Sampler {
    /// Determines what can be sampled, and notes what cannot. Takes a millisecond or two. `monitors`: native
    /// stacks must be cheap, as programs are sampled all the time.
    pub fn prepare(sampling: Sampling, native: NativeStacks, monitors: bool) -> (Option<Self>, Vec<String>) {
        if sampling == Sampling::Off {
            return (None, Vec::new());
        }
        let process = Process::this();
        let itself = process::id();
        if threads::thread_cpu_time(itself).is_none() || process.id() != itself {
            let note = "host threads are not sampled: this system does not show their clocks";
            return (None, vec![said(note.to_owned(), sampling)]);
        }
        let (python, note) = match Python::find(&process) {
            Ok(python) => (Some(python), None),
            Err(why) => (None, Some(format!("no Python stacks: {why}"))),
        };
        let mut notes: Vec<String> = note.into_iter().collect();
        let native = match native {
            NativeStacks::Off => None,
            NativeStacks::WithPython if python.is_none() => None,
            NativeStacks::Auto | NativeStacks::WithPython => match Native::new(&process) {
                Ok(unwinder) => {
                    let (reader, note) = NativeStackReader::new(unwinder, monitors, native == NativeStacks::Auto);
                    notes.extend(note);
                    Some(reader)
                }
                Err(why) => {
                    notes.push(format!("no native stacks: {why}"));
                    None
                }
            },
        };
        let notes = notes.into_iter().map(|note| said(note, sampling)).collect();
        (Some(Self { process, python, native, monitors }), notes)
    }

    /// Samples while records are made, until the queue is closed.
    pub fn run(self, cupti: &'static Cupti, shared: &Shared, controller: &CaptureController) {
        let own_thread = threads::thread_id();
        let mut tools = Tools {
            children: Children::of(self.process.clone()),
            process: self.process,
            python: self.python,
            native: self.native,
            native_spent: Duration::ZERO,
            child_counts_due: Instant::now(),
            holders: Vec::new(),
        };
        let mut watched: Vec<WatchedThread> = Vec::new();
        let mut batch = SampleBatch::default();
        let mut names = ThreadNames::new();
        let mut renewal_due = Instant::now();
        let mut spent = threads::thread_cpu_time(own_thread).unwrap_or_default();
        loop {
            if !controller.is_on() {
                watched.clear();
                if !shared.sample_queue.put(&mut batch) {
                    tools.finish();
                    return;
                }
                thread::sleep(IDLE);
                renewal_due = Instant::now();
                continue;
            }
            let renews = Instant::now() >= renewal_due;
            if renews {
                renew(&mut watched, &shared.launchers, &mut tools, self.monitors);
                renewal_due = Instant::now() + RENEWAL;
            }
            watched.retain_mut(|watch| watch.tick(|| clock::now(cupti), &mut tools, &mut batch));
            // After the samples, which it would delay.
            if renews {
                names.renew(&mut watched, &tools.process, &mut batch);
            }
            if !shared.sample_queue.put(&mut batch) {
                tools.finish();
                return;
            }
            let total = threads::thread_cpu_time(own_thread).unwrap_or_default();
            let pause = tools.pause(total.saturating_sub(spent)).clamp(SHORTEST, LONGEST);
            spent = total;
            thread::sleep(if watched.is_empty() { LONGEST } else { pause });
        }
    }
}

/// Returns a note, and logs it at once if sampling was requested.
fn said(note: String, sampling: Sampling) -> String {
    if sampling == Sampling::On {
        tracing::warn!("{note}");
    }
    note
}

/// Selects the threads that launch and belong to this process, and those that held the interpreter's lock
/// while one of them waited: their lines are the reason. If there are none, and there is a stack to
/// read, selects the first thread, which usually is the one that will launch.
fn renew(watched: &mut Vec<WatchedThread>, launchers: &Launchers, tools: &mut Tools, monitors: bool) {
    let mut wanted: Vec<u32> = launchers.get();
    wanted.retain(|&thread| threads::thread_cpu_time(thread).is_some());
    if wanted.is_empty() && (tools.python.is_some() || tools.native.is_some()) {
        wanted.push(process::id());
    } else if !monitors {
        tools.holders.retain(|holder| !wanted.contains(holder));
        wanted.append(&mut tools.holders);
    }
    tools.holders.clear();
    watched.retain(|watch| wanted.contains(&watch.thread()));
    for thread in wanted {
        if !watched.iter().any(|watch| watch.thread() == thread)
            && let Ok(files) = host_sampler::thread::Thread::open(&tools.process, thread)
        {
            let registers = tools.native.as_ref().and_then(|native| native.start(thread));
            watched.push(WatchedThread::new(thread, files, registers));
        }
    }
}
