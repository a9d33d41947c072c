//! Turns rows of the file into records.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::pytorch_range;
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, ContextId, Copy, CopyKind, CorrelationId, CudaEvent, DeviceId, DeviceWork, Kernel,
    LaunchConfig, ManagedEvent, ManagedKind, MemoryEvent, MemoryKind, MemoryOperation, Memset, NameId, Overhead,
    OverheadKind, Payload, RangeEvent, RangeEventKind, Record, StreamId, Sync, SyncKind, ThreadId, Timestamp,
};
use rusqlite::types::FromSql;
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Result, Row};
use rustc_hash::FxHashMap;

use super::queries::{RowSource, domains};
use super::schema::{Schema, text};

/// Keeps calls without correlation from being matched with device work without correlation.
const CALL_WITHOUT_CORRELATION: u32 = u32::MAX;

/// Columns of a row, read in sequence.
pub(super) struct Fields<'r> {
    row: &'r Row<'r>,
    next: usize,
}

impl<'r> Fields<'r> {
    pub(super) fn of(row: &'r Row<'r>) -> Self {
        Self { row, next: 0 }
    }

    fn get<T: FromSql>(&mut self) -> Result<Option<T>> {
        self.next += 1;
        self.row.get(self.next - 1)
    }

    fn text(&mut self) -> Result<Option<String>> {
        self.next += 1;
        text(self.row, self.next - 1)
    }

    /// Reads a number; `None` if it is NULL or out of range.
    fn id(&mut self) -> Result<Option<u32>> {
        Ok(self.get::<i64>()?.and_then(|number| u32::try_from(number).ok()))
    }

    /// Same as `id`, or 0.
    fn small(&mut self) -> Result<u32> {
        Ok(self.id()?.unwrap_or(0))
    }

    /// Reads the bits of a number; 0 if NULL.
    fn wide(&mut self) -> Result<u64> {
        Ok(self.get::<i64>()?.unwrap_or(0) as u64)
    }

    /// Reads a size; 0 if NULL or negative.
    fn size(&mut self) -> Result<u64> {
        Ok(self.get::<i64>()?.and_then(|number| u64::try_from(number).ok()).unwrap_or(0))
    }

    fn three(&mut self) -> Result<[u32; 3]> {
        Ok([self.small()?, self.small()?, self.small()?])
    }

    /// Extracts the thread from the number that also holds its process.
    fn thread(&mut self) -> Result<Option<ThreadId>> {
        Ok(self.get::<i64>()?.map(|global| ThreadId((global & 0xff_ffff) as u32)))
    }
}

/// Converts rows to records.
pub(super) struct RowReader<'c> {
    /// `None` if the file has no texts.
    text: Option<CachedStatement<'c>>,
    /// Names by text, and the number that PyTorch wrote in it.
    texts: FxHashMap<i64, (NameId, Option<u64>)>,
    domains: FxHashMap<i64, String>,
    start: Timestamp,
}

impl<'c> RowReader<'c> {
    pub(super) fn new(connection: &'c Connection, schema: &Schema, start: Timestamp) -> Result<Self> {
        Ok(Self {
            text: match schema.has_columns("StringIds", &["id", "value"]) {
                true => Some(connection.prepare_cached("SELECT value FROM StringIds WHERE id = ?")?),
                false => None,
            },
            texts: FxHashMap::default(),
            domains: domains(connection, schema)?,
            start,
        })
    }

    /// Converts a row of `source`; returns the time at which it was complete, and the record.
    pub(super) fn record(
        &mut self,
        source: RowSource,
        row: &mut Fields<'_>,
        dictionary: &mut Dictionary,
    ) -> Result<(Timestamp, Record)> {
        let at = self.time(row)?;
        let record = match source {
            RowSource::Kernel => self.kernel(row, dictionary)?,
            RowSource::Graph => self.graph(row, dictionary)?,
            RowSource::Copy => self.copy(row)?,
            RowSource::Memset => self.memset(row)?,
            RowSource::Call => self.call(row, dictionary)?,
            RowSource::Sync => self.sync(row)?,
            RowSource::Event => event(row)?,
            RowSource::Overhead => self.overhead(row)?,
            RowSource::Memory => self.memory(row, dictionary)?,
            RowSource::HostFault => self.host_fault(row)?,
            RowSource::DeviceFault => self.device_fault(row)?,
            RowSource::Range => self.range(at, row, dictionary)?,
        };
        Ok((at, record))
    }

