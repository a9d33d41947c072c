//! Memory of the devices: what is in use, what the program allocates, and when that grows.
//!
//! Four sources are joined. Readings of NVML (`readings`) count the memory of all processes. Calls that allocate or
//! release (`calls`) tell the program's part in a change, but not its size. Records of allocations (`holdings`),
//! which are optional, have sizes. Host samples show lines near a call.
//!
//! Readings wait for the watermark, because the calls before them may arrive later. Records come in any order within a
//! flush and are sorted here. They carry no thread; the call with the same correlation id does, and it is known by the
//! flush that passes its end. So a new peak of allocations stays open until its call has arrived.

pub mod blocks;
mod calls;
mod holdings;
mod owners;
mod readings;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gpuwhy_trace::counters::{CounterEvent, GaugeReading, ProcessReading};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::memory_call;
use gpuwhy_trace::record::{ApiCall, ApiFunctionId, DeviceId, HostSample, MemoryEvent, MemoryKind, NameId, ThreadId};

use self::blocks::{Blocks, DeviceBlocks};
use self::calls::{Calls, MemoryCall};
use self::owners::Owners;
use self::readings::{Reading, Readings};
use crate::api::{ApiClass, allocates_on_device, releases_on_device};

pub use calls::MemoryCalls;
pub use holdings::{Holding, Holdings, MemoryOwner};
pub use owners::{DeviceOwners, Owner, OwnerShare};
pub use readings::{MemoryGrowth, MemoryJump, MemoryPeak, MemoryRemainder};

/// Maximum events that wait for a flush (112 bytes each); beyond that the older half is processed as it is.
const PENDING_LIMIT: usize = 1 << 16;
/// Readings that wait for the watermark; beyond that the oldest ones are processed with what is known. Seven minutes.
const READING_LIMIT: usize = 4_096;
/// Devices with readings.
const DEVICE_LIMIT: usize = 256;

/// Caller that took memory to its peak, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeakCaller {
    /// The thread.
    pub thread: ThreadId,
    /// The function that allocated.
    pub function: ApiFunctionId,
    /// The innermost range that was open on that thread.
    pub range: Option<NameId>,
    /// Time of the call, nanoseconds.
    start: u64,
    /// Index of the thread.
    index: u32,
    /// True once the range has been looked up.
    placed: bool,
}

/// Memory of one device.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceMemory {
    /// The device.
    pub device: DeviceId,
    /// Number of readings.
    pub readings: u64,
    /// Peak of all processes; `None` without a reading.
    pub peak: Option<MemoryPeak>,
    /// Peak of what is not other processes' memory, of the readings with which these were read, once a second, bytes;
    /// `None` without such a reading.
    pub own_peak: Option<u64>,
    /// In use by all processes at the last reading, bytes.
    pub last: Option<u64>,
    /// Largest increase between two readings; `None` if there was none.
    pub jump: Option<MemoryJump>,
    /// In use beside recorded allocations; `None` if these were not recorded, or come from pools.
    pub remainder: Option<MemoryRemainder>,
    /// Growth per step after start-up. The outer `None` if there is too little to judge.
    pub growth: Option<Option<MemoryGrowth>>,
    /// Recorded allocations of device memory; `None` if they were not recorded.
    pub held: Option<Holding>,
    /// Recorded variables of modules and their size in bytes. They lie within the module's memory, so no other number
    /// includes them.
    pub module_variables: Option<(u64, u64)>,
    /// Owners of what is in use; `None` if calls of the driver were not recorded.
    pub owners: Option<DeviceOwners>,
    /// Blocks of PyTorch's allocator; `None` without `gpuwhy run --pytorch memory`.
    pub blocks: Option<DeviceBlocks>,
}

/// Memory of all devices. See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct MemoryUse {
    /// Start of the capture, nanoseconds; earlier readings are ignored.
    pub(crate) from: u64,
    /// Blocks of PyTorch.
    pub(crate) blocks: Blocks,
    pending: Vec<MemoryEvent>,
    holdings: Holdings,
    callers: BTreeMap<MemoryOwner, Option<PeakCaller>>,
    calls: Calls,
    waiting: VecDeque<Waiting>,
    /// Number of waiting readings that have the memory held at their time.
    held_known: usize,
    owners: Owners,
    devices: BTreeMap<DeviceId, Readings>,
}

