//! Memory of the devices: its peak, its largest increase, what the program allocated, and growth.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{StackId, Timestamp};
use profiler_core::attribution::{Attributor, template};
use profiler_core::memory::{DeviceMemory, Holding, MemoryCalls, MemoryGrowth, MemoryJump};
use profiler_core::sorting::SortRows as _;

use super::{
    DeviceReport, GrowthPerStep, JumpOfMemory, LineNear, LongestCall, MemoryCallRow, MemoryOfDevice, MemoryReport,
    MemoryRow, PeakBy, memory_owners, names,
};

impl MemoryReport {
    /// Builds the report from the current state; `None` without a reading, an allocation or a call that allocates.
    pub(super) fn of(attributor: &Attributor, devices: &[DeviceReport], dictionary: &Dictionary) -> Option<Self> {
        let (memory, calls) = (attributor.device_memory(), attributor.memory_calls());
        let looks = attributor.block_looks().cloned();
        if memory.is_empty() && calls.is_empty() && looks.is_none() {
            return None;
        }
        let alone = memory.len() == 1 && devices.len() <= 1;
        let of_device = |of: &DeviceMemory| {
            let report = devices.iter().find(|device| device.device.id == of.device);
            let calls = alone.then(|| calls.iter().map(|&(_, calls)| calls).collect());
            let steady = attributor.devices().find(|account| account.id() == of.device);
            MemoryOfDevice::of(of, calls, steady.map(|account| account.steady_start()), report, dictionary)
        };
        let row = |&(function, of): &(_, MemoryCalls)| MemoryCallRow {
            function: names::function(dictionary, function),
            calls: of.calls,
            failed: of.failed,
            total_ns: of.total_ns,
        };
        let holdings = attributor.holdings();
        let untracked = memory.iter().filter_map(|of| of.owners.as_ref()).map(|owners| owners.untracked).max();
        Some(Self {
            devices: memory.iter().map(of_device).collect(),
            calls_ns: calls.iter().fold(0, |sum: u64, (_, of)| sum.saturating_add(of.total_ns)),
            calls: calls.iter().map(row).collect(),
            rows: rows(attributor, dictionary),
            unknown_releases: holdings.unknown_releases(),
            table_overflow: holdings.table_overflow().max(untracked.unwrap_or(0)),
            pytorch: looks,
        })
    }
}

impl MemoryOfDevice {
    fn of(
        of: &DeviceMemory,
        calls: Option<Vec<MemoryCalls>>,
        steady: Option<Timestamp>,
        report: Option<&DeviceReport>,
        dictionary: &Dictionary,
    ) -> Self {
        let total_bytes = dictionary.device(of.device).map(|device| device.memory_bytes).filter(|&bytes| bytes > 0);
        let counted = |count: fn(&MemoryCalls) -> u64| calls.as_ref().map(|calls| calls.iter().map(count).sum::<u64>());
        let held = |value: fn(&Holding) -> u64| of.held.as_ref().map(value);
        let growth = of.growth.flatten();
        Self {
            device: of.device,
            total_bytes,
            readings: of.readings,
            peak_used_bytes: of.peak.map(|peak| peak.bytes),
            peak_unix_ns: of.peak.map(|peak| peak.at),
            peak_until_end: of.peak.map(|peak| peak.until_end),
            peak_step: of.peak.zip(report).and_then(|(peak, report)| step_at(report, peak.at)),
            peak_in: of.peak.zip(steady).map(|(peak, steady)| if peak.at < steady { "start_up" } else { "steady" }),
            last_used_bytes: of.last,
            peak_own_bytes: of.own_peak,
            other_processes_bytes: of.peak.and_then(|peak| peak.others),
            jump: of.jump.as_ref().map(|jump| JumpOfMemory::of(jump, dictionary)),
            allocations: held(|of| of.allocations).or_else(|| counted(|of| if of.allocates { of.calls } else { 0 })),
            releases: held(|of| of.releases).or_else(|| counted(|of| if of.allocates { 0 } else { of.calls })),
            failed: counted(|of| of.failed),
            retried: counted(|of| of.retried),
            held_bytes: held(|of| of.current),
            held_peak_bytes: held(|of| of.peak),
            allocated_bytes: held(|of| of.allocated),
            largest_bytes: held(|of| of.largest),
            pool_peak_bytes: held(|of| of.pool_peak),
            module_variables: of.module_variables.map(|(count, _)| count),
            remainder_bytes: of.remainder.map(|rest| rest.bytes),
            remainder_since_unix_ns: of.remainder.map(|rest| rest.since),
            growth_per_step: growth.map(|growth| GrowthPerStep::of(growth, total_bytes.zip(of.last))),
            growth_judged: of.growth.is_some(),
            owners: of.owners.as_ref().map(|owners| memory_owners::rows(owners, dictionary)).unwrap_or_default(),
            blocks: of.blocks.clone(),
        }
    }
}

