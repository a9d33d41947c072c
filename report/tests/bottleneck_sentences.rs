//! Conclusions from given numbers: limits from both sides, and the sentence that follows from each number.
//!
//! The devices are set field by field. From the attributor, only the number of operations counts here, and
//! that it found no steps.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::{Bottleneck, DeviceReport, GapRow, GapSubject, KernelRow, RecoverableBy, bottleneck_of};
use gpuwhy_trace::completeness::Completeness;
use gpuwhy_trace::record::{Loss, PcieLink};
use profiler_core::attribution::{Attributor, GapTotals};
use profiler_core::leaf::{Cause, LEAF_COUNT, Leaf, Leaves};
use profiler_core::whatif::{BestCase, Busy, ScenarioKind, SimulationProblem, WhatIf};

const MS: u64 = 1_000_000;

/// A program of `operations` kernels without repetition: no steps.
fn program(operations: u64) -> Scenario {
    let mut scenario = Scenario::new();
    for index in 0..operations {
        let name = format!("kernel_{index}");
        gpu(0).kernel(&name).at(1_000 * index + 10).lasting(500 + index * 7).launched(
            &mut scenario,
            1,
            1_000 * index,
            5,
        );
    }
    scenario
}

pub(super) fn attributor() -> Attributor {
    program(20).run()
}

fn leaves(rows: &[(Leaf, u64)]) -> Leaves {
    let mut leaves = [0; LEAF_COUNT];
    rows.iter().for_each(|&(leaf, millis)| leaves[leaf as usize] = millis * MS);
    leaves
}

/// A device with the steady time `rows`, milliseconds, and no other data.
pub(super) fn device(rows: &[(Leaf, u64)]) -> DeviceReport {
    let mut device = program(20).report().devices.remove(0);
    device.leaves = leaves(rows);
    device.steady_leaves = device.leaves;
    device.window_ns = device.leaves.iter().sum();
    (device.steps, device.sequence, device.what_if) = (None, None, None);
    device.kernels.clear();
    device.gaps.clear();
    device
}

/// Half of 100 ms is computation, and `rows` are the rest.
pub(super) fn half_computing(rows: &[(Leaf, u64)]) -> DeviceReport {
    device(&[&[(Leaf::Compute, 50)][..], rows].concat())
}

fn what_if(steps: u64, best_cases: &[(ScenarioKind, f64)]) -> WhatIf {
    let best_case = |&(kind, saved): &(ScenarioKind, f64)| BestCase {
        kind,
        step_ns: (1e6 * (1.0 - saved)) as u64,
        speedup: 1.0 / (1.0 - saved),
        interval: None,
    };
    WhatIf {
        steps,
        represented_steps: steps,
        covers_ns: 100 * MS,
        base_error: Some(0.0),
        refused: None,
        untraced: None,
        priced: 1.0,
        best_cases: best_cases.iter().map(best_case).collect(),
        combined: Vec::new(),
        busy: Busy::default(),
    }
}

/// The device with a simulation of 10 steps that saves this much.
pub(super) fn saving(mut device: DeviceReport, kind: ScenarioKind, saved: f64) -> DeviceReport {
    device.what_if = Some(what_if(10, &[(kind, saved)]));
    device
}

pub(super) fn counted() -> Completeness {
    Completeness { kernels: 20, api_calls: 20, ..Completeness::default() }
}

pub(super) fn judge(devices: &[DeviceReport]) -> Bottleneck {
    bottleneck_of(&attributor(), devices, None, &counted())
}

/// The sentence of a conclusion that contains `words`.
#[track_caller]
fn sentence(bottleneck: &Bottleneck, words: &str) -> String {
    let found = bottleneck.evidence.iter().chain(&bottleneck.details).find(|sentence| sentence.contains(words));
    found.unwrap_or_else(|| panic!("{words}: {:?}", bottleneck.evidence)).clone()
}

pub(super) fn says(bottleneck: &Bottleneck, words: &str) -> bool {
    bottleneck.evidence.iter().chain(&bottleneck.details).any(|sentence| sentence.contains(words))
}

