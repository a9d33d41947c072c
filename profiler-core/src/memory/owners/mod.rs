//! Owners of the memory of a device, from calls of the driver that take or give it.
//!
//! What a call takes belongs to the library that called, until it is given back. What no call tells the size of belongs
//! to what the program did between two readings of NVML: it created a context, loaded code, used a pool of the driver.
//! The rest, without such a call, is *unnamed*. So the shares sum to the reading, at each reading.
//!
//! Physical memory (`cuMemCreate`) is held until its handles are released and its mappings are gone. Managed memory has
//! no owner: only the driver knows which of its pages are on the device.

use std::collections::{BTreeMap, VecDeque};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::memory_call::{MemoryCall, MemoryFunction};
use gpuwhy_trace::named;
use gpuwhy_trace::record::{ContextId, DeviceId, StackId, Timestamp};
use rustc_hash::FxHashMap;

use super::DEVICE_LIMIT;

/// Calls that wait for a reading (96 bytes each); beyond that the older half is processed.
const PENDING_LIMIT: usize = 1 << 16;
/// Allocations that are tracked; further ones are unnamed.
const HELD_LIMIT: usize = 1 << 18;
/// The driver gives a larger allocation pages of its own (seen on an H200: jumps of the rest are whole pages).
const SHARES_A_PAGE: u64 = 1 << 20;
/// Page of the driver, bytes.
const PAGE: u64 = 2 << 20;
/// A reading may see what happens up to 5 ms after its time, which is taken before NVML is asked.
const READING_NANOS: u64 = 5_000_000;
/// Calls after a reading that it may have seen.
const EARLY_CALLS: usize = 64;
/// Start of a call that gives back whatever a place holds.
const EVER: Timestamp = Timestamp::from_nanos(u64::MAX);
/// No device has more bytes: larger numbers are damaged.
const MOST_BYTES: u64 = 1 << 48;
/// What other processes hold is read once a second, so that it is known up to two seconds later.
const OTHERS_NANOS: u64 = 2_000_000_000;
/// Changes that are remembered for that time.
const RECENT_LIMIT: usize = 256;

named! {
    /// Owner of device memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Owner: name words {
        /// The allocator of PyTorch: its segments.
        PyTorch "pytorch" "PyTorch",
        /// XLA (JAX, TensorFlow).
        Xla "xla" "XLA",
        /// CuPy.
        CuPy "cupy" "CuPy",
        /// cuBLAS.
        CuBlas "cublas" "cuBLAS",
        /// cuDNN.
        CuDnn "cudnn" "cuDNN",
        /// NCCL.
        Nccl "nccl" "NCCL",
        /// Other libraries, and the program itself.
        Program "program" "the program and other libraries",
        /// Calls whose stack was not read, so that the library is not known.
        Unread "unread" "calls without a stack",
        /// Taken while a CUDA graph was captured, or by a graph itself when it is instantiated or uploaded.
        GraphPools "graph_pools" "graph pools",
        /// Kept by the driver's pools beside what is allocated from them.
        Pools "pools" "free in the driver's pools",
        /// Code and static variables.
        Modules "modules" "modules",
        /// Contexts, and what was in use before if no reading came before the first of them.
        Context "context" "context",
        /// In use at the first reading, before the first context.
        Before "before" "in use before",
        /// Other processes.
        OtherProcesses "other_processes" "other processes",
        /// The rest.
        Unnamed "unnamed" "unnamed",
    }
}

const OWNERS: usize = Owner::ALL.len();
/// Owners of a change without a size, the most likely one first.
const CAUSES: [Owner; 4] = [Owner::Context, Owner::Modules, Owner::Pools, Owner::GraphPools];

/// Part of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerShare {
    /// The owner.
    pub owner: Owner,
    /// Bytes at the peak of the device; what is derived from readings may be below 0.
    pub peak_bytes: i64,
    /// Bytes at the last reading.
    pub last_bytes: i64,
    /// Stack of the calls that took the most of what it held at the peak.
    pub near: Option<StackId>,
}

