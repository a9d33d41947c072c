//! Predicted gain of a step if a kernel gets closer to its roofline: the simulations and their sentences.

use gpuwhy_trace::record::{LaunchConfigId, NameId};
use profiler_core::attribution::{Attributor, DeviceAccount};
use profiler_core::counters::roofs::{Roof, Weighed};
use profiler_core::leaf::Cause;
use profiler_core::sorting::SortRows as _;
use profiler_core::whatif::{ScenarioKind, WORTH_SHOWING};
use rustc_hash::FxHashMap;

use super::{DeviceReport, NamedLimits};
use crate::kernels::{KernelGains, Shorter, StepGain, bottleneck_then};
use crate::text_format::names::short_names;
use crate::text_format::percent;
use crate::words;

/// Kernels whose gain is simulated: those that lose most against their roofline.
const SIMULATED: usize = 5;
/// Minimum speedup by subtraction for which a step is simulated.
const WORTH_SIMULATING: f64 = 1.005;
/// Fractions of the roofline for which gains are predicted.
pub(super) const ROOFS: [f64; 2] = [0.8, 0.9];

/// Simulates the gains of the kernels that lose most against their roofline.
pub(super) fn simulate(
    names: &mut FxHashMap<NameId, NamedLimits>,
    configs: &FxHashMap<NameId, Vec<(LaunchConfigId, Weighed)>>,
    account: &DeviceAccount,
    attributor: &Attributor,
) {
    let shorter = |name: NameId, wanted: f64| -> Vec<Shorter> {
        let known = configs.get(&name).into_iter().flatten();
        let row = |&(config, row): &(LaunchConfigId, Weighed)| {
            let (_, used, error) = row.limits.roof?;
            Some(Shorter::at_roof(config, row.nanos, (used, error), wanted))
        };
        known.filter_map(row).collect()
    };
    let by_subtraction = |limits: &NamedLimits| limits.gains.map_or(1.0, |gains| gains.at_90.speedup);
    let worth = |(name, limits): (&NameId, &NamedLimits)| {
        let gain = by_subtraction(limits);
        // Small kernels have pooled limits, which hold for none of them individually.
        let own = limits.limits.own && configs.contains_key(name);
        (own && gain >= WORTH_SIMULATING).then_some((*name, gain))
    };
    let mut largest: Vec<_> = names.iter().filter_map(worth).collect();
    largest.sort_rows_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    for (name, _) in largest.into_iter().take(SIMULATED) {
        let rows = ROOFS.map(|wanted| shorter(name, wanted));
        let [at_80, at_90] = rows.each_ref().map(|rows| StepGain::simulated(attributor, account.id(), rows));
        let (Some(at_80), Some(at_90), Some(limits)) = (at_80, at_90, names.get_mut(&name)) else { return };
        let then = bottleneck_then(account, &rows[1], at_90.speedup);
        limits.gains = Some(KernelGains { at_80, at_90, then });
    }
}

/// True if one kernel gains no more than all of them together, which leave out kernels that wait: nothing shows
/// that these can get close to a peak.
pub(super) fn is_within_reach(device: &DeviceReport, speedup: f64) -> bool {
    let what_if = device.what_if.as_ref().filter(|what_if| what_if.refused.is_none());
    let all = what_if.and_then(|what_if| what_if.best_case(ScenarioKind::KernelsAtRoof));
    all.is_none_or(|all| speedup <= all.speedup * WORTH_SIMULATING)
}

/// `about 1.12x faster (1.08x to 1.15x), and the bottleneck then`: at 90 % of the roofline.
pub(super) fn gain_words(gains: &KernelGains) -> String {
    let how = if gains.at_90.is_simulated() { "" } else { " (by subtraction)" };
    let then = gains.then.filter(|cause| *cause != Cause::GpuCompute);
    let then = then.map_or(String::new(), |cause| format!("; then the bottleneck is {}", words::bottleneck(cause)));
    format!("{}{how}{then}", gains.at_90.faster())
}

/// One sentence for each kernel with a simulated gain worth showing, the largest gain first.
pub(super) fn gain_sentences(device: &DeviceReport) -> Vec<String> {
    let names = short_names(device.kernels.iter().map(|row| row.name.as_str()), 60);
    let mut found: Vec<_> = device
        .kernels
        .iter()
        .zip(names)
        .filter_map(|(row, name)| {
            let named = row.limits.as_ref()?;
            let gains = named.gains.filter(|gains| gains.at_90.is_simulated())?;
            let (roof, used, _) = named.limits.roof?;
            let speedup = gains.at_90.speedup;
            (speedup >= WORTH_SHOWING && is_within_reach(device, speedup)).then_some((gains, roof, used, name))
        })
        .collect();
    found.sort_rows_by(|a, b| b.0.at_90.speedup.total_cmp(&a.0.at_90.speedup).then_with(|| a.3.cmp(&b.3)));
    let sentence = |(gains, roof, used, name): (KernelGains, Roof, f64, String)| {
        format!(
            "If {name} used 90 % of {} (now {}), a step would be {}; at 80 %, {}.",
            words::roof(roof),
            percent(used),
            gain_words(&gains),
            gains.at_80.faster()
        )
    };
    found.into_iter().map(sentence).collect()
}
