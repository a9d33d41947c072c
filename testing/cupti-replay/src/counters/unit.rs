//! Model of the hardware unit that counts: one object owns it at a time, and functions must be called in
//! their order.
//!
//! As on an H200 with CUPTI 13.0: a second object is enabled without an error and refused when it is
//! configured; while sampling runs, decoding stops for a reason other than the end of records; the first
//! sample begins seconds before its request; a unit that delivers no counters keeps every sample from
//! completing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cupti_sys::CuptiResult;

use super::recorded::{Recorded, Row};

/// Time by which the first sample begins too early, in nanoseconds.
pub const OLD: u64 = 3_000_000_000;

/// Longest wait for a client that decodes no samples.
const PATIENCE: Duration = Duration::from_secs(10);

/// Host object: metrics of a chip, as a client has opened them.
#[derive(Clone, Debug, Default)]
pub struct HostObject {
    /// Names in the order of their addition.
    pub metrics: Vec<String>,
    /// Number of calls that added metrics: each opens another pass.
    pub calls: u8,
    /// True if they are for ranges, which take several passes.
    pub of_ranges: bool,
}

/// PM sampling of a device.
#[derive(Clone, Debug, Default)]
pub struct SamplingObject {
    /// Sampled metrics; empty before it is configured.
    pub metrics: Vec<String>,
    /// Sampling interval in nanoseconds.
    pub interval: u64,
    /// Index of the next row, once it was started.
    pub next: Option<usize>,
    /// End of sampling, once it was stopped.
    pub until: Option<u64>,
    has_given: bool,
}

/// A range profiler.
#[derive(Clone, Debug, Default)]
pub struct RangeObject {
    /// Measured metrics; empty before it is configured.
    pub metrics: Vec<String>,
    /// Number of passes (launches) needed.
    pub passes: usize,
    /// Number of passes done.
    pub done: usize,
    /// Address and size of the client's image.
    pub image: Option<(usize, usize)>,
    /// True between start and stop.
    pub is_started: bool,
    /// Kernels launched since the start.
    pub launched: Vec<String>,
    /// The kernel of the first pass.
    pub kernel: Option<String>,
    /// Number of ranges that did not fit.
    pub dropped: usize,
}

/// Objects that clients have opened.
#[derive(Debug, Default)]
pub struct Objects {
    next: usize,
    /// Host objects.
    pub hosts: HashMap<usize, HostObject>,
    /// Samplers.
    pub samplers: HashMap<usize, SamplingObject>,
    /// Range profilers.
    pub ranges: HashMap<usize, RangeObject>,
}

/// The recorded counters and the objects that use them.
#[derive(Debug, Default)]
pub struct Unit {
    /// Counters to play; `None`: this library has no counters.
    pub recorded: Option<Recorded>,
    objects: Mutex<Objects>,
    /// True once a client has decoded nothing for [`PATIENCE`].
    is_ignored: AtomicBool,
}

/// Result of a decode: complete samples, and the number of samples started.
#[derive(Debug)]
pub struct Found {
    /// Start, end and values of each complete sample.
    pub samples: Vec<(u64, u64, Vec<f64>)>,
    /// Number of samples started.
    pub populated: usize,
    /// True if there are more.
    pub full: bool,
}

impl Unit {
    /// The counters to play.
    ///
    /// # Errors
    /// If this library has no counters.
    pub fn recorded(&self) -> Result<&Recorded, CuptiResult> {
        self.recorded.as_ref().ok_or(CuptiResult::API_NOT_IMPLEMENTED)
    }

    /// Waits while a client that samples is more than `behind` behind `at`, both in nanoseconds of the
    /// recording: on a busy machine, play would run away from it.
    pub fn wait_for_samplers(&self, at: u64, behind: u64) {
        let Some(recorded) = self.recorded.as_ref() else { return };
        let is_behind = |sampler: &SamplingObject| {
            let next = sampler.next.filter(|_| sampler.until.is_none()).and_then(|next| recorded.rows.get(next));
            next.is_some_and(|row| row.end.saturating_add(behind) < at)
        };
        let since = Instant::now();
        while !self.is_ignored.load(Ordering::Relaxed) && self.objects().samplers.values().any(is_behind) {
            if since.elapsed() > PATIENCE {
                self.is_ignored.store(true, Ordering::Relaxed);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Notes the launch of a kernel.
    pub fn launched(&self, symbol: &str) {
        for range in self.objects().ranges.values_mut().filter(|range| range.is_started) {
            range.launched.push(symbol.to_owned());
        }
    }

    /// Objects that clients have opened.
    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Objects {
    /// A new handle, unique and not 0.
    pub fn handle(&mut self) -> usize {
        self.next += 8;
        self.next
    }

    /// True if an object samples or measures ranges.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.is_taken_but_by(0)
    }

    /// True if an object other than this range profiler samples or measures ranges.
    #[must_use]
    pub fn is_taken_but_by(&self, handle: usize) -> bool {
        let others = self.ranges.iter().filter(|(other, _)| **other != handle);
        self.samplers.values().any(|sampler| !sampler.metrics.is_empty())
            || others.map(|(_, range)| range).any(|range| !range.metrics.is_empty())
    }

    /// A range profiler.
    ///
    /// # Errors
    /// If the handle is unknown or no longer valid.
    pub fn range(&mut self, handle: usize) -> Result<&mut RangeObject, CuptiResult> {
        self.ranges.get_mut(&handle).ok_or(CuptiResult::INVALID_PARAMETER)
    }

    /// A host object.
    ///
    /// # Errors
    /// If the handle is unknown or no longer valid.
    pub fn host(&mut self, handle: usize) -> Result<&mut HostObject, CuptiResult> {
        self.hosts.get_mut(&handle).ok_or(CuptiResult::INVALID_PARAMETER)
    }

    /// A sampler.
    ///
    /// # Errors
    /// If the handle is unknown or no longer valid.
    pub fn sampler(&mut self, handle: usize) -> Result<&mut SamplingObject, CuptiResult> {
        self.samplers.get_mut(&handle).ok_or(CuptiResult::INVALID_PARAMETER)
    }
}

impl SamplingObject {
    /// Takes the samples up to `now`, in nanoseconds after the start of the recording, `room` samples at
    /// most.
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