/// Owners of a device's memory. Their bytes sum to the reading.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceOwners {
    /// Owners with memory, as in [`Owner::ALL`].
    pub shares: Vec<OwnerShare>,
    /// Least and most bytes without a name at any reading.
    pub unnamed: (i64, i64),
    /// Allocations that were not tracked because too many were live.
    pub untracked: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Owners {
    waiting: VecDeque<(MemoryCall, Owner)>,
    /// True once there was a call.
    called: bool,
    contexts: BTreeMap<ContextId, DeviceId>,
    held: FxHashMap<Place, Held>,
    handles: FxHashMap<u64, Handle>,
    /// Physical memory: number of handles and mappings.
    references: FxHashMap<u64, u64>,
    /// By address.
    mappings: BTreeMap<u64, Mapping>,
    /// Number of the newest physical memory.
    newest: u64,
    by_stack: FxHashMap<(DeviceId, Owner, StackId), u64>,
    devices: BTreeMap<DeviceId, OfDevice>,
    untracked: u64,
}

/// What is held, and its address, handle or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Address(u64),
    Array(u64),
    Physical(u64),
}

#[derive(Clone, Copy, Debug)]
struct Held {
    device: DeviceId,
    owner: Owner,
    stack: StackId,
    bytes: u64,
    /// Handle of the context that it ends with; 0 if unknown.
    context: u64,
    /// End of the call that took it. A call that began before gave back what was at this place earlier.
    since: Timestamp,
}

/// Handle of physical memory.
#[derive(Clone, Copy, Debug)]
struct Handle {
    memory: u64,
    references: u64,
    since: Timestamp,
}

/// Mapping of physical memory.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    end: u64,
    memory: u64,
    since: Timestamp,
}

#[derive(Debug, Default)]
struct OfDevice {
    held: [i64; OWNERS],
    /// Changes without a size, by their owner.
    derived: [i64; OWNERS],
    /// Owners whose calls since the last reading explain a change.
    causes: [bool; OWNERS],
    /// Newest changes of `derived`: time, owner, bytes.
    recent: Vec<(u64, Owner, i64)>,
    /// Handle and references of the primary context.
    primary: (u64, u64),
    /// In use beside what is held and other processes at the last reading.
    last: Option<i64>,
    /// True if the first reading came before the first context.
    early: bool,
    highest: u64,
    /// Shares at the last reading, and at the peak.
    latest: [i64; OWNERS],
    peak: [i64; OWNERS],
    near: [Option<StackId>; OWNERS],
    unnamed: Option<(i64, i64)>,
}

impl Owners {
    /// Adds a call; those of one thread come in the order of their ends.
    pub(super) fn push(&mut self, call: &MemoryCall, dictionary: &Dictionary) {
        self.called = true;
        if call.bytes > MOST_BYTES {
            self.untracked += 1;
            return;
        }
        self.waiting.push_back((*call, owner_of(call, dictionary)));
        if self.waiting.len() >= PENDING_LIMIT {
            self.sort();
            self.apply_until(self.waiting[PENDING_LIMIT / 2].0.end.nanos());
        }
    }

    /// Learns the devices of contexts.
    pub(super) fn learn(&mut self, dictionary: &Dictionary) {
        if !self.waiting.is_empty() {
            for context in dictionary.contexts() {
                self.contexts.insert(context.id, context.device);
                self.device(context.device);
            }
        }
    }

    /// Stable: calls of one thread keep their order.
    fn sort(&mut self) {
        self.waiting.make_contiguous().sort_by_key(|(call, _)| call.end);
    }

    /// All calls that ended before `until` are known.
    pub(super) fn apply_until(&mut self, until: u64) {
        self.sort();
        while let Some((call, owner)) = self.waiting.front().copied().filter(|row| row.0.end.nanos() <= until) {
            self.waiting.pop_front();
            self.apply(&call, owner);
        }
    }

