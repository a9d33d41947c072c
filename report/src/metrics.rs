//! Metrics of a process for monitoring systems, as fields of one JSON object of bounded length.
//!
//! Counters are totals over all captures of the process, so that they never decrease when the next capture
//! starts. Values that describe the present (bottleneck, recoverable time) are those of the capture that a
//! report would cover. They contain no names of kernels, lines or arguments. `docs/guide/control.md` defines
//! every field.

use gpuwhy_trace::collective::Function as Reported;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::json_text::Object;
use gpuwhy_trace::record::{CopyKind, Device, DeviceId};
use profiler_core::attribution::Attributor;
use profiler_core::collective::{CollectiveEngine, FunctionTotal};
use profiler_core::leaf::{LEAF_COUNT, Leaf, Leaves};
use profiler_core::steps::StepSource;

use crate::run::{Report, STARTING_UP};
use crate::text_format::shortened;

/// Maximum number of devices with separate values; the others are counted.
const DEVICES: usize = 16;
/// Maximum number of characters of a text.
const TEXT: usize = 160;
/// Copy directions in the order of the counters.
const DIRECTIONS: [CopyKind; 6] = [
    CopyKind::Unknown,
    CopyKind::HostToDevice,
    CopyKind::DeviceToHost,
    CopyKind::DeviceToDevice,
    CopyKind::HostToHost,
    CopyKind::PeerToPeer,
];

/// Function of a communication kernel, from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum CollectiveFunction {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    AllToAll,
    SendRecv,
    Other,
}

impl CollectiveFunction {
    /// Each function with its name in metrics and the identifying part of a kernel's name, in lower case and
    /// without underscores. The order matters: `reduce` is a part of others.
    const ALL: [(Self, &'static str, &'static str); 8] = [
        (Self::AllReduce, "all_reduce", "allreduce"),
        (Self::AllGather, "all_gather", "allgather"),
        (Self::ReduceScatter, "reduce_scatter", "reducescatter"),
        (Self::AllToAll, "all_to_all", "alltoall"),
        (Self::Broadcast, "broadcast", "broadcast"),
        (Self::SendRecv, "send_recv", "sendrecv"),
        (Self::Reduce, "reduce", "reduce"),
        (Self::Other, "other", ""),
    ];

    /// The function with the same name in metrics. Sends and receives are one function, because they share
    /// kernels.
    const fn of_operation(function: Reported) -> Self {
        match function {
            Reported::AllReduce => Self::AllReduce,
            Reported::AllGather => Self::AllGather,
            Reported::ReduceScatter => Self::ReduceScatter,
            Reported::Broadcast => Self::Broadcast,
            Reported::Reduce => Self::Reduce,
            Reported::AllToAll => Self::AllToAll,
            Reported::Send | Reported::Receive | Reported::SendReceive => Self::SendRecv,
            Reported::Gather | Reported::Scatter | Reported::Unknown => Self::Other,
        }
    }

    fn of_kernel(name: &str) -> Self {
        let plain: String = name.chars().filter(|&letter| letter != '_').collect::<String>().to_ascii_lowercase();
        let found = Self::ALL.iter().find(|(_, _, part)| plain.contains(part));
        found.map_or(Self::Other, |&(function, ..)| function)
    }
}

/// A number of operations and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CountAndTime {
    count: u64,
    total_ns: u64,
}

/// Totals of a device over all captures.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeviceTotals {
    id: DeviceId,
    leaves: Leaves,
    kernels: u64,
    steps: u64,
    copied: [u64; DIRECTIONS.len()],
    collectives: [CountAndTime; CollectiveFunction::ALL.len()],
    /// From NCCL if available, else from the names of kernels.
    operations: [FunctionTotal; CollectiveFunction::ALL.len()],
}

/// Totals of all devices of a process over all captures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    devices: Vec<DeviceTotals>,
}

impl Totals {
    /// Adds the totals of a capture, complete or still running.
    pub fn add(&mut self, attributor: &Attributor, dictionary: &Dictionary) {
        for account in attributor.devices() {
            let totals = self.device(account.id());
            totals.leaves.iter_mut().zip(account.leaves()).for_each(|(total, nanos)| *total += nanos);
            let steps = account.steps();
            if steps.source != StepSource::Window {
                totals.steps += steps.seen;
            }
            for (name, row) in account.statistics().kernels() {
                totals.kernels += row.durations.count();
                if row.communication {
                    let function = name
                        .map_or(CollectiveFunction::Other, |name| CollectiveFunction::of_kernel(dictionary.name(name)));
                    let count_and_time = &mut totals.collectives[function as usize];
                    count_and_time.count += row.durations.count();
                    count_and_time.total_ns = count_and_time.total_ns.saturating_add(row.durations.total());
                }
            }
            for (path, row) in account.statistics().copies() {
                let direction = DIRECTIONS.iter().position(|&kind| kind == path.kind).unwrap_or(0);
                totals.copied[direction] = totals.copied[direction].saturating_add(row.bytes);
            }
        }
    }

    /// Adds the collectives of a capture, complete or still running.
    pub fn add_collectives(&mut self, collectives: &CollectiveEngine) {
        for ((device, function), total) in collectives.totals() {
            let sum = &mut self.device(device).operations[CollectiveFunction::of_operation(function) as usize];
            sum.operations += total.operations;
            sum.bytes = sum.bytes.saturating_add(total.bytes);
            sum.exposed_ns = sum.exposed_ns.saturating_add(total.exposed_ns);
        }
    }