#[test]
fn the_first_sentence_names_the_four_largest_leaves_of_the_group() {
    let bottleneck = judge(&[device(&[
        (Leaf::Compute, 400),
        (Leaf::CopyD2d, 50),
        (Leaf::CopyH2dPinned, 300),
        (Leaf::CopyD2hPinned, 100),
        (Leaf::CopyP2p, 49),
        (Leaf::Memset, 101),
    ])]);
    assert_eq!(bottleneck.cause, Cause::Copy);
    assert_eq!(
        bottleneck.evidence[0],
        "The GPU only copies memory 60 % of the time after start-up (600.0 ms of 1.00 s)."
    );
    assert_eq!(
        bottleneck.details.last().map(String::as_str),
        Some(
            "Of the 1.00 s after start-up: copying host to device, pinned memory (copy_h2d_pinned) 30.0 %, setting memory \
             (memset) 10.1 %, copying device to host, pinned memory (copy_d2h_pinned) 10.0 %, copying within the GPU \
             (copy_d2d) 5.0 %."
        )
    );
    let busy = judge(&[device(&[(Leaf::Compute, 900), (Leaf::HostCpu, 100)])]);
    assert_eq!((busy.cause, busy.share), (Cause::GpuCompute, 0.9));
    assert_eq!(busy.evidence[0], "The GPU computes 90 % of the time after start-up (900.0 ms of 1.00 s).");
}

#[test]
fn a_group_is_the_bottleneck_from_15_percent_on_or_when_it_has_more_than_computation() {
    let of = |compute, host, sync| {
        judge(&[device(&[(Leaf::Compute, compute), (Leaf::HostCpu, host), (Leaf::SyncDrain, sync)])]).cause
    };
    assert_eq!(of(850, 150, 0), Cause::HostCpu);
    assert_eq!(of(851, 149, 0), Cause::GpuCompute);
    assert_eq!(of(600, 150, 250), Cause::Sync, "the larger one");
    // No remedy is known to help, but the device is mostly busy with it.
    let replayed = |compute, sync| {
        let rows = [(Leaf::Compute, compute), (Leaf::SyncDrain, sync)];
        judge(&[saving(device(&rows), ScenarioKind::NoSyncs, 0.05)]).cause
    };
    assert_eq!(replayed(500, 500), Cause::GpuCompute);
    assert_eq!(replayed(499, 501), Cause::Sync);
}

#[test]
fn devices_count_by_their_steady_time() {
    let busy = device(&[(Leaf::Compute, 300)]);
    let late = device(&[(Leaf::Compute, 20), (Leaf::HostCpu, 80)]);
    let bottleneck = judge(&[busy.clone(), late.clone()]);
    assert_eq!((bottleneck.cause, bottleneck.share), (Cause::HostCpu, 0.2));
    assert_eq!(bottleneck.ranking[0].recoverable, 0.2);
    assert_eq!(judge(&[busy.clone(), busy, late]).cause, Cause::GpuCompute);
}

#[test]
fn what_the_replay_gains_is_compared_with_the_share() {
    let with = |saved| judge(&[saving(half_computing(&[(Leaf::SyncDrain, 50)]), ScenarioKind::NoSyncs, saved)]);
    let same = sentence(&with(0.51), "if the CPU never waited");
    assert_eq!(
        same,
        "About 2.0x faster if the CPU never waited for the GPU: 51 % less time in a simulation of 10 steps."
    );
    assert!(!says(&with(0.49), "of this cause"));
    assert!(
        sentence(&with(0.53), "if the CPU never waited").contains("; more than the 50 % of this cause, because a CPU")
    );
    assert!(
        sentence(&with(0.47), "if the CPU never waited")
            .contains("; less than the 50 % of this cause, because something else")
    );
    // The remaining time depends on the removed part.
    let launch = half_computing(&[(Leaf::LaunchApi, 50)]);
    let launch = judge(&[saving(launch, ScenarioKind::LaunchesFree, 0.4)]);
    assert!(
        sentence(&launch, "less than the 50 % of this cause").contains("the GPU takes a moment between operations")
    );
    let copy = half_computing(&[(Leaf::CopyH2dPinned, 50)]);
    let copy = judge(&[saving(copy, ScenarioKind::CopiesOverlapped, 0.4)]);
    assert!(sentence(&copy, "less than the 50 % of this cause").contains("the bytes must still be moved"));
}

#[test]
fn hardly_anything_left_is_said_to_be_no_more_than_a_bound() {
    let device = device(&[(Leaf::Compute, 5), (Leaf::SyncDrain, 95)]);
    let with = |saved| judge(&[saving(device.clone(), ScenarioKind::NoSyncs, saved)]);
    assert!(says(&with(0.91), "; may be more, because what remains would run faster"));
    assert!(!says(&with(0.89), "may be more"));
}

