//! A trace as tables: the rows of the Parquet files and of `gpuwhy query`.
//!
//! Both have the same tables. Each column, its description and its value are defined once, in `records` and
//! `reported`. Rows are passed on as they are produced, so memory does not grow with the trace. Times are
//! nanoseconds since the Unix epoch; the suffixes `_ns` and `_bytes` of a name are its unit.
//!
//! The code that stores the rows adds the run and rank of a trace (`labels`) as the first columns.

mod cell;
mod collectives;
mod labels;
mod records;
mod reported;

use gpuwhy_trace::collective::Communicator;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{NameId, RangeEventKind, Record, Timestamp};
use profiler_core::api::without_suffix;
use profiler_core::collective::Collective;
use rustc_hash::FxHashMap;

use crate::attributed::attributed_with_steps;
use crate::captured::CapturedPlaces;
use crate::correlations::Correlations;
use crate::counters::CounterValues;
use crate::error::ExportError;
use crate::instances::{Instances, Wanted};
use crate::launches::{join, operations};
use crate::names::ReadableNames;
use crate::ranges::OpenRanges;
use gpuwhy_import::{Passed, Progress, Scope, TraceFile};

use cell::Cells;
pub use cell::{Cell, Column, ColumnType};
use collectives::CollectiveRows;
pub(crate) use labels::folder;
pub use labels::{Label, labels};
use records::KernelName;
pub(crate) use reported::STEPS_LEFT_OUT;
use reported::{About, KERNEL_LINES_LEFT_OUT};

macro_rules! all {
    ($(#[doc = $about:literal] $variant:ident = $name:literal, $columns:path;)*) => {
        /// A table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Table {
            $(#[doc = $about] $variant,)*
        }

        impl Table {
            /// All tables.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Name in SQL, and file name without extension.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Description of its rows.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => $about.trim(),)*
                }
            }

            /// Columns except `run` and `rank`.
            #[must_use]
            pub const fn columns(self) -> &'static [Column] {
                match self {
                    $(Self::$variant => $columns,)*
                }
            }
        }
    };
}

all! {
    /// Kernels that ran.
    Kernels = "kernels", records::KERNELS;
    /// Copies that ran.
    Copies = "copies", records::COPIES;
    /// Memsets that ran.
    Memsets = "memsets", records::MEMSETS;
    /// Calls of the CUDA runtime and driver.
    Api = "api", records::API;
    /// Synchronizations.
    Syncs = "syncs", records::SYNCS;
    /// Recordings of CUDA events.
    Events = "events", records::EVENTS;
    /// Overhead of tracing and the driver.
    Overheads = "overheads", records::OVERHEADS;
    /// Ranges and marks of the program.
    Nvtx = "nvtx", records::NVTX;
    /// Samples of host threads.
    HostSamples = "host_samples", records::HOST_SAMPLES;
    /// Allocations and releases of device memory and pinned host memory by the program.
    Memory = "memory", records::MEMORY;
    /// Migrations and page faults of managed memory.
    Managed = "managed", records::MANAGED;
    /// Operations of communicators, each with the kernel that executed it.
    Collectives = "collectives", collectives::COLLECTIVES;
    /// NCCL communicators.
    Communicators = "communicators", collectives::COMMUNICATORS;
    /// Samples of hardware counters and NVML readings, a row for each value.
    GpuMetrics = "gpu_metrics", records::GPU_METRICS;
    /// The process and its bottleneck.
    Processes = "processes", reported::PROCESSES;
    /// Threads that the program named.
    Threads = "threads", reported::THREADS;
    /// Devices.
    Devices = "devices", reported::DEVICES;
    /// Device time by cause.
    Leaves = "leaves", reported::LEAVES;
    /// Steps of the program.
    Steps = "steps", reported::STEPS;
    /// Device time of each step by cause.
    StepLeaves = "step_leaves", reported::STEP_LEAVES;
    /// Kernel time by library.
    KernelLibraries = "kernel_libraries", reported::KERNEL_LIBRARIES;
    /// Kernel time by the launching source line, based on host samples.
    KernelLines = "kernel_lines", reported::KERNEL_LINES;
    /// Computation by limiting unit, if hardware counters were sampled.
    ComputeLimits = "compute_limits", reported::COMPUTE_LIMITS;
    /// Kernels and the unit that each uses most, if hardware counters were sampled.
    KernelLimits = "kernel_limits", reported::KERNEL_LIMITS;
    /// PyTorch's operators by input shapes, of the newest capture or the run, if they were recorded.
    Operators = "operators", reported::OPERATORS;
    /// Received, lost and doubtful data.
    Completeness = "completeness", reported::COMPLETENESS;
    /// Ranges of the program, each with the innermost enclosing range of its thread. Only in queries.
    NestedRanges = "nested_ranges", records::NESTED_RANGES;
    /// The same for pushed ranges only. Only in queries.
    NestedPushes = "nested_pushes", records::NESTED_RANGES;
    /// Calls that caused work, each with the ranges of its thread that enclose it. Only in queries.
    RangeCalls = "range_calls", records::RANGE_CALLS;
}

