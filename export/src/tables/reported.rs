//! Tables filled by the engine: the contents of `gpuwhy report` as rows.

use std::path::Path;

use gpuwhy_import::{Progress, TraceFile};
use gpuwhy_report::library::Library;
use gpuwhy_report::run::operators::{OperatorRow, Operators, OperatorsBy};
use gpuwhy_report::run::{ComputeLimits, DeviceReport, KernelLineRow, KernelRow, LibraryRow, NamedLimits, Report};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Device, PcieLink, ThreadName};
use profiler_core::counters::roofs::Limit;
use profiler_core::leaf::{Leaf, Leaves};
use profiler_core::steps::{Step, StepSource};
use serde_json::Value;

use super::cell::{Cell, Cells, Column, ColumnType};
use super::records::table;
use super::{Sink, Table};
use crate::earlier_steps::EarlierSteps;
use crate::error::ExportError;
use crate::process_names;

table! {
    PROCESSES, process(session: &'a ProcessInfo, report: &'a Report, file: &'a str, command: &'a str) {
        "file" Text "the trace" = file;
        "process" Integer "process id" = session.process_id;
        "parent_process" Integer "parent process id" = session.parent_process_id;
        "program" Text "name of the program; of Python the script or module" = process_names::program(session);
        "command" Text "its command line" = command;
        "host" Text "host name" = session.host.as_str();
        "world_size" Integer "processes of the job; empty when unknown" = session.world_size();
        "start_ns" Integer "begin of tracing" = session.start.nanos();
        "observed_ns" Integer "from the first record to the last" = report.observed_ns;
        "ending" Text "how the trace ended: clean, timed_out, abrupt" = match report.completeness.end {
            End::Clean => "clean",
            End::TimedOut => "timed_out",
            End::Abrupt => "abrupt",
        };
        "bottleneck" Text "what holds the program back" = report.bottleneck.cause.name();
        "bottleneck_share" Real "its share of steady device time, 0 to 1" = report.bottleneck.share;
        "capture" Integer "the capture that leaves, steps and completeness are about; empty without captures"
            = report.captures.shown;
        "driver_version" Text "kernel-mode driver" = session.driver_version.as_str();
        "driver_cuda_version" Integer "1000 * major + 10 * minor" = session.driver_cuda_version;
        "cupti_version" Integer "as CUPTI gives it" = session.cupti_version;
        "gpuwhy_version" Text "that wrote the trace" = session.gpuwhy_version.as_str();
    }
}

table! {
    THREADS, thread(row: &ThreadName, dictionary: &'a Dictionary) {
        "thread" Integer "kernel id; joins with api.thread, nvtx.thread, host_samples.thread" = row.thread.0;
        "name" Text "as the program named it with NVTX, else as the system did" = dictionary.name(row.name);
    }
}

table! {
    DEVICES, device(row: &'a Device, link: Option<&'a PcieLink>) {
        "device" Integer "ordinal in the process" = row.id.0;
        "name" Text "product name" = row.name.as_str();
        "compute_capability_major" Integer "of 9.0: 9" = row.compute_capability[0];
        "compute_capability_minor" Integer "of 9.0: 0" = row.compute_capability[1];
        "multiprocessors" Integer "number of" = row.multiprocessors;
        "threads_per_multiprocessor" Integer "resident at once" = row.threads_per_multiprocessor;
        "blocks_per_multiprocessor" Integer "resident at once" = row.blocks_per_multiprocessor;
        "registers_per_multiprocessor" Integer "32-bit registers" = row.registers_per_multiprocessor;
        "shared_bytes_per_multiprocessor" Integer "shared memory" = row.shared_bytes_per_multiprocessor;
        "core_clock_khz" Integer "core clock" = row.core_clock_khz;
        "memory_bytes" Integer "global memory" = row.memory_bytes;
        "memory_bandwidth_kbps" Integer "kB/s, as CUPTI gives it" = row.memory_bandwidth_kbps;
        "pcie_generation" Integer "empty when not described" = link.map(|link| link.generation);
        "pcie_lanes" Integer "empty when not described" = link.map(|link| link.lanes);
    }
}

table! {
    LEAVES, leaf(row: &DeviceReport, leaf: Leaf) {
        "device" Integer "ordinal of the device" = row.device.id.0;
        "leaf" Text "cause, as docs/reference/report.md defines it" = leaf.name();
        "cause" Text "the question it belongs to" = leaf.cause().name();
        "busy" Flag "whether something was running" = leaf.is_busy();
        "duration_ns" Integer "device time of this cause; sums to the window of the device" = row.leaves[leaf as usize];
        "steady_ns" Integer "of it, after start-up" = row.steady_leaves[leaf as usize];
    }
}

