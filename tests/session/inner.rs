//! The inner halves of the tests, which run in child processes. Each needs the environment that its outer
//! half sets.

use std::time::Duration;

use gpuwhy::{Session, SessionErrorKind};

use crate::support::play::{play_out, play_until, replace_clock, violation};

#[test]
#[ignore = "run by its outer half"]
fn whole_recording() {
    let session = Session::start().unwrap();
    assert!(!session.is_injected());
    play_out();
    let report = session.finish().unwrap();
    assert_eq!(violation(), None);
    assert_eq!(report.bottleneck.cause.name(), "launch");
    assert!(report.to_string().contains("Bottleneck: kernel launches."), "{report}");
    let [device] = &*report.devices else { panic!("{:#?}", report.devices) };
    assert_eq!(device.leaves.iter().sum::<u64>(), device.window_ns);
    assert!(device.what_if.is_some());
    assert!(device.kernels.iter().map(|kernel| kernel.durations.count()).sum::<u64>() == report.completeness.kernels);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["schema_version"], 2);
    assert_eq!(json["completeness"]["end"], "clean");
    assert_eq!(json["completeness"]["launches_without_activity"], 0);
}

#[test]
#[ignore = "run by its outer half"]
fn one_after_another() {
    let whole = {
        let session = Session::builder().trace("first.gpuwhy").start().unwrap();
        play_until(3300);
        let first = session.finish().unwrap();
        let session = Session::builder().trace("second.gpuwhy").start().unwrap();
        assert_eq!(session.trace().unwrap().to_str(), Some("second.gpuwhy"));
        play_out();
        let second = session.finish().unwrap();
        [first, second].map(|report| report.completeness.kernels)
    };
    assert!(whole.iter().all(|&kernels| kernels > 100), "{whole:?}");
    let empty = Session::start().unwrap().finish().unwrap();
    assert_eq!((empty.completeness.kernels, empty.devices.len()), (0, 0));
    assert_eq!(violation(), None);
}

#[test]
#[ignore = "run by its outer half"]
fn ranges_and_steps() {
    let session = Session::start().unwrap();
    let outer = session.range("outer");
    for _ in 0..5 {
        session.step();
        let _inner = session.range("inner");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| drop(session.range("elsewhere")));
    });
    drop(outer);
    play_out();
    let report = session.finish().unwrap();
    let ranges = report.ranges.unwrap();
    let count = |name| ranges.rows.iter().find(|row| row.message == name).map(|row| row.host.durations.count());
    assert_eq!(["outer", "inner", "elsewhere", "step"].map(count), [Some(1), Some(5), Some(1), Some(5)]);
    assert_eq!((ranges.open, ranges.counts.unmatched), (0, 0));
    // None from the first session.
    let session = Session::start().unwrap();
    drop(session.range("later"));
    let report = session.finish().unwrap();
    assert_eq!(report.ranges.unwrap().rows.iter().map(|row| &*row.message).collect::<Vec<_>>(), ["later"]);
}

#[test]
#[ignore = "run by its outer half"]
fn snapshot() {
    let session = Session::start().unwrap();
    play_until(3300);
    let early = session.snapshot().unwrap();
    play_out();
    let whole = session.finish().unwrap();
    assert!(0 < early.completeness.kernels && early.completeness.kernels < whole.completeness.kernels);
}

#[test]
#[ignore = "run by its outer half"]
fn busy() {
    let session = Session::start().unwrap();
    let error = Session::start().unwrap_err();
    assert_eq!(error.kind(), SessionErrorKind::Busy);
    assert!(error.to_string().contains("finish it first"), "{error}");
    let waiting = std::thread::spawn(|| Session::builder().wait(Duration::from_secs(60)).start().map(Session::finish));
    play_out();
    assert!(session.finish().unwrap().completeness.kernels > 0);
    assert_eq!(waiting.join().unwrap().unwrap().unwrap().completeness.kernels, 0);
}

#[test]
#[ignore = "run by its outer half"]
fn within_itself() {
    let _session = Session::start().unwrap();
    // Only this thread can end the open session: these calls return at once, however long they would wait for
    // another thread's.
    let waiting = Session::builder().wait(Duration::from_secs(3600)).start();
    assert_eq!(waiting.unwrap_err().kind(), SessionErrorKind::Busy);
    assert_eq!(gpuwhy::measure(|_| {}).unwrap_err().kind(), SessionErrorKind::Busy);
    gpuwhy::prepare().unwrap();
}

#[test]
#[ignore = "run by its outer half"]
fn prepared() {
    gpuwhy::prepare().unwrap();
    // As a program that uses CUDA: the collector has the records, but there is no session.
    play_until(3300);
    gpuwhy::prepare().unwrap();
    let (_, report) = gpuwhy::measure(|_| play_out()).unwrap();
    assert!(report.completeness.kernels > 100);
    assert_eq!(report.completeness.activities_without_launch, 0);
}

#[test]
#[ignore = "run by its outer half"]
fn joined() {
    let session = Session::builder().trace("part.gpuwhy").start().unwrap();
    assert!(session.is_injected());
    drop(session.range("part"));
    play_until(3300);
    let report = session.finish().unwrap();
    assert!(report.completeness.kernels > 100);
    assert_eq!(report.ranges.unwrap().rows[0].message, "part");
    // Continues without a session.
    play_out();
}

#[test]
#[ignore = "run by its outer half"]
fn no_cupti() {
    let error = Session::builder().trace("none.gpuwhy").start().unwrap_err();
    assert_eq!(error.kind(), SessionErrorKind::NoCupti);
    assert!(error.to_string().contains("install"), "{error}");
    // Tests unwrap it, so line breaks must survive.
    let lines = error.to_string().lines().count();
    assert!(
        format!("{error:?}").starts_with("NoCupti: ") && format!("{error:?}").lines().count() == lines,
        "{error:?}"
    );
    assert_eq!(gpuwhy::prepare().unwrap_err().kind(), SessionErrorKind::NoCupti);
    // The same again: no session is left half open.
    assert_eq!(Session::start().unwrap_err().kind(), SessionErrorKind::NoCupti);
}

#[test]
#[ignore = "run by its outer half"]
fn watched() {
    let error = Session::start().unwrap_err();
    assert_eq!(error.kind(), SessionErrorKind::Refused);
    assert!(error.to_string().contains("GPUWHY_MODE"), "{error}");
}

#[test]
#[ignore = "run by its outer half"]
fn unwatched() {
    let session = Session::start().unwrap();
    play_out();
    assert!(session.finish().unwrap().completeness.kernels > 1000);
}

#[test]
#[ignore = "run by its outer half"]
fn another_clock() {
    let session = Session::start().unwrap();
    play_until(3300);
    assert!(session.finish().unwrap().completeness.kernels > 100);
    replace_clock();
    for _ in 0..2 {
        let error = Session::start().unwrap_err();
        assert_eq!(error.kind(), SessionErrorKind::Refused);
        assert!(error.to_string().contains("left its own clock in CUPTI"), "{error}");
    }
    play_out();
}

fn open() -> Session {
    let session = Session::builder().trace("open.gpuwhy").start().unwrap();
    play_out();
    session
}

#[test]
#[ignore = "run by its outer half"]
fn dropped() {
    drop(open());
}

#[test]
#[ignore = "run by its outer half"]
fn left_open() {
    std::mem::forget(open());
}

#[test]
#[ignore = "run by its outer half"]
fn killed() {
    let session = open();
    session.flush().unwrap();
    std::process::abort();
}
