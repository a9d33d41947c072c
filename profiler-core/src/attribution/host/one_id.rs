//! Launches of a thread to which CUPTI gave one correlation id.
//!
//! A thread that is in a CUDA call while records are switched off can keep the id of that call for all its later
//! launches (CUPTI 13.0, docs/design/overhead.md). Each of them gets an id of its own here, and each operation that of
//! the launch whose turn it is: kernels in the order of kernel launches, copies and memsets in that of theirs. This is
//! exact for a thread that uses one stream. With several, operations that ran at one time may be exchanged.
//!
//! An operation cannot start before its launch, and after the thread has waited for its stream, no earlier launch has
//! an operation left. So a missing record shifts only the operations up to the next wait.
//!
//! Launches of graphs keep the id: how many operations each has is unknown.

use std::collections::VecDeque;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{ApiCall, ApiFunctionId, CorrelationId, StreamId};
use rustc_hash::FxHashMap;

use super::launches::Launches;
use crate::api::{ApiClass, without_suffix};
use crate::attribution::operation::{DeviceOperation, LaunchCall};

/// Launches and waits that are kept for an id: more than a thread makes between two flushes.
const LIMIT: usize = 1 << 16;

/// What files of other profilers have for calls without an id.
const NO_IDS: [u32; 2] = [0, u32::MAX];

/// A launch whose operation has not come.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    correlation: u32,
    start: u64,
}

/// The launches of a thread with one id.
#[derive(Debug, Default)]
struct Run {
    thread: u32,
    /// Launches of kernels, and of copies and memsets.
    waiting: [VecDeque<Waiting>; 2],
    /// Start and end of the thread's waits for all work of a stream.
    waits: VecDeque<(u64, u64)>,
    stream: Option<StreamId>,
    /// True if its operations ran on several streams: a wait for one says nothing about the others.
    several_streams: bool,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct OneId {
    /// Newest launch of each thread: its id, start and class.
    newest: Vec<Option<(u32, u64, ApiClass)>>,
    runs: FxHashMap<u32, Run>,
    /// Number of launches that got an id.
    pub(crate) launches: u64,
}

impl OneId {
    /// True if there are such launches, so that operations must be joined in the order of their start.
    pub(crate) fn is_needed(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Id of the next launch of a thread, which `call` makes.
    #[inline]
    pub(crate) fn of_launch(&mut self, call: &ApiCall, launch: &LaunchCall, launches: &Launches) -> CorrelationId {
        let (thread, correlation) = (launch.thread as usize, call.correlation);
        if NO_IDS.contains(&correlation.0) {
            return correlation;
        }
        if self.newest.len() <= thread {
            self.newest.resize(thread + 1, None);
        }
        let before = self.newest[thread].replace((correlation.0, launch.start, launch.class));
        match before {
            Some((id, start, class)) if id == correlation.0 && launch.class != ApiClass::GraphLaunch => {
                let first = (class != ApiClass::GraphLaunch && launches.waits(id)).then_some((start, class));
                self.next_of_run(id, first, launch)
            }
            _ => correlation,
        }
    }

    /// `first`: start and class of the launch before, to which the id itself belongs if this is the second launch.
    #[cold]
    fn next_of_run(&mut self, id: u32, first: Option<(u64, ApiClass)>, launch: &LaunchCall) -> CorrelationId {
        let run = self.runs.entry(id).or_insert_with(|| {
            let mut run = Run { thread: launch.thread, ..Run::default() };
            if let Some((start, class)) = first {
                run.waiting[kind_of(class)].push_back(Waiting { correlation: id, start });
            }
            run
        });
        if run.thread != launch.thread {
            return CorrelationId(id);
        }
        // CUPTI counts upward, and no run gets as far as this.
        let correlation = u32::MAX - 1 - self.launches as u32;
        self.launches += 1;
        let waiting = &mut run.waiting[kind_of(launch.class)];
        waiting.push_back(Waiting { correlation, start: launch.start });
        if waiting.len() > LIMIT {
            waiting.pop_front();
        }
        CorrelationId(correlation)
    }

    /// True if the id is that of several launches.
    pub(crate) fn has(&self, correlation: CorrelationId) -> bool {
        !self.runs.is_empty() && self.runs.contains_key(&correlation.0)
    }

    /// A thread waited for the device in `wait`.
    pub(crate) fn waited(&mut self, wait: &LaunchCall, function: ApiFunctionId, dictionary: &Dictionary) {
        // A wait for an event leaves later work of the stream.
        let of_event = || {
            let name = dictionary.api_function(function).map_or("", |known| dictionary.name(known.name));
            without_suffix(name).contains("Event")
        };
        if self.runs.is_empty() || of_event() {
            return;
        }
        for run in self.runs.values_mut().filter(|run| run.thread == wait.thread) {
            run.waits.push_back((wait.start, wait.end));
            if run.waits.len() > LIMIT {
                run.waits.pop_front();
            }
        }
    }

    /// Id of the launch whose turn it is, if the operation has an id of several. Operations come in the order of
    /// their start.
    #[inline]
    pub(crate) fn of_operation(&mut self, operation: &DeviceOperation) -> CorrelationId {
        if self.runs.is_empty() || operation.graph {
            return operation.correlation;
        }
        match self.runs.get_mut(&operation.correlation.0) {
            Some(run) => run.next(operation).map_or(operation.correlation, CorrelationId),
            None => operation.correlation,
        }
    }
}

impl Run {
    fn next(&mut self, operation: &DeviceOperation) -> Option<u32> {
        let begun = operation.start;
        self.several_streams |= self.stream.is_some_and(|stream| stream != operation.stream);
        self.stream = Some(operation.stream);
        while let Some(&(start, end)) = self.waits.front()
            && end <= begun
        {
            self.waits.pop_front();
            if !self.several_streams {
                self.waiting.iter_mut().for_each(|waiting| drop_before(waiting, start));
            }
        }
        let waiting = &mut self.waiting[usize::from(!operation.is_kernel())];
        waiting.front().filter(|next| begun == 0 || next.start <= begun)?;
        waiting.pop_front().map(|next| next.correlation)
    }
}

fn drop_before(waiting: &mut VecDeque<Waiting>, time: u64) {
    while waiting.front().is_some_and(|next| next.start < time) {
        waiting.pop_front();
    }
}

fn kind_of(class: ApiClass) -> usize {
    usize::from(class != ApiClass::KernelLaunch)
}
