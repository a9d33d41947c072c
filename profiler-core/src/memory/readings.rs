//! Readings of the memory in use on one device: its peak, the largest jump, and growth.
//!
//! NVML counts the memory of all processes and of the driver. So a rise is the program's only if it allocated in the
//! meantime, and a slope alone proves nothing: see [`Readings::growth`].

use gpuwhy_trace::record::{ApiFunctionId, StackId, Timestamp};

use super::calls::Calls;

/// Readings that are remembered, 48 bytes each. Beyond that each second one is forgotten.
const POINTS: usize = 2_048;
/// Of these at most so many are compared in pairs: 20,000 slopes, a few milliseconds.
const COMPARED: usize = 200;
/// Fewest rises that are growth; they lie in each quarter of the time. PyTorch takes memory in pieces of 2 or 20 MB, so
/// that fewer may be the last ones of a cache that fills up.
const FEWEST_RISES: u32 = 10;
/// Fewest readings and steps from which growth, or that there is none, may be said.
const FEWEST_READINGS: usize = 20;
const FEWEST_STEPS: u64 = 20;
/// Most increases without an allocation of the program: more show that another process takes memory too.
const MOST_FOREIGN: u32 = 2;
/// Other processes whose newest memory is kept.
const OTHERS: usize = 64;
/// Interval between readings of other processes, and how long they are valid: five intervals, nanoseconds.
const OTHERS_EVERY_NANOS: u64 = 1_100_000_000;
const OTHERS_VALID_NANOS: u64 = 5_000_000_000;
/// Those that come with a reading of the device follow it in less than this, nanoseconds.
const SAME_ROUND_NANOS: u64 = 50_000_000;

/// A reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) at: u64,
    pub(super) used: u64,
    /// Memory that recorded allocations hold, if allocations are recorded.
    pub(super) held: Option<u64>,
    /// When these held the most up to this time; 0 if unknown.
    pub(super) held_most_at: u64,
}

/// The most memory in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPeak {
    /// In use by all processes, bytes.
    pub bytes: u64,
    /// Time of the first reading of it, or of the recorded allocation that reached it since the reading before.
    pub at: Timestamp,
    /// True if no later reading was lower.
    pub until_end: bool,
    /// Bytes of other processes, read at most five seconds before that time, or one after it if the memory in use was
    /// the same; `None` if no reading of them is known.
    pub others: Option<u64>,
}

/// The largest increase between two readings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryJump {
    /// Bytes.
    pub bytes: u64,
    /// Time of the reading before it.
    pub from: Timestamp,
    /// Time of the reading after it.
    pub to: Timestamp,
    /// Calls that allocated between these two by function, the one with the most time first. Empty if the program
    /// allocated nothing: another process took the memory, or the driver, for code or for local memory of kernels.
    pub calls: Vec<(ApiFunctionId, u64)>,
    /// The call with more time than all others together, if it is the only one of its function: its function and end.
    pub longest: Option<(ApiFunctionId, Timestamp)>,
    /// Stack of the samples nearest to these calls, at most 25 ms away; of several the one near most of their time.
    pub near: Option<StackId>,
}

/// Memory in use that no recorded allocation holds: contexts, code, other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRemainder {
    /// At the last reading, bytes.
    pub bytes: u64,
    /// First of the readings with just this value up to the last one.
    pub since: Timestamp,
}

/// Memory that the program takes more of with each step, bytes per step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryGrowth {
    /// Median of the slopes between readings that are at least half of the steady time apart.
    pub per_step: f64,
    /// 5 % of these slopes are lower.
    pub low: f64,
    /// 5 % of them are higher.
    pub high: f64,
}

/// A remembered reading, and sums from the first one up to it.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    at: u64,
    /// Changes that count as the program's, bytes.
    own: i64,
    /// Increases among these.
    rises: u32,
    /// Other increases between two readings without code loaded: of other processes, or of the driver.
    foreign: u32,
    /// Number of readings, and those since whose predecessor the program allocated.
    readings: u64,
    allocating: u64,
    /// Bytes of other processes at this reading.
    others: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Readings {
    pub(super) count: u64,
    pub(super) peak: Option<MemoryPeak>,
    own_peak: Option<u64>,
    pub(super) jump: Option<MemoryJump>,
    pub(super) remainder: Option<MemoryRemainder>,
    pub(super) newest: Option<Reading>,
    points: Vec<Point>,
    /// Sums up to the newest reading.
    sums: Point,
    /// True if a reading came without recorded allocations.
    unrecorded: bool,
    /// Of each group of so many readings only the last one is remembered: a power of two.
    stride: u64,
    /// Newest memory of other processes: time, process, bytes.
    others: Vec<(u64, u32, u64)>,
}

