//! A capture begins while tracing is being switched off after the previous one, and two captures begin at
//! once.

use gpuwhy_model::toggle::{SwitchOutcome, TracingSwitch};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;

/// A CUPTI with two kinds. `Relaxed`, so that only the switch orders them.
struct Kinds([AtomicBool; 2]);

impl Kinds {
    fn new() -> Self {
        Self([AtomicBool::new(false), AtomicBool::new(false)])
    }

    fn enable(&self) -> Result<(), ()> {
        self.0.iter().for_each(|kind| kind.store(true, Ordering::Relaxed));
        Ok(())
    }

    fn are(&self, on: bool) -> bool {
        self.0.iter().all(|kind| kind.load(Ordering::Relaxed) == on)
    }
}

fn off(switch: &TracingSwitch, kinds: &Kinds) -> bool {
    let steps = kinds.0.iter().map(|kind| move || kind.store(false, Ordering::Relaxed));
    switch.off(steps, || kinds.enable()) == Ok(true)
}

#[test]
fn a_begin_finds_everything_on_whenever_it_meets_an_end() {
    loom::model(|| {
        let shared = Arc::new((TracingSwitch::new(), Kinds::new()));
        shared.0.on(|| shared.1.enable()).unwrap();
        let flusher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.0.leave().then(|| off(&shared.0, &shared.1)))
        };
        let (switch, kinds) = &*shared;
        if switch.is_on() {
            // Without the lock of the plan an end may come right after this check, as it may after any start.
            flusher.join().unwrap();
            assert!(kinds.are(switch.is_on()));
            return;
        }
        let outcome = switch.on(|| kinds.enable()).unwrap();
        assert!(outcome != SwitchOutcome::Later && switch.is_on() && kinds.are(true), "{outcome:?}");
        flusher.join().unwrap();
        assert!(switch.is_on() && kinds.are(true), "the end that was called back does not go on");
    });
}

#[test]
fn of_two_begins_one_switches_and_both_find_it_on() {
    loom::model(|| {
        let shared = Arc::new((TracingSwitch::new(), Kinds::new(), AtomicU32::new(0)));
        let begin = |shared: &(TracingSwitch, Kinds, AtomicU32)| {
            let (switch, kinds, switched) = shared;
            let enable = || {
                switched.fetch_add(1, Ordering::Relaxed);
                kinds.enable()
            };
            assert!(switch.on(enable).unwrap() != SwitchOutcome::Later && switch.is_on() && kinds.are(true));
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || begin(&shared))
        };
        begin(&shared);
        other.join().unwrap();
        assert_eq!(shared.2.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_begin_that_is_refused_leaves_it_off_for_the_next() {
    loom::model(|| {
        let switch = Arc::new(TracingSwitch::new());
        let other = {
            let switch = Arc::clone(&switch);
            thread::spawn(move || switch.on(|| Err::<(), ()>(())))
        };
        let first = switch.on(|| Err::<(), ()>(()));
        assert_eq!((first, other.join().unwrap()), (Err(()), Err(())));
        assert!(switch.is_off());
    });
}
