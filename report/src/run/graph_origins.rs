//! Work of CUDA graphs by the line and the module that captured it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::Loss;
use profiler_core::attribution::{
    Attributor, GraphOriginCounts, GraphRanges, GraphWork, NodeSource, WholeGraph, template,
};
use profiler_core::sorting::SortRows as _;
use rustc_hash::FxHashMap;

use super::graph_modules;
use super::{
    DeviceReport, GraphModuleRow, GraphOriginRow, GraphOrigins, GraphPartRow, GraphRangeRow, GraphRangeTable,
    GraphThreadRow, Report, WholeGraphRow, names,
};
use crate::launch_site::{CLASS_WIDTH, LaunchSite, OPERATORS_WIDTH, path, with_operators};
use crate::library::Library;
use crate::text_format::percent;
use crate::words;

/// Maximum number of rows in a report.
const ROWS: usize = 1_024;
const RANGES: usize = 128;
const GRAPHS: usize = 64;
const GRAPH_PARTS: usize = 16;
/// Least share of the time of kernels that graphs must take to be divided on the first screen, and that a line must
/// take of a kernel's; and the parts named.
const LEAST: f64 = 0.3;
pub(super) const PARTS: usize = 3;
/// Name of the work without an origin.
const UNKNOWN: &str = "unknown: their nodes were not reported";

impl GraphOrigins {
    /// Builds the rows; `None` if no record names a node or a graph that was reported.
    pub(super) fn of(attributor: &Attributor, dictionary: &Dictionary, loss: &Loss) -> Option<Self> {
        let counts = attributor.graph_origin_counts(dictionary);
        let all = all(&counts);
        let mut whole = attributor.whole_graphs(dictionary);
        if counts.nodes == 0 || (all.count == 0 && whole.is_empty()) {
            return None;
        }
        let distinct_whole = whole.len() as u64;
        whole.truncate(GRAPHS);
        let whole = whole.into_iter().map(|graph| whole_graph(graph, dictionary)).collect();
        let ranges = ranges(attributor.graph_ranges(), dictionary);
        let mut rows: Vec<GraphOriginRow> = attributor
            .graph_origins()
            .map(|(kernel, place, count, total_ns)| GraphOriginRow {
                kernel: kernel.map(|id| names::kernel(dictionary, id)),
                library: kernel.and_then(|id| Library::of_kernel(dictionary.name(id))),
                place: LaunchSite::of(place, dictionary),
                work: GraphWork { count, total_ns },
            })
            .collect();
        rows.sort_rows_by(|a, b| {
            let by = |row: &GraphOriginRow| (Reverse(row.work.total_ns), row.kernel.clone(), row.place.text());
            by(a).cmp(&by(b))
        });
        let mut threads: Vec<GraphThreadRow> = attributor
            .graph_threads()
            .map(|(thread, count, total_ns)| GraphThreadRow {
                thread: thread.0,
                name: dictionary.thread_name(thread).map(str::to_owned),
                work: GraphWork { count, total_ns },
            })
            .collect();
        threads.sort_rows_by_key(|row| (Reverse(row.work.total_ns), row.thread));
        let mut unplaced_idle_before_ns = 0;
        let mut gaps = Vec::new();
        for (place, gap) in attributor.graph_gaps() {
            match place {
                Some(place) => {
                    let idle = GraphWork { count: gap.count, total_ns: gap.total_ns };
                    gaps.push((LaunchSite::of(place, dictionary), idle));
                }
                None => unplaced_idle_before_ns += gap.total_ns,
            }
        }
        let (modules, distinct_rows) = (modules(&rows, &gaps, all.total_ns), rows.len() as u64);
        rows.truncate(ROWS);
        let (per_replay, partial_graphs) = graph_modules::times(attributor, dictionary, loss, &counts);
        Some(Self {
            counts,
            unplaced_idle_before_ns,
            modules,
            per_replay,
            partial_graphs,
            rows,
            distinct_rows,
            threads,
            ranges,
            whole,
            distinct_whole,
        })
    }

