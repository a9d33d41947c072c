//! Kernel time by library, and by the source line that launched it.
//!
//! Durations are exact; their origin is an estimate. A kernel's library is derived from its name, or else
//! from the loaded file that samples saw calling CUDA. A kernel's time is divided among the lines that
//! launched it in proportion to the samples that fell into its launches. This overstates lines whose launches
//! take longer on the host, and misjudges lines that run longer kernels of the same name. A kernel without a
//! sample belongs to no line: it is summed and shown, never guessed.

use std::cmp::Reverse;
use std::fmt::Write;

use gpuwhy_trace::demangle::demangled;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::NameId;
use profiler_core::attribution::{Attributor, LaunchPlace, LaunchSampleCounts, LaunchedWork};
use rustc_hash::FxHashMap;

use super::library::Library;
use super::{KernelLineRow, KernelLines, LaunchLineRow, LaunchSite, LibraryRow, Report, SampledTime, names};
use crate::text_format::names::short_names;
use crate::text_format::{Page, counted, duration, shortened};

/// Maximum number of rows in a report.
const LINES: usize = 256;
const ROWS: usize = 1_024;
/// Rows of a table in the long report, and the maximum length of a name.
const SHOWN: usize = 10;
const NAME_WIDTH: usize = 60;
const KERNEL_WIDTH: usize = 44;

/// Standard normal deviate of a 95 % interval.
const DEVIATE: f64 = 1.959_964;

/// Totals for one kernel name on all devices.
#[derive(Clone, Copy, Debug, Default)]
struct OfName {
    count: u64,
    total_ns: u64,
    graph_ns: u64,
}

/// Returns the 95 % confidence interval of the true share when `hits` of `samples` matched: Wilson's score
/// interval (E. B. Wilson, JASA 22, 1927), which keeps its coverage for few samples and for shares near 0 and
/// 1 (Brown, Cai and `DasGupta`, Statistical Science 16, 2001). Without samples the interval is 0 to 1.
pub fn share_interval(hits: u64, samples: u64) -> (f64, f64) {
    if samples == 0 {
        return (0.0, 1.0);
    }
    let (n, share) = (samples as f64, hits as f64 / samples as f64);
    let square = DEVIATE * DEVIATE;
    let middle = (share + square / (2.0 * n)) / (1.0 + square / n);
    let half = DEVIATE / (1.0 + square / n) * (share * (1.0 - share) / n + square / (4.0 * n * n)).sqrt();
    ((middle - half).clamp(0.0, share), (middle + half).clamp(share, 1.0))
}

impl SampledTime {
    /// The part of `nanos` that `hits` of `samples` represent.
    fn of(hits: u64, samples: u64, nanos: u64) -> Self {
        let (low, high) = share_interval(hits, samples);
        let whole = nanos as f64;
        let total_ns = hits as f64 / samples.max(1) as f64 * whole;
        Self { samples: hits, total_ns, low_ns: low * whole, high_ns: high * whole }
    }

    /// Sum of independent parts. Its interval is derived from the variances of the parts: square and add (G.
    /// Y. Zou and A. Donner, Statistics in Medicine 27, 2008).
    fn sum(parts: impl Iterator<Item = Self> + Clone) -> Self {
        let total_ns: f64 = parts.clone().map(|part| part.total_ns).sum();
        let below: f64 = parts.clone().map(|part| (part.total_ns - part.low_ns).powi(2)).sum();
        let above: f64 = parts.clone().map(|part| (part.high_ns - part.total_ns).powi(2)).sum();
        Self {
            samples: parts.map(|part| part.samples).sum(),
            total_ns,
            low_ns: (total_ns - below.sqrt()).max(0.0),
            high_ns: total_ns + above.sqrt(),
        }
    }
}

fn kernels_by_name(attributor: &Attributor) -> FxHashMap<Option<NameId>, OfName> {
    let mut kernels: FxHashMap<Option<NameId>, OfName> = FxHashMap::default();
    for (name, row) in attributor.devices().flat_map(|account| account.statistics().kernels()) {
        let sum = kernels.entry(name).or_default();
        sum.count += row.durations.count();
        sum.total_ns = sum.total_ns.saturating_add(row.durations.total());
        sum.graph_ns = sum.graph_ns.saturating_add(row.graph_ns);
    }
    kernels
}

