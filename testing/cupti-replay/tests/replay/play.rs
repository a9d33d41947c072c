//! Which records are played, in which buffers, at what time.

use std::io::Write;

use cupti_sys::{CuptiResult, Domain, Kind, RecordSizes};
use tempfile::tempdir;

use crate::client::{Client, state};
use crate::recording::{Recording, SIZES, START, VERSION, event, kernel, kernels, runtime};

const TO_THE_END: u64 = u64::MAX;

#[test]
fn enabled_kinds_arrive_in_order_with_names_of_this_process() {
    let folder = tempdir().unwrap();
    let recording = Recording::new()
        .text(0x1000, "gemm")
        .buffer(START + 50, &[kernel(7, START + 10, START + 20, 0x1000), runtime(211, START + 1, START + 5)])
        .text(0x1000, "softmax")
        .buffer(START + 90, &[kernel(8, START + 60, START + 70, 0x1000), kernel(9, START + 71, START + 80, 0x2000)])
        .save(folder.path());
    let client = Client::<0>::start(folder.path(), &recording, &[Kind::CONCURRENT_KERNEL]);
    assert_eq!(client.now(), START);
    client.play(TO_THE_END);
    assert_eq!(client.now(), START + 90);

    let got = client.take();
    let seen: Vec<_> = got.iter().map(|got| (got.u32(92), got.name.as_deref(), got.u64(16) - START)).collect();
    assert_eq!(seen, [(7, Some("gemm"), 10), (8, Some("softmax"), 60), (9, None, 71)]);
    assert!(got.iter().all(|got| got.u64(160) == 0), "pointers that were not recorded lead nowhere");
    assert!(got.iter().all(|got| got.thread == "cupti-replay"), "on the library's own thread");
    let counts = client.counts();
    assert_eq!((counts.delivered, counts.left_out, counts.dropped), (3, 1, 0));
    assert_eq!(client.violations(), [""; 0]);
}

#[test]
fn single_functions_can_be_enabled() {
    let folder = tempdir().unwrap();
    let calls =
        [runtime(211, START + 1, START + 2), runtime(3, START + 3, START + 4), runtime(41, START + 5, START + 6)];
    let recording = Recording::new().buffer(START + 9, &calls).save(folder.path());
    let client = Client::<1>::start(folder.path(), &recording, &[]);
    for (function, on) in [(211, true), (3, true), (3, false)] {
        assert_eq!(client.enable_runtime(function, on), CuptiResult::SUCCESS);
    }
    client.play(TO_THE_END);
    assert_eq!(client.take().iter().map(|got| got.u32(4)).collect::<Vec<_>>(), [211]);
    assert_eq!(client.counts().left_out, 2);
}

#[test]
fn records_are_repacked_into_the_clients_buffers() {
    for (size, most, expected) in [(4096, 0, vec![18, 7]), (500, 0, vec![2; 12]), (4096, 10, vec![10, 10, 5])] {
        let folder = tempdir().unwrap();
        let recording = kernels(25, 25).save(folder.path());
        state::<2, _>(|state| (state.size, state.most) = (size, most));
        let client = Client::<2>::start(folder.path(), &recording, &[Kind::CONCURRENT_KERNEL]);
        client.play(TO_THE_END);
        let lengths: Vec<_> = state::<2, _>(|state| state.got.iter().map(Vec::len).collect());
        assert!(lengths.starts_with(&expected), "{lengths:?} in buffers of {size} bytes, {most} records");
        assert_eq!(client.take_kernels(), (0..25).collect::<Vec<_>>());
        assert_eq!(client.violations(), [""; 0]);
    }
}

#[test]
fn a_flush_withholds_a_buffer_with_something_incomplete_in_it() {
    let folder = tempdir().unwrap();
    // All records of the second buffer had begun at the first flush, and kernel 3 was still running.
    let second = [
        kernel(2, START + 30, START + 40, 0),
        event(2),
        kernel(3, START + 45, START + 95, 0),
        kernel(4, START + 50, START + 55, 0),
    ];
    let recording = Recording::new()
        .buffer(START + 60, &[kernel(1, START + 10, START + 20, 0)])
        .buffer(START + 200, &second)
        .buffer(START + 200, &[kernel(5, START + 70, START + 75, 0), kernel(6, START + 110, START + 190, 0)])
        .save(folder.path());
    let client = Client::<3>::start(folder.path(), &recording, &[Kind::CONCURRENT_KERNEL, Kind::CUDA_EVENT]);
    client.play(60);
    assert_eq!(client.take_kernels(), [1]);
    assert_eq!(client.flush(0), CuptiResult::SUCCESS);
    assert_eq!(client.take().len(), 0, "2 and 4 are complete, but 3 is not");
    client.play(80);
    assert_eq!(client.flush(0), CuptiResult::SUCCESS);
    assert_eq!(client.take_kernels(), [5], "what came after the flush went into a buffer of its own");
    client.play(130);
    assert_eq!(client.flush(0), CuptiResult::SUCCESS);
    let got = client.take();
    assert_eq!(got.iter().map(|got| got.kind).collect::<Vec<_>>(), [10, 36, 10, 10], "an event goes with its neighbor");
    assert_eq!([got[0].u32(92), got[2].u32(92), got[3].u32(92)], [2, 3, 4]);
    assert!(got[0].thread != "cupti-replay", "on the flushing thread");

    assert_eq!(client.flush(1), CuptiResult::SUCCESS);
    let running = client.take();
    assert_eq!(running.iter().map(|got| (got.u32(92), got.u64(24))).collect::<Vec<_>>(), [(6, 0)]);
    client.play(TO_THE_END);
    client.flush(1);
    assert_eq!(client.take_kernels(), [0; 0], "nothing comes twice");
    assert_eq!(client.violations(), [""; 0]);
}