/// Number of the remembered step in progress at a time, from 1.
fn step_at(report: &DeviceReport, at: Timestamp) -> Option<u64> {
    let steps = report.steps.as_ref()?;
    let index = steps.rows.iter().position(|row| row.start <= at && at < row.end)?;
    Some(steps.seen - steps.rows.len() as u64 + index as u64 + 1)
}

impl JumpOfMemory {
    fn of(jump: &MemoryJump, dictionary: &Dictionary) -> Self {
        let calls = jump.calls.iter().map(|&(function, calls)| (names::function(dictionary, function), calls));
        Self {
            bytes: jump.bytes,
            from_unix_ns: jump.from,
            to_unix_ns: jump.to,
            calls: calls.collect(),
            longest: jump
                .longest
                .map(|(function, unix_ns)| LongestCall { function: names::function(dictionary, function), unix_ns }),
            near: jump.near.and_then(|stack| LineNear::of(stack, dictionary)),
        }
    }
}

impl LineNear {
    /// The innermost line of Python outside of PyTorch, of the standard library and of gpuwhy, whose own lines are the
    /// same for all programs.
    pub(super) fn of(stack: StackId, dictionary: &Dictionary) -> Option<Self> {
        let python = || dictionary.stack(stack).filter(|frame| frame.line > 0);
        let outside = python().find(|frame| {
            let file = dictionary.name(frame.file);
            let standard = file.contains("/lib/python3") && !file.contains("-packages/");
            !standard && !["/torch/", "<frozen ", "/sitecustomize.py"].iter().any(|part| file.contains(part))
        });
        outside.or_else(|| python().next()).map(|frame| Self {
            function: dictionary.name(frame.function).to_owned(),
            file: dictionary.name(frame.file).to_owned(),
            line: frame.line,
        })
    }
}

impl GrowthPerStep {
    /// `room`: bytes of the device, and those in use.
    fn of(growth: MemoryGrowth, room: Option<(u64, u64)>) -> Self {
        let free = room.map(|(total, used)| total.saturating_sub(used));
        Self {
            bytes: growth.per_step,
            low: growth.low,
            high: growth.high,
            steps_until_full: free.map(|free| (free as f64 / growth.per_step) as u64),
        }
    }
}

fn rows(attributor: &Attributor, dictionary: &Dictionary) -> Vec<MemoryRow> {
    let mut rows: Vec<_> = attributor
        .memory()
        .map(|((device, kind), holding, caller)| MemoryRow {
            device,
            kind,
            holding: *holding,
            peak_by: caller.map(|caller| PeakBy {
                thread: caller.thread,
                thread_name: dictionary.thread_name(caller.thread).map(str::to_owned),
                function: names::function(dictionary, caller.function),
                range: caller.range.map(|message| {
                    let text = dictionary.name(message);
                    template(text).unwrap_or_else(|| text.to_owned())
                }),
            }),
        })
        .collect();
    rows.sort_rows_by(|a, b| b.holding.peak.cmp(&a.holding.peak).then((a.device, a.kind).cmp(&(b.device, b.kind))));
    rows
}
