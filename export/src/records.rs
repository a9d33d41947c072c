//! Every record as a line of JSON, for `jq` and for custom programs.
//!
//! The first line describes the process, the last one the missing data. Records are in the order of the
//! trace; data that the trace stores by id is written out in each line.

use std::io::{self, Write};

use gpuwhy_report::text_format::printable_json;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{DeviceId, ManagedEvent, ManagedKind, NameId, Payload, Record, Timestamp};
use serde_json::{Value, json};

use crate::captured::{Captured, CapturedPlaces};
use crate::counters::{CounterValue, CounterValues};
use crate::destination::Destination;
use crate::error::ExportError;
use crate::options::ExportOutcome;
use crate::output::Output;
use crate::{enum_names, kineto_names};
use gpuwhy_import::{Progress, Scope, TraceFile};

/// Writes `trace` as lines of JSON.
pub fn write(trace: &TraceFile, to: Destination, progress: &mut Progress<'_>) -> Result<ExportOutcome, ExportError> {
    let mut output = Output::create(to)?;
    let mut outcome = ExportOutcome::default();
    let mut has_begun = false;
    let mut values = CounterValues::default();
    let mut captured = CapturedPlaces::default();
    let passed = trace.pass(progress, |event, scope| {
        if !has_begun {
            has_begun = true;
            line(&mut output, &session(scope)).map_err(|error| output.failed(error))?;
        }
        captured.take(event, scope.dictionary);
        if let Event::Counters(event) = event {
            for value in values.of(event) {
                outcome.written += 1;
                line(&mut output, &metric(&value)).map_err(|error| output.failed(error))?;
            }
        }
        if let Event::Record(record) = event {
            outcome.written += 1;
            let captured = record.device_work().and_then(|work| captured.get(work.graph_node_id, scope.dictionary));
            line(&mut output, &value(record, scope, captured)).map_err(|error| output.failed(error))?;
        }
        Ok::<_, ExportError>(())
    })?;
    outcome.notes = passed.notes();
    line(&mut output, &json!({"kind": "end", "missing": outcome.notes})).map_err(|error| output.failed(error))?;
    output.finish()?;
    Ok(outcome)
}

fn line(output: &mut impl Write, value: &Value) -> io::Result<()> {
    writeln!(output, "{}", printable_json(&value.to_string()))
}

fn session(scope: &Scope<'_>) -> Value {
    let session = scope.session;
    let variables: serde_json::Map<String, Value> =
        session.rank_variables.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    json!({
        "kind": "session",
        "process_id": session.process_id,
        "command": session.command,
        "host": session.host,
        "start_ns": session.start.nanos(),
        "driver_version": session.driver_version,
        "cupti_version": session.cupti_version,
        "rank_variables": variables,
    })
}

