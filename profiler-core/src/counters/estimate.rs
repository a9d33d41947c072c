//! Counters of individual kernels, estimated from samples of the entire device.
//!
//! The value of a sample is the sum, over the operations in it, of the fraction of the sample in which the
//! operation ran, times the operation's mean value. Some hundred samples and the records of the operations yield the
//! means by least squares, even for kernels shorter than a sample. Kernels are separated by launch configuration. Those
//! with little of the time share one unknown, and copies, memsets and idle time are one unknown each. Each
//! sample is one equation; kernels that run concurrently appear in the same one.
//!
//! Samples and records come in any order: each waits for the other, within limits. Memory is bounded: at most
//! 12 MiB per device, and about 2 MiB for a program with ten kernels.

use std::collections::VecDeque;

use gpuwhy_trace::counters::{METRIC_LIMIT, Metric, MetricSet, Sample, Unit};
use gpuwhy_trace::record::LaunchConfigId;
use rustc_hash::FxHashMap;

use super::grouped::{GROUPS, Grouped, WeightedSums};
use super::regression::{Solution, Values};

/// Maximum samples that wait for records, 84 bytes each: 40 s at 200 Hz.
const SAMPLE_LIMIT: usize = 1 << 13;
/// Maximum operations that wait for samples, 24 bytes each.
const RUN_LIMIT: usize = 1 << 17;
/// Maximum separate unknowns while samples arrive; beyond that, those with the least time are joined.
const UNKNOWN_LIMIT: usize = 144;
/// Number of unknowns left after joining.
const UNKNOWNS_KEPT: usize = 112;
/// Additional unknowns that one sample may add.
const UNKNOWNS_OF_A_SAMPLE: usize = 48;
/// Maximum number of launch configurations with an unknown of their own; later ones count as joined.
const CONFIG_LIMIT: usize = 1 << 16;
/// Maximum unknowns in a solution: limited by the time of a live report (some milliseconds).
const SOLVED_LIMIT: usize = 96;
/// A kernel with less than this fraction of the busy time is not estimated separately: its value would be
/// lost in the noise of the others (measured on a GPT training on an H200 with 680 kernels per step).
const LEAST_SHARE: f64 = 0.004;
/// Samples needed per unknown.
const ROWS_EACH: u64 = 3;

/// Activity of a device during a part of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// No recorded operation.
    Idle,
    /// Kernels that are not estimated separately.
    Joined,
    /// Copies.
    Copy,
    /// Memsets.
    Memset,
    /// A kernel with this launch configuration.
    Kernel(LaunchConfigId),
}

/// Unknowns that are always present, in this order.
const FIXED: [Activity; 4] = [Activity::Idle, Activity::Joined, Activity::Copy, Activity::Memset];
const IDLE: usize = 0;
const JOINED: usize = 1;

#[derive(Clone, Copy, Debug)]
struct KernelRun {
    start: u64,
    end: u64,
    activity: Activity,
}

/// Counts of a device's samples by their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SampleUse {
    /// Samples in the equations.
    pub used: u64,
    /// Samples with a value missing, out of order, or without a length.
    pub unusable: u64,
    /// Samples without records: from before the capture, or older than the records kept.
    pub unplaced: u64,
    /// Total time of the samples in the equations, nanoseconds.
    pub used_ns: u64,
}

impl SampleUse {
    /// Mean length of the samples in the equations, nanoseconds; `None` without any.
    pub fn mean_interval_ns(&self) -> Option<u64> {
        self.used_ns.checked_div(self.used)
    }
}

/// Samples of one device and their equations.
#[derive(Clone, Debug)]
pub struct Estimator {
    set: MetricSet,
    samples: VecDeque<Sample>,
    runs: Vec<KernelRun>,
    /// Operations that ended by this time may be missing.
    complete_from: u64,
    /// End of the newest sample in the equations.
    position: u64,
    equations: Grouped,
    unknowns: Vec<Activity>,
    places: FxHashMap<LaunchConfigId, u32>,
    counts: SampleUse,
    /// Coefficients of one row; kept to reuse the memory.
    parts: Vec<f64>,
}

/// Estimated counters by activity, with standard errors, in the units of the metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimates {
    rows: FxHashMap<Activity, (Values, Values)>,
}

