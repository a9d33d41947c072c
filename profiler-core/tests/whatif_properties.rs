//! Properties of every program: removing a cost never ends later, the base equals the real run, the order of
//! delivery and the watermarks have no effect, and damaged input only makes the result worse.

use crate::whatif_program::{Act, DEVICE, MACHINE, STEPS};
use gpuwhy_trace::record::{CorrelationId, DeviceId, StreamId, ThreadId};
use profiler_core::whatif::{Call, CallClass, LaunchedBy, Operation, OperationClass, ScenarioKind, Simulation};
use proptest::prelude::*;

fn class() -> impl Strategy<Value = OperationClass> {
    prop::sample::select(vec![
        OperationClass::Compute,
        OperationClass::Communication,
        OperationClass::CopyFromHost,
        OperationClass::CopyToHost,
        OperationClass::CopyWithin,
        OperationClass::CopyOther,
        OperationClass::Selection,
        OperationClass::Memset,
    ])
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0..3_000_000u64).prop_map(Act::Work),
        2 => (0..60_000u64).prop_map(Act::Work),
        1 => (0..5_000_000u64).prop_map(Act::Input),
        6 => (1..4u32, 500..2_000_000u64, class()).prop_map(|(stream, nanos, class)| Act::Launch(stream, nanos, class)),
        2 => (1..3u32, 500..200_000u64, any::<u16>(), any::<bool>())
            .prop_map(|(stream, nanos, bytes, to_host)| Act::Copy(stream, nanos, bytes, to_host)),
        2 => (1..3u32, 500..200_000u64, 1..9_000u16, any::<bool>())
            .prop_map(|(stream, nanos, bytes, to_host)| Act::BlockingCopy(stream, nanos, bytes, to_host)),
        4 => (1..3u32, 500..2_000_000u64, 2..5u32).prop_map(|(stream, nanos, fit)| Act::Small(stream, nanos, fit)),
        1 => (1..4u32, 1..4u32).prop_map(|(waiting, producer)| Act::StreamWait(waiting, producer)),
        1 => Just(Act::Synchronize),
        1 => (1..3u32).prop_map(Act::Thread),
    ]
}