impl LibraryRow {
    /// Returns the kernels of all devices by library, the one with the most time first.
    pub(super) fn all(attributor: &Attributor, dictionary: &Dictionary) -> Vec<Self> {
        let kernels = kernels_by_name(attributor);
        let files = files_of_kernels(attributor);
        let all = kernels.values().fold(0u64, |sum, of| sum.saturating_add(of.total_ns));
        // The first kernel of a library is its largest.
        let mut kernels: Vec<(Option<NameId>, OfName)> = kernels.into_iter().collect();
        kernels.sort_by_key(|&(name, of)| (Reverse(of.total_ns), name));
        let mut rows: Vec<Self> = Vec::new();
        for (name, of) in kernels {
            let by_name =
                name.and_then(|id| Library::of_kernel(dictionary.name(id))).map(|known| known.name().to_owned());
            let by_samples = match (&by_name, name.and_then(|id| files.get(&id))) {
                (None, Some(&file)) => Some(library_of_file(dictionary.name(file))),
                _ => None,
            };
            let by_samples_ns = if by_samples.is_some() { of.total_ns } else { 0 };
            let library = by_name.or(by_samples);
            let known = rows.iter().position(|row| row.library == library);
            let index = known.unwrap_or_else(|| {
                let largest = name.map_or_else(|| "(other kernels)".to_owned(), |id| names::kernel(dictionary, id));
                rows.push(Self { library, names: 0, count: 0, total_ns: 0, by_samples_ns: 0, share: 0.0, largest });
                rows.len() - 1
            });
            let row = &mut rows[index];
            row.names += 1;
            row.count += of.count;
            row.total_ns = row.total_ns.saturating_add(of.total_ns);
            row.by_samples_ns = row.by_samples_ns.saturating_add(by_samples_ns);
        }
        for row in &mut rows {
            row.share = row.total_ns as f64 / all.max(1) as f64;
        }
        rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.library.cmp(&b.library)));
        rows
    }
}

/// Maps each kernel to the file that launched it in most samples.
fn files_of_kernels(attributor: &Attributor) -> FxHashMap<NameId, NameId> {
    let mut counts: FxHashMap<(NameId, NameId), u64> = FxHashMap::default();
    for (work, place, samples) in attributor.launch_lines() {
        if let (LaunchedWork::Kernel(kernel), Some(file)) = (work, place.binary) {
            *counts.entry((kernel, file)).or_default() += samples;
        }
    }
    let mut files: FxHashMap<NameId, (u64, Reverse<NameId>)> = FxHashMap::default();
    for ((kernel, file), samples) in counts {
        let most = files.entry(kernel).or_insert((samples, Reverse(file)));
        *most = (*most).max((samples, Reverse(file)));
    }
    files.into_iter().map(|(kernel, (_, Reverse(file)))| (kernel, file)).collect()
}

/// Returns the library of a loaded file, or the file's name.
fn library_of_file(file: &str) -> String {
    Library::of_file(file)
        .map_or_else(|| file.rsplit('/').next().unwrap_or(file).to_owned(), |library| library.name().to_owned())
}

/// A kernel at a place, before names are resolved.
#[derive(Clone, Copy, Debug)]
struct PlacedKernel<'a> {
    work: LaunchedWork,
    place: &'a LaunchPlace,
    time: SampledTime,
    kernel_samples: u64,
    kernel_ns: u64,
}

