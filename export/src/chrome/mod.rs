//! Chrome JSON in the dialect of Kineto, the library used by the PyTorch profiler.
//!
//! It is read by HolisticTraceAnalysis, the TensorBoard plugin, Perfetto and `chrome://tracing`, whose
//! requirements determine the rows: names without version suffix, a blank after `"rank":`, integers where
//! Kineto has them, and times relative to `baseTimeNanoseconds`, because microseconds since 1970 do not fit a
//! double. Unlike in Kineto's files, operations that overlap on one stream have separate lines: viewers of
//! this format drop rows that partly overlap.
//!
//! Two passes: the first finds the earliest time and the calls that caused work, the second writes. Two more
//! find the steps. If the trace has ranges, another two project them onto the streams.

mod arguments;
mod rows;
mod steps;

use std::io::{self, Write};

use gpuwhy_trace::event::Event;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::{Device, Record};

use crate::counters::CounterValues;
use crate::destination::Destination;
use crate::error::ExportError;
use crate::json::quoted;
use crate::options::{ExportOutcome, Options};
use crate::output::Output;
use crate::prescan::Prescan;
use crate::projection::projected_ranges;
use gpuwhy_import::{Progress, TraceFile, share};

use self::rows::ChromeRows;
use self::steps::FoundSteps;

/// Writes `trace` as Chrome JSON.
pub fn write(
    trace: &TraceFile,
    to: Destination,
    options: &Options,
    progress: &mut Progress<'_>,
) -> Result<ExportOutcome, ExportError> {
    let (prescan, passed) = Prescan::of(trace, &mut share(progress, 0..10))?;
    let mut steps = match options.step_range {
        Some(_) => FoundSteps::default(),
        None => FoundSteps::of(trace, &passed.dictionary, &mut share(progress, 10..40))?,
    };
    let name = to.path().to_string_lossy().into_owned();
    let mut output = Output::create(to)?;
    let mut outcome = ExportOutcome { notes: passed.notes(), ..ExportOutcome::default() };
    let header = header(&mut output, &passed.session, passed.dictionary.devices(), &prescan, options);
    header.map_err(|error| output.failed(error))?;
    let mut rows = ChromeRows::new(&prescan, &passed.session, options);
    rows.metadata(&mut output, &passed.dictionary).map_err(|error| output.failed(error))?;
    let mut values = CounterValues::default();
    trace.pass(&mut share(progress, 40..90), |event, scope| {
        let written = match event {
            Event::Record(record) => {
                if let Record::Api(call) = record {
                    steps.called(call);
                }
                match record {
                    Record::Event(_) | Record::Sample(_) | Record::Memory(_) | Record::Managed(_) => {
                        outcome.leave_out(record.kind());
                    }
                    _ => outcome.written += 1,
                }
                rows.record(&mut output, record, scope.dictionary)
            }
            Event::Counters(event) => values.of(event).iter().try_for_each(|value| rows.counter(&mut output, value)),
            Event::GraphNode(_) => {
                rows.captured.take(event, scope.dictionary);
                Ok(())
            }
            Event::Flush(_) => rows.flush(&mut output, scope.dictionary),
            _ => Ok(()),
        };
        written.map_err(|error| output.failed(error))
    })?;
    rows.finish(&mut output, &passed.dictionary).map_err(|error| output.failed(error))?;
    for (number, step) in steps.rows(prescan.end).enumerate() {
        rows.step(&mut output, number, &step).map_err(|error| output.failed(error))?;
    }
    let (projections, unplaced) =
        if prescan.has_ranges { projected_ranges(trace, &mut share(progress, 90..100))? } else { Default::default() };
    for row in &projections {
        rows.projection(&mut output, row, &passed.dictionary).map_err(|error| output.failed(error))?;
    }
    writeln!(output, "\n  ],\n  \"traceName\": {}\n}}", quoted(&name)).map_err(|error| output.failed(error))?;
    outcome.notes.extend(rows.ranges.notes());
    outcome.notes.extend(steps.notes());
    outcome.notes.extend(unplaced);
    output.finish()?;
    Ok(outcome)
}

/// Writes everything before the rows.
fn header(
    output: &mut impl Write,
    session: &ProcessInfo,
    devices: &[Device],
    prescan: &Prescan,
    options: &Options,
) -> io::Result<()> {
    writeln!(output, "{{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [")?;
    for (number, device) in devices.iter().enumerate() {
        let separator = if number + 1 < devices.len() { "," } else { "" };
        writeln!(output, "    {}{separator}", properties(device))?;
    }
    writeln!(output, "  ],")?;
    let rank = session.rank().unwrap_or(options.fallback_rank);
    let world = session.world_size().unwrap_or(options.fallback_world_size.max(1));
    // The TensorBoard plugin opens its distributed view for a known backend, but that view requires
    // collectives.
    let backend = if prescan.communicates { "nccl" } else { "" };
    // HolisticTraceAnalysis locates the rank by the blank after the colon.
    writeln!(
        output,
        "  \"distributedInfo\": {{\"backend\": \"{backend}\", \"rank\": {rank}, \"world_size\": {world}}},"
    )?;
    writeln!(output, "  \"cuda_driver_version\": {},", session.driver_cuda_version)?;
    writeln!(output, "  \"host_name\": {},", quoted(&session.host))?;
    writeln!(output, "  \"displayTimeUnit\": \"ms\",")?;
    writeln!(output, "  \"baseTimeNanoseconds\": {},", prescan.base.nanos())?;
    write!(output, "  \"traceEvents\": [")
}

fn properties(device: &Device) -> String {
    format!(
        "{{\"id\": {}, \"name\": {}, \"totalGlobalMem\": {}, \"computeMajor\": {}, \"computeMinor\": {}, \
         \"maxThreadsPerBlock\": 1024, \"maxThreadsPerMultiprocessor\": {}, \"regsPerMultiprocessor\": {}, \
         \"warpSize\": 32, \"sharedMemPerMultiprocessor\": {}, \"numSms\": {}}}",
        device.id,
        quoted(&device.name),
        device.memory_bytes,
        device.compute_capability[0],
        device.compute_capability[1],
        device.threads_per_multiprocessor,
        device.registers_per_multiprocessor,
        device.shared_bytes_per_multiprocessor,
        device.multiprocessors,
    )
}
