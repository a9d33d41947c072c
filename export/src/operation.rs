//! What kernels, copies and memsets have in common.

use profiler_core::record::{ContextId, Copy, CorrelationId, DeviceId, Kernel, Memset, StreamId, Timestamp};

/// Work of a device.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
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
    /// Bytes copied or set; 0 for a kernel.
    pub bytes: u64,
    /// The executable graph that issued it and the node of it, or zeros.
    pub graph: (u32, u64),
}

macro_rules! operations {
    ($($of:ty, $bytes:expr;)*) => {$(
        impl From<&$of> for Operation {
            fn from(row: &$of) -> Self {
                let bytes: fn(&$of) -> u64 = $bytes;
                Self {
                    start: row.start,
                    end: row.end,
                    device: row.device,
                    context: row.context,
                    stream: row.stream,
                    correlation: row.correlation,
                    bytes: bytes(row),
                    graph: (row.graph_id, row.graph_node_id),
                }
            }
        }
    )*};
}

operations! {
    Kernel, |_| 0;
    Copy, |row| row.bytes;
    Memset, |row| row.bytes;
}