    /// Reads the leading columns of every device operation, in the order of the queries.
    fn operation(&self, row: &mut Fields<'_>) -> Result<DeviceWork> {
        let (start, end) = self.span(row)?;
        Ok(DeviceWork {
            start,
            end,
            device: DeviceId(row.small()?),
            context: ContextId(row.small()?),
            stream: StreamId(row.small()?),
            correlation: CorrelationId(row.small()?),
            bytes: 0,
            graph_id: row.small()?,
            graph_node_id: row.wide()?,
        })
    }

    fn kernel(&mut self, row: &mut Fields<'_>, dictionary: &mut Dictionary) -> Result<Record> {
        let work = self.operation(row)?;
        let (mangled, readable) = (row.get::<i64>()?, row.get::<i64>()?);
        let config = LaunchConfig {
            name: self.name(mangled.or(readable), dictionary)?.0,
            grid: row.three()?,
            block: row.three()?,
            cluster: row.three()?,
            registers_per_thread: u16::try_from(row.small()?).unwrap_or(0),
            static_shared_bytes: row.small()?,
            dynamic_shared_bytes: row.small()?,
            shared_executed_bytes: row.small()?,
            local_bytes_per_thread: row.small()?,
            // A regular launch is 0 here and 1 in the file.
            launch_type: row.small()?.saturating_sub(1) as u8,
        };
        Ok(Record::Kernel(Kernel { config: dictionary.intern_launch_config(config), ..work.into() }))
    }

    /// A launch of a graph without records of its nodes.
    fn graph(&self, row: &mut Fields<'_>, dictionary: &mut Dictionary) -> Result<Record> {
        let work = self.operation(row)?;
        Ok(Record::Kernel(Kernel { config: dictionary.intern_whole_graph(work.graph_id), ..work.into() }))
    }

    fn copy(&self, row: &mut Fields<'_>) -> Result<Record> {
        let mut work = self.operation(row)?;
        work.bytes = row.size()?;
        let kind = match row.small()? {
            1 | 3 => CopyKind::HostToDevice,
            2 | 4 => CopyKind::DeviceToHost,
            5..=8 => CopyKind::DeviceToDevice,
            9 => CopyKind::HostToHost,
            10 => CopyKind::PeerToPeer,
            11 => return Self::migration(ManagedKind::HostToDevice, work, row),
            12 => return Self::migration(ManagedKind::DeviceToHost, work, row),
            13 => return Self::migration(ManagedKind::DeviceToDevice, work, row),
            _ => CopyKind::Unknown,
        };
        let (source, destination) = (memory_kind(row.get()?), memory_kind(row.get()?));
        let mut peer = || -> Result<DeviceId> { Ok(row.id()?.map_or(work.device, DeviceId)) };
        let peers = [peer()?, peer()?];
        Ok(Record::Copy(Copy { kind, source, destination, peers, ..work.into() }))
    }

    /// Page migration; `row` is at the memory kinds.
    fn migration(kind: ManagedKind, work: DeviceWork, row: &mut Fields<'_>) -> Result<Record> {
        row.next += 2;
        let (source, destination) = (row.id()?, row.id()?);
        let at = |id: Option<u32>| id.map_or(work.device, DeviceId);
        let (source, destination) = match kind {
            ManagedKind::HostToDevice => (ManagedEvent::HOST, at(destination)),
            ManagedKind::DeviceToHost => (at(source), ManagedEvent::HOST),
            _ => (at(source), at(destination)),
        };
        let (address, cause) = (row.wide()?, row.small()?);
        let DeviceWork { start, end, bytes: value, .. } = work;
        let event = ManagedEvent { start, end, kind, source, destination, address, value, cause };
        Ok(Record::Managed(event))
    }

    fn host_fault(&self, row: &mut Fields<'_>) -> Result<Record> {
        let at = self.time(row)?;
        let (kind, address, value) = (ManagedKind::HostFault, row.wide()?, row.wide()?);
        Ok(Record::Managed(ManagedEvent { start: at, end: at, kind, address, value, ..ManagedEvent::default() }))
    }

    fn device_fault(&self, row: &mut Fields<'_>) -> Result<Record> {
        let (start, end) = self.span(row)?;
        let (kind, source) = (ManagedKind::DeviceFault, DeviceId(row.small()?));
        let (address, value, cause) = (row.wide()?, row.wide()?, row.small()?);
        let event = ManagedEvent { start, end, kind, source, address, value, cause, ..ManagedEvent::default() };
        Ok(Record::Managed(event))
    }

