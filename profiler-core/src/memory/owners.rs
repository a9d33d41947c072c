//! Owners of the memory of a device, from calls of the driver that take or give it.
//!
//! What a call takes belongs to the library that called, until it is given back. What no call tells the size of belongs
//! to what the program did between two readings of NVML: it created a context, loaded code, used a pool of the driver.
//! The rest, without such a call, is *unnamed*. So the shares sum to the reading, at each reading.
//!
//! Physical memory (`cuMemCreate`) is held until its handles are released and its mappings are gone. Managed memory has
//! no owner: only the driver knows which of its pages are on the device.

use std::collections::BTreeMap;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::memory_call::{MemoryCall, MemoryFunction};
use gpuwhy_trace::named;
use gpuwhy_trace::record::{ContextId, DeviceId, StackId};
use rustc_hash::FxHashMap;

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
        Program "program" "other calls",
        /// Taken while a CUDA graph was captured, or by a graph itself when it is instantiated or uploaded.
        GraphPools "graph_pools" "graph pools",
        /// Kept by the driver's pools beside what is allocated from them.
        Pools "pools" "free in driver's pools",
        /// Code and static variables.
        Modules "modules" "modules",
        /// Contexts, and what the driver had in use before.
        Context "context" "context",
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
    waiting: Vec<(MemoryCall, Owner)>,
    contexts: BTreeMap<ContextId, DeviceId>,
    /// Handles and references of primary contexts.
    primary: BTreeMap<DeviceId, (u64, u64)>,
    held: FxHashMap<Place, Held>,
    /// References by handle of physical memory: the memory and their number.
    handles: FxHashMap<u64, (u64, u64)>,
    /// Physical memory: number of handles and mappings.
    references: FxHashMap<u64, u64>,
    /// By address: end and memory.
    mappings: BTreeMap<u64, (u64, u64)>,
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
}

