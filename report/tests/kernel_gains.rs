//! Gain of a step from shorter kernels, compared with the same program with shorter kernels.

use gpuwhy_report::capture::Captures;
use gpuwhy_report::kernels::Roof;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::kernels::KernelProfile;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;
use profiler_core::leaf::Cause;
use profiler_core::steps::{StepSeries, StepSource};
use profiler_core::whatif::{
    Call, CallClass, LaunchedBy, Operation, OperationClass, SCENARIO_COUNT, ScenarioKind, Simulation,
};
use std::sync::Arc;

use crate::counted::{Program, report};

const DEVICE: DeviceId = DeviceId(0);
const STEPS: StepSeries = StepSeries { source: StepSource::Period, period: 2 };
/// Ids of the two kernels.
const FIRST: u32 = 11;
const SECOND: u32 = 12;

/// A step: two kernels, launched one after the other with some host work before each, and a wait for the
/// second. Returns the simulation and the length of the last step, microseconds.
fn two_kernels(first: u64, second: u64, steps: u64, keeps: bool) -> (Simulation, u64) {
    let mut simulation = Simulation::new();
    if keeps {
        simulation.keep_events();
    }
    let (mut now, mut correlation, mut length) = (1_000u64, 0, 0);
    for step in 0..steps {
        let begun = now;
        let mut ends = 0;
        for (kernel, lasts, host_work) in [(FIRST, first, 30), (SECOND, second, 40)] {
            now += host_work;
            correlation += 1;
            let id = CorrelationId(correlation);
            simulation.call(&call(now, now + 5, CallClass::Launch, id));
            let launch = LaunchedBy { correlation: id, start: now * 1_000 };
            now += 5;
            let start = (now + 2).max(ends + 1) * 1_000;
            simulation.operation(&Operation {
                start,
                end: start + lasts * 1_000,
                device: DEVICE,
                stream: StreamId(7),
                class: OperationClass::Compute,
                launch: Some(launch),
                excess: 0,
                tracing_ns: 0,
                node: false,
                bytes: 0,
                kernel,
            });
            if kernel == FIRST {
                simulation.step_boundary(DEVICE, start, STEPS);
            }
            ends = start / 1_000 + lasts;
        }
        correlation += 1;
        simulation.call(&call(now + 3, (ends + 6).max(now + 8), CallClass::Wait, CorrelationId(correlation)));
        now = (ends + 6).max(now + 8);
        length = now - begun;
        if step % 5 == 0 {
            simulation.advance((begun - 1) * 1_000);
        }
    }
    simulation.advance(u64::MAX);
    (simulation, length)
}

fn call(start: u64, end: u64, class: CallClass, correlation: CorrelationId) -> Call {
    let (start, end) = (start * 1_000, end * 1_000);
    Call { thread: ThreadId(1), start, end, class, correlation, tracing_ns: 0 }
}

fn gain(simulation: &Simulation, kernel: u32, remains: f64) -> f64 {
    let part = |_: DeviceId, of: u32| if of == kernel { remains } else { 1.0 };
    let best_case = simulation.with_shorter_kernels(DEVICE, STEPS, &part).expect("it is believed");
    let (low, high) = best_case.interval.unwrap();
    assert!(low <= best_case.speedup && best_case.speedup <= high, "{best_case:?}");
    best_case.speedup
}

#[test]
fn a_shorter_kernel_brings_what_the_program_with_it_shows() {
    // The host hides none of the first kernel, half of the kernel, or all of the kernel.
    for (first, second) in [(200, 150), (80, 60), (20, 300)] {
        let (simulation, before) = two_kernels(first, second, 300, true);
        for (kernel, remains) in [(FIRST, 0.5), (FIRST, 0.9), (SECOND, 0.5), (SECOND, 0.25), (SECOND, 1.0)] {
            let of = |nanos: u64, number| if kernel == number { (nanos as f64 * remains) as u64 } else { nanos };
            let (_, after) = two_kernels(of(first, FIRST), of(second, SECOND), 300, false);
            let (found, wanted) = (gain(&simulation, kernel, remains), before as f64 / after as f64);
            // The latency of a launch is invisible while it is hidden: 2 of 120 us.
            assert!((found / wanted - 1.0).abs() < 0.02, "{first} {second} {kernel} {remains}: {found} {wanted}");
            if (first, kernel) == (20, FIRST) {
                assert!(found < 1.001, "the host is late anyway: {found}");
            }
        }
    }
}

#[test]
fn what_is_kept_changes_no_other_answer() {
    let clocks = |keeps| -> [u64; SCENARIO_COUNT] { two_kernels(200, 150, 3_000, keeps).0.clocks(DEVICE).unwrap() };
    assert_eq!(clocks(false), clocks(true));
}

