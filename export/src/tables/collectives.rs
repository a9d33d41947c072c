//! The table of operations between devices, as the kernels' names and order tell them.
//!
//! A kernel's name says which function it is, and its place among those of that function says which occasion: the k-th
//! all-reduce of one rank is the k-th of every other, as `profiler-core/src/ranks/collectives.rs` pairs them. Neither
//! the communicator nor the bytes are known this way, so these columns are empty, and `basis` says so.

use profiler_core::attribution::is_communication;
use profiler_core::dictionary::Dictionary;
use profiler_core::record::{Kernel, NameId, Timestamp};
use rustc_hash::FxHashMap;

use super::cell::{Cell, Column, Kind};
use super::records::{some, table};

/// Functions by a part of the kernel's name in lower case, without underscores. The first that fits counts.
const FUNCTIONS: [(&str, &str); 8] = [
    ("allreduce", "AllReduce"),
    ("allgather", "AllGather"),
    ("reducescatter", "ReduceScatter"),
    ("alltoall", "AlltoAll"),
    ("sendrecv", "SendRecv"),
    ("broadcast", "Broadcast"),
    ("bcast", "Broadcast"),
    ("reduce", "Reduce"),
];
/// A kernel that communicates, by a name that says no more.
const OTHER: &str = "Other";

/// A kernel that communicates.
#[derive(Debug)]
pub struct Collective {
    function: &'static str,
    sequence: u64,
    kernel: Kernel,
}

table! {
    /// A row of [`COLLECTIVES`].
    COLLECTIVES, collective(row: &Collective) {
        "communicator" Text "the group of ranks, 16 hexadecimal digits; empty text when it is not told" = "";
        "function" Text "AllReduce, AllGather, ReduceScatter, AlltoAll, SendRecv, Broadcast, Reduce, Other" = row.function;
        "sequence" Integer "from 0, of the function in the communicator: one occasion has one on all ranks" = row.sequence;
        "bytes" Integer "as nccl-tests counts; empty when it is not told" = None::<u64>;
        "data_type" Text "empty when it is not told" = None::<&str>;
        "algorithm" Text "empty when it is not told" = None::<&str>;
        "protocol" Text "empty when it is not told" = None::<&str>;
        "channels" Integer "empty when it is not told" = None::<u64>;
        "operations_in_kernel" Integer "grouped into one kernel; empty when it is not told" = None::<u64>;
        "enqueued_ns" Integer "when the program called; empty when it is not told" = None::<u64>;
        "start_ns" Integer "begin of the kernel" = row.kernel.start.nanos();
        "end_ns" Integer "its end" = row.kernel.end.nanos();
        "exposed_ns" Integer "of it, while nothing computed on the device; empty when it is not told" = None::<u64>;
        "device" Integer "ordinal of the device" = row.kernel.device.0;
        "stream" Integer "stream it ran on" = row.kernel.stream.0;
        "correlation" Integer "joins with kernels.correlation" = row.kernel.correlation.0;
        "graph" Integer "executable CUDA graph; empty without" = some(row.kernel.graph_id);
        "graph_node" Integer "node of the graph; empty without" = some(row.kernel.graph_node_id);
        "basis" Text "what the row rests on: names (of kernels, and their order)" = "names";
    }
}

/// Finds the kernels that communicate and numbers them.
#[derive(Debug, Default)]
pub struct Collectives {
    functions: FxHashMap<NameId, Option<&'static str>>,
    counts: FxHashMap<(u32, &'static str), u64>,
    waiting: Vec<(&'static str, Kernel)>,
}

impl Collectives {
    /// Takes a kernel.
    pub fn push(&mut self, kernel: &Kernel, dictionary: &Dictionary) {
        let name = dictionary.launch_config(kernel.config).name;
        let function = *self.functions.entry(name).or_insert_with(|| function(dictionary.name(name)));
        if let Some(function) = function {
            self.waiting.push((function, *kernel));
        }
    }

    /// Everything that ended before `at` is known: those kernels, in the order of their begins.
    pub fn flushed(&mut self, at: Timestamp) -> Vec<Collective> {
        self.waiting.sort_by_key(|(_, kernel)| (kernel.start, kernel.correlation));
        let rest = self.waiting.iter().position(|(_, kernel)| kernel.end > at).unwrap_or(self.waiting.len());
        let counts = &mut self.counts;
        let number = |(function, kernel): (&'static str, Kernel)| {
            let count = counts.entry((kernel.device.0, function)).or_default();
            let sequence = *count;
            *count += 1;
            Collective { function, sequence, kernel }
        };
        self.waiting.drain(..rest).map(number).collect()
    }
}

fn function(kernel: &str) -> Option<&'static str> {
    let plain = kernel.to_ascii_lowercase().replace('_', "");
    let named = || FUNCTIONS.iter().find(|(part, _)| plain.contains(part)).map_or(OTHER, |&(_, function)| function);
    is_communication(kernel).then(named)
}

#[cfg(test)]
mod tests {
    use profiler_core::record::{CorrelationId, DeviceId, LaunchConfig};

    use super::*;

    #[test]
    fn kernels_are_numbered_by_function_in_the_order_of_their_begins() {
        let mut dictionary = Dictionary::new();
        let mut config = |name: &str| {
            let name = dictionary.intern_name(name);
            dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() })
        };
        let [sum, gather, plain] =
            ["ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_AllGather_RING_LL", "gemm"].map(&mut config);
        let mut found = Collectives::default();
        for (correlation, (config, start, end)) in
            (0..).zip([(sum, 50, 60), (sum, 10, 20), (plain, 12, 13), (gather, 20, 30), (sum, 90, 120)])
        {
            let [start, end] = [start, end].map(Timestamp::from_nanos);
            let correlation = CorrelationId(correlation);
            found.push(
                &Kernel { config, start, end, correlation, device: DeviceId(1), ..Kernel::default() },
                &dictionary,
            );
        }
        let mut rows = |at: u64| -> Vec<(&str, u64, u64)> {
            let rows = found.flushed(Timestamp::from_nanos(at));
            rows.iter().map(|row| (row.function, row.sequence, row.kernel.start.nanos())).collect()
        };
        assert_eq!(rows(100), [("AllReduce", 0, 10), ("AllGather", 0, 20), ("AllReduce", 1, 50)]);
        assert_eq!(rows(200), [("AllReduce", 2, 90)]);
    }
}
