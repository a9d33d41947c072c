//! Rules for the client: error codes where CUPTI has one, violations where it has none.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::{Mutex, OnceLock};

use cupti_sys::abi::{self, Callback};
use cupti_sys::{Attribute, CuptiResult, Domain, Kind};
use tempfile::{TempDir, tempdir};

use crate::client::{Client, Habit, state};
use crate::recording::{Recording, START, kernel, kernels, launch};

const KERNELS: &[Kind] = &[Kind::CONCURRENT_KERNEL];

extern "C" fn ignore(_: *mut c_void, _: Domain, _: u32, _: *const c_void) {}

/// Plays to a client with this misuse, and expects exactly this violation.
fn expect_violation<const ID: usize>(habit: Habit, recording: Recording, part: &str) -> (TempDir, Client<ID>) {
    let folder = tempdir().unwrap();
    let path = recording.save(folder.path());
    state::<ID, _>(|state| {
        state.habit = habit;
        state.size = 512;
    });
    // Not at maximum speed: there play waits for a client without memory.
    let client = Client::<ID>::open(folder.path(), &path, "1000000").unwrap();
    client.register();
    client.enable(Kind::CONCURRENT_KERNEL);
    client.play(u64::MAX);
    let violations = client.violations();
    assert!(matches!(violations.as_slice(), [only] if only.contains(part)), "{part}: {violations:?}");
    (folder, client)
}

#[test]
fn a_good_client_breaks_nothing() {
    let folder = tempdir().unwrap();
    let path = kernels(40, 7).save(folder.path());
    let client = Client::<20>::start(folder.path(), &path, KERNELS);
    client.play(u64::MAX);
    client.flush(1);
    assert_eq!(client.violations(), [""; 0]);
    assert_eq!(client.take_kernels().len(), 40);
}

#[test]
fn a_misaligned_buffer() {
    let (_folder, client) = expect_violation::<21>(Habit::Misaligned, kernels(4, 2), "not aligned");
    assert_eq!(client.dropped(), 4);
}

#[test]
fn the_same_buffer_twice() {
    expect_violation::<22>(Habit::Twice, kernels(9, 9), "overlaps");
}

#[test]
fn a_buffer_written_to_while_lent() {
    expect_violation::<23>(Habit::Touch, kernels(9, 9), "changed while the library held it");
}

#[test]
fn no_buffer_before_cuda_12_9() {
    let recording = Recording::of_version(26).buffer(START + 9, &[kernel(1, START + 1, START + 2, 0)]);
    expect_violation::<24>(Habit::Null, recording, "crashes CUPTI before 12.9");
}

#[test]
fn a_flush_from_a_callback() {
    expect_violation::<25>(Habit::FlushInside, kernels(4, 2), "from bufferRequested");
}

#[test]
fn a_buffer_too_small_for_one_record() {
    let folder = tempdir().unwrap();
    let path = kernels(3, 3).save(folder.path());
    state::<26, _>(|state| state.size = 208);
    let client = Client::<26>::start(folder.path(), &path, KERNELS);
    client.play(u64::MAX);
    assert!(client.violations()[0].contains("too small"), "{:?}", client.violations());
    assert_eq!((client.dropped(), client.take_kernels().len()), (3, 0));
}

#[test]
fn two_flushes_at_once() {
    let folder = tempdir().unwrap();
    let path = kernels(3, 3).save(folder.path());
    let client = Client::<27>::start(folder.path(), &path, KERNELS);
    client.play(0);
    // The clock has to be inside the recording, where a flush has records to deliver.
    client.play(5_400);
    let (entered, wait) = std::sync::mpsc::channel();
    state::<27, _>(|state| {
        state.on_completed = Some(Box::new(move || {
            entered.send(()).unwrap();
            // Blocks the library's first flush until the second was detected.
            while client.violations().is_empty() {
                std::thread::yield_now();
            }
        }));
    });
    let first = std::thread::spawn(move || client.flush(0));
    wait.recv().unwrap();
    assert_eq!(client.flush(0), CuptiResult::SUCCESS);
    assert_eq!(first.join().unwrap(), CuptiResult::SUCCESS);
    assert!(matches!(client.violations().as_slice(), [only] if only.contains("another thread is in it")));
}

#[test]
fn records_without_anyone_to_take_them() {
    let folder = tempdir().unwrap();
    let path = kernels(3, 3).save(folder.path());
    let client = Client::<28>::open(folder.path(), &path, "max").unwrap();
    client.enable(Kind::CONCURRENT_KERNEL);
    client.play(u64::MAX);
    assert!(client.violations()[0].contains("no buffer callbacks"), "{:?}", client.violations());
    assert_eq!(client.dropped(), 3);
}