table! {
    STEPS, step(device: u32, number: u64, source: StepSource, row: &Step) {
        "device" Integer "ordinal of the device" = device;
        "step" Integer "from 0" = number;
        "source" Text "how steps were found: annotated, iteration, period, anchor, window" = source.name();
        "start_ns" Integer "begin on the device" = row.start.nanos();
        "end_ns" Integer "begin of the next" = row.end.nanos();
        "duration_ns" Integer "end_ns - start_ns" = row.end.since(row.start);
        "operations" Integer "kernels, copies and memsets" = row.operations;
        "kind" Text "of an iteration of a server: decode, prefill, mixed, prefill or mixed; else empty"
            = row.iteration.map(|iteration| iteration.kind.name());
        "sequences" Integer "of the iteration; 0 when unknown" = row.iteration.map(|iteration| iteration.sequences);
        "tokens" Integer "that the iteration processed; 0 when unknown" = row.iteration.map(|iteration| iteration.tokens);
    }
}

table! {
    STEP_LEAVES, step_leaf(device: u32, number: u64, leaf: Leaf, leaves: &Leaves) {
        "device" Integer "ordinal of the device" = device;
        "step" Integer "joins with steps.step" = number;
        "leaf" Text "cause; those without time have no row" = leaf.name();
        "duration_ns" Integer "time of the step of this cause; sums to that of the step" = leaves[leaf as usize];
    }
}

table! {
    KERNEL_LIBRARIES, kernel_library(row: &'a LibraryRow) {
        "library" Text "by kernel name or samples; empty for the program's own kernels and unknown ones"
            = row.library.as_deref();
        "kernels" Integer "distinct kernels" = row.names;
        "count" Integer "how often they ran, on all devices" = row.count;
        "duration_ns" Integer "sum of their durations" = row.total_ns;
        "by_samples_ns" Integer "part whose library is known from samples, not from the name" = row.by_samples_ns;
        "largest_kernel" Text "the kernel with the most time" = row.largest.as_str();
    }
}

table! {
    KERNEL_LINES, kernel_line(row: &'a KernelLineRow) {
        "kernel" Text "demangled, without parameters; CUDA graph with its number" = row.kernel.as_str();
        "graph" Integer "id of the graph; empty for kernels launched outside graphs" = row.graph;
        "library" Text "by kernel name; empty when unknown" = row.library.map(Library::name);
        "file" Text "of the program's innermost frame" = row.place.file.as_str();
        "line" Integer "0 when unknown" = row.place.line;
        "function" Text "of that frame" = row.place.function.as_str();
        "module" Text "class of the innermost module in its forward" = row.place.module.as_deref();
        "operator" Text "of PyTorch; if native frames show it" = row.place.operator.as_deref();
        "within_function" Text "innermost Python function, when another" = row.place.within.as_ref().map(|of| of.0.as_str());
        "within_file" Text "its file" = row.place.within.as_ref().map(|of| of.1.as_str());
        "binary" Text "loaded file that called CUDA; if native frames show it" = row.place.binary.as_deref();
        "samples" Integer "certainly in launches of this kernel at this place" = row.time.samples;
        "kernel_samples" Integer "certainly in launches of this kernel at any place" = row.kernel_samples;
        "estimated_ns" Real "part of kernel_ns, by samples weighted with the kernel time that they stand for" = row.time.total_ns;
        "low_ns" Real "begin of the 95 % interval of estimated_ns" = row.time.low_ns;
        "high_ns" Real "its end" = row.time.high_ns;
        "kernel_ns" Integer "time of this kernel at all places; exact" = row.kernel_ns;
    }
}

table! {
    COMPUTE_LIMITS, compute_limit(device: u32, limit: Limit, limits: &ComputeLimits) {
        "device" Integer "joins with devices.device" = device;
        "limited_by" Text "tensor, memory, issue, latency, occupancy, idle_multiprocessors, lowered_clock, unresolved"
            = limit.name();
        "steady_ns" Integer "of the computation after start-up; exact sum" = limits.steady.times[limit as usize];
        "step_ns" Integer "of the mean typical step; empty without" = limits.step.map(|step| step.times[limit as usize]);
        "share" Real "of the computation of a step, else of steady time, 0 to 1" = limits.share(limit);
    }
}

