//! Rules about the execution of kernels: their time, use of a unit, register spills.
//!
//! Kernels that `gpuwhy kernels` measured are checked by their counters. Others are checked by sampled
//! hardware counters where these suffice, and by their records. A rule without data fails: it cannot be shown
//! to hold.

use std::time::Duration;

use gpuwhy_report::kernels::{KernelView, Roof};
use gpuwhy_report::run::{DeviceReport, KernelRow, Report};
use gpuwhy_report::text_format::duration;

use crate::baseline::Baseline;
use crate::run_rules::{self, list};

/// Maximum characters of a kernel's name in a list.
const NAME: usize = 80;

/// Checks that kernels with `name` in their names use at least the part `least` of the peak of `unit`.
pub(crate) fn uses_at_least(report: &Report, name: &str, unit: Roof, least: f64) -> Result<(), String> {
    let measured: Vec<_> = report.kernels.measured.iter().filter(|view| is_named(view, name)).collect();
    let mut failures = Vec::new();
    for view in &measured {
        match view.figures.roof(unit) {
            Some(used) if used >= least => {}
            Some(used) if view.figures.lower_bounds.contains(&unit) => failures.push(format!(
                "{}: only part of its use of the {} was measured, at least {:.1} % (gpuwhy kernels --set sol)",
                view.name,
                unit.words(),
                used * 1e2
            )),
            Some(used) => failures.push(short_of(&view.name, used, unit, least)),
            None => failures.push(format!(
                "{}: its use of the {} was not measured (gpuwhy kernels --set core)",
                view.name,
                unit.words()
            )),
        }
    }
    if measured.is_empty() {
        let rows = report.devices.iter().flat_map(|device| &device.kernels);
        let found: Vec<_> = rows.filter(|row| has(&row.name, name)).collect();
        if found.is_empty() {
            return Err(format!("no kernel has {name:?} in its name"));
        }
        failures.extend(found.into_iter().filter_map(|row| sampled(row, unit, least).err()));
    }
    into_result(failures)
}

/// Checks by samples, which show the unit that a kernel uses most: it uses all others less.
fn sampled(row: &KernelRow, unit: Roof, least: f64) -> Result<(), String> {
    let nearest = row.limits.and_then(|named| named.limits.roof.filter(|_| named.limits.own));
    match nearest {
        Some((roof, used, error)) if roof.name() == unit.name() => {
            if used >= least {
                return Ok(());
            }
            let off = (2.0 * error * 1e2).max(1.0);
            Err(format!("{} (\u{b1}{off:.0} points, sampled)", short_of(&row.name, used, unit, least)))
        }
        Some((roof, used, _)) if used < least => Err(format!(
            "{}: uses at most {:.1} % of the {}, at least {:.1} % expected; it uses the {} most (sampled)",
            row.name,
            used * 1e2,
            unit.words(),
            least * 1e2,
            roof.name()
        )),
        _ => Err(format!("{}: no data on its use of the {}; measure it with `gpuwhy kernels`", row.name, unit.words())),
    }
}

fn short_of(name: &str, used: f64, unit: Roof, least: f64) -> String {
    format!("{name}: uses {:.1} % of the {}, at least {:.1} % expected", used * 1e2, unit.words(), least * 1e2)
}

/// Checks that no kernel with `name` in its name accesses local memory, which holds spilled registers and
/// arrays that do not fit registers. Covers measured kernels and those with the most time.
pub(crate) fn no_spills(report: &Report, name: &str) -> Result<(), String> {
    let measured = report.kernels.measured.iter().filter(|view| is_named(view, name));
    let measured = measured.map(|view| {
        let (bytes, accesses) = (view.launch.local_bytes_per_thread, view.figures.memory.local_instructions);
        (view.name.as_str(), bytes, accesses)
    });
    let others = report.kernels.unmeasured.iter().map(|row| &row.kernel);
    let others = others.filter(|kernel| has(&kernel.demangled, name) || has(&kernel.name, name));
    let others = others.map(|kernel| (kernel.demangled.as_str(), kernel.launch.local_bytes_per_thread, None));
    let mut seen = 0;
    let failures = measured.chain(others).inspect(|_| seen += 1).filter_map(|(name, bytes, accesses)| match accesses {
        Some(count) if count > 0.0 => Some(format!("{name}: {count:.0} instructions access local memory")),
        None if bytes > 0 => Some(format!("{name}: {bytes} bytes of local memory for each thread")),
        _ => None,
    });
    let failures: Vec<_> = failures.collect();
    if seen == 0 {
        return Err(match name {
            "" => "no kernel ran, so none is judged".to_owned(),
            _ => format!("no kernel has {name:?} in its name, or none of those with the most time"),
        });
    }
    into_result(failures)
}