impl Table {
    /// Table of a record: the first tables are those of [`Record::KINDS`].
    const fn of(record: &Record) -> Self {
        Self::ALL[record.kind()]
    }

    /// True if each of its rows is a record or a sample of a counter.
    pub(crate) const fn is_recorded(self) -> bool {
        (self as usize) < Record::KINDS.len() || matches!(self, Self::GpuMetrics)
    }

    /// True if each of its rows is one record.
    pub(crate) const fn is_of_records(self) -> bool {
        (self as usize) < Record::KINDS.len()
    }

    /// True if its rows come from the engine rather than from individual records.
    pub(crate) const fn is_reported(self) -> bool {
        (self as u8) >= Self::Processes as u8 && !self.is_of_queries()
    }

    /// True if it is produced for queries and never stored.
    pub(crate) const fn is_of_queries(self) -> bool {
        (self as u8) >= Self::NestedRanges as u8
    }
}

/// Receives rows.
pub trait Sink {
    /// True if rows of this table are needed; other tables are not produced.
    fn wants(&self, table: Table) -> bool;

    /// Columns that are needed: bit `n` is column `n`. The cells of others may be empty.
    fn columns(&self, _table: Table) -> u64 {
        u64::MAX
    }

    /// Stores a row, with a cell for each column of the table.
    ///
    /// # Errors
    ///
    /// If it cannot be stored.
    fn row(&mut self, table: Table, cells: &[Cell<'_>]) -> Result<(), ExportError>;
}

/// Produces the rows of `trace`. Returns descriptions of missing data and failed joins, for the user.
///
/// # Errors
///
/// If the trace cannot be read, or `sink` fails.
pub fn produce(
    trace: &TraceFile,
    sink: &mut dyn Sink,
    progress: &mut Progress<'_>,
) -> Result<Vec<String>, ExportError> {
    let wanted: Vec<Table> = Table::ALL.iter().copied().filter(|&table| sink.wants(table)).collect();
    let (of_queries, wanted): (Vec<Table>, Vec<Table>) = wanted.into_iter().partition(|table| table.is_of_queries());
    if wanted.contains(&Table::Operators) {
        reported::operators(trace, sink, progress)?;
    }
    let wanted: Vec<Table> = wanted.into_iter().filter(|&table| table != Table::Operators).collect();
    let (reported, recorded): (Vec<Table>, Vec<Table>) = wanted.into_iter().partition(|table| table.is_reported());
    let passes = [&of_queries, &recorded, &reported].iter().filter(|tables| !tables.is_empty()).count() as u64;
    let mut pass = 0;
    let mut share = |done: u64, total: u64, pass: u64| progress(total / passes * pass + done / passes, total);
    let mut notes = Vec::new();
    if !of_queries.is_empty() {
        let (damage, of_ranges) = nested(trace, &of_queries, sink, &mut |done, total| share(done, total, pass))?;
        notes = of_ranges;
        if passes == 1 {
            notes.extend(damage);
        }
        pass += 1;
    }
    let mut dictionary_is_enough = false;
    if !recorded.is_empty() {
        let (passed, of_records) = self::recorded(trace, sink, &mut |done, total| share(done, total, pass))?;
        notes.extend(of_records);
        pass += 1;
        dictionary_is_enough = reported.iter().all(|table| matches!(table, Table::Threads | Table::Devices));
        if dictionary_is_enough {
            reported.iter().try_for_each(|&table| reported::described(table, &passed.dictionary, sink))?;
        }
    }
    if !reported.is_empty() && !dictionary_is_enough {
        let mut progress = |done, total| share(done, total, pass);
        let (report, passed, earlier) = attributed_with_steps(trace, &mut progress)?;
        let devices = report.devices.iter().filter_map(|row| Some((row.device.id, row.steps.as_ref()?)));
        let left_out: u64 = devices.map(|(device, steps)| earlier.left_out(device, steps)).sum();
        let lines = report.kernel_lines.as_ref();
        let lines = lines.map_or(0, |lines| match lines.left_out() {
            Some(_) => lines.launches.len() as u64,
            None => lines.distinct_rows.saturating_sub(lines.rows.len() as u64),
        });
        let counters = [(STEPS_LEFT_OUT, left_out), (KERNEL_LINES_LEFT_OUT, lines)];
        let about = About { path: trace.path(), report: &report, dictionary: &passed.dictionary, counters: &counters };
        reported::rows(&about, &earlier, &reported, sink)?;
        if recorded.is_empty() {
            notes.extend(passed.notes());
        }
        if reported.contains(&Table::StepLeaves) {
            notes.extend(report.devices.iter().filter_map(|row| earlier.moved_too_late(row.device.id)));
        }
    }
    Ok(notes)
}

/// Passes the rows of the `wanted` tables to `sink`. Returns descriptions of missing data and of data that
/// could not be assigned, for the user.
fn nested(
    trace: &TraceFile,
    wanted: &[Table],
    sink: &mut dyn Sink,
    progress: &mut Progress<'_>,
) -> Result<(Vec<String>, Vec<String>), ExportError> {
    let (mut damage, mut notes) = (Vec::new(), Vec::new());
    for (table, of) in [(Table::NestedRanges, Wanted::All), (Table::NestedPushes, Wanted::Pushed)] {
        let with_calls = of == Wanted::All && wanted.contains(&Table::RangeCalls);
        if !wanted.contains(&table) && !with_calls {
            continue;
        }
        let (ranges, passed) = Instances::read(trace, of, progress, &mut notes)?;
        damage = passed.notes();
        if wanted.contains(&table) {
            for (place, row) in (0..).zip(&ranges.all) {
                let (numbers, mut cells) = (ranges.stack(place), Cells::new(records::NESTED_RANGES.len(), u64::MAX));
                records::nested_range(place, row, &numbers, &passed.dictionary, &mut cells);
                sink.row(table, &cells)?;
            }
        }
        if with_calls {
            let mut calls = Correlations::default();
            join(trace, progress, operations, |launch, _, _| {
                if calls.insert(launch.correlation) {
                    for place in ranges.around(launch) {
                        let mut cells = Cells::new(records::RANGE_CALLS.len(), u64::MAX);
                        records::range_call(place, launch.correlation.0, &mut cells);
                        sink.row(Table::RangeCalls, &cells)?;
                    }
                }
                Ok(())
            })?;
        }
    }
    Ok((damage, notes))
}

/// Passes the rows of the tables of records and collectives that `sink` wants. Also returns descriptions of missing
/// data and failed joins, for the user.
///
/// # Errors
/// If the trace cannot be read, or `sink` fails.
pub(crate) fn recorded(
    trace: &TraceFile,
    sink: &mut dyn Sink,
    progress: &mut Progress<'_>,
) -> Result<(Passed, Vec<String>), ExportError> {
    let mut rows = RecordedRows::new(sink);
    let passed = trace.pass(progress, |event, scope| rows.take(event, scope, sink))?;
    let notes = rows.finish(&passed, sink)?;
    Ok((passed, notes))
}

/// Makes rows of the events of one pass.
pub(crate) struct RecordedRows {
    ranges: OpenRanges,
    kernels: FxHashMap<NameId, KernelName>,
    calls: ReadableNames,
    stacks: records::Stacks,
    counters: CounterValues,
    captured: CapturedPlaces,
    last: Timestamp,
    collectives: Option<CollectiveRows>,
}

impl RecordedRows {
    pub(crate) fn new(sink: &dyn Sink) -> Self {
        let collectives = sink.wants(Table::Collectives) || sink.wants(Table::Communicators);
        Self {
            ranges: OpenRanges::default(),
            kernels: FxHashMap::default(),
            calls: ReadableNames::new(|name| without_suffix(name).to_owned()),
            stacks: records::Stacks::default(),
            counters: CounterValues::default(),
            captured: CapturedPlaces::default(),
            last: Timestamp::ZERO,
            collectives: collectives.then(CollectiveRows::default),
        }
    }

    /// Passes the rows of an event to `sink`.
    pub(crate) fn take(&mut self, event: &Event, scope: &Scope<'_>, sink: &mut dyn Sink) -> Result<(), ExportError> {
        let dictionary = scope.dictionary;
        self.captured.take(event, dictionary);
        if let Some(collectives) = &mut self.collectives {
            collectives.take(event, dictionary).try_for_each(|row| collective(&row, sink))?;
        }
        match event {
            Event::Record(record) if sink.wants(Table::of(record)) => self.record(record, dictionary, sink),
            Event::Flush(at) | Event::End(_, at) => {
                self.last = self.last.max(*at);
                Ok(())
            }
            Event::Counters(event) if sink.wants(Table::GpuMetrics) => {
                let table = Table::GpuMetrics;
                self.counters.of(event).iter().try_for_each(|value| {
                    let mut cells = Cells::new(table.columns().len(), sink.columns(table));
                    records::gpu_metric(value, &mut cells);
                    sink.row(table, &cells)
                })
            }
            _ => Ok(()),
        }
    }

    fn record(&mut self, record: &Record, dictionary: &Dictionary, sink: &mut dyn Sink) -> Result<(), ExportError> {
        let table = Table::of(record);
        let mut cells = Cells::new(table.columns().len(), sink.columns(table));
        let Self { kernels, captured, .. } = self;
        match record {
            Record::Kernel(row) => {
                let config = dictionary.launch_config(row.config);
                let name = kernels.entry(config.name).or_insert_with(|| KernelName::of(dictionary.name(config.name)));
                let captured = captured.get(row.graph_node_id, dictionary);
                records::kernel(row, &config, name, captured, dictionary, &mut cells);
            }
            Record::Copy(row) => records::copy(row, captured.get(row.graph_node_id, dictionary), &mut cells),
            Record::Memset(row) => records::memset(row, captured.get(row.graph_node_id, dictionary), &mut cells),
            Record::Memory(row) => records::memory(row, dictionary, &mut cells),
            Record::Managed(row) => records::managed(row, &mut cells),
            Record::Api(row) => {
                let function = dictionary.api_function(row.function);
                let name = function.map(|function| self.calls.get(function.name, dictionary));
                records::api(row, function, name, dictionary, &mut cells);
            }
            Record::Sync(row) => records::sync(row, dictionary, &mut cells),
            Record::Event(row) => records::event(row, dictionary, &mut cells),
            Record::Overhead(row) => records::overhead(row, &mut cells),
            Record::Range(row) if row.kind == RangeEventKind::Mark => {
                records::range(row, None, dictionary, &mut cells);
            }
            Record::Range(row) => {
                self.last = self.last.max(row.at);
                let Some(range) = self.ranges.take(row) else { return Ok(()) };
                records::range(&range.begin, Some((range.end, range.end_thread, true)), dictionary, &mut cells);
            }
            Record::Sample(row) => {
                records::look(row, dictionary, self.stacks.get(row.stack, dictionary), &mut cells);
            }
        }
        sink.row(table, &cells)
    }

    /// Passes the remaining rows to `sink`. Returns descriptions of missing data and failed joins, for the user.
    pub(crate) fn finish(mut self, passed: &Passed, sink: &mut dyn Sink) -> Result<Vec<String>, ExportError> {
        for range in self.ranges.finish(self.last) {
            let mut cells = Cells::new(Table::Nvtx.columns().len(), sink.columns(Table::Nvtx));
            let end = Some((range.end, range.end_thread, false));
            records::range(&range.begin, end, &passed.dictionary, &mut cells);
            sink.row(Table::Nvtx, &cells)?;
        }
        if let Some(collectives) = self.collectives {
            let (rows, reported) = collectives.finish();
            rows.iter().try_for_each(|row| collective(row, sink))?;
            if sink.wants(Table::Communicators) {
                communicators(&reported, &passed.dictionary, sink)?;
            }
        }
        let mut notes = passed.notes();
        notes.extend(self.ranges.notes());
        Ok(notes)
    }
}

/// Writes communicators.
fn communicators(rows: &[Communicator], dictionary: &Dictionary, sink: &mut dyn Sink) -> Result<(), ExportError> {
    for row in rows {
        let (id, mut cells) = (collectives::id_text(row.id), Cells::new(0, u64::MAX));
        collectives::communicator(row, &id, dictionary, &mut cells);
        sink.row(Table::Communicators, &cells)?;
    }
    Ok(())
}

/// Writes an operation if its table is needed.
fn collective(row: &Collective, sink: &mut dyn Sink) -> Result<(), ExportError> {
    if !sink.wants(Table::Collectives) {
        return Ok(());
    }
    let (id, mut cells) = (collectives::id_text(row.communicator), Cells::new(0, u64::MAX));
    collectives::collective(row, Some(id.as_str()).filter(|_| row.communicator != 0), &mut cells);
    sink.row(Table::Collectives, &cells)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_number_without_room_is_the_largest_and_not_negative() {
        assert_eq!(Cell::from(7u64), Cell::Integer(7));
        assert_eq!(Cell::from(1u64 << 63), Cell::Integer(i64::MAX));
        assert_eq!(Cell::from(u64::MAX), Cell::Integer(i64::MAX));
    }

    #[test]
    fn tables_and_their_columns_have_names_of_their_own() {
        let tables: BTreeSet<&str> = Table::ALL.iter().map(|table| table.name()).collect();
        assert_eq!(tables.len(), Table::ALL.len());
        for table in Table::ALL {
            let columns: BTreeSet<&str> = table.columns().iter().map(|column| column.name).collect();
            assert_eq!(columns.len(), table.columns().len(), "{}", table.name());
            assert!(!columns.contains("run") && !columns.contains("rank"), "{}", table.name());
        }
    }

    /// Reserved words of SQLite 3.50, DuckDB 2.0, Spark 4 (ANSI mode) or Trino 476, by their manuals: as
    /// column names, they would need quotes, and Spark treats text in double quotes as a string.
    const RESERVED: &str = "add all alter analyze and any array as asc asymmetric authorization between both by \
        case cast check collate column commit constraint create cross cube current current_catalog current_date \
        current_path current_role current_schema current_time current_timestamp current_user deallocate default \
        deferrable delete desc describe distinct do drop else end escape except execute exists extract false fetch \
        filter for foreign from full grant group grouping having if in index initially inner insert intersect into is \
        isnull join json_array json_exists json_object json_query json_table json_value lambda lateral leading left \
        like limit listagg localtime localtimestamp natural normalize not nothing notnull null offset on only or order \
        outer overlaps percent pivot pivot_longer pivot_wider placing prepare primary qualify recursive references \
        returning returns right rollup row rows select session_user set show skip some sql summarize symmetric table \
        tablesample then time to trailing transaction trim true uescape union unique unknown unnest unpivot update \
        user using values variadic when where window with within";

    #[test]
    fn no_table_or_column_is_a_reserved_word_of_sql() {
        let reserved: BTreeSet<&str> = RESERVED.split_whitespace().collect();
        for table in Table::ALL {
            let columns = table.columns().iter().map(|column| column.name);
            for name in columns.chain([table.name(), "run", "rank", "date"]) {
                assert!(!reserved.contains(name), "{}: {name}", table.name());
                assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'));
            }
        }
    }
}