impl KernelLines {
    /// Builds the rows from samples; `None` when no sample was taken.
    pub(super) fn of(attributor: &Attributor, dictionary: &Dictionary) -> Option<Self> {
        let counts = attributor.launch_sample_counts();
        if counts == LaunchSampleCounts::default() {
            return None;
        }
        let kernels = kernels_by_name(attributor);
        let graphs: FxHashMap<u32, u64> =
            attributor.graph_kernels().map(|(graph, kernels)| (graph, kernels.total_ns)).collect();
        let time_of = |work: LaunchedWork| match work {
            LaunchedWork::Kernel(name) => {
                kernels.get(&Some(name)).map_or(0, |of| of.total_ns.saturating_sub(of.graph_ns))
            }
            LaunchedWork::Graph(graph) => graphs.get(&graph).copied().unwrap_or_default(),
        };
        let mut samples: FxHashMap<LaunchedWork, u64> = FxHashMap::default();
        for (work, _, count) in attributor.launch_lines() {
            *samples.entry(work).or_default() += count;
        }
        let mut parts: Vec<PlacedKernel<'_>> = attributor
            .launch_lines()
            .map(|(work, place, count)| {
                let (kernel_samples, kernel_ns) = (samples[&work], time_of(work));
                PlacedKernel {
                    work,
                    place,
                    time: SampledTime::of(count, kernel_samples, kernel_ns),
                    kernel_samples,
                    kernel_ns,
                }
            })
            .collect();
        parts.sort_by(|a, b| {
            b.time.total_ns.total_cmp(&a.time.total_ns).then_with(|| (a.work, a.place).cmp(&(b.work, b.place)))
        });
        let kernel_ns = kernels.values().fold(0u64, |sum, of| sum.saturating_add(of.total_ns));
        let sampled_ns = samples.keys().fold(0u64, |sum, &work| sum.saturating_add(time_of(work)));
        let (lines, distinct_lines) = lines(&parts, kernel_ns, dictionary);
        Some(Self {
            counts,
            samples: samples.values().sum(),
            kernel_ns,
            not_sampled_ns: kernel_ns.saturating_sub(sampled_ns),
            lines,
            distinct_lines,
            distinct_rows: parts.len() as u64,
            rows: parts.iter().take(ROWS).map(|part| row(part, dictionary)).collect(),
        })
    }
}

