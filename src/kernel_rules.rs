//! Rules about the execution of kernels: use of a unit, register spills.
//!
//! Kernels that `gpuwhy kernels` measured are checked by their counters. Others are checked by sampled
//! hardware counters where these suffice, and by their records. A rule without data fails: it cannot be shown
//! to hold.

use gpuwhy_report::kernels::{KernelView, Roof};
use gpuwhy_report::run::{KernelRow, Report};

use crate::run_rules::list;

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
