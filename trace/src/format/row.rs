//! Which field of which record is which column, and what predicts it.
//!
//! One description serves both directions. Column ids are part of the format: a field keeps its id for ever, a new
//! field or a new predictor takes a new id (at most [`MAX_COLUMNS`](super::column::MAX_COLUMNS)), and readers step
//! over ids that they do not know. A field that is missing in the file reads as if every difference were 0.

use super::column::{Codec, Field};
use super::varint::{unzigzag, zigzag};
use crate::record::{
    ApiCall, ApiFunctionId, ContextId, Copy, CopyKind, CorrelationId, CudaEvent, DeviceId, HostSample, InterpreterLock,
    Kernel, LaunchConfigId, ManagedEvent, ManagedKind, MemoryEvent, MemoryKind, MemoryOperation, Memset, NameId,
    Overhead, OverheadKind, Payload, RangeEvent, RangeEventKind, Record, StackId, StreamId, Sync, SyncKind, ThreadId,
    ThreadState, Timestamp,
};

/// A kind of record as rows of columns.
pub(super) trait Row: Default + std::marker::Copy + Into<Record> {
    /// Number of the kind in the file.
    const KIND: u8;
    /// Columns that this version knows: ids 0 up to this.
    const COLUMNS: usize;
    /// Presents every field to `codec`; what a predictor needs comes before it.
    fn transfer<C: Codec>(&mut self, codec: &mut C);
    /// When it happened, if the record says so.
    fn times(&self) -> [Timestamp; 2];
}

impl Row for Kernel {
    const KIND: u8 = 1;
    const COLUMNS: usize = 9;

    #[inline]
    fn transfer<C: Codec>(&mut self, codec: &mut C) {
        codec.raw(0, &mut self.stream);
        codec.raw(1, &mut self.config);
        codec.span(2, self.stream.0, Some(self.config.0), &mut self.start, &mut self.end);
        codec.step(4, &mut self.correlation);
        codec.raw(5, &mut self.device);
        codec.raw(6, &mut self.context);
        codec.raw(7, &mut self.graph_id);
        codec.step(8, &mut self.graph_node_id);
    }

    fn times(&self) -> [Timestamp; 2] {
        [self.start, self.end]
    }
}

impl Row for Copy {
    const KIND: u8 = 2;
    const COLUMNS: usize = 15;

    #[inline]
    fn transfer<C: Codec>(&mut self, codec: &mut C) {
        codec.raw(0, &mut self.stream);
        codec.raw(1, &mut self.bytes);
        codec.span(2, self.stream.0, None, &mut self.start, &mut self.end);
        codec.step(4, &mut self.correlation);
        codec.raw(5, &mut self.device);
        codec.raw(6, &mut self.context);
        codec.raw(7, &mut self.graph_id);
        codec.step(8, &mut self.graph_node_id);
        codec.raw(9, &mut self.kind);
        codec.raw(10, &mut self.source);
        codec.raw(11, &mut self.destination);
        codec.raw(12, &mut self.is_async);
        codec.relative(13, self.device, &mut self.peers[0]);
        codec.relative(14, self.device, &mut self.peers[1]);
    }

    fn times(&self) -> [Timestamp; 2] {
        [self.start, self.end]
    }
}

impl Row for Memset {
    const KIND: u8 = 3;
    const COLUMNS: usize = 12;

    #[inline]
    fn transfer<C: Codec>(&mut self, codec: &mut C) {
        codec.raw(0, &mut self.stream);
        codec.raw(1, &mut self.bytes);
        codec.span(2, self.stream.0, None, &mut self.start, &mut self.end);
        codec.step(4, &mut self.correlation);
        codec.raw(5, &mut self.device);
        codec.raw(6, &mut self.context);
        codec.raw(7, &mut self.graph_id);
        codec.step(8, &mut self.graph_node_id);
        codec.raw(9, &mut self.memory);
        codec.raw(10, &mut self.is_async);
        codec.raw(11, &mut self.value);
    }

    fn times(&self) -> [Timestamp; 2] {
        [self.start, self.end]
    }
}

impl Row for ApiCall {
    const KIND: u8 = 4;
    const COLUMNS: usize = 6;

    #[inline]
    fn transfer<C: Codec>(&mut self, codec: &mut C) {
        codec.raw(0, &mut self.thread);
        codec.raw(1, &mut self.function);
        codec.span(2, self.thread.0, None, &mut self.start, &mut self.end);
        codec.step(4, &mut self.correlation);
        codec.raw(5, &mut self.return_value);
    }

    fn times(&self) -> [Timestamp; 2] {
        [self.start, self.end]
    }
}

impl Row for Sync {
    const KIND: u8 = 5;
    const COLUMNS: usize = 8;

    #[inline]
    fn transfer<C: Codec>(&mut self, codec: &mut C) {
        codec.raw(0, &mut self.stream);
        codec.raw(1, &mut self.kind);
        // Host times, but the record does not name a thread: all rows are one lane.
        codec.span(2, 0, None, &mut self.start, &mut self.end);
        codec.step(4, &mut self.correlation);
        codec.raw(5, &mut self.context);
        codec.raw(6, &mut self.event_id);
        codec.step(7, &mut self.event_sync_id);
    }

    fn times(&self) -> [Timestamp; 2] {
        [self.start, self.end]
    }
}

impl Row for CudaEvent {
    const KIND: u8 = 6;
    const COLUMNS: usize = 5;

    #[inline]
    fn transfer<C: Codec>(&mut self, codec: &mut C) {
        codec.raw(0, &mut self.stream);
        codec.raw(1, &mut self.event_id);
        codec.step(2, &mut self.correlation);
        codec.raw(3, &mut self.context);
        codec.step(4, &mut self.event_sync_id);
    }