    /// Adds a reading; all calls that ended before it are known, and the memory of other processes if it was read.
    pub(super) fn reading(&mut self, device: DeviceId, at: u64, used: u64, others: Option<u64>) {
        let [used, others] = [used, others.unwrap_or(0)].map(|bytes| bytes.min(MOST_BYTES));
        let Some(row) = self.device(device) else { return };
        let last = row.last.unwrap_or(0);
        self.apply_until(at);
        // NVML sees what a call does before it ends: whichever way the rest changes less.
        for _ in 0..EARLY_CALLS {
            let soon = self.waiting.iter().take(EARLY_CALLS).enumerate();
            let soon = soon.filter(|(_, row)| row.0.start.nanos() <= at.saturating_add(READING_NANOS));
            let changes = soon.map(|(index, (call, _))| (index, self.change(call, device)));
            let off = self.rest(device, used, others).saturating_sub(last);
            let first = changes.into_iter().find(|&(_, change)| change != 0);
            let less = first.filter(|&(_, change)| off.saturating_sub(change).unsigned_abs() < off.unsigned_abs());
            let Some((call, owner)) = less.and_then(|(index, _)| self.waiting.remove(index)) else { break };
            self.apply(&call, owner);
        }
        let running = self.waiting.iter().filter(|(call, _)| call.start.nanos() <= at);
        let causes: Vec<_> = running
            .filter(|(call, _)| self.device_of(call) == Some(device))
            .filter_map(|(call, _)| cause_of(call))
            .collect();
        let rest = self.rest(device, used, others);
        let Some(row) = self.device(device) else { return };
        causes.into_iter().for_each(|cause| row.causes[cause as usize] = true);
        row.divide(at, rest, others);
        // Of readings that are equal the newest one: what other processes hold is known up to a second later.
        if used >= row.highest {
            row.highest = used;
            row.peak = row.latest;
            let mut most = [0; OWNERS];
            let mut near: [Option<StackId>; OWNERS] = Default::default();
            for (&(of, owner, stack), &bytes) in &self.by_stack {
                let index = owner as usize;
                if of == device && stack != StackId::NONE && (bytes, Some(stack)) > (most[index], near[index]) {
                    (most[index], near[index]) = (bytes, Some(stack));
                }
            }
            if let Some(row) = self.device(device) {
                row.near = near;
            }
        }
    }

    /// Owners of a device's memory; `None` without calls or readings.
    pub(super) fn of(&self, device: DeviceId) -> Option<DeviceOwners> {
        let row = self.devices.get(&device).filter(|row| self.called && row.last.is_some())?;
        let share = |owner: Owner| {
            let index = owner as usize;
            OwnerShare { owner, peak_bytes: row.peak[index], last_bytes: row.latest[index], near: row.near[index] }
        };
        let shares = Owner::ALL.into_iter().map(share);
        let shares = shares.filter(|share| {
            let always = share.owner == Owner::Unnamed || (share.owner == Owner::Before && row.early);
            always || share.peak_bytes != 0 || share.last_bytes != 0
        });
        Some(DeviceOwners { shares: shares.collect(), unnamed: row.unnamed?, untracked: self.untracked })
    }

    /// The device, unless there are too many.
    fn device(&mut self, device: DeviceId) -> Option<&mut OfDevice> {
        let full = self.devices.len() >= DEVICE_LIMIT && !self.devices.contains_key(&device);
        (!full).then(|| self.devices.entry(device).or_default())
    }

    /// In use beside what is held and other processes.
    fn rest(&self, device: DeviceId, used: u64, others: u64) -> i64 {
        let held = self.devices.get(&device).into_iter().flat_map(|row| row.held).fold(0, i64::saturating_add);
        signed(used).saturating_sub(signed(others)).saturating_sub(held)
    }

    /// Device that a call is about; `None` for memory of the host, and in an unknown context beside several devices.
    fn device_of(&self, call: &MemoryCall) -> Option<DeviceId> {
        let only = || self.devices.keys().next().copied().filter(|_| self.devices.len() == 1);
        let known = call.device.or_else(|| self.contexts.get(&call.context).copied()).or_else(only);
        known.filter(|&device| device != MemoryCall::HOST)
    }

    /// Bytes that a call will add to what is held on a device, as far as it alone tells.
    fn change(&self, call: &MemoryCall, device: DeviceId) -> i64 {
        match call.function {
            _ if call.result != 0 => 0,
            MemoryFunction::Allocate | MemoryFunction::Create if self.device_of(call) == Some(device) => {
                signed(physical(call.bytes))
            }
            MemoryFunction::Free => {
                let held = self.held.get(&Place::Address(call.address)).filter(|held| held.device == device);
                held.filter(|held| call.start >= held.since).map_or(0, |held| -signed(held.bytes))
            }
            _ => 0,
        }
    }

