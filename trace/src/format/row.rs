//! Assigns the fields of records to columns and predictors.
//!
//! One description serves both directions. Column ids are part of the format: a field keeps its id forever, a
//! new field or a new predictor gets a new id (at most [`MAX_COLUMNS`](super::column::MAX_COLUMNS)), and
//! readers skip unknown ids. A field that is missing in the file reads as if all of its differences were 0.

use super::column::{Codec, Field};
use super::varint::{unzigzag, zigzag};
use crate::record::{
    ApiCall, ApiFunctionId, ContextId, Copy, CopyKind, CorrelationId, CudaEvent, DeviceId, HostSample, InterpreterLock,
    Kernel, LaunchConfigId, ManagedEvent, ManagedKind, MemoryEvent, MemoryKind, MemoryOperation, Memset, NameId,
    Overhead, OverheadKind, Payload, RangeEvent, RangeEventKind, Record, StackId, StreamId, Sync, SyncKind, ThreadId,
    ThreadState,
};

/// A kind of record as rows of columns.
pub(super) trait RecordRow: Default + std::marker::Copy + Into<Record> {
    /// Number of the kind in the file.
    const KIND: u8;
    /// Number of columns known to this version; ids start at 0.
    const COLUMNS: usize;
    /// Passes every field to `codec`; fields needed by a predictor precede it.
    fn transfer<C: Codec>(&mut self, codec: &mut C);
}

macro_rules! rows {
    ($($number:literal $kind:ident $variant:ident $columns:literal |$row:ident, $codec:ident| $transfer:block)*) => {$(
        impl RecordRow for $kind {
            const KIND: u8 = $number;
            const COLUMNS: usize = $columns;

            #[inline]
            fn transfer<C: Codec>(&mut self, $codec: &mut C) {
                let $row = self;
                $transfer
            }
        }

        impl From<$kind> for Record {
            fn from(row: $kind) -> Self {
                Self::$variant(row)
            }
        }
    )*};
}