#[test]
fn what_is_disabled_later_still_arrives() {
    let folder = tempdir().unwrap();
    let recording = kernels(10, 5).save(folder.path());
    let client = Client::<4>::start(folder.path(), &recording, &[Kind::CONCURRENT_KERNEL]);
    client.play(9_500);
    assert_eq!(client.take_kernels(), [0, 1, 2, 3, 4]);
    // SAFETY: takes a number.
    unsafe { client.function::<cupti_sys::abi::SetKind>("cuptiActivityDisable")(Kind::CONCURRENT_KERNEL) };
    client.play(TO_THE_END);
    assert_eq!((client.take_kernels().len(), client.counts().left_out), (0, 5));
}

#[test]
fn dropped_records_are_reported_once() {
    let folder = tempdir().unwrap();
    let recording = kernels(2, 1).dropped(17).save(folder.path());
    let client = Client::<5>::start(folder.path(), &recording, &[Kind::CONCURRENT_KERNEL]);
    client.play(TO_THE_END);
    assert_eq!((client.dropped(), client.dropped()), (17, 0));
}

#[test]
fn a_client_without_memory_loses_records_at_a_given_speed() {
    let folder = tempdir().unwrap();
    let recording = kernels(4, 2).save(folder.path());
    let client = Client::<6>::open(folder.path(), &recording, "1000").unwrap();
    state::<6, _>(|state| state.habit = crate::client::Habit::Null);
    client.register();
    client.enable(Kind::CONCURRENT_KERNEL);
    client.play(TO_THE_END);
    assert_eq!((client.dropped(), client.counts().dropped), (4, 4));
    assert_eq!(client.violations(), [""; 0], "this version tolerates it");
}

#[test]
fn a_compressed_recording_plays_the_same() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("session.cupti");
    let mut encoder = zstd::Encoder::new(std::fs::File::create(&path).unwrap(), 3).unwrap();
    encoder.write_all(&kernels(100, 7).bytes()).unwrap();
    encoder.finish().unwrap();
    let client = Client::<7>::start(folder.path(), &path, &[Kind::CONCURRENT_KERNEL]);
    client.play(TO_THE_END);
    assert_eq!(client.take_kernels(), (0..100).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_played_is_refused_with_the_reason() {
    let folder = tempdir().unwrap();
    let whole = kernels(3, 3).bytes();
    let path = folder.path().join("broken");
    for (bytes, part) in [(&whole[..whole.len() - 20], "byte "), (b"elephant".as_slice(), "not a recording")] {
        std::fs::write(&path, bytes).unwrap();
        let error = Client::<8>::open(folder.path(), &path, "max").err().expect("refused");
        assert!(error.contains(part) && error.contains("broken"), "{error}");
    }
    let error = Client::<9>::open(folder.path(), &folder.path().join("none"), "max").err().expect("refused");
    assert!(error.contains("none"), "{error}");
    let recording = kernels(3, 3).save(folder.path());
    let error = Client::<10>::open(folder.path(), &recording, "soon").err().expect("refused");
    assert!(error.contains("soon"), "{error}");
}

#[test]
fn every_function_that_cupti_sys_needs_is_there() {
    let folder = tempdir().unwrap();
    let recording = kernels(3, 3).save(folder.path());
    let client = Client::<11>::open(folder.path(), &recording, "max").unwrap();
    let copy = client.file();
    let search = cupti_sys::Search { override_path: Some(copy), ..cupti_sys::Search::for_this_process() };
    let cupti = cupti_sys::Cupti::load(&search).unwrap();
    assert_eq!(cupti.missing_functions(), [""; 0]);
    assert_eq!((cupti.version(), cupti.timestamp()), (Ok(VERSION), Ok(START)));
    let name = cupti.callback_name(Domain::RUNTIME, 211);
    assert_eq!((name.as_deref(), cupti.callback_name(Domain::RUNTIME, 1)), (Some("cudaLaunchKernel_v7000"), None));
    let mut sizes: Vec<_> = RecordSizes::probe(cupti).unwrap().iter().collect();
    sizes.sort();
    let mut expected = SIZES.to_vec();
    expected.sort();
    assert_eq!(sizes, expected);
}
