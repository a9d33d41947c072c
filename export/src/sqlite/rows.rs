//! Converts records to rows.
//!
//! `StringIds` assigns ids to texts: names of the trace keep their ids, and texts derived from them
//! (demangled and short kernel names) have ids above a bound that no trace reaches.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ContextId, Copy, CudaEvent, Kernel, MemoryEvent, MemoryKind, MemoryOperation, Memset, NameId,
    Overhead, Payload, RangeEvent, RangeEventKind, Record, Sync, ThreadId, Timestamp,
};
use rusqlite::{CachedStatement, Connection, Result, params};
use rustc_hash::FxHashMap;

use super::facts::{global_pid, global_tid};
use super::insert::insert;
use super::{kinds, managed};
use crate::captured::{Captured, CapturedPlaces};
use crate::names::{base, demangled};
use crate::ranges::{ClosedRange, OpenRanges};
use gpuwhy_import::{Passed, Scope};

/// Ids of texts that are not names of the trace: the trace format permits 4 Mi names.
const FIRST_DERIVED: u32 = 1 << 23;

/// nsys's numbers for ranges and marks of the program.
const MARK: u32 = 34;
const PUSH_POP: u32 = 59;
const START_END: u32 = 60;
const DOMAIN: u32 = 75;

/// nsys's numbers for the memory of variables.
const DEVICE_STATIC: u32 = 5;
const MANAGED_STATIC: u32 = 6;

/// Statements that fill the tables.
pub struct Inserts<'c> {
    kernel: CachedStatement<'c>,
    copy: CachedStatement<'c>,
    memset: CachedStatement<'c>,
    call: CachedStatement<'c>,
    sync: CachedStatement<'c>,
    event: CachedStatement<'c>,
    range: CachedStatement<'c>,
    memory: CachedStatement<'c>,
    managed: managed::Inserts<'c>,
    overhead: CachedStatement<'c>,
    text: CachedStatement<'c>,
    texts: FxHashMap<String, u32>,
    names: FxHashMap<NameId, (u32, u32)>,
    domains: FxHashMap<NameId, u32>,
    captured: CapturedPlaces,
    ranges: OpenRanges,
}

/// Leading columns of all device operations.
const OPERATION: &str = "start, end, deviceId, contextId, streamId, correlationId, globalPid";
/// Trailing ones, which nsys does not have.
const CAPTURED: &str = "capturedAt, module, parentModule, operators";

impl<'c> Inserts<'c> {
    pub fn new(connection: &'c Connection) -> Result<Self> {
        let insert = |table: &str, columns: &str| insert(connection, table, columns);
        Ok(Self {
            kernel: insert(
                "CUPTI_ACTIVITY_KIND_KERNEL",
                &format!(
                    "{OPERATION}, demangledName, shortName, mangledName, launchType, registersPerThread, gridX, gridY, \
                     gridZ, blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, \
                     localMemoryTotal, gridId, sharedMemoryExecuted, graphNodeId, graphId, clusterX, clusterY, clusterZ, {CAPTURED}"
                ),
            )?,
            copy: insert(
                "CUPTI_ACTIVITY_KIND_MEMCPY",
                &format!(
                    "{OPERATION}, bytes, copyKind, srcKind, dstKind, srcDeviceId, dstDeviceId, graphNodeId, copyCount, \
                     {CAPTURED}"
                ),
            )?,
            memset: insert(
                "CUPTI_ACTIVITY_KIND_MEMSET",
                &format!("{OPERATION}, value, bytes, graphNodeId, memKind, {CAPTURED}"),
            )?,
            call: insert(
                "CUPTI_ACTIVITY_KIND_RUNTIME",
                "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
            )?,
            sync: insert(
                "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                &format!("{OPERATION}, syncType, eventId, eventSyncId"),
            )?,
            event: insert(
                "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
                "deviceId, contextId, streamId, correlationId, globalPid, eventId, eventSyncId",
            )?,
            range: insert(
                "NVTX_EVENTS",
                "start, end, eventType, rangeId, color, textId, globalTid, endGlobalTid, domainId, uint64Value, \
                 int64Value, doubleValue",
            )?,
            memory: insert(
                "CUDA_GPU_MEMORY_USAGE_EVENTS",
                "start, globalPid, deviceId, contextId, address, pc, bytes, memKind, memoryOperationType, name, \
                 correlationId, streamId, localMemoryPoolAddress, localMemoryPoolReleaseThreshold, localMemoryPoolSize, \
                 localMemoryPoolUtilizedSize",
            )?,
            managed: managed::Inserts::new(connection)?,
            overhead: insert(
                "CUPTI_ACTIVITY_KIND_OVERHEAD",
                "start, end, eventClass, globalTid, correlationId, overheadType",
            )?,
            text: insert("StringIds", "id, value")?,
            texts: FxHashMap::default(),
            names: FxHashMap::default(),
            domains: FxHashMap::default(),
            captured: CapturedPlaces::default(),
            ranges: OpenRanges::default(),
        })
    }