fn value(record: &Record, scope: &Scope<'_>, captured: Option<&Captured>) -> Value {
    let dictionary = scope.dictionary;
    let name = |id: NameId| dictionary.name(id);
    let time = |at: Timestamp| at.nanos();
    match record {
        Record::Kernel(row) => {
            let config = dictionary.launch_config(row.config);
            json!({
                "kind": "kernel", "start_ns": time(row.start), "end_ns": time(row.end), "name": name(config.name),
                "device": row.device.0, "context": row.context.0, "stream": row.stream.0,
                "correlation": row.correlation.0, "grid": config.grid, "block": config.block,
                "cluster": config.cluster, "registers_per_thread": config.registers_per_thread,
                "static_shared_bytes": config.static_shared_bytes,
                "dynamic_shared_bytes": config.dynamic_shared_bytes,
                "local_bytes_per_thread": config.local_bytes_per_thread,
                "graph": row.graph_id, "graph_node": row.graph_node_id,
                "captured": captured.map(origin),
            })
        }
        Record::Copy(row) => json!({
            "kind": "copy", "start_ns": time(row.start), "end_ns": time(row.end), "device": row.device.0,
            "context": row.context.0, "stream": row.stream.0, "correlation": row.correlation.0,
            "direction": row.kind.name(), "source": row.source.name(), "destination": row.destination.name(),
            "asynchronous": row.is_async, "bytes": row.bytes, "peers": [row.peers[0].0, row.peers[1].0],
            "graph": row.graph_id, "graph_node": row.graph_node_id,
            "captured": captured.map(origin),
        }),
        Record::Memset(row) => json!({
            "kind": "memset", "start_ns": time(row.start), "end_ns": time(row.end), "device": row.device.0,
            "context": row.context.0, "stream": row.stream.0, "correlation": row.correlation.0,
            "memory": row.memory.name(), "asynchronous": row.is_async, "value": row.value, "bytes": row.bytes,
            "graph": row.graph_id, "graph_node": row.graph_node_id,
            "captured": captured.map(origin),
        }),
        Record::Api(row) => {
            let function = dictionary.api_function(row.function);
            json!({
                "kind": "call", "start_ns": time(row.start), "end_ns": time(row.end), "thread": row.thread.0,
                "correlation": row.correlation.0, "return_value": row.return_value,
                "name": function.map_or("?", |function| name(function.name)),
            })
        }
        Record::Sync(row) => json!({
            "kind": "synchronization", "start_ns": time(row.start), "end_ns": time(row.end),
            "what": enum_names::sync(row.kind), "context": row.context.0, "stream": row.stream.0,
            "correlation": row.correlation.0, "event": row.event_id, "event_recording": row.event_sync_id,
        }),
        Record::Event(row) => json!({
            "kind": "event", "context": row.context.0, "stream": row.stream.0, "correlation": row.correlation.0,
            "event": row.event_id, "event_recording": row.event_sync_id,
        }),
        Record::Overhead(row) => json!({
            "kind": "overhead", "start_ns": time(row.start), "end_ns": time(row.end), "thread": row.thread.0,
            "correlation": row.correlation.0, "what": kineto_names::overhead(row.kind),
        }),
        Record::Range(row) => json!({
            "kind": "range", "at_ns": time(row.at), "thread": row.thread.0, "what": enum_names::range(row.kind),
            "domain": name(row.domain), "message": name(row.message), "category": name(row.category),
            "color": row.color, "range": row.range_id, "payload": payload(row.payload),
        }),
        Record::Memory(row) => json!({
            "kind": "memory", "at_ns": time(row.at), "operation": row.operation.name(), "memory": row.kind.name(),
            "device": row.device.0, "context": row.context.0, "stream": row.stream.0,
            "correlation": row.correlation.0, "address": row.address, "bytes": row.bytes,
            "name": (row.name != NameId::UNKNOWN).then(|| name(row.name)),
            "pool": (row.pool != 0).then(|| json!({
                "address": row.pool, "bytes": row.pool_bytes, "used": row.pool_used, "threshold": row.pool_threshold,
            })),
        }),
        Record::Managed(row) => {
            let value = match row.kind {
                ManagedKind::HostFault => "instruction",
                ManagedKind::DeviceFault => "faults",
                _ => "bytes",
            };
            let device = |device: DeviceId| (device != ManagedEvent::HOST).then_some(device.0);
            json!({
                "kind": "managed", "start_ns": time(row.start), "end_ns": time(row.end), "event": row.kind.name(),
                "source": device(row.source), "destination": device(row.destination), "address": row.address,
                value: row.value, "cause": row.cause,
            })
        }
        Record::Sample(row) => {
            let stack: Vec<Value> = dictionary
                .stack(row.stack)
                .map(|frame| json!([name(frame.function), name(frame.file), frame.line]))
                .collect();
            json!({
                "kind": "sample", "since_ns": time(row.since), "at_ns": time(row.at), "thread": row.thread.0,
                "state": enum_names::state(row.state), "on_cpu_ns": row.on_cpu, "runnable_ns": row.runnable, "stack": stack,
            })
        }
    }
}

/// Where an operation of a CUDA graph was captured.
fn origin(captured: &Captured) -> Value {
    let Captured { at, module, parent, operators } = captured;
    json!({"at": at, "module": module, "parent": parent, "operators": operators})
}

/// A sample of a hardware counter or an NVML reading.
fn metric(value: &CounterValue) -> Value {
    let CounterValue { device, counter, begin, end, value } = *value;
    json!({
        "kind": "gpu_metric", "start_ns": begin.nanos(), "end_ns": end.nanos(), "device": device.0,
        "metric": counter.name(), "unit": counter.unit(), "value": value,
    })
}

fn payload(payload: Payload) -> Value {
    match payload {
        Payload::None => Value::Null,
        Payload::Unsigned(number) => number.into(),
        Payload::Signed(number) => number.into(),
        Payload::Float(number) => number.into(),
    }
}
