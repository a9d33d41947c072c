//! Divides the computation of a device by limit, and describes the result in sentences.

use gpuwhy_trace::counters::{Metric, Throttle};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::geometry::{Geometry, Multiprocessors};
use gpuwhy_trace::record::{Device, LaunchConfigId, NameId};
use profiler_core::attribution::{Attributor, DeviceAccount};
use profiler_core::counters::estimate::{Activity, Estimates, Estimator};
use profiler_core::counters::power::GaugeSums;
use profiler_core::counters::roofs::{KernelLimits, Limit, Roof, Weighed, divide, whole};
use profiler_core::leaf::Leaf;
use profiler_core::steps::Steady;
use profiler_core::whatif::WORTH_SHOWING;
use rustc_hash::FxHashMap;

use super::kernel_gains::{ROOFS, gain_sentences, gain_words, is_within_reach, simulate};
use super::{ComputeLimits, DeviceReport, KernelRow, NamedLimits, RangesReport};
use crate::kernels::{KernelGains, StepGain};
use crate::text_format::names::{short_name, short_names};
use crate::text_format::table::Table;
use crate::text_format::{bytes, duration, part_of, percent};
use crate::words;

/// Minimum share of the computation for a limit to be mentioned.
const MENTIONED: f64 = 0.05;
/// Least share of the computation with the largest limit for advice: it may be one of several similar ones.
const LARGEST: f64 = 0.25;
/// Part of a roofline from which it is what bounds a kernel.
const NEAR_ROOF: f64 = 0.1;
/// Minimum share of the time with a lowered clock for it to be mentioned.
const LOWERED: f64 = 0.10;
/// Share of multiprocessors busy in addition to this process's work above which another process is suspected.
const FOREIGN: f64 = 0.05;

/// Returns the limits of a device and of its kernels by name; `None` without usable samples. `simulated` also
/// simulates the gains of kernels, which takes some milliseconds each.
pub(super) fn limits(
    account: &DeviceAccount,
    attributor: &Attributor,
    device: &Device,
    dictionary: &Dictionary,
    simulated: bool,
) -> Option<(ComputeLimits, FxHashMap<NameId, NamedLimits>)> {
    let estimator = attributor.counters().device(account.id())?.estimator()?;
    let estimates = estimator.solve();
    let room = Multiprocessors::of(device);
    let statistics = account.statistics();
    let communicating: FxHashMap<_, _> =
        statistics.kernels().filter_map(|(name, row)| Some((name?, row.communication))).collect();
    let mut weighed = Vec::new();
    let mut by_name: FxHashMap<NameId, Vec<(LaunchConfigId, Weighed)>> = FxHashMap::default();
    let mut tallied = 0u64;
    for (id, totals) in statistics.configs() {
        let config = dictionary.launch_config(id);
        let limits = KernelLimits::of(Activity::Kernel(id), &estimates, estimator.set());
        let geometry = room.as_ref().and_then(|room| Geometry::of(&config, room));
        let row = Weighed::new(limits, totals.total_ns, geometry.as_ref());
        by_name.entry(config.name).or_default().push((id, row));
        if !communicating.get(&config.name).copied().unwrap_or(false) {
            tallied = tallied.saturating_add(totals.total_ns);
            weighed.push(row);
        }
    }
    // Kernels that did not fit into the table of configurations have no separate limits.
    let all = statistics.kernels().filter(|(_, row)| !row.communication);
    let all = all.fold(0u64, |sum, (_, row)| sum.saturating_add(row.durations.total()));
    weighed.push(Weighed::new(KernelLimits::UNKNOWN, all.saturating_sub(tallied), None));
    let typical = account.typical_steps();
    let of_step = |steps: &Steady| steps.leaves()[Leaf::Compute as usize] / steps.rows.len().max(1) as u64;
    let division = divide(account.leaves()[Leaf::Compute as usize], &weighed);
    let step = typical.as_ref().map(|steps| division.of(of_step(steps)));
    let step_ns = typical.as_ref().map(|steps| steps.mean_duration());
    let steady = division.of(account.steady_leaves()[Leaf::Compute as usize]);
    let metrics = estimator.set().metrics;
    let means = metrics.as_slice().iter().filter_map(|&metric| Some((metric, estimator.mean(metric)?))).collect();
    // Unit activity is due to kernels: a mean over the run, start-up included, is scaled to a step by
    // computation time.
    let window: u64 = account.leaves().iter().sum();
    let in_steps = typical
        .as_ref()
        .map(|steps| window as f64 * of_step(steps) as f64 / account.leaves()[Leaf::Compute as usize].max(1) as f64);
    let of_step_by = |rate: &dyn Fn(Metric) -> Option<f64>| {
        let bytes = |metric| Some((rate(metric)? * in_steps? / 1e9) as u64);
        bytes(Metric::DramRead).zip(bytes(Metric::DramWrite))
    };
    let while_stepping = in_steps.zip(step_ns).map_or(1.0, |(nanos, step)| nanos / step.max(1) as f64);
    let limits = ComputeLimits {
        set: *estimator.set(),
        samples: estimator.counts(),
        steady,
        step,
        means,
        tensor_of_peak: estimator.tensor_of_peak().map(|(mean, _)| (mean * while_stepping).min(1.0)),
        tensor_of_peak_error: estimator.tensor_of_peak().and_then(|(_, error)| Some(error? * while_stepping)),
        step_bytes: of_step_by(&|metric| estimator.mean(metric)),
        step_bytes_error: of_step_by(&|metric| estimator.mean_error(metric)),
        busy_while_idle: estimates
            .get(estimator.set(), Activity::Idle, Metric::MultiprocessorsActive)
            .filter(|(active, error)| *active > 2.0 * error)
            .map(|(active, _)| active / 100.0),
        kernel_clock_hz: kernel_clock(&weighed, estimator, &estimates),
    };
    let compute = step.map(|step| step.times.iter().sum::<u64>());
    let mut names: FxHashMap<_, _> =
        by_name.iter().map(|(&name, rows)| (name, named(rows, all, compute.zip(step_ns)))).collect();
    if simulated {
        let mut computing = by_name;
        computing.retain(|name, _| !communicating.get(name).copied().unwrap_or(false));
        simulate(&mut names, &computing, account, attributor);
    }
    Some((limits, names))
}