    fn apply(&mut self, call: &MemoryCall, owner: Owner) {
        use MemoryFunction as F;
        if call.result != 0 {
            return;
        }
        let device = self.device_of(call);
        if let (Some(cause), Some(row)) = (cause_of(call), device.and_then(|device| self.device(device))) {
            row.causes[cause as usize] = true;
        }
        let (stack, since) = (call.stack, call.end);
        let held = |bytes, context| device.map(|device| Held { device, owner, stack, bytes, context, since });
        let gives = call.start;
        match call.function {
            // A graph takes it when it is launched.
            F::AllocateAsync | F::FreeAsync if call.captures => {}
            F::Allocate => self.hold(Place::Address(call.address), held(physical(call.bytes), call.handle)),
            F::AllocateAsync => self.hold(Place::Address(call.address), held(call.bytes, call.handle)),
            F::CreateArray => self.hold(Place::Array(call.handle), held(physical(call.bytes), 0)),
            F::Free | F::FreeAsync => self.give(Place::Address(call.address), gives),
            F::DestroyArray => self.give(Place::Array(call.handle), gives),
            F::Create | F::Import => {
                // The memory of an imported handle is counted where it was created.
                let created = held(physical(call.bytes), 0).filter(|_| call.function == F::Create);
                self.create(call, created);
            }
            F::Retain => {
                let before = self.mappings.range(..=call.address).next_back();
                if let Some((_, &Mapping { memory, .. })) = before.filter(|(_, row)| call.address < row.end) {
                    self.retain(call, memory);
                }
            }
            F::Release => {
                if let Some(handle) = self.handles.get_mut(&call.handle).filter(|handle| gives >= handle.since) {
                    let memory = handle.memory;
                    handle.references = handle.references.saturating_sub(1);
                    if handle.references == 0 {
                        self.handles.remove(&call.handle);
                    }
                    self.unrefer(memory, 1);
                }
            }
            F::Map => {
                if let Some(&Handle { memory, .. }) = self.handles.get(&call.handle) {
                    self.map(call, memory);
                }
            }
            F::Unmap => {
                let until = call.address.saturating_add(call.bytes);
                let within = self.mappings.range(call.address..until).filter(|(_, row)| gives >= row.since);
                let gone: Vec<_> = within.map(|(&at, row)| (at, row.memory)).collect();
                for (at, memory) in gone {
                    self.mappings.remove(&at);
                    self.unrefer(memory, 1);
                }
            }
            F::RetainContext => {
                if let Some(row) = device.and_then(|device| self.device(device)) {
                    row.primary = (call.handle, row.primary.1.saturating_add(1));
                }
            }
            F::ReleaseContext | F::ResetContext => {
                if let Some(row) = device.and_then(|device| self.device(device)) {
                    let (handle, references) = &mut row.primary;
                    *references = if call.function == F::ResetContext { 0 } else { references.saturating_sub(1) };
                    let ended = (*references == 0).then_some(*handle);
                    ended.into_iter().for_each(|handle| self.end(handle, gives));
                }
            }
            F::DestroyContext => self.end(call.handle, gives),
            F::AllocateManaged | F::LoadModule | F::UnloadModule | F::CreateContext | F::GraphMemory | F::Pool => {}
        }
    }

    /// There is physical memory with a handle.
    fn create(&mut self, call: &MemoryCall, created: Option<Held>) {
        // If its release was lost, the handle is known.
        if let Some(lost) = self.handles.remove(&call.handle) {
            self.unrefer(lost.memory, lost.references);
        }
        if self.handles.len() >= HELD_LIMIT {
            self.untracked += 1;
            return;
        }
        self.newest += 1;
        self.handles.insert(call.handle, Handle { memory: self.newest, references: 1, since: call.end });
        self.refer(self.newest);
        self.hold(Place::Physical(self.newest), created);
    }

    fn retain(&mut self, call: &MemoryCall, memory: u64) {
        if let Some(handle) = self.handles.get_mut(&call.handle).filter(|handle| handle.memory == memory) {
            handle.references = handle.references.saturating_add(1);
            self.refer(memory);
            return;
        }
        // Before the release of a lost handle, which may have been the last reference to other memory.
        self.refer(memory);
        if let Some(lost) = self.handles.remove(&call.handle) {
            self.unrefer(lost.memory, lost.references);
        }
        if self.handles.len() >= HELD_LIMIT {
            self.untracked += 1;
            return self.unrefer(memory, 1);
        }
        self.handles.insert(call.handle, Handle { memory, references: 1, since: call.end });
    }

