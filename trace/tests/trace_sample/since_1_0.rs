//! Additions of trace versions 1.1 and 1.2: ranges, host samples, stack frames, links, captures.
//!
//! The golden file of version 1.2 is exactly this trace: any change here changes the expected contents of
//! that file.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::*;

use crate::trace_sample::{at, session};
use gpuwhy_trace::record::{CaptureMark, Trigger};

/// Every range event and payload, in a domain with a category.
fn ranges(names: &mut Dictionary) -> Vec<Record> {
    let none = names.intern_name("");
    let (domain, category) = (names.intern_name("library"), names.intern_name("input"));
    let (step, whole, here) = (names.intern_name("step"), names.intern_name("whole"), names.intern_name("here"));
    let (main, worker) = (ThreadId(4242), ThreadId(4243));
    let plain = RangeEvent { domain: none, message: none, category: none, ..RangeEvent::default() };
    [
        RangeEvent { at: at(1_000), thread: main, kind: RangeEventKind::Push, message: step, ..plain },
        RangeEvent {
            at: at(1_100),
            thread: main,
            kind: RangeEventKind::Start,
            domain,
            message: whole,
            category,
            color: 0xff33_6699,
            range_id: 1 << 10,
            payload: Payload::Signed(-7),
        },
        RangeEvent {
            at: at(1_200),
            thread: worker,
            kind: RangeEventKind::Mark,
            message: here,
            payload: Payload::Float(0.25),
            ..plain
        },
        RangeEvent { at: at(1_300), thread: main, kind: RangeEventKind::Pop, ..plain },
        RangeEvent { at: at(1_400), thread: worker, kind: RangeEventKind::End, domain, range_id: 1 << 10, ..plain },
        RangeEvent {
            at: at(1_500),
            thread: main,
            kind: RangeEventKind::Push,
            message: step,
            payload: Payload::Unsigned(u64::MAX),
            ..plain
        },
    ]
    .map(Record::Range)
    .into()
}

/// Every state of a thread and of the interpreter lock, with a stack of two frames and without.
fn samples(names: &mut Dictionary) -> Vec<Record> {
    use ThreadState as State;
    let file = names.intern_name("/app/train.py");
    let (outer, inner) = (names.intern_name("main"), names.intern_name("Loader.__next__"));
    let outer = names.intern_frame(Frame { caller: StackId::NONE, function: outer, file, line: 12 });
    let inner = names.intern_frame(Frame { caller: outer, function: inner, file, line: 0 });
    let states = [State::Running, State::Futex, State::Poll, State::Io, State::Disk, State::Sleep];
    let locks = [InterpreterLock::ThisThread, InterpreterLock::OtherThread, InterpreterLock::Free];
    let states = states.into_iter().chain([State::Child, State::Memory, State::Driver, State::Other, State::Unknown]);
    let samples = states.zip(0..).map(|(state, number)| {
        let at = |sample: u64| at(10_000 * sample);
        Record::Sample(HostSample {
            earlier: None,
            read_within: 0,
            since: at(number),
            at: at(number + 1),
            thread: ThreadId(4242),
            state,
            on_cpu: 100 * number,
            runnable: number,
            stack: [inner, outer, StackId::NONE][number as usize % 3],
            interpreter_lock: locks.get(number as usize).copied().unwrap_or_default(),
            collecting_garbage: number == 2,
            children: 4,
            children_running: number as u32 % 4,
            children_in_io: 1,
        })
    });
    samples.collect()
}

/// Two captures; the second one starts before all events of the first have been written.
pub fn sample() -> (Dictionary, Vec<u8>) {
    let mut dictionary = Dictionary::new();
    let mut writer = TraceWriter::new(Vec::new(), &session()).unwrap();
    dictionary.add_link(PcieLink { device: DeviceId(0), generation: 5, megatransfers: 32_000, lanes: 16 });
    let mark = |number, nanos, trigger| CaptureMark::Begin { number, at: at(nanos), trigger };

    writer.event(&Event::Capture(mark(1, 500, Trigger::ProfilerApi)), &dictionary).unwrap();
    for record in ranges(&mut dictionary) {
        writer.event(&Event::Record(record), &dictionary).unwrap();
    }
    writer.event(&Event::Capture(mark(2, 5_000, Trigger::Range)), &dictionary).unwrap();
    for record in samples(&mut dictionary) {
        writer.event(&Event::Record(record), &dictionary).unwrap();
    }
    writer.event(&Event::Capture(CaptureMark::Select { number: 1 }), &dictionary).unwrap();
    writer.event(&Event::Record(ranges(&mut dictionary)[3]), &dictionary).unwrap();
    writer.event(&Event::Capture(CaptureMark::End { number: 1, at: at(5_000) }), &dictionary).unwrap();
    let loss = Loss { dropped_ranges: 3, failed_samples: 5, ..Loss::default() };
    writer
        .event(&Event::from(loss), &dictionary)
        .and_then(|()| writer.event(&Event::Flush(at(200_000)), &dictionary))
        .unwrap();
    writer.event(&Event::Capture(CaptureMark::End { number: 2, at: at(6_000) }), &dictionary).unwrap();
    let bytes = writer.finish(End::Clean, at(250_000), &loss, &dictionary).unwrap();
    (dictionary, bytes)
}