fn kernel_clock(kernels: &[Weighed], estimator: &Estimator, estimates: &Estimates) -> Option<f64> {
    let known = kernels.iter().filter_map(|kernel| Some((kernel.limits.clock_hz?, kernel.nanos as f64)));
    let (sum, weight) = known.fold((0.0, 0.0), |(sum, weight), (clock, nanos)| (sum + clock * nanos, weight + nanos));
    let joined = || estimates.get(estimator.set(), Activity::Joined, Metric::Clock).map(|(clock, _)| clock);
    if weight > 0.0 { Some(sum / weight) } else { joined() }
}

/// Limits of the kernels with one name. `all`: time of all kernels; `step`: computation and length of a
/// typical step.
fn named(rows: &[(LaunchConfigId, Weighed)], all: u64, step: Option<(u64, u64)>) -> NamedLimits {
    let rows = || rows.iter().map(|(_, row)| row);
    let nanos: f64 = rows().map(|row| row.nanos as f64).sum();
    let largest = rows().max_by_key(|row| row.nanos).map_or(KernelLimits::UNKNOWN, |row| row.limits);
    let mut limits = largest;
    if nanos > 0.0 {
        limits.parts = std::array::from_fn(|limit| {
            rows().map(|row| row.limits.parts[limit] * row.nanos as f64).sum::<f64>() / nanos
        });
    }
    let gain = |reachable: f64| {
        let (compute, step_ns) = step?;
        let saved: f64 = rows().map(|row| row.nanos as f64 * (1.0 - row.limits.at_roof(reachable))).sum();
        let of_step = saved / all.max(1) as f64 * compute as f64 / step_ns.max(1) as f64;
        Some(StepGain::by_subtraction(of_step))
    };
    let gains =
        limits.roof.and_then(|_| Some(KernelGains { at_80: gain(ROOFS[0])?, at_90: gain(ROOFS[1])?, then: None }));
    NamedLimits { limits, gains }
}

