//! Work on a device: kernels, copies, memsets.

use super::{ContextId, CorrelationId, DeviceId, LaunchConfigId, NameId, StreamId, Timestamp};
use crate::named;

/// Properties of a kernel launch that repeat from launch to launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LaunchConfig {
    /// Mangled kernel name.
    pub name: NameId,
    /// Blocks in the grid: x, y, z.
    pub grid: [u32; 3],
    /// Threads in a block: x, y, z.
    pub block: [u32; 3],
    /// Blocks in a thread-block cluster: x, y, z; zero without clusters or if not reported.
    pub cluster: [u32; 3],
    /// Registers per thread.
    pub registers_per_thread: u16,
    /// Static shared memory per block, bytes.
    pub static_shared_bytes: u32,
    /// Dynamic shared memory per block, bytes.
    pub dynamic_shared_bytes: u32,
    /// Shared memory reserved on an SM, bytes.
    pub shared_executed_bytes: u32,
    /// Local memory per thread, bytes.
    pub local_bytes_per_thread: u32,
    /// Launch type: 0 regular, 1 cooperative, 2 cooperative on several devices, 3 command list.
    pub launch_type: u8,
}

/// A kernel that ran on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Start on the device.
    pub start: Timestamp,
    /// End on the device.
    pub end: Timestamp,
    /// Device it ran on.
    pub device: DeviceId,
    /// Context it was launched in.
    pub context: ContextId,
    /// Stream it ran on.
    pub stream: StreamId,
    /// The launching call.
    pub correlation: CorrelationId,
    /// Name, shape and resources.
    pub config: LaunchConfigId,
    /// Executable graph that launched it, or 0.
    pub graph_id: u32,
    /// Node of that graph, or 0.
    pub graph_node_id: u64,
}

named! {
    /// Direction of a copy.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum CopyKind: name {
        /// Not reported, or a value unknown to this version.
        #[default]
        Unknown "unknown",
        HostToDevice "host_to_device",
        DeviceToHost "device_to_host",
        /// Within one device.
        DeviceToDevice "device_to_device",
        HostToHost "host_to_host",
        /// Between two devices.
        PeerToPeer "peer_to_peer",
    }
}

named! {
    /// Kind of memory of the source or destination of a copy.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum MemoryKind: name {
        /// Not reported, or a value unknown to this version.
        #[default]
        Unknown "unknown",
        /// Ordinary host memory, staged by the driver.
        Pageable "pageable",
        /// Pinned host memory.
        Pinned "pinned",
        /// Device memory.
        Device "device",
        /// CUDA array.
        Array "array",
        /// Managed (unified) memory.
        Managed "managed",
    }
}

/// A copy that ran on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// Start on the device.
    pub start: Timestamp,
    /// End on the device.
    pub end: Timestamp,
    /// Device whose copy engine executed it.
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
    /// True if it was issued asynchronously.
    pub is_async: bool,
    /// Bytes moved.
    pub bytes: u64,
    /// Source and destination device of a peer copy; otherwise both equal `device`.
    pub peers: [DeviceId; 2],
    /// Executable graph that issued it, or 0.
    pub graph_id: u32,
    /// Node of that graph, or 0.
    pub graph_node_id: u64,
}

/// A memset that ran on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memset {
    /// Start on the device.
    pub start: Timestamp,
    /// End on the device.
    pub end: Timestamp,
    /// Device it ran on.
    pub device: DeviceId,
    /// Context it was issued in.
    pub context: ContextId,
    /// Stream it ran on.
    pub stream: StreamId,
    /// The issuing call.
    pub correlation: CorrelationId,
    /// Memory written to.
    pub memory: MemoryKind,
    /// True if it was issued asynchronously.
    pub is_async: bool,
    /// The value written.
    pub value: u32,
    /// Bytes written.
    pub bytes: u64,
    /// Executable graph that issued it, or 0.
    pub graph_id: u32,
    /// Node of that graph, or 0.
    pub graph_node_id: u64,
}

/// Common properties of kernels, copies and memsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceWork {
    /// Start on the device.
    pub start: Timestamp,
    /// End on the device.
    pub end: Timestamp,
    /// Device it ran on.
    pub device: DeviceId,
    /// Context it was launched in.
    pub context: ContextId,
    /// Stream it ran on.
    pub stream: StreamId,
    /// The launching call.
    pub correlation: CorrelationId,
    /// Bytes copied or set; 0 for a kernel.
    pub bytes: u64,
    /// Executable graph that launched it, or 0.
    pub graph_id: u32,
    /// Node of that graph, or 0.
    pub graph_node_id: u64,
}

/// Conversions from and to the records; what only a record has is its default.
macro_rules! device_work {
    ($($of:ident $($bytes:ident)?;)*) => {$(
        impl From<&$of> for DeviceWork {
            #[inline]
            fn from(row: &$of) -> Self {
                let $of { start, end, device, context, stream, correlation, graph_id, graph_node_id, .. } = *row;
                let bytes = 0 $(+ row.$bytes)?;
                Self { start, end, device, context, stream, correlation, bytes, graph_id, graph_node_id }
            }
        }

        impl From<DeviceWork> for $of {
            fn from(work: DeviceWork) -> Self {
                let DeviceWork { start, end, device, context, stream, correlation, graph_id, graph_node_id, .. } = work;
                $(let $bytes = work.$bytes;)?
                let rest = Self::default();
                Self { start, end, device, context, stream, correlation, $($bytes,)? graph_id, graph_node_id, ..rest }
            }
        }
    )*};
}

device_work! {
    Kernel;
    Copy bytes;
    Memset bytes;
}
