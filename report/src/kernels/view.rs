//! All displayed data about the kernels of a run.

use std::cmp::Reverse;
use std::sync::Arc;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::geometry::{Geometry, Multiprocessors};
use gpuwhy_trace::kernels::KernelProfile;
use gpuwhy_trace::record::{Device, LaunchConfig};
use profiler_core::attribution::Attributor;
use profiler_core::leaf::{Cause, Leaves};
use profiler_core::sorting::SortRows as _;

use super::candidates::candidates;
use super::gains::{KernelGains, Shorter, StepGain, bottleneck_then};
use super::in_graphs::{Captured, InGraphs};
use super::occupancy::{Reduction, reductions};
use super::rules::{Evidence, Finding, findings};
use super::{Excluded, Figures, LaunchConfiguration, Peaks, Roofline};

/// Maximum number of kernels listed without a profile.
const LISTED: usize = 20;
/// Number of measured kernels whose gains are simulated, and of findings per kernel.
const SIMULATED: usize = 5;

/// One measured kernel, with the data from its records.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KernelView {
    /// Demangled name.
    pub name: String,
    /// Mangled name.
    pub symbol: String,
    /// Shape and resources.
    pub launch: LaunchConfig,
    /// Device on which it ran.
    pub device: Device,
    /// Number of launches of this shape in the records; 0 if there are none.
    pub launches: u64,
    /// Total time of these launches, nanoseconds.
    pub total_ns: u64,
    /// Their share of the run's steady time, 0 to 1; `None` if the records do not show it. Kernels that run
    /// concurrently divide their common time.
    pub share: Option<f64>,
    /// Part in CUDA graphs, which was not measured; `None` if there is none.
    pub in_graphs: Option<InGraphs>,
    /// Measured metrics.
    pub profile: KernelProfile,
    /// Figures derived from the profile.
    pub figures: Figures,
    /// Its points and rooflines.
    pub roofline: Roofline,
    /// How its grid fills the device.
    pub geometry: Option<Geometry>,
    /// Resource reductions that let more blocks be resident.
    pub reductions: Vec<Reduction>,
    /// Findings of the rules.
    pub findings: Vec<Finding>,
    /// Simulated maximum gain of a step by each finding, in their order; `None` if not simulated.
    pub finding_gains: Vec<Option<StepGain>>,
    /// Simulated gain of a step if the kernel gets closer to its nearest roofline.
    pub gains: Option<KernelGains>,
}

impl KernelView {
    fn new(
        profile: &KernelProfile,
        row: Option<&LaunchConfiguration>,
        share: Option<f64>,
        captured: &Captured<'_>,
        dictionary: &Dictionary,
    ) -> Self {
        let launch = dictionary.launch_config(profile.config);
        let device = dictionary.device(profile.device).cloned();
        let device = device.unwrap_or_else(|| Device { id: profile.device, ..Device::default() });
        let symbol = dictionary.name(launch.name).to_owned();
        let figures = Figures::of(profile);
        let (room, peaks) = (Multiprocessors::of(&device), Peaks::of(&device));
        let geometry = room.as_ref().and_then(|room| Geometry::of(&launch, room));
        let roofline = Roofline::of(&figures, peaks.as_ref());
        let evidence = Evidence {
            name: &symbol,
            launch: &launch,
            capability: device.compute_capability,
            figures: &figures,
            roofline: &roofline,
            peaks: peaks.as_ref(),
            geometry: geometry.as_ref(),
            room: room.as_ref(),
        };
        let findings = if profile.values.is_empty() { Vec::new() } else { findings(&evidence) };
        Self {
            name: gpuwhy_trace::demangle::without_parameters(&symbol),
            symbol,
            launches: row.map_or(0, |row| row.launches),
            total_ns: row.map_or(0, |row| row.total_ns),
            share,
            in_graphs: captured.of(launch.name),
            profile: profile.clone(),
            reductions: room.as_ref().map(|room| reductions(&launch, room)).unwrap_or_default(),
            figures,
            roofline,
            geometry,
            finding_gains: vec![None; findings.len()],
            gains: None,
            findings,
            launch,
            device,
        }
    }

    /// Simulates the gain of a step from the newest steps; if measuring `stretched` them, subtracts from a typical one.
    fn simulate(&mut self, attributor: &Attributor, stretched: bool) {
        let Some(account) = attributor.devices().find(|account| account.id() == self.device.id) else { return };
        let (config, nanos) = (self.profile.config, self.total_ns);
        let of = |leaves: Leaves| Cause::GpuCompute.total(&leaves) as f64 / leaves.iter().sum::<u64>().max(1) as f64;
        let typical = account.typical_steps().filter(|_| stretched).map(|steps| of(steps.leaves()));
        let share = self.share.zip(typical).map(|(share, part)| share * part / of(account.steady_leaves()));
        let gain = |shorter: Shorter| match stretched {
            true => share.map(|share| StepGain::by_subtraction(share * (1.0 - shorter.remains))),
            false => StepGain::simulated(attributor, account.id(), &[shorter]),
        };
        if let Some((_, used)) = self.figures.nearest_roof() {
            let [at_80, at_90] = [0.8, 0.9].map(|wanted| Shorter::at_roof(config, nanos, (used, 0.0), wanted));
            let (Some(gain_80), Some(gain_90)) = (gain(at_80), gain(at_90)) else { return };
            let then = bottleneck_then(account, &[at_90], gain_90.speedup);
            self.gains = Some(KernelGains { at_80: gain_80, at_90: gain_90, then });
        }
        for (finding, of) in self.findings.iter().zip(&mut self.finding_gains).take(SIMULATED) {
            let local = finding.gain();
            if local > 0.0 {
                *of = gain(Shorter { config, nanos, remains: 1.0 - local.min(1.0), error: 0.0 });
            }
        }
    }