fn into_result(failures: Vec<String>) -> Result<(), String> {
    if failures.is_empty() { Ok(()) } else { Err(list(failures.into_iter())) }
}

fn is_named(view: &KernelView, part: &str) -> bool {
    has(&view.name, part) || has(&view.symbol, part)
}

/// True if a kernel's name contains `part`, ignoring case: PyTorch's softmax is `cunn_SoftMaxForward`.
pub(crate) fn has(name: &str, part: &str) -> bool {
    name.to_lowercase().contains(&part.to_lowercase())
}

/// Kernels whose name contains `name`, ignoring case.
fn kernels<'a>(report: &'a Report, name: &str) -> Result<Vec<(&'a DeviceReport, &'a KernelRow)>, String> {
    let all = || report.devices.iter().flat_map(|device| device.kernels.iter().map(move |row| (device, row)));
    let found: Vec<_> = all().filter(|(_, row)| has(&row.name, name)).collect();
    if found.is_empty() {
        return Err(format!(
            "no kernel has {name:?} in its name; there are {}",
            list(all().map(|(_, row)| short(&row.name)))
        ));
    }
    Ok(found)
}

/// Checks that kernels with `name` in their names take at most this long in the median.
pub(crate) fn at_most(report: &Report, name: &str, at_most: Duration) -> Result<(), String> {
    let limit = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
    kernels(report, name)?.into_iter().try_for_each(|(_, row)| slower(row, limit, ""))
}

/// Compares a kernel of one or more runs with a baseline, or updates it.
pub(crate) fn within(runs: &[&Report], name: &str, ratio: f64, baseline: &Baseline) -> Result<Option<String>, String> {
    let mut found: Vec<(&DeviceReport, &KernelRow, Vec<u64>)> = Vec::new();
    for run in runs {
        for (device, row) in kernels(run, name)? {
            let median = row.durations.median();
            match found.iter_mut().find(|(known, _, _)| known.device.id == device.device.id) {
                Some((_, known, medians)) if known.name == row.name => medians.push(median),
                _ => found.push((device, row, vec![median])),
            }
        }
    }
    let mut names: Vec<_> = found.iter().map(|(_, row, _)| row.name.clone()).collect();
    names.sort();
    names.dedup();
    if names.len() > 1 {
        let (count, names) = (names.len(), list(names.into_iter()));
        return Err(format!("{count} kernels have {name:?} in their names, a baseline is of one: {names}"));
    }
    // An updated baseline keeps the last one.
    found.sort_by_key(|(_, _, medians)| run_rules::median(medians));
    let mut inconclusive = None;
    for (device, row, medians) in found {
        let device = &device.device.name;
        // A kernel may have the name of a module, or be named step.
        let key = format!("kernel {name}");
        let Some(limit) = baseline.limit(&key, device, &medians, row.durations.count(), ratio)? else { continue };
        match (&limit.stored[..], &medians[..]) {
            ([_], [_]) => slower(row, limit.nanos, &limit.basis)?,
            (stored, medians) => {
                let judged = run_rules::within(stored, medians, ratio).map_err(|why| format!("{}: {why}", row.name))?;
                inconclusive = inconclusive.or(judged);
            }
        }
    }
    Ok(inconclusive)
}

fn slower(row: &KernelRow, limit: u64, basis: &str) -> Result<(), String> {
    let of = &row.durations;
    if of.median() <= limit {
        return Ok(());
    }
    Err(format!(
        "{}: median {} of {} launches ({} .. {}), at most {}{basis} expected",
        row.name,
        duration(of.median()),
        of.count(),
        duration(of.min()),
        duration(of.max()),
        duration(limit)
    ))
}

/// Start of a name: names of templates can fill pages.
pub(crate) fn short(name: &str) -> String {
    match name.char_indices().nth(NAME) {
        Some((end, _)) => format!("{}~", &name[..end]),
        None => name.to_owned(),
    }
}