// Number in the file, kind, variant of `Record`, number of columns, columns.
rows! {
    1 Kernel Kernel 9 |row, codec| {
        codec.raw(0, &mut row.stream);
        codec.raw(1, &mut row.config);
        codec.span(2, row.stream.0, Some(row.config.0), &mut row.start, &mut row.end);
        codec.step(4, &mut row.correlation);
        codec.raw(5, &mut row.device);
        codec.raw(6, &mut row.context);
        codec.raw(7, &mut row.graph_id);
        codec.step(8, &mut row.graph_node_id);
    }
    2 Copy Copy 15 |row, codec| {
        codec.raw(0, &mut row.stream);
        codec.raw(1, &mut row.bytes);
        codec.span(2, row.stream.0, None, &mut row.start, &mut row.end);
        codec.step(4, &mut row.correlation);
        codec.raw(5, &mut row.device);
        codec.raw(6, &mut row.context);
        codec.raw(7, &mut row.graph_id);
        codec.step(8, &mut row.graph_node_id);
        codec.raw(9, &mut row.kind);
        codec.raw(10, &mut row.source);
        codec.raw(11, &mut row.destination);
        codec.raw(12, &mut row.is_async);
        codec.relative(13, row.device, &mut row.peers[0]);
        codec.relative(14, row.device, &mut row.peers[1]);
    }
    3 Memset Memset 12 |row, codec| {
        codec.raw(0, &mut row.stream);
        codec.raw(1, &mut row.bytes);
        codec.span(2, row.stream.0, None, &mut row.start, &mut row.end);
        codec.step(4, &mut row.correlation);
        codec.raw(5, &mut row.device);
        codec.raw(6, &mut row.context);
        codec.raw(7, &mut row.graph_id);
        codec.step(8, &mut row.graph_node_id);
        codec.raw(9, &mut row.memory);
        codec.raw(10, &mut row.is_async);
        codec.raw(11, &mut row.value);
    }
    4 ApiCall Api 6 |row, codec| {
        codec.raw(0, &mut row.thread);
        codec.raw(1, &mut row.function);
        codec.span(2, row.thread.0, None, &mut row.start, &mut row.end);
        codec.step(4, &mut row.correlation);
        codec.raw(5, &mut row.return_value);
    }
    5 Sync Sync 8 |row, codec| {
        codec.raw(0, &mut row.stream);
        codec.raw(1, &mut row.kind);
        // Host times, but the record contains no thread: all rows share one lane.
        codec.span(2, 0, None, &mut row.start, &mut row.end);
        codec.step(4, &mut row.correlation);
        codec.raw(5, &mut row.context);
        codec.raw(6, &mut row.event_id);
        codec.step(7, &mut row.event_sync_id);
    }
    6 CudaEvent Event 5 |row, codec| {
        codec.raw(0, &mut row.stream);
        codec.raw(1, &mut row.event_id);
        codec.step(2, &mut row.correlation);
        codec.raw(3, &mut row.context);
        codec.step(4, &mut row.event_sync_id);
    }
    7 Overhead Overhead 5 |row, codec| {
        codec.raw(0, &mut row.thread);
        codec.raw(1, &mut row.kind);
        codec.span(2, row.thread.0, None, &mut row.start, &mut row.end);
        codec.step(4, &mut row.correlation);
    }
    8 RangeEvent Range 11 |row, codec| {
        codec.raw(0, &mut row.thread);
        codec.raw(1, &mut row.kind);
        // A point in time: the length is 0 in every row and its column takes no byte.
        let mut end = row.at;
        codec.span(2, row.thread.0, None, &mut row.at, &mut end);
        codec.raw(4, &mut row.domain);
        codec.raw(5, &mut row.message);
        codec.raw(6, &mut row.category);
        codec.raw(7, &mut row.color);
        codec.step(8, &mut row.range_id);
        let (mut kind, mut bits) = payload_to_bits(row.payload);
        codec.raw(9, &mut kind);
        codec.raw(10, &mut bits);
        row.payload = payload_from_bits(kind, bits);
    }
    9 HostSample Sample 14 |row, codec| {
        codec.raw(0, &mut row.thread);
        codec.raw(1, &mut row.state);
        codec.span(2, row.thread.0, None, &mut row.since, &mut row.at);
        codec.raw(4, &mut row.on_cpu);
        codec.raw(5, &mut row.runnable);
        codec.raw(6, &mut row.stack);
        codec.raw(7, &mut row.interpreter_lock);
        codec.raw(8, &mut row.collecting_garbage);
        codec.raw(9, &mut row.children);
        codec.raw(10, &mut row.children_running);
        codec.raw(11, &mut row.children_in_io);
        // Id plus 1: files without the column yield none.
        let mut earlier = row.earlier.map_or(0, |stack| stack.0.saturating_add(1));
        codec.raw(12, &mut earlier);
        row.earlier = earlier.checked_sub(1).map(StackId);
        codec.raw(13, &mut row.read_within);
    }
    10 MemoryEvent Memory 15 |row, codec| {
        codec.raw(0, &mut row.device);
        codec.raw(1, &mut row.operation);
        // A point in time, like a range event.
        let mut end = row.at;
        codec.span(2, row.device.0, None, &mut row.at, &mut end);
        codec.step(4, &mut row.correlation);
        codec.raw(5, &mut row.kind);
        codec.raw(6, &mut row.context);
        codec.raw(7, &mut row.stream);
        codec.step(8, &mut row.address);
        codec.raw(9, &mut row.bytes);
        codec.raw(10, &mut row.name);
        codec.step(11, &mut row.pool);
        codec.step(12, &mut row.pool_bytes);
        codec.step(13, &mut row.pool_used);
        codec.raw(14, &mut row.pool_threshold);
    }
    11 ManagedEvent Managed 8 |row, codec| {
        codec.raw(0, &mut row.source);
        codec.raw(1, &mut row.kind);
        codec.span(2, row.source.0, None, &mut row.start, &mut row.end);
        codec.step(4, &mut row.address);
        codec.raw(5, &mut row.destination);
        codec.raw(6, &mut row.value);
        codec.raw(7, &mut row.cause);
    }
}

