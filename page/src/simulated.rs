//! A few steps in every simulated scenario: the data for the what-if switch of the page.

use std::io;

use gpuwhy_report::run::{DeviceReport, Report};
use gpuwhy_trace::record::DeviceId;
use profiler_core::whatif::{OperationClass, SCENARIO_COUNT, ScenarioKind, SimulatedOperation};
use serde::Serialize;

use crate::block::{BlockId, Blocks, Bytes};
use gpuwhy_report::words;

/// Maximum number of simulated steps per device in the page.
const STEPS: usize = 3;
/// Number of candidate steps: long runs are simulated in parts, and some candidates are outside of these.
const CANDIDATES: usize = 24;
/// Maximum number of operations of all candidate steps (some 300 bytes each).
const OPERATIONS: u64 = 1 << 16;

/// Step on a device, nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StepCandidate {
    device: DeviceId,
    /// Start of the previous step: its operations determine the time of each scenario at the start of this
    /// one.
    before: u64,
    from: u64,
    to: u64,
    operations: u64,
}

/// Candidate steps.
#[derive(Debug, Default)]
pub(crate) struct SimulationPlan {
    candidates: Vec<StepCandidate>,
}

/// A step in every scenario.
#[derive(Debug, Serialize)]
struct SimulatedStep {
    device: u32,
    /// Nanoseconds after the origin.
    from: u64,
    to: u64,
    count: usize,
    block: BlockId,
    /// Duration of the step in each scenario, nanoseconds; the first is the simulation of the run without
    /// changes.
    ends: Vec<u64>,
}

/// Simulated steps in the page.
#[derive(Debug, Serialize)]
pub(crate) struct Simulated {
    /// Names of the scenarios, and their conditions.
    variants: Vec<(&'static str, &'static str)>,
    steps: Vec<SimulatedStep>,
}

impl SimulationPlan {
    pub(crate) fn new(report: &Report) -> Self {
        let mut candidates = Vec::new();
        for device in &report.devices {
            candidates.extend(tried(device));
        }
        candidates.sort_by_key(|candidate| candidate.from);
        Self { candidates }
    }

    /// Parts of the run to log in the simulation, in order.
    pub(crate) fn parts(&self) -> Vec<(u64, u64)> {
        let mut parts: Vec<(u64, u64)> = Vec::new();
        for candidate in &self.candidates {
            match parts.last_mut() {
                Some(newest) if candidate.before <= newest.1 => newest.1 = newest.1.max(candidate.to),
                _ => parts.push((candidate.before, candidate.to)),
            }
        }
        parts
    }

    /// Writes the steps with logged operations in both the step and the previous step.
    pub(crate) fn write(
        &self,
        rows: &[SimulatedOperation],
        origin: u64,
        blocks: &mut Blocks<'_>,
    ) -> io::Result<Option<Simulated>> {
        let mut steps: Vec<SimulatedStep> = Vec::new();
        for candidate in &self.candidates {
            let of_device = || rows.iter().filter(|row| row.device == candidate.device);
            let before: Vec<_> =
                of_device().filter(|row| (candidate.before..candidate.from).contains(&row.start.nanos())).collect();
            let inside: Vec<_> =
                of_device().filter(|row| (candidate.from..candidate.to).contains(&row.start.nanos())).collect();
            let Some(stand) = latest(before.iter().copied()) else { continue };
            // A pause of the simulation may start or end within a step.
            if inside.len() as u64 != candidate.operations {
                continue;
            }
            let known = steps.iter().filter(|step| step.device == candidate.device.0).count();
            let Some(ends) = latest(inside.iter().copied()).filter(|_| known < STEPS) else { continue };
            // As in every scenario, the step lasts from the end of the previous operations to the end of its
            // own.
            let (from, to) = (ended(&before, candidate.from), ended(&inside, candidate.to));
            let block = blocks.numbered(packed(&inside, from, &stand))?;
            steps.push(SimulatedStep {
                device: candidate.device.0,
                from: from.saturating_sub(origin),
                to: to.saturating_sub(origin),
                count: inside.len(),
                block,
                ends: ends.iter().zip(stand).map(|(end, stand)| (end - stand).max(0.0) as u64).collect(),
            });
        }
        let variants = ScenarioKind::ALL.into_iter().map(|kind| (kind.name(), words::condition(kind))).collect();
        Ok((!steps.is_empty()).then_some(Simulated { variants, steps }))
    }
}

/// Typical steps of a device with a validated simulation, spread over the steps that are kept.
fn tried(device: &DeviceReport) -> Vec<StepCandidate> {
    let Some(steps) = &device.steps else { return Vec::new() };
    if device.what_if.as_ref().is_none_or(|what_if| what_if.refused.is_some()) {
        return Vec::new();
    }
    let median = steps.duration_percentile(50);
    let typical: Vec<_> = steps
        .rows
        .windows(2)
        .filter(|pair| pair[0].end == pair[1].start && pair[1].duration().abs_diff(median) <= median / 10)
        .collect();
    let operations = typical.iter().map(|pair| pair[0].operations + pair[1].operations).max().unwrap_or(1).max(1);
    let most = CANDIDATES.min((OPERATIONS / operations) as usize);
    let stride = typical.len().div_ceil(most.max(1)).max(1);
    let chosen = typical.iter().step_by(stride).take(most);
    chosen
        .map(|pair| StepCandidate {
            device: device.device.id,
            before: pair[0].start.nanos(),
            from: pair[1].start.nanos(),
            to: pair[1].end.nanos(),
            operations: pair[1].operations,
        })
        .collect()
}

/// Time at which all of these are done, in every scenario.
fn latest<'a>(rows: impl Iterator<Item = &'a SimulatedOperation>) -> Option<[f64; SCENARIO_COUNT]> {
    rows.map(|row| row.simulated.map(|(_, done)| done))
        .reduce(|a, b| std::array::from_fn(|variant| a[variant].max(b[variant])))
}

/// Time at which all of these had really ended, nanoseconds since the Unix epoch; `none` without any.
fn ended(rows: &[&SimulatedOperation], none: u64) -> u64 {
    rows.iter().map(|row| row.end.nanos()).max().unwrap_or(none)
}

/// By column: real start relative to the step's, duration, stream, class; then for each scenario the start
/// relative to its step, and the duration.
fn packed(rows: &[&SimulatedOperation], from: u64, stand: &[f64; SCENARIO_COUNT]) -> Vec<u8> {
    let mut bytes = Bytes::default();
    let mut column = |value: &dyn Fn(&SimulatedOperation) -> i64| {
        let mut before = 0_i64;
        for row in rows {
            let value = value(row);
            bytes.signed(value.wrapping_sub(before));
            before = value;
        }
    };
    column(&|row| row.start.nanos().wrapping_sub(from) as i64);
    column(&|row| row.end.since(row.start) as i64);
    column(&|row| row.stream.0.into());
    column(&|row| match row.class {
        OperationClass::Compute | OperationClass::Selection => 0,
        OperationClass::Communication => 1,
        OperationClass::CopyFromHost
        | OperationClass::CopyToHost
        | OperationClass::CopyWithin
        | OperationClass::CopyOther => 2,
        OperationClass::Memset => 3,
    });
    for (variant, stood) in stand.iter().enumerate() {
        column(&|row| (row.simulated[variant].0 - stood).round() as i64);
        column(&|row| (row.simulated[variant].1 - row.simulated[variant].0).round().max(0.0) as i64);
    }
    bytes.0
}