    fn map(&mut self, call: &MemoryCall, memory: u64) {
        let lost = self.mappings.remove(&call.address);
        if self.mappings.len() >= HELD_LIMIT {
            self.untracked += 1;
        } else {
            let end = call.address.saturating_add(call.bytes);
            self.mappings.insert(call.address, Mapping { end, memory, since: call.end });
            self.refer(memory);
        }
        lost.into_iter().for_each(|lost| self.unrefer(lost.memory, 1));
    }

    fn refer(&mut self, memory: u64) {
        let references = self.references.entry(memory).or_default();
        *references = references.saturating_add(1);
    }

    /// Handles or mappings of physical memory are gone.
    fn unrefer(&mut self, memory: u64, count: u64) {
        if let Some(references) = self.references.get_mut(&memory) {
            *references = references.saturating_sub(count);
            if *references == 0 {
                self.references.remove(&memory);
                self.give(Place::Physical(memory), EVER);
            }
        }
    }

    /// A context is gone with its memory, by a call that began at `start`.
    fn end(&mut self, context: u64, start: Timestamp) {
        let of_it = self.held.iter().filter(|(_, held)| held.context == context && context != 0);
        let places: Vec<_> = of_it.map(|(&place, _)| place).collect();
        places.into_iter().for_each(|place| self.give(place, start));
    }

    fn hold(&mut self, place: Place, held: Option<Held>) {
        let Some(held) = held else { return };
        self.give(place, EVER);
        let full = self.held.len() >= HELD_LIMIT;
        let Some(row) = self.device(held.device).filter(|_| !full) else {
            self.untracked += 1;
            return;
        };
        row.hold(held.owner, signed(held.bytes));
        self.held.insert(place, held);
        let of_stack = self.by_stack.entry((held.device, held.owner, held.stack)).or_default();
        *of_stack = of_stack.saturating_add(held.bytes);
    }

    /// Gives back what a place holds, if it was there when the call began.
    fn give(&mut self, place: Place, start: Timestamp) {
        if self.held.get(&place).is_none_or(|held| start < held.since) {
            return;
        }
        let Some(held) = self.held.remove(&place) else { return };
        if let Some(row) = self.device(held.device) {
            row.hold(held.owner, -signed(held.bytes));
        }
        let key = (held.device, held.owner, held.stack);
        if let Some(bytes) = self.by_stack.get_mut(&key) {
            *bytes = bytes.saturating_sub(held.bytes);
            if *bytes == 0 {
                self.by_stack.remove(&key);
            }
        }
    }
}

impl OfDevice {
    fn hold(&mut self, owner: Owner, bytes: i64) {
        let held = &mut self.held[owner as usize];
        *held = held.saturating_add(bytes);
    }

    /// Divides a change of the rest among its owners.
    fn divide(&mut self, at: u64, rest: i64, others: u64) {
        let change = rest.saturating_sub(self.last.unwrap_or(0));
        let moved = signed(others) != self.derived[Owner::OtherProcesses as usize];
        self.derived[Owner::OtherProcesses as usize] = signed(others);
        self.recent.retain(|row| at.saturating_sub(row.0) <= OTHERS_NANOS);
        match CAUSES.into_iter().find(|&cause| self.causes[cause as usize]) {
            _ if self.last.is_none() && !self.causes[Owner::Context as usize] => {
                self.early = true;
                self.add(at, Owner::Before, change);
            }
            _ if moved && self.last.is_some() => self.settle(change),
            Some(cause) => self.add(at, cause, change),
            None => self.add(at, Owner::Unnamed, change),
        }
        self.causes = Default::default();
        self.last = Some(rest);
        let unnamed = self.derived[Owner::Unnamed as usize];
        let (least, most) = self.unnamed.unwrap_or((unnamed, unnamed));
        self.unnamed = Some((least.min(unnamed), most.max(unnamed)));
        self.latest = std::array::from_fn(|index| self.held[index].saturating_add(self.derived[index]));
    }

    /// Adds a change; what its owner does not have is taken from the unnamed. A context ends with its code and pools.
    fn add(&mut self, at: u64, owner: Owner, change: i64) {
        let owners = match owner {
            Owner::Unnamed => &[],
            Owner::Context => &CAUSES[..],
            _ => std::slice::from_ref(&owner),
        };
        // So a later rise is first what was taken from there.
        let owed = if owners.is_empty() {
            0
        } else {
            change.min(self.derived[Owner::Unnamed as usize].saturating_neg()).max(0)
        };
        self.change(at, Owner::Unnamed, owed);
        let mut left = change.saturating_sub(owed);
        for &owner in owners {
            let bytes = left.max(self.derived[owner as usize].saturating_neg());
            left = left.saturating_sub(bytes);
            self.change(at, owner, bytes);
        }
        self.change(at, Owner::Unnamed, left);
    }