table! {
    KERNEL_LIMITS, kernel_limit(device: u32, row: &'a KernelRow, limits: &NamedLimits) {
        "device" Integer "joins with devices.device" = device;
        "name" Text "demangled, with parameters" = row.name.as_str();
        "total_ns" Integer "time of its launches" = row.durations.total();
        "roof" Text "the unit that it uses most: tensor, dram, l2, l1, issue; empty if unresolved"
            = limits.limits.roof.map(|(roof, ..)| roof.name());
        "used" Real "of the peak of that unit, 0 to 1" = limits.limits.roof.map(|(_, used, _)| used);
        "standard_error" Real "of used" = limits.limits.roof.map(|(.., error)| error);
        "sm_active" Real "multiprocessors with a warp, 0 to 1" = limits.limits.active;
        "clock_hz" Real "core clock while it ran" = limits.limits.clock_hz;
        "own" Flag "false: the mean of kernels that samples cannot separate" = limits.limits.own;
        "tensor" Real "part of its time, 0 to 1" = limits.limits.parts[Limit::Tensor as usize];
        "memory" Real "part of its time" = limits.limits.parts[Limit::Memory as usize];
        "issue" Real "part of its time" = limits.limits.parts[Limit::Issue as usize];
        "latency" Real "part of its time" = limits.limits.parts[Limit::Latency as usize];
        "occupancy" Real "part of its time" = limits.limits.parts[Limit::Occupancy as usize];
        "idle_multiprocessors" Real "part of its time" = limits.limits.parts[Limit::IdleMultiprocessors as usize];
        "lowered_clock" Real "part of its time" = limits.limits.parts[Limit::LoweredClock as usize];
        "unresolved" Real "part of its time" = limits.limits.parts[Limit::Unresolved as usize];
        "step_speedup_at_80" Real "of a step if it used 80 % of that unit: simulated, or by subtraction"
            = limits.gains.map(|gains| gains.at_80.speedup);
        "step_speedup_at_90" Real "of a step if it used 90 % of that unit: simulated, or by subtraction"
            = limits.gains.map(|gains| gains.at_90.speedup);
    }
}

table! {
    COMPLETENESS, counter(name: &'a str, value: i64) {
        "counter" Text "as `gpuwhy report --json` names it, with a dot where it nests; `steps_left_out`: steps without a row; `kernel_lines_left_out`: the same of kernels at lines" = name;
        "value" Integer "its value" = value;
    }
}

/// Counter of the steps that the engine has found but that have no row in the table `steps`.
pub(crate) const STEPS_LEFT_OUT: &str = "steps_left_out";

/// Counter of the kernels at lines that have no row in the table `kernel_lines`.
pub const KERNEL_LINES_LEFT_OUT: &str = "kernel_lines_left_out";

/// Source of the rows.
pub struct About<'a> {
    /// Path of the trace.
    pub path: &'a Path,
    /// Result of the engine.
    pub report: &'a Report,
    /// Names of the trace.
    pub dictionary: &'a Dictionary,
    /// Rows of the table `completeness` in addition to those of the report.
    pub counters: &'a [(&'static str, u64)],
}

/// Passes the rows of the `wanted` tables to `sink`.
pub fn rows(
    about: &About<'_>,
    earlier: &EarlierSteps,
    wanted: &[Table],
    sink: &mut dyn Sink,
) -> Result<(), ExportError> {
    let &About { path, report, dictionary, counters: beside } = about;
    let file = path.to_string_lossy();
    let command = report.process.command.join(" ");
    let mut counters = counters(report);
    let beside = beside.iter().map(|&(name, value)| (name.to_owned(), i64::try_from(value).unwrap_or(i64::MAX)));
    counters.extend(beside);
    for &table in wanted {
        let mut rows = RowSender { cells: Cells::new(table.columns().len(), u64::MAX), table, sink };
        match table {
            Table::Processes => rows.hand(|cells| process(&report.process, report, &file, &command, cells))?,
            Table::Threads | Table::Devices => described(table, dictionary, sink)?,
            Table::Leaves => {
                for row in &report.devices {
                    for of in Leaf::ALL {
                        rows.hand(|cells| leaf(row, of, cells))?;
                    }
                }
            }
            Table::Steps => {
                steps(report, earlier, |device, number, source, row| {
                    rows.hand(|cells| step(device, number, source, row, cells))
                })?;
            }
            Table::StepLeaves => {
                steps(report, earlier, |device, number, _, row| {
                    let mut leaves = Leaf::ALL.into_iter().filter(|&of| row.leaves[of as usize] > 0);
                    leaves.try_for_each(|of| rows.hand(|cells| step_leaf(device, number, of, &row.leaves, cells)))
                })?;
            }
            Table::KernelLibraries => {
                for row in &report.kernel_libraries {
                    rows.hand(|cells| kernel_library(row, cells))?;
                }
            }
            Table::KernelLines => {
                for row in report.kernel_lines.iter().flat_map(|lines| &lines.rows) {
                    rows.hand(|cells| kernel_line(row, cells))?;
                }
            }
            Table::ComputeLimits => {
                for (of, limits) in report.devices.iter().filter_map(|row| Some((row, row.limits.as_ref()?))) {
                    for limit in Limit::ALL {
                        rows.hand(|cells| compute_limit(of.device.id.0, limit, limits, cells))?;
                    }
                }
            }
            Table::KernelLimits => {
                for of in &report.devices {
                    for (row, limits) in of.kernels.iter().filter_map(|row| Some((row, row.limits.as_ref()?))) {
                        rows.hand(|cells| kernel_limit(of.device.id.0, row, limits, cells))?;
                    }
                }
            }
            _ => {
                for (name, value) in &counters {
                    rows.hand(|cells| counter(name, *value, cells))?;
                }
            }
        }
    }
    Ok(())
}

