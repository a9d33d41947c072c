//! Live line of a changing program: the named bottleneck and the time of its changes.

use crate::support::{Scenario, ZERO, gpu};
use gpuwhy_report::capture::Captures;
use gpuwhy_report::run::Report;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::Timestamp;

/// One second each: kernels that wait for launches, and kernels whose results the host waits for.
fn second(scenario: &mut Scenario, at: u64, launch_bound: bool) {
    for step in 0..20 {
        let at = at + 50_000 * step;
        if launch_bound {
            for call in (0..500).map(|kernel| at + 100 * kernel) {
                gpu(0).kernel("tiny").at(call + 60).lasting(20).launched(scenario, 1, call, 50);
            }
        } else {
            gpu(0).kernel("large").at(at + 10).lasting(25_000).launched(scenario, 1, at, 5);
            scenario.call(1, "cudaStreamSynchronize_v3020", at + 10, 25_005);
        }
    }
}

/// Names in the line, second by second, and the report at the end.
fn lines(program: &[bool], printed: bool) -> (Vec<String>, Report) {
    let mut scenario = Scenario::new();
    for (number, &launch_bound) in (0..).zip(program) {
        second(&mut scenario, 1_000 + 1_000_000 * number, launch_bound);
    }
    scenario.records.sort_by_key(|&(complete, _)| complete);
    let session = ProcessInfo::default();
    let mut captures = Captures::new(None);
    let (mut names, mut due) = (Vec::new(), ZERO + 1_000_000_000);
    for (complete, record) in &scenario.records {
        if *complete >= due {
            captures.event(&Event::Flush(Timestamp::from_nanos(due)), &session, &scenario.dictionary);
            if printed {
                let line = captures.live_line(&session, &scenario.dictionary);
                let name = line.split("bottleneck: ").nth(1).and_then(|rest| rest.split(" (").next());
                names.push(name.unwrap_or("none").to_owned());
                assert!(line.contains("starting up") || line.contains("GPU busy "), "{line}");
                assert!(line.starts_with("gpuwhy [") && line.len() <= 120, "{line}");
            }
            due += 1_000_000_000;
        }
        captures.event(&Event::Record(*record), &session, &scenario.dictionary);
    }
    captures.finish(Timestamp::from_nanos(due), &session, &scenario.dictionary);
    (names, captures.report(&session, &scenario.dictionary, End::Clean, Vec::new()))
}

#[test]
fn the_line_does_not_flap_and_the_report_at_the_end_does_not_care() {
    // Eight seconds of one, then three of each in turn: the bottleneck of the complete run is about to
    // change.
    let flapping: Vec<bool> = (0..26).map(|second| second < 8 || second / 3 % 2 == 0).collect();
    let (names, report) = lines(&flapping, true);
    assert!(names.len() >= 24 && names[5..].iter().all(|name| name == "kernel launches"), "{names:?}");
    let (_, unprinted) = lines(&flapping, false);
    assert_eq!(report.bottleneck.cause, unprinted.bottleneck.cause);
    assert_eq!(report.bottleneck.evidence, unprinted.bottleneck.evidence);
    assert_eq!(report.summary(), unprinted.summary());

    // A lasting change is followed, once and after five seconds.
    let changing: Vec<bool> = (0..24).map(|second| second < 8).collect();
    let (names, _) = lines(&changing, true);
    let change = names.iter().position(|name| name == "synchronization").expect("another name");
    assert!((12..=15).contains(&change), "{names:?}");
    assert!(names[change..].iter().all(|name| name == "synchronization"), "{names:?}");
}