impl RangesReport {
    /// Divides the kernel time of each range by the limits of the kernels with the same names.
    pub(super) fn divide(&mut self, devices: &[DeviceReport]) {
        let mut parts: FxHashMap<&str, (f64, [f64; Limit::ALL.len()])> = FxHashMap::default();
        for row in devices.iter().filter(|device| device.limits.is_some()).flat_map(|device| &device.kernels) {
            if row.communication {
                continue;
            }
            let nanos = row.durations.total() as f64;
            let of = row.limits.map_or(KernelLimits::UNKNOWN.parts, |named| named.limits.parts);
            let (weight, sums) = parts.entry(row.name.as_str()).or_default();
            *weight += nanos;
            for (sum, part) in sums.iter_mut().zip(of) {
                *sum += part * nanos;
            }
        }
        if parts.is_empty() {
            return;
        }
        for row in &mut self.rows {
            let mut sums = [0.0; Limit::ALL.len()];
            let mut total = 0u64;
            for (name, durations) in &row.kernels {
                let Some((weight, of)) = parts.get(name.as_str()) else { continue };
                total = total.saturating_add(durations.total());
                for (sum, part) in sums.iter_mut().zip(of) {
                    *sum += part / weight.max(1.0) * durations.total() as f64;
                }
            }
            row.limits = (total > 0).then(|| whole(total, &sums));
        }
    }
}

/// Sentences about the limits of the device that computes most: first the division, then the kernels that
/// matter, then the clock. Empty without usable samples.
pub(super) fn evidence(devices: &[DeviceReport]) -> Vec<String> {
    let computing = |device: &&DeviceReport| device.steady_leaves[Leaf::Compute as usize];
    let Some(device) = devices.iter().max_by_key(computing) else { return Vec::new() };
    let mut sentences = Vec::new();
    if let Some(limits) = device.limits.as_ref().filter(|limits| limits.tells()) {
        sentences.push(division_sentence(limits, device));
        sentences.extend(kernel_sentence(device));
        if let Some(busy) = limits.busy_while_idle.filter(|busy| *busy >= FOREIGN) {
            sentences.push(format!(
                "Multiprocessors were busy {} while no kernel of this process ran: another process uses the GPU.",
                percent(busy)
            ));
        }
    }
    sentences.extend(device.gauges.as_ref().and_then(clock_sentence));
    sentences
}

/// `Kernel time by limit: memory 41 %, .... The SM clock was 1.66 of at most 1.98 GHz (from cycle counts).`
fn division_sentence(limits: &ComputeLimits, device: &DeviceReport) -> String {
    let in_cache = bound_by(device, Roof::L1);
    // Nobody can change a kernel of a library.
    let main = |limit: Limit| {
        let row = most_limited(std::slice::from_ref(device), limit).filter(|row| row.library.is_none());
        row.map_or_else(String::new, |row| format!(" (most in {})", short_name(&row.name, 40)))
    };
    let others = limits.ranked().iter().map(|(_, share)| share).filter(|share| **share < MENTIONED).sum::<f64>();
    let mut parts: Vec<_> = limits
        .ranked()
        .into_iter()
        .filter(|(_, share)| *share >= MENTIONED)
        .map(|(limit, share)| {
            let name =
                if limit == Limit::Memory && in_cache { "shared memory or the L1 cache" } else { words::limit(limit) };
            format!("{name} {}{}", percent(share), if share >= 0.25 { main(limit) } else { String::new() })
        })
        .collect();
    for (name, share) in [("others", others), ("unresolved", limits.share(Limit::Unresolved))] {
        if share >= 0.01 {
            parts.push(format!("{name} {}", percent(share)));
        }
    }
    let clock = limits.kernel_clock_hz.filter(|_| limits.set.highest_clock_hz > 0).map_or(String::new(), |clock| {
        let highest = limits.set.highest_clock_hz as f64 / 1e9;
        format!(" The SM clock was {:.2} of at most {highest:.2} GHz (from cycle counts).", clock / 1e9)
    });
    format!("Kernel time by limit: {}.{clock}", parts.join(", "))
}

/// Limits of the kernels with this name, if the samples separate them from others: a mean is none of theirs.
fn own_limits(row: &KernelRow) -> Option<NamedLimits> {
    row.limits.filter(|named| named.limits.own)
}

/// The kernel that loses most time to this limit.
pub(super) fn most_limited(devices: &[DeviceReport], limit: Limit) -> Option<&KernelRow> {
    let time = |row: &&KernelRow| {
        own_limits(row).map_or(0.0, |named| row.durations.total() as f64 * named.limits.parts[limit as usize])
    };
    let rows = devices.iter().flat_map(|device| &device.kernels).filter(|row| !row.communication);
    rows.filter(|row| time(row) > 0.0).max_by(|a, b| time(a).total_cmp(&time(b)))
}

