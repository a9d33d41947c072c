//! One device of the runs: the choice of the unit, and the comparison.
//!
//! Steps are compared if all runs have them and they are comparable. A detector may combine two iterations
//! of a program into one step in only one of the runs; then operations are compared.

use profiler_core::leaf::{Cause, Leaf};

use super::compared::{change, ranked, same_steps};
use super::counts::counts;
use super::limits::{self, LimitChanges};
use super::model::{DeviceDiff, DeviceRuns, StepChange};
use super::places::Places;
use super::prediction::Prediction;
use super::rows;
use super::run_test::RunTest;
use super::significance::mann_whitney;
use gpuwhy_report::run::unit::{self, Basis, DeviceSum, OPERATIONS, Representative};
use gpuwhy_report::run::{DeviceReport, MemoryOfDevice, Report, Sequence, ServingKind};

pub(super) struct DiffRun<'a> {
    device: &'a DeviceReport,
    operations: u64,
    has_host_samples: bool,
    memory: Option<&'a MemoryOfDevice>,
}

impl<'a> DiffRun<'a> {
    /// Memsets are counted for all devices together; each device gets a part in proportion to its other
    /// operations.
    pub(super) fn new(report: &'a Report, device: &'a DeviceReport) -> Self {
        let all: u64 = report.devices.iter().map(kernels_and_copies).sum();
        let own = kernels_and_copies(device);
        let memsets = u128::from(report.completeness.memsets) * u128::from(own) / u128::from(all.max(1));
        let operations = own.saturating_add(u64::try_from(memsets).unwrap_or(u64::MAX));
        let memory = report.memory.iter().flat_map(|memory| &memory.devices).find(|of| of.device == device.device.id);
        Self { device, operations, has_host_samples: report.host.is_some(), memory }
    }
}

/// Operations of all devices of a run, and those of one unit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnitsOfRun {
    unit: u64,
    all: u64,
}

impl UnitsOfRun {
    pub(super) fn add(&mut self, run: &DiffRun<'_>, unit: &Representative) {
        self.unit = self.unit.saturating_add(unit.operations);
        self.all = self.all.saturating_add(run.operations);
    }

    /// One unit as a fraction of the run.
    pub(super) fn scale(&self) -> f64 {
        self.unit as f64 / self.all.max(1) as f64
    }
}

fn kernels_and_copies(device: &DeviceReport) -> u64 {
    let kernels = device.kernels.iter().map(|row| row.durations.count());
    kernels.chain(device.copies.iter().map(|row| row.durations.count())).sum()
}

/// One unit of each run of A and of B.
pub(super) struct Units {
    basis: Basis,
    pub(super) a: Vec<Representative>,
    pub(super) b: Vec<Representative>,
    /// Sentence about units that are not steps.
    note: Option<String>,
}

impl Units {
    /// Units of one device of all runs. `similarity` is that of the runs.
    pub(super) fn of(a: &[DiffRun<'_>], b: &[DiffRun<'_>], similarity: f64) -> Self {
        match by_steps(a, b, similarity) {
            Ok((a, b)) => Self { basis: Basis::Step, a, b, note: None },
            Err(reason) => by_operations(a, b, &reason),
        }
    }
}

/// Compares one device of the runs; `medians` are the runs of A and B that are compared in detail. Returns sentences if
/// the comparison is not by steps, or if counters are not comparable. `similarity` is that of the runs.
pub(super) fn compare(
    a: &[DiffRun<'_>],
    b: &[DiffRun<'_>],
    units: Units,
    medians: (usize, usize),
    similarity: f64,
) -> (DeviceDiff, Vec<String>) {
    let (first, second) = (&a[medians.0], &b[medians.1]);
    let (before, after) = (units.a[medians.0].clone(), units.b[medians.1].clone());
    let durations =
        |run: &DiffRun<'_>| unit::comparable(run.device.steps.as_ref()).map(|steps| unit::durations(steps.1));
    let is_single = a.len() + b.len() == 2 && units.basis == Basis::Step;
    let recordings = durations(first).zip(durations(second)).filter(|_| is_single);
    let part = |unit: &Representative, run: &DiffRun<'_>| {
        let mut units = UnitsOfRun::default();
        units.add(run, unit);
        units.scale()
    };
    let scale = (part(&before, first), part(&after, second));
    let times = |units: &[Representative]| units.iter().map(|unit| unit.unit_ns).collect::<Vec<_>>();
    let (one, other) = (first.device, second.device);
    let mut diff = DeviceDiff {
        ids: (one.device.id, other.device.id),
        basis: units.basis,
        leaves: ranked(&Leaf::ALL, |leaf| change(before.leaves[leaf as usize], after.leaves[leaf as usize])),
        causes: ranked(&Cause::ALL, |cause| change(cause.total(&before.leaves), cause.total(&after.leaves))),
        limits: LimitChanges::of((one.limits.as_ref(), &before), (other.limits.as_ref(), &after)),
        kernels: rows::kernels(&one.kernels, &other.kernels, scale),
        copies: rows::copies(&one.copies, &other.copies, scale),
        a: before,
        b: after,
        test: recordings.and_then(|(first, second)| mann_whitney(&first, &second)),
        runs: RunTest::of(&times(&units.a), &times(&units.b)).map(|test| DeviceRuns { a: units.a, b: units.b, test }),
        iterations: {
            let of_b = other.serving_kinds();
            let same = |of: ServingKind| Some((of_b.iter().find(|b| b.kind.name == of.kind.name)?.clone(), of));
            one.serving_kinds().into_iter().filter_map(same).map(|(b, a)| (a, b)).collect()
        },
        memory: first.memory.cloned().zip(second.memory.cloned()),
        counts: if units.basis == Basis::Step && recorded_alike(a, b) {
            counts(&sequences(a), &sequences(b))
        } else {
            Vec::new()
        },
        same_sampling: first.has_host_samples == second.has_host_samples,
        places: Places::of(one.sequence.as_ref(), other.sequence.as_ref(), similarity),
        prediction: None,
    };
    // Nothing was removed from a step that has not changed, or not more than runs differ.
    let has_changed = match diff.outcome() {
        StepChange::Faster | StepChange::Slower => true,
        StepChange::Inconclusive => a.len() + b.len() == 2,
        StepChange::Unchanged => false,
    };
    if has_changed && diff.same_sampling {
        diff.prediction = Prediction::of(one, other);
    }
    let counters = one.limits.as_ref().zip(other.limits.as_ref());
    let caveat = counters.and_then(|(first, second)| limits::caveat(first, second));
    (diff, units.note.into_iter().chain(caveat).collect())
}

fn sequences<'a>(runs: &[DiffRun<'a>]) -> Vec<Option<&'a Sequence>> {
    runs.iter().map(|run| run.device.sequence.as_ref()).collect()
}

