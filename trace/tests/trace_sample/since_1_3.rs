//! Additions of trace version 1.4: migrations and page faults of managed memory.
//!
//! The golden file of version 1.4 is exactly this trace: any change here changes the expected contents of
//! that file.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::*;

use crate::trace_sample::{at, session};

/// Every kind, between all places.
fn events() -> Vec<Record> {
    let page = ManagedEvent { address: 0x7f40_0000_0000, value: 65_536, ..ManagedEvent::default() };
    let (one, other) = (DeviceId(0), DeviceId(1));
    [
        ManagedEvent {
            start: at(900),
            end: at(4_000),
            kind: ManagedKind::DeviceFault,
            source: one,
            value: 12,
            cause: 2,
            ..page
        },
        ManagedEvent {
            start: at(1_000),
            end: at(3_500),
            kind: ManagedKind::HostToDevice,
            destination: one,
            cause: 2,
            ..page
        },
        ManagedEvent {
            start: at(5_000),
            end: at(6_000),
            kind: ManagedKind::DeviceToDevice,
            source: one,
            destination: other,
            address: page.address + 65_536,
            value: 2 << 20,
            cause: 3,
        },
        ManagedEvent {
            start: at(7_000),
            end: at(7_000),
            kind: ManagedKind::HostFault,
            value: 0x5555_5555_1234,
            ..page
        },
        ManagedEvent {
            start: at(7_100),
            end: at(8_000),
            kind: ManagedKind::DeviceToHost,
            source: other,
            cause: 5,
            ..page
        },
        ManagedEvent { start: at(9_000), end: at(9_001), ..page },
    ]
    .map(Record::Managed)
    .into()
}

/// A trace of these events.
pub fn sample() -> (Dictionary, Vec<u8>) {
    let dictionary = Dictionary::new();
    let mut writer = TraceWriter::new(Vec::new(), &session()).unwrap();
    for record in events() {
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
