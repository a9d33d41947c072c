//! Division of a monitored time by cause, and the resulting bottleneck if the intervals allow one.

use super::sums::{Between, CAUSES, IDLE, Shares, Sums};
use crate::leaf::Cause;
use crate::sorting::SortRows as _;
use crate::thresholds::WORTH_SHARE;

/// Number of groups of blocks; one is left out at a time (jackknife). Adjacent times are similar, so the
/// groups are few and long.
const PARTS: usize = 12;
/// With fewer parts the random error is unknown.
const FEWEST_PARTS: usize = 6;
/// 97.5 % quantile of Student's t with 11 degrees of freedom: intervals of 95 %.
const QUANTILE: f64 = 2.2;
/// Error of a sample's busy fraction in addition to its bounds: values are rounded, and edges of samples cut
/// launches.
const DEVICE_ERROR: f64 = 0.002;
/// Device time in samples that a bottleneck requires, nanoseconds.
const SHORTEST: f64 = 2_500_000_000.0;
/// Fraction of that time in which the launching thread must have been seen.
const SEEN_SHARE: f64 = 0.5;
/// Computation is the bottleneck only if it takes at least this fraction of the time.
const MOSTLY: f64 = 0.5;
/// Start-up ends with the first block that is busy for this fraction of the usual value in the second half,
/// and takes at most this fraction of the run.
const WARM: f64 = 0.5;
const LONGEST_START_UP: f64 = 0.75;
/// Idle blocks up to this time at the end belong to the end of the program: records also end with the last
/// work.
const WIND_DOWN: f64 = 2e9;

/// Part of a monitored time.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MonitoredPart {
    /// Its cause.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub cause: Cause,
    /// Time that certainly belongs to the cause, except for random error; nanoseconds of device time.
    #[cfg_attr(feature = "serde", serde(rename = "ns"))]
    pub nanos: u64,
    /// Smallest and largest share of the time with this cause, 0 to 1: accounts for unresolved time, and for
    /// random error with a 95 % interval.
    pub low: f64,
    /// See [`low`](Self::low).
    pub high: f64,
}

/// Division of a monitored time: the parts and [`unresolved_ns`](Self::unresolved_ns) sum to
/// [`window_ns`](Self::window_ns).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MonitoredTime {
    /// Device time that is divided, nanoseconds; the sum over all devices.
    pub window_ns: u64,
    /// Device time before it that counts as start-up, nanoseconds.
    pub start_up_ns: u64,
    /// Parts by cause.
    pub parts: Vec<MonitoredPart>,
    /// Time with an unresolved cause.
    pub unresolved_ns: u64,
    /// Fraction of the time in which kernels ran: smallest and largest, by the device's counters.
    pub busy: (f64, f64),
    /// Fraction of the time covered by host samples.
    pub covered: f64,
    /// Number of samples of devices, and of the launching thread, that it is based on.
    pub samples: (u64, u64),
    /// The bottleneck, if the intervals leave exactly one; else [`Cause::CannotTell`].
    pub bottleneck: Cause,
}

impl MonitoredTime {
    /// Divides the blocks of a time, without start-up if `warm_up` is set. `None` without samples of a
    /// device.
    pub(super) fn of<'a>(blocks: impl Iterator<Item = &'a Sums>, warm_up: bool) -> Option<Self> {
        let mut blocks: Vec<&Sums> = blocks.collect();
        if warm_up {
            blocks.truncate(blocks.len() - winding_down(&blocks));
        }
        let from = if warm_up { warm_from(&blocks) } else { 0 };
        let start_up: f64 = blocks[..from].iter().map(|block| block.nanos()).sum();
        let parts = joined(&blocks[from..]);
        let total = sum(&parts);
        if total.nanos() <= 0.0 {
            return None;
        }
        let shares = total.shares();
        let intervals = intervals(&parts, &total, &shares);
        let window_ns = total.nanos() as u64;
        let rows: Vec<MonitoredPart> = CAUSES
            .into_iter()
            .zip(shares)
            .zip(intervals)
            .map(|((cause, share), interval)| MonitoredPart {
                cause,
                nanos: ((share.low * total.nanos()) as u64).min(window_ns),
                low: interval.low,
                high: interval.high,
            })
            .collect();
        let reported: u64 = rows.iter().map(|row| row.nanos).sum();
        let busy = total.busy();
        let mut time = Self {
            window_ns: window_ns.max(reported),
            start_up_ns: start_up as u64,
            unresolved_ns: window_ns.saturating_sub(reported),
            parts: rows,
            busy: (busy.low, busy.high),
            covered: total.covered().min(1.0),
            samples: (total.device_samples, total.host_samples),
            bottleneck: Cause::CannotTell,
        };
        if total.nanos() >= SHORTEST && parts.len() >= FEWEST_PARTS {
            time.bottleneck = time.named();
        }
        Some(time)
    }

    /// Part of one cause.
    pub fn part(&self, cause: Cause) -> Option<&MonitoredPart> {
        self.parts.iter().find(|part| part.cause == cause)
    }

    /// Causes that may be the bottleneck, the one with the largest possible share first.
    pub fn possible(&self) -> Vec<&MonitoredPart> {
        let others = self.parts.iter().filter(|part| part.cause != Cause::GpuCompute);
        let surest = others.clone().map(|part| part.low).fold(0.0, f64::max);
        let mut possible: Vec<_> = others.filter(|part| part.high >= WORTH_SHARE.max(surest)).collect();
        possible.sort_rows_by(|one, other| other.high.total_cmp(&one.high));
        possible
    }

    /// Same rule as for recorded runs: a cause other than computation that is worth fixing, else computation.
    fn named(&self) -> Cause {
        let computing = self.part(Cause::GpuCompute).map_or(0.0, |part| part.low);
        match self.possible()[..] {
            [] if computing >= MOSTLY => Cause::GpuCompute,
            [only] if only.low >= WORTH_SHARE && self.covered >= SEEN_SHARE => only.cause,
            _ => Cause::CannotTell,
        }
    }
}