/// A reading that waits for the calls before it.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    Device(DeviceId, Reading),
    Process(ProcessReading),
}

impl Waiting {
    fn at(&self) -> u64 {
        match self {
            Self::Device(_, reading) => reading.at,
            Self::Process(reading) => reading.at.nanos(),
        }
    }
}

impl MemoryUse {
    /// Adds a record of an allocation, a release or a pool.
    pub(crate) fn push(&mut self, event: &MemoryEvent) {
        self.pending.push(*event);
        if self.pending.len() >= PENDING_LIMIT {
            self.pending.sort_by_key(|event| event.at);
            let half = self.pending[PENDING_LIMIT / 2].at.nanos();
            self.advance_records(half);
        }
    }

    /// Adds a reading. They come in order of time.
    pub(crate) fn read(&mut self, event: &CounterEvent) {
        let waiting = match event {
            CounterEvent::Gauges(GaugeReading { device, at, memory_used_bytes: Some(used), .. }) => {
                Waiting::Device(*device, Reading { at: at.nanos(), used: *used, held: None, held_most_at: 0 })
            }
            CounterEvent::Process(reading) if reading.memory_bytes.is_some() => Waiting::Process(*reading),
            _ => return,
        };
        if waiting.at() < self.from {
            return;
        }
        if self.waiting.len() >= READING_LIMIT {
            self.advance_records(self.waiting[READING_LIMIT / 2].at());
            self.advance(self.waiting[READING_LIMIT / 2].at());
        }
        self.waiting.push_back(waiting);
    }

    /// Adds a call of the driver that takes or gives memory.
    pub(crate) fn took(&mut self, call: &memory_call::MemoryCall, dictionary: &Dictionary) {
        self.owners.push(call, dictionary);
    }

    pub(crate) fn sampled(&mut self, sample: &HostSample) {
        self.calls.sampled(sample);
    }

    /// Learns the devices of contexts.
    pub(crate) fn learn(&mut self, dictionary: &Dictionary) {
        self.owners.learn(dictionary);
    }

    /// Processes the records up to `horizon`. To be called before the calls up to there are placed.
    pub(crate) fn advance_records(&mut self, horizon: u64) {
        // Stable: a release and an allocation at the same time keep their order of arrival.
        self.pending.sort_by_key(|event| event.at);
        let count = self.pending.partition_point(|event| event.at.nanos() <= horizon);
        let later = self.pending.split_off(count);
        for event in std::mem::replace(&mut self.pending, later) {
            self.hold_until(event.at.nanos());
            if let Some((place, holding)) = self.holdings.take(&event)
                && holding.peak_at == event.at
                && holding.current == holding.peak
            {
                self.callers.insert(place, None);
            }
        }
        self.hold_until(horizon.saturating_add(1));
    }

    /// All records before `until` were processed: readings before it learn what is held.
    fn hold_until(&mut self, until: u64) {
        let Self { waiting, holdings, held_known, .. } = self;
        for row in waiting.iter_mut().skip(*held_known).take_while(|row| row.at() < until) {
            if let Waiting::Device(device, reading) = row {
                reading.held = holdings.on_device(*device);
                let held = holdings.get((*device, MemoryKind::Device));
                reading.held_most_at = held.map_or(0, |held| held.peak_at.nanos());
            }
            *held_known += 1;
        }
    }

    /// A call of the thread with this index ended. `class` is that of its function.
    #[inline]
    pub(crate) fn called(&mut self, index: u32, call: &ApiCall, class: ApiClass, dictionary: &Dictionary) {
        if matches!(class, ApiClass::Memory | ApiClass::LoadCode) {
            self.called_on_device(call, class, dictionary);
        }
        if self.callers.is_empty() {
            return;
        }
        for (place, caller) in &mut self.callers {
            let is_its = self.holdings.get(*place).is_some_and(|holding| holding.peak_call == call.correlation);
            if is_its && caller.is_none() {
                let (thread, function, start) = (call.thread, call.function, call.start.nanos());
                *caller = Some(PeakCaller { thread, function, range: None, start, index, placed: false });
            }
        }
    }

