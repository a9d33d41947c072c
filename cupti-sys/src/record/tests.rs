//! Hand-made records of several CUDA generations, and garbage.

use super::*;
use crate::abi::{Domain, MemcpyKind, MemoryKind, OverheadKind, SyncType};
use crate::buffer::{Buffer, CompletedBuffer};
use crate::walk::{Broken, RecordSizes};

/// Record sizes by generation, for the kinds that have accessors.
const GENERATIONS: &[(&str, &[(Kind, u32)])] = &[
    ("11.8", &generation([200, 88, 88, 40, 24, 40, 48, 176, 16])),
    ("12.4", &generation([208, 88, 88, 40, 24, 56, 56, 184, 24])),
    ("12.8", &generation([208, 96, 88, 56, 56, 56, 56, 184, 32])),
    ("13.0", &generation([216, 96, 88, 56, 56, 56, 56, 184, 32])),
    ("13.4", &generation([248, 112, 104, 56, 56, 56, 56, 192, 40])),
];

/// Kernel, memcpy, memset, sync, event, overhead, graph trace, device, context; the others never changed.
const fn generation(
    [kernel, memcpy, memset, sync, event, overhead, graph, device, context]: [u32; 9],
) -> [(Kind, u32); 12] {
    [
        (Kind::CONCURRENT_KERNEL, kernel),
        (Kind::MEMCPY, memcpy),
        (Kind::MEMSET, memset),
        (Kind::SYNCHRONIZATION, sync),
        (Kind::CUDA_EVENT, event),
        (Kind::OVERHEAD, overhead),
        (Kind::GRAPH_TRACE, graph),
        (Kind::DEVICE, device),
        (Kind::CONTEXT, context),
        (Kind::RUNTIME, 40),
        (Kind::DRIVER, 40),
        (Kind::MEMCPY2, 96),
    ]
}

/// A record whose byte at offset `n` is `n`, so that a field's value shows the offset it was read from.
fn numbered(kind: Kind, size: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..size).map(|n| n as u8).collect();
    bytes[..4].copy_from_slice(&kind.0.to_ne_bytes());
    bytes
}

fn completed(bytes: &[u8]) -> CompletedBuffer {
    CompletedBuffer::from_bytes(bytes, 0, 0).unwrap()
}

fn u32_at(offset: u8) -> u32 {
    u32::from_le_bytes([offset, offset + 1, offset + 2, offset + 3])
}

fn u64_at(offset: u8) -> u64 {
    u64::from(u32_at(offset)) | u64::from(u32_at(offset + 4)) << 32
}

#[test]
fn every_generation_is_walked_to_its_end() {
    for (name, sizes) in GENERATIONS {
        let bytes: Vec<u8> = sizes.iter().flat_map(|&(kind, size)| numbered(kind, size)).collect();
        let (buffer, table) = (completed(&bytes), RecordSizes::from_pairs(sizes));
        let mut records = buffer.records(&table);
        let met: Vec<_> = records.by_ref().map(|record| (record.kind(), record.bytes().len() as u32)).collect();
        assert_eq!(met, *sizes, "{name}");
        assert_eq!(records.remainder(), None, "{name}");
        assert!(buffer.records(&table).all(|record| !matches!(record.activity(), Activity::Other)), "{name}");
    }
}

