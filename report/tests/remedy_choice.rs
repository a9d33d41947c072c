//! What is advised first where something else looks like it, and which gain is said.

use crate::remedy_records::trace_until;

#[test]
fn a_checkpoint_has_the_gain_of_its_copies_with_and_without_a_simulation() {
    // 15.4x by hand without any checkpoint. Half of the run has too few steps to simulate.
    for (nanos, is_simulated) in [(u64::MAX, true), (5_000_000_000, false)] {
        let bottleneck = trace_until("checkpoint", nanos);
        assert_eq!(!bottleneck.plan.is_empty(), is_simulated, "{:?}", bottleneck.plan);
        let remedy = &bottleneck.remedies[0];
        let (low, high) = remedy.interval.unwrap();
        assert!(remedy.id == "save_less" && (low..=high).contains(&15.4), "{remedy:?}");
        assert!(remedy.text.contains(" With one of ten left: about "), "{}", remedy.text);
    }
}
