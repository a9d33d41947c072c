//! Turns rows into records.
//!
//! Kineto writes rows grouped by kind, not by time, and writes `baseTimeNanoseconds`, the reference of all
//! times, at the end. Records (about 100 bytes each) are therefore kept until the document is read, with
//! times relative to that base. A row of a relevant kind that cannot be used is counted with the reason; rows
//! of other kinds are skipped.

use std::collections::BTreeMap;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, ContextId, Copy, CorrelationId, DeviceId, Kernel, LaunchConfig, Memset, NameId,
    Overhead, OverheadKind, Record, StreamId, Sync, SyncKind, ThreadId, Timestamp,
};
use serde_json::value::RawValue;

use super::collective::ProcessGroups;
use super::row::{Category, KinetoRow};
use super::scalar::Scalar;
use super::{copy_name, time};

/// Keeps operations without correlation from being matched with calls without correlation.
const CALL_WITHOUT_CORRELATION: CorrelationId = CorrelationId(u32::MAX);

/// Prefix of the ranges that name steps.
const STEP: &str = "ProfilerStep#";
/// Prefixes of the host ranges that are kept: steps, and PyTorch's ranges around fetching a batch.
const NAMED: [&str; 3] = [STEP, "enumerate(DataLoader)#", "enumerate(DataPipe)#"];

/// A range on a host thread; times relative to [`Builder::base_ns`].
#[derive(Clone, Copy, Debug)]
pub(super) struct HostRange {
    pub(super) thread: ThreadId,
    pub(super) name: NameId,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
}

/// The reason why a row could not be used.
type Unusable = &'static str;

/// Everything read from the file.
#[derive(Debug, Default)]
pub(super) struct Builder {
    pub(super) dictionary: Dictionary,
    /// In file order; times relative to `base_ns`.
    pub(super) records: Vec<Record>,
    /// Thread, start and end of each `ProfilerStep#N` range, relative to `base_ns`.
    pub(super) steps: Vec<(ThreadId, Timestamp, Timestamp)>,
    /// Ranges that show what the program was doing, in file order.
    pub(super) ranges: Vec<HostRange>,
    /// True if the file has an array of rows.
    pub(super) found_rows: bool,
    pub(super) rows: u64,
    /// Number of rows about device work, usable or not.
    pub(super) device_rows: u64,
    /// Rows of relevant kinds that could not be used, by reason.
    pub(super) unusable: BTreeMap<Unusable, u64>,
    /// Reference of all times, nanoseconds since the Unix epoch; 0 in files with absolute times.
    pub(super) base_ns: i64,
    pub(super) host: String,
    pub(super) process_id: u32,
    pub(super) rank_variables: Vec<(String, String)>,
    pub(super) groups: ProcessGroups,
}

impl Builder {
    /// Takes an element of `traceEvents`; `None` if it is not an object.
    pub(super) fn take(&mut self, row: Option<KinetoRow>) {
        self.rows += 1;
        let Some(row) = row else {
            self.count("not an object");
            return;
        };
        let device_work = matches!(row.category, Category::Kernel | Category::Copy | Category::Memset);
        self.device_rows += u64::from(device_work);
        let is_named = NAMED.iter().any(|prefix| row.name.starts_with(prefix));
        if row.category == Category::Other || (row.category == Category::Range && !is_named) {
            return;
        }
        if let Err(reason) = self.convert(&row) {
            self.count(reason);
        }
    }

    fn count(&mut self, reason: Unusable) {
        *self.unusable.entry(reason).or_default() += 1;
    }