#[test]
fn a_replay_of_a_part_says_what_it_stands_for() {
    let mut device = saving(half_computing(&[(Leaf::SyncDrain, 50)]), ScenarioKind::NoSyncs, 0.5);
    assert!(says(&judge(&[device.clone()]), "in a simulation of 10 steps"));
    device.what_if.as_mut().unwrap().represented_steps = 400;
    assert!(says(&judge(&[device]), "in a simulation of 10 of 400 steps"));
}

#[test]
fn a_refused_replay_leaves_the_totals_and_its_reason() {
    let refused = |rows: &[(Leaf, u64)], kind| {
        let mut device = saving(half_computing(rows), kind, 0.5);
        device.what_if.as_mut().unwrap().refused = Some(SimulationProblem::FewSteps(2));
        judge(&[device])
    };
    let sync = refused(&[(Leaf::SyncDrain, 50)], ScenarioKind::NoSyncs);
    assert!(
        sentence(&sync, "not simulated: only 2 steps were simulated as a whole")
            .contains("its time subtracted (a rough bound")
    );
    let copy = refused(&[(Leaf::CopyH2dPinned, 50)], ScenarioKind::CopiesOverlapped);
    assert!(sentence(&copy, "not simulated: only 2").contains("down to what a known link needs for the bytes"));
}

#[test]
fn what_pageable_copies_gain_is_not_known_without_the_link() {
    let copies = |leaf, link: Option<PcieLink>| {
        let mut device = saving(half_computing(&[(leaf, 50)]), ScenarioKind::CopiesOverlapped, 0.5);
        device.pcie = link;
        judge(&[device])
    };
    let unknown = "by how much is unknown without a description of the link";
    assert!(says(&copies(Leaf::CopyH2dPageable, None), unknown));
    assert!(says(&copies(Leaf::CopyD2hPageable, None), unknown));
    assert!(!says(&copies(Leaf::CopyH2dPinned, None), unknown));
    assert!(!says(&copies(Leaf::CopyH2dPageable, Some(PcieLink::default())), unknown));
    // Waits are not copies, regardless of the device's other work.
    let mut device = device(&[(Leaf::Compute, 500), (Leaf::CopyH2dPageable, 10), (Leaf::SyncDrain, 490)]);
    device = saving(device, ScenarioKind::NoSyncs, 0.5);
    assert!(says(&judge(&[device]), "About 2.0x faster if the CPU never waited"));
}

#[test]
fn of_several_devices_the_smallest_best_case_counts() {
    let device = half_computing(&[(Leaf::SyncDrain, 50)]);
    let [a, b] = [0.4, 0.5].map(|saved| saving(device.clone(), ScenarioKind::NoSyncs, saved));
    assert!(says(&judge(&[a.clone(), b.clone()]), "About 1.67x"));
    assert!(says(&judge(&[b.clone(), a]), "About 1.67x"));
    // An infinite gain is not shown as a number.
    let mut nothing_left = b;
    nothing_left.what_if.as_mut().unwrap().best_cases[0].speedup = f64::INFINITY;
    assert!(!says(&judge(&[nothing_left]), "if the CPU never waited"));
}

#[test]
fn small_grids_are_worth_words_from_15_percent_on() {
    let with = |saved| judge(&[saving(device(&[(Leaf::Compute, 100)]), ScenarioKind::GridsFilled, saved)]);
    let worth = with(0.16);
    assert!(
        sentence(&worth, "Many kernels are too small")
            .contains("about 1.19x faster if equal small kernels in a row were one")
    );
    assert!(worth.recommendation.starts_with("Join equal small kernels"), "{}", worth.recommendation);
    let little = with(0.14);
    assert!(!says(&little, "equal small kernels") && !little.recommendation.starts_with("Join equal"));
    let mut refused = saving(device(&[(Leaf::Compute, 100)]), ScenarioKind::GridsFilled, 0.5);
    refused.what_if.as_mut().unwrap().refused = Some(SimulationProblem::FewSteps(1));
    assert!(!says(&judge(&[refused]), "equal small kernels"));
}