/// Sentence about the kernel that loses the most time against its roofline.
fn kernel_sentence(device: &DeviceReport) -> Option<String> {
    let kernels = &device.kernels;
    let names = short_names(kernels.iter().map(|row| row.name.as_str()), 60);
    // Nobody can change a kernel of a library.
    let own = |row: &KernelRow| row.library.is_none() && !row.communication;
    let known = kernels.iter().zip(names).filter(|(row, _)| own(row)).filter_map(|(row, name)| {
        let NamedLimits { limits, gains } = own_limits(row)?;
        let (roof, used, error) = limits.roof?;
        (used >= NEAR_ROOF).then_some((row, roof, used, error, gains, name))
    });
    let lost = |row: &KernelRow, used: f64| row.durations.total() as f64 * (0.9 - used).max(0.0);
    let (_, roof, used, error, gains, name) = known.max_by(|a, b| lost(a.0, a.2).total_cmp(&lost(b.0, b.2)))?;
    let gain = gains
        .filter(|gains| gains.at_90.speedup >= WORTH_SHOWING && is_within_reach(device, gains.at_90.speedup))
        .map_or(String::new(), |gains| format!("; at 90 % of it a step would be {}", gain_words(&gains)));
    Some(format!(
        "Of kernels that use a tenth of a unit or more, {name} loses most time against that unit's peak: it uses {:.0} % \
         (±{:.0}) of {}{gain}.",
        used * 100.0,
        (2.0 * error * 100.0).max(1.0),
        words::roof(roof)
    ))
}

pub(super) fn clock_sentence(gauges: &GaugeSums) -> Option<String> {
    let (reason, share) = gauges.main_reason().filter(|(_, share)| *share >= LOWERED)?;
    let power = match reason {
        Throttle::PowerCap => {
            let watts = gauges.watts().filter(|watts| *watts >= 1.0);
            watts.map_or(String::new(), |watts| format!(" ({watts:.0} W on average)"))
        }
        Throttle::Thermal | Throttle::HardwareThermal => gauges
            .temperature_c
            .mean()
            .map_or(String::new(), |_| format!(" ({:.0} degrees C)", gauges.temperature_c.most)),
        _ => String::new(),
    };
    Some(format!("The clock was lowered {} of the time by {}{power}.", percent(share), reason.words()))
}

/// The largest limit of the computation, and true if it is memory in the L1 cache; `None` without usable samples.
pub(super) fn largest(devices: &[DeviceReport]) -> Option<(Limit, bool)> {
    let computing = |device: &&DeviceReport| device.steady_leaves[Leaf::Compute as usize];
    let device = devices.iter().max_by_key(computing)?;
    let limits = device.limits.as_ref().filter(|limits| limits.tells())?;
    let ranked = limits.ranked();
    let (&(first, share), others) = ranked.split_first()?;
    // It stays the largest if all that the samples do not resolve is of the second one.
    let second = others.first().map_or(0.0, |(_, share)| *share) + limits.share(Limit::Unresolved);
    (share >= LARGEST.max(second)).then(|| (first, first == Limit::Memory && bound_by(device, Roof::L1)))
}

/// True if `wanted` is the roofline of most memory-limited kernels.
fn bound_by(device: &DeviceReport, wanted: Roof) -> bool {
    let (mut of, mut all) = (0.0, 0.0);
    for row in &device.kernels {
        let Some(named) = row.limits else { continue };
        let time = row.durations.total() as f64 * named.limits.parts[Limit::Memory as usize];
        all += time;
        if named.limits.roof.is_some_and(|(roof, ..)| roof == wanted) {
            of += time;
        }
    }
    all > 0.0 && of > 0.5 * all
}

