//! Share of each cause, and the ranking by recoverable time.
//!
//! Shares refer to the time of the steady steps if there are enough, else to the complete steady time. Steps
//! are preferred because a few unusual ones can be excluded and because they provide an interval. They are
//! not used if the unusual ones take more time than may be excluded, or if the steps that are kept are a
//! small part of the run: then the total is more representative.
//!
//! The recoverable time of a cause is not the time it took: once it is removed, another one may be hidden
//! there, which the simulation detects. But the simulation also credits a cause with time that only another
//! one limits (a host with free launches outruns a slow data loader). So the recoverable time is the smaller
//! of the two if the simulation is validated, and the measured time otherwise. Computation is not rated: the
//! records do not show how much faster a kernel could be, except for small grids, which have a separate best
//! case.

use profiler_core::attribution::Attributor;
use profiler_core::leaf::{Cause, Leaf, Leaves};
use profiler_core::sorting::SortRows as _;
use profiler_core::steps::{FEWEST_STEADY, Steady, Step, TimeShare, UNUSUAL, WARM_UP_STEPS};
use profiler_core::thresholds::WORTH_SHARE;
use profiler_core::whatif::ScenarioKind;

use crate::run::untraced::{WithoutTracing, made_by_tracing};
use crate::run::{DeviceReport, Ranked, RecoverableBy};

/// Least change of a share by tracing that is mentioned.
const TRACING_CHANGE: f64 = 0.02;

/// Ranking of the causes over all devices.
#[derive(Debug)]
pub(super) struct Ranking {
    rows: Vec<RankedCause>,
    /// Steady steps of each device, in device order, if the shares refer to them.
    pub(super) steady: Option<Vec<Steady>>,
    /// Fraction of a step that remains without tracing, by device, 0 to 1; 1 where shares and gains refer to
    /// traced steps.
    pub(super) untraced: Vec<f64>,
    /// The first cause if all shares referred to steps with tracing, and its share.
    with_tracing: (Cause, f64),
}

#[derive(Clone, Copy, Debug)]
struct RankedCause {
    cause: Cause,
    share: TimeShare,
    recoverable: f64,
    by: RecoverableBy,
    /// False for kernels that were built at the beginning only: a longer run has less of it.
    lasts: bool,
}

impl Ranking {
    pub(super) fn new(attributor: &Attributor, devices: &[DeviceReport]) -> Self {
        let steady: Option<Vec<Steady>> = attributor.devices().map(|account| account.typical_steps()).collect();
        let steady = steady.filter(|rows| !rows.is_empty());
        let of_device = |(index, device): (usize, &DeviceReport)| {
            let steps = steady.as_ref().and_then(|steady| steady.get(index));
            let leaves = steps.map_or(device.steady_leaves, Steady::leaves);
            WithoutTracing::of(device, &leaves)
        };
        let without: Vec<_> = devices.iter().enumerate().map(of_device).collect();
        let rows = |without: &[WithoutTracing]| -> Vec<RankedCause> {
            Cause::ALL.into_iter().map(|cause| RankedCause::of(cause, steady.as_deref(), devices, without)).collect()
        };
        let untraced = without.iter().map(|without| without.step).collect();
        let mut ranking = Self {
            rows: rows(&vec![WithoutTracing::NOTHING; devices.len()]),
            steady: None,
            untraced,
            with_tracing: (Cause::CannotTell, 0.0),
        };
        let first = ranking.first();
        ranking.with_tracing = (first, ranking.share(first).share);
        ranking.rows = rows(&without);
        ranking.steady = steady;
        ranking
    }

    /// Sentence that tracing changes the first cause, if it changes the share of that cause visibly.
    pub(super) fn changed_by_tracing(&self) -> Option<String> {
        let (first, with) = self.with_tracing;
        let without = self.share(first).share;
        let changed = first != self.first() && with - without >= TRACING_CHANGE;
        changed.then(|| made_by_tracing(first, without, with))
    }

    pub(super) fn share(&self, cause: Cause) -> TimeShare {
        self.row(cause).map_or_else(TimeShare::default, |row| row.share)
    }