#[derive(Debug, Default)]
struct OfDevice {
    held: [i64; OWNERS],
    /// Changes without a size, by their owner.
    derived: [i64; OWNERS],
    /// Owners whose calls since the last reading explain a change.
    causes: [bool; OWNERS],
    /// In use beside what is held and other processes, and these, at the last reading.
    last: Option<(i64, Option<u64>)>,
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
        self.waiting.push((*call, owner_of(call, dictionary)));
        if self.waiting.len() >= PENDING_LIMIT {
            self.waiting.sort_by_key(|(call, _)| call.end);
            self.apply_until(self.waiting[PENDING_LIMIT / 2].0.end.nanos());
        }
    }

    /// Learns the devices of contexts.
    pub(super) fn learn(&mut self, dictionary: &Dictionary) {
        if !self.waiting.is_empty() {
            self.contexts.extend(dictionary.contexts().iter().map(|context| (context.id, context.device)));
        }
    }

    /// All calls that ended before `until` are known.
    pub(super) fn apply_until(&mut self, until: u64) {
        // Stable: calls of one thread keep their order.
        self.waiting.sort_by_key(|(call, _)| call.end);
        let count = self.waiting.partition_point(|(call, _)| call.end.nanos() <= until);
        let later = self.waiting.split_off(count);
        for (call, owner) in std::mem::replace(&mut self.waiting, later) {
            self.apply(&call, owner);
        }
    }

    /// Adds a reading; all calls that ended before it are known, and the memory of other processes if it was read.
    pub(super) fn reading(&mut self, device: DeviceId, at: u64, used: u64, others: Option<u64>) {
        self.apply_until(at);
        // NVML sees what a call does before it ends: whichever way the rest changes less.
        let last = self.devices.get(&device).and_then(|row| row.last).map_or(0, |(rest, _)| rest);
        loop {
            let soon = self.waiting.iter().enumerate().filter(|(_, row)| row.0.start.nanos() <= at + READING_NANOS);
            let changes = soon.map(|(index, (call, _))| (index, self.change(call, device)));
            let off = self.rest(device, used, others) - last;
            match changes.into_iter().find(|&(_, change)| change != 0) {
                Some((index, change)) if (off - change).abs() < off.abs() => {
                    let (call, owner) = self.waiting.remove(index);
                    self.apply(&call, owner);
                }
                _ => break,
            }
        }
        for (call, _) in self.waiting.iter().filter(|(call, _)| call.start.nanos() <= at) {
            if let (Some(cause), Some(of)) = (cause_of(call.function), device_of(call, &self.contexts))
                && of == device
            {
                self.devices.entry(device).or_default().causes[cause as usize] = true;
            }
        }
        let rest = self.rest(device, used, others);
        let row = self.devices.entry(device).or_default();
        row.derived[Owner::OtherProcesses as usize] = others.unwrap_or(0) as i64;
        let owner = match row.last {
            Some((_, before)) if before.is_none() == others.is_none() => {
                let known = CAUSES.into_iter().find(|&cause| row.causes[cause as usize]);
                // A change of another process is known up to a second later.
                known.filter(|_| before == others).unwrap_or(Owner::Unnamed)
            }
            _ => Owner::Context,
        };
        row.derived[owner as usize] += rest - row.last.map_or(0, |(before, _)| before);
        row.causes = Default::default();
        row.last = Some((rest, others));
        let unnamed = row.derived[Owner::Unnamed as usize];
        row.unnamed =
            row.unnamed.map(|(least, most)| (least.min(unnamed), most.max(unnamed))).or(Some((unnamed, unnamed)));
        row.latest = std::array::from_fn(|index| row.held[index] + row.derived[index]);
        // Of readings that are equal the newest one: what other processes hold is known up to a second later.
        if used >= row.highest {
            row.highest = used;
            row.peak = row.latest;
            let mut most = [0; OWNERS];
            row.near = Default::default();
            for (&(of, owner, stack), &bytes) in &self.by_stack {
                if of == device
                    && stack != StackId::NONE
                    && (bytes, Some(stack)) > (most[owner as usize], row.near[owner as usize])
                {
                    (most[owner as usize], row.near[owner as usize]) = (bytes, Some(stack));
                }
            }
        }
    }

    /// Owners of a device's memory; `None` without calls or readings.
    pub(super) fn of(&self, device: DeviceId) -> Option<DeviceOwners> {
        let row = self.devices.get(&device)?;
        row.last?;
        let share = |owner: Owner| {
            let index = owner as usize;
            OwnerShare { owner, peak_bytes: row.peak[index], last_bytes: row.latest[index], near: row.near[index] }
        };
        let shares = Owner::ALL.into_iter().map(share);
        let shares =
            shares.filter(|share| share.owner == Owner::Unnamed || share.peak_bytes != 0 || share.last_bytes != 0);
        Some(DeviceOwners { shares: shares.collect(), unnamed: row.unnamed?, untracked: self.untracked })
    }

    /// In use beside what is held and other processes.
    fn rest(&self, device: DeviceId, used: u64, others: Option<u64>) -> i64 {
        let held: i64 = self.devices.get(&device).map_or(0, |row| row.held.iter().sum());
        used as i64 - others.unwrap_or(0) as i64 - held
    }

    /// Bytes that a call will add to what is held on a device, as far as it alone tells.
    fn change(&self, call: &MemoryCall, device: DeviceId) -> i64 {
        match call.function {
            _ if call.result != 0 => 0,
            MemoryFunction::Allocate | MemoryFunction::Create if device_of(call, &self.contexts) == Some(device) => {
                physical(call.bytes) as i64
            }
            MemoryFunction::Free => {
                let held = self.held.get(&Place::Address(call.address)).filter(|held| held.device == device);
                held.map_or(0, |held| -(held.bytes as i64))
            }
            _ => 0,
        }
    }

    fn apply(&mut self, call: &MemoryCall, owner: Owner) {
        use MemoryFunction as F;
        if call.result != 0 {
            return;
        }
        let device = device_of(call, &self.contexts);
        if let (Some(cause), Some(device)) = (cause_of(call.function), device) {
            self.devices.entry(device).or_default().causes[cause as usize] = true;
        }
        let held = |bytes, context| device.map(|device| Held { device, owner, stack: call.stack, bytes, context });
        match call.function {
            F::Allocate => self.hold(Place::Address(call.address), held(physical(call.bytes), call.handle)),
            F::AllocateAsync => self.hold(Place::Address(call.address), held(call.bytes, call.handle)),
            F::CreateArray => self.hold(Place::Array(call.handle), held(physical(call.bytes), 0)),
            F::Free | F::FreeAsync => self.give(Place::Address(call.address)),
            F::DestroyArray => self.give(Place::Array(call.handle)),
            F::Create | F::Import => {
                self.newest += 1;
                self.handles.insert(call.handle, (self.newest, 1));
                self.references.insert(self.newest, 1);
                // The memory of an imported handle is counted where it was created.
                let created = held(physical(call.bytes), 0).filter(|_| call.function == F::Create);
                self.hold(Place::Physical(self.newest), created);
            }
            F::Retain => {
                let before = self.mappings.range(..=call.address).next_back();
                if let Some((_, &(_, memory))) = before.filter(|(_, (end, _))| call.address < *end) {
                    self.handles.entry(call.handle).or_insert((memory, 0)).1 += 1;
                    self.refer(memory);
                }
            }
            F::Release => {
                if let Some((memory, count)) = self.handles.get_mut(&call.handle) {
                    let memory = *memory;
                    *count -= 1;
                    if *count == 0 {
                        self.handles.remove(&call.handle);
                    }
                    self.unrefer(memory);
                }
            }
            F::Map => {
                if let Some(&(memory, _)) = self.handles.get(&call.handle) {
                    self.mappings.insert(call.address, (call.address.saturating_add(call.bytes), memory));
                    self.refer(memory);
                }
            }
            F::Unmap => {
                let until = call.address.saturating_add(call.bytes);
                let gone: Vec<_> =
                    self.mappings.range(call.address..until).map(|(&at, &(_, memory))| (at, memory)).collect();
                for (at, memory) in gone {
                    self.mappings.remove(&at);
                    self.unrefer(memory);
                }
            }
            F::RetainContext => {
                let primary = device.map(|device| self.primary.entry(device).or_default());
                if let Some((handle, references)) = primary {
                    (*handle, *references) = (call.handle, *references + 1);
                }
            }
            F::ReleaseContext | F::ResetContext => {
                if let Some((handle, references)) = device.and_then(|device| self.primary.get_mut(&device)) {
                    *references = if call.function == F::ResetContext { 0 } else { references.saturating_sub(1) };
                    let ended = (*references == 0).then_some(*handle);
                    ended.into_iter().for_each(|handle| self.end(handle));
                }
            }
            F::DestroyContext => self.end(call.handle),
            F::AllocateManaged | F::LoadModule | F::UnloadModule | F::CreateContext | F::GraphMemory | F::Pool => {}
        }
    }

    fn refer(&mut self, memory: u64) {
        *self.references.entry(memory).or_default() += 1;
    }

    /// A handle or a mapping of physical memory is gone.
    fn unrefer(&mut self, memory: u64) {
        if let Some(references) = self.references.get_mut(&memory) {
            *references -= 1;
            if *references == 0 {
                self.references.remove(&memory);
                self.give(Place::Physical(memory));
            }
        }
    }

    /// A context is gone with its memory.
    fn end(&mut self, context: u64) {
        let of_it = self.held.iter().filter(|(_, held)| held.context == context && context != 0);
        let places: Vec<_> = of_it.map(|(&place, _)| place).collect();
        places.into_iter().for_each(|place| self.give(place));
    }

    fn hold(&mut self, place: Place, held: Option<Held>) {
        let Some(held) = held else { return };
        self.give(place);
        if self.held.len() >= HELD_LIMIT {
            self.untracked += 1;
            return;
        }
        self.held.insert(place, held);
        self.devices.entry(held.device).or_default().held[held.owner as usize] += held.bytes as i64;
        *self.by_stack.entry((held.device, held.owner, held.stack)).or_default() += held.bytes;
    }

    fn give(&mut self, place: Place) {
        let Some(held) = self.held.remove(&place) else { return };
        self.devices.entry(held.device).or_default().held[held.owner as usize] -= held.bytes as i64;
        let key = (held.device, held.owner, held.stack);
        if let Some(bytes) = self.by_stack.get_mut(&key) {
            *bytes -= held.bytes;
            if *bytes == 0 {
                self.by_stack.remove(&key);
            }
        }
    }
}

