//! Kernel time by library, and by the source line that launched it.
//!
//! Durations are exact; their origin is an estimate. A kernel's library is derived from its name, or else
//! from the loaded file that samples saw calling CUDA.

use std::cmp::Reverse;
use std::fmt::Write;

use gpuwhy_trace::demangle::demangled;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::NameId;
use profiler_core::attribution::{Attributor, LaunchPlace, LaunchedWork};
use rustc_hash::FxHashMap;

use super::library::Library;
use super::{KernelLines, LaunchSite, LibraryRow, Report, names};
use crate::text_format::names::short_names;
use crate::text_format::{Page, counted, duration, shortened, wrapped};

/// Rows of a table in the long report, and the maximum length of a name.
const SHOWN: usize = 10;
const NAME_WIDTH: usize = 60;
const KERNEL_WIDTH: usize = 44;

/// Totals for one kernel name on all devices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OfName {
    count: u64,
    pub(super) total_ns: u64,
    pub(super) graph_ns: u64,
}

pub(super) fn kernels_by_name(attributor: &Attributor) -> FxHashMap<Option<NameId>, OfName> {
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
    for (work, place, sum) in attributor.launch_lines() {
        if let (LaunchedWork::Kernel(kernel), Some(file)) = (work, place.and_then(|place| place.binary)) {
            *counts.entry((kernel, file)).or_default() += sum.samples;
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
    if let Some(why) = lines.left_out() {
        let _ = writeln!(out, "\n== kernel time by line");
        wrapped(out, "", &why);
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
    fn names_of_modules_and_operators() {
        assert_eq!(class_of("make.<locals>.Net.forward"), "Net");
        assert_eq!(operator_of("at::_ops::add_Tensor::call(at::Tensor const&)").as_deref(), Some("add_Tensor"));
        assert_eq!(operator_of("aten.add, aten.gelu [x]").as_deref(), Some("aten.add, aten.gelu [x]"));
        assert_eq!(operator_of("at::native::add"), None);
    }
}