/// Passes the rows of a table that describes devices or threads to `sink`.
pub fn described(table: Table, dictionary: &Dictionary, sink: &mut dyn Sink) -> Result<(), ExportError> {
    let mut rows = RowSender { cells: Cells::new(table.columns().len(), u64::MAX), table, sink };
    if table == Table::Threads {
        dictionary.thread_names().iter().try_for_each(|row| rows.hand(|cells| thread(row, dictionary, cells)))
    } else {
        dictionary.devices().iter().try_for_each(|row| rows.hand(|cells| device(row, dictionary.link(row.id), cells)))
    }
}

/// Passes on rows of one table.
struct RowSender<'a, 's> {
    cells: Cells<'a>,
    table: Table,
    sink: &'s mut dyn Sink,
}

impl<'a> RowSender<'a, '_> {
    fn hand(&mut self, fill: impl FnOnce(&mut Cells<'a>)) -> Result<(), ExportError> {
        self.cells.clear();
        fill(&mut self.cells);
        self.sink.row(self.table, &self.cells)
    }
}

/// Passes device, number, source and step to `visit`, for all steps of all devices: those that the engine
/// keeps, and earlier ones.
fn steps(
    report: &Report,
    earlier: &EarlierSteps,
    mut visit: impl FnMut(u32, u64, StepSource, &Step) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    for row in &report.devices {
        let (id, Some(steps)) = (row.device.id, &row.steps) else { continue };
        earlier.of_device(id, |number, step| visit(id.0, number, steps.source, step))?;
        let first = steps.seen.saturating_sub(steps.rows.len() as u64);
        (first..).zip(&steps.rows).try_for_each(|(number, step)| visit(id.0, number, steps.source, step))?;
    }
    Ok(())
}

/// Numbers of the report's section about completeness, by name.
fn counters(report: &Report) -> Vec<(String, i64)> {
    let mut counters = Vec::new();
    // A report consists of numbers and texts, all of which JSON can represent.
    let document = serde_json::to_value(report).unwrap_or_default();
    collect(String::new(), &document["completeness"], &mut counters);
    counters
}

fn collect(name: String, value: &Value, counters: &mut Vec<(String, i64)>) {
    if let Some(object) = value.as_object() {
        for (key, value) in object {
            let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            collect(name, value, counters);
        }
    } else if value.is_i64() || value.is_u64() {
        counters.push((name, value.as_i64().unwrap_or(i64::MAX)));
    }
}

table! {
    OPERATORS, operator(row: &'a OperatorRow, of: &Operators) {
        "name" Text "as in PyTorch's key_averages()" = row.name.as_str();
        "shapes" Text "of its inputs; empty if not recorded" = row.shapes.as_str();
        "calls" Integer "number of" = row.calls;
        "host_ns" Integer "time on the host" = row.host_ns;
        "own_host_ns" Integer "the part outside operators and CUDA calls inside" = row.own_host_ns;
        "device_ns" Integer "device work that it and operators inside launched" = row.device_ns;
        "own_device_ns" Integer "the part that no operator inside launched" = row.own_device_ns;
        "memory_bytes" Integer "allocated in it, less what was freed; empty if not recorded" = row.memory_bytes;
        "flops" Integer "floating point operations by the formulas of torch.profiler; empty if unknown"
            = row.flops.and_then(|flops| i64::try_from(flops).ok());
        "peak_share" Real "part of the peak for the type of its products, 0 to 1; empty if unknown" = row.peak_share;
        "source" Text "ranges, torch_profiler" = of.source.name();
    }
}

/// Passes the rows to `sink`; none if the trace has no operators.
pub(super) fn operators(
    trace: &TraceFile,
    sink: &mut dyn Sink,
    progress: &mut Progress<'_>,
) -> Result<(), ExportError> {
    let Some(of) = trace.operators(OperatorsBy::Shapes, progress)? else { return Ok(()) };
    let mut cells = Cells::new(OPERATORS.len(), u64::MAX);
    of.rows.iter().try_for_each(|row| {
        cells.clear();
        operator(row, &of, &mut cells);
        sink.row(Table::Operators, &cells)
    })
}