/// Device that a call is about; `None` for memory of the host. A call in an unknown context is about the first device.
fn device_of(call: &MemoryCall, contexts: &BTreeMap<ContextId, DeviceId>) -> Option<DeviceId> {
    let known = call.device.or_else(|| contexts.get(&call.context).copied());
    Some(known.unwrap_or(DeviceId(0))).filter(|&device| device != MemoryCall::HOST)
}

/// Bytes that the driver takes for an allocation.
fn physical(bytes: u64) -> u64 {
    if bytes > SHARES_A_PAGE { bytes.checked_next_multiple_of(PAGE).unwrap_or(bytes) } else { bytes }
}

/// Owner of what a call changes without telling its size.
fn cause_of(function: MemoryFunction) -> Option<Owner> {
    use MemoryFunction as F;
    Some(match function {
        F::CreateContext | F::DestroyContext | F::RetainContext | F::ReleaseContext | F::ResetContext => Owner::Context,
        F::LoadModule | F::UnloadModule => Owner::Modules,
        F::AllocateAsync | F::FreeAsync | F::Pool => Owner::Pools,
        F::GraphMemory => Owner::GraphPools,
        _ => return None,
    })
}

/// Owner of what a call takes: by the library that called, or where that is unknown by the files of the Python stack.
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
        // libc10_cuda.so of a PyTorch that is no package.
        let rows = [("libc10", Owner::PyTorch)];
        return named(library, &LIBRARIES).or_else(|| named(library, &rows)).unwrap_or(Owner::Program);
    }
    let rows = [("/torch/", Owner::PyTorch), ("/jax", Owner::Xla), ("/cupy/", Owner::CuPy)];
    let mut files = dictionary.stack(call.stack).map(|frame| dictionary.name(frame.file));
    files.find_map(|file| named(file, &rows)).unwrap_or(Owner::Program)
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::record::{Context, Frame, Timestamp};
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const DEVICE: DeviceId = DeviceId(1);

    /// A call that ends at `at`, nanoseconds, on the device of context 3.
    fn call(at: u64, function: MemoryFunction) -> MemoryCall {
        let [start, end] = [at - 1, at].map(Timestamp::from_nanos);
        MemoryCall { function, start, end, context: ContextId(3), ..MemoryCall::default() }
    }

    fn dictionary() -> Dictionary {
        let mut dictionary = Dictionary::new();
        dictionary.add_context(Context { id: ContextId(3), device: DEVICE, ..Context::default() });
        dictionary
    }

    /// Owners with their bytes at the last reading.
    fn last(owners: &Owners) -> Vec<(Owner, i64)> {
        let rows = owners.of(DEVICE).unwrap().shares;
        rows.iter().map(|row| (row.owner, row.last_bytes)).filter(|row| row.1 != 0).collect()
    }

    #[test]
    fn the_library_that_called_is_the_owner_or_else_the_python_files() {
        let mut dictionary = dictionary();
        let mut of = |library: &str, file: &str| {
            let (function, file) = (dictionary.intern_name("f"), dictionary.intern_name(file));
            let stack = dictionary.intern_frame(Frame { caller: StackId::NONE, function, file, line: 1 });
            let library = (!library.is_empty()).then(|| dictionary.intern_name(library));
            owner_of(&MemoryCall { stack, library, ..call(1, MemoryFunction::Allocate) }, &dictionary)
        };
        for (library, owner) in [
            ("torch/lib/libc10_cuda.so", Owner::PyTorch),
            ("libc10_cuda.so", Owner::PyTorch),
            ("nvidia/cublas/lib/libcublas.so.12", Owner::CuBlas),
            ("nvidia/cudnn/lib/libcudnn_graph.so.9", Owner::CuDnn),
            ("nvidia/nccl/lib/libnccl.so.2", Owner::Nccl),
            ("jax_plugins/xla_cuda12/xla_cuda_plugin.so", Owner::Xla),
            ("cupy_backends/cuda/api/runtime.cpython-312-x86_64-linux-gnu.so", Owner::CuPy),
            ("solver", Owner::Program),
        ] {
            assert_eq!(of(library, "/v/site-packages/torch/nn.py"), owner, "{library}");
        }
        assert_eq!(of("", "/v/site-packages/torch/nn/modules/linear.py"), Owner::PyTorch);
        assert_eq!(of("", "/v/site-packages/jax/_src/api.py"), Owner::Xla);
        assert_eq!(of("", "train.py"), Owner::Program);
        let captured = MemoryCall { captures: true, ..call(1, MemoryFunction::Allocate) };
        assert_eq!(owner_of(&captured, &dictionary), Owner::GraphPools);
    }

    #[test]
    fn what_no_call_tells_the_size_of_belongs_to_what_happened_before_the_reading() {
        let (dictionary, mut owners) = (dictionary(), Owners::default());
        let push = |owners: &mut Owners, call: MemoryCall| owners.push(&call, &dictionary);
        push(&mut owners, MemoryCall { device: Some(DEVICE), handle: 9, ..call(50, MemoryFunction::RetainContext) });
        owners.learn(&dictionary);
        owners.reading(DEVICE, 100, 500 * MIB, None);
        assert_eq!(last(&owners), [(Owner::Context, 500 * MIB as i64)]);
        owners.reading(DEVICE, 200, 520 * MIB, Some(20 * MIB));
        assert_eq!(last(&owners), [(Owner::Context, 500 * MIB as i64), (Owner::OtherProcesses, 20 * MIB as i64)]);
        // It is still running at the reading.
        let slow = MemoryCall { start: Timestamp::from_nanos(250), ..call(350, MemoryFunction::LoadModule) };
        push(&mut owners, slow);
        owners.reading(DEVICE, 300, 612 * MIB, Some(20 * MIB));
        owners.reading(DEVICE, 400, 614 * MIB, Some(20 * MIB));
        owners.reading(DEVICE, 500, 615 * MIB, Some(20 * MIB));
        let rows = owners.of(DEVICE).unwrap();
        let at_end = [
            (Owner::Modules, 94 * MIB as i64),
            (Owner::Context, 500 * MIB as i64),
            (Owner::OtherProcesses, 20 * MIB as i64),
            (Owner::Unnamed, MIB as i64),
        ];
        assert_eq!(last(&owners), at_end);
        assert_eq!(rows.unnamed, (0, MIB as i64));
        assert_eq!(rows.shares.iter().map(|row| row.peak_bytes).sum::<i64>(), 615 * MIB as i64);
    }

    #[test]
    fn a_reading_in_the_middle_of_a_call_has_its_memory_or_not() {
        for seen in [true, false] {
            let (dictionary, mut owners) = (dictionary(), Owners::default());
            let taken = MemoryCall { address: 7, bytes: 64 * MIB, ..call(2_000_000, MemoryFunction::Allocate) };
            owners.reading(DEVICE, 1_000_000, 500 * MIB, None);
            owners.push(&taken, &dictionary);
            owners.learn(&dictionary);
            let used = if seen { 564 } else { 500 } * MIB;
            owners.reading(DEVICE, 1_999_999, used, None);
            owners.reading(DEVICE, 9_000_000, 564 * MIB, None);
            assert_eq!(last(&owners), [(Owner::Program, 64 * MIB as i64), (Owner::Context, 500 * MIB as i64)]);
            assert_eq!(owners.of(DEVICE).unwrap().unnamed, (0, 0), "{seen}");
        }
    }

    #[test]
    fn the_peak_keeps_the_stack_that_took_the_most() {
        let (dictionary, mut owners) = (dictionary(), Owners::default());
        for (number, (stack, bytes)) in [(1, 8), (2, 20), (1, 10)].into_iter().enumerate() {
            let address = 100 + number as u64;
            let (stack, bytes) = (StackId(stack), bytes * MIB);
            let taken = MemoryCall { address, bytes, stack, ..call(10 + number as u64, MemoryFunction::Allocate) };
            owners.push(&taken, &dictionary);
        }
        owners.learn(&dictionary);
        owners.reading(DEVICE, 100, 38 * MIB, None);
        owners.push(&MemoryCall { address: 101, ..call(150, MemoryFunction::Free) }, &dictionary);
        owners.reading(DEVICE, 200, 18 * MIB, None);
        let rows = owners.of(DEVICE).unwrap().shares;
        let program = rows.iter().find(|row| row.owner == Owner::Program).unwrap();
        assert_eq!((program.peak_bytes, program.last_bytes), (38 * MIB as i64, 18 * MIB as i64));
        assert_eq!(program.near, Some(StackId(2)));
    }

    /// What a program may do, with numbers that choose among what it has.
    #[derive(Clone, Debug)]
    enum Step {
        Allocate(u64),
        Free(usize),
        Array(u64),
        DestroyArray(usize),
        Create(u64),
        Release(usize),
        Map(usize, u64),
        Unmap(usize),
        Retain(usize),
        Reset,
        Fails(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (1..50 * MIB).prop_map(Step::Allocate),
            any::<usize>().prop_map(Step::Free),
            (1..9 * MIB).prop_map(Step::Array),
            any::<usize>().prop_map(Step::DestroyArray),
            (1..20_u64).prop_map(|pages| Step::Create(pages * PAGE)),
            any::<usize>().prop_map(Step::Release),
            (any::<usize>(), 1..20_u64).prop_map(|(which, pages)| Step::Map(which, pages * PAGE)),
            any::<usize>().prop_map(Step::Unmap),
            any::<usize>().prop_map(Step::Retain),
            Just(Step::Reset),
            (1..50 * MIB).prop_map(Step::Fails),
        ];
        prop::collection::vec(step, 1..200)
    }

    /// What the driver holds: a plain model.
    #[derive(Default)]
    struct Driver {
        now: u64,
        next: u64,
        /// Address and bytes.
        linear: Vec<(u64, u64)>,
        arrays: Vec<(u64, u64)>,
        /// Bytes of each physical memory, by its number.
        physical: Vec<u64>,
        /// One row for each reference: handle, number.
        handles: Vec<(u64, usize)>,
        /// Address, bytes, number.
        mapped: Vec<(u64, u64, usize)>,
    }

    impl Driver {
        fn used(&self) -> u64 {
            let lives = |number: &usize| {
                self.handles.iter().any(|row| row.1 == *number) || self.mapped.iter().any(|row| row.2 == *number)
            };
            let physical: u64 = (0..self.physical.len()).filter(lives).map(|number| self.physical[number]).sum();
            let taken = |&(_, bytes): &(u64, u64)| if bytes > MIB { bytes.div_ceil(2 * MIB) * 2 * MIB } else { bytes };
            physical + self.linear.iter().chain(&self.arrays).map(taken).sum::<u64>()
        }

        /// The call of a step, if the program has what it needs.
        fn run(&mut self, step: &Step) -> Option<MemoryCall> {
            use MemoryFunction as F;
            self.now += 10;
            self.next += 1 << 30;
            let now = self.now;
            let of = |function| call(now, function);
            let pick = |which: usize, length: usize| (length > 0).then(|| which % length);
            Some(match *step {
                Step::Allocate(bytes) => {
                    self.linear.push((self.next, bytes));
                    MemoryCall { address: self.next, bytes, handle: 0x70, ..of(F::Allocate) }
                }
                Step::Fails(bytes) => MemoryCall { bytes, handle: 0x70, result: 2, ..of(F::Allocate) },
                Step::Free(which) => {
                    let (address, _) = self.linear.swap_remove(pick(which, self.linear.len())?);
                    MemoryCall { address, ..of(F::Free) }
                }
                Step::Array(bytes) => {
                    self.arrays.push((self.next, bytes));
                    MemoryCall { handle: self.next, bytes, ..of(F::CreateArray) }
                }
                Step::DestroyArray(which) => {
                    let (handle, _) = self.arrays.swap_remove(pick(which, self.arrays.len())?);
                    MemoryCall { handle, ..of(F::DestroyArray) }
                }
                Step::Create(bytes) => {
                    self.handles.push((self.next, self.physical.len()));
                    self.physical.push(bytes);
                    MemoryCall { handle: self.next, bytes, device: Some(DEVICE), ..of(F::Create) }
                }
                Step::Release(which) => {
                    let (handle, _) = self.handles.swap_remove(pick(which, self.handles.len())?);
                    MemoryCall { handle, ..of(F::Release) }
                }
                Step::Map(which, bytes) => {
                    let (handle, number) = self.handles[pick(which, self.handles.len())?];
                    self.mapped.push((self.next, bytes, number));
                    MemoryCall { address: self.next, bytes, handle, ..of(F::Map) }
                }
                Step::Unmap(which) => {
                    let (address, bytes, _) = self.mapped.swap_remove(pick(which, self.mapped.len())?);
                    MemoryCall { address, bytes, ..of(F::Unmap) }
                }
                Step::Retain(which) => {
                    let (address, bytes, number) = self.mapped[pick(which, self.mapped.len())?];
                    let known = self.handles.iter().find(|row| row.1 == number).map(|row| row.0);
                    let handle = known.unwrap_or(self.next);
                    self.handles.push((handle, number));
                    MemoryCall { address: address + bytes - 1, handle, ..of(F::Retain) }
                }
                Step::Reset => {
                    self.linear.clear();
                    MemoryCall { device: Some(DEVICE), ..of(F::ResetContext) }
                }
            })
        }
    }

    proptest! {
        #[test]
        fn the_sums_are_those_of_the_driver_at_each_call(steps in steps()) {
            let (dictionary, mut owners, mut driver) = (dictionary(), Owners::default(), Driver { now: 10, ..Driver::default() });
            let context = MemoryCall { device: Some(DEVICE), handle: 0x70, ..call(5, MemoryFunction::RetainContext) };
            owners.push(&context, &dictionary);
            owners.learn(&dictionary);
            owners.reading(DEVICE, 6, 400 * MIB, None);
            for step in &steps {
                if let Some(call) = driver.run(step) {
                    owners.push(&call, &dictionary);
                }
                let used = 400 * MIB + driver.used();
                owners.reading(DEVICE, driver.now + 1, used, None);
                let rows = owners.of(DEVICE).unwrap();
                prop_assert_eq!(rows.shares.iter().map(|row| row.last_bytes).sum::<i64>(), used as i64);
                let context = rows.shares.iter().find(|row| row.owner == Owner::Context).unwrap();
                prop_assert_eq!((context.last_bytes, rows.unnamed), (400 * MIB as i64, (0, 0)), "{:?}", step);
            }
        }
    }
}
