//! Kernels and copies of two runs: added, removed, run more or less often, slower or faster.
//!
//! They are aligned by name, and counts are scaled to one unit (a step, or a number of operations) because
//! the runs may differ in length. A report counts kernels over the complete trace: kernels that run only
//! during start-up appear as fewer launches in the longer run. A report keeps no sequence of operations, so
//! two kernels of one name share a row.

use std::collections::BTreeMap;

use profiler_core::attribution::statistics::Durations;

use super::significance::{SIGNIFICANCE, Spread, mean_shift};
use gpuwhy_report::run::{CopyRow, DeviceReport, GraphOrigins, KernelRow};
use gpuwhy_report::text_format::path_name;

/// Minimum relative change of a mean duration to be reported. Two runs of one program on one H200 (78 kernels
/// of a ResNet-50) differ by up to 1 % in kernels of over 10 us, and by the resolution of the clock in
/// shorter ones.
pub const SLOWER_SHARE: f64 = 0.02;
/// Minimum relative change of launches to be reported: the ends of a run cut steps, and start-up counts as
/// well.
pub const LAUNCHES_SHARE: f64 = 0.05;
/// Maximum number of modules.
pub const MODULES: usize = 128;

/// Change in the number of executions in one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Launches {
    /// Only in the second run.
    Added,
    /// Only in the first run.
    Removed,
    /// More often than before.
    More,
    /// Less often.
    Fewer,
    /// Equal within [`LAUNCHES_SHARE`].
    Same,
}

/// Change in the mean duration of one execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Speed {
    /// Significantly longer, by at least [`SLOWER_SHARE`].
    Slower,
    /// Significantly shorter, by at least the same share.
    Faster,
    /// Neither, or present in only one run.
    Same,
}

/// Time and count of a kernel or a kind of copy in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// Executions in the complete trace.
    pub count: u64,
    /// Executions in one unit.
    pub per_unit: f64,
    /// Mean duration of one execution, nanoseconds; 0 without executions.
    pub mean_ns: f64,
    /// Time in one unit, nanoseconds, including time that overlaps other work.
    pub unit_ns: f64,
    /// Bytes moved in one unit; 0 for kernels.
    pub unit_bytes: f64,
}

/// Work of CUDA graphs that one module captured, in both runs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModuleRow {
    /// The module with its caller and operators; else the thread.
    pub name: String,
    /// In the first run.
    pub a: Usage,
    /// In the second run.
    pub b: Usage,
}

impl ModuleRow {
    /// Change of the time in one unit, nanoseconds; negative when the second run takes less.
    pub fn change_ns(&self) -> f64 {
        self.b.unit_ns - self.a.unit_ns
    }
}

/// A kernel or a kind of copy in both runs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DiffRow {
    /// Name of the kernel, or direction and memory of the copy.
    pub name: String,
    /// In the first run.
    pub a: Usage,
    /// In the second run.
    pub b: Usage,
    /// Change of the executions.
    pub launches: Launches,
    /// Change of the mean duration.
    pub speed: Speed,
    /// Upper bound of the probability of means this far apart by chance; `None` with too few executions.
    pub p: Option<f64>,
}

impl DiffRow {
    /// Change of the time in one unit, nanoseconds; negative when the second run takes less.
    pub fn change_ns(&self) -> f64 {
        self.b.unit_ns - self.a.unit_ns
    }

    /// True if its launches or its duration changed.
    pub fn is_changed(&self) -> bool {
        self.launches != Launches::Same || self.speed != Speed::Same
    }
}

/// Executions of one name.
#[derive(Clone, Copy, Debug, Default)]
struct KernelTotals {
    count: u64,
    total: u64,
    min: u64,
    max: u64,
    bytes: u64,
}

impl KernelTotals {
    fn add(&mut self, durations: &Durations, bytes: u64) {
        self.min = if self.count == 0 { durations.min() } else { self.min.min(durations.min()) };
        self.max = self.max.max(durations.max());
        self.count += durations.count();
        self.total = self.total.saturating_add(durations.total());
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total as f64 / self.count as f64 }
    }

    fn spread(&self) -> Spread {
        Spread { count: self.count, mean: self.mean(), min: self.min, max: self.max }
    }

    /// `scale` is the inverse of the number of units in the trace.
    fn usage(&self, scale: f64) -> Usage {
        Usage {
            count: self.count,
            per_unit: self.count as f64 * scale,
            mean_ns: self.mean(),
            unit_ns: self.total as f64 * scale,
            unit_bytes: self.bytes as f64 * scale,
        }
    }
}