impl Readings {
    /// Most memory without that of other processes, of the readings with which these were read too, bytes.
    pub(super) fn own_peak(&self) -> Option<u64> {
        self.own_peak.max(self.own())
    }

    /// Memory without that of other processes at the newest reading, if these were read with it.
    fn own(&self) -> Option<u64> {
        let newest = self.newest?;
        let same = self.others.iter().filter(|&&(at, ..)| at.abs_diff(newest.at) <= SAME_ROUND_NANOS);
        let others = same.map(|&(.., bytes)| bytes).reduce(u64::saturating_add)?;
        Some(newest.used.saturating_sub(others))
    }

    /// Adds a reading of another process, before the readings behind it.
    pub(super) fn other(&mut self, at: u64, pid: u32, bytes: u64) {
        self.others.retain(|&(time, other, _)| other != pid && at.saturating_sub(time) <= OTHERS_VALID_NANOS);
        if self.others.len() < OTHERS {
            self.others.push((at, pid, bytes));
        }
        let others = self.others_at(at);
        if let (Some(peak), Some(newest)) = (&mut self.peak, self.newest)
            && newest.used == peak.bytes
            && at.saturating_sub(peak.at.nanos()) <= OTHERS_EVERY_NANOS
        {
            peak.others = others;
        }
    }

    fn others_at(&self, at: u64) -> Option<u64> {
        let valid = self.others.iter().filter(|&&(time, ..)| at.saturating_sub(time) <= OTHERS_VALID_NANOS);
        valid.map(|&(.., bytes)| bytes).reduce(u64::saturating_add)
    }

    /// Adds a reading. All calls up to its time are known. Returns the bytes of other processes if they are known, and
    /// `None` for a reading that is not later than the one before.
    pub(super) fn add(&mut self, reading: Reading, calls: &Calls) -> Option<Option<u64>> {
        let others = self.others_at(reading.at);
        self.own_peak = self.own_peak();
        let before = self.newest.replace(reading);
        if before.is_some_and(|before| reading.at <= before.at) {
            self.newest = before;
            return None;
        }
        self.count += 1;
        self.raise(reading, before.map_or(0, |before| before.at), others);
        if let Some(held) = reading.held {
            let bytes = reading.used.saturating_sub(held);
            let same = self.remainder.filter(|known| known.bytes == bytes);
            self.remainder = same.or(Some(MemoryRemainder { bytes, since: Timestamp::from_nanos(reading.at) }));
        }
        if let Some(before) = before {
            let more = reading.used.saturating_sub(before.used);
            if more > self.jump.as_ref().map_or(0, |jump| jump.bytes) {
                let found = calls.of_jump(before.at, reading.at);
                let [from, to] = [before.at, reading.at].map(Timestamp::from_nanos);
                let longest = found.longest.map(|(function, end)| (function, Timestamp::from_nanos(end)));
                self.jump =
                    Some(MemoryJump { bytes: more, from, to, calls: found.functions, longest, near: found.near });
            }
            self.sums.add(before, reading, calls);
        }
        self.unrecorded |= reading.held.is_none();
        self.remember(Point { at: reading.at, others, ..self.sums });
        Some(others)
    }

    fn raise(&mut self, reading: Reading, before: u64, others: Option<u64>) {
        let most = self.peak.map_or(0, |peak| peak.bytes);
        if reading.used > most {
            let allocated = Some(reading.held_most_at).filter(|&at| at > before && at <= reading.at);
            let at = Timestamp::from_nanos(allocated.unwrap_or(reading.at));
            self.peak = Some(MemoryPeak { bytes: reading.used, at, until_end: true, others });
        } else if let Some(peak) = &mut self.peak {
            peak.until_end &= reading.used == most;
        }
    }

    fn remember(&mut self, point: Point) {
        self.stride = self.stride.max(1);
        match self.points.last_mut() {
            // It ends the group that the last one began.
            Some(last) if self.count % self.stride != 1 % self.stride => *last = point,
            _ => self.points.push(point),
        }
        if self.points.len() > POINTS {
            self.points = self.points.chunks(2).filter_map(|pair| pair.last().copied()).collect();
            self.stride *= 2;
        }
    }

