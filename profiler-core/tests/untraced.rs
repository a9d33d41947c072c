//! The program without tracing: programs whose untraced version can be run, and reports on constructed records.

use profiler_core::attribution::leaf::Group;
use profiler_core::cost::{Calibration, PriceSource, Prices};
use profiler_core::process_info::ProcessInfo;
use profiler_core::record::{CorrelationId, DeviceId, StreamId, ThreadId};
use profiler_core::report::Report;
use profiler_core::trace::{TraceReader, TraceWriter};
use profiler_core::whatif::ScenarioKind::{self, CopiesOverlapped, DeviceOnly, LaunchesFree, NoSyncs};
use profiler_core::whatif::{Call, CallClass, LaunchedBy, Operation, OperationClass, Simulation, WhatIf};

use crate::support::{Scenario, gpu};
use crate::whatif_program::{Act, DEVICE, MACHINE, Machine, Recording, STEPS};

const LAUNCH: u32 = 921;
const GAP: u16 = 216;

fn kernel(nanos: u64) -> Act {
    Act::Launch(7, nanos, OperationClass::Compute)
}

fn answer(replay: &Simulation) -> WhatIf {
    let answer = replay.what_if(DEVICE, STEPS, 0).expect("operations ran");
    assert_eq!(answer.refused, None);
    answer
}

/// The machine while it is traced: launches take longer, and so do gaps.
fn traced(machine: &Machine) -> Machine {
    Machine { launch: machine.launch + u64::from(LAUNCH), between: machine.between + u64::from(GAP), ..*machine }
}

/// What is told of a run of the traced machine, with what tracing added.
fn recorded(machine: &Machine, step: &[Act]) -> Recording {
    let mut recording = traced(machine).run(step, 120);
    recording.calls.iter_mut().for_each(|call| {
        call.tracing_ns = if call.class == CallClass::Launch { LAUNCH } else { 0 };
    });
    recording.operations.iter_mut().for_each(|operation| operation.tracing_ns = GAP);
    recording
}

/// The step without tracing, predicted from a traced run, and as the bare machine takes it. `queued`: kernels wait for
/// each other.
fn predicted_and_real(machine: &Machine, step: &[Act], queued: bool) -> (f64, f64) {
    let traced = recorded(machine, step);
    let answer = answer(&traced.replay());
    assert!(answer.base_error.unwrap() < 1e-3, "{answer:?}");
    let bare = machine.run(step, 120);
    // Gains are those that the same run gives where nothing was traced. Where no kernel was ever queued, the gap of the
    // device is assumed to be that of a traced H200, and a bare program has no such gap.
    let of_bare = answer_of(&bare);
    let known = [LaunchesFree, NoSyncs, CopiesOverlapped].into_iter().chain(queued.then_some(DeviceOnly));
    for kind in known {
        let [ours, truth] = [&answer, &of_bare].map(|answer| answer.ceiling(kind).unwrap().speedup);
        assert!((ours / truth - 1.0).abs() < 0.025, "{}: {ours}, of the bare program {truth}", kind.name());
    }
    (answer.untraced.unwrap() * traced.steady_step(), bare.steady_step())
}

fn answer_of(recording: &Recording) -> WhatIf {
    answer(&recording.replay())
}

#[test]
fn the_untraced_step_is_that_of_the_bare_machine() {
    let many = |act: &[Act]| -> Vec<Act> { (0..50).flat_map(|_| act.to_vec()).collect() };
    let full = Machine { queue: 4, ..MACHINE };
    let long_latency = Machine { latency: 9_000, ..MACHINE };
    let programs = [
        ("launch-bound", MACHINE, many(&[Act::Work(20_000), kernel(10_000)])),
        ("empty kernels", MACHINE, many(&[kernel(1_000)])),
        ("device-bound", MACHINE, many(&[kernel(30_000)])),
        ("a full queue", full, many(&[kernel(30_000)])),
        ("waits for each", long_latency, many(&[kernel(10_000), Act::Synchronize])),
        ("two streams", MACHINE, many(&[kernel(20_000), Act::Launch(8, 15_000, OperationClass::Compute)])),
        ("launch-bound only while traced", MACHINE, many(&[Act::Work(5_000), kernel(9_600)])),
    ];
    for (name, machine, step) in programs {
        let queued = ["device-bound", "a full queue", "two streams"].contains(&name);
        let (predicted, real) = predicted_and_real(&machine, &step, queued);
        // A kernel that its launch and the one before it hold up about as long keeps the lag of the one before.
        let tolerance = if name == "launch-bound only while traced" { 0.011 } else { 0.003 };
        assert!((predicted / real - 1.0).abs() < tolerance, "{name}: predicted {predicted}, really {real}");
    }
}