    /// A node of a CUDA graph was captured or copied.
    pub fn node(&mut self, event: &Event, dictionary: &Dictionary) {
        self.captured.take(event, dictionary);
    }

    /// Inserts a record. Returns its end, or `None` if nsys has no table for it.
    pub fn record(&mut self, record: &Record, scope: &Scope<'_>) -> Result<Option<Timestamp>> {
        match record {
            Record::Kernel(row) => self.kernel(row, scope)?,
            Record::Copy(row) => self.copy(row, scope)?,
            Record::Memset(row) => self.memset(row, scope)?,
            Record::Api(row) => self.call(row, scope)?,
            Record::Sync(row) => self.sync(row, scope)?,
            Record::Event(row) => self.event(row, scope)?,
            Record::Overhead(row) => self.overhead(row, scope)?,
            Record::Range(row) if row.kind == RangeEventKind::Mark => self.range(row, None, scope)?,
            Record::Range(row) => {
                if let Some(ClosedRange { begin, end, end_thread }) = self.ranges.take(row) {
                    self.range(&begin, Some((end, end_thread)), scope)?;
                }
            }
            Record::Memory(row) => {
                if !self.memory(row, scope)? {
                    return Ok(None);
                }
            }
            Record::Managed(row) => {
                let texts = &mut self.texts;
                if !self.managed.event(row, scope, |text| numbered(texts, text))? {
                    return Ok(None);
                }
            }
            Record::Sample(_) => return Ok(None),
        }
        Ok(Some(record.span().map_or(Timestamp::ZERO, |(_, end)| end)))
    }

    /// Inserts the ranges that are still open, ending them at `end`, and the texts.
    pub fn finish(&mut self, end: Timestamp, passed: &Passed) -> Result<()> {
        let scope = Scope { session: &passed.session, dictionary: &passed.dictionary };
        for range in self.ranges.finish(end) {
            self.range(&range.begin, Some((range.end, range.end_thread)), &scope)?;
        }
        for (&name, &number) in &self.domains {
            self.range.execute(params![
                0,
                None::<i64>,
                DOMAIN,
                None::<i64>,
                None::<u32>,
                name.0,
                global_pid(&passed.session),
                None::<i64>,
                number,
                None::<i64>,
                None::<i64>,
                None::<f64>,
            ])?;
        }
        for (number, name) in (0u32..).zip(passed.dictionary.names()) {
            self.text.execute(params![number, &**name])?;
        }
        for (text, id) in &self.texts {
            self.text.execute(params![id, text])?;
        }
        Ok(())
    }

    /// True if any row about managed memory was inserted.
    pub fn has_managed(&self) -> bool {
        self.managed.any
    }

    /// Describes data that could not be inserted unchanged.
    pub fn notes(&self) -> Vec<String> {
        self.ranges.notes()
    }