/// Lines of the long report: measured values and sums of the utilization readings.
pub(super) fn details(device: &DeviceReport) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(limits) = &device.limits {
        let used = limits.samples;
        sentences.push(format!(
            "Counters: {} samples used of {}, every {} on average.",
            used.used,
            used.used + used.unusable + used.unplaced,
            duration(used.mean_interval_ns().unwrap_or(limits.set.interval_ns))
        ));
        if limits.samples.used > 0 {
            sentences.push(division_sentence(limits, device));
            sentences.extend(gain_sentences(device));
        }
        if let Some(tensor) = limits.tensor_of_peak {
            sentences.push(format!(
                "Tensor cores reached {:.1} %{} of their peak at the highest clock, {} (measured utilization, of any precision).",
                tensor * 100.0,
                limits.tensor_of_peak_error.map_or(String::new(), |error| format!(" (±{:.1})", 200.0 * error)),
                if limits.step.is_some() { "over typical steps" } else { "over the whole run" }
            ));
        }
        if let Some((read, written)) = limits.step_bytes {
            let off = |error: u64| format!(" (±{})", bytes(error.saturating_mul(2)));
            let [read_off, written_off] =
                limits.step_bytes_error.map_or_else(Default::default, |(read, written)| [off(read), off(written)]);
            sentences.push(format!(
                "A step reads {}{read_off} of device memory and writes {}{written_off}.",
                bytes(read),
                bytes(written)
            ));
        }
    }
    if let Some(gauges) = &device.gauges {
        sentences.extend(clock_sentence(gauges));
        if let Some(watts) = gauges.watts() {
            let step = device.typical.map(|typical| typical.mean_ns as f64 / 1e9 * watts);
            let energy = step.map_or(String::new(), |joules| format!("; at that power {joules:.2} J a step"));
            sentences.push(format!("Power {watts:.0} W on average over the run, start-up included{energy}."));
        }
    }
    sentences
}

/// Largest limits of the computation, for the live line.
pub(super) fn live_part(devices: &[DeviceReport]) -> Option<String> {
    let device = devices.iter().max_by_key(|device| device.steady_leaves[Leaf::Compute as usize])?;
    let limits = device.limits.as_ref().filter(|limits| limits.tells())?;
    let (limit, share) = limits.ranked().into_iter().next()?;
    Some(format!("{} {}", words::limit(limit), percent(share)))
}

/// Table of the kernels with the most time: their most used units.
pub(super) fn kernel_table(device: &DeviceReport) -> Table {
    const ROWS: usize = 12;
    // An estimated clock may exceed the device's maximum.
    let highest = device.limits.as_ref().map_or(0, |limits| limits.set.highest_clock_hz);
    let highest = if highest > 0 { highest as f64 } else { f64::INFINITY };
    let computing = device.kernels.iter().filter(|row| !row.communication);
    let rows: Vec<_> = computing.filter_map(|row| Some((row, row.limits.as_ref()?))).take(ROWS).collect();
    let names = short_names(rows.iter().map(|(row, _)| row.name.as_str()), 80);
    let mut table = Table::new(
        "time:10|unit:7|used %:6|+- %:5|SM %:5|wait %:6|GHz:6|at 90%:6|kernel and the unit that it uses most",
    );
    for ((row, NamedLimits { limits, gains }), name) in rows.into_iter().zip(names) {
        let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0}", share * 100.0));
        let (roof, used, error) = match limits.roof {
            Some((roof, used, error)) => (roof.name(), Some(used), Some(2.0 * error)),
            None => ("-", None, None),
        };
        table.row(&[
            &duration(row.durations.total()),
            &roof,
            &percent(used),
            &percent(error),
            &percent(limits.active),
            &percent(Some(limits.parts[Limit::Latency as usize] + limits.parts[Limit::Occupancy as usize])),
            &limits.clock_hz.map_or("-".to_owned(), |clock| format!("{:.2}", clock.min(highest) / 1e9)),
            &gains.map_or("-".to_owned(), |gains| format!("{:.2}x", gains.at_90.speedup)),
            &(name + if limits.own { "" } else { " (mean of small kernels)" }),
        ]);
    }
    table
}

/// Table of limits: share, time per step, limit.
pub(super) fn limits_table(limits: &ComputeLimits) -> Table {
    let division = limits.division();
    let total: u64 = division.times.iter().sum();
    let of = if limits.step.is_some() { "of a step" } else { "after start-up" };
    let mut table = Table::new(&format!("{of}:20|%:6|what limits computation"));
    for limit in Limit::ALL.into_iter().filter(|&limit| division.times[limit as usize] > 0) {
        let mut name = format!("{} ({})", words::limit(limit), limit.name());
        if limit == Limit::IdleMultiprocessors && division.tail_ns + division.small_grids_ns > 0 {
            let [tail, small] = [division.tail_ns, division.small_grids_ns].map(duration);
            name += &format!(": last blocks {tail}, small grids {small}");
        }
        let share = format!("{:.2}", limits.share(limit) * 100.0);
        table.row(&[&part_of(division.times[limit as usize], total), &share, &name]);
    }
    table
}