fn by_steps(
    a: &[DiffRun<'_>],
    b: &[DiffRun<'_>],
    similarity: f64,
) -> Result<(Vec<Representative>, Vec<Representative>), String> {
    let of = |runs: &[DiffRun<'_>]| runs.iter().map(step).collect::<Option<Vec<_>>>();
    let missing = |which: &str| Err(format!("{which} fewer than {} comparable steps", unit::FEWEST_STEPS));
    let is_single = a.len() + b.len() == 2;
    let (before, after) = match (of(a), of(b)) {
        (Some(before), Some(after)) => (before, after),
        (None, Some(_)) => return missing(if is_single { "A has" } else { "a run of A has" }),
        (Some(_), None) => return missing(if is_single { "B has" } else { "a run of B has" }),
        (None, None) => return missing(if is_single { "both runs have" } else { "runs of A and B have" }),
    };
    if !recorded_alike(a, b) {
        // An operation of one run may be all of a graph.
        return Ok((before, after));
    }
    let operations = || before.iter().chain(&after).map(|unit| unit.operations);
    let (least, most) = (operations().min().unwrap_or(0), operations().max().unwrap_or(0));
    if !same_steps(least, most, similarity) {
        return Err(match (&before[..], &after[..]) {
            ([a], [b]) => {
                let (a, b) = (a.operations, b.operations);
                format!("the steps that were found hold {a} operations in A and {b} in B, of the same kinds")
            }
            _ => format!("the steps that were found hold {least} to {most} operations of the same kinds"),
        });
    }
    Ok((before, after))
}

/// False if some runs recorded CUDA graphs as a whole and others node by node.
fn recorded_alike(a: &[DiffRun<'_>], b: &[DiffRun<'_>]) -> bool {
    let mut whole = a.iter().chain(b).map(|run| rows::has_whole_graphs(run.device));
    let first = whole.next();
    whole.all(|run| Some(run) == first)
}

fn step(run: &DiffRun<'_>) -> Option<Representative> {
    unit::comparable(run.device.steps.as_ref()).map(|(source, rows)| unit::representative(source, rows))
}

/// The time of equally many operations, and the sentence that describes them. Start-up is excluded if all runs can
/// separate it.
fn by_operations(a: &[DiffRun<'_>], b: &[DiffRun<'_>], reason: &str) -> Units {
    let runs = || a.iter().chain(b);
    let steps: Vec<_> = runs().filter_map(step).filter(|step| step.operations > 0).collect();
    let operations = match steps.first() {
        Some(step) if steps.len() < runs().count() => step.operations,
        _ => OPERATIONS,
    };
    let warm: Option<Vec<_>> = runs().map(|run| DeviceSum::warm(run.device)).collect();
    let start_up = if warm.is_some() { "left out" } else { "included" };
    let whole = || runs().map(|run| DeviceSum::whole(run.device, run.operations)).collect();
    let sums: Vec<_> = warm.unwrap_or_else(whole);
    let mut units: Vec<_> = sums.iter().map(|sum| sum.of_operations(operations)).collect();
    let b = units.split_off(a.len());
    let id = a[0].device.device.id;
    let note = format!("Device {id}: {reason}; compared by {operations} operations, start-up {start_up}.");
    Units { basis: Basis::Operations, a: units, b, note: Some(note) }
}