#[test]
fn without_prices_the_untraced_program_is_the_traced_one() {
    let recording = MACHINE.run(&[Act::Work(20_000), kernel(10_000), Act::Synchronize], 120);
    let replay = recording.replay();
    let clocks = replay.clocks(DEVICE).unwrap();
    assert_eq!(clocks[ScenarioKind::Untraced as usize], clocks[ScenarioKind::Base as usize]);
    assert_eq!(answer(&replay).untraced, Some(1.0));
}

/// A graph of 100 nodes of 5 us, launched again when it is done; its launch takes 20 us and the price of its nodes.
fn graphs(node: u32) -> Simulation {
    let mut replay = Simulation::new();
    let mut now = 1_000_000_000;
    let thread = |replay: &mut Simulation, start: u64, end: u64, class, id: u32| {
        let correlation = CorrelationId(id);
        replay.call(&Call { thread: ThreadId(1), start, end, class, correlation, tracing_ns: 0 });
    };
    for step in 0..40 {
        let entered = now;
        let issued = entered + 20_000 + 100 * u64::from(node);
        thread(&mut replay, entered, issued, CallClass::Launch, 2 * step + 1);
        let mut at = issued + 3_000;
        for number in 0..100 {
            replay.graph_node(ThreadId(1), entered, node);
            replay.operation(&Operation {
                start: at,
                end: at + 5_000,
                device: DeviceId(0),
                stream: StreamId(7),
                class: OperationClass::Compute,
                launch: Some(LaunchedBy { correlation: CorrelationId(2 * step + 1), start: entered }),
                excess: 0,
                tracing_ns: 0,
                node: true,
                bytes: 0,
                kernel: 0,
            });
            if number == 0 {
                replay.step_boundary(DEVICE, at, STEPS);
            }
            at += 5_096;
        }
        let done = at - 96;
        thread(&mut replay, issued, done + 10_000, CallClass::Wait, 2 * step + 2);
        now = done + 10_000;
    }
    replay.advance(u64::MAX);
    replay
}

#[test]
fn a_launch_of_a_graph_is_shorter_by_the_price_of_each_node() {
    let answer = answer(&graphs(831));
    let (bare, traced) = (33_000.0 + 509_504.0, 33_000.0 + 83_100.0 + 509_504.0);
    let predicted = answer.untraced.unwrap() * traced;
    assert!((predicted / bare - 1.0).abs() < 1e-3, "predicted {predicted}, really {bare}");
    assert_eq!(self::answer(&graphs(0)).untraced, Some(1.0));
}

/// 60 steps of 64 times a long kernel and three tiny ones, 4.1 ms each: a launch every 16 us keeps the device waiting
/// 10 of 64 us. Without 1.5 us of tracing for each launch the host needs 58 us, and the device 57.1.
fn recurrent() -> Scenario {
    let mut scenario = Scenario::new();
    for step in 0..60 {
        let begin = 1_000 + step * 64 * 64;
        for layer in 0..64 {
            let at = begin + layer * 64;
            gpu(0).kernel("gemm").at(at + 10).lasting(50).launched(&mut scenario, 1, at, 6);
            gpu(0).kernel("add").at(at + 61).lasting(2).launched(&mut scenario, 1, at + 16, 6);
            gpu(0).kernel("bias").at(at + 64).lasting(1).launched(&mut scenario, 1, at + 32, 6);
            gpu(0).kernel("tanh").at(at + 66).lasting(1).launched(&mut scenario, 1, at + 48, 6);
        }
        scenario.pushed(1, begin, begin + 64 * 64, "step");
    }
    scenario
}

fn report(scenario: &Scenario, prices: Prices) -> Report {
    scenario.report_of(&scenario.run_priced(prices))
}

