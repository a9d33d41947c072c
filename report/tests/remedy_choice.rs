//! What is advised first where something else looks like it, and which gain is said.

use crate::remedies::{ADD, HALF_PRODUCT, MUL};
use crate::remedy_records::Do::{Away, Fetch, In, Kernel};
use crate::remedy_records::{Frame, SINGLE, TRAIN, many, run, trace_until, updates};
use gpuwhy_trace::record::MemoryKind;

#[test]
fn an_optimizer_that_updates_one_tensor_after_another_is_no_loop_to_batch() {
    const SGD: Frame = ("/usr/lib/python3.12/site-packages/torch/optim/sgd.py", "_single_tensor_sgd", 320);
    const OWN: Frame = ("/home/u/layers.py", "Layer.forward", 20);
    const QUANTO: Frame = ("/usr/lib/python3.12/site-packages/optimum/quanto/tensor/function.py", "forward", 30);
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
    // The same launches in a file of the program, and in a library whose name begins like an optimizer's folder.
    for frame in [OWN, QUANTO] {
        let bottleneck = each(frame);
        assert_eq!(bottleneck.remedies[0].id, "batch_loop", "{frame:?}: {:?}", bottleneck.remedies);
    }
}

#[test]
fn a_share_of_launches_is_of_all_lines_that_launch() {
    // 5 of 85 launches in frames of the optimizer, 5 of 17 of the four lines with most.
    let layer = |line| [&[In(("/home/u/model.py", "Model.forward", line))][..], &[Kernel(MUL, 2, 8); 4]].concat();
    let of_optimizer = |count| [&[In(SINGLE)][..], &many(count, &[Kernel(ADD, 2, 8)])].concat();
    let advises = |count| {
        let step: Vec<_> = (1..=20).flat_map(layer).chain(of_optimizer(count)).collect();
        run(&step).remedies.iter().any(|remedy| remedy.id == "fused_optimizer")
    };
    assert!(!advises(5) && advises(40));
}

#[test]
fn copies_and_waits_at_other_lines_are_not_in_the_gain_of_a_checkpoint() {
    const LOG: Frame = ("/home/u/metrics.py", "log", 9);
    const SAVE: Frame = ("/usr/lib/python3.12/site-packages/torch/serialization.py", "_save", 900);
    let fetch = Fetch(MemoryKind::Pageable, 1 << 20, 150);
    let with = |save: &[_]| {
        let trained = many(4, &[Kernel(MUL, 100, 500)]);
        [&trained[..], &[In(LOG)], &many(4, &[fetch, Kernel(MUL, 60, 500)]), save, &[In(TRAIN)]].concat()
    };
    let bottleneck = run(&with(&[In(SAVE), Away(1_500), fetch]));
    let remedy = bottleneck.remedies.iter().find(|remedy| remedy.id == "save_less").unwrap();
    // 400, 4 times 246 and 1,650 us of a step.
    let (low, high) = remedy.interval.unwrap();
    assert!((low..=high).contains(&2.2), "{remedy:?}");
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