    fn called_on_device(&mut self, call: &ApiCall, class: ApiClass, dictionary: &Dictionary) {
        let (start, end) = (call.start.nanos(), call.end.nanos());
        if class == ApiClass::LoadCode {
            return self.calls.loaded(start, end);
        }
        let Some(function) = dictionary.api_function(call.function) else { return };
        let name = dictionary.name(function.name);
        let allocates = allocates_on_device(name);
        if allocates || releases_on_device(name) {
            let placed = MemoryCall { start, end, thread: call.thread, function: call.function };
            self.calls.add(placed, allocates, call.return_value);
        }
    }

    /// Finds the ranges of new callers; `range_of` returns the one that was open on a thread at a time.
    pub(crate) fn place(&mut self, range_of: impl Fn(u32, u64) -> Option<NameId>) {
        for caller in self.callers.values_mut().flatten().filter(|caller| !caller.placed) {
            caller.range = range_of(caller.index, caller.start);
            caller.placed = true;
        }
    }

    /// All calls before `watermark` were placed: processes the readings up to there.
    pub(crate) fn advance(&mut self, watermark: u64) {
        let Self { waiting, held_known, devices, calls, owners, .. } = self;
        while let Some(row) = waiting.front().copied().filter(|row| row.at() <= watermark) {
            waiting.pop_front();
            *held_known = held_known.saturating_sub(1);
            let (Waiting::Device(device, _) | Waiting::Process(ProcessReading { device, .. })) = row;
            if devices.len() >= DEVICE_LIMIT && !devices.contains_key(&device) {
                continue;
            }
            let readings = devices.entry(device).or_default();
            match row {
                Waiting::Device(_, reading) => {
                    if let Some(others) = readings.add(reading, calls) {
                        owners.reading(device, reading.at, reading.used, others);
                    }
                }
                Waiting::Process(other) => {
                    readings.other(other.at.nanos(), other.pid, other.memory_bytes.unwrap_or_default());
                }
            }
        }
        owners.apply_until(watermark);
    }

    /// Memory of the devices with readings or records. `steady` has the end of start-up and the length of a step of a
    /// device, nanoseconds; 0 without steps.
    pub(crate) fn devices(&self, steady: impl Fn(DeviceId) -> (u64, u64)) -> Vec<DeviceMemory> {
        let held = |device| self.holdings.get((device, MemoryKind::Device));
        let recorded = self.holdings.rows().filter(|((_, kind), _)| *kind == MemoryKind::Device).map(|row| row.0.0);
        let read = self.devices.iter().filter(|(_, readings)| readings.count > 0).map(|(&device, _)| device);
        let all: BTreeSet<_> = recorded.chain(read).chain(self.blocks.ids()).collect();
        let nothing = Readings::default();
        all.into_iter()
            .map(|device| {
                let readings = self.devices.get(&device).unwrap_or(&nothing);
                let (from, step) = steady(device);
                DeviceMemory {
                    device,
                    readings: readings.count,
                    peak: readings.peak,
                    own_peak: readings.own_peak(),
                    last: readings.newest.map(|reading| reading.used),
                    jump: readings.jump.clone(),
                    remainder: readings.remainder,
                    growth: readings.growth(from, step),
                    held: held(device).copied(),
                    module_variables: self.holdings.module_variables(device),
                    owners: self.owners.of(device),
                    blocks: self.blocks.of_device(device),
                }
            })
            .collect()
    }

    /// Functions that allocate or release memory of devices, by the time in them.
    pub(crate) fn calls(&self) -> Vec<(ApiFunctionId, MemoryCalls)> {
        self.calls.rows()
    }

    pub(crate) fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// Each owner, with the caller that took it to its peak.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (MemoryOwner, &Holding, Option<PeakCaller>)> {
        self.holdings.rows().map(|(place, holding)| (place, holding, self.callers.get(&place).copied().flatten()))
    }
}