/// Similarity of the kernels of two runs: the share of executions, by name, that the runs have in common when
/// each run is normalized to 1. It is 1 for equal mixtures regardless of the length of the runs, 0 without a
/// common kernel. If only one of them recorded CUDA graphs as a whole, it is the share of that run's other
/// executions whose names the other run has, too: what its graphs contain is unknown.
pub fn similarity(a: &[DeviceReport], b: &[DeviceReport]) -> f64 {
    let mixture = |devices: &[DeviceReport]| {
        let mut counts = BTreeMap::<String, u64>::new();
        for row in devices.iter().flat_map(|device| &device.kernels) {
            *counts.entry(row.name.clone()).or_default() += row.durations.count();
        }
        counts
    };
    let (mut first, mut second) = (mixture(a), mixture(b));
    let has_graphs = |devices: &[DeviceReport]| devices.iter().any(has_whole_graphs);
    if has_graphs(a) != has_graphs(b) {
        let (whole, other) = if has_graphs(a) { (&mut first, &second) } else { (&mut second, &first) };
        whole.retain(|name, _| !KernelRow::is_whole_graph_name(name));
        let known = whole.iter().filter(|(name, _)| other.contains_key(*name)).map(|(_, count)| count);
        return known.sum::<u64>() as f64 / total(whole);
    }
    in_common(&first, &second)
}

/// The share of their executions that two runs have in common when each is normalized to 1.
pub(crate) fn in_common<K: Ord>(a: &BTreeMap<K, u64>, b: &BTreeMap<K, u64>) -> f64 {
    let (a_total, b_total) = (total(a), total(b));
    let common = a.iter().filter_map(|(kernel, &count)| Some((count, *b.get(kernel)?)));
    // An empty sum of floats would be -0.
    common.map(|(a, b)| (a as f64 / a_total).min(b as f64 / b_total)).fold(0.0, |sum, part| sum + part)
}

fn total<K>(counts: &BTreeMap<K, u64>) -> f64 {
    // At least 1: nothing has nothing in common.
    counts.values().map(|&count| count as f64).sum::<f64>().max(1.0)
}

/// True if a device ran CUDA graphs that were recorded as a whole.
pub(super) fn has_whole_graphs(device: &DeviceReport) -> bool {
    device.kernels.iter().any(|row| KernelRow::is_whole_graph_name(&row.name))
}

/// Kernels of both runs, the largest change of time first. `scale` is one unit as a fraction of each trace.
pub fn kernels(a: &[KernelRow], b: &[KernelRow], scale: (f64, f64)) -> Vec<DiffRow> {
    let totals = |rows: &[KernelRow]| all_totals(rows.iter().map(|row| (row.name.clone(), &row.durations, 0)));
    aligned(&totals(a), &totals(b), scale)
}

/// Copies of both runs, the largest change of time first. `scale` is one unit as a fraction of each trace.
pub fn copies(a: &[CopyRow], b: &[CopyRow], scale: (f64, f64)) -> Vec<DiffRow> {
    let totals = |rows: &[CopyRow]| {
        all_totals(rows.iter().map(|row| (format!("copy {}", path_name(row.path)), &row.durations, row.bytes)))
    };
    aligned(&totals(a), &totals(b), scale)
}

/// Work of CUDA graphs by module in both runs, the largest change of time first; at most [`MODULES`].
pub fn modules(a: &GraphOrigins, b: &GraphOrigins, scale: (f64, f64)) -> Vec<ModuleRow> {
    let totals = |origins: &GraphOrigins| {
        let mut totals = BTreeMap::<String, KernelTotals>::new();
        for (name, work) in origins.all_parts().filter(|(_, work)| work.count > 0) {
            let sum = totals.entry(name).or_default();
            sum.count += work.count;
            sum.total = sum.total.saturating_add(work.total_ns);
        }
        totals
    };
    let (a, b) = (totals(a), totals(b));
    let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
    let usage = |of: Option<&KernelTotals>, scale| of.copied().unwrap_or_default().usage(scale);
    let row = |name: &String| ModuleRow {
        name: name.clone(),
        a: usage(a.get(name), scale.0),
        b: usage(b.get(name), scale.1),
    };
    let mut rows: Vec<_> = names.map(row).collect();
    rows.sort_by(|x, y| y.change_ns().abs().total_cmp(&x.change_ns().abs()).then_with(|| x.name.cmp(&y.name)));
    rows.truncate(MODULES);
    rows
}