impl Estimates {
    /// Value and standard error of a metric while `activity` ran. For a kernel that is not estimated separately,
    /// returns the values of the joined kernels.
    pub fn get(&self, set: &MetricSet, activity: Activity, metric: Metric) -> Option<(f64, f64)> {
        let column = set.metrics.position(metric)?;
        let row = self.rows.get(&activity);
        let joined = || self.rows.get(&Activity::Joined).filter(|_| matches!(activity, Activity::Kernel(_)));
        let (values, errors) = row.or_else(joined)?;
        Some((values[column], errors[column]))
    }

    /// Kernels that are estimated separately.
    pub fn resolved(&self) -> impl Iterator<Item = LaunchConfigId> {
        self.rows
            .keys()
            .filter_map(|activity| if let Activity::Kernel(config) = activity { Some(*config) } else { None })
    }

    /// True if a kernel is estimated separately.
    pub fn tells(&self, config: LaunchConfigId) -> bool {
        self.rows.contains_key(&Activity::Kernel(config))
    }
}

/// Group of samples whose boundary falls into `activity`. Which kernels share a group does not matter, only
/// that a kernel is always in the same one.
fn group_of(activity: Activity) -> usize {
    match activity {
        Activity::Kernel(config) => 1 + config.0 as usize % (GROUPS - 1),
        _ => 0,
    }
}

impl Estimator {
    /// For samples of `set` that start at `from` or later, nanoseconds.
    pub fn new(set: MetricSet, from: u64) -> Self {
        let mut equations = Grouped::default();
        FIXED.iter().for_each(|_| {
            equations.grow();
        });
        Self {
            set,
            samples: VecDeque::new(),
            runs: Vec::new(),
            complete_from: from,
            position: 0,
            equations,
            unknowns: FIXED.to_vec(),
            places: FxHashMap::default(),
            counts: SampleUse::default(),
            parts: Vec::new(),
        }
    }

    /// The sampled metrics.
    pub fn set(&self) -> &MetricSet {
        &self.set
    }

    /// Continues with samples of the same metrics at another interval.
    pub(super) fn change_set(&mut self, set: MetricSet) {
        self.set = set;
    }

    /// Counts of the samples by their use.
    pub fn counts(&self) -> SampleUse {
        self.counts
    }

    /// Adds a sample.
    pub fn sample(&mut self, sample: Sample) {
        if self.samples.len() >= SAMPLE_LIMIT {
            self.samples.pop_front();
            self.counts.unplaced += 1;
        }
        self.samples.push_back(sample);
    }

    /// Records an operation from `start` to `end`.
    #[inline]
    pub fn ran(&mut self, activity: Activity, start: u64, end: u64) {
        if end <= self.position || end <= start {
            return;
        }
        if self.runs.len() >= RUN_LIMIT {
            self.forget_half();
        }
        self.runs.push(KernelRun { start, end, activity });
    }

    #[cold]
    fn forget_half(&mut self) {
        self.runs.sort_by_key(|run| run.end);
        let mut forgotten = self.runs.drain(..RUN_LIMIT / 2);
        if let Some(last) = forgotten.next_back() {
            self.complete_from = self.complete_from.max(last.end);
        }
    }

    /// All operations that ended before `watermark` have been reported: adds the samples up to there.
    pub fn advance(&mut self, watermark: u64) {
        if self.samples.front().is_none_or(|sample| sample.end.nanos() > watermark) {
            return;
        }
        self.runs.sort_by_key(|run| (run.start, run.end, run.activity));
        let runs = std::mem::take(&mut self.runs);
        let mut first = 0;
        while let Some(sample) = self.samples.front().copied().filter(|sample| sample.end.nanos() <= watermark) {
            self.samples.pop_front();
            let (begin, end) = (sample.begin.nanos(), sample.end.nanos());
            if begin >= end || begin < self.position {
                self.counts.unusable += 1;
                continue;
            }
            self.position = end;
            first += runs[first..].iter().take_while(|run| run.end <= begin).count();
            if begin < self.complete_from {
                self.counts.unplaced += 1;
            } else {
                self.enter(&sample, runs[first..].iter().take_while(|run| run.start < end));
            }
        }
        self.runs = runs;
        let position = self.position;
        self.runs.retain(|run| run.end > position);
    }