    fn memset(&self, row: &mut Fields<'_>) -> Result<Record> {
        let mut work = self.operation(row)?;
        work.bytes = row.size()?;
        let (memory, value) = (memory_kind(row.get()?), row.small()?);
        Ok(Record::Memset(Memset { memory, value, ..work.into() }))
    }

    fn call(&mut self, row: &mut Fields<'_>, dictionary: &mut Dictionary) -> Result<Record> {
        let ((start, end), thread) = (self.span(row)?, row.thread()?);
        let correlation = row.id()?.unwrap_or(CALL_WITHOUT_CORRELATION);
        let domain = if row.small()? == 1 { ApiDomain::Driver } else { ApiDomain::Runtime };
        let name = row.get()?;
        let (name, _) = self.name(name, dictionary)?;
        let function = dictionary.intern_api_function(ApiFunction { domain, callback_id: 0, name });
        let call = ApiCall {
            start,
            end,
            thread: thread.unwrap_or_default(),
            correlation: CorrelationId(correlation),
            function,
            return_value: row.small()?,
        };
        Ok(Record::Api(call))
    }

    fn sync(&self, row: &mut Fields<'_>) -> Result<Record> {
        let (start, end) = self.span(row)?;
        let (context, stream) = (ContextId(row.small()?), StreamId(row.id()?.unwrap_or(u32::MAX)));
        let correlation = CorrelationId(row.small()?);
        let kind = match row.small()? {
            1 => SyncKind::Event,
            2 => SyncKind::StreamWaitEvent,
            3 => SyncKind::Stream,
            4 => SyncKind::Context,
            _ => SyncKind::Unknown,
        };
        let (event_id, event_sync_id) = (row.id()?.unwrap_or(u32::MAX), event_sync_id(row)?);
        Ok(Record::Sync(Sync { start, end, kind, context, stream, correlation, event_id, event_sync_id }))
    }

    fn overhead(&self, row: &mut Fields<'_>) -> Result<Record> {
        let ((start, end), thread) = (self.span(row)?, row.thread()?.unwrap_or_default());
        let correlation = CorrelationId(row.small()?);
        let kind = match row.small()? {
            2 => OverheadKind::DriverCompiler,
            3 => OverheadKind::BufferFlush,
            4 => OverheadKind::Instrumentation,
            5 => OverheadKind::Resource,
            6 => OverheadKind::RuntimeModuleLoading,
            7 => OverheadKind::LazyFunctionLoading,
            8 => OverheadKind::CommandBufferFull,
            9 => OverheadKind::ActivityBufferRequest,
            10 => OverheadKind::UnifiedMemoryInit,
            _ => OverheadKind::Unknown,
        };
        Ok(Record::Overhead(Overhead { start, end, kind, thread, correlation }))
    }

    fn memory(&mut self, row: &mut Fields<'_>, dictionary: &mut Dictionary) -> Result<Record> {
        let at = self.time(row)?;
        let operation = match row.get::<i64>()? {
            Some(0) => MemoryOperation::Allocation,
            Some(1) => MemoryOperation::Release,
            _ => MemoryOperation::Unknown,
        };
        let event = MemoryEvent {
            at,
            operation,
            kind: memory_kind(row.get()?),
            device: DeviceId(row.small()?),
            context: ContextId(row.small()?),
            stream: StreamId(row.id()?.unwrap_or(u32::MAX)),
            correlation: CorrelationId(row.small()?),
            address: row.wide()?,
            bytes: row.size()?,
            name: row.text()?.map_or(NameId::UNKNOWN, |name| dictionary.intern_name(&name)),
            pool: row.wide()?,
            pool_bytes: row.size()?,
            pool_used: row.size()?,
            pool_threshold: row.wide()?,
        };
        Ok(Record::Memory(event))
    }