fn all_totals<'a>(rows: impl Iterator<Item = (String, &'a Durations, u64)>) -> BTreeMap<String, KernelTotals> {
    let mut all_totals = BTreeMap::<String, KernelTotals>::new();
    for (name, durations, bytes) in rows {
        all_totals.entry(name).or_default().add(durations, bytes);
    }
    all_totals
}

fn aligned(a: &BTreeMap<String, KernelTotals>, b: &BTreeMap<String, KernelTotals>, scale: (f64, f64)) -> Vec<DiffRow> {
    // Bonferroni: each row has a test, so the significance level holds for all tests together.
    let level = SIGNIFICANCE / a.keys().filter(|name| b.contains_key(*name)).count().max(1) as f64;
    let absent = KernelTotals::default();
    let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
    let mut rows: Vec<_> = names
        .map(|name| {
            let (first, second) = (a.get(name).unwrap_or(&absent), b.get(name).unwrap_or(&absent));
            let p = mean_shift(&first.spread(), &second.spread());
            let (a, b) = (first.usage(scale.0), second.usage(scale.1));
            let speed = speed(a.mean_ns, b.mean_ns, p.is_some_and(|p| p < level));
            DiffRow { name: name.clone(), a, b, launches: launches(&a, &b), speed, p }
        })
        .collect();
    rows.sort_by(|x, y| y.change_ns().abs().total_cmp(&x.change_ns().abs()).then_with(|| x.name.cmp(&y.name)));
    rows
}

fn launches(a: &Usage, b: &Usage) -> Launches {
    let change = b.per_unit - a.per_unit;
    match (a.count, b.count) {
        (0, _) => Launches::Added,
        (_, 0) => Launches::Removed,
        _ if change.abs() <= LAUNCHES_SHARE * a.per_unit.max(b.per_unit) => Launches::Same,
        _ if change > 0.0 => Launches::More,
        _ => Launches::Fewer,
    }
}

/// Compares mean durations: they must differ by at least [`SLOWER_SHARE`], and significantly.
pub(super) fn speed(a: f64, b: f64, is_significant: bool) -> Speed {
    if !is_significant || (b - a).abs() < SLOWER_SHARE * a.min(b) {
        Speed::Same
    } else if b > a {
        Speed::Slower
    } else {
        Speed::Faster
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and durations, as rows of a report.
    fn run(rows: &[(&str, &[u64])]) -> BTreeMap<String, KernelTotals> {
        let mut all_totals = BTreeMap::<String, KernelTotals>::new();
        for (name, nanos) in rows {
            let mut durations = Durations::default();
            nanos.iter().for_each(|&nanos| durations.add(nanos));
            all_totals.entry((*name).to_owned()).or_default().add(&durations, 0);
        }
        all_totals
    }

    #[test]
    fn what_came_went_and_changed_is_distinguished() {
        let a = run(&[("gone", &[10; 20]), ("slow", &[100; 20]), ("more", &[7; 20]), ("same", &[50, 51, 52, 50, 51])]);
        let b = run(&[
            ("new", &[10; 40]),
            ("slow", &[200; 40]),
            ("more", &[7; 80]),
            ("same", &[51, 50, 52, 50, 51, 50, 51, 52, 50, 51]),
        ]);
        // The second run has twice as many units.
        let rows = aligned(&a, &b, (0.1, 0.05));
        let of = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
        assert_eq!(of("gone").launches, Launches::Removed);
        assert_eq!(of("new").launches, Launches::Added);
        assert_eq!((of("slow").launches, of("slow").speed), (Launches::Same, Speed::Slower));
        assert_eq!((of("more").launches, of("more").speed), (Launches::More, Speed::Same));
        assert!(!of("same").is_changed());
        assert_eq!(rows[0].name, "slow");
        assert!((of("slow").change_ns() - 200.0).abs() < 1e-9);
    }

    #[test]
    fn overloads_that_read_alike_are_one_row() {
        let rows = aligned(&run(&[("k", &[10; 5]), ("k", &[30; 5])]), &run(&[("k", &[20; 10])]), (1.0, 1.0));
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].a.count, rows[0].a.mean_ns), (10, 20.0));
        assert!(!rows[0].is_changed());
    }

    #[test]
    fn noise_in_a_wide_distribution_is_no_change() {
        let wide: Vec<u64> = (0..40).map(|index| 100 + index * 50).collect();
        let shifted: Vec<u64> = wide.iter().map(|nanos| nanos + 60).collect();
        let rows = aligned(&run(&[("k", &wide)]), &run(&[("k", &shifted)]), (1.0, 1.0));
        assert_eq!(rows[0].speed, Speed::Same);
        assert!(rows[0].p.is_some_and(|p| p > 0.1));
    }
}