    fn convert(&mut self, row: &KinetoRow) -> Result<(), Unusable> {
        let (start, end) = times(row)?;
        let record = match row.category {
            Category::Kernel => Record::Kernel(self.kernel(row, start, end)?),
            Category::Copy => Record::Copy(copy(row, start, end)?),
            Category::Memset => Record::Memset(memset(row, start, end)?),
            Category::Runtime => Record::Api(self.call(row, ApiDomain::Runtime, start, end)?),
            Category::Driver => Record::Api(self.call(row, ApiDomain::Driver, start, end)?),
            Category::Sync => Record::Sync(sync(row, start, end)?),
            Category::Overhead => Record::Overhead(overhead(row, start, end)),
            Category::Range => {
                let range =
                    HostRange { thread: thread(row)?, name: self.dictionary.intern_name(&row.name), start, end };
                if row.name.starts_with(STEP) {
                    self.steps.push((range.thread, start, end));
                }
                self.ranges.push(range);
                return Ok(());
            }
            Category::Other => return Ok(()),
        };
        self.records.push(record);
        Ok(())
    }

    fn kernel(&mut self, row: &KinetoRow, start: Timestamp, end: Timestamp) -> Result<Kernel, Unusable> {
        let arguments = &row.arguments;
        let config = LaunchConfig {
            name: self.dictionary.intern_name(&row.name),
            grid: arguments.grid.0,
            block: arguments.block.0,
            registers_per_thread: arguments.registers.within().unwrap_or(0),
            // Kineto writes the sum of static and dynamic shared memory.
            static_shared_bytes: arguments.shared_bytes.within().unwrap_or(0),
            ..LaunchConfig::default()
        };
        let ids = DeviceWorkIds::of(row)?;
        self.groups.kernel(&row.name, ids.correlation, &arguments.collective, &mut self.dictionary);
        Ok(Kernel {
            start,
            end,
            device: ids.device,
            context: ids.context,
            stream: ids.stream,
            correlation: ids.correlation,
            config: self.dictionary.intern_launch_config(config),
            graph_id: arguments.graph.within().unwrap_or(0),
            graph_node_id: arguments.graph_node.within().unwrap_or(0),
        })
    }

    fn call(
        &mut self,
        row: &KinetoRow,
        domain: ApiDomain,
        start: Timestamp,
        end: Timestamp,
    ) -> Result<ApiCall, Unusable> {
        let name = self.dictionary.intern_name(&row.name);
        let callback_id = row.arguments.callback_id.within().unwrap_or(0);
        if self.process_id == 0 {
            self.process_id = row.process.within().unwrap_or(0);
        }
        Ok(ApiCall {
            start,
            end,
            thread: thread(row)?,
            correlation: correlation(row)?.unwrap_or(CALL_WITHOUT_CORRELATION),
            function: self.dictionary.intern_api_function(ApiFunction { domain, callback_id, name }),
            // The file has no return values; its calls are assumed to have succeeded.
            return_value: 0,
        })
    }
}

/// Device, context and stream of device work, and the correlation of its call.
struct DeviceWorkIds {
    device: DeviceId,
    context: ContextId,
    stream: StreamId,
    correlation: CorrelationId,
}

impl DeviceWorkIds {
    fn of(row: &KinetoRow) -> Result<Self, Unusable> {
        let arguments = &row.arguments;
        // Rows of a device have its ordinal as process and its stream as thread.
        let device = arguments.device.within().or_else(|| row.process.within());
        let stream = arguments.stream.within().or_else(|| row.thread.within());
        Ok(Self {
            device: DeviceId(device.ok_or("device work without device")?),
            context: ContextId(arguments.context.within().unwrap_or(0)),
            stream: StreamId(stream.unwrap_or(0)),
            correlation: correlation(row)?.unwrap_or_default(),
        })
    }
}

fn copy(row: &KinetoRow, start: Timestamp, end: Timestamp) -> Result<Copy, Unusable> {
    let ids = DeviceWorkIds::of(row)?;
    let (kind, source, destination) = copy_name::path_of(&row.name);
    Ok(Copy {
        start,
        end,
        device: ids.device,
        context: ids.context,
        stream: ids.stream,
        correlation: ids.correlation,
        kind,
        source,
        destination,
        is_async: false,
        bytes: row.arguments.bytes.within().unwrap_or(0),
        peers: [ids.device; 2],
        graph_id: row.arguments.graph.within().unwrap_or(0),
        graph_node_id: row.arguments.graph_node.within().unwrap_or(0),
    })
}