    fn range(&mut self, at: Timestamp, row: &mut Fields<'_>, dictionary: &mut Dictionary) -> Result<Record> {
        // Phase and place serve only to order the rows.
        row.next += 2;
        let (begins, id) = (row.small()? == 1, row.wide()?);
        // Start and end of the complete range.
        row.next += 2;
        let kind = match (row.small()?, begins) {
            (34, _) => RangeEventKind::Mark,
            (60, true) => RangeEventKind::Start,
            (60, false) => RangeEventKind::End,
            (_, true) => RangeEventKind::Push,
            (_, false) => RangeEventKind::Pop,
        };
        let (thread, end_thread) = (row.thread()?.unwrap_or_default(), row.thread()?);
        let range_id = row.get::<i64>()?;
        let color = row.wide()? as u32;
        let (text, text_id) = (row.text()?, row.get::<i64>()?);
        let domain = row.get::<i64>()?.and_then(|domain| self.domains.get(&domain));
        let domain = dictionary.intern_name(domain.map_or("", String::as_str));
        let (message, number) = match (begins, text) {
            (false, _) => (dictionary.intern_name(""), None),
            (true, Some(text)) => named(&text, dictionary),
            (true, None) => self.name(text_id, dictionary)?,
        };
        let event = RangeEvent {
            at,
            thread: if begins { thread } else { end_thread.unwrap_or(thread) },
            kind,
            domain,
            message,
            category: dictionary.intern_name(""),
            color,
            range_id: match kind {
                RangeEventKind::Start | RangeEventKind::End => range_id.map_or(id, |id| id as u64),
                _ => 0,
            },
            payload: match (if begins { payload(row)? } else { Payload::None }, number) {
                (Payload::None, Some(number)) => Payload::Unsigned(number),
                (payload, _) => payload,
            },
        };
        Ok(Record::Range(event))
    }

    /// Reads nanoseconds since the start of tracing. NULL stays "not recorded".
    fn time(&self, row: &mut Fields<'_>) -> Result<Timestamp> {
        Ok(row.get()?.map_or(Timestamp::ZERO, |since| self.time_of_day(since)))
    }

    fn time_of_day(&self, since: i64) -> Timestamp {
        Timestamp::from_nanos(self.start.nanos().saturating_add_signed(since).max(1))
    }

    /// Reads an end and a start. Both stay "not recorded" if both are zero, one is NULL, or the end is before the
    /// start.
    fn span(&self, row: &mut Fields<'_>) -> Result<(Timestamp, Timestamp)> {
        Ok(match (row.get()?, row.get()?) {
            (Some(end), Some(start)) if start <= end && (start, end) != (0, 0) => {
                (self.time_of_day(start), self.time_of_day(end))
            }
            _ => (Timestamp::ZERO, Timestamp::ZERO),
        })
    }

    fn name(&mut self, id: Option<i64>, dictionary: &mut Dictionary) -> Result<(NameId, Option<u64>)> {
        let Some(id) = id else { return Ok((dictionary.intern_name(""), None)) };
        if let Some(&known) = self.texts.get(&id) {
            return Ok(known);
        }
        let found = self.text.as_mut().map(|texts| texts.query_row([id], |row| text(row, 0)).optional()).transpose()?;
        let text = found.flatten().flatten();
        let name = named(text.as_deref().unwrap_or("?"), dictionary);
        self.texts.insert(id, name);
        Ok(name)
    }
}

/// A text without the numbers that PyTorch writes in it, and the last of these.
fn named(text: &str, dictionary: &mut Dictionary) -> (NameId, Option<u64>) {
    let (name, number) = pytorch_range::split(text);
    (dictionary.intern_name(&name), number)
}

/// The record of a CUDA event, which has no time.
fn event(row: &mut Fields<'_>) -> Result<Record> {
    Ok(Record::Event(CudaEvent {
        context: ContextId(row.small()?),
        stream: StreamId(row.small()?),
        correlation: CorrelationId(row.small()?),
        event_id: row.small()?,
        event_sync_id: event_sync_id(row)?,
    }))
}

/// Event id; 0 if the tracing library provided none, which nsys also writes as the largest 32-bit number.
fn event_sync_id(row: &mut Fields<'_>) -> Result<u64> {
    Ok(row.get::<i64>()?.filter(|&id| id != i64::from(u32::MAX)).unwrap_or(0) as u64)
}

fn payload(row: &mut Fields<'_>) -> Result<Payload> {
    let (unsigned, signed, float) = (row.get::<i64>()?, row.get::<i64>()?, row.get::<f64>()?);
    let (unsigned_32, signed_32, float_32) = (row.get::<i64>()?, row.get::<i64>()?, row.get::<f64>()?);
    let unsigned = unsigned.or(unsigned_32).map(|number| Payload::Unsigned(number as u64));
    let signed = signed.or(signed_32).map(Payload::Signed);
    Ok(unsigned.or(signed).or(float.or(float_32).map(Payload::Float)).unwrap_or(Payload::None))
}

fn memory_kind(number: Option<i64>) -> MemoryKind {
    match number {
        Some(0) => MemoryKind::Pageable,
        Some(1) => MemoryKind::Pinned,
        Some(2 | 5) => MemoryKind::Device,
        Some(3) => MemoryKind::Array,
        Some(4 | 6) => MemoryKind::Managed,
        _ => MemoryKind::Unknown,
    }
}
