//! What was observed: one struct for each kind of activity.
//!
//! Records are small, `Copy`, and free of strings: names, launch configurations and API functions repeat, so a
//! record holds an id into the [`Dictionary`](crate::dictionary::Dictionary) instead.
//!
//! All times of one trace are on one clock, nanoseconds since the Unix epoch as the tracing library reports them
//! (device times are already mapped to it by that library).

mod range;
mod sample;

use std::fmt;

pub use range::{Payload, RangeEvent, RangeEventKind};
pub use sample::{HostSample, InterpreterLock, ThreadState};

/// A point in time: nanoseconds since the Unix epoch on the clock of the trace. Zero means "not recorded".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The value that the tracing library writes when it has no time.
    pub const ZERO: Self = Self(0);

    /// From nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to `self`, or 0 when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($int:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// Device ordinal as the driver numbers it in this process.
    DeviceId(u32);
    /// Context id, unique in the process.
    ContextId(u32);
    /// Stream id, unique in the process. The null stream of the first context is usually 7.
    StreamId(u32);
    /// Joins an API call to the device work it caused. Unique in the process until it wraps at 2^32.
    CorrelationId(u32);
    /// Kernel thread id (`gettid`).
    ThreadId(u32);
    /// Index of a string in the dictionary.
    NameId(u32);
    /// Index of a [`LaunchConfig`] in the dictionary.
    LaunchConfigId(u32);
    /// Index of an [`ApiFunction`] in the dictionary.
    ApiFunctionId(u32);
    /// Index of the innermost [`Frame`] of a stack in the dictionary.
    StackId(u32);
}

impl StackId {
    /// No stack.
    pub const NONE: Self = Self(u32::MAX);
}

impl NameId {
    /// A name that was lost: no dictionary holds this id.
    pub const UNKNOWN: Self = Self(u32::MAX);
}

/// Everything about a kernel launch that repeats from launch to launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LaunchConfig {
    /// Mangled kernel name.
    pub name: NameId,
    /// Blocks in the grid: x, y, z.
    pub grid: [u32; 3],
    /// Threads in a block: x, y, z.
    pub block: [u32; 3],
    /// Blocks in a thread-block cluster: x, y, z; zero without clusters or when not reported.
    pub cluster: [u32; 3],
    /// Registers of one thread.
    pub registers_per_thread: u16,
    /// Static shared memory of a block, bytes.
    pub static_shared_bytes: u32,
    /// Dynamic shared memory of a block, bytes.
    pub dynamic_shared_bytes: u32,
    /// Shared memory that the device set aside on a multiprocessor, bytes.
    pub shared_executed_bytes: u32,
    /// Local memory of one thread, bytes.
    pub local_bytes_per_thread: u32,
    /// How it was launched: 0 regular, 1 cooperative, 2 cooperative on several devices, 3 command list.
    pub launch_type: u8,
}

/// Which of CUDA's two interfaces a call belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApiDomain {
    /// `cu...`
    Driver,
    /// `cuda...`
    Runtime,
}

/// A function of the CUDA driver or runtime API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ApiFunction {
    /// Driver or runtime.
    pub domain: ApiDomain,
    /// The tracing library's number for it, unique within the domain.
    pub callback_id: u32,
    /// Name with the version suffix, for example `cudaLaunchKernel_v7000`.
    pub name: NameId,
}

/// One call of an interpreter's stack, with the way to its caller. Stacks that begin alike share their outer frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The stack below, or [`StackId::NONE`] for the outermost frame.
    pub caller: StackId,
    /// Qualified name of the function.
    pub function: NameId,
    /// File in which it is defined.
    pub file: NameId,
    /// The line being executed, from 1; 0 when unknown.
    pub line: u32,
}

/// A kernel that ran on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Begin on the device.
    pub start: Timestamp,
    /// End on the device.
    pub end: Timestamp,
    /// Where it ran.
    pub device: DeviceId,
    /// Context it was launched in.
    pub context: ContextId,
    /// Stream it ran on.
    pub stream: StreamId,
    /// The launching call.
    pub correlation: CorrelationId,
    /// Name, shape and resources.
    pub config: LaunchConfigId,
    /// The executable graph that launched it, or 0.
    pub graph_id: u32,
    /// The node of that graph, or 0.
    pub graph_node_id: u64,
}

/// Direction of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CopyKind {
    /// Not reported, or a value this version does not know.
    #[default]
    Unknown,
    /// Host to device.
    HostToDevice,
    /// Device to host.
    DeviceToHost,
    /// Within one device.
    DeviceToDevice,
    /// Host to host.
    HostToHost,
    /// Between two devices.
    PeerToPeer,
}

impl CopyKind {
    /// Stable name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::HostToDevice => "host_to_device",
            Self::DeviceToHost => "device_to_host",
            Self::DeviceToDevice => "device_to_device",
            Self::HostToHost => "host_to_host",
            Self::PeerToPeer => "peer_to_peer",
        }
    }
}

