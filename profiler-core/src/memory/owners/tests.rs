use gpuwhy_trace::record::{Context, Frame};
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
        ("?", Owner::Unread),
    ] {
        assert_eq!(of(library, "/v/site-packages/torch/nn.py"), owner, "{library}");
    }
    assert_eq!(of("", "/v/site-packages/torch/nn/modules/linear.py"), Owner::PyTorch);
    assert_eq!(of("", "/v/site-packages/jax/_src/api.py"), Owner::Xla);
    assert_eq!(of("", "train.py"), Owner::Program);
    assert_eq!(owner_of(&call(1, MemoryFunction::Allocate), &dictionary), Owner::Unread);
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
        assert_eq!(last(&owners), [(Owner::Unread, 64 * MIB as i64), (Owner::Before, 500 * MIB as i64)]);
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

#[test]
fn what_other_processes_hold_comes_from_where_it_went_and_nothing_remains() {
    let (dictionary, mut owners) = (dictionary(), Owners::default());
    let all = |owners: &Owners| {
        last(owners).into_iter().map(|(owner, bytes)| (owner, bytes / MIB as i64)).collect::<Vec<_>>()
    };
    let mut at = 0;
    let mut read = |owners: &mut Owners, used: u64, others: Option<u64>| {
        at += 100_000_000;
        owners.reading(DEVICE, at, used * MIB, others.map(|bytes| bytes * MIB));
        at
    };
    owners.push(&call(5, MemoryFunction::Free), &dictionary);
    // Another process was there before; it is known at the second reading.
    read(&mut owners, 60_000, None);
    let now = read(&mut owners, 60_000, Some(59_500));
    assert_eq!(all(&owners), [(Owner::Before, 500), (Owner::OtherProcesses, 59_500)]);
    let context = MemoryCall { device: Some(DEVICE), handle: 9, ..call(now + 50, MemoryFunction::RetainContext) };
    owners.push(&context, &dictionary);
    owners.learn(&dictionary);
    // It leaves while the context is created, and is known to be gone a reading later.
    read(&mut owners, 1_000, Some(59_500));
    assert_eq!(all(&owners)[0], (Owner::Before, 500));
    read(&mut owners, 1_000, Some(0));
    let rows = all(&owners);
    assert_eq!(rows, [(Owner::Before, 500), (Owner::Unnamed, 500)], "which part is the context's is unknown");
    // A second one comes while code is loaded, and goes.
    let now = read(&mut owners, 1_000, None);
    owners.push(&call(now + 50, MemoryFunction::LoadModule), &dictionary);
    read(&mut owners, 4_000, None);
    assert_eq!(all(&owners)[0], (Owner::Modules, 3_000));
    read(&mut owners, 4_000, Some(2_900));
    let least = owners.of(DEVICE).unwrap().shares.iter().map(|row| row.last_bytes).min();
    assert!(least >= Some(0), "{:?}", all(&owners));
    read(&mut owners, 4_000, Some(2_900));
    read(&mut owners, 1_100, Some(2_900));
    read(&mut owners, 1_100, Some(0));
    let rows = all(&owners);
    assert!(rows.iter().all(|row| row.1 > 0 && row.0 != Owner::OtherProcesses), "{rows:?}");
    assert_eq!(rows.iter().map(|row| row.1).sum::<i64>(), 1_100);
}

#[test]
fn only_what_was_there_when_a_call_began_is_given_back() {
    let (dictionary, mut owners) = (dictionary(), Owners::default());
    owners.reading(DEVICE, 1, 0, None);
    let taken = |at, bytes| MemoryCall { address: 7, bytes: bytes * MIB, ..call(at, MemoryFunction::Allocate) };
    owners.push(&taken(10, 40), &dictionary);
    // One thread frees the address, and another gets it before that call ends.
    owners.push(&taken(50, 64), &dictionary);
    let freed = MemoryCall { address: 7, start: Timestamp::from_nanos(20), ..call(60, MemoryFunction::Free) };
    owners.push(&freed, &dictionary);
    owners.learn(&dictionary);
    owners.reading(DEVICE, 100, 64 * MIB, None);
    assert_eq!(last(&owners), [(Owner::Unread, 64 * MIB as i64)]);
    owners.push(&MemoryCall { address: 7, ..call(150, MemoryFunction::Free) }, &dictionary);
    owners.reading(DEVICE, 200, 0, None);
    assert_eq!(last(&owners), []);
}