#[test]
fn a_promise_of_zeroed_buffers() {
    let folder = tempdir().unwrap();
    let path = kernels(3, 3).save(folder.path());
    let client = Client::<29>::start(folder.path(), &path, KERNELS);
    assert_eq!(client.set_switch(Attribute::ZEROED_OUT_ACTIVITY_BUFFER, 1), CuptiResult::SUCCESS);
    client.play(u64::MAX);
    assert_eq!(client.violations(), [""; 0], "the client's memory is zeroed");
    assert_eq!(client.set_switch(Attribute::ZEROED_OUT_ACTIVITY_BUFFER, 0), CuptiResult::SUCCESS);
    assert!(client.violations()[0].contains("after the first buffer"), "{:?}", client.violations());
}

#[test]
fn buffers_by_thread_are_chosen_before_the_callbacks() {
    let folder = tempdir().unwrap();
    let path = kernels(3, 3).save(folder.path());
    let client = Client::<30>::start(folder.path(), &path, KERNELS);
    assert_eq!(client.set_switch(Attribute::PER_THREAD_ACTIVITY_BUFFER, 1), CuptiResult::SUCCESS);
    assert_eq!(client.violations().len(), 1, "{:?}", client.violations());
}

#[test]
fn result_codes() {
    let folder = tempdir().unwrap();
    let path = kernels(3, 3).save(folder.path());
    let client = Client::<31>::open(folder.path(), &path, "max").unwrap();
    let callback: Option<Callback> = Some(ignore);
    let subscribe: abi::Subscribe = client.function("cuptiSubscribe");
    let register: abi::RegisterCallbacks = client.function("cuptiActivityRegisterCallbacks");
    let version: abi::GetVersion = client.function("cuptiGetVersion");
    let thread_ids: abi::SetThreadIdType = client.function("cuptiSetThreadIdType");
    let next: abi::GetNextRecord = client.function("cuptiActivityGetNextRecord");
    let size: abi::GetStructSize = client.function("cuptiActivityGetStructSize");
    let mut handle = ptr::null_mut();
    let mut memory = [0_u64; 27];
    let start = memory.as_mut_ptr().cast::<u8>();
    let mut record = ptr::null_mut();
    let mut bytes = 0;
    // SAFETY: NULL where the function checks for it, otherwise pointers to live locals of the sizes passed.
    let answers = unsafe {
        [
            (version(ptr::null_mut()), 1),
            (subscribe(ptr::null_mut(), callback, ptr::null_mut()), 1),
            (subscribe(&raw mut handle, None, ptr::null_mut()), 1),
            (subscribe(&raw mut handle, callback, ptr::null_mut()), 0),
            (subscribe(&raw mut handle, callback, ptr::null_mut()), 39),
            (register(None, None), 1),
            (client.enable(Kind(0)), 21),
            (client.enable(Kind(999)), 21),
            (client.enable_runtime(0, true), 1),
            (thread_ids(cupti_sys::ThreadIdType(2)), 1),
            (client.set_switch(Attribute::DEVICE_BUFFER_SIZE, 1), 10),
            (client.set_switch(Attribute(99), 1), 1),
            (next(ptr::null_mut(), 8, &raw mut record), 1),
            (next(start, 216, &raw mut record), 21),
            (next(start, 0, &raw mut record), 12),
            (size(Kind::CONCURRENT_KERNEL, 0, &raw mut bytes), 11),
        ]
    };
    for (index, (answer, expected)) in answers.into_iter().enumerate() {
        assert_eq!(answer, CuptiResult(expected), "call {index}");
    }
    memory[0] = Kind::CONCURRENT_KERNEL.0.into();
    let start = memory.as_mut_ptr().cast::<u8>();
    // SAFETY: as above.
    let walk = unsafe {
        [next(start, 208, &raw mut record), next(start, 216, &raw mut record), next(start, 216, &raw mut record)]
    };
    assert_eq!(walk, [CuptiResult(12), CuptiResult(0), CuptiResult(12)], "cut off, whole, at the end");
}

#[test]
fn functions_of_later_versions_are_missing() {
    let folder = tempdir().unwrap();
    let path = Recording::of_version(18).save(folder.path());
    let client = Client::<32>::open(folder.path(), &path, "max").unwrap();
    assert_eq!(client.enable_runtime(211, true), CuptiResult::API_NOT_IMPLEMENTED);
}

