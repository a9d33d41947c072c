//! Kernels that waited behind a kernel of another stream in one hardware queue.
//!
//! Streams share as many queues as CUDA_DEVICE_MAX_CONNECTIONS says (8 by default). A queue runs in order: a kernel
//! that may start stands behind one of another stream that was launched before it and still waits for its own stream.
//! Then both start together. So does a kernel that an event makes wait, which a report must rule out by the calls of
//! `cudaStreamWaitEvent`.

use gpuwhy_trace::record::StreamId;

use super::operation::DeviceOperation;

/// Shorter waits are the device's own (`INTER_KERNEL_NANOS` is 10 us).
const SHORTEST: u64 = 20_000;
/// Longest time between the starts of the two, and between the end of a kernel and the start of the next one of its
/// stream.
const TOGETHER: u64 = 15_000;
/// Streams that are remembered; a device has 128 queues at most.
const STREAMS: usize = 128;

/// Number and time of such waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueWaits {
    /// Kernels that waited.
    pub count: u64,
    /// Time that they waited while the device had room, nanoseconds.
    pub total_ns: u64,
}

/// The newest operation of a stream.
#[derive(Clone, Copy, Debug)]
struct Newest {
    stream: StreamId,
    start: u64,
    end: u64,
    launched: u64,
    /// Start of the one before it, if it waited for that.
    waited_for: Option<u64>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct QueueWatch {
    streams: Vec<Newest>,
    /// End of the newest operation that may leave no room for another.
    full_until: u64,
    pub(super) waits: QueueWaits,
}

impl QueueWatch {
    /// An operation starts; in the order of their starts.
    #[inline]
    pub(super) fn began(&mut self, operation: &DeviceOperation) {
        // Nearly all programs use one stream.
        if let [only] = &mut self.streams[..]
            && only.stream == operation.stream
        {
            *only = Newest::of(operation, Some(&*only));
        } else {
            self.of_several(operation);
        }
        if operation.fit == 0 {
            self.full_until = self.full_until.max(operation.end);
        }
    }

    fn of_several(&mut self, operation: &DeviceOperation) {
        let index = self.streams.iter().position(|newest| newest.stream == operation.stream);
        let before = index.map(|index| self.streams[index]);
        let newest = Newest::of(operation, before.as_ref());
        if let (Some(before), Some(launch)) = (before, operation.launch)
            && operation.fit > 0
            && !operation.graph
        {
            let ready = before.end.max(launch.end).max(self.full_until);
            let ahead = |other: &Newest| {
                let first = other.stream != operation.stream && other.launched < launch.start;
                other.waited_for.filter(|_| first && operation.start.saturating_sub(other.start) <= TOGETHER)
            };
            let began = self.streams.iter().filter_map(ahead).min();
            let wait = began.map_or(0, |began| operation.start.saturating_sub(ready.max(began)));
            if wait >= SHORTEST {
                self.waits.count += 1;
                self.waits.total_ns += wait;
            }
        }
        match index {
            Some(index) => self.streams[index] = newest,
            None if self.streams.len() < STREAMS => self.streams.push(newest),
            None => {
                let oldest = self.streams.iter_mut().min_by_key(|newest| newest.end);
                oldest.into_iter().for_each(|oldest| *oldest = newest);
            }
        }
    }
}

impl Newest {
    fn of(operation: &DeviceOperation, before: Option<&Self>) -> Self {
        let DeviceOperation { stream, start, end, .. } = *operation;
        let launched = operation.launch.map_or(start, |launch| launch.start);
        let queued = operation.launch.is_some_and(|launch| before.is_some_and(|before| launch.end < before.end));
        let waited_for = before.filter(|before| queued && start.saturating_sub(before.end) <= TOGETHER);
        Self { stream, start, end, launched, waited_for: waited_for.map(|before| before.start) }
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::record::{CorrelationId, DeviceId, Timestamp};

    use super::*;
    use crate::api::ApiClass;
    use crate::attribution::operation::LaunchCall;

    /// A kernel of a stream: launch, start and end in microseconds, and whether another fits beside it.
    fn kernel(stream: u32, [launched, start, end]: [u64; 3], fits: bool) -> DeviceOperation {
        let time = |micros: u64| Timestamp::from_nanos(micros * 1_000);
        let (start, begun) = (launched * 1_000, start);
        let launch = LaunchCall { start, end: start + 5_000, thread: 0, class: ApiClass::KernelLaunch, sampled: false };
        let of = DeviceOperation::new(time(begun), time(end), DeviceId(0), StreamId(stream), CorrelationId(0));
        DeviceOperation { launch: Some(launch), fit: if fits { 100 } else { 0 }, ..of }
    }

    /// Waits of rounds of two kernels on stream 1 and one on stream 2, which starts `late` after the first.
    fn waits(late: u64, order: [u64; 3], fits: bool) -> QueueWaits {
        let mut watch = QueueWatch::default();
        for round in 0..10 {
            let begin = 10_000 * (round + 1);
            let mut kernels = [
                kernel(1, [begin + order[0], begin + 50, begin + 1_050], fits),
                kernel(1, [begin + order[1], begin + 1_052, begin + 2_050], fits),
                kernel(2, [begin + order[2], begin + 50 + late, begin + 2_050 + late], fits),
            ];
            kernels.sort_by_key(|kernel| kernel.start);
            kernels.iter().for_each(|kernel| watch.began(kernel));
        }
        watch.waits
    }

    #[test]
    fn a_kernel_that_starts_with_one_of_another_stream_that_was_launched_before_it_waited_in_the_queue() {
        // The first round shows no earlier kernel of the stream.
        assert_eq!(waits(1_005, [0, 10, 20], true), QueueWaits { count: 9, total_ns: 9 * 1_005_000 });
        assert_eq!(waits(2, [0, 10, 20], true).count, 0, "it runs at once");
        assert_eq!(waits(1_005, [0, 30, 20], true).count, 0, "the other is behind it");
        assert_eq!(waits(1_005, [0, 10, 20], false).count, 0, "there is no room");
        assert_eq!(waits(1_500, [0, 10, 20], true).count, 0, "it waits for something else");
    }
}
