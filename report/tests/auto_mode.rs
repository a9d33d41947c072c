//! Mode auto: the complete run is capture 0, separate from the recordings of the bursts.

use crate::support::{Scenario, ZERO, gpu};
use gpuwhy_report::capture::{Captures, MONITORED};
use gpuwhy_report::run::Report;
use gpuwhy_trace::cost::{Cost, Mode};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;
use profiler_core::leaf::Cause;

fn at(micros: u64) -> Timestamp {
    Timestamp::from_nanos(ZERO + micros * 1_000)
}

fn begin(number: u32, micros: u64, trigger: Trigger) -> Event {
    Event::Capture(CaptureMark::Begin { number, at: at(micros), trigger })
}

fn range(kind: RangeEventKind, micros: u64, message: NameId) -> Event {
    let thread = ThreadId(1);
    Event::Record(Record::Range(RangeEvent { at: at(micros), thread, kind, message, ..RangeEvent::default() }))
}

fn cost() -> Cost {
    Cost {
        mode: Mode::Auto,
        observed_ns: 1_000_000,
        records_ns: 5_000,
        bursts: 2,
        burst_ns: 200_000,
        slowed: Some((0.99, 1.025)),
        ..Cost::default()
    }
}

/// A run with a range outside, and two bursts with a range and kernels each: late launches, and one long
/// kernel.
fn items() -> (Vec<Event>, Dictionary) {
    let mut scenario = Scenario::default();
    for (name, launch, start, lasting) in [("small", 110, 120, 1), ("small", 180, 190, 1), ("large", 310, 320, 70)] {
        gpu(0).kernel(name).at(start).lasting(lasting).launched(&mut scenario, 1, launch, 5);
    }
    let name = scenario.dictionary.intern_name("forward");
    let none = scenario.dictionary.intern_name("");
    let records: Vec<Event> = scenario.records.iter().map(|(_, record)| Event::Record(*record)).collect();
    let push_pop = |from: u64| [range(RangeEventKind::Push, from, name), range(RangeEventKind::Pop, from + 5, none)];
    let end = |number, micros| Event::Capture(CaptureMark::End { number, at: at(micros) });
    let mut items = vec![begin(MONITORED, 0, Trigger::Start)];
    items.extend(push_pop(10));
    items.push(begin(1, 100, Trigger::Open));
    items.extend(push_pop(130));
    items.extend_from_slice(&records[..4]);
    items.extend([Event::Flush(at(250)), end(1, 200), begin(2, 300, Trigger::Drift)]);
    items.extend(push_pop(305));
    items.extend_from_slice(&records[4..]);
    items.extend([Event::Flush(at(450)), end(2, 400), Event::Capture(CaptureMark::Select { number: MONITORED })]);
    items.extend(push_pop(500));
    items.extend([Event::from((at(600), cost())), Event::Flush(at(600))]);
    (items, scenario.dictionary)
}

fn report(wished: Option<u32>, items: &[Event], dictionary: &Dictionary) -> Report {
    let session = ProcessInfo { start: at(0), ..ProcessInfo::default() };
    let mut captures = Captures::new(wished);
    for item in items {
        captures.event(item, &session, dictionary);
    }
    captures.finish(at(700), &session, dictionary);
    captures.report(&session, dictionary, End::Clean, Vec::new())
}

#[test]
fn the_report_is_about_the_whole_run_with_its_bursts_beside_it() {
    let (items, dictionary) = items();
    let whole = report(None, &items, &dictionary);
    assert!(whole.devices.is_empty() && whole.captures.shown.is_none() && whole.is_watched());
    assert_eq!((whole.completeness.kernels, whole.completeness.ranges), (0, 8), "ranges of bursts are the run's, too");
    assert_eq!(whole.captures.rows.iter().map(|row| row.number).collect::<Vec<_>>(), [1, 2]);
    let bursts = whole.bursts.as_ref().unwrap();
    let rows: Vec<_> =
        bursts.rows.iter().map(|row| (row.number, row.trigger, row.begin, row.end, row.kernels)).collect();
    assert_eq!(rows, [(1, Trigger::Open, at(100), at(200), 2), (2, Trigger::Drift, at(300), at(400), 1)]);
    for row in &bursts.rows {
        assert_eq!(row.causes.iter().map(|cause| cause.1).sum::<u64>(), row.window_ns, "{row:?}");
    }
    let text = whole.full();
    for wanted in ["2 bursts, 200.0 us of the run", "as samples left the bottleneck open", "as the step time changed"] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("since the first burst steps take -1.0 to 2.5 % longer"), "{words}");
}

