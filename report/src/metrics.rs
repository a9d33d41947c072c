//! Metrics of a process for monitoring systems, of bounded length.
//!
//! Counters are totals over all captures of the process, so that they never decrease when the next capture
//! starts. Values that describe the present (bottleneck, recoverable time) are those of the capture that a
//! report would cover. They contain no names of kernels, lines or arguments.

use std::collections::BTreeMap;

use gpuwhy_trace::collective::Function as Reported;
use gpuwhy_trace::cost::Cost;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::named;
use gpuwhy_trace::record::{Device, DeviceId};
use profiler_core::attribution::Attributor;
use profiler_core::collective::CollectiveEngine;
use profiler_core::leaf::Leaf;
use profiler_core::steps::StepSource;

use crate::run::{Ranked, Report, STARTING_UP, ServingKind};
use crate::state::{DeviceMetrics, Metrics, Recoverable, Tracing};
use crate::text_format::shortened;

/// Maximum number of devices with separate values; the others are counted.
const DEVICES: usize = 16;
/// Maximum number of characters of a text.
const TEXT: usize = 160;

named! {
    /// Function of a communication kernel, from its name. The order matters: `reduce` is a part of others.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CollectiveFunction: name {
        AllReduce "all_reduce",
        AllGather "all_gather",
        ReduceScatter "reduce_scatter",
        AllToAll "all_to_all",
        Broadcast "broadcast",
        /// Sends and receives are one function, because they share kernels.
        SendRecv "send_recv",
        Reduce "reduce",
        Other "other",
    }
}

impl CollectiveFunction {
    /// The function with the same name in metrics.
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
        let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
        let name = plain(name);
        Self::ALL.into_iter().find(|function| name.contains(&plain(function.name()))).unwrap_or(Self::Other)
    }
}

/// Totals of all devices of a process over all captures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    devices: Vec<DeviceMetrics>,
}

impl Totals {
    /// Adds the totals of a capture, complete or still running.
    pub fn add(&mut self, attributor: &Attributor, dictionary: &Dictionary) {
        for account in attributor.devices() {
            let totals = self.device(account.id());
            for (leaf, nanos) in Leaf::ALL.into_iter().zip(*account.leaves()) {
                add(&mut totals.leaves, leaf.name(), nanos);
            }
            let steps = account.steps();
            if steps.source != StepSource::Window {
                totals.steps += steps.seen;
            }
            for (name, row) in account.statistics().kernels() {
                totals.kernels += row.durations.count();
                if row.communication {
                    let function = name
                        .map_or(CollectiveFunction::Other, |name| CollectiveFunction::of_kernel(dictionary.name(name)));
                    let total = of_function(&mut totals.collectives, function, |row| &mut row.function);
                    total.count += row.durations.count();
                    total.total_ns = total.total_ns.saturating_add(row.durations.total());
                }
            }
            for (path, row) in account.statistics().copies() {
                add(&mut totals.copied_bytes, path.kind.name(), row.bytes);
            }
        }
    }

    /// Adds the collectives of a capture, complete or still running.
    pub fn add_collectives(&mut self, collectives: &CollectiveEngine) {
        for ((device, function), total) in collectives.totals() {
            let rows = &mut self.device(device).operations;
            let sum = of_function(rows, CollectiveFunction::of_operation(function), |row| &mut row.function);
            sum.count += total.operations;
            sum.bytes = sum.bytes.saturating_add(total.bytes);
            sum.exposed_ns = sum.exposed_ns.saturating_add(total.exposed_ns);
        }
    }

    fn device(&mut self, id: DeviceId) -> &mut DeviceMetrics {
        let index = self.devices.iter().position(|device| device.id == u64::from(id.0)).unwrap_or_else(|| {
            self.devices.push(DeviceMetrics { id: id.0.into(), ..DeviceMetrics::default() });
            self.devices.len() - 1
        });
        &mut self.devices[index]
    }
}

fn add(totals: &mut BTreeMap<String, u64>, name: &str, value: u64) {
    if value > 0 {
        let total = totals.entry(name.to_owned()).or_default();
        *total = total.saturating_add(value);
    }
}

/// The row of a function, which is added if there is none.
fn of_function<T: Default>(
    rows: &mut Vec<T>,
    function: CollectiveFunction,
    name: impl Fn(&mut T) -> &mut String,
) -> &mut T {
    let index = rows.iter_mut().position(|row| name(row) == function.name()).unwrap_or_else(|| {
        let mut row = T::default();
        function.name().clone_into(name(&mut row));
        rows.push(row);
        rows.len() - 1
    });
    &mut rows[index]
}

/// Fields of the reply to `metrics` that come from the records; bottleneck and share are those of the live
/// display.
pub fn state(
    report: &Report,
    (bottleneck, share): (&'static str, f64),
    totals: &Totals,
    dictionary: &Dictionary,
) -> Metrics {
    let process = &report.process;
    // During start-up the recoverable time is as uncertain as the bottleneck.
    let ranking = if bottleneck == STARTING_UP { &[][..] } else { &report.bottleneck.ranking };
    let text = |text: &str| shortened(text, TEXT);
    let ranked = |row: &Ranked| Recoverable { cause: row.cause.name().to_owned(), recoverable: row.recoverable };
    let tracing = |cost: &Cost| Tracing {
        records_ns: cost.records_ns,
        cupti_ns: cost.cupti_ns,
        callbacks_ns: cost.callback_ns,
        threads_ns: cost.threads_ns,
    };
    Metrics {
        host: text(&process.host),
        program: text(process.program()),
        start_unix_ns: process.start.nanos(),
        run: process.run().map(|run| text(&run)),
        rank: process.rank().map(u64::from),
        world_size: process.world_size().map(u64::from),
        attempt: process.attempt(),
        mode: report.cost.map(|cost| cost.mode.name().to_owned()),
        gpuwhy_version: text(&process.gpuwhy_version),
        driver_version: text(&process.driver_version),
        cupti_version: process.cupti_version.into(),
        live_bottleneck: bottleneck.to_owned(),
        live_share: share,
        ranking: ranking.iter().map(ranked).collect(),
        iterations: report.serving().iter().flat_map(|of| &of.kinds).map(ServingKind::state).collect(),
        loss: report.completeness.loss.kinds().iter().map(|kind| (kind.name.to_owned(), kind.count)).collect(),
        tracing: report.cost.as_ref().map(tracing),
        devices: totals.devices.iter().take(DEVICES).map(|device| of_device(device, report, dictionary)).collect(),
        devices_beyond: totals.devices.len().saturating_sub(DEVICES) as u64,
        memory: report.memory_states(),
    }
}

fn of_device(totals: &DeviceMetrics, report: &Report, dictionary: &Dictionary) -> DeviceMetrics {
    let shown = report.devices.iter().find(|device| u64::from(device.device.id.0) == totals.id);
    let steps = shown.and_then(|device| device.steps.as_ref()).filter(|steps| steps.source != StepSource::Window);
    DeviceMetrics {
        uuid: u32::try_from(totals.id).ok().and_then(|id| dictionary.device(DeviceId(id))).and_then(Device::uuid_text),
        step_median_ns: steps.map(|steps| steps.duration_percentile(50)),
        ..totals.clone()
    }
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
}