    /// Time of these kernels by the line that captured them, several times for a line of several kernels.
    pub(super) fn captured(&self, wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = (&LaunchSite, u64)> {
        let is = move |row: &&GraphOriginRow| row.place.line > 0 && row.kernel.as_deref().is_some_and(&wanted);
        self.rows.iter().filter(is).map(|row| (&row.place, row.work.total_ns))
    }

    /// The line that captured most of a kernel's time, in words, if it is much of it.
    pub(super) fn main_line(&self, kernel: &str, devices: &[DeviceReport]) -> Option<String> {
        let rows = devices.iter().flat_map(|device| &device.kernels).filter(|row| row.name == kernel);
        let all: u64 = rows.map(|row| row.durations.total()).sum();
        let (line, nanos) = largest(self.captured(|name| name == kernel).map(|(place, ns)| (place.line_text(), ns)))
            .into_iter()
            .next()?;
        let share = nanos as f64 / all.max(1) as f64;
        (share >= LEAST).then(|| format!(", {} of it captured at {line}", percent(share)))
    }

    /// All work by its module, else its thread, else as unknown; equal in runs of one program.
    pub fn all_parts(&self) -> impl Iterator<Item = (String, GraphWork)> {
        let modules = self.modules.iter().map(|row| (row.name_within(usize::MAX, usize::MAX), row.work));
        let threads = self.threads.iter().map(|row| match row.name {
            Some(_) => (row.text(), row.work),
            None => ("threads without a name".to_owned(), row.work),
        });
        modules.chain(threads).chain([(UNKNOWN.to_owned(), self.counts.unknown)])
    }

    /// All operations of graphs.
    #[must_use]
    pub fn all(&self) -> GraphWork {
        all(&self.counts)
    }

    /// The work, the idle time before it in nanoseconds if known, and a display text of what captured it: at most
    /// `rows` modules, as many threads without a line, and what is unknown.
    pub fn parts(&self, rows: usize) -> Vec<(GraphWork, Option<u64>, String)> {
        let modules = self.modules.iter().take(rows).map(|row| (row.work, Some(row.idle_before_ns), row.name()));
        let threads = self.threads.iter().take(rows);
        let threads = threads.map(|row| (row.work, None, format!("{}, without a line", row.text())));
        let unknown = (self.counts.unknown.count > 0).then(|| (self.counts.unknown, None, UNKNOWN.to_owned()));
        modules.chain(threads).chain(unknown).collect()
    }
}

fn all(counts: &GraphOriginCounts) -> GraphWork {
    let parts = [counts.with_place, counts.without_place, counts.unknown];
    GraphWork {
        count: parts.iter().map(|part| part.count).sum(),
        total_ns: parts.iter().fold(0, |sum, part| sum.saturating_add(part.total_ns)),
    }
}

fn ranges(from: GraphRanges, dictionary: &Dictionary) -> Option<GraphRangeTable> {
    let GraphRanges { rows, outside, unknown } = from;
    let message = |text: &str| template(text).unwrap_or_else(|| text.to_owned());
    let distinct_rows = rows.len() as u64;
    let rows: Vec<_> = rows
        .into_iter()
        .take(RANGES)
        .map(|(path, work)| GraphRangeRow {
            domain: path.last().map_or_else(String::new, |key| dictionary.name(key.domain).to_owned()),
            path: path.iter().map(|key| message(dictionary.name(key.message))).collect(),
            work,
        })
        .collect();
    (!rows.is_empty()).then_some(GraphRangeTable { rows, distinct_rows, outside, unknown })
}

fn whole_graph(from: WholeGraph<'_>, dictionary: &Dictionary) -> WholeGraphRow {
    let WholeGraph { graph, work, nodes, unknown: unknown_nodes, place, sources } = from;
    let mut parts: BTreeMap<String, u64> = BTreeMap::new();
    for (source, nodes) in sources {
        let name = match source {
            NodeSource::Place(place) => LaunchSite::of(place, dictionary).captured_in(),
            NodeSource::Thread(thread) => {
                format!("{}, without a line", thread_text(thread.0, dictionary.thread_name(thread)))
            }
        };
        *parts.entry(name).or_default() += nodes;
    }
    let mut parts: Vec<_> = parts.into_iter().map(|(captured_in, nodes)| GraphPartRow { captured_in, nodes }).collect();
    parts.sort_rows_by_key(|part| Reverse(part.nodes));
    let distinct_parts = parts.len() as u64;
    parts.truncate(GRAPH_PARTS);
    let place = place.map(|place| LaunchSite::of(&place, dictionary));
    WholeGraphRow { graph, place, nodes, unknown_nodes, parts, distinct_parts, work }
}

/// Parent, module and operators.
type ModuleKey<'a> = (Option<&'a str>, Option<&'a str>, Option<String>);

/// `gaps` are the idle times before the operations of each place.
fn modules(rows: &[GraphOriginRow], gaps: &[(LaunchSite, GraphWork)], all_ns: u64) -> Vec<GraphModuleRow> {
    /// Work, and idle time before it.
    type Sums<'a> = FxHashMap<ModuleKey<'a>, [GraphWork; 2]>;
    fn add<'a>(sums: &mut Sums<'a>, place: &'a LaunchSite, part: usize, more: GraphWork) {
        let key = (place.parent.as_deref(), place.module.as_deref(), place.operators());
        let sum = &mut sums.entry(key).or_default()[part];
        sum.count += more.count;
        sum.total_ns = sum.total_ns.saturating_add(more.total_ns);
    }
    let mut sums = Sums::default();
    rows.iter().for_each(|row| add(&mut sums, &row.place, 0, row.work));
    gaps.iter().for_each(|(place, gap)| add(&mut sums, place, 1, *gap));
    let mut modules: Vec<GraphModuleRow> = sums
        .into_iter()
        .map(|((parent, module, operators), [work, idle])| GraphModuleRow {
            module: module.map(str::to_owned),
            parent: parent.map(str::to_owned),
            operators,
            work,
            share: work.total_ns as f64 / all_ns.max(1) as f64,
            idle_before_count: idle.count,
            idle_before_ns: idle.total_ns,
        })
        .collect();
    modules.sort_rows_by(|a, b| {
        let by = |row: &GraphModuleRow| (Reverse(row.work.total_ns), row.name());
        by(a).cmp(&by(b))
    });
    modules
}