#[test]
fn a_burst_has_a_report_of_its_own() {
    let (items, dictionary) = items();
    for (number, kernels, ranges) in [(1, 2, 2), (2, 1, 2)] {
        let one = report(Some(number), &items, &dictionary);
        assert_eq!((one.completeness.kernels, one.completeness.ranges), (kernels, ranges));
        assert!(one.bursts.is_none() && one.monitored.is_none() && !one.is_watched());
        assert_eq!(one.captures.shown, Some(number));
    }
    assert!(report(Some(3), &items, &dictionary).devices.is_empty());
}

#[test]
fn after_a_step_down_the_report_is_about_the_part_before_the_bursts() {
    let (items, dictionary) = items();
    let records: Vec<&Event> = items.iter().filter(|item| matches!(item, Event::Record(Record::Kernel(_)))).collect();
    let end = |number, micros| Event::Capture(CaptureMark::End { number, at: at(micros) });
    let mut cost = Cost { mode: Mode::Light, observed_ns: 1_000_000, records_ns: 5_000, ..Cost::default() };
    cost.step_down(at(200), Mode::Auto);
    let mut items: Vec<Event> = records[..2].iter().map(|&record| record.clone()).collect();
    items.extend([Event::Flush(at(250)), end(1, 200), Event::from((at(260), cost))]);
    let waits = report(None, &items, &dictionary);
    assert_eq!((waits.captures.shown, waits.completeness.kernels, waits.bursts.is_none()), (Some(1), 2, true));
    assert!(!waits.full().contains("Captures:"), "there is no other one");
    items.extend([begin(2, 300, Trigger::Graph), records[2].clone(), Event::Flush(at(450)), end(2, 400)]);
    items.push(Event::from((at(600), Cost { bursts: 1, burst_ns: 100_000, ..cost })));
    let both = report(None, &items, &dictionary);
    assert_eq!((both.captures.shown, both.completeness.kernels), (Some(1), 2));
    assert_eq!(both.bursts.as_ref().map(|bursts| bursts.rows.iter().map(|row| row.number).collect()), Some(vec![2]));
    let words = both.full().split_whitespace().collect::<Vec<_>>().join(" ");
    for wanted in
        ["Recording was reduced to bursts after 200.0 us", "1 burst, 100.0 us of the run", "as a CUDA graph was new"]
    {
        assert!(words.contains(wanted), "no {wanted:?} in {words}");
    }
    let burst = report(Some(2), &items, &dictionary);
    assert_eq!((burst.captures.shown, burst.completeness.kernels, burst.bursts.is_none()), (Some(2), 1, true));
}

#[test]
fn bursts_without_a_bottleneck_enter_no_bottleneck() {
    let (items, dictionary) = items();
    let whole = report(None, &items, &dictionary);
    let bursts = whole.bursts.as_ref().unwrap();
    assert!(
        bursts.rows.iter().all(|row| row.cause == Cause::CannotTell),
        "some microseconds say too little: {bursts:?}"
    );
    assert_eq!((bursts.changes.len(), whole.bottleneck.cause), (0, Cause::CannotTell));
    assert_eq!(whole.bottleneck.live.0, Cause::CannotTell);
}

#[test]
fn a_trace_gives_capture_0_its_triggers_and_the_cost_of_bursts_back() {
    let (items, dictionary) = items();
    let loss = Loss::default();
    let mut writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
    for item in &items {
        writer.event(item, &dictionary).unwrap();
    }
    let bytes = writer.finish(End::Clean, at(700), &loss, &dictionary).unwrap();
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    let (mut marks, mut costs) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next_event().unwrap() {
        match item {
            Event::Capture(mark) => marks.push(mark),
            Event::Cost { cost, .. } => costs.push(*cost),
            _ => {}
        }
    }
    let written: Vec<_> =
        items.iter().filter_map(|item| if let Event::Capture(mark) = item { Some(*mark) } else { None }).collect();
    assert_eq!(marks, written);
    assert_eq!(costs, [cost()]);
}
