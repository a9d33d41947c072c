//! The kernels of a run by launch configuration, for [`choose`](super::choose).

use std::cmp::Reverse;

use gpuwhy_trace::demangle::without_parameters;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::NameId;
use profiler_core::attribution::{Attributor, DeviceAccount};
use profiler_core::counters::engine::DeviceCounters;
use profiler_core::counters::estimate::Activity;
use profiler_core::counters::roofs::KernelLimits;
use profiler_core::leaf::Leaf;
use profiler_core::sorting::SortRows as _;
use rustc_hash::FxHashMap;

use super::LaunchConfiguration;

/// Number of steps after which kernels are chosen for measurement: the first steps are start-up.
const STEPS_TO_CHOOSE: u64 = 5;
/// Minimum share of computing time of the device in these steps. Layers of a model under construction also
/// repeat, but launch almost no work: fill kernels of a GPT on an H100 were below 0.05.
const COMPUTING: f64 = 0.2;
/// Alternatively, amount of computation after start-up, nanoseconds.
const COMPUTE_TO_CHOOSE: u64 = 250_000_000;
/// Alternatively, time after start-up, nanoseconds, regardless of computation.
const NANOS_TO_CHOOSE: u64 = 10_000_000_000;

/// Number of configurations considered, those with the most time: each name is demangled.
const MOST: usize = 128;

/// Returns the kernels of all devices with the most time, each with its time on its device. The distance of a
/// kernel from its roofline is known if the device was sampled and the samples resolve the kernel.
pub fn candidates(attributor: &Attributor, dictionary: &Dictionary) -> Vec<LaunchConfiguration> {
    let mut found = Vec::new();
    for account in attributor.devices() {
        let statistics = account.statistics();
        let estimator = attributor.counters().device(account.id()).and_then(DeviceCounters::estimator);
        let sampled = estimator.map(|estimator| (estimator.solve(), estimator.set()));
        let names: FxHashMap<NameId, (bool, f64)> = statistics
            .kernels()
            .filter_map(|(name, row)| {
                let graphs = row.graph_ns as f64 / row.durations.total().max(1) as f64;
                Some((name?, (row.communication, graphs)))
            })
            .collect();
        let mut configs: Vec<_> = statistics.configs().collect();
        configs.sort_rows_by_key(|&(id, totals)| (Reverse(totals.total_ns), id));
        found.extend(configs.into_iter().take(MOST).map(|(id, totals)| {
            let launch = dictionary.launch_config(id);
            let (communication, graph_share) = names.get(&launch.name).copied().unwrap_or_default();
            LaunchConfiguration {
                device: account.id(),
                config: id,
                launch,
                name: dictionary.name(launch.name).to_owned(),
                demangled: without_parameters(dictionary.name(launch.name)),
                communication,
                launches: totals.count,
                total_ns: totals.total_ns,
                graph_share,
                nearest_roof: sampled.as_ref().and_then(|(estimates, set)| {
                    let limits = KernelLimits::of(Activity::Kernel(id), estimates, set);
                    limits.roof.filter(|_| limits.own).map(|(_, used, _)| used)
                }),
            }
        }));
    }
    found
}

/// True if enough has run to know which kernels matter.
pub fn has_run_enough(attributor: &Attributor) -> bool {
    let enough = |account: &DeviceAccount| {
        let steady = account.window_ns().saturating_sub(account.start_up_ns());
        let computed = account.steady_leaves()[Leaf::Compute as usize];
        let computes = computed as f64 >= COMPUTING * steady as f64;
        computed >= COMPUTE_TO_CHOOSE
            || steady >= NANOS_TO_CHOOSE
            || (computes && account.steps().seen >= STEPS_TO_CHOOSE)
    };
    attributor.devices().any(enough)
}