    fn times(&self) -> [Timestamp; 2] {
        [Timestamp::ZERO; 2]
    }
}

impl Row for Overhead {
    const KIND: u8 = 7;
    const COLUMNS: usize = 5;

    #[inline]
    fn transfer<C: Codec>(&mut self, codec: &mut C) {
        codec.raw(0, &mut self.thread);
        codec.raw(1, &mut self.kind);
        codec.span(2, self.thread.0, None, &mut self.start, &mut self.end);
        codec.step(4, &mut self.correlation);
    }

    fn times(&self) -> [Timestamp; 2] {
        [self.start, self.end]
    }
}

impl Row for RangeEvent {
    const KIND: u8 = 8;
    const COLUMNS: usize = 11;

    #[inline]
    fn transfer<C: Codec>(&mut self, codec: &mut C) {
        codec.raw(0, &mut self.thread);
        codec.raw(1, &mut self.kind);
        // A point in time: the length is 0 in every row and its column takes no byte.
        let mut end = self.at;
        codec.span(2, self.thread.0, None, &mut self.at, &mut end);
        codec.raw(4, &mut self.domain);
        codec.raw(5, &mut self.message);
        codec.raw(6, &mut self.category);
        codec.raw(7, &mut self.color);
        codec.step(8, &mut self.range_id);
        let (mut kind, mut bits) = payload_to_bits(self.payload);
        codec.raw(9, &mut kind);
        codec.raw(10, &mut bits);
        self.payload = payload_from_bits(kind, bits);
    }

    fn times(&self) -> [Timestamp; 2] {
        [self.at; 2]
    }
}

/// Type and value of a payload as the format has them.
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

impl Row for HostSample {
    const KIND: u8 = 9;
    const COLUMNS: usize = 13;

    #[inline]
    fn transfer<C: Codec>(&mut self, codec: &mut C) {
        codec.raw(0, &mut self.thread);
        codec.raw(1, &mut self.state);
        codec.span(2, self.thread.0, None, &mut self.since, &mut self.at);
        codec.raw(4, &mut self.on_cpu);
        codec.raw(5, &mut self.runnable);
        codec.raw(6, &mut self.stack);
        codec.raw(7, &mut self.interpreter_lock);
        codec.raw(8, &mut self.collecting_garbage);
        codec.raw(9, &mut self.children);
        codec.raw(10, &mut self.children_running);
        codec.raw(11, &mut self.children_in_io);
        // The id and 1: files without the column have none.
        let mut earlier = self.earlier.map_or(0, |stack| stack.0.saturating_add(1));
        codec.raw(12, &mut earlier);
        self.earlier = earlier.checked_sub(1).map(StackId);
    }

    fn times(&self) -> [Timestamp; 2] {
        [self.since, self.at]
    }
}

impl Row for MemoryEvent {
    const KIND: u8 = 10;
    const COLUMNS: usize = 15;

    #[inline]
    fn transfer<C: Codec>(&mut self, codec: &mut C) {
        codec.raw(0, &mut self.device);
        codec.raw(1, &mut self.operation);
        // A point in time, as a range event.
        let mut end = self.at;
        codec.span(2, self.device.0, None, &mut self.at, &mut end);
        codec.step(4, &mut self.correlation);
        codec.raw(5, &mut self.kind);
        codec.raw(6, &mut self.context);
        codec.raw(7, &mut self.stream);
        codec.step(8, &mut self.address);
        codec.raw(9, &mut self.bytes);
        codec.raw(10, &mut self.name);
        codec.step(11, &mut self.pool);
        codec.step(12, &mut self.pool_bytes);
        codec.step(13, &mut self.pool_used);
        codec.raw(14, &mut self.pool_threshold);
    }

    fn times(&self) -> [Timestamp; 2] {
        [self.at; 2]
    }
}

impl Row for ManagedEvent {
    const KIND: u8 = 11;
    const COLUMNS: usize = 8;

    #[inline]
    fn transfer<C: Codec>(&mut self, codec: &mut C) {
        codec.raw(0, &mut self.source);
        codec.raw(1, &mut self.kind);
        codec.span(2, self.source.0, None, &mut self.start, &mut self.end);
        codec.step(4, &mut self.address);
        codec.raw(5, &mut self.destination);
        codec.raw(6, &mut self.value);
        codec.raw(7, &mut self.cause);
    }

    fn times(&self) -> [Timestamp; 2] {
        [self.start, self.end]
    }
}

macro_rules! record_of {
    ($($kind:ident => $variant:ident),*) => {$(
        impl From<$kind> for Record {
            fn from(row: $kind) -> Self {
                Self::$variant(row)
            }
        }
    )*};
}

record_of!(Kernel => Kernel, Copy => Copy, Memset => Memset, ApiCall => Api, Sync => Sync, CudaEvent => Event,
    Overhead => Overhead, RangeEvent => Range, HostSample => Sample, MemoryEvent => Memory,
    ManagedEvent => Managed);

impl Field for u32 {
    #[inline]
    fn number(self) -> u64 {
        self.into()
    }

    #[inline]
    fn from_number(number: u64) -> Option<Self> {
        number.try_into().ok()
    }
}

impl Field for u64 {
    #[inline]
    fn number(self) -> u64 {
        self
    }

    #[inline]
    fn from_number(number: u64) -> Option<Self> {
        Some(number)
    }
}

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

/// The numbers of the format, fixed here so that reordering an enum cannot change files. Numbers of newer versions
/// read as `Unknown`.
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