    /// Growth from `from` on with steps of `step` nanoseconds; the outer `None` if that cannot be judged: too few
    /// readings or steps, rises that are too few for growth but go on in the last quarter, or changes that may be
    /// another process's.
    ///
    /// It takes [`FEWEST_RISES`] increases between two readings, between which the program allocated and loaded no
    /// code, some of them in each quarter of the time. Only these increases, and all decreases, count for the slopes
    /// (Theil and Sen: their median); if allocations are recorded, what these hold counts instead.
    pub(super) fn growth(&self, from: u64, step: u64) -> Option<Option<MemoryGrowth>> {
        let first = self.points.partition_point(|point| point.at < from);
        let points = &self.points[first..];
        let (start, end) = (points.first()?, points.last()?);
        let span = end.at - start.at;
        if step == 0 || points.len() < FEWEST_READINGS || (span / step) < FEWEST_STEPS || !self.is_own(points) {
            return None;
        }
        let quarter_of =
            |point: &Point| (4 * u128::from(point.at - start.at) / u128::from(span.max(1))).min(3) as usize;
        let mut quarters = [0; 4];
        for pair in points.windows(2) {
            quarters[quarter_of(&pair[0])] += pair[1].rises - pair[0].rises;
        }
        if quarters[3] == 0 {
            return Some(None);
        }
        if end.rises - start.rises < FEWEST_RISES || quarters.contains(&0) {
            return None;
        }
        let series: Vec<_> = points.iter().map(|point| (point.at, point.own)).collect();
        let [low, per_step, high] = slopes(&series, span)?.map(|slope| slope * step as f64);
        Some((low > 0.0).then_some(MemoryGrowth { per_step, low, high }))
    }

    /// True if the changes that count are the program's: its allocations are recorded; or nothing else changed the
    /// memory in use, and other processes' memory is known to be the same, or there was time in which the program did
    /// not allocate, to see others in.
    fn is_own(&self, points: &[Point]) -> bool {
        if !self.unrecorded {
            return true;
        }
        let (Some(start), Some(end)) = (points.first(), points.last()) else { return false };
        let same = points.windows(2).all(|pair| pair[0].others == pair[1].others);
        let foreign = end.foreign - start.foreign;
        let is_watched =
            start.others.is_some() || 10 * (end.allocating - start.allocating) < 9 * (end.readings - start.readings);
        same && foreign <= MOST_FOREIGN && is_watched
    }
}

impl Point {
    fn add(&mut self, before: Reading, reading: Reading, calls: &Calls) {
        let held = before.held.zip(reading.held);
        let of = |before: u64, now: u64| (now as i64).saturating_sub(before as i64);
        let change = held.map_or_else(|| of(before.used, reading.used), |(before, now)| of(before, now));
        let allocated = calls.any(before.at, reading.at);
        let loaded = calls.loads(before.at, reading.at);
        let rise = change > 0 && (held.is_some() || allocated && !loaded);
        self.readings += 1;
        self.allocating += u64::from(allocated);
        self.rises += u32::from(rise);
        self.foreign += u32::from(change > 0 && held.is_none() && !allocated && !loaded);
        if rise || change < 0 {
            self.own = self.own.saturating_add(change);
        }
    }
}

