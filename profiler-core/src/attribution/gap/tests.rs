//! What a program cannot show in few records.

use super::InputHoles;

#[test]
fn the_part_of_holes_that_is_loading_follows_the_newest_ones() {
    let mut holes = InputHoles::default();
    let mut see = |count, loader| {
        (0..count).for_each(|_| holes.seen(loader));
        holes.part_of(1_280_000)
    };
    assert_eq!(see(2, true), None, "two prove nothing");
    assert_eq!(see(1, true), Some(1_280_000));
    assert_eq!(see(97, true), Some(1_280_000));
    // 100 of 127.
    assert_eq!(see(27, false), Some(1_280_000 * 100 / 127));
    // One more makes twice as many as count: half of them are forgotten, and the part stays.
    assert_eq!(see(1, false), Some(1_000_000));
    // 50 of 127, then 25 of 64.
    assert_eq!(see(63, false), Some(1_280_000 * 50 / 127));
    assert_eq!(see(1, false), Some(500_000));
    assert_eq!(see(63, true), Some(1_280_000 * (25 + 63) / 127));
}
