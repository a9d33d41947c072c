//! Gains that are not promised, and causes that are large but not the bottleneck.

use crate::bottleneck_sentences::{attributor, counted, device, half_computing, judge, saving, says};
use gpuwhy_report::run::{Bottleneck, bottleneck_of};
use gpuwhy_trace::completeness::Completeness;
use gpuwhy_trace::record::Loss;
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::whatif::ScenarioKind;

#[test]
fn a_larger_cause_that_recovers_less_is_said_to() {
    let rows = [(Leaf::Compute, 28), (Leaf::CopyD2hPinned, 31), (Leaf::SyncDrain, 41)];
    let bottleneck = judge(&[saving(device(&rows), ScenarioKind::NoSyncs, 0.003)]);
    assert_eq!(bottleneck.cause, Cause::Copy);
    let why = "Synchronization takes more (41 %), but without it alone less than 1 % would be saved (simulated).";
    assert!(says(&bottleneck, why), "{:?}", bottleneck.evidence);
    // Without a simulation the larger one is the bottleneck.
    let bottleneck = judge(&[device(&rows)]);
    assert_eq!(bottleneck.cause, Cause::Sync);
    assert!(!says(&bottleneck, "takes more"), "{:?}", bottleneck.evidence);
}

#[test]
fn steps_stretched_by_measuring_kernels_promise_nothing() {
    let late = saving(device(&[(Leaf::Compute, 92), (Leaf::HostCpu, 8)]), ScenarioKind::NoHostWork, 0.26);
    let of = |own_kernels: u64| {
        let completeness = Completeness { loss: Loss { own_kernels, ..Loss::default() }, ..counted() };
        bottleneck_of(&attributor(), std::slice::from_ref(&late), None, &completeness)
    };
    let (plain, measured) = (of(0), of(127));
    assert_eq!((plain.cause, measured.cause), (Cause::GpuCompute, Cause::GpuCompute));
    let says = |of: &Bottleneck, words: &str| of.evidence.iter().any(|line| line.contains(words));
    assert!(says(&plain, "would be about 1.35x faster"), "{:?}", plain.evidence);
    assert!(says(&measured, "are not predicted"), "{:?}", measured.evidence);
    assert!(measured.plan.is_empty());
}

#[test]
fn copies_of_pinned_memory_are_not_to_be_pinned() {
    let overlapped = |leaf: Leaf| {
        let mut device = saving(half_computing(&[(leaf, 50)]), ScenarioKind::CopiesOverlapped, 0.3);
        device.what_if.as_mut().unwrap().best_cases[0].interval = Some((1.2, 1.6));
        judge(&[device]).plan.first().map(|step| step.action.clone())
    };
    assert_eq!(overlapped(Leaf::CopyH2dPinned).as_deref(), Some("overlap the copies with the kernels"));
    let pageable = overlapped(Leaf::CopyH2dPageable);
    assert_eq!(pageable.as_deref(), Some("copy from pinned memory, overlapped with the kernels"));
    let results = overlapped(Leaf::CopyD2hPageable);
    assert_eq!(results.as_deref(), Some("copy to pinned memory, overlapped with the kernels"));
}

#[test]
fn a_gain_of_all_copies_is_not_said_of_one_direction() {
    let gain = |to_host: u64| {
        let rows = [(Leaf::Compute, 20), (Leaf::CopyH2dPinned, 80 - to_host), (Leaf::CopyD2hPinned, to_host)];
        let mut device = saving(device(&rows), ScenarioKind::CopiesOverlapped, 0.3);
        device.what_if.as_mut().unwrap().best_cases[0].interval = Some((1.2, 1.6));
        let remedies = judge(&[device]).remedies;
        ["overlap_copies", "overlap_results"]
            .map(|id| remedies.iter().find(|remedy| remedy.id == id).map(|remedy| remedy.speedup.is_some()))
    };
    assert_eq!(gain(10), [Some(true), None]);
    assert_eq!(gain(30), [Some(false), Some(false)]);
    assert_eq!(gain(70), [None, Some(true)]);
}
