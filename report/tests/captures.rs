//! Captures have separate accounting, and a trace returns the data passed to the writer.

use crate::support::{Scenario, ZERO, gpu};
use gpuwhy_report::capture::{Captures, OPEN_LIMIT};
use gpuwhy_report::run::Report;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;
use gpuwhy_trace::record::{CaptureMark, Trigger};

fn at(micros: u64) -> Timestamp {
    Timestamp::from_nanos(ZERO + micros * 1_000)
}

fn begin(number: u32, micros: u64) -> Event {
    Event::Capture(CaptureMark::Begin { number, at: at(micros), trigger: Trigger::ProfilerApi })
}

fn end(number: u32, micros: u64) -> Event {
    Event::Capture(CaptureMark::End { number, at: at(micros) })
}

fn select(number: u32) -> Event {
    Event::Capture(CaptureMark::Select { number })
}

/// Kernels and their launches; the second capture starts before the first's last kernel has arrived.
fn items() -> (Vec<Event>, Dictionary) {
    let mut scenario = Scenario::default();
    for (name, launch, start) in [("first", 10, 20), ("first", 30, 60), ("second", 110, 120)] {
        gpu(0).kernel(name).at(start).lasting(5).launched(&mut scenario, 1, launch, 5);
    }
    let records: Vec<Event> = scenario.records.iter().map(|(_, record)| Event::Record(*record)).collect();
    // Call and kernel of each launch; the second kernel arrives after the start of the second capture.
    let [call_1, kernel_1, call_2, kernel_2, call_3, kernel_3] = <[Event; 6]>::try_from(records).unwrap();
    let items = vec![
        begin(1, 0),
        call_1,
        kernel_1,
        call_2,
        begin(2, 100),
        select(1),
        kernel_2,
        Event::Flush(at(105)),
        end(1, 50),
        select(2),
        call_3,
        kernel_3,
        Event::Flush(at(150)),
    ];
    (items, scenario.dictionary)
}

fn feed(captures: &mut Captures, items: &[Event], dictionary: &Dictionary) {
    let session = ProcessInfo::default();
    for item in items {
        captures.event(item, &session, dictionary);
    }
}

fn report(wished: Option<u32>, items: &[Event], dictionary: &Dictionary) -> Report {
    let mut captures = Captures::new(wished);
    feed(&mut captures, items, dictionary);
    captures.finish(at(200), &ProcessInfo::default(), dictionary);
    captures.report(&ProcessInfo::default(), dictionary, End::Clean, Vec::new())
}

fn kernels(report: &Report) -> Vec<(String, u64)> {
    let rows = report.devices.iter().flat_map(|device| &device.kernels);
    rows.map(|row| (row.name.clone(), row.durations.count())).collect()
}

#[test]
fn a_record_counts_in_its_own_capture_even_when_the_next_has_begun() {
    let (items, dictionary) = items();
    let first = report(Some(1), &items, &dictionary);
    assert_eq!(kernels(&first), [("first".to_owned(), 2)]);
    assert_eq!(first.completeness.launches_without_activity, 0);
    let newest = report(None, &items, &dictionary);
    assert_eq!(kernels(&newest), [("second".to_owned(), 1)]);
    let rows: Vec<_> = newest.captures.rows.iter().map(|row| (row.number, row.kernels, row.end)).collect();
    assert_eq!(rows, [(1, 2, Some(at(50))), (2, 1, Some(at(200)))]);
    assert_eq!(newest.captures.shown, Some(2));
    let text = newest.summary();
    assert!(text.contains("Captures: 2; this is the report of number 2"), "{text}");
    assert!(text.contains("1 by cudaProfilerApi: 50.0 us"), "{text}");
}

#[test]
fn a_number_that_does_not_exist_gives_an_empty_report_that_says_what_there_is() {
    let (items, dictionary) = items();
    let report = report(Some(7), &items, &dictionary);
    assert!(report.devices.is_empty());
    assert_eq!((report.captures.shown, report.captures.rows.len()), (None, 2));
}

#[test]
fn a_run_without_marks_is_one_run_and_a_stop_makes_it_the_first_capture() {
    let (items, dictionary) = items();
    let records: Vec<Event> = items.iter().filter(|item| !matches!(item, Event::Capture(_))).cloned().collect();
    let whole = report(None, &records, &dictionary);
    assert_eq!((whole.completeness.kernels, whole.captures.rows.len()), (3, 0));
    let stopped: Vec<Event> = records.into_iter().chain([end(1, 160), begin(2, 170)]).collect();
    let first = report(Some(1), &stopped, &dictionary);
    assert_eq!((first.completeness.kernels, first.captures.rows.len()), (3, 2));
}

#[test]
fn captures_that_never_end_do_not_pile_up() {
    let dictionary = Dictionary::new();
    let marks: Vec<Event> = (1..=3 * OPEN_LIMIT as u32).map(|number| begin(number, number.into())).collect();
    let mut captures = Captures::new(None);
    feed(&mut captures, &marks, &dictionary);
    let report = captures.report(&ProcessInfo::default(), &dictionary, End::Abrupt, Vec::new());
    let open = report.captures.rows.iter().filter(|row| row.end.is_none()).count();
    assert_eq!((report.captures.rows.len(), open), (3 * OPEN_LIMIT, OPEN_LIMIT));
}

#[test]
fn a_trace_gives_the_marks_back_where_they_were() {
    let (items, dictionary) = items();
    let mut writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
    for item in &items {
        writer.event(item, &dictionary).unwrap();
    }
    let bytes = writer.finish(End::Clean, at(200), &Loss::default(), &dictionary).unwrap();
    let mut reader = TraceReader::new(bytes.as_slice()).unwrap();
    let back: Vec<Event> = std::iter::from_fn(|| reader.next_event().unwrap()).collect();
    assert!(reader.damage().is_none());
    let marks = |items: &[Event]| -> Vec<Event> {
        items.iter().filter(|item| matches!(item, Event::Capture(_) | Event::Flush(_))).cloned().collect()
    };
    assert_eq!(marks(&back), marks(&items));
    // Between two marks the order of kinds is not defined, so the totals are compared.
    for wished in [Some(1), Some(2), None] {
        let (written, read) = (report(wished, &items, &dictionary), report(wished, &back, reader.dictionary()));
        assert_eq!(kernels(&written), kernels(&read), "{wished:?}");
        assert_eq!(written.captures, read.captures);
    }
}