    fn kernel(&mut self, row: &Kernel, scope: &Scope<'_>) -> Result<()> {
        let origin = scope.session.start;
        let config = scope.dictionary.launch_config(row.config);
        let mangled = self.name(config.name, scope.dictionary);
        let (full, short) = match self.names.get(&config.name) {
            Some(&known) => known,
            None => {
                let readable = demangled(scope.dictionary.name(config.name));
                let ids = (self.text(&readable), self.text(base(&readable)));
                self.names.insert(config.name, ids);
                ids
            }
        };
        let [at, module, parent, operators] = self.captured(row.graph_node_id, scope.dictionary);
        let ([gx, gy, gz], [bx, by, bz], [cx, cy, cz]) = (config.grid, config.block, config.cluster);
        self.kernel.execute(params![
            row.start.since(origin) as i64,
            row.end.since(origin) as i64,
            row.device.0,
            row.context.0,
            row.stream.0,
            row.correlation.0,
            global_pid(scope.session),
            full,
            short,
            mangled,
            // nsys counts from 1; in the trace, 0 is the regular launch.
            u32::from(config.launch_type) + 1,
            config.registers_per_thread,
            gx,
            gy,
            gz,
            bx,
            by,
            bz,
            config.static_shared_bytes,
            config.dynamic_shared_bytes,
            config.local_bytes_per_thread,
            0,
            0,
            config.shared_executed_bytes,
            node(row.graph_node_id),
            (row.graph_id != 0).then_some(row.graph_id),
            cx,
            cy,
            cz,
            at,
            module,
            parent,
            operators,
        ])?;
        Ok(())
    }

    fn copy(&mut self, row: &Copy, scope: &Scope<'_>) -> Result<()> {
        let since = |at: Timestamp| at.since(scope.session.start) as i64;
        let Copy { device, context, stream, correlation, .. } = row;
        let [at, module, parent, operators] = self.captured(row.graph_node_id, scope.dictionary);
        self.copy.execute(params![
            since(row.start),
            since(row.end),
            device.0,
            context.0,
            stream.0,
            correlation.0,
            global_pid(scope.session),
            row.bytes as i64,
            kinds::copy(row.kind),
            kinds::memory(row.source),
            kinds::memory(row.destination),
            row.peers[0].0,
            row.peers[1].0,
            node(row.graph_node_id),
            1,
            at,
            module,
            parent,
            operators,
        ])?;
        Ok(())
    }

    fn memset(&mut self, row: &Memset, scope: &Scope<'_>) -> Result<()> {
        let since = |at: Timestamp| at.since(scope.session.start) as i64;
        let [at, module, parent, operators] = self.captured(row.graph_node_id, scope.dictionary);
        self.memset.execute(params![
            since(row.start),
            since(row.end),
            row.device.0,
            row.context.0,
            row.stream.0,
            row.correlation.0,
            global_pid(scope.session),
            row.value,
            row.bytes as i64,
            node(row.graph_node_id),
            kinds::memory(row.memory),
            at,
            module,
            parent,
            operators,
        ])?;
        Ok(())
    }

    fn call(&mut self, row: &ApiCall, scope: &Scope<'_>) -> Result<()> {
        let since = |at: Timestamp| at.since(scope.session.start) as i64;
        let function = scope.dictionary.api_function(row.function);
        let class = u32::from(function.is_some_and(|function| function.domain == ApiDomain::Driver));
        let name = function.map_or(NameId::UNKNOWN, |function| function.name);
        let name = self.name(name, scope.dictionary);
        self.call.execute(params![
            since(row.start),
            since(row.end),
            class,
            global_tid(scope.session, row.thread),
            row.correlation.0,
            name,
            row.return_value,
        ])?;
        Ok(())
    }

    fn sync(&mut self, row: &Sync, scope: &Scope<'_>) -> Result<()> {
        let since = |at: Timestamp| at.since(scope.session.start) as i64;
        self.sync.execute(params![
            since(row.start),
            since(row.end),
            device_of(row.context, scope),
            row.context.0,
            row.stream.0,
            row.correlation.0,
            global_pid(scope.session),
            kinds::sync(row.kind),
            row.event_id,
            row.event_sync_id as i64,
        ])?;
        Ok(())
    }

    fn event(&mut self, row: &CudaEvent, scope: &Scope<'_>) -> Result<()> {
        self.event.execute(params![
            device_of(row.context, scope),
            row.context.0,
            row.stream.0,
            row.correlation.0,
            global_pid(scope.session),
            row.event_id,
            row.event_sync_id as i64,
        ])?;
        Ok(())
    }

    fn overhead(&mut self, row: &Overhead, scope: &Scope<'_>) -> Result<()> {
        let since = |at: Timestamp| at.since(scope.session.start) as i64;
        self.overhead.execute(params![
            since(row.start),
            since(row.end),
            1,
            global_tid(scope.session, row.thread),
            row.correlation.0,
            kinds::overhead(row.kind),
        ])?;
        Ok(())
    }

