//! Streams that share a hardware queue.

use profiler_core::attribution::queue_waits::QueueWaits;

use crate::run::DeviceReport;
use crate::run::remedies::{CallFacts, SharedQueue};
use crate::text_format::percent;

/// Least share of the time of a device in such waits, and fewest waits, for a statement.
const SHARE: f64 = 0.05;
const FEWEST: u64 = 10;
/// Most queues that a process can have; with these, streams share one only if there are more of them.
const MOST_QUEUES: u64 = 32;

/// The waits of the device with most of them, unless events explain them.
pub(super) fn shared(devices: &[DeviceReport], calls: CallFacts<'_>) -> Option<SharedQueue> {
    let share = |waits: QueueWaits, window: u64| waits.total_ns as f64 / window.max(1) as f64;
    let waits = devices.iter().map(|device| (device.queue_waits, share(device.queue_waits, device.window_ns)));
    let (waits, share) = waits.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let of_events = calls.api.iter().filter(|row| row.name.contains("StreamWaitEvent"));
    let explained = 2 * of_events.map(|row| row.calls).sum::<u64>() >= waits.count;
    let connections = calls.connections.and_then(|value| value.parse().ok());
    let certain = waits.count >= FEWEST && share >= SHARE && !explained;
    (certain && connections.is_none_or(|queues| queues < MOST_QUEUES))
        .then(|| SharedQueue { share: share.min(1.0), connections })
}

/// Sentence about these waits.
pub(super) fn sentence(queue: SharedQueue) -> String {
    let why = match queue.connections {
        Some(1) => "CUDA_DEVICE_MAX_CONNECTIONS=1 puts all streams into one queue".to_owned(),
        Some(count) => format!("CUDA_DEVICE_MAX_CONNECTIONS={count} puts all streams into {count} queues"),
        None => "streams share queues, by default eight (CUDA_DEVICE_MAX_CONNECTIONS)".to_owned(),
    };
    format!(
        "Kernels waited {} of the time in a queue behind a kernel of another stream, although the GPU had room for both: {why}.",
        percent(queue.share)
    )
}
