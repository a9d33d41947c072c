//! Handler and drain together. Both are global to the process, so there is only one test.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{RangeEvent, RangeEventKind, Timestamp};
use nvtx_sys::{Attributes, Domain, Handler, Message, Text};

use crate::collect::ranges::RangeDrain;
use crate::nvtx::{NOTHING_TO_POP, Ranges};
use crate::rings::writer::dropped;

const EVER: Timestamp = Timestamp::from_nanos(u64::MAX);

fn named(text: &str) -> Attributes<'_> {
    Attributes { message: Message::Text(Text::Narrow(text.as_bytes())), ..Attributes::default() }
}

fn count(events: &[RangeEvent], kind: RangeEventKind) -> u64 {
    events.iter().filter(|event| event.kind == kind).count() as u64
}

/// Fails unless every pop ends a push; returns the depth at the end.
fn depth(events: &[RangeEvent]) -> u64 {
    events.iter().fold(0u64, |depth, event| match event.kind {
        RangeEventKind::Push => depth + 1,
        RangeEventKind::Pop => depth.checked_sub(1).expect("a pop without its push"),
        _ => depth,
    })
}

#[test]
fn a_full_ring_drops_ranges_as_a_whole_and_counts_them() {
    const RANGES: u64 = 100_000;
    let (mut drain, mut names) = (RangeDrain::default(), Dictionary::new());
    assert_eq!(Ranges::push(Domain::DEFAULT, &named("outer")), 0);
    let kept = Ranges::start(Domain::DEFAULT, &named("kept"));
    for _ in 0..RANGES {
        assert_eq!(Ranges::push(Domain::DEFAULT, &named("inner, seq = 1")), 1);
        assert_eq!(Ranges::push(Domain::DEFAULT, &named("innermost")), 2);
        assert_eq!([Ranges::pop(Domain::DEFAULT), Ranges::pop(Domain::DEFAULT)], [2, 1]);
    }
    // There is no room for another start, and two ends wait for room.
    assert_eq!(Ranges::start(Domain::DEFAULT, &named("never seen")), 0);
    Ranges::end(0);
    Ranges::end(kept);
    assert_eq!(Ranges::pop(Domain::DEFAULT), 0);
    assert_eq!(Ranges::pop(Domain::DEFAULT), NOTHING_TO_POP);

    let mut events: Vec<_> = drain.events(EVER, &mut names).collect();
    Ranges::mark(Domain::DEFAULT, &named("room again"));
    events.extend(drain.events(EVER, &mut names));
    assert_eq!(drain.events(EVER, &mut names).count(), 0);

    let pushes = count(&events, RangeEventKind::Push);
    assert!((10_000..2 * RANGES).contains(&pushes), "{pushes}");
    assert_eq!((depth(&events), count(&events, RangeEventKind::Pop)), (0, pushes));
    assert_eq!([RangeEventKind::Start, RangeEventKind::End].map(|kind| count(&events, kind)), [1, 1]);
    assert_eq!(dropped(), 2 * (2 * RANGES + 1 - pushes) + 1, "both ends of each range, and the other start");
    assert!(events.is_sorted_by_key(|event| event.at));
    let texts = ["", "outer", "kept", "inner", "innermost", "room again"];
    assert_eq!(names.names().iter().map(|name| &**name).collect::<Vec<_>>(), texts);
}