/// Sums by line: the rows with the most time, and the total number of lines. `parts` is sorted, the largest
/// first.
fn lines(parts: &[PlacedKernel<'_>], kernel_ns: u64, dictionary: &Dictionary) -> (Vec<LaunchLineRow>, u64) {
    let mut by_line: FxHashMap<(NameId, u32, NameId), Vec<&PlacedKernel<'_>>> = FxHashMap::default();
    for part in parts {
        let place = part.place;
        by_line.entry((place.file, place.line, place.function)).or_default().push(part);
    }
    let mut sums: Vec<_> = by_line
        .into_iter()
        .map(|(line, parts)| (SampledTime::sum(parts.iter().map(|part| part.time)), line, parts))
        .collect();
    sums.sort_by(|a, b| b.0.total_ns.total_cmp(&a.0.total_ns).then_with(|| a.1.cmp(&b.1)));
    let count = sums.len() as u64;
    let row = |(time, _, parts): (SampledTime, _, Vec<&PlacedKernel<'_>>)| {
        let mut works: Vec<LaunchedWork> = parts.iter().map(|part| part.work).collect();
        works.sort_unstable();
        works.dedup();
        let seen_most = parts.iter().max_by_key(|part| (part.time.samples, Reverse(part.place)));
        LaunchLineRow {
            place: LaunchSite::of(seen_most.unwrap_or(&parts[0]).place, dictionary),
            time,
            share: time.total_ns / kernel_ns.max(1) as f64,
            kernels: works.len() as u64,
            largest: name_of(parts[0].work, dictionary),
        }
    };
    (sums.into_iter().take(LINES).map(row).collect(), count)
}

fn row(part: &PlacedKernel<'_>, dictionary: &Dictionary) -> KernelLineRow {
    let (graph, library) = match part.work {
        LaunchedWork::Kernel(name) => (None, Library::of_kernel(dictionary.name(name))),
        LaunchedWork::Graph(graph) => (Some(graph), None),
    };
    KernelLineRow {
        kernel: name_of(part.work, dictionary),
        graph,
        library,
        place: LaunchSite::of(part.place, dictionary),
        time: part.time,
        kernel_samples: part.kernel_samples,
        kernel_ns: part.kernel_ns,
    }
}

fn name_of(work: LaunchedWork, dictionary: &Dictionary) -> String {
    match work {
        LaunchedWork::Kernel(name) => names::kernel(dictionary, name),
        LaunchedWork::Graph(0) => "CUDA graph".to_owned(),
        LaunchedWork::Graph(graph) => format!("CUDA graph {graph}"),
    }
}

/// `make.<locals>.Net.forward` is a method of `Net`.
pub(super) fn class_of(method: &str) -> &str {
    let class = method.strip_suffix(".forward").unwrap_or(method);
    class.rsplit('.').next().unwrap_or(class)
}

/// `at::_ops::add_Tensor::call(...)` is `add_Tensor`; those of generated code stay as they are.
fn operator_of(symbol: &str) -> Option<String> {
    if symbol.starts_with("aten.") {
        return Some(symbol.to_owned());
    }
    let (_, rest) = symbol.split_once("at::_ops::")?;
    rest.split("::").next().map(str::to_owned)
}

impl LaunchSite {
    /// Resolves the names of a place.
    #[must_use]
    pub fn of(place: &LaunchPlace, dictionary: &Dictionary) -> Self {
        let name = |id: NameId| dictionary.name(id).to_owned();
        let function = |id: NameId| demangled(dictionary.name(id));
        Self {
            file: name(place.file),
            line: place.line,
            function: function(place.function),
            within: place.within.map(|(function, file)| (name(function), name(file))),
            module: place.module.map(|id| class_of(dictionary.name(id)).to_owned()),
            parent: place.parent.map(|id| class_of(dictionary.name(id)).to_owned()),
            operator: place.operator.and_then(|id| operator_of(&function(id))),
            binary: place.binary.map(name),
        }
    }

    /// Display text of the line: `train.py:42 (Block.forward)`.
    pub(super) fn line_text(&self) -> String {
        let mut text = super::host::short_path(&self.file).into_owned();
        if self.line > 0 {
            let _ = write!(text, ":{}", self.line);
        }
        let _ = write!(text, " ({})", shortened(&self.function, 40));
        text
    }

    /// Display text: `train.py:42 (Block.forward), Linear, in torch/nn/functional.py (linear)`.
    pub fn text(&self) -> String {
        let mut text = self.line_text();
        // Omit a module if the function name already contains its class.
        let own = |class: &str| self.function.strip_suffix(".forward").is_some_and(|of| class_of(of) == class);
        if let Some(module) = self.module.as_deref().filter(|class| !own(class)) {
            let _ = write!(text, ", {}", shortened(module, 30));
        } else if let Some((function, file)) = &self.within {
            let _ = write!(text, ", in {} ({})", super::host::short_path(file), shortened(function, 40));
        }
        if let Some(operator) = &self.operator {
            let _ = write!(text, ", {}", shortened(operator, 30));
        }
        text
    }
}

impl Report {
    /// Appends the kernel tables of the long report: by library, by line, and by range if the program named
    /// any.
    pub(super) fn write_kernel_time(&self, out: &mut Page) {
        library_table(out, &self.kernel_libraries);
        if let Some(lines) = &self.kernel_lines {
            line_table(out, lines);
        }
        self.write_graph_origins(out);
        range_table(out, self);
    }
}

fn library_table(out: &mut Page, rows: &[LibraryRow]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n== kernel time by library (estimate by kernel name)\n{:>10} {:>6} {:>9} {:>7}  library: largest kernel",
        "time", "%", "count", "kernels"
    );
    let shown = &rows[..rows.len().min(SHOWN)];
    let kernels = short_names(shown.iter().map(|row| row.largest.as_str()), NAME_WIDTH);
    for (row, kernel) in shown.iter().zip(kernels) {
        let _ = writeln!(
            out,
            "{:>10} {:>6.2} {:>9} {:>7}  {}: {kernel}",
            duration(row.total_ns),
            row.share * 100.0,
            row.count,
            row.names,
            shortened(row.library.as_deref().unwrap_or("unknown or the program's own"), 40),
        );
    }
    rest(out, rows.len() as u64, "more library or file", "more libraries or files");
}

fn line_table(out: &mut Page, lines: &KernelLines) {
    if lines.lines.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n== kernel time by line (estimate, {}; {} of {} not sampled)",
        counted(lines.samples, "sample"),
        duration(lines.not_sampled_ns),
        duration(lines.kernel_ns)
    );
    let _ = writeln!(
        out,
        "{:>10} {:>6} {:>15} {:>7}  launched at: largest kernel",
        "time", "%", "95 % interval", "samples"
    );
    let shown = &lines.lines[..lines.lines.len().min(SHOWN)];
    let kernels = short_names(shown.iter().map(|row| row.largest.as_str()), KERNEL_WIDTH);
    let percent = |nanos: f64| nanos / lines.kernel_ns.max(1) as f64 * 100.0;
    for (row, kernel) in shown.iter().zip(kernels) {
        let interval = format!("{:.1} to {:.1}", percent(row.time.low_ns), percent(row.time.high_ns));
        let _ = writeln!(
            out,
            "{:>10} {:>6.2} {interval:>15} {:>7}  {}: {kernel}",
            duration(row.time.total_ns as u64),
            row.share * 100.0,
            row.time.samples,
            row.place.text(),
        );
    }
    rest(out, lines.distinct_lines, "more line", "more lines");
}