    fn device(&mut self, id: DeviceId) -> &mut DeviceTotals {
        let index = self.devices.iter().position(|device| device.id == id).unwrap_or_else(|| {
            self.devices.push(DeviceTotals {
                id,
                leaves: [0; LEAF_COUNT],
                kernels: 0,
                steps: 0,
                copied: [0; DIRECTIONS.len()],
                collectives: Default::default(),
                operations: Default::default(),
            });
            self.devices.len() - 1
        });
        &mut self.devices[index]
    }
}

/// Fields of the reply to `metrics` that come from the records; bottleneck and share are those of the live
/// display.
pub fn state(
    report: &Report,
    (bottleneck, share): (&'static str, f64),
    totals: &Totals,
    dictionary: &Dictionary,
) -> Object {
    let process = &report.process;
    // During start-up the recoverable time is as uncertain as the bottleneck.
    let ranking = if bottleneck == STARTING_UP { &[][..] } else { &report.bottleneck.ranking };
    let text = |text: &str| shortened(text, TEXT);
    let loss = report.completeness.loss.kinds();
    let loss = loss.iter().fold(Object::new(), |object, kind| object.number(kind.name, kind.count));
    let tracing = report.cost.map(|cost| {
        Object::new()
            .number("records_ns", cost.records_ns)
            .number("cupti_ns", cost.cupti_ns)
            .number("callbacks_ns", cost.callback_ns)
            .number("threads_ns", cost.threads_ns)
    });
    Object::new()
        .text("host", &text(&process.host))
        .text("program", &text(process.program()))
        .number("start_unix_ns", process.start.nanos())
        .optional_text("run", process.run().map(|run| text(&run)).as_deref())
        .optional_number("rank", process.rank().map(u64::from))
        .optional_number("world_size", process.world_size().map(u64::from))
        .optional_number("attempt", process.attempt())
        .optional_text("mode", report.cost.map(|cost| cost.mode.name()))
        .text("gpuwhy_version", &text(&process.gpuwhy_version))
        .text("driver_version", &text(&process.driver_version))
        .number("cupti_version", process.cupti_version.into())
        .text("live_bottleneck", bottleneck)
        .share("live_share", share)
        .objects(
            "ranking",
            ranking
                .iter()
                .map(|row| Object::new().text("cause", row.cause.name()).share("recoverable", row.recoverable)),
        )
        .object("loss", Some(loss))
        .object("tracing", tracing)
        .objects("devices", totals.devices.iter().take(DEVICES).map(|device| of_device(device, report, dictionary)))
        .number("devices_beyond", totals.devices.len().saturating_sub(DEVICES) as u64)
}

fn of_device(totals: &DeviceTotals, report: &Report, dictionary: &Dictionary) -> Object {
    let shown = report.devices.iter().find(|device| device.device.id == totals.id);
    let steps = shown.and_then(|device| device.steps.as_ref()).filter(|steps| steps.source != StepSource::Window);
    let leaves = Leaf::ALL.into_iter().map(|leaf| (leaf, totals.leaves[leaf as usize]));
    let leaves = leaves.filter(|&(_, nanos)| nanos > 0);
    let copied = DIRECTIONS.iter().zip(totals.copied).filter(|&(_, bytes)| bytes > 0);
    let collectives =
        CollectiveFunction::ALL.into_iter().map(|(function, name, _)| (name, totals.collectives[function as usize]));
    let operations =
        CollectiveFunction::ALL.into_iter().map(|(function, name, _)| (name, totals.operations[function as usize]));
    Object::new()
        .number("id", totals.id.0.into())
        .optional_text("uuid", dictionary.device(totals.id).and_then(Device::uuid_text).as_deref())
        .object("leaves", Some(leaves.fold(Object::new(), |object, (leaf, nanos)| object.number(leaf.name(), nanos))))
        .number("kernels", totals.kernels)
        .number("steps", totals.steps)
        .optional_number("step_median_ns", steps.map(|steps| steps.duration_percentile(50)))
        .object(
            "copied_bytes",
            Some(copied.fold(Object::new(), |object, (kind, bytes)| object.number(kind.name(), bytes))),
        )
        .objects(
            "collectives",
            collectives.filter(|(_, count_and_time)| count_and_time.count > 0).map(|(name, count_and_time)| {
                Object::new()
                    .text("function", name)
                    .number("count", count_and_time.count)
                    .number("total_ns", count_and_time.total_ns)
            }),
        )
        .objects(
            "operations",
            operations.filter(|(_, total)| *total != FunctionTotal::default()).map(|(name, total)| {
                Object::new()
                    .text("function", name)
                    .number("count", total.operations)
                    .number("bytes", total.bytes)
                    .number("exposed_ns", total.exposed_ns)
            }),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_say_what_they_communicate() {
        for (name, function) in [
            (
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                CollectiveFunction::AllReduce,
            ),
            ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_SIMPLE", CollectiveFunction::ReduceScatter),
            ("ncclDevKernel_Reduce_Sum_f32_RING_LL", CollectiveFunction::Reduce),
            ("ncclDevKernel_SendRecv", CollectiveFunction::SendRecv),
            ("one_shot_all_reduce_kernel", CollectiveFunction::AllReduce),
            ("ncclDevKernel_Generic_1", CollectiveFunction::Other),
        ] {
            assert_eq!(CollectiveFunction::of_kernel(name), function, "{name}");
        }
    }

    #[test]
    fn each_function_and_direction_has_a_place() {
        for (index, (function, ..)) in CollectiveFunction::ALL.into_iter().enumerate() {
            assert!((function as usize) < CollectiveFunction::ALL.len(), "{index}");
        }
        let mut places: Vec<_> = CollectiveFunction::ALL.iter().map(|(function, ..)| *function as usize).collect();
        places.sort_unstable();
        assert_eq!(places, (0..CollectiveFunction::ALL.len()).collect::<Vec<_>>());
    }
}