#[test]
fn computation_says_which_large_group_could_not_be_had_back() {
    let of = |sync, host| {
        let mut device = device(&[(Leaf::Compute, 600), (Leaf::SyncDrain, sync), (Leaf::HostCpu, host)]);
        device.steady_leaves[Leaf::Compute as usize] += (400 - sync - host) * MS;
        device.what_if = Some(what_if(10, &[(ScenarioKind::NoSyncs, 0.04), (ScenarioKind::NoHostWork, 0.03)]));
        judge(&[device])
    };
    assert!(says(&of(200, 160), "Synchronization takes 20 % of the time, but without it only 4 % would be saved"));
    assert!(says(
        &of(160, 200),
        "CPU work between launches takes 20 % of the time, but without it only 3 % would be saved"
    ));
    assert!(says(&of(150, 0), "Synchronization takes 15 %"));
    assert!(!says(&of(149, 0), "would be saved"), "that is little anyway");
}

#[test]
fn the_replay_is_asked_only_where_it_stands_for_the_same_steps() {
    // Without steady steps, the simulation needs at least 5 of them and the 3 before.
    let by = |steps| {
        let mut device = half_computing(&[(Leaf::SyncDrain, 50)]);
        device.what_if = Some(what_if(steps, &[(ScenarioKind::NoSyncs, 0.3)]));
        let row = judge(&[device]).ranking[0];
        (row.by, (row.recoverable * 100.0).round())
    };
    assert_eq!(by(8), (RecoverableBy::Simulation, 30.0));
    assert_eq!(by(7), (RecoverableBy::Additive, 50.0));
}

#[test]
fn launches_gain_what_the_replay_says_and_the_time_between_operations() {
    let rows = [(Leaf::LaunchApi, 30), (Leaf::InterKernel, 20)];
    let row = judge(&[saving(half_computing(&rows), ScenarioKind::LaunchesFree, 0.25)]).ranking[0];
    assert_eq!((row.cause, (row.recoverable * 1e3).round()), (Cause::Launch, 450.0), "25 % and 20 %");
    let row = judge(&[saving(half_computing(&rows), ScenarioKind::LaunchesFree, 0.45)]).ranking[0];
    assert_eq!(row.recoverable, row.share, "never more than it has");
    // Copies can be made faster and fewer, which no scenario does: the accounting decides.
    let copies = half_computing(&[(Leaf::CopyH2dPinned, 50)]);
    let row = judge(&[saving(copies, ScenarioKind::CopiesOverlapped, 0.1)]).ranking[0];
    assert_eq!((row.by, row.recoverable), (RecoverableBy::Additive, 0.5));
    assert_eq!(
        [RecoverableBy::Simulation, RecoverableBy::Additive].map(RecoverableBy::name),
        ["simulation", "additive"]
    );
}

#[test]
fn tracing_is_mentioned_from_5_percent_on() {
    let of = |profiler| {
        judge(&[device(&[(Leaf::Compute, 600), (Leaf::SyncDrain, 400 - profiler), (Leaf::Profiler, profiler)])])
    };
    assert!(says(&of(50), "Tracing itself kept the launching threads busy 5 % of the time."));
    assert!(!says(&of(49), "Tracing itself"));
}

#[test]
fn too_little_or_too_much_missing_is_no_ground() {
    let reason = |operations, window, completeness: &Completeness, unknown: u64| {
        let mut device = device(&[(Leaf::Compute, 1_000 - unknown), (Leaf::GraphWait, unknown)]);
        device.window_ns = window;
        // Few long kernels would be enough.
        device.leaves.fill(0);
        let bottleneck = bottleneck_of(&program(operations).run(), &[device], None, completeness);
        (bottleneck.cause == Cause::CannotTell).then(|| bottleneck.evidence[0].clone())
    };
    let whole = counted();
    assert_eq!(reason(20, 10 * MS, &whole, 0), None);
    let few = reason(19, 10 * MS, &whole, 0);
    assert_eq!(few.as_deref(), Some("Too little data: 19 GPU operations in 10.0 ms."));
    assert!(reason(20, 10 * MS - 1, &whole, 0).is_some());
    // One in five of 1,000 ms.
    assert_eq!(reason(20, 10 * MS, &whole, 200), None);
    let unknown = reason(20, 10 * MS, &whole, 201);
    assert_eq!(
        unknown.as_deref(),
        Some("The cause of 20.1 % of the time is not in the records: waiting inside a CUDA graph 201.0 ms.")
    );
    // One record in twenty, over all kinds.
    let lossy = |cupti, own| Completeness {
        kernels: 30,
        copies: 20,
        memsets: 20,
        api_calls: 25,
        loss: Loss { dropped_by_cupti: cupti, dropped_by_gpuwhy: own, ..Loss::default() },
        ..Completeness::default()
    };
    assert_eq!(reason(20, 10 * MS, &lossy(3, 2), 0), None);
    let lost = reason(20, 10 * MS, &lossy(3, 3), 0).expect("6 of 101");
    assert!(lost.starts_with("6 records (5.9 %) were lost"), "{lost}");
}