/// 5th, 50th and 95th percentile of the slopes between times that are at least half of `span` apart, per nanosecond.
pub(super) fn slopes(series: &[(u64, i64)], span: u64) -> Option<[f64; 3]> {
    let series: Vec<_> = series.iter().step_by(series.len().div_ceil(COMPARED)).collect();
    let mut slopes = Vec::new();
    for (index, early) in series.iter().enumerate() {
        let late = series[index + 1..].iter().filter(|late| late.0 - early.0 >= span / 2);
        slopes.extend(late.map(|late| late.1.saturating_sub(early.1) as f64 / (late.0 - early.0).max(1) as f64));
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let at = |percent: usize| slopes.get((slopes.len().saturating_sub(1)) * percent / 100).copied();
    Some([at(5)?, at(50)?, at(95)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::calls::MemoryCall;
    use gpuwhy_trace::record::ThreadId;

    const MS: u64 = 1_000_000;
    const STEP: u64 = 20 * MS;
    const MIB: u64 = 1 << 20;

    /// 400 readings, 10 a second. `used` and whether the program allocated since the last one, by number.
    fn readings(of: impl Fn(u64) -> (u64, bool)) -> Readings {
        let (mut readings, mut calls) = (Readings::default(), Calls::default());
        for number in 0..400 {
            let (used, allocated) = of(number);
            let at = (number + 1) * 100 * MS;
            if allocated {
                let (thread, function) = (ThreadId(1), ApiFunctionId(1));
                calls.add(MemoryCall { start: at - MS, end: at - MS / 2, thread, function }, true, 0);
            }
            readings.add(Reading { at, used, held: None, held_most_at: 0 }, &calls);
        }
        readings
    }

    #[test]
    fn what_the_program_takes_in_all_quarters_is_growth() {
        // 20 MiB each seventh reading, which are 35 steps.
        let growing = readings(|number| (1_000 * MIB + number / 7 * 20 * MIB, number % 7 == 0));
        let growth = growing.growth(0, STEP).flatten().expect("it grows");
        let truth = 20.0 / 35.0 * MIB as f64;
        assert!(
            growth.low <= truth && truth <= growth.high && (growth.per_step / truth - 1.0).abs() < 0.03,
            "{growth:?}"
        );
        assert_eq!(growing.growth(0, 0), None, "no steps");
        assert_eq!(growing.growth(0, 3_000 * MS), None, "too few");
        assert_eq!(growing.growth(390 * 100 * MS, STEP), None, "too few readings");
    }

    #[test]
    fn other_rises_are_no_growth() {
        let none = |readings: Readings| assert_eq!(readings.growth(0, STEP), Some(None));
        none(readings(|_| (1_000 * MIB, false)));
        // Another process takes it, or may take it while this one allocates all the time.
        assert_eq!(readings(|number| (number * MIB, false)).growth(0, STEP), None);
        assert_eq!(readings(|number| (number * MIB, true)).growth(0, STEP), None);
        // A cache that fills up, in the first half or two thirds, or is emptied now and then.
        none(readings(|number| (number.min(200) / 5 * 20 * MIB, number % 5 == 0)));
        none(readings(|number| (number.min(266) / 5 * 20 * MIB, number % 5 == 0)));
        none(readings(|number| (number % 50 / 5 * 20 * MIB, number % 5 == 0)));
        // Nine large pieces, to the end: there may be more.
        assert_eq!(readings(|number| (number / 40 * 200 * MIB, number % 40 == 0)).growth(0, STEP), None);
    }

    #[test]
    fn growth_beside_another_process_that_changes_is_unknown() {
        let (mut both, calls) = (Readings::default(), Calls::default());
        for number in 0..400_u64 {
            let at = (number + 1) * 100 * MS;
            both.add(Reading { at, used: 2 * number * MIB + 5, held: None, held_most_at: 0 }, &calls);
            if number % 10 == 0 {
                both.other(at + MS, 7, number * MIB);
            }
        }
        assert_eq!(both.growth(0, STEP), None);
        let peak = both.peak.unwrap();
        assert_eq!((peak.bytes, peak.others, both.own_peak()), (798 * MIB + 5, Some(390 * MIB), Some(390 * MIB + 5)));
    }

    #[test]
    fn a_peak_lasts_to_the_end_unless_a_later_reading_is_lower() {
        let last = readings(|number| (number.min(50) + 1, false)).peak.unwrap();
        assert_eq!((last.bytes, last.at.nanos(), last.until_end), (51, 51 * 100 * MS, true));
        let fallen = readings(|number| (if number == 60 { 90 } else { 40 }, false));
        assert_eq!(fallen.peak.map(|peak| (peak.bytes, peak.until_end)), Some((90, false)));
        let jump = fallen.jump.unwrap();
        assert_eq!((jump.bytes, jump.from.nanos(), jump.to.nanos()), (50, 60 * 100 * MS, 61 * 100 * MS));
        assert!(jump.calls.is_empty() && jump.near.is_none());
    }

    #[test]
    fn the_remainder_is_as_old_as_its_value() {
        let (mut beside, calls) = (Readings::default(), Calls::default());
        for (at, used, held) in [(1, 100, 0), (2, 150, 30), (3, 160, 40), (3, 0, 0), (4, 170, 50)] {
            beside.add(Reading { at, used, held: Some(held), held_most_at: 0 }, &calls);
        }
        assert_eq!(beside.remainder, Some(MemoryRemainder { bytes: 120, since: Timestamp::from_nanos(2) }));
        assert_eq!(beside.count, 4, "the same time again");
    }

    #[test]
    fn a_long_run_keeps_all_of_its_time_in_bounded_memory() {
        let (mut long, mut calls) = (Readings::default(), Calls::default());
        for number in 0..100_000_u64 {
            let at = (number + 1) * 100 * MS;
            if number % 70 == 0 {
                let (thread, function) = (ThreadId(1), ApiFunctionId(1));
                calls.add(MemoryCall { start: at - MS, end: at - MS / 2, thread, function }, true, 0);
            }
            long.add(Reading { at, used: number / 70 * 20 * MIB, held: None, held_most_at: 0 }, &calls);
        }
        assert!(long.points.len() <= POINTS && long.count == 100_000);
        let growth = long.growth(0, STEP).flatten().expect("it grows");
        let truth = 20.0 / 350.0 * MIB as f64;
        assert!((growth.per_step / truth - 1.0).abs() < 0.03, "{growth:?}");
    }
}
