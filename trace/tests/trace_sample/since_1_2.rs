//! Additions of trace version 1.3: memory allocations and releases.
//!
//! The golden file of version 1.3 is exactly this trace: any change here changes the expected contents of
//! that file.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::*;

use crate::trace_sample::{at, session};

/// Every operation, with and without a pool, and a variable.
fn events(names: &mut Dictionary) -> Vec<Record> {
    let table = names.intern_name("lookup_table");
    let plain = MemoryEvent { context: ContextId(1), kind: MemoryKind::Device, ..MemoryEvent::default() };
    let pool = MemoryEvent { pool: 0x7f00_dead_0000, pool_bytes: 32 << 20, pool_threshold: u64::MAX, ..plain };
    [
        MemoryEvent {
            at: at(1_000),
            operation: MemoryOperation::Allocation,
            address: 0x7f1f_c800_0000,
            bytes: 2 << 20,
            correlation: CorrelationId(136),
            ..plain
        },
        MemoryEvent {
            at: at(1_100),
            operation: MemoryOperation::Allocation,
            address: 0x7f1f_cc00_0000,
            bytes: 102_400,
            name: table,
            ..plain
        },
        MemoryEvent { at: at(1_200), operation: MemoryOperation::PoolCreated, ..pool },
        MemoryEvent {
            at: at(1_300),
            operation: MemoryOperation::Allocation,
            stream: StreamId(7),
            address: 0x7f1f_d000_0000,
            bytes: 1 << 20,
            pool_used: 1 << 20,
            correlation: CorrelationId(140),
            ..pool
        },
        MemoryEvent {
            at: at(1_400),
            operation: MemoryOperation::Release,
            kind: MemoryKind::Pinned,
            device: DeviceId(3),
            address: 0x7f00_0000_1000,
            bytes: 4096,
            ..plain
        },
        MemoryEvent { at: at(1_500), operation: MemoryOperation::PoolTrimmed, ..pool },
        MemoryEvent { at: at(1_600), operation: MemoryOperation::PoolDestroyed, ..pool },
        MemoryEvent { at: at(1_700), ..plain },
    ]
    .map(Record::Memory)
    .into()
}

/// A trace of these events.
pub fn sample() -> (Dictionary, Vec<u8>) {
    let mut dictionary = Dictionary::new();
    let mut writer = TraceWriter::new(Vec::new(), &session()).unwrap();
    for record in events(&mut dictionary) {
        writer.event(&Event::Record(record), &dictionary).unwrap();
    }
    let loss = Loss::default();
    writer
        .event(&Event::from(loss), &dictionary)
        .and_then(|()| writer.event(&Event::Flush(at(200_000)), &dictionary))
        .unwrap();
    let bytes = writer.finish(End::Clean, at(250_000), &loss, &dictionary).unwrap();
    (dictionary, bytes)
}