#[test]
fn a_program_that_only_tracing_makes_launch_bound_is_bound_by_its_kernels() {
    let scenario = recurrent();
    let as_recorded = scenario.report();
    assert_eq!(as_recorded.verdict.group, Group::Launch, "{as_recorded}");
    assert!(as_recorded.devices[0].untraced.is_none(), "no price is known");

    let prices = Prices { kernel_launch_cold: 1_500, kernel_gap: 216, ..Prices::default() };
    let report = report(&scenario, prices);
    let untraced = report.devices[0].untraced.unwrap();
    assert_eq!(untraced.measured_step_ns, 4_096_000);
    assert!((untraced.step_ns as f64 / 3_712_000.0 - 1.0).abs() < 0.01, "{untraced:?}");
    assert!((untraced.share_of_tracing - 0.094).abs() < 0.01, "{untraced:?}");
    assert_eq!(untraced.source, PriceSource::Measured);
    assert_eq!(report.verdict.group, Group::GpuCompute, "{report}");
    let text = report.full().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("Without gpuwhy a step takes about 3.7 ms (measured with it: 4.1 ms)"), "{text}");
    assert!(
        text.contains("Tracing itself makes this program launch-bound: without it, waiting for launches takes"),
        "{text}"
    );

    // As by the prices of the table: 3.72 ms bare.
    let by_table = self::report(&scenario, profiler_core::cost::prices::TABLE);
    assert_eq!(by_table.verdict.group, Group::GpuCompute, "{by_table}");
    let step = by_table.devices[0].untraced.unwrap().step_ns;
    assert!((step as f64 / 3_720_000.0 - 1.0).abs() < 0.03, "{step}");
    // Were each launch one of a row, it would cost less.
    let row = self::report(&scenario, Prices { kernel_launch_cold: 921, ..prices });
    assert!(row.devices[0].untraced.unwrap().step_ns > 3_840_000);
}

#[test]
fn what_tracing_takes_is_not_mentioned_where_it_is_little() {
    let report = report(&recurrent(), Prices { kernel_launch_cold: 200, ..Prices::default() });
    let untraced = report.devices[0].untraced.unwrap();
    assert!(untraced.share_of_tracing < 0.02 && untraced.share_of_tracing > 0.005, "{untraced:?}");
    assert!(!report.summary().contains("Without gpuwhy"), "{report}");
    assert!(report.full().contains("Without gpuwhy"), "{}", report.full());
    assert_eq!(report.verdict.group, Group::Launch);
}

#[test]
fn shares_without_tracing_sum_to_a_hundred_in_the_text() {
    let report = report(&recurrent(), Prices { kernel_launch_cold: 1_500, ..Prices::default() });
    let text = report.summary();
    let line = text.lines().find(|line| line.starts_with("GPU 0")).unwrap();
    let percents: Vec<u32> = line.split(" %").filter_map(|part| part.split_whitespace().last()?.parse().ok()).collect();
    assert_eq!(percents.iter().sum::<u32>(), 100, "{line}");
    assert!(percents.contains(&93), "54 of 58 us: {line}");
}

#[test]
fn calibrations_come_back_from_a_trace() {
    let prices = Prices { kernel_launch: 1_234, copy_gap: 5, ..Prices::default() };
    let written = ProcessInfo {
        gpuwhy_version: "0.2.0".to_owned(),
        calibrations: vec![Calibration { gpu: "NVIDIA L4".to_owned(), prices }],
        ..ProcessInfo::default()
    };
    let mut bytes = Vec::new();
    TraceWriter::new(&mut bytes, &written).unwrap();
    let reader = TraceReader::new(&bytes[..]).unwrap();
    assert_eq!(reader.session(), &written);
}

#[cfg(feature = "serde")]
#[test]
fn the_json_has_the_untraced_step() {
    let value =
        serde_json::to_value(report(&recurrent(), Prices { kernel_launch_cold: 1_500, ..Prices::default() })).unwrap();
    let untraced = &value["devices"][0]["untraced"];
    assert_eq!(untraced["source"], "measured");
    assert!(untraced["step_ns"].as_u64().unwrap() < 3_800_000, "{untraced}");
    assert!(untraced["share_of_tracing"].as_f64().unwrap() > 0.08, "{untraced}");
}
