//! Sizes and bandwidths as defined by nccl-tests (`doc/PERFORMANCE.md` there).

use gpuwhy_trace::collective::{DataType, Function};

/// Size of an operation of `count` elements, bytes: see [`bytes_of_buffer`]. 0 if the type or function is
/// unknown.
pub const fn bytes(function: Function, data_type: DataType, count: u64, ranks: u32) -> u64 {
    bytes_of_buffer(function, count.saturating_mul(data_type.bytes()), ranks)
}

/// Size of an operation, bytes: the buffer, or for operations in which each rank has a part, the sum of all
/// parts. 0 if the function is unknown, or if the size depends on an unknown number of ranks.
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

/// Factor from algorithm bandwidth to bus bandwidth, which is comparable to the hardware speed for any
/// function and number of ranks. 1 if the ranks are unknown.
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

/// Bytes per second; `None` without bytes or time. `nanos` is the time in which data moves: over all ranks,
/// from the last start to the end. With the time of a single rank the result is a lower bound, since it
/// includes waiting.
pub fn algorithm_bandwidth(bytes: u64, nanos: u64) -> Option<f64> {
    (bytes > 0 && nanos > 0).then(|| bytes as f64 * 1e9 / nanos as f64)
}

/// [`algorithm_bandwidth`] times [`bus_factor`].
pub fn bus_bandwidth(function: Function, ranks: u32, bytes: u64, nanos: u64) -> Option<f64> {
    algorithm_bandwidth(bytes, nanos).map(|bandwidth| bandwidth * bus_factor(function, ranks))
}
