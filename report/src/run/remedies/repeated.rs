//! Work that one line launches again and again: a loop over samples, experts, time steps or parameters, which could be
//! one call.

use profiler_core::attribution::{CallKind, is_optimizer};
use profiler_core::leaf::{Cause, Leaf};

use super::facts::{Facts, Found};
use super::gain::Gain;
use super::patterns::Class;
use crate::run::{CallLineRow, DeviceReport};

/// Most launches of a unit, and fewest repetitions of it: a loop over layers of a model has longer units or fewer.
const LONGEST: u64 = 64;
const FEWEST: u32 = 8;
/// Least part of the launches that come from the line, and of the kernels whose grids leave room.
const NEARLY_ALL: f64 = 0.8;
/// Largest difference between the part of the launches in the units and the part from the line.
const NEAR: f64 = 0.1;
/// A grid with blocks on at most this part of the multiprocessors leaves room for another one.
const ROOM: f64 = 0.8;
/// Least part of the launches of a step in units that a loop at their line shows to be of it.
const LOOPED: f64 = 0.3;
/// Fewest samples in launches for their line.
const EVIDENT: u64 = 10;
/// Least share of time that waits for launches where something else is the bottleneck.
const LAUNCHES: f64 = 0.2;
/// Parts of the names of kernels whose results the next repetition usually needs: recurrent cells, samplers of tokens.
const CARRIED: [&str; 6] = ["tanh_kernel", "sigmoid_kernel", "ArgMax", "argmax", "multinomial", "logcumsumexp"];

/// A unit that repeats.
struct Unit {
    /// Operations in it.
    operations: u64,
    /// Repetitions in a step; `None` if the unit itself is what repeats.
    times: Option<u32>,
    /// Its part of the launches of a step, 0 to 1.
    part: f64,
}

impl Unit {
    fn of(device: &DeviceReport) -> Option<Self> {
        let steps = device.steps.as_ref()?;
        let period = steps.period?;
        let inside = device.step_meaning.inside.filter(|of| of.times >= FEWEST && u64::from(of.launches) <= LONGEST);
        match inside {
            Some(of) if u64::from(of.all()) <= period => {
                let part = f64::from(of.all()) / period.max(1) as f64;
                Some(Self { operations: of.launches.into(), times: Some(of.times), part })
            }
            _ if period <= LONGEST && steps.seen >= u64::from(FEWEST) => {
                Some(Self { operations: period, times: None, part: 1.0 })
            }
            _ => None,
        }
    }

    /// Words for the sentence of the remedy.
    fn words(&self) -> String {
        let operations = match self.operations {
            1 => "the same operation".to_owned(),
            count => format!("the same {count} operations"),
        };
        match self.times {
            Some(times) => format!("{operations}, {times} times in a row in each step,"),
            None => operations,
        }
    }
}

/// Work of one line that could be one call, with what speaks against that.
pub(super) fn repeated(facts: &Facts<'_>) -> Option<Found> {
    let matters = facts.is(Cause::Launch) || facts.is(Cause::HostCpu) && facts.time(Cause::Launch) >= LAUNCHES;
    let device = facts.device.filter(|_| matters && !facts.program.graphs.used && !facts.program.small_copies)?;
    let (sequence, unit) = (device.sequence.as_ref()?, Unit::of(device)?);
    let computes = sequence.places.iter().filter(|(_, place)| place.leaf == Leaf::Compute).count();
    // An update needs the one before it.
    let trains = unit.times.is_none() && sequence.names.iter().any(|name| is_optimizer(name));
    let room: f64 = facts.kernels.iter().filter(|kernel| kernel.filled <= ROOM).map(|kernel| kernel.of_count).sum();
    if trains || 2 * computes < sequence.places.len() || room < NEARLY_ALL {
        return None;
    }
    // An optimizer goes over its tensors itself: `fused_optimizer`.
    let line = line_of(facts, &unit).filter(|line| 2 * line.samples_in(&["/optim/", "/optimizers/"]) < line.samples)?;
    // A loop that hands nothing on, as its line shows.
    let is_loop = facts.fits_line("batch_loop", Some(&line.place()));
    let waits = unit.times.is_none() && 2 * sequence.calls.synchronizations >= sequence.steps;
    let carried = sequence.names.iter().any(|name| CARRIED.iter().any(|part| name.contains(part)))
        || facts.count_share(&[Class::RecurrentCell, Class::Concatenation, Class::Selection]) > 0.0;
    Some(Found {
        at: Some(line.place()),
        what: unit.words(),
        // What the backward pass launches for the units is joined, too, and no line shows how much that is.
        gain: (!facts.has_backward_pass()).then(|| Gain::at_most(most(facts, device, &unit))),
        doubted: waits || carried && !is_loop || facts.program.small_reads,
        ..Found::default()
    })
}

/// The line that launches the units and nothing else. Where they are all of the program, it may be a few lines of one
/// function.
fn line_of<'a>(facts: &Facts<'a>, unit: &Unit) -> Option<&'a CallLineRow> {
    let rows = || facts.host.into_iter().flat_map(|host| &host.calls).filter(|row| row.calls == CallKind::Launch);
    let first = rows().next().filter(|row| row.samples >= EVIDENT && !row.file.is_empty())?;
    let same = |row: &&CallLineRow| (&row.file, &row.function) == (&first.file, &first.function);
    let share = match unit.times {
        Some(_) => first.share,
        None => rows().filter(same).map(|row| row.share).sum(),
    };
    let both = share >= NEARLY_ALL && unit.part >= NEARLY_ALL;
    // Launches of the backward pass have no line.
    let looped = || unit.part >= LOOPED && facts.fits_line("batch_loop", Some(&first.place()));
    (both || (share - unit.part).abs() <= NEAR || share >= NEARLY_ALL && looped()).then_some(first)
}

/// The most that one call gains: its launches are those of one unit, and its kernels are as long as one, or as the
/// GPU needs for the blocks of all.
fn most(facts: &Facts<'_>, device: &DeviceReport, unit: &Unit) -> f64 {
    let waves = |name: &str| {
        let row = device.kernels.iter().find(|row| row.name == name);
        row.and_then(|row| row.geometry).map_or(1.0, |geometry| geometry.waves.min(1.0))
    };
    let filled: f64 = facts.kernels.iter().map(|kernel| kernel.share * waves(kernel.name)).sum();
    let once = unit.times.map_or(0.0, |times| 1.0 / f64::from(times));
    let computing = facts.time(Cause::GpuCompute);
    let joined = (1.0 - computing) * once + computing * filled.max(once);
    1.0 / (1.0 - unit.part + unit.part * joined).max(1e-4)
}