#[test]
fn without_operations_nothing_ran_or_nothing_is_left() {
    let judged = |completeness: &Completeness| bottleneck_of(&Attributor::new(), &[], None, completeness);
    let idle = judged(&Completeness { api_calls: 7, ..Completeness::default() });
    assert_eq!((idle.cause, idle.share), (Cause::NoWork, 1.0));
    assert_eq!(idle.evidence, ["No kernel, copy or memset was recorded, only 7 CUDA calls."]);
    let damaged = judged(&Completeness { kernels: 7, bad_timestamps: 7, ..Completeness::default() });
    assert_eq!((damaged.cause, damaged.share), (Cause::CannotTell, 0.0));
    let loss = Loss { dropped_by_cupti: 7, ..Loss::default() };
    let lost = judged(&Completeness { loss, ..Completeness::default() });
    assert!(lost.evidence[0].starts_with("7 records (100.0 %) were lost"), "{:?}", lost.evidence);
    let own = Loss { dropped_by_gpuwhy: 7, ..Loss::default() };
    assert_eq!(judged(&Completeness { loss: own, ..Completeness::default() }).evidence, lost.evidence);
}

/// A kernel row with the durations of the only kernel of a program.
fn kernel(name: &str, micros: u64, count: u64) -> KernelRow {
    let mut scenario = Scenario::new();
    for index in 0..count {
        let at = 1_000_000 * index;
        gpu(0).kernel(name).at(at + 10).lasting(micros).launched(&mut scenario, 1, at, 5);
    }
    scenario.report().devices.remove(0).kernels.remove(0)
}

#[test]
fn kernels_of_the_group_are_named_the_longest_first() {
    let mut device = device(&[(Leaf::Compute, 600), (Leaf::Communication, 400)]);
    let rows =
        [("add", 10, 2), ("ncclDevKernel_AllReduce", 900, 1), ("gemm", 30, 2), ("copy_if", 5, 1), ("softmax", 40, 1)];
    device.kernels = rows.iter().map(|&(name, micros, count)| kernel(name, micros, count)).collect();
    let named = |bottleneck: &Bottleneck| -> Vec<String> {
        let sentences = bottleneck.evidence.iter().filter(|sentence| sentence.starts_with("Kernel "));
        sentences.map(|sentence| sentence.split(' ').nth(1).unwrap().to_owned()).collect()
    };
    let communication = judge(&[device.clone()]);
    assert_eq!(communication.cause, Cause::Communication);
    assert_eq!(named(&communication), ["ncclDevKernel_AllReduce"]);
    assert!(says(&communication, "ran 1 time: 900.0 us."));
    device.steady_leaves = leaves(&[(Leaf::Compute, 1_000)]);
    let bottleneck = judge(&[device]);
    assert_eq!(named(&bottleneck)[..2], ["gemm", "softmax"], "{:?}", bottleneck.evidence);
    assert!(says(&bottleneck, "Kernel gemm ran 2 times: 60.0 us, median 30.0 us."));
    assert_eq!(named(&bottleneck)[2..], ["add"], "at most three");
}