/// What kind of memory one end of a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryKind {
    /// Not reported, or a value this version does not know.
    #[default]
    Unknown,
    /// Ordinary host memory, staged by the driver.
    Pageable,
    /// Page-locked host memory.
    Pinned,
    /// Device memory.
    Device,
    /// CUDA array.
    Array,
    /// Managed (unified) memory.
    Managed,
}

impl MemoryKind {
    /// Stable name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Pageable => "pageable",
            Self::Pinned => "pinned",
            Self::Device => "device",
            Self::Array => "array",
            Self::Managed => "managed",
        }
    }
}

/// A copy that ran on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// Begin on the device.
    pub start: Timestamp,
    /// End on the device.
    pub end: Timestamp,
    /// Device whose copy engine did it.
    pub device: DeviceId,
    /// Context it was issued in.
    pub context: ContextId,
    /// Stream it ran on.
    pub stream: StreamId,
    /// The issuing call.
    pub correlation: CorrelationId,
    /// Direction.
    pub kind: CopyKind,
    /// Memory read from.
    pub source: MemoryKind,
    /// Memory written to.
    pub destination: MemoryKind,
    /// Whether it was issued as asynchronous.
    pub is_async: bool,
    /// Bytes moved.
    pub bytes: u64,
    /// For a peer copy the devices read from and written to; otherwise both equal `device`.
    pub peers: [DeviceId; 2],
    /// The executable graph that issued it, or 0.
    pub graph_id: u32,
    /// The node of that graph, or 0.
    pub graph_node_id: u64,
}

/// A memset that ran on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memset {
    /// Begin on the device.
    pub start: Timestamp,
    /// End on the device.
    pub end: Timestamp,
    /// Where it ran.
    pub device: DeviceId,
    /// Context it was issued in.
    pub context: ContextId,
    /// Stream it ran on.
    pub stream: StreamId,
    /// The issuing call.
    pub correlation: CorrelationId,
    /// Memory written to.
    pub memory: MemoryKind,
    /// Whether it was issued as asynchronous.
    pub is_async: bool,
    /// The value written.
    pub value: u32,
    /// Bytes written.
    pub bytes: u64,
    /// The executable graph that issued it, or 0.
    pub graph_id: u32,
    /// The node of that graph, or 0.
    pub graph_node_id: u64,
}

/// A call of the CUDA driver or runtime API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApiCall {
    /// Entry.
    pub start: Timestamp,
    /// Return.
    pub end: Timestamp,
    /// Calling thread.
    pub thread: ThreadId,
    /// Joins to the device work it caused, and to nested calls.
    pub correlation: CorrelationId,
    /// Which function.
    pub function: ApiFunctionId,
    /// `CUresult` or `cudaError_t`; 0 is success.
    pub return_value: u32,
}

/// What a synchronisation waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncKind {
    /// Not reported, or a value this version does not know.
    #[default]
    Unknown,
    /// The host waited for an event.
    Event,
    /// A stream was told to wait for an event; the host did not wait.
    StreamWaitEvent,
    /// The host waited for a stream.
    Stream,
    /// The host waited for a whole context.
    Context,
}

/// A synchronisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sync {
    /// Begin on the host.
    pub start: Timestamp,
    /// End on the host.
    pub end: Timestamp,
    /// What was waited for.
    pub kind: SyncKind,
    /// Context.
    pub context: ContextId,
    /// The stream waited for, or told to wait; `u32::MAX` when none.
    pub stream: StreamId,
    /// The call that synchronised.
    pub correlation: CorrelationId,
    /// Event id, or `u32::MAX`. Ids are reused: prefer `event_sync_id` when it is not 0.
    pub event_id: u32,
    /// Pairs with [`CudaEvent::event_sync_id`]; 0 when the library does not report it.
    pub event_sync_id: u64,
}

/// A CUDA event was recorded on a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CudaEvent {
    /// The call that recorded it.
    pub correlation: CorrelationId,
    /// Context.
    pub context: ContextId,
    /// Stream it was recorded on.
    pub stream: StreamId,
    /// Event id; ids are reused.
    pub event_id: u32,
    /// Unique id of this recording; 0 when the library does not report it.
    pub event_sync_id: u64,
}

/// What the tracing library or the driver spent time on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OverheadKind {
    /// Not reported, or a value this version does not know.
    #[default]
    Unknown,
    /// The driver's just-in-time compiler.
    DriverCompiler,
    /// The tracing library flushed a buffer.
    BufferFlush,
    /// The tracing library instrumented code.
    Instrumentation,
    /// The tracing library allocated or freed its own resources.
    Resource,
    /// The runtime loaded a module.
    RuntimeModuleLoading,
    /// The driver loaded a function at first use.
    LazyFunctionLoading,
    /// A command buffer was full: the host had run as far ahead as it can.
    CommandBufferFull,
    /// The tracing library asked for a buffer.
    ActivityBufferRequest,
    /// Unified-memory tracing was set up.
    UnifiedMemoryInit,
}

/// Time that tracing or the driver took on a host thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Begin on the host.
    pub start: Timestamp,
    /// End on the host.
    pub end: Timestamp,
    /// What it was spent on.
    pub kind: OverheadKind,
    /// The thread that paid, or 0 when the record is not about a thread.
    pub thread: ThreadId,
    /// The call during which it happened, or 0.
    pub correlation: CorrelationId,
}