    /// Returns false for events without a row in nsys: changes of a pool alone.
    fn memory(&mut self, row: &MemoryEvent, scope: &Scope<'_>) -> Result<bool> {
        let operation = match row.operation {
            MemoryOperation::Allocation => 0,
            MemoryOperation::Release => 1,
            _ => return Ok(false),
        };
        let name = (row.name != NameId::UNKNOWN).then(|| scope.dictionary.name(row.name));
        let kind = match (row.kind, name) {
            (MemoryKind::Device, Some(_)) => DEVICE_STATIC,
            (MemoryKind::Managed, Some(_)) => MANAGED_STATIC,
            (kind, _) => kinds::memory(kind),
        };
        let of_pool = |value: u64| (row.pool != 0).then_some(value as i64);
        self.memory.execute(params![
            row.at.since(scope.session.start) as i64,
            global_pid(scope.session),
            row.device.0,
            row.context.0,
            row.address as i64,
            0,
            row.bytes as i64,
            kind,
            operation,
            name,
            row.correlation.0,
            (row.stream.0 != u32::MAX).then_some(row.stream.0),
            of_pool(row.pool),
            of_pool(row.pool_threshold),
            of_pool(row.pool_bytes),
            of_pool(row.pool_used),
        ])?;
        Ok(true)
    }

    fn range(&mut self, begin: &RangeEvent, end: Option<(Timestamp, ThreadId)>, scope: &Scope<'_>) -> Result<()> {
        let origin = scope.session.start;
        let kind = match begin.kind {
            RangeEventKind::Mark => MARK,
            RangeEventKind::Start => START_END,
            _ => PUSH_POP,
        };
        let known = self.domains.len() as u32 + 1;
        // nsys assigns numbers to domains; 0 is the unnamed one.
        let domain = match scope.dictionary.name(begin.domain) {
            "" => 0,
            _ => *self.domains.entry(begin.domain).or_insert(known),
        };
        let (unsigned, signed, float) = match begin.payload {
            Payload::None => (None, None, None),
            Payload::Unsigned(number) => (Some(number as i64), None, None),
            Payload::Signed(number) => (None, Some(number), None),
            Payload::Float(number) => (None, None, Some(number)),
        };
        let text = self.name(begin.message, scope.dictionary);
        // Ranges may precede the start of tracing, which began with CUDA.
        let since = |at: Timestamp| at.nanos().wrapping_sub(origin.nanos()) as i64;
        let other_thread = end.map(|(_, thread)| thread).filter(|&thread| thread != begin.thread);
        self.range.execute(params![
            since(begin.at),
            end.map(|(at, _)| since(at)),
            kind,
            (begin.range_id != 0).then_some(begin.range_id as i64),
            (begin.color != 0).then_some(begin.color),
            text,
            global_tid(scope.session, begin.thread),
            other_thread.map(|thread| global_tid(scope.session, thread)),
            domain,
            unsigned,
            signed,
            float,
        ])?;
        Ok(())
    }

    /// Id of a name in the trace; a lost name is added as a text.
    fn name(&mut self, id: NameId, dictionary: &Dictionary) -> u32 {
        if (id.0 as usize) < dictionary.names().len() { id.0 } else { self.text("?") }
    }

    /// Ids of the texts of [`CAPTURED`]; `None` where unknown.
    fn captured(&mut self, node: u64, dictionary: &Dictionary) -> [Option<u32>; 4] {
        let Self { captured, texts, .. } = self;
        let Some(Captured { at, module, parent, operators }) = captured.get(node, dictionary) else { return [None; 4] };
        [Some(at), module.as_ref(), parent.as_ref(), operators.as_ref()]
            .map(|text| text.map(|text| numbered(texts, text)))
    }

    /// Id of a text that is not a name in the trace.
    fn text(&mut self, text: &str) -> u32 {
        numbered(&mut self.texts, text)
    }
}

fn device_of(context: ContextId, scope: &Scope<'_>) -> u32 {
    scope.dictionary.context(context).map_or(0, |context| context.device.0)
}

fn numbered(texts: &mut FxHashMap<String, u32>, text: &str) -> u32 {
    if let Some(&id) = texts.get(text) {
        return id;
    }
    let id = FIRST_DERIVED + texts.len() as u32;
    texts.insert(text.to_owned(), id);
    id
}

fn node(id: u64) -> Option<i64> {
    (id != 0).then_some(id as i64)
}