#[test]
fn the_three_largest_causes_of_the_group_are_named() {
    let mut device = half_computing(&[(Leaf::Allocator, 50)]);
    let gap = |leaf, function: &str, millis: u64| GapRow {
        leaf,
        subject: GapSubject::Call(function.to_owned()),
        totals: GapTotals { count: 2, total_ns: millis * MS, longest_ns: millis * MS - 1 },
    };
    device.gaps = vec![
        gap(Leaf::Allocator, "cudaMalloc", 5),
        gap(Leaf::SyncDrain, "cudaDeviceSynchronize", 90),
        gap(Leaf::Allocator, "cudaFree", 9),
        gap(Leaf::Allocator, "cudaHostAlloc", 3),
        gap(Leaf::Allocator, "cudaMallocAsync", 20),
    ];
    let bottleneck = judge(&[device]);
    let place = |name: &str| bottleneck.evidence.iter().position(|sentence| sentence.contains(name));
    assert!(place("cudaMallocAsync").unwrap() < place("cudaFree").unwrap(), "{:?}", bottleneck.evidence);
    assert!(
        place("cudaFree").unwrap() < place("cudaMalloc ").or(place("cudaMalloc:")).or(place("cudaMalloc")).unwrap() + 2
    );
    assert_eq!((place("cudaHostAlloc"), place("cudaDeviceSynchronize")), (None, None));
}

#[test]
fn a_launch_bound_program_is_reported_what_a_launch_costs() {
    let mut device = half_computing(&[(Leaf::LaunchApi, 40), (Leaf::Dispatch, 10)]);
    device.kernels = vec![kernel("a", 10, 3), kernel("b", 20, 1)];
    let bottleneck = judge(&[device.clone(), device]);
    assert!(
        says(&bottleneck, "A kernel runs for 12.5 us on average, and the GPU waits 5.0 ms for each launch."),
        "{:?}",
        bottleneck.evidence
    );
    assert!(says(&bottleneck, "The launches do not repeat"));
    // Each of the twenty kernels was launched after the previous one had ended.
    assert!(says(&bottleneck, "100 % of the launches found the GPU idle."), "{:?}", bottleneck.evidence);
}

#[test]
fn the_replay_is_asked_only_where_its_steps_are_as_long() {
    // Steady steps of 10 ms. The simulated ones may be up to 1.5 times as long, or as short.
    let scenario = {
        let mut scenario = Scenario::new();
        for step in 0..100 {
            let at = 1_000 + step * 10_000;
            gpu(0).kernel("k").at(at + 10).lasting(4_000).launched(&mut scenario, 1, at, 5);
            scenario.pushed(1, at, at + 10_000, "step");
        }
        scenario
    };
    let attributor = scenario.run();
    let report = scenario.report_of(&attributor);
    let by = |micros: u64| {
        let mut device = report.devices[0].clone();
        let mut replay = what_if(100, &[(ScenarioKind::NoHostWork, 0.5)]);
        (replay.best_cases[0].step_ns, replay.best_cases[0].speedup) = (micros * 500, 2.0);
        device.what_if = Some(replay);
        let bottleneck = bottleneck_of(&attributor, &[device], None, &report.completeness);
        bottleneck.ranking.iter().find(|row| row.cause == Cause::HostCpu).expect("it is late").by
    };
    assert_eq!(
        [6_666, 6_667, 15_000, 15_001].map(by),
        [RecoverableBy::Additive, RecoverableBy::Simulation, RecoverableBy::Simulation, RecoverableBy::Additive]
    );
}

#[test]
fn a_change_without_a_gain_has_the_best_case_that_it_could_reach() {
    let gain = |device: DeviceReport| {
        let mut report = program(20).report();
        report.bottleneck = judge(std::slice::from_ref(&device));
        report.devices = vec![device];
        report.bottleneck.remedies.iter_mut().for_each(|remedy| remedy.speedup = None);
        report.gain()
    };
    let gain = |device: DeviceReport| gain(device).unwrap_or_default();
    let sync = half_computing(&[(Leaf::SyncDrain, 50)]);
    assert!(
        gain(saving(sync.clone(), ScenarioKind::NoSyncs, 0.5))
            .starts_with("Best case, with the same operations: about 2.0x if the CPU never waited")
    );
    assert_eq!(gain(sync), "", "nothing is known");
    let grids = saving(device(&[(Leaf::Compute, 100)]), ScenarioKind::GridsFilled, 0.5);
    assert!(gain(grids).ends_with("about 2.0x if equal small kernels in a row were one."));
    // The gain for copies from pageable memory is unknown without the link.
    let mut copies = saving(half_computing(&[(Leaf::CopyH2dPageable, 50)]), ScenarioKind::CopiesOverlapped, 0.5);
    assert!(gain(copies.clone()).starts_with("Gain unknown: pinned memory is faster, but nothing describes the link."));
    copies.pcie = Some(PcieLink::default());
    assert!(gain(copies).contains("about 2.0x if copies used pinned memory"));
}