/// A device as the tracing library describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Ordinal in this process.
    pub id: DeviceId,
    /// Product name, for example `NVIDIA H200`.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: [u32; 2],
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Resident threads that fit on a multiprocessor (warps times 32).
    pub threads_per_multiprocessor: u32,
    /// Resident blocks that fit on a multiprocessor.
    pub blocks_per_multiprocessor: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// Shared memory of a multiprocessor, bytes.
    pub shared_bytes_per_multiprocessor: u32,
    /// Core clock, kHz.
    pub core_clock_khz: u32,
    /// Global memory, bytes.
    pub memory_bytes: u64,
    /// Global memory bandwidth, kB/s as the tracing library gives it.
    pub memory_bandwidth_kbps: u64,
    /// UUID.
    pub uuid: [u8; 16],
}

/// How a device is attached to the host: PCI Express as the tracing library describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcieLink {
    /// Ordinal of the device.
    pub device: DeviceId,
    /// Generation.
    pub generation: u32,
    /// Transfers on a lane, millions a second: 32000 for generation 5.
    pub megatransfers: u32,
    /// Lanes.
    pub lanes: u32,
}

impl PcieLink {
    /// What the link carries in one direction before any protocol, bytes a second: a transfer is a bit on each lane,
    /// of which the line code takes its part (8b/10b up to generation 2, 128b/130b up to 5, 242 of 256 bytes of a flit
    /// from 6 on; PCI Express Base Specification). Large copies reach 80 to 90 % of it: 55.5 of 63.0 GB/s from
    /// page-locked memory to an H200 (generation 5, 16 lanes).
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        let code = match self.generation {
            0..=2 => 8.0 / 10.0,
            3..=5 => 128.0 / 130.0,
            _ => 242.0 / 256.0,
        };
        f64::from(self.megatransfers) * 1e6 * f64::from(self.lanes) / 8.0 * code
    }

    /// The shortest time in which a copy of `bytes` from or to page-locked memory can be hoped to go over the link,
    /// nanoseconds: at 90 % of [`bytes_per_second`](Self::bytes_per_second), the upper end of what is usual. `None` when
    /// the link is not described.
    #[must_use]
    pub fn shortest_copy_nanos(&self, bytes: u64) -> Option<u64> {
        let rate = 0.9 * self.bytes_per_second();
        (rate > 0.0).then(|| (bytes as f64 / rate * 1e9) as u64)
    }
}

/// A context as the tracing library describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Id in this process.
    pub id: ContextId,
    /// Device it is on.
    pub device: DeviceId,
    /// Its null stream.
    pub null_stream: StreamId,
}

/// Any record of the hot path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record {
    /// A kernel ran.
    Kernel(Kernel),
    /// A copy ran.
    Copy(Copy),
    /// A memset ran.
    Memset(Memset),
    /// An API function was called.
    Api(ApiCall),
    /// Something was waited for.
    Sync(Sync),
    /// An event was recorded.
    Event(CudaEvent),
    /// Tracing or the driver took time.
    Overhead(Overhead),
    /// The program said what it is doing.
    Range(RangeEvent),
    /// A host thread was looked at.
    Sample(HostSample),
}

/// What did not become a record. Counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Records that the tracing library says it dropped.
    pub dropped_by_cupti: u64,
    /// Records that gpuprof received and threw away because it could not keep up.
    pub dropped_by_gpuprof: u64,
    /// Records of a kind that this version does not know.
    pub unknown_kinds: u64,
    /// Activity buffers whose walk stopped before their end.
    pub broken_buffers: u64,
    /// Bytes in those buffers behind the point where the walk stopped.
    pub broken_bytes: u64,
    /// Buffers still with the tracing library when the wait at exit ended; their records are unknown in number.
    pub undelivered_buffers: u64,
    /// Range events of the program that were thrown away because there were too many at once.
    pub dropped_ranges: u64,
    /// Looks at host threads that gave nothing: torn reads, threads that were gone.
    pub failed_samples: u64,
    /// How often a name, launch configuration, function, frame, device or context found its table full and became
    /// one with others (see [`Dictionary`](crate::dictionary::Dictionary)).
    pub beyond_dictionary: u64,
}

#[cfg(test)]
mod tests {
    use super::PcieLink;

    #[test]
    fn links_carry_what_their_generation_says() {
        let gigabytes = |generation, megatransfers, lanes| {
            let link = PcieLink { generation, megatransfers, lanes, ..PcieLink::default() };
            (link.bytes_per_second() / 1e8).round() / 10.0
        };
        let lanes = 16;
        let all = [(2, 5_000), (3, 8_000), (4, 16_000), (5, 32_000), (6, 64_000)];
        let found = all.map(|(generation, megatransfers)| gigabytes(generation, megatransfers, lanes));
        assert_eq!(found, [8.0, 15.8, 31.5, 63.0, 121.0], "NVIDIA's and PCI-SIG's own figures");
        assert_eq!(gigabytes(4, 16_000, 8), 15.8);
    }
}
