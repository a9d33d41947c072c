//! Rules about the execution of kernels: their time, use of a unit, register spills.
//!
//! Kernels that `gpuwhy kernels` measured are checked by their counters. Others are checked by sampled
//! hardware counters where these suffice, and by their records. A rule without data fails: it cannot be shown
//! to hold.

use gpuwhy_report::kernels::{KernelView, Roof};
use gpuwhy_report::run::{DeviceReport, KernelRow, Report};
use gpuwhy_report::text_format::duration;

use crate::baseline::Baseline;
use crate::run_rules::{self, Timed, list};

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

/// The median of each kernel with `name` in its name.
pub(crate) fn times(report: &Report, name: &str) -> Result<Vec<Timed>, String> {
    let of = |(device, row): (&DeviceReport, &KernelRow)| {
        let (of, count) = (&row.durations, row.durations.count());
        let [median, min, max] = [of.median(), of.min(), of.max()].map(duration);
        Timed {
            place: device.device.id.0 as usize,
            device: device.device.name.clone(),
            what: format!("{}: ", row.name),
            nanos: of.median(),
            count,
            found: format!("{}: median {median} of {count} launches ({min} .. {max})", row.name),
        }
    };
    Ok(kernels(report, name)?.into_iter().map(of).collect())
}

/// Compares a kernel of one or more runs with a baseline, or updates it.
pub(crate) fn within(runs: &[&Report], name: &str, ratio: f64, baseline: &Baseline) -> Result<Option<String>, String> {
    let mut names = Vec::new();
    for run in runs {
        names.extend(kernels(run, name)?.into_iter().map(|(_, row)| row.name.clone()));
    }
    names.sort();
    names.dedup();
    if names.len() > 1 {
        let (count, names) = (names.len(), list(names.into_iter()));
        return Err(format!("{count} kernels have {name:?} in their names, a baseline is of one: {names}"));
    }
    // A kernel may have the name of a module, or be named step.
    run_rules::within(runs, |run| times(run, name), &format!("kernel {name}"), ratio, baseline)
}

/// Start of a name: names of templates can fill pages.
pub(crate) fn short(name: &str) -> String {
    match name.char_indices().nth(NAME) {
        Some((end, _)) => format!("{}~", &name[..end]),
        None => name.to_owned(),
    }
}
