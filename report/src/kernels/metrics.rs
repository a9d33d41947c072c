//! The metrics of a kernel by name, counted or known from its launches.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use profiler_core::sorting::SortRows as _;

use super::sets::{THEORETICAL_OCCUPANCY, groups, unit};
use super::{KernelView, KernelsReport};
use crate::text_format::Page;

/// Accepts the names of metrics to show; `None`: no choice.
pub type Chosen<'a> = Option<&'a dyn Fn(&str) -> bool>;

/// Returns all metrics with their units, sorted by name.
pub(super) fn all_metrics(view: &KernelView) -> Vec<(&str, &'static str, f64)> {
    let launch = &view.launch;
    let product = |of: [u32; 3]| of.into_iter().map(f64::from).product::<f64>();
    let (threads, blocks) = (product(launch.block), product(launch.grid));
    let mut all: Vec<(&str, &str, f64)> = vec![
        ("launch__block_size", "", threads),
        ("launch__grid_size", "", blocks),
        ("launch__registers_per_thread", "register/thread", launch.registers_per_thread.into()),
        ("launch__shared_mem_per_block_dynamic", "byte/block", launch.dynamic_shared_bytes.into()),
        ("launch__shared_mem_per_block_static", "byte/block", launch.static_shared_bytes.into()),
        ("launch__thread_count", "thread", threads * blocks),
    ];
    if let Some(geometry) = &view.geometry {
        all.push(("launch__waves_per_multiprocessor", "", geometry.waves));
        all.push((THEORETICAL_OCCUPANCY, "%", geometry.theoretical_occupancy * 100.0));
    }
    all.extend(view.profile.values.iter().map(|(name, value)| (name.as_str(), unit(name), *value)));
    all.sort_rows_by(|a, b| a.0.cmp(b.0));
    all.dedup_by(|a, b| a.0 == b.0);
    all
}

impl KernelsReport {
    /// Names of the metrics of all measured kernels.
    pub fn metric_names(&self) -> BTreeSet<&str> {
        let measured = self.measured.iter().filter(|view| !view.profile.values.is_empty());
        measured.flat_map(all_metrics).map(|(name, ..)| name).collect()
    }
}

/// Appends the chosen metrics; without a choice those that no other line of the page shows.
pub(super) fn listed_metrics(out: &mut Page, view: &KernelView, is_chosen: Chosen<'_>) {
    let mut rows = all_metrics(view);
    match is_chosen {
        Some(is_chosen) => rows.retain(|(name, ..)| is_chosen(name)),
        None => {
            let of_pages = groups().concat();
            let counted = |name: &str| view.profile.values.iter().any(|(of, _)| of == name);
            rows.retain(|(name, ..)| counted(name) && !of_pages.iter().any(|of| of == name));
        }
    }
    let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or_default();
    if rows.is_empty() && is_chosen.is_some() {
        let _ = writeln!(out, "    none of the chosen metrics was measured");
    }
    for (name, unit, value) in rows {
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        let _ = writeln!(out, "    {name:<width$}  {:>18}{unit}", figure(value));
    }
}

/// Formats whole numbers completely, others with six digits.
fn figure(value: f64) -> String {
    let whole = value.abs().max(1.0).log10() as usize + 1;
    if !value.is_finite() {
        "not counted".to_owned()
    } else if value.fract() == 0.0 && whole <= 15 {
        format!("{value}")
    } else {
        format!("{value:.*}", 6_usize.saturating_sub(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_six_digits() {
        for (value, text) in [
            (1_070_000_123.0, "1070000123"),
            (84.126_94, "84.1269"),
            (0.25, "0.25000"),
            (1_234_567.8, "1234568"),
            (f64::NAN, "not counted"),
        ] {
            assert_eq!(figure(value), text);
        }
    }
}
