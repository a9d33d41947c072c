//! One device of each run: the choice of the unit, and the comparison.
//!
//! Steps are compared if both runs have them and they are comparable. A detector may combine two iterations
//! of a program into one step in only one of the runs; then operations are compared.

use profiler_core::attribution::leaf::{Cause, Leaf};

use super::compared::{change, ranked, same_steps};
use super::limits::{self, LimitChanges};
use super::model::DeviceDiff;
use super::places::Places;
use super::prediction::Prediction;
use super::rows;
use super::significance::{RankTest, mann_whitney};
use super::unit::{self, Basis, DeviceSum, OPERATIONS, Representative};
use crate::run::{DeviceReport, Report};

pub(super) struct DiffRun<'a> {
    device: &'a DeviceReport,
    operations: u64,
}

impl<'a> DiffRun<'a> {
    /// Memsets are counted for all devices together; each device gets a part in proportion to its other
    /// operations.
    pub(super) fn new(report: &Report, device: &'a DeviceReport) -> Self {
        let all: u64 = report.devices.iter().map(kernels_and_copies).sum();
        let own = kernels_and_copies(device);
        let memsets = u128::from(report.completeness.memsets) * u128::from(own) / u128::from(all.max(1));
        Self { device, operations: own.saturating_add(u64::try_from(memsets).unwrap_or(u64::MAX)) }
    }
}

fn kernels_and_copies(device: &DeviceReport) -> u64 {
    let kernels = device.kernels.iter().map(|row| row.durations.count());
    kernels.chain(device.copies.iter().map(|row| row.durations.count())).sum()
}

/// Compares one device of each run; returns sentences if the comparison is not by steps, or if counters are
/// not comparable. `similarity` is that of the runs.
pub(super) fn compare(a: &DiffRun<'_>, b: &DiffRun<'_>, similarity: f64) -> (DeviceDiff, Vec<String>) {
    let (basis, before, after, test, reason) = match by_steps(a, b, similarity) {
        Ok((before, after, test)) => (Basis::Step, before, after, test, None),
        Err(reason) => {
            let (before, after, sentence) = by_operations(a, b, &reason);
            (Basis::Operations, before, after, None, Some(sentence))
        }
    };
    let part = |unit: &Representative, run: &DiffRun<'_>| unit.operations as f64 / run.operations.max(1) as f64;
    let scale = (part(&before, a), part(&after, b));
    let diff = DeviceDiff {
        ids: (a.device.device.id, b.device.device.id),
        basis,
        leaves: ranked(&Leaf::ALL, |leaf| change(before.leaves[leaf as usize], after.leaves[leaf as usize])),
        causes: ranked(&Cause::ALL, |cause| change(cause.total(&before.leaves), cause.total(&after.leaves))),
        limits: LimitChanges::of((a.device.limits.as_ref(), &before), (b.device.limits.as_ref(), &after)),
        kernels: rows::kernels(&a.device.kernels, &b.device.kernels, scale),
        copies: rows::copies(&a.device.copies, &b.device.copies, scale),
        a: before,
        b: after,
        test,
        places: Places::of(a.device.sequence.as_ref(), b.device.sequence.as_ref(), similarity),
        prediction: Prediction::of(a.device, b.device),
    };
    let counters = a.device.limits.as_ref().zip(b.device.limits.as_ref());
    let caveat = counters.and_then(|(first, second)| limits::caveat(first, second));
    (diff, reason.into_iter().chain(caveat).collect())
}

type BySteps = (Representative, Representative, Option<RankTest>);

fn by_steps(a: &DiffRun<'_>, b: &DiffRun<'_>, similarity: f64) -> Result<BySteps, String> {
    let missing = |which: &str| Err(format!("{which} fewer than {} comparable steps", unit::FEWEST_STEPS));
    let (first, second) = match (unit::comparable(a.device.steps.as_ref()), unit::comparable(b.device.steps.as_ref())) {
        (Some(first), Some(second)) => (first, second),
        (None, Some(_)) => return missing("A has"),
        (Some(_), None) => return missing("B has"),
        (None, None) => return missing("both runs have"),
    };
    let (before, after) = (unit::representative(first.0, first.1), unit::representative(second.0, second.1));
    if !same_steps(before.operations, after.operations, similarity) {
        let (a, b) = (before.operations, after.operations);
        return Err(format!("the steps that were found hold {a} operations in A and {b} in B, of the same kinds"));
    }
    let test = mann_whitney(&unit::durations(first.1), &unit::durations(second.1));
    Ok((before, after, test))
}

/// Returns the time of equally many operations, and the sentence that describes them. Start-up is excluded if
/// both runs can separate it.
fn by_operations(a: &DiffRun<'_>, b: &DiffRun<'_>, reason: &str) -> (Representative, Representative, String) {
    let step = |run: &DiffRun<'_>| {
        unit::comparable(run.device.steps.as_ref()).map(|(source, rows)| unit::representative(source, rows))
    };
    let operations = match (step(a), step(b)) {
        (Some(step), None) | (None, Some(step)) if step.operations > 0 => step.operations,
        _ => OPERATIONS,
    };
    let warm = |run: &DiffRun<'_>| DeviceSum::warm(run.device);
    let (first, second, start_up) = match warm(a).zip(warm(b)) {
        Some((first, second)) => (first, second, "left out"),
        None => (DeviceSum::whole(a.device, a.operations), DeviceSum::whole(b.device, b.operations), "included"),
    };
    let id = a.device.device.id;
    let sentence = format!("Device {id}: {reason}; compared by {operations} operations, start-up {start_up}.");
    (first.of_operations(operations), second.of_operations(operations), sentence)
}