#[test]
fn a_field_is_there_exactly_when_the_record_reaches_it() {
    for (name, sizes) in GENERATIONS {
        let bytes: Vec<u8> = sizes.iter().flat_map(|&(kind, size)| numbered(kind, size)).collect();
        let (buffer, table) = (completed(&bytes), RecordSizes::from_pairs(sizes));
        let place = |wanted: &str| GENERATIONS.iter().position(|(name, _)| *name == wanted);
        let from = |generation| place(name) >= place(generation);
        for record in buffer.records(&table) {
            match record.activity() {
                Activity::Kernel(kernel) => {
                    assert_eq!(kernel.start(), u64_at(16), "{name}");
                    assert_eq!(kernel.cluster(), [u32_at(176), u32_at(180), u32_at(184)], "{name}");
                    assert_eq!(kernel.priority().is_some(), from("13.4"), "{name}");
                }
                Activity::Memcpy(copy) => assert_eq!(copy.copy_count(), from("12.8").then_some(u64_at(88)), "{name}"),
                Activity::Sync(sync) => {
                    assert_eq!(sync.event_sync_id(), from("12.8").then_some(u64_at(40)), "{name}");
                }
                Activity::CudaEvent(event) => {
                    assert_eq!(event.event_sync_id(), from("12.8").then_some(u64_at(48)), "{name}");
                }
                Activity::Overhead(overhead) => {
                    assert_eq!(overhead.correlation_id(), from("12.4").then_some(u32_at(40)), "{name}");
                }
                Activity::GraphTrace(graph) => {
                    assert_eq!(graph.end_device_id(), from("12.4").then_some(u32_at(48)), "{name}");
                }
                Activity::Context(context) => {
                    assert_eq!(context.parent_context_id(), from("12.4").then_some(u32_at(16)), "{name}");
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_record_shorter_than_the_oldest_layout_has_no_accessors() {
    let record = numbered(Kind::CONCURRENT_KERNEL, 168);
    let sizes = RecordSizes::from_pairs(&[(Kind::CONCURRENT_KERNEL, 168)]);
    let buffer = completed(&record);
    assert!(matches!(buffer.records(&sizes).next().unwrap().activity(), Activity::Other));
}

/// The one record in these bytes, read through a buffer.
fn with_record(bytes: &[u8], test: impl FnOnce(Activity<'_>)) {
    let kind = Kind(u32::from_ne_bytes(*bytes.first_chunk().unwrap()));
    let sizes = RecordSizes::from_pairs(&[(kind, bytes.len() as u32)]);
    test(completed(bytes).records(&sizes).next().unwrap().activity());
}

#[test]
fn numbers_get_their_names() {
    let mut copy = numbered(Kind::MEMCPY, 96);
    copy[4..8].copy_from_slice(&[1, 1, 3, 1]);
    with_record(&copy, |activity| {
        let Activity::Memcpy(copy) = activity else { panic!("{activity:?}") };
        assert_eq!(
            (copy.kind(), copy.source(), copy.destination()),
            (MemcpyKind::HTOD, MemoryKind::PAGEABLE, MemoryKind::DEVICE)
        );
        assert!(copy.is_async());
    });

    let mut overhead = numbered(Kind::OVERHEAD, 56);
    overhead[4..8].copy_from_slice(&393_216_u32.to_le_bytes());
    overhead[8..12].copy_from_slice(&2_u32.to_le_bytes());
    with_record(&overhead, |activity| {
        let Activity::Overhead(overhead) = activity else { panic!("{activity:?}") };
        assert_eq!((overhead.kind(), overhead.thread_id()), (OverheadKind::COMMAND_BUFFER_FULL, Some(u32_at(16))));
    });
    overhead[8..12].copy_from_slice(&5_u32.to_le_bytes());
    with_record(&overhead, |activity| {
        let Activity::Overhead(overhead) = activity else { panic!("{activity:?}") };
        assert_eq!(overhead.thread_id(), None, "the object is a stream");
    });

    let mut sync = numbered(Kind::SYNCHRONIZATION, 56);
    sync[4..8].copy_from_slice(&3_u32.to_le_bytes());
    with_record(&sync, |activity| {
        let Activity::Sync(sync) = activity else { panic!("{activity:?}") };
        assert_eq!(sync.kind(), SyncType::STREAM_SYNCHRONIZE);
    });

    for (kind, domain) in
        [(Kind::RUNTIME, Domain::RUNTIME), (Kind::DRIVER, Domain::DRIVER), (Kind::INTERNAL_LAUNCH_API, Domain::DRIVER)]
    {
        with_record(&numbered(kind, 40), |activity| {
            let Activity::Api(call) = activity else { panic!("{activity:?}") };
            assert_eq!((call.domain(), call.callback_id(), call.return_value()), (domain, u32_at(4), u32_at(36)));
        });
    }
}

#[test]
fn strings_are_followed_only_in_records_of_this_process() {
    let name = c"_Z6squarePf";
    let mut kernel = numbered(Kind::CONCURRENT_KERNEL, 216);
    kernel[104..112].copy_from_slice(&(name.as_ptr() as u64).to_le_bytes());
    with_record(&kernel, |activity| {
        let Activity::Kernel(kernel) = activity else { panic!("{activity:?}") };
        assert_eq!((kernel.name(), kernel.name_address()), (None, name.as_ptr() as u64));
    });

    let mut buffer = Buffer::new(kernel.len()).unwrap();
    buffer.bytes_mut().copy_from_slice(&kernel);
    // SAFETY: the only string that the record points to is a constant.
    let completed = unsafe { CompletedBuffer::from_cupti(buffer, kernel.len(), 0, 0) };
    let sizes = RecordSizes::from_pairs(&[(Kind::CONCURRENT_KERNEL, 216)]);
    let record = completed.records(&sizes).next().unwrap();
    assert_eq!(record.string(KernelRecord::NAME_OFFSET), Some(name));
    assert_eq!(record.string(16), None, "a number is not an address");
}

#[test]
fn a_walk_stops_where_it_cannot_go_on_and_says_where() {
    let sizes = RecordSizes::from_pairs(GENERATIONS[3].1);
    let api = numbered(Kind::RUNTIME, 40);
    let kernel = numbered(Kind::CONCURRENT_KERNEL, 216);
    let unknown = numbered(Kind(77), 64);
    let cases: &[(&str, Vec<u8>, usize, Option<Broken>)] = &[
        ("cut inside a record", [&api[..], &kernel[..100]].concat(), 1, Some(Broken { offset: 40, bytes: 100 })),
        ("cut inside a kind", [&api[..], &api[..3]].concat(), 1, Some(Broken { offset: 40, bytes: 3 })),
        ("unknown kind", [&api[..], &unknown, &api].concat(), 1, Some(Broken { offset: 40, bytes: 104 })),
        ("kind 0", [&api[..], &[0; 8]].concat(), 1, Some(Broken { offset: 40, bytes: 8 })),
        ("nothing missing", [&api[..], &kernel].concat(), 2, None),
    ];
    for (what, bytes, count, remainder) in cases {
        let buffer = completed(bytes);
        let mut records = buffer.records(&sizes);
        assert_eq!(records.by_ref().count(), *count, "{what}");
        assert_eq!(records.remainder(), *remainder, "{what}");
        assert!(records.next().is_none(), "{what}");
    }
}

/// Reads every field of a record.
fn read_all(record: Record<'_>) {
    for field in 0..=record.bytes().len() {
        assert_eq!(record.string(field), None);
    }
    // Debug output uses no accessor, so the accessors with arithmetic are called explicitly.
    match record.activity() {
        Activity::Kernel(kernel) => drop((kernel.name(), kernel.grid(), kernel.cluster(), kernel.priority())),
        Activity::Overhead(overhead) => drop((overhead.thread_id(), overhead.correlation_id())),
        Activity::Device(device) => drop((device.name(), device.uuid(), device.compute_capability())),
        Activity::Memset(memset) => drop((memset.memory(), memset.is_async())),
        _ => {}
    }
}

#[test]
fn garbage_is_walked_without_a_step_behind_the_end() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut walked = 0;
    for round in 0..20_000_u64 {
        let (_, sizes) = GENERATIONS[random() as usize % GENERATIONS.len()];
        let table = RecordSizes::from_pairs(sizes);
        let mut bytes: Vec<u8> = (0..1 + random() % 600).map(|_| random() as u8).collect();
        // Known kinds at many offsets; garbage alone would end each walk at its first record.
        if round % 4 != 0 {
            for chunk in bytes.chunks_exact_mut(8) {
                let chosen = random() as usize % (sizes.len() + 4);
                if let Some((kind, _)) = sizes.get(chosen) {
                    chunk[..4].copy_from_slice(&kind.0.to_ne_bytes());
                }
            }
        }
        let buffer = completed(&bytes);
        let mut records = buffer.records(&table);
        let mut covered = 0;
        for record in records.by_ref() {
            covered += record.bytes().len();
            walked += 1;
            read_all(record);
        }
        assert_eq!(covered + records.remainder().map_or(0, |broken| broken.bytes), bytes.len());
    }
    assert!(walked > 10_000, "the garbage was too good: {walked} records");
}