#[test]
fn kernel_records_are_not_disabled_where_it_can_deadlock() {
    for (version, forbidden) in [(28, true), (130_000, true), (130_001, false)] {
        let folder = tempdir().unwrap();
        let recording = Recording::of_version(version).buffer(START + 9, &[kernel(1, START + 1, START + 2, 0)]);
        let client = Client::<40>::start(folder.path(), &recording.save(folder.path()), KERNELS);
        let disable: abi::SetKind = client.function("cuptiActivityDisable");
        // SAFETY: takes a number.
        assert_eq!(unsafe { [disable(Kind::MEMCPY), disable(Kind::CONCURRENT_KERNEL)] }, [CuptiResult::SUCCESS; 2]);
        let violations = client.violations();
        assert_eq!(violations.iter().any(|text| text.contains("can deadlock")), forbidden, "{version}: {violations:?}");
    }
}

/// Callbacks of the subscriber: domain, function, site.
static HEARD: Mutex<Vec<(u32, u32, u32)>> = Mutex::new(Vec::new());
/// `cuptiActivityDisable` of the library under test.
static DISABLE: OnceLock<abi::SetKind> = OnceLock::new();

extern "C" fn hear(_: *mut c_void, domain: Domain, id: u32, data: *const c_void) {
    // SAFETY: the data of these domains starts with the site.
    let site = unsafe { (*data.cast::<abi::ApiCallbackData>()).site };
    HEARD.lock().unwrap().push((domain.0, id, site.0));
    if let Some(disable) = DISABLE.get() {
        // SAFETY: takes a number.
        unsafe { disable(Kind::MEMCPY) };
    }
}

#[test]
fn calls_of_the_host_reach_the_subscriber_and_disabling_in_them_is_noticed() {
    let folder = tempdir().unwrap();
    let recording = Recording::new()
        .function(2, 7, "cudaProfilerStart_v4000")
        .function(1, 5, "cuProfilerStart")
        .function(1, 6, "cuProfilerStop")
        .buffer(START + 9, &[kernel(1, START + 1, START + 2, 0)]);
    let client = Client::<41>::start(folder.path(), &recording.save(folder.path()), KERNELS);
    let subscribe: abi::Subscribe = client.function("cuptiSubscribe");
    let enable: abi::EnableCallback = client.function("cuptiEnableCallback");
    let call: unsafe extern "C" fn(*const c_char) -> i32 = client.function("gpuwhy_replay_call");
    let mut handle = ptr::null_mut();
    // SAFETY: live locals, NUL-terminated texts, and a callback that reads only the site.
    unsafe {
        assert_eq!(subscribe(&raw mut handle, Some(hear as Callback), ptr::null_mut()), CuptiResult::SUCCESS);
        assert_eq!(call(c"cudaProfilerStart".as_ptr()), 0);
        assert!(HEARD.lock().unwrap().is_empty(), "nobody has asked to hear of it");
        for (domain, id) in [(Domain::RUNTIME, 7), (Domain::DRIVER, 5)] {
            assert_eq!(enable(1, handle, domain, id), CuptiResult::SUCCESS);
        }
        assert_eq!(call(c"cudaProfilerStart".as_ptr()), 0);
        assert_eq!(call(c"cudaProfilerStop".as_ptr()), 1, "this recording has no such function");
    }
    assert_eq!(*HEARD.lock().unwrap(), [(2, 7, 0), (1, 5, 0), (1, 5, 1), (2, 7, 1)]);
    assert_eq!(client.violations(), [""; 0]);
    DISABLE.get_or_init(|| client.function("cuptiActivityDisable"));
    // SAFETY: as above.
    unsafe { call(c"cudaProfilerStart".as_ptr()) };
    let violations = client.violations();
    assert!(violations.iter().any(|text| text.contains("called from inside a callback")), "{violations:?}");
}

#[test]
fn device_work_is_recorded_as_its_launch_was_wanted() {
    let folder = tempdir().unwrap();
    // Launched before the kind is enabled, runs afterwards; and launched while it is enabled, runs after it
    // is disabled.
    let early = [launch(1, START + 10, START + 12), kernel(1, START + 60, START + 70, 0)];
    let late = [launch(2, START + 55, START + 56), kernel(2, START + 120, START + 130, 0)];
    let recording = Recording::new().buffer(START + 80, &early).buffer(START + 140, &late);
    let client = Client::<42>::start(folder.path(), &recording.save(folder.path()), &[]);
    client.play(50);
    client.enable(Kind::CONCURRENT_KERNEL);
    client.play(100);
    let disable: abi::SetKind = client.function("cuptiActivityDisable");
    // SAFETY: takes a number.
    assert_eq!(unsafe { disable(Kind::CONCURRENT_KERNEL) }, CuptiResult::SUCCESS);
    client.play(u64::MAX);
    assert_eq!(client.take_kernels(), [2]);
}