/// Kernels by range: exact, because the range of each launch is known.
fn range_table(out: &mut Page, report: &Report) {
    let rows = report.ranges.iter().flat_map(|ranges| &ranges.rows);
    let total = |row: &super::RangeRow| row.kernels.iter().fold(0u64, |sum, (_, of)| sum.saturating_add(of.total()));
    let mut rows: Vec<_> = rows.map(|row| (total(row), row)).filter(|&(nanos, _)| nanos > 0).collect();
    if rows.is_empty() {
        return;
    }
    rows.sort_by_key(|&(nanos, _)| Reverse(nanos));
    let all = report.kernel_libraries.iter().fold(0u64, |sum, row| sum.saturating_add(row.total_ns));
    let _ = writeln!(
        out,
        "\n== kernel time by range (exact; includes nested ranges)\n{:>10} {:>6} {:>9}  range: largest kernel",
        "time", "%", "count"
    );
    for (nanos, row) in rows.iter().take(SHOWN) {
        let count: u64 = row.kernels.iter().map(|(_, of)| of.count()).sum();
        let kernel = short_names(row.kernels.iter().take(1).map(|(name, _)| name.as_str()), KERNEL_WIDTH).concat();
        let share = *nanos as f64 / all.max(1) as f64 * 100.0;
        let name = shortened(&row.name(), NAME_WIDTH);
        let _ = writeln!(out, "{:>10} {share:>6.2} {count:>9}  {name}: {kernel}", duration(*nanos));
    }
    rest(out, rows.len() as u64, "more range", "more ranges");
}

pub(super) fn rest(out: &mut Page, count: u64, one: &str, several: &str) {
    let more = count.saturating_sub(SHOWN as u64);
    if more > 0 {
        let _ = writeln!(out, "... and {more} {}", if more == 1 { one } else { several });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_wilson() {
        // Values computed by hand for 3 of 10 from the formula in Brown, Cai and DasGupta.
        let (low, high) = share_interval(3, 10);
        assert!((low - 0.107_79).abs() < 1e-4 && (high - 0.603_22).abs() < 1e-4, "{low} {high}");
        assert_eq!(share_interval(0, 0), (0.0, 1.0));
        let (low, high) = share_interval(1, 1);
        assert!((low - 1.0 / (1.0 + DEVIATE * DEVIATE)).abs() < 1e-9 && high > 1.0 - 1e-9, "{low} {high}");
        let (low, high) = share_interval(0, 4);
        assert!(low < 1e-9 && (high - 0.489_89).abs() < 1e-4, "{low} {high}");
    }

    #[test]
    fn a_sum_of_one_part_is_that_part_and_two_add_in_squares() {
        let part = SampledTime { samples: 4, total_ns: 100.0, low_ns: 70.0, high_ns: 140.0 };
        assert_eq!(SampledTime::sum([part].into_iter()), part);
        let both = SampledTime::sum([part, part].into_iter());
        assert_eq!((both.samples, both.total_ns), (8, 200.0));
        assert!((both.low_ns - (200.0 - 30.0 * 2f64.sqrt())).abs() < 1e-9);
        assert!((both.high_ns - (200.0 + 40.0 * 2f64.sqrt())).abs() < 1e-9);
    }

    #[test]
    fn names_of_modules_and_operators() {
        assert_eq!(class_of("make.<locals>.Net.forward"), "Net");
        assert_eq!(operator_of("at::_ops::add_Tensor::call(at::Tensor const&)").as_deref(), Some("add_Tensor"));
        assert_eq!(operator_of("aten.add, aten.gelu [x]").as_deref(), Some("aten.add, aten.gelu [x]"));
        assert_eq!(operator_of("at::native::add"), None);
    }
}
