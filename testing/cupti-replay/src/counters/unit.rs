//! The hardware unit that counts: one object has it at a time, and functions come in their order.
//!
//! As on an H200 with CUPTI 13.0: a second object is enabled without a word and refused when it is configured; decoding
//! stops for another reason than the end of records while sampling runs; the first sample begins seconds before it was
//! asked for; a unit that sends nothing keeps every sample from completing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cupti_sys::CuptiResult;

use super::recorded::{Recorded, Row};

/// How long before its time the first sample begins, nanoseconds.
pub const OLD: u64 = 3_000_000_000;

/// Metrics of a chip, as a client has opened them.
#[derive(Clone, Debug, Default)]
pub struct HostObject {
    /// Names, in the order in which they were added.
    pub metrics: Vec<String>,
    /// Calls that added some: each opens a pass of its own.
    pub calls: u8,
    /// Whether they are for ranges, which take several passes.
    pub of_ranges: bool,
}

/// A device that is sampled, or is about to be.
#[derive(Clone, Debug, Default)]
pub struct SamplingObject {
    /// What is sampled; empty before it is configured.
    pub metrics: Vec<String>,
    /// Nanoseconds.
    pub interval: u64,
    /// The next row, once it was started.
    pub next: Option<usize>,
    /// End of time, once it was stopped.
    pub until: Option<u64>,
    has_given: bool,
}

/// A range profiler.
#[derive(Clone, Debug, Default)]
pub struct RangeObject {
    /// What is measured; empty before it is configured.
    pub metrics: Vec<String>,
    /// Launches that it takes, and how many there were.
    pub passes: usize,
    /// As above.
    pub done: usize,
    /// Address and size of the client's image.
    pub image: Option<(usize, usize)>,
    /// Between start and stop.
    pub is_started: bool,
    /// Kernels launched since the start.
    pub launched: Vec<String>,
    /// The kernel of the first pass.
    pub kernel: Option<String>,
    /// Ranges that did not fit.
    pub dropped: usize,
}

/// A context whose program counters are sampled.
#[derive(Clone, Debug, Default)]
pub struct PcObject {
    /// Numbers of stall reasons that are sampled; empty before it is configured.
    pub reasons: Vec<u32>,
    /// Between start and stop.
    pub is_started: bool,
    /// What has been fetched, or may be.
    pub next: usize,
    /// Whether anything was sampled.
    pub has_samples: bool,
}

/// What clients have opened.
#[derive(Debug, Default)]
pub struct Objects {
    next: usize,
    /// Metrics of chips.
    pub hosts: HashMap<usize, HostObject>,
    /// Samplers.
    pub samplers: HashMap<usize, SamplingObject>,
    /// Range profilers.
    pub ranges: HashMap<usize, RangeObject>,
    /// PC sampling, by context.
    pub program_counters: HashMap<usize, PcObject>,
    /// Whether program counters were ever sampled.
    pub has_sampled: bool,
    /// Contexts that are gone.
    pub gone: Vec<usize>,
    /// Whether a range was ever measured: samples have no program counters any more.
    pub has_measured: bool,
}

/// What there is to count, and who does.
#[derive(Debug, Default)]
pub struct Unit {
    /// What is played; `None`: this library has no counters.
    pub recorded: Option<Recorded>,
    objects: Mutex<Objects>,
}

/// What a decoding found: complete samples, and how many were begun.
#[derive(Debug)]
pub struct Found {
    /// Their begins, ends and values.
    pub samples: Vec<(u64, u64, Vec<f64>)>,
    /// Samples that were begun.
    pub populated: usize,
    /// Whether there are more.
    pub full: bool,
}

impl Unit {
    /// What is played.
    ///
    /// # Errors
    /// That this library has no counters.
    pub fn recorded(&self) -> Result<&Recorded, CuptiResult> {
        self.recorded.as_ref().ok_or(CuptiResult::API_NOT_IMPLEMENTED)
    }

    /// A kernel is launched.
    pub fn launched(&self, symbol: &str) {
        for range in self.objects().ranges.values_mut().filter(|range| range.is_started) {
            range.launched.push(symbol.to_owned());
        }
    }

    /// What clients have opened.
    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Objects {
    /// A handle that nobody else has; not 0.
    pub fn handle(&mut self) -> usize {
        self.next += 8;
        self.next
    }

    /// Whether somebody samples or measures ranges.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.is_taken_but_by(0)
    }

    /// The same, by another one than this range profiler.
    #[must_use]
    pub fn is_taken_but_by(&self, handle: usize) -> bool {
        let others = self.ranges.iter().filter(|(other, _)| **other != handle);
        self.samplers.values().any(|sampler| !sampler.metrics.is_empty())
            || others.map(|(_, range)| range).any(|range| !range.metrics.is_empty())
            || self.program_counters.values().any(|of| !of.reasons.is_empty())
    }

    /// A range profiler.
    ///
    /// # Errors
    /// For a handle that is none, or not any more.
    pub fn range(&mut self, handle: usize) -> Result<&mut RangeObject, CuptiResult> {
        self.ranges.get_mut(&handle).ok_or(CuptiResult::INVALID_PARAMETER)
    }

    /// PC sampling of a context.
    ///
    /// # Errors
    /// Where it is not enabled.
    pub fn program_counters(&mut self, context: usize) -> Result<&mut PcObject, CuptiResult> {
        self.program_counters.get_mut(&context).ok_or(CuptiResult::INVALID_OPERATION)
    }

    /// The metrics of a chip.
    ///
    /// # Errors
    /// For a handle that is none, or not any more.
    pub fn host(&mut self, handle: usize) -> Result<&mut HostObject, CuptiResult> {
        self.hosts.get_mut(&handle).ok_or(CuptiResult::INVALID_PARAMETER)
    }

    /// A sampler.
    ///
    /// # Errors
    /// For a handle that is none, or not any more.
    pub fn sampler(&mut self, handle: usize) -> Result<&mut SamplingObject, CuptiResult> {
        self.samplers.get_mut(&handle).ok_or(CuptiResult::INVALID_PARAMETER)
    }
}

impl SamplingObject {
    /// Takes what was sampled until `now`, nanoseconds after the start of the recording, `room` samples at most.
    pub fn take(&mut self, recorded: &Recorded, now: u64, room: usize) -> Found {
        let mut found = Found { samples: Vec::new(), populated: 0, full: false };
        let Some(mut next) = self.next else { return found };
        let now = self.until.unwrap_or(now);
        let is_silent = self.metrics.iter().any(|metric| recorded.silent.contains(metric));
        let merged = usize::try_from(self.interval / recorded.interval).unwrap_or(1).max(1);
        while let Some(rows) = recorded.rows.get(next..next + merged) {
            let (Some(first), Some(last)) = (rows.first(), rows.last()) else { break };
            if last.end > now {
                break;
            }
            if found.populated == room {
                found.full = true;
                break;
            }
            found.populated += 1;
            next += merged;
            if !is_silent {
                let begin = if std::mem::replace(&mut self.has_given, true) {
                    first.begin as i64
                } else {
                    first.begin as i64 - OLD as i64
                };
                let values = self.metrics.iter().map(|metric| mean(recorded, rows, metric)).collect();
                found.samples.push((begin as u64, last.end, values));
            }
        }
        self.next = Some(next);
        found
    }
}

fn mean(recorded: &Recorded, rows: &[Row], metric: &str) -> f64 {
    rows.iter().map(|row| recorded.value(row, metric)).sum::<f64>() / rows.len() as f64
}