    fn change(&mut self, at: u64, owner: Owner, bytes: i64) {
        if bytes != 0 {
            let of = &mut self.derived[owner as usize];
            *of = of.saturating_add(bytes);
            if self.recent.len() < RECENT_LIMIT {
                self.recent.push((at, owner, bytes));
            }
        }
    }

    /// What other processes hold has changed: it was part of the unnamed, or of what changed when they took or gave it.
    fn settle(&mut self, change: i64) {
        let mut left = change;
        let unnamed = self.derived[Owner::Unnamed as usize];
        let mut settle = |owner: Owner, bytes: i64| {
            let part =
                if left < 0 { bytes.clamp(0, left.saturating_neg()) } else { bytes.clamp(left.saturating_neg(), 0) };
            let of = &mut self.derived[owner as usize];
            let part = if owner == Owner::Unnamed { part } else { part.min(*of) };
            *of = of.saturating_sub(part);
            left = left.saturating_add(part);
            part
        };
        settle(Owner::Unnamed, unnamed);
        self.recent.sort_by_key(|&(.., bytes)| std::cmp::Reverse(bytes.unsigned_abs()));
        for (_, owner, bytes) in self.recent.iter_mut().filter(|row| row.1 != Owner::Unnamed) {
            *bytes = bytes.saturating_sub(settle(*owner, *bytes));
        }
        settle(Owner::Before, i64::MAX);
        settle(Owner::Context, i64::MAX);
        let unnamed = &mut self.derived[Owner::Unnamed as usize];
        *unnamed = unnamed.saturating_add(left);
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Bytes that the driver takes for an allocation.
fn physical(bytes: u64) -> u64 {
    if bytes > SHARES_A_PAGE { bytes.checked_next_multiple_of(PAGE).unwrap_or(bytes) } else { bytes }
}

/// Owner of what a call changes without telling its size.
fn cause_of(call: &MemoryCall) -> Option<Owner> {
    use MemoryFunction as F;
    Some(match call.function {
        F::AllocateAsync | F::FreeAsync if call.captures => return None,
        F::CreateContext | F::DestroyContext | F::RetainContext | F::ReleaseContext | F::ResetContext => Owner::Context,
        F::LoadModule | F::UnloadModule => Owner::Modules,
        F::AllocateAsync | F::FreeAsync | F::Pool => Owner::Pools,
        F::GraphMemory => Owner::GraphPools,
        _ => return None,
    })
}

/// Owner of what a call takes: by the library that called, or where that is unknown by the files of the Python stack.
/// The library `?` stands for a stack that was not read.
fn owner_of(call: &MemoryCall, dictionary: &Dictionary) -> Owner {
    const LIBRARIES: [(&str, Owner); 8] = [
        ("libcublas", Owner::CuBlas),
        ("libcudnn", Owner::CuDnn),
        ("libnccl", Owner::Nccl),
        ("xla_cuda", Owner::Xla),
        ("jaxlib/", Owner::Xla),
        ("tensorflow/", Owner::Xla),
        ("cupy", Owner::CuPy),
        ("torch", Owner::PyTorch),
    ];
    if call.captures {
        return Owner::GraphPools;
    }
    let named = |text: &str, rows: &[(&str, Owner)]| rows.iter().find(|row| text.contains(row.0)).map(|row| row.1);
    if let Some(library) = call.library {
        let library = dictionary.name(library);
        if library == "?" {
            return Owner::Unread;
        }
        // libc10_cuda.so of a PyTorch that is no package.
        let rows = [("libc10", Owner::PyTorch)];
        return named(library, &LIBRARIES).or_else(|| named(library, &rows)).unwrap_or(Owner::Program);
    }
    if call.stack == StackId::NONE {
        return Owner::Unread;
    }
    let rows = [("/torch/", Owner::PyTorch), ("/jax", Owner::Xla), ("/cupy/", Owner::CuPy)];
    let mut files = dictionary.stack(call.stack).map(|frame| dictionary.name(frame.file));
    files.find_map(|file| named(file, &rows)).unwrap_or(Owner::Program)
}

#[cfg(test)]
mod tests;