/// Number of idle blocks at the end that the end of the program explains, plus the block before them in which
/// the work ends. 0 if there was no work yet.
fn winding_down(blocks: &[&Sums]) -> usize {
    let mut nanos = 0.0;
    let idle = blocks.iter().rev().take_while(|block| {
        nanos += block.nanos();
        block.busy().high <= IDLE && nanos <= WIND_DOWN
    });
    match idle.count() {
        idle if idle == blocks.len() => 0,
        idle if blocks.len() > PARTS => idle + 1,
        idle => idle,
    }
}

/// Index of the first block after start-up. The block in which start-up ends is part of it.
fn warm_from(blocks: &[&Sums]) -> usize {
    let busy = |block: &Sums| block.busy().low.midpoint(block.busy().high);
    let half = blocks.len() / 2;
    let most = (blocks.len() as f64 * LONGEST_START_UP) as usize;
    let mut usual: Vec<f64> =
        blocks[half..].iter().filter(|block| block.nanos() > 0.0).map(|block| busy(block)).collect();
    usual.sort_by(f64::total_cmp);
    let Some(&median) = usual.get(usual.len() / 2) else { return 0 };
    match blocks[..most].iter().position(|block| block.nanos() > 0.0 && busy(block) >= WARM * median) {
        Some(0) => 0,
        Some(place) if blocks.len() > PARTS => place + 1,
        found => found.unwrap_or(most),
    }
}

/// Joins the blocks to at most [`PARTS`] parts of about the same number of blocks.
fn joined(blocks: &[&Sums]) -> Vec<Sums> {
    let filled: Vec<&Sums> = blocks.iter().copied().filter(|block| block.nanos() > 0.0).collect();
    let parts = filled.len().min(PARTS);
    (0..parts)
        .map(|part| {
            let mut sums = Sums::default();
            let bounds = [part, part + 1].map(|part| part * filled.len() / parts);
            filled[bounds[0]..bounds[1]].iter().for_each(|block| sums.add(block));
            sums
        })
        .collect()
}

fn sum(parts: &[Sums]) -> Sums {
    let mut total = Sums::default();
    parts.iter().for_each(|part| total.add(part));
    total
}

/// Shares widened by random error. The device's activity has none, as its samples are complete.
fn intervals(parts: &[Sums], total: &Sums, shares: &Shares) -> Shares {
    let count = parts.len() as f64;
    let without: Vec<Shares> = parts.iter().map(|part| total.without(part).shares()).collect();
    std::array::from_fn(|index| {
        let share = shares[index];
        let error = |bound: fn(&Between) -> f64| {
            if matches!(CAUSES[index], Cause::GpuCompute | Cause::Copy) {
                return DEVICE_ERROR;
            }
            if parts.len() < FEWEST_PARTS {
                return 1.0;
            }
            let mean = without.iter().map(|shares| bound(&shares[index])).sum::<f64>() / count;
            let squares: f64 = without.iter().map(|shares| (bound(&shares[index]) - mean).powi(2)).sum();
            QUANTILE * ((count - 1.0) / count * squares).sqrt() + DEVICE_ERROR
        };
        let found = Between::new(share.low - error(|share| share.low), share.high + error(|share| share.high));
        match CAUSES[index] {
            Cause::GpuCompute => found,
            _ => Between::new(found.low, found.high.min(1.0 - total.busy().low + shares[0].width() + DEVICE_ERROR)),
        }
    })
}
