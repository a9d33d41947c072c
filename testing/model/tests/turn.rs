//! A capture begins while tracing is switched off for the last one, and two begin at once.

use gpuwhy_model::turn::{Turn, Turned};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;

/// A CUPTI with two kinds. `Relaxed`, so that only the turn orders them.
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

fn off(turn: &Turn, kinds: &Kinds) -> bool {
    let steps = kinds.0.iter().map(|kind| move || kind.store(false, Ordering::Relaxed));
    turn.off(steps, || kinds.enable()) == Ok(true)
}

#[test]
fn a_begin_finds_everything_on_whenever_it_meets_an_end() {
    loom::model(|| {
        let shared = Arc::new((Turn::new(), Kinds::new()));
        shared.0.on(|| shared.1.enable()).unwrap();
        let flusher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.0.leave().then(|| off(&shared.0, &shared.1)))
        };
        let (turn, kinds) = &*shared;
        if turn.is_on() {
            // Without the lock of the plan an end may come right behind this look, as it may behind any begin.
            flusher.join().unwrap();
            assert!(kinds.are(turn.is_on()));
            return;
        }
        let turned = turn.on(|| kinds.enable()).unwrap();
        assert!(turned != Turned::Later && turn.is_on() && kinds.are(true), "{turned:?}");
        flusher.join().unwrap();
        assert!(turn.is_on() && kinds.are(true), "the end that was called back does not go on");
    });
}

#[test]
fn of_two_begins_one_switches_and_both_find_it_on() {
    loom::model(|| {
        let shared = Arc::new((Turn::new(), Kinds::new(), AtomicU32::new(0)));
        let begin = |shared: &(Turn, Kinds, AtomicU32)| {
            let (turn, kinds, switched) = shared;
            let enable = || {
                switched.fetch_add(1, Ordering::Relaxed);
                kinds.enable()
            };
            assert!(turn.on(enable).unwrap() != Turned::Later && turn.is_on() && kinds.are(true));
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
        let turn = Arc::new(Turn::new());
        let other = {
            let turn = Arc::clone(&turn);
            thread::spawn(move || turn.on(|| Err::<(), ()>(())))
        };
        let first = turn.on(|| Err::<(), ()>(()));
        assert_eq!((first, other.join().unwrap()), (Err(()), Err(())));
        assert!(turn.is_off());
    });
}