/// Type and value of a payload in the format.
fn payload_to_bits(payload: Payload) -> (u32, u64) {
    match payload {
        Payload::None => (0, 0),
        Payload::Unsigned(value) => (1, value),
        Payload::Signed(value) => (2, zigzag(value.cast_unsigned())),
        Payload::Float(value) => (3, value.to_bits()),
    }
}

fn payload_from_bits(kind: u32, bits: u64) -> Payload {
    match kind {
        1 => Payload::Unsigned(bits),
        2 => Payload::Signed(unzigzag(bits).cast_signed()),
        3 => Payload::Float(f64::from_bits(bits)),
        _ => Payload::None,
    }
}

macro_rules! number_fields {
    ($($type:ident)*) => {$(
        impl Field for $type {
            #[inline]
            fn number(self) -> u64 {
                self.into()
            }

            #[inline]
            fn from_number(number: u64) -> Option<Self> {
                number.try_into().ok()
            }
        }
    )*};
}

number_fields!(u8 u16 u32 u64);

impl Field for bool {
    #[inline]
    fn number(self) -> u64 {
        self.into()
    }

    #[inline]
    fn from_number(number: u64) -> Option<Self> {
        Some(number != 0)
    }
}

macro_rules! id_fields {
    ($($id:ident),*) => {$(
        impl Field for $id {
            #[inline]
            fn number(self) -> u64 {
                self.0.into()
            }

            #[inline]
            fn from_number(number: u64) -> Option<Self> {
                number.try_into().ok().map(Self)
            }
        }
    )*};
}

id_fields!(DeviceId, ContextId, StreamId, CorrelationId, ThreadId, NameId, LaunchConfigId, ApiFunctionId, StackId);

/// Numbers in the format, fixed here so that reordering an enum cannot change files. Numbers of newer
/// versions read as `Unknown`.
macro_rules! enum_fields {
    ($($name:ident { $($number:literal $variant:ident),* })*) => {$(
        impl Field for $name {
            #[inline]
            fn number(self) -> u64 {
                match self {
                    Self::Unknown => 0,
                    $(Self::$variant => $number,)*
                }
            }

            #[inline]
            fn from_number(number: u64) -> Option<Self> {
                Some(match number {
                    $($number => Self::$variant,)*
                    _ => Self::Unknown,
                })
            }
        }
    )*};
}

enum_fields! {
    CopyKind { 1 HostToDevice, 2 DeviceToHost, 3 DeviceToDevice, 4 HostToHost, 5 PeerToPeer }
    MemoryOperation { 1 Allocation, 2 Release, 3 PoolCreated, 4 PoolDestroyed, 5 PoolTrimmed }
    ManagedKind { 1 HostToDevice, 2 DeviceToHost, 3 DeviceToDevice, 4 HostFault, 5 DeviceFault }
    MemoryKind { 1 Pageable, 2 Pinned, 3 Device, 4 Array, 5 Managed }
    SyncKind { 1 Event, 2 StreamWaitEvent, 3 Stream, 4 Context }
    OverheadKind {
        1 DriverCompiler, 2 BufferFlush, 3 Instrumentation, 4 Resource, 5 RuntimeModuleLoading,
        6 LazyFunctionLoading, 7 CommandBufferFull, 8 ActivityBufferRequest, 9 UnifiedMemoryInit
    }
    RangeEventKind { 1 Push, 2 Pop, 3 Start, 4 End, 5 Mark }
    ThreadState {
        1 Running, 2 Futex, 3 Poll, 4 Io, 5 Disk, 6 Sleep, 7 Child, 8 Memory, 9 Driver, 10 Other
    }
    InterpreterLock { 1 ThisThread, 2 OtherThread, 3 Free }
}