    /// Mean recorded duration, nanoseconds; `None` without launches.
    pub fn recorded_mean_ns(&self) -> Option<f64> {
        (self.launches > 0).then(|| self.total_ns as f64 / self.launches as f64)
    }

    /// Maximum share of a step that fixing `finding` would save, 0 to 1: the kernel's share of the time
    /// multiplied by the saved share of the kernel. `None` if either is unknown. An additive bound: it
    /// includes work that waits for the kernel only by chance.
    pub fn step_gain(&self, finding: &Finding) -> Option<f64> {
        Some(self.share? * Some(finding.gain()).filter(|&gain| gain > 0.0)?)
    }
}

/// A kernel that was not measured.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Unmeasured {
    /// Data from its records.
    pub kernel: LaunchConfiguration,
    /// Its share of the run's steady time, 0 to 1.
    pub share: Option<f64>,
    /// Reason why it is never measured; `None` if it could have been.
    pub excluded: Option<Excluded>,
    /// Part in CUDA graphs; `None` if there is none.
    pub in_graphs: Option<InGraphs>,
}

/// Kernels of a run. Empty if none ran.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct KernelsReport {
    /// Kernels chosen for measurement, the one with the most time first.
    pub measured: Vec<KernelView>,
    /// The others with the most time, at most 20.
    pub unmeasured: Vec<Unmeasured>,
    /// Time for which measuring stalled the program, nanoseconds.
    pub stall_ns: u64,
}

impl KernelsReport {
    /// Combines the kernels known to `attributor` with `profiles`. Simulates gains of a step, which takes
    /// some milliseconds for each measured kernel and finding.
    pub fn of(
        attributor: &Attributor,
        dictionary: &Dictionary,
        profiles: &[Arc<KernelProfile>],
        stretched: bool,
    ) -> Self {
        let rows = candidates(attributor, dictionary);
        let captured = Captured::new(attributor, dictionary);
        let share = |row: &LaunchConfiguration| share_of(row, attributor);
        let is_of = |row: &LaunchConfiguration, profile: &KernelProfile| {
            row.config == profile.config && row.device == profile.device
        };
        let mut measured: Vec<_> = profiles
            .iter()
            .map(|profile| {
                let row = rows.iter().find(|row| is_of(row, profile));
                KernelView::new(profile, row, row.and_then(share), &captured, dictionary)
            })
            .collect();
        measured.sort_rows_by_key(|view| (Reverse(view.total_ns), view.profile.device, view.profile.config));
        measured.iter_mut().take(SIMULATED).for_each(|view| view.simulate(attributor, stretched));
        let mut unmeasured: Vec<_> = rows
            .iter()
            .filter(|row| !profiles.iter().any(|profile| is_of(row, profile)))
            .map(|row| Unmeasured { kernel: row.clone(), share: share(row), excluded: row.excluded(), in_graphs: None })
            .collect();
        unmeasured.sort_rows_by_key(|row| (Reverse(row.kernel.total_ns), row.kernel.device, row.kernel.config));
        unmeasured.truncate(LISTED);
        unmeasured.iter_mut().for_each(|row| row.in_graphs = captured.of(row.kernel.launch.name));
        let stall_ns = profiles.iter().map(|profile| profile.stall_ns).fold(0, u64::saturating_add);
        Self { measured, unmeasured, stall_ns }
    }

    /// True if there are no kernels to show.
    pub fn is_empty(&self) -> bool {
        self.measured.is_empty() && self.unmeasured.is_empty()
    }
}

/// A kernel's share of its device's steady time: the time attributed to kernels of its kind (computing or
/// communicating), divided in proportion to their durations.
fn share_of(row: &LaunchConfiguration, attributor: &Attributor) -> Option<f64> {
    let account = attributor.devices().find(|account| account.id() == row.device)?;
    let leaves = account.steady_leaves();
    let all: u64 = leaves.iter().sum();
    let group = if row.communication { Cause::Communication } else { Cause::GpuCompute };
    let kernels = account.statistics().kernels().filter(|(_, other)| other.communication == row.communication);
    let of_kind = kernels.fold(0u64, |sum, (_, other)| sum.saturating_add(other.durations.total()));
    (all > 0 && of_kind > 0)
        .then(|| row.total_ns as f64 / of_kind as f64 * group.total(&leaves) as f64 / all as f64)
        .map(|share| share.min(1.0))
}