    fn enter<'a>(&mut self, sample: &Sample, runs: impl Iterator<Item = &'a KernelRun>) {
        let (begin, end) = (sample.begin.nanos(), sample.end.nanos());
        let count = self.set.metrics.as_slice().len();
        if sample.values[..count].iter().any(|value| !value.is_finite()) {
            self.counts.unusable += 1;
            return;
        }
        if self.unknowns.len() >= UNKNOWN_LIMIT {
            self.join_smallest();
        }
        let length = (end - begin) as f64;
        self.parts.clear();
        let (mut busy_until, mut idle, mut sum) = (begin, 0, 0.0);
        // Activities at the start and at the end of the sample, which its boundaries cut.
        let (mut first, mut last) = (Activity::Idle, Activity::Idle);
        for run in runs {
            let (from, to) = (run.start.max(begin), run.end.min(end));
            if from >= to {
                continue;
            }
            idle += from.saturating_sub(busy_until);
            busy_until = busy_until.max(to);
            if run.start < begin {
                first = run.activity;
            }
            if run.end > end {
                last = run.activity;
            }
            let place = self.place(run.activity);
            if self.parts.len() <= place {
                self.parts.resize(place + 1, 0.0);
            }
            self.parts[place] += (to - from) as f64 / length;
            sum += (to - from) as f64 / length;
        }
        idle += end.saturating_sub(busy_until);
        if self.parts.is_empty() {
            self.parts.resize(1, 0.0);
        }
        self.parts[IDLE] = idle as f64 / length;
        sum += idle as f64 / length;
        let row: Vec<(usize, f64)> = self.parts.iter().copied().enumerate().filter(|&(_, part)| part > 0.0).collect();
        let mut values = [0.0; METRIC_LIMIT];
        let mut sums = WeightedSums { nanos: length, busy: length - idle as f64, ..WeightedSums::default() };
        for (column, metric) in self.set.metrics.as_slice().iter().enumerate() {
            let value = f64::from(sample.values[column]);
            // A clock does not add up over concurrent operations: each has the full value.
            values[column] = if *metric == Metric::Clock { value * sum } else { value };
            sums.values[column] = value * length;
        }
        let of = |metric| sample.value(&self.set, metric).map_or(0.0, f64::from);
        sums.tensor_clock = of(Metric::Tensor) * of(Metric::Clock) * length;
        if row.iter().any(|&(unknown, _)| unknown != IDLE) || self.equations.wants_idle() {
            self.equations.add(&row, &values, &sums, (group_of(first), group_of(last)));
        } else {
            self.equations.add_to_sums(&sums);
        }
        self.counts.used += 1;
        self.counts.used_ns = self.counts.used_ns.saturating_add(end - begin);
    }

    /// Unknown of an activity; a new one if there is room.
    fn place(&mut self, activity: Activity) -> usize {
        let config = match activity {
            Activity::Kernel(config) => config,
            _ => return FIXED.iter().position(|&fixed| fixed == activity).unwrap_or(JOINED),
        };
        if let Some(&place) = self.places.get(&config) {
            return place as usize;
        }
        if self.places.len() >= CONFIG_LIMIT {
            return JOINED;
        }
        if self.unknowns.len() >= UNKNOWN_LIMIT + UNKNOWNS_OF_A_SAMPLE {
            return JOINED;
        }
        let place = self.equations.grow();
        self.unknowns.push(activity);
        self.places.insert(config, place as u32);
        place
    }

    /// Makes room: joins the kernels with the least weight.
    fn join_smallest(&mut self) {
        let joined = self.grouping(UNKNOWNS_KEPT, 0.0);
        let count = joined.iter().max().map_or(0, |most| most + 1);
        self.equations = self.equations.joined(&joined, count);
        let mut unknowns = FIXED.to_vec();
        unknowns.resize(count, Activity::Joined);
        for (old, &new) in joined.iter().enumerate() {
            if new >= FIXED.len() {
                unknowns[new] = self.unknowns[old];
            }
        }
        self.unknowns = unknowns;
        for place in self.places.values_mut() {
            *place = joined[*place as usize] as u32;
        }
    }

    /// New index of each unknown if at most `most` stay separate, each with at least the fraction `share` of the
    /// time; the others get the index of the joined unknown. Fixed unknowns keep their index.
    fn grouping(&self, most: usize, share: f64) -> Vec<usize> {
        let times: Vec<f64> = (0..self.unknowns.len()).map(|place| self.equations.time(place)).collect();
        let least = share * self.equations.busy_time();
        let mut kernels: Vec<usize> = (FIXED.len()..self.unknowns.len()).collect();
        kernels.sort_by(|&a, &b| times[b].total_cmp(&times[a]).then(a.cmp(&b)));
        let kept = most.saturating_sub(FIXED.len());
        let mut joined = vec![JOINED; self.unknowns.len()];
        (0..FIXED.len().min(joined.len())).for_each(|fixed| joined[fixed] = fixed);
        let large = kernels.into_iter().take(kept).filter(|&place| times[place] > least);
        for (number, place) in large.enumerate() {
            joined[place] = FIXED.len() + number;
        }
        joined
    }

    /// Solves for the counters of each activity. Empty while there are too few samples.
    pub fn solve(&self) -> Estimates {
        let most = usize::try_from(self.equations.rows() / ROWS_EACH).unwrap_or(usize::MAX).min(SOLVED_LIMIT);
        if most < FIXED.len() + 1 {
            return Estimates::default();
        }
        let joined = self.grouping(most, LEAST_SHARE);
        let mut present: Vec<usize> = joined.clone();
        present.sort_unstable();
        present.dedup();
        let groups = present.last().map_or(0, |last| last + 1);
        let equations = self.equations.joined(&joined, groups);
        // An activity that never occurred is not an unknown.
        let occurring: Vec<usize> = (0..groups).filter(|&group| equations.time(group) > 0.0).collect();
        let numbers: Vec<usize> = (0..groups).map(|group| occurring.binary_search(&group).unwrap_or(0)).collect();
        let equations = equations.joined(&numbers, occurring.len());
        let Some(Solution { values, errors }) = equations.solve(&self.upper()) else { return Estimates::default() };
        let mut rows = FxHashMap::default();
        for (place, &group) in joined.iter().enumerate() {
            let Ok(number) = occurring.binary_search(&group) else { continue };
            let own = group == JOINED && place != JOINED;
            if !own {
                rows.insert(self.unknowns[place], (values[number], errors[number]));
            }
        }
        if let Ok(number) = occurring.binary_search(&JOINED) {
            rows.insert(Activity::Joined, (values[number], errors[number]));
        }
        Estimates { rows }
    }

    /// Maximum possible value of each metric.
    fn upper(&self) -> Values {
        let mut upper = [f64::INFINITY; METRIC_LIMIT];
        for (limit, metric) in upper.iter_mut().zip(self.set.metrics.as_slice()) {
            if metric.unit() == Unit::Percent {
                *limit = 100.0;
            }
        }
        upper
    }

    /// Mean of a metric over the samples that were used.
    pub fn mean(&self, metric: Metric) -> Option<f64> {
        let column = self.set.metrics.position(metric)?;
        let sums = self.equations.sums();
        (sums.nanos > 0.0).then(|| sums.values[column] / sums.nanos)
    }

    /// Standard error of [`mean`](Self::mean), from the differences between intervals of the run; `None` with
    /// few samples.
    pub fn mean_error(&self, metric: Metric) -> Option<f64> {
        let column = self.set.metrics.position(metric)?;
        self.equations.error_of_mean(|sums| sums.values[column])
    }

    /// Mean use of the tensor pipes as a fraction (0 to 1) of their peak at the highest clock, with its
    /// standard error if there are enough samples.
    pub fn tensor_of_peak(&self) -> Option<(f64, Option<f64>)> {
        let known = self.set.metrics.position(Metric::Tensor).and(self.set.metrics.position(Metric::Clock));
        let sums = self.equations.sums();
        known.filter(|_| sums.nanos > 0.0 && self.set.highest_clock_hz > 0)?;
        let peak = 100.0 * self.set.highest_clock_hz as f64;
        let error = self.equations.error_of_mean(|sums| sums.tensor_clock / peak);
        Some(((sums.tensor_clock / peak / sums.nanos).min(1.0), error))
    }
}