impl GraphModuleRow {
    /// Display text: `Attention > Linear`, `Decoder: silu, mul, mm`.
    pub fn name(&self) -> String {
        self.name_within(CLASS_WIDTH, OPERATORS_WIDTH)
    }

    /// The same with classes and operators of at most these lengths.
    fn name_within(&self, class: usize, operators: usize) -> String {
        let module = path(self.parent.as_deref(), self.module.as_deref(), class);
        let module = module.unwrap_or_else(|| "outside modules".to_owned());
        with_operators(module, self.operators.as_deref(), operators)
    }
}

impl GraphThreadRow {
    /// Display text: `thread pt_autograd_0 (backward pass)`.
    pub fn text(&self) -> String {
        thread_text(self.thread, self.name.as_deref())
    }
}

/// Display text: `thread pt_autograd_0 (backward pass)`.
fn thread_text(id: u32, name: Option<&str>) -> String {
    let is_backward = name.is_some_and(words::is_backward_thread);
    let thread = name.map_or_else(|| id.to_string(), str::to_owned);
    format!("thread {thread}{}", if is_backward { " (backward pass)" } else { "" })
}

/// Sums by name, largest first.
fn largest(parts: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    parts.for_each(|(name, nanos)| *sums.entry(name).or_default() += nanos);
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_rows_by_key(|&(_, nanos)| Reverse(nanos));
    sums
}

/// The parts of CUDA graphs with the most time, if graphs take much of it.
pub(super) fn graph_parts(report: &Report) -> Option<String> {
    let origins = report.graph_origins.as_ref()?;
    let kernels: u64 = report.kernel_libraries.iter().map(|row| row.total_ns).sum();
    let all = origins.all().total_ns;
    if (all as f64) < LEAST * kernels as f64 {
        return None;
    }
    if origins.rows.is_empty() {
        // Threads alone answer nothing.
        return None;
    }
    let modules = origins.modules.iter().filter(|row| row.module.is_some()).map(|row| (row.name(), row.work));
    let outside = origins.rows.iter().filter(|row| row.place.module.is_none());
    let lines = outside.map(|row| (row.place.line_text(), row.work));
    let threads = origins.threads.iter().map(|row| (row.text(), row.work));
    let parts = largest(modules.chain(lines).chain(threads).map(|(name, work)| (name, work.total_ns)));
    let part = |(name, ns): &(String, u64)| format!("{name} {}", percent(*ns as f64 / all.max(1) as f64));
    let named: Vec<String> = parts.iter().take(PARTS).map(part).collect();
    (!named.is_empty()).then(|| format!("Work of CUDA graphs by where it was captured: {}.", named.join(", ")))
}