fn step() -> impl Strategy<Value = Vec<Act>> {
    (prop::collection::vec(act(), 1..40), 500..100_000u64).prop_map(|(mut acts, nanos)| {
        acts.push(Act::Launch(1, nanos, OperationClass::Compute));
        acts
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn removing_a_cost_never_ends_later(step in step()) {
        let recording = MACHINE.run(&step, 8);
        let clocks = recording.simulate().clocks(DEVICE).expect("operations ran");
        for kind in ScenarioKind::ALL {
            prop_assert!(clocks[kind as usize] <= clocks[ScenarioKind::Base as usize], "{}", kind.name());
        }
        if let Some(answer) = recording.simulate().what_if(DEVICE, STEPS, 0) {
            prop_assert!(answer.best_cases.iter().all(|best_case| best_case.speedup >= 1.0));
        }
    }

    #[test]
    fn what_is_not_reported_is_not_joined(step in step()) {
        let mut recording = MACHINE.run(&step, 8);
        recording.reported.clear();
        let clocks = recording.simulate().clocks(DEVICE).expect("operations ran");
        for kind in [ScenarioKind::GridsFilled, ScenarioKind::CopiesJoined] {
            prop_assert_eq!(clocks[kind as usize], clocks[ScenarioKind::Base as usize], "{}", kind.name());
        }
    }

    #[test]
    fn the_base_is_what_happened(step in step()) {
        let recording = MACHINE.run(&step, 8);
        let simulation = recording.simulate();
        let really = *recording.finished.last().expect("steps");
        prop_assert_eq!(simulation.clocks(DEVICE).expect("operations ran")[ScenarioKind::Base as usize], really);
        for step in simulation.steps(DEVICE, STEPS) {
            prop_assert_eq!(step.simulated[ScenarioKind::Base as usize], step.real);
            prop_assert_eq!(step.unexplained, 0);
        }
    }

    #[test]
    fn order_of_delivery_and_watermarks_change_nothing(step in step(), order in any::<u64>(), flush in 300_000..20_000_000u64) {
        let recording = MACHINE.run(&step, 6);
        let whole = recording.simulate();
        let mut shuffled = recording.clone();
        let mut state = order | 1;
        let mut next = |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % bound as u64) as usize
        };
        for index in (1..shuffled.calls.len()).rev() {
            shuffled.calls.swap(index, next(index + 1));
        }
        for index in (1..shuffled.operations.len()).rev() {
            shuffled.operations.swap(index, next(index + 1));
        }
        let mut parts = Simulation::new();
        let (mut from, end) = (0, shuffled.finished.last().unwrap() + 1);
        let mut to = 1_000_000_000;
        while from < end {
            let within = |at: u64| at >= from && at < to;
            shuffled.reported.iter().filter(|reported| within(reported.1)).for_each(|&(id, at, launched)| parts.launches(id, at, launched));
            shuffled.operations.iter().filter(|op| within(op.start)).for_each(|op| parts.operation(op));
            shuffled.calls.iter().filter(|call| within(call.start)).for_each(|call| parts.call(call));
            shuffled.inputs.iter().filter(|input| within(input.1)).for_each(|&(id, start, end)| parts.input_wait(id, start, end));
            shuffled.boundaries.iter().filter(|&&at| within(at)).for_each(|&at| parts.step_boundary(DEVICE, at, STEPS));
            parts.advance(to);
            (from, to) = (to, to.saturating_add(flush));
        }
        parts.advance(u64::MAX);
        prop_assert_eq!(whole.clocks(DEVICE), parts.clocks(DEVICE));
        prop_assert!(whole.steps(DEVICE, STEPS) == parts.steps(DEVICE, STEPS));
        prop_assert_eq!(parts.late_boundaries(), 0);
    }

    #[test]
    fn longer_times_scale_the_base(step in step(), factor in 2..5u64) {
        let longer: Vec<Act> = step
            .iter()
            .map(|&act| match act {
                Act::Work(nanos) => Act::Work(nanos * factor),
                Act::Input(nanos) => Act::Input(nanos * factor),
                Act::Launch(stream, nanos, class) => Act::Launch(stream, nanos * factor, class),
                Act::Small(stream, nanos, fit) => Act::Small(stream, nanos * factor, fit),
                other => other,
            })
            .collect();
        let recording = MACHINE.run(&longer, 6);
        let simulation = recording.simulate();
        prop_assert!(simulation.steps(DEVICE, STEPS).iter().all(|step| step.simulated[ScenarioKind::Base as usize] == step.real));
    }

    #[test]
    fn damaged_input_never_panics(
        calls in prop::collection::vec((any::<u64>(), any::<u64>(), 0..3u32, 0..8u32, 0..4u8), 0..60),
        operations in prop::collection::vec((any::<u64>(), any::<u64>(), 0..3u32, class(), 0..10u32, any::<u32>()), 0..60),
        boundaries in prop::collection::vec(any::<u64>(), 0..20),
        inputs in prop::collection::vec((0..3u32, any::<u64>(), any::<u64>()), 0..10),
        watermark in any::<u64>(),
    ) {
        let mut simulation = Simulation::new();
        for (start, end, thread, correlation, class) in calls {
            let class = [CallClass::Launch, CallClass::Wait, CallClass::Memory, CallClass::Other][usize::from(class)];
            let correlation = CorrelationId(correlation);
            simulation.call(&Call { thread: ThreadId(thread), start, end, class, correlation, tracing_ns: 0 });
        }
        for (start, end, stream, class, correlation, excess) in operations {
            let launch = (correlation < 8).then_some(LaunchedBy { correlation: CorrelationId(correlation), start: end });
            let device = DeviceId(stream % 2);
            simulation.operation(&Operation { start, end, device, stream: StreamId(stream), class, launch, excess, bytes: excess as u16, tracing_ns: 0, node: false, kernel: 0 });
        }
        inputs.into_iter().for_each(|(thread, start, end)| simulation.input_wait(ThreadId(thread), start, end));
        boundaries.into_iter().for_each(|at| simulation.step_boundary(DEVICE, at, STEPS));
        simulation.advance(watermark);
        simulation.advance(u64::MAX);
        let answer = simulation.what_if(DEVICE, STEPS, 0).map(|answer| format!("{answer:?}"));
        prop_assert!(answer.is_none_or(|text| !text.contains("NaN")));
    }
}