#[test]
fn without_events_or_with_too_few_nothing_is_said() {
    let ask = |steps, keeps| two_kernels(200, 150, steps, keeps).0.with_shorter_kernels(DEVICE, STEPS, &|_, _| 0.5);
    assert_eq!(ask(300, false), None);
    assert_eq!(ask(2, true), None);
    assert_eq!(Simulation::new().with_shorter_kernels(DEVICE, STEPS, &|_, _| 0.5), None);
    assert!(ask(12, true).is_some());
    // Longer than the kept events, with pauses of the simulation.
    let (simulation, before) = two_kernels(200, 60, 20_000, true);
    let (_, after) = two_kernels(100, 60, 300, false);
    let (found, wanted) = (gain(&simulation, FIRST, 0.5), before as f64 / after as f64);
    assert!((found / wanted - 1.0).abs() < 0.01, "{found} {wanted}");
    let mut stopped = two_kernels(200, 150, 300, true).0;
    stopped.stop();
    assert_eq!(stopped.with_shorter_kernels(DEVICE, STEPS, &|_, _| 0.5), None);
}

#[test]
fn a_report_says_what_each_kernel_brings_and_the_bottleneck_then() {
    let report = report(&Program::new(120, false).sample(1_000_000, 0.5).delivered(50_000_000));
    let device = &report.devices[0];
    let gains = |name: &str| device.kernels.iter().find(|row| row.name == name).unwrap().limits.unwrap().gains.unwrap();
    // Ten of 282 us at 46.3 % of issue, in a step of 7.97 ms; on one stream they are not hidden.
    for (found, roof) in [(gains("flash_backward").at_80, 0.8), (gains("flash_backward").at_90, 0.9)] {
        let wanted = 7.97 / (7.97 - 2.82 * (1.0 - 0.463 / roof));
        assert!((found.speedup / wanted - 1.0).abs() < 0.02, "{found:?} {wanted}");
        let (low, high) = found.interval.expect("it is simulated");
        assert!(low < wanted && wanted < high && high - low < 0.4, "{found:?}");
    }
    assert_eq!(gains("flash_backward").then, Some(Cause::GpuCompute));
    // Already at 88 %, and not among those that lose most.
    assert!(gains("adam").at_80.speedup < 1.001 && gains("adam").at_90.speedup < 1.01);
    let text = report.full();
    for part in ["used 90 % of the peak of instruction issue (now 46 %), a step would be about", "; at 80 %, about"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(!text.contains("(by subtraction)"), "{text}");
    let all = device.what_if.as_ref().unwrap().best_case(ScenarioKind::KernelsAtRoof).unwrap().speedup;
    assert!(gains("flash_backward").at_90.speedup < all);
}

#[test]
fn findings_of_a_measured_kernel_say_what_a_step_gains() {
    let (items, dictionary) = Program::new(120, false).delivered(50_000_000);
    let session = ProcessInfo::default();
    let config = (0..100)
        .map(LaunchConfigId)
        .find(|&config| dictionary.name(dictionary.launch_config(config).name) == "flash_backward");
    let values = [(Roof::Issue, 46.3), (Roof::Tensor, 31.1), (Roof::Dram, 11.6)];
    let profile = KernelProfile {
        config: config.unwrap(),
        values: values.map(|(roof, used)| (roof.metric().to_owned(), used)).to_vec(),
        ..KernelProfile::default()
    };
    let view = |keeps: bool| {
        let mut captures = Captures::new(None);
        captures.options.simulated_events = keeps;
        let mut last = Timestamp::ZERO;
        for item in &items {
            captures.event(item, &session, &dictionary);
            if let Event::Flush(at) = item {
                last = *at;
            }
        }
        captures.event(&Event::KernelProfile(Arc::new(profile.clone())), &session, &dictionary);
        captures.finish(last, &session, &dictionary);
        let report = captures.report(&session, &dictionary, End::Clean, Vec::new());
        let text = gpuwhy_report::kernels::text(&report.kernels, gpuwhy_report::text_format::Style::default(), None);
        (report.kernels.measured[0].clone(), text)
    };
    let (view_, text) = view(true);
    // Ten of 282 us in a step of 7.97 ms, on one stream.
    let wanted = |remains: f64| 7.97 / (7.97 - 2.82 * (1.0 - remains));
    let at_90 = view_.gains.unwrap().at_90;
    assert!((at_90.speedup / wanted(0.463 / 0.9) - 1.0).abs() < 0.02, "{at_90:?}");
    let place = view_.findings.iter().position(|finding| finding.rule == "latency_bound").unwrap();
    let gain = view_.finding_gains[place].unwrap();
    assert!((gain.speedup / wanted(0.463) - 1.0).abs() < 0.02, "{gain:?}");
    let unwrapped = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "a step if it used 80 % of instruction issue: about 1.1",
        "of the kernel's time; a step would then be about 1.2",
    ] {
        assert!(unwrapped.contains(part), "no {part:?} in {text}");
    }
    let (view_, text) = view(false);
    assert!(view_.gains.is_none() && view_.finding_gains.iter().all(Option::is_none));
    assert!(text.contains("of the run. To do"), "{text}");
}
