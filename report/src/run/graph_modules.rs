//! Time of modules in one replay of the CUDA graphs that they captured.
//!
//! A replay runs each node of its graph once, so the mean times of the nodes of a module add up to its mean time in
//! one replay. This needs no launch, of which several may have one id, and no complete replay: a burst that begins or
//! ends within one changes nothing. Only graphs are counted of which it is known for each node whether the module
//! captured it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{Loss, MAX_FRAMES, StackId, ThreadId};
use profiler_core::attribution::{AddedNode, Attributor, GraphOriginCounts, LaunchPlace};
use profiler_core::sorting::SortRows as _;
use rustc_hash::FxHashMap;

use super::ModuleTime;
use crate::launch_site::class_of;

/// Maximum number of modules in a report.
const MODULES: usize = 256;
/// A stack of a node.
#[derive(Default)]
struct Modules<'a> {
    /// Classes whose `forward` was running.
    classes: BTreeSet<&'a str>,
    /// There may be more of them.
    is_cut: bool,
}

/// Modules, the largest first, and the number of graphs that are left out of some.
pub(super) fn times(
    attributor: &Attributor,
    dictionary: &Dictionary,
    loss: &Loss,
    counts: &GraphOriginCounts,
) -> (Vec<ModuleTime>, u64) {
    let nodes: Vec<AddedNode> = attributor.ran_nodes().collect();
    let mut stacks: FxHashMap<StackId, Modules<'_>> = FxHashMap::default();
    for node in &nodes {
        stacks.entry(node.stack).or_insert_with(|| modules(node.stack, dictionary));
    }
    let mut partial = partial(&nodes, loss, counts);
    let mut sums: BTreeMap<&str, BTreeMap<u32, (u64, f64)>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| !partial.contains(&node.graph)) {
        for class in &stacks[&node.stack].classes {
            let (replays, ns) = sums.entry(class).or_default().entry(node.graph).or_default();
            *replays = node.work.count.max(*replays);
            *ns += node.work.total_ns as f64 / node.work.count as f64;
        }
    }
    for node in nodes.iter().filter(|node| stacks[&node.stack].is_cut) {
        let inner = &stacks[&node.stack].classes;
        let outer = sums.iter_mut().filter(|(class, _)| !inner.contains(*class));
        outer.for_each(|(_, graphs)| partial.extend(graphs.remove(&node.graph).map(|_| node.graph)));
    }
    let mut times: Vec<ModuleTime> = sums.into_iter().filter_map(|(class, graphs)| time(class, &graphs)).collect();
    times.sort_rows_by(|a, b| (Reverse(a.mean_ns), &a.module).cmp(&(Reverse(b.mean_ns), &b.module)));
    times.truncate(MODULES);
    (times, partial.len() as u64)
}

/// Mean over the replays of all graphs; `None` without graphs.
fn time(class: &str, graphs: &BTreeMap<u32, (u64, f64)>) -> Option<ModuleTime> {
    let replays: u64 = graphs.values().map(|&(replays, _)| replays).sum();
    let total: f64 = graphs.values().map(|&(replays, ns)| replays as f64 * ns).sum();
    let mean_ns = (replays > 0).then(|| (total / replays as f64).round() as u64)?;
    Some(ModuleTime { module: class.to_owned(), replays, mean_ns })
}

fn modules(stack: StackId, dictionary: &Dictionary) -> Modules<'_> {
    let functions: Vec<&str> =
        dictionary.stack(stack).take(MAX_FRAMES).map(|frame| dictionary.name(frame.function)).collect();
    let forwards = functions.iter().filter(|function| LaunchPlace::is_module(function));
    Modules { classes: forwards.map(|function| class_of(function)).collect(), is_cut: functions.len() == MAX_FRAMES }
}

/// Graphs in which a node without a stack may be of a module: one of a thread whose other stacks were read, if any was
/// not read; all graphs if nodes were lost, or embed others.
fn partial(nodes: &[AddedNode], loss: &Loss, counts: &GraphOriginCounts) -> BTreeSet<u32> {
    let with_stack = || nodes.iter().filter(|node| node.stack != StackId::NONE);
    let placed: u64 = with_stack().map(|node| node.work.count).sum();
    if loss.dropped_graph_nodes > 0 || counts.overflow > 0 || placed < counts.with_place.count {
        return with_stack().map(|node| node.graph).collect();
    }
    let read: BTreeSet<(u32, ThreadId)> = with_stack().map(|node| (node.graph, node.thread)).collect();
    let without = nodes.iter().filter(|node| loss.unplaced_graph_nodes > 0 && node.stack == StackId::NONE);
    without.filter(|node| read.contains(&(node.graph, node.thread))).map(|node| node.graph).collect()
}