    /// Recoverable share of `cause`.
    fn recoverable(&self, cause: Cause) -> f64 {
        self.row(cause).map_or(0.0, |row| row.recoverable)
    }

    fn row(&self, cause: Cause) -> Option<&RankedCause> {
        self.rows.iter().find(|row| row.cause == cause)
    }

    /// The cause that matters most.
    pub(super) fn first(&self) -> Cause {
        let lasts = |cause: Cause| self.row(cause).is_none_or(|row| row.lasts);
        let share = |cause: Cause| if lasts(cause) { self.share(cause).share } else { 0.0 };
        first_of(share, |cause| if lasts(cause) { self.recoverable(cause) } else { 0.0 })
    }

    /// Possible bottlenecks with any time, the most recoverable first.
    pub(super) fn ranked(&self) -> Vec<Ranked> {
        let rows = self.rows.iter().filter(|row| can_be_first(row.cause) && row.share.share > 0.0);
        let ranked = |row: &RankedCause| Ranked {
            cause: row.cause,
            share: row.share.share,
            recoverable: row.recoverable,
            by: row.by,
        };
        let mut rows: Vec<Ranked> = rows.map(ranked).collect();
        rows.sort_rows_by(|a, b| b.recoverable.total_cmp(&a.recoverable).then(b.share.total_cmp(&a.share)));
        rows
    }

    /// A cause that may have as much recoverable time as `cause`: the intervals of both overlap.
    pub(super) fn rival(&self, cause: Cause) -> Option<(Cause, TimeShare)> {
        self.steady.as_ref()?;
        let at = |row: &RankedCause, end: f64| row.recoverable * end / row.share.share.max(f64::MIN_POSITIVE);
        let low = self.row(cause).map_or(0.0, |row| at(row, row.share.low));
        let others = self.rows.iter().filter(|row| row.cause != cause && can_be_first(row.cause));
        let rivals = others.filter(|row| at(row, row.share.high) > low).map(|row| (row.cause, row.share));
        rivals.max_by(|a, b| a.1.share.total_cmp(&b.1.share))
    }

    /// A cause with more time than `cause`, of which a simulation recovers less; with the recoverable share.
    pub(super) fn larger(&self, cause: Cause) -> Option<(Cause, f64, f64)> {
        let own = self.share(cause).share;
        let others = self.rows.iter().filter(|row| row.cause != cause && can_be_first(row.cause));
        let larger = others.filter(|row| row.share.share > own && row.by == RecoverableBy::Simulation);
        let largest = larger.max_by(|a, b| a.share.share.total_cmp(&b.share.share))?;
        Some((largest.cause, largest.share.share, largest.recoverable))
    }
}

/// True if the time of a cause is recoverable.
fn can_be_first(cause: Cause) -> bool {
    !matches!(cause, Cause::GpuCompute | Cause::CannotTell)
}

impl RankedCause {
    /// Computes the share of `cause` on each device (of the time of its steady steps, else of its steady
    /// time) and the recoverable share, weighted by the steady time of the devices; `without` is the effect
    /// of tracing on each device. The ends of the interval are weighted as well, as if all devices were at
    /// the same end of theirs.
    fn of(cause: Cause, steady: Option<&[Steady]>, devices: &[DeviceReport], without: &[WithoutTracing]) -> Self {
        let mut share = TimeShare::default();
        let (mut recoverable, mut by, mut weights) = (0.0, RecoverableBy::Simulation, 0.0);
        for (index, device) in devices.iter().enumerate() {
            let steady = steady.and_then(|steady| steady.get(index));
            let weight = device.steady_leaves.iter().sum::<u64>() as f64;
            let whole = cause.total(&device.steady_leaves) as f64 / weight.max(1.0);
            let of_steps = steady.and_then(|steady| steady.share(cause));
            let traced = of_steps.unwrap_or_else(|| TimeShare::exactly(whole));
            let without = without.get(index).unwrap_or(&WithoutTracing::NOTHING);
            let [found, low, high] = [traced.share, traced.low, traced.high].map(|share| without.share(cause, share));
            share.share += weight * found;
            share.low += weight * low;
            share.high += weight * high;
            recoverable += weight
                * match gain(cause, device, steady) {
                    Some(gain) if without.step < 1.0 => gain.min(found),
                    Some(gain) => with_tracing(gain, device).min(found),
                    None => {
                        by = RecoverableBy::Additive;
                        found
                    }
                };
            weights += weight;
        }
        let weights: f64 = if weights > 0.0 { weights } else { 1.0 };
        let [share, low, high] = [share.share, share.low, share.high].map(|sum| sum / weights);
        let lasts = cause != Cause::KernelBuild || devices.iter().any(|device| device.builds.last());
        Self { cause, share: TimeShare { share, low, high }, recoverable: recoverable / weights, by, lasts }
    }
}