#[test]
fn a_lost_release_or_unmap_keeps_no_memory() {
    use MemoryFunction as F;
    let (dictionary, mut owners) = (dictionary(), Owners::default());
    owners.reading(DEVICE, 1, 0, None);
    let bytes = 2 * PAGE;
    for at in [10, 50] {
        owners.push(&MemoryCall { handle: 5, bytes, ..call(at, F::Create) }, &dictionary);
        owners.push(&MemoryCall { handle: 5, address: 1 << 30, bytes, ..call(at + 10, F::Map) }, &dictionary);
    }
    owners.learn(&dictionary);
    owners.reading(DEVICE, 100, bytes, None);
    assert_eq!(last(&owners), [(Owner::Unread, bytes as i64)]);
}

#[test]
fn a_graph_takes_its_memory_when_it_is_launched() {
    let (dictionary, mut owners) = (dictionary(), Owners::default());
    owners.reading(DEVICE, 1, 0, None);
    let taken = MemoryCall { address: 7, bytes: PAGE, ..call(10, MemoryFunction::AllocateAsync) };
    owners.push(&MemoryCall { captures: true, ..taken }, &dictionary);
    owners.learn(&dictionary);
    owners.reading(DEVICE, 100, 0, None);
    assert_eq!(last(&owners), []);
    assert_eq!(owners.devices[&DEVICE].unnamed, Some((0, 0)));
}

#[test]
fn a_call_in_an_unknown_context_is_about_the_only_device_or_none() {
    for devices in [1, 2] {
        let (dictionary, mut owners) = (Dictionary::new(), Owners::default());
        (0..devices).for_each(|device| owners.reading(DeviceId(device), 1, 0, None));
        owners.push(&MemoryCall { address: 7, bytes: PAGE, ..call(10, MemoryFunction::Allocate) }, &dictionary);
        owners.reading(DeviceId(0), 100, PAGE, None);
        let shares = owners.of(DeviceId(0)).unwrap().shares;
        let unread = shares.iter().any(|share| share.owner == Owner::Unread);
        assert_eq!(unread, devices == 1);
    }
}

#[test]
fn damaged_numbers_do_no_harm() {
    let (dictionary, mut owners) = (dictionary(), Owners::default());
    let numbers = [0, 1, MOST_BYTES, u64::MAX - 1, u64::MAX];
    for round in 0..3 {
        for function in MemoryFunction::ALL {
            for number in numbers {
                let start = Timestamp::from_nanos(numbers[round] / 2);
                let end = Timestamp::from_nanos(number);
                for (index, bytes) in numbers.into_iter().enumerate() {
                    let device = Some(DeviceId(numbers[index] as u32));
                    let (address, handle) = (number, numbers[(index + round) % 5]);
                    let damaged = MemoryCall { start, end, address, handle, bytes, device, ..call(1, function) };
                    owners.push(&damaged, &dictionary);
                }
                owners.learn(&dictionary);
                for others in [None, Some(0), Some(u64::MAX)] {
                    owners.reading(DeviceId(1), number.saturating_sub(1), number, others);
                    owners.reading(DeviceId(u32::MAX), u64::MAX, number, others);
                    owners.reading(DeviceId(1), number, u64::MAX, others);
                }
            }
        }
    }
    (0..1_000).for_each(|device| owners.reading(DeviceId(device), 1, u64::MAX, None));
    assert!(owners.devices.len() <= DEVICE_LIMIT && owners.untracked > 0);
}
