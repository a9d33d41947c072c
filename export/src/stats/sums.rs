//! The summaries that need no join: calls, kernels and memory operations by what they are.

use std::cmp::Reverse;

use profiler_core::dictionary::Dictionary;
use profiler_core::record::{ApiFunctionId, CopyKind, ManagedKind, NameId, Record, Timestamp};
use profiler_core::trace::Item;
use rustc_hash::FxHashMap;

use super::columns::{call, times};
use super::distribution::Distribution;
use super::input::{Input, Notes};
use super::labels;
use super::statistic::Statistic;
use super::table::{Cell, TimeUnit};
use crate::error::ExportError;
use crate::names::demangled;
use gpuwhy_import::Scope;

/// What is counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Kernel(NameId),
    Shape(NameId, [u32; 3], [u32; 3]),
    Copy(CopyKind),
    Migration(ManagedKind),
    Memset,
    Call(ApiFunctionId),
}

/// The rows of `statistic`, the largest total first.
pub(super) fn rows(
    statistic: Statistic,
    input: &mut Input<'_, '_>,
    notes: &mut Notes,
) -> Result<Vec<Vec<Cell>>, ExportError> {
    let mut groups: FxHashMap<Key, Distribution> = FxHashMap::default();
    let filter = input.filter;
    let passed = input.trace.pass(input.progress, |item, scope| {
        if let Item::Record(record) = item
            && let Some((key, start, end, value)) = sorted(statistic, record, scope)
            && filter.admits(scope.session.start, start, end)
        {
            groups.entry(key).or_default().add(value);
        }
        Ok::<_, ExportError>(())
    })?;
    notes.0.extend(passed.notes());
    let coarse = groups.values().filter(|group| group.is_coarse()).count();
    notes.count(coarse as u64, "rows have a median that may be off by 1 in 8192: too many different values");
    Ok(table(statistic, groups, &passed.dictionary, input.unit))
}

/// The group of a record, when it was, and what is counted; `None` when the report is not about it.
fn sorted(statistic: Statistic, record: &Record, scope: &Scope<'_>) -> Option<(Key, Timestamp, Timestamp, u64)> {
    use Statistic::{ApiGpuSum, ApiSum, GpuSum, KernelShapeSum, KernelSum, MemorySizeSum, MemoryTimeSum};
    let (key, start, end, bytes) = match record {
        Record::Kernel(row) if matches!(statistic, KernelSum | GpuSum | ApiGpuSum | KernelShapeSum) => {
            let config = scope.dictionary.launch_config(row.config);
            let key = match statistic {
                KernelShapeSum => Key::Shape(config.name, config.grid, config.block),
                _ => Key::Kernel(config.name),
            };
            (key, row.start, row.end, 0)
        }
        Record::Copy(row) if matches!(statistic, MemoryTimeSum | MemorySizeSum | GpuSum | ApiGpuSum) => {
            (Key::Copy(row.kind), row.start, row.end, row.bytes)
        }
        Record::Memset(row) if matches!(statistic, MemoryTimeSum | MemorySizeSum | GpuSum | ApiGpuSum) => {
            (Key::Memset, row.start, row.end, row.bytes)
        }
        Record::Managed(row)
            if row.kind.is_migration() && matches!(statistic, MemoryTimeSum | MemorySizeSum | GpuSum | ApiGpuSum) =>
        {
            (Key::Migration(row.kind), row.start, row.end, row.value)
        }
        Record::Api(row) if matches!(statistic, ApiSum | ApiGpuSum) => (Key::Call(row.function), row.start, row.end, 0),
        _ => return None,
    };
    let value = if statistic == MemorySizeSum { bytes } else { end.since(start) };
    Some((key, start, end, value))
}

fn table(
    statistic: Statistic,
    groups: FxHashMap<Key, Distribution>,
    dictionary: &Dictionary,
    unit: TimeUnit,
) -> Vec<Vec<Cell>> {
    let all: f64 = groups.values().map(|group| group.total() as f64).sum();
    let mut groups: Vec<(String, Key, Distribution)> =
        groups.into_iter().map(|(key, group)| (name(key, dictionary), key, group)).collect();
    groups.sort_by(|(a, _, left), (b, _, right)| (Reverse(left.total()), a).cmp(&(Reverse(right.total()), b)));
    let row = |(name, key, group): (String, Key, Distribution)| {
        let mut cells = match statistic {
            Statistic::MemorySizeSum => sizes(&group),
            _ => times(&group, all, unit),
        };
        match (statistic, key) {
            (Statistic::GpuSum | Statistic::ApiGpuSum, _) => cells.push(Cell::Text(category(key).to_owned())),
            (_, Key::Shape(_, grid, block)) => {
                cells.extend([grid, block].map(|extent| Cell::Text(labels::extent(extent))));
            }
            _ => {}
        }
        cells.push(Cell::Text(name));
        cells
    };
    groups.into_iter().map(row).collect()
}

fn sizes(group: &Distribution) -> Vec<Cell> {
    let megabytes = |bytes: f64| Cell::Decimal(bytes / 1e6, 3);
    vec![
        megabytes(group.total() as f64),
        Cell::Number(group.count()),
        megabytes(group.mean()),
        megabytes(group.median()),
        megabytes(group.min() as f64),
        megabytes(group.max() as f64),
        megabytes(group.deviation()),
    ]
}

const fn category(key: Key) -> &'static str {
    match key {
        Key::Kernel(_) | Key::Shape(..) => "CUDA_KERNEL",
        Key::Copy(_) | Key::Migration(_) | Key::Memset => "MEMORY_OPER",
        Key::Call(_) => "CUDA_API",
    }
}

fn name(key: Key, dictionary: &Dictionary) -> String {
    match key {
        Key::Kernel(name) | Key::Shape(name, ..) => demangled(dictionary.name(name)),
        Key::Copy(kind) => labels::copy(kind).to_owned(),
        Key::Migration(kind) => labels::migration(kind).to_owned(),
        Key::Memset => labels::MEMSET.to_owned(),
        Key::Call(function) => call(function, dictionary).to_owned(),
    }
}
