//! What is advised first where something else looks like it, and which gain is said.

use crate::remedies::{ADD, HALF_PRODUCT, MUL};
use crate::remedy_records::Do::{In, Kernel};
use crate::remedy_records::{Frame, SINGLE, TRAIN, many, run, trace_until, updates};

#[test]
fn an_optimizer_that_updates_one_tensor_after_another_is_no_loop_to_batch() {
    const SGD: Frame = ("/usr/lib/python3.12/site-packages/torch/optim/sgd.py", "_single_tensor_sgd", 320);
    const OWN: Frame = ("/home/u/layers.py", "Layer.forward", 20);
    let each = |frame: Frame| {
        let updates = many(60, &[Kernel(MUL, 2, 8), Kernel(ADD, 2, 8)]);
        let step = [&[Kernel(HALF_PRODUCT, 5, 4_096), In(frame)][..], &updates, &[In(TRAIN)]].concat();
        run(&step)
    };
    for bottleneck in [updates(SINGLE), each(SGD)] {
        let ids: Vec<_> = bottleneck.remedies.iter().map(|remedy| remedy.id).collect();
        assert_eq!(ids.first(), Some(&"fused_optimizer"), "{ids:?}");
        assert!(!ids.contains(&"batch_loop") && bottleneck.remedies[0].text.contains("fused=True"), "{ids:?}");
    }
    // The same launches in a file of the program.
    assert_eq!(each(OWN).remedies[0].id, "batch_loop", "{:?}", each(OWN).remedies);
}

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