fn memset(row: &KinetoRow, start: Timestamp, end: Timestamp) -> Result<Memset, Unusable> {
    let ids = DeviceWorkIds::of(row)?;
    Ok(Memset {
        start,
        end,
        device: ids.device,
        context: ids.context,
        stream: ids.stream,
        correlation: ids.correlation,
        memory: copy_name::memset_memory(&row.name),
        is_async: false,
        value: 0,
        bytes: row.arguments.bytes.within().unwrap_or(0),
        graph_id: row.arguments.graph.within().unwrap_or(0),
        graph_node_id: row.arguments.graph_node.within().unwrap_or(0),
    })
}

/// A `cuda_sync` row appears under a stream like device work, but is a wait of the host.
fn sync(row: &KinetoRow, start: Timestamp, end: Timestamp) -> Result<Sync, Unusable> {
    let written = row.arguments.sync_kind.text();
    let kind = match if written.is_empty() { row.name.as_str() } else { written } {
        "Event Sync" => SyncKind::Event,
        "Stream Wait Event" => SyncKind::StreamWaitEvent,
        "Stream Sync" => SyncKind::Stream,
        "Context Sync" => SyncKind::Context,
        _ => SyncKind::Unknown,
    };
    Ok(Sync {
        start,
        end,
        kind,
        context: ContextId(row.arguments.context.within().unwrap_or(0)),
        stream: StreamId(row.arguments.stream.within().unwrap_or(u32::MAX)),
        correlation: correlation(row)?.unwrap_or_default(),
        event_id: u32::MAX,
        event_sync_id: 0,
    })
}

fn overhead(row: &KinetoRow, start: Timestamp, end: Timestamp) -> Overhead {
    let kind = match row.name.as_str() {
        "Driver Compiler" => OverheadKind::DriverCompiler,
        "Buffer Flush" => OverheadKind::BufferFlush,
        "Instrumentation" => OverheadKind::Instrumentation,
        "Resource" => OverheadKind::Resource,
        "Runtime Triggered Module Loading" => OverheadKind::RuntimeModuleLoading,
        "Lazy Function Loading" => OverheadKind::LazyFunctionLoading,
        "Command Buffer Full" => OverheadKind::CommandBufferFull,
        "Activity Buffer Request" => OverheadKind::ActivityBufferRequest,
        "UVM Activity Init" => OverheadKind::UnifiedMemoryInit,
        _ => OverheadKind::Unknown,
    };
    // Without a thread, the time belongs to no thread, which is written as zero.
    Overhead { start, end, kind, thread: thread(row).unwrap_or_default(), correlation: CorrelationId(0) }
}

fn times(row: &KinetoRow) -> Result<(Timestamp, Timestamp), Unusable> {
    let nanos = |value: &Option<Box<RawValue>>| value.as_ref().and_then(|raw| time::nanoseconds(raw.get()));
    if !row.complete {
        return Err("begin and end in rows of their own");
    }
    let start = nanos(&row.start).and_then(|start| u64::try_from(start).ok()).ok_or("without a usable begin")?;
    let duration =
        nanos(&row.duration).and_then(|duration| u64::try_from(duration).ok()).ok_or("without a usable duration")?;
    Ok((Timestamp::from_nanos(start), Timestamp::from_nanos(start.saturating_add(duration))))
}

/// Correlation id; an error if the row has one that is not a valid id.
fn correlation(row: &KinetoRow) -> Result<Option<CorrelationId>, Unusable> {
    match &row.arguments.correlation {
        Scalar::Absent => Ok(None),
        value => value.within().map(|id| Some(CorrelationId(id))).ok_or("with a correlation that is no 32-bit number"),
    }
}

/// Thread as a number. Kineto truncates ids to signed 32-bit numbers; the bits are kept.
fn thread(row: &KinetoRow) -> Result<ThreadId, Unusable> {
    row.thread.integer().map(|id| ThreadId(id as u32)).ok_or("without a thread number")
}
