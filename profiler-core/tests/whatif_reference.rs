//! Base simulation of recorded traces of real programs: it must reproduce their step times.

use crate::reference_trace::load;
use gpuwhy_trace::record::DeviceId;
use profiler_core::steps::{StepSeries, StepSource};
use profiler_core::whatif::{Operation, ScenarioKind, Simulation, SimulationProblem, WhatIf};

const STEPS: StepSeries = StepSeries { source: StepSource::Annotated, period: 0 };

fn simulate(name: &str) -> Option<(Simulation, WhatIf)> {
    let trace = load(name)?;
    let device = trace.operations.first().expect("operations").device;
    let mut simulation = Simulation::new();
    trace.calls.iter().for_each(|call| simulation.call(call));
    trace.operations.iter().for_each(|operation| simulation.operation(operation));
    trace.inputs.iter().for_each(|&(thread, start, end)| simulation.input_wait(thread, start, end));
    // A step starts on the device with the first operation that was launched in it.
    for &mark in &trace.steps {
        let launched_in = |operation: &&Operation| operation.launch.is_some_and(|launch| launch.start >= mark);
        let begin = trace.operations.iter().filter(launched_in).map(|operation| operation.start).min();
        if let Some(begin) = begin {
            simulation.step_boundary(device, begin, STEPS);
        }
    }
    simulation.step_boundary(device, u64::MAX - 1, STEPS);
    simulation.advance(u64::MAX);
    let answer = simulation.what_if(device, STEPS, 0).expect("the device ran something");
    println!("\n{name}: {} steps, base error {:?}, refused {:?}", answer.steps, answer.base_error, answer.refused);
    for step in simulation.steps(device, STEPS) {
        let ms = |nanos: u64| nanos as f64 / 1e6;
        let simulated: Vec<String> = step.simulated.iter().map(|&nanos| format!("{:.1}", ms(nanos))).collect();
        println!(
            "  real {:.1} unexplained {:.2} simulated {}",
            ms(step.real),
            ms(step.unexplained),
            simulated.join(" ")
        );
    }
    println!("{answer:?}");
    Some((simulation, answer))
}

/// Simulates `name`; the base must be near the real times, and the simulation accepted if there are enough
/// steps.
fn reproduces(name: &str) -> Option<WhatIf> {
    let (_, answer) = simulate(name)?;
    let error = answer.base_error.expect("complete steps");
    assert_eq!(answer.represented_steps, answer.steps, "{name}: so few steps are simulated whole");
    assert!(error < 0.02, "{name}: the base simulation is {:.2} % off", error * 1e2);
    Some(answer)
}

fn step_ms(answer: &WhatIf, kind: ScenarioKind) -> f64 {
    answer.best_case(kind).expect("an accepted simulation").step_ns as f64 / 1e6
}

#[test]
fn data_loading_is_a_best_case_that_the_real_change_approaches() {
    let Some(before) = reproduces("resnet50_workers0") else { return };
    let Some((after, answer)) = simulate("resnet50_workers4") else { return };
    assert!(answer.base_error.expect("complete steps") < 0.02);
    let predicted = step_ms(&before, ScenarioKind::DataReady);
    let mut real: Vec<u64> = after.steps(DeviceId(0), STEPS).iter().map(|step| step.real).collect();
    real.sort_unstable();
    let real = real[real.len() / 2] as f64 / 1e6;
    println!("data always ready: predicted {predicted:.1} ms, four workers gave {real:.1} ms");
    assert!(predicted < real && predicted > 0.9 * real, "predicted {predicted:.1} ms, got {real:.1} ms");
    // With the workers there is no gain left from data.
    assert!(answer.best_case(ScenarioKind::DataReady).is_none_or(|best_case| best_case.speedup < 1.02));
}

#[test]
fn nothing_but_faster_kernels_helps_a_program_that_keeps_the_device_busy() {
    let Some(answer) = reproduces("hta_ns_resolution") else { return };
    assert!(answer.best_cases.iter().all(|best_case| best_case.speedup < 1.02), "{answer:?}");
}

#[test]
fn free_launches_almost_double_a_launch_bound_program() {
    let Some(answer) = reproduces("hta_df_index_resolver") else { return };
    let gain = answer.best_case(ScenarioKind::LaunchesFree).expect("an accepted simulation").speedup;
    assert!((1.6..2.0).contains(&gain), "{answer:?}");
}

#[test]
fn two_steps_are_too_few() {
    let Some(answer) = reproduces("hta_nccl") else { return };
    assert_eq!(answer.refused, Some(SimulationProblem::FewSteps(2)));
    assert!(answer.best_cases.is_empty());
}

#[test]
fn events_between_streams_are_inferred() {
    let Some((_, answer)) = simulate("hta_trace_diff_control") else { return };
    assert!(answer.base_error.expect("complete steps") < 0.05, "{answer:?}");
}