/// Converts a gain relative to steps without tracing into one relative to steps with tracing.
fn with_tracing(gain: f64, device: &DeviceReport) -> f64 {
    let untraced = device.what_if.as_ref().and_then(|what_if| what_if.untraced);
    1.0 - (1.0 - gain) * untraced.unwrap_or(1.0)
}

pub(super) fn share_of(cause: Cause, step: &Step) -> f64 {
    cause.total(&step.leaves) as f64 / step.duration().max(1) as f64
}

/// The cause with the most recoverable time, if that is worth it or if the cause has more time than
/// computation (then the device is mostly busy with it, even if no single remedy is known to help); else
/// computation.
pub(super) fn first_of(share: impl Fn(Cause) -> f64, recoverable: impl Fn(Cause) -> f64) -> Cause {
    let worth = |cause: &Cause| recoverable(*cause) >= WORTH_SHARE || share(*cause) > share(Cause::GpuCompute);
    let others = Cause::ALL.into_iter().filter(|&cause| can_be_first(cause)).filter(worth);
    let order = |cause: Cause| (recoverable(cause), share(cause));
    let first = others.max_by(|&a, &b| {
        let (a, b) = (order(a), order(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    first.unwrap_or(Cause::GpuCompute)
}

/// Fraction of a step that the simulation of `device` gains without `cause`, 0 to 1. `None` if there is none:
/// the simulation was refused, its steps are not those of the shares, or no scenario removes the cause.
/// Without `steady` steps the shares refer to all steady time. The simulation covers enough of it or is
/// refused; it then needs as many steps as the minimum of steady ones plus those before them.
///
/// Copies have no scenario: the simulation moves them to another stream, where they still delay a host that
/// waits for them. It does not make them faster or fewer, as pinned memory and joining them do.
fn gain(cause: Cause, device: &DeviceReport, steady: Option<&Steady>) -> Option<f64> {
    let what_if = device.what_if.as_ref().filter(|what_if| what_if.refused.is_none())?;
    let replayed = what_if.step_ns()? as f64;
    let alike = match steady {
        Some(steady) => {
            let typical = steady.mean_duration() as f64;
            replayed <= UNUSUAL * typical && typical <= UNUSUAL * replayed
        }
        None => what_if.steps >= FEWEST_STEADY as u64 + WARM_UP_STEPS,
    };
    if !alike {
        return None;
    }
    let kind = ScenarioKind::without(cause).filter(|&kind| kind != ScenarioKind::CopiesOverlapped)?;
    let mut gain = what_if.best_case(kind)?.saved();
    if kind == ScenarioKind::NoSyncs {
        // If the waits are for values that are read back, removing the reads also removes the rest of their
        // cost.
        gain = what_if.best_case(ScenarioKind::NoReadbacks).map_or(gain, |reads| gain.max(reads.saved()));
    }
    Some(if cause == Cause::Launch { gain + between_kernels(device, steady) } else { gain })
}

/// Share of the device's own time between two operations, which fewer and larger operations reduce. No
/// scenario removes it: free launches shorten it at best.
fn between_kernels(device: &DeviceReport, steady: Option<&Steady>) -> f64 {
    let share = |leaves: &Leaves| leaves[Leaf::InterKernel as usize] as f64 / leaves.iter().sum::<u64>().max(1) as f64;
    share(&steady.map_or(device.steady_leaves, Steady::leaves))
}
