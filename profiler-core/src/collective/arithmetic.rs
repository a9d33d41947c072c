//! Sizes and bandwidths, as nccl-tests defines them (`doc/PERFORMANCE.md` there).

use gpuwhy_trace::collective::{DataType, Function};

/// The size of an operation of so many elements, bytes: see [`bytes_of_buffer`]. 0 when type or function is not known.
pub const fn bytes(function: Function, data_type: DataType, count: u64, ranks: u32) -> u64 {
    bytes_of_buffer(function, count.saturating_mul(data_type.bytes()), ranks)
}

/// The size of an operation, bytes: the buffer, and of operations in which each rank has a part of the whole, the
/// whole. 0 when the function is not known, and when the whole depends on ranks that are not known.
pub const fn bytes_of_buffer(function: Function, buffer: u64, ranks: u32) -> u64 {
    match function {
        Function::Unknown => 0,
        Function::AllGather | Function::ReduceScatter | Function::AllToAll | Function::Gather | Function::Scatter => {
            buffer.saturating_mul(ranks as u64)
        }
        Function::AllReduce
        | Function::Broadcast
        | Function::Reduce
        | Function::Send
        | Function::Receive
        | Function::SendReceive => buffer,
    }
}

/// What the algorithm bandwidth is multiplied with to get the bus bandwidth, which compares with the speed of the
/// hardware whatever the function and the number of ranks. 1 when the ranks are not known.
pub fn bus_factor(function: Function, ranks: u32) -> f64 {
    if ranks == 0 {
        return 1.0;
    }
    let others = f64::from(ranks - 1) / f64::from(ranks);
    match function {
        Function::AllReduce => 2.0 * others,
        Function::AllGather | Function::ReduceScatter | Function::AllToAll | Function::Gather | Function::Scatter => {
            others
        }
        Function::Unknown
        | Function::Broadcast
        | Function::Reduce
        | Function::Send
        | Function::Receive
        | Function::SendReceive => 1.0,
    }
}

/// Bytes a second; `None` without bytes or time. `nanos` is the time in which data moves: on all ranks together, from
/// the last begin to the end. With the time of one rank alone it is a lower bound, since waiting is in it.
pub fn algorithm_bandwidth(bytes: u64, nanos: u64) -> Option<f64> {
    (bytes > 0 && nanos > 0).then(|| bytes as f64 * 1e9 / nanos as f64)
}

/// As [`algorithm_bandwidth`], times [`bus_factor`].
pub fn bus_bandwidth(function: Function, ranks: u32, bytes: u64, nanos: u64) -> Option<f64> {
    algorithm_bandwidth(bytes, nanos).map(|bandwidth| bandwidth * bus_factor(function, ranks))
}
