//! Edges of the simulation one by one: small programs, with hand-computed times at which the device is done
//! in each scenario.
//!
//! Times are microseconds from the entry of the first call. Consecutive kernels in a stream are at least 0.9
//! us apart without other measurements, and nodes of a graph 0.096 us.

use gpuwhy_trace::record::{CorrelationId, DeviceId, StreamId, ThreadId};
use profiler_core::leaf::{Cause, LEAF_COUNT, Leaf};
use profiler_core::steps::{StepSeries, StepSource};
use profiler_core::whatif::ScenarioKind::{
    self, CommunicationHidden, CopiesOverlapped, DataReady, DeviceOnly, LaunchesFree, NoAllocations, NoHostWork,
    NoSyncs,
};
use profiler_core::whatif::{
    BestCase, Call, CallClass, LaunchedBy, Operation, OperationClass, SCENARIO_COUNT, Simulation,
};

const ZERO: u64 = 1_000_000_000;
const DEVICE: DeviceId = DeviceId(0);
const KERNEL: OperationClass = OperationClass::Compute;

fn time(micros: u64) -> u64 {
    ZERO + micros * 1_000
}

/// Input of the simulation for a program of one thread.
#[derive(Default)]
struct Program {
    simulation: Simulation,
    launches: u32,
}

impl Program {
    fn call(&mut self, class: CallClass, start: u64, end: u64) -> &mut Self {
        self.launches += 1;
        let correlation = CorrelationId(self.launches);
        self.simulation.call(&Call {
            thread: ThreadId(1),
            start: time(start),
            end: time(end),
            class,
            correlation,
            tracing_ns: 0,
        });
        self
    }

    /// A launching call, and the operation that it launches on `stream`.
    fn launch(&mut self, call: (u64, u64), stream: u32, class: OperationClass, runs: (u64, u64)) -> &mut Self {
        self.launch_with(call, stream, class, runs, 0)
    }

    fn launch_with(
        &mut self,
        call: (u64, u64),
        stream: u32,
        class: OperationClass,
        (start, end): (u64, u64),
        excess: u32,
    ) -> &mut Self {
        self.call(CallClass::Launch, call.0, call.1);
        let launch = LaunchedBy { correlation: CorrelationId(self.launches), start: time(call.0) };
        self.simulation.operation(&Operation {
            start: time(start),
            end: time(end),
            device: DEVICE,
            stream: StreamId(stream),
            class,
            launch: Some(launch),
            excess,
            tracing_ns: 0,
            node: false,
            bytes: 0,
            kernel: 0,
        });
        self
    }

    /// A kernel of stream 7.
    fn kernel(&mut self, call: (u64, u64), runs: (u64, u64)) -> &mut Self {
        self.launch(call, 7, KERNEL, runs)
    }

    /// Asserts when the device is done: at the real time in all scenarios except these.
    #[track_caller]
    fn ends(&mut self, really: u64, otherwise: &[(ScenarioKind, f64)]) {
        self.simulation.advance(u64::MAX);
        let clocks = self.simulation.clocks(DEVICE).expect("something ran");
        let micros = clocks.map(|clock| (clock - ZERO) as f64 / 1_000.0);
        let mut expected = [really as f64; SCENARIO_COUNT];
        otherwise.iter().for_each(|&(kind, end)| expected[kind as usize] = end);
        let named = |ends: [f64; SCENARIO_COUNT]| ScenarioKind::ALL.map(|kind| (kind.name(), ends[kind as usize]));
        assert_eq!(named(micros), named(expected));
    }
}

fn program() -> Program {
    Program::default()
}

#[test]
fn a_launch_is_its_call_and_its_latency() {
    program().kernel((0, 5), (8, 18)).ends(18, &[(LaunchesFree, 10.0), (DeviceOnly, 10.0)]);
    // 20 us of latency are accepted; more is unexplained and is left out.
    program().kernel((0, 5), (25, 35)).ends(35, &[(LaunchesFree, 10.0), (DeviceOnly, 10.0)]);
    program().kernel((0, 5), (26, 36)).ends(35, &[(LaunchesFree, 10.0), (DeviceOnly, 10.0)]);
    // The kernel starts within the call.
    program().kernel((0, 30), (8, 18)).ends(18, &[(LaunchesFree, 10.0), (DeviceOnly, 10.0)]);
}

#[test]
fn gaps_of_up_to_100_us_are_part_of_a_launch() {
    let kernels = |gap: u64| {
        let mut program = program();
        let second = 5 + gap;
        program.kernel((0, 5), (8, 9)).kernel((second, second + 5), (second + 8, second + 9));
        program
    };
    kernels(100).ends(114, &[(LaunchesFree, 2.096), (DeviceOnly, 2.9)]);
    kernels(101).ends(115, &[(NoHostWork, 14.0), (LaunchesFree, 102.0), (DeviceOnly, 2.9)]);
}

#[test]
fn calls_of_up_to_100_us_that_do_nothing_are_part_of_a_launch() {
    let with_call = |end: u64, class| {
        let mut program = program();
        program.kernel((0, 5), (8, 9)).call(class, 5, end).kernel((end, end + 5), (end + 8, end + 9));
        program
    };
    with_call(105, CallClass::Other).ends(114, &[(LaunchesFree, 2.096), (DeviceOnly, 2.9)]);
    with_call(106, CallClass::Other).ends(115, &[(NoHostWork, 14.0), (LaunchesFree, 102.0), (DeviceOnly, 2.9)]);
    // A launch is free regardless of its duration.
    with_call(500, CallClass::Launch).ends(509, &[(LaunchesFree, 2.096), (DeviceOnly, 2.9)]);
}

/// A kernel of 100 us that ends at 108, a call of `class` from 5 to `end`, and then a kernel of 10 us.
fn waited(class: CallClass, end: u64) -> Program {
    let mut program = program();
    program.kernel((0, 5), (8, 108)).call(class, 5, end).kernel((end, end + 5), (end + 8, end + 18));
    program
}

#[test]
fn a_wait_ends_with_what_it_waited_for() {
    waited(CallClass::Wait, 118).ends(136, &[(NoSyncs, 118.9), (LaunchesFree, 120.0), (DeviceOnly, 110.9)]);
    // Up to 40 us later it was the same wait. Beyond that, the call took its time for another reason.
    waited(CallClass::Wait, 148).ends(166, &[(NoSyncs, 118.9), (LaunchesFree, 150.0), (DeviceOnly, 110.9)]);
    waited(CallClass::Wait, 149).ends(167, &[(LaunchesFree, 154.0), (DeviceOnly, 110.9)]);
    // A call that does not wait takes its time.
    waited(CallClass::Other, 118).ends(136, &[(NoHostWork, 118.9), (LaunchesFree, 123.0), (DeviceOnly, 110.9)]);
}

#[test]
fn memory_that_is_kept_neither_waits_nor_takes_time() {
    let ends = [(NoSyncs, 118.9), (NoAllocations, 118.9), (LaunchesFree, 120.0), (DeviceOnly, 110.9)];
    waited(CallClass::Memory, 118).ends(136, &ends);
    // It does not wait, and takes 8 us.
    let mut program = program();
    program.kernel((0, 5), (8, 9)).call(CallClass::Memory, 5, 13).kernel((13, 18), (21, 22));
    program.ends(22, &[(NoAllocations, 14.0), (LaunchesFree, 2.096), (DeviceOnly, 2.9)]);
}

#[test]
fn a_short_call_waited_if_its_thread_had_work_on_the_device() {
    let with = |class, end: u64| {
        let mut program = program();
        program.kernel((0, 5), (8, 15)).call(class, 5, end).kernel((end, end + 5), (end + 8, end + 18));
        program
    };
    with(CallClass::Wait, 16).ends(34, &[(NoSyncs, 25.9), (LaunchesFree, 18.0), (DeviceOnly, 17.9)]);
    with(CallClass::Wait, 18).ends(36, &[(NoSyncs, 26.0), (LaunchesFree, 20.0), (DeviceOnly, 17.9)]);
    // An allocation of 12 us took that time for itself.
    with(CallClass::Memory, 17).ends(35, &[(NoAllocations, 25.9), (LaunchesFree, 17.096), (DeviceOnly, 17.9)]);
    with(CallClass::Memory, 18)
        .ends(36, &[(NoSyncs, 26.0), (NoAllocations, 25.9), (LaunchesFree, 20.0), (DeviceOnly, 17.9)]);
    // The device was idle: the call waited for nothing.
    let mut idle = program();
    idle.kernel((0, 5), (8, 15)).call(CallClass::Wait, 16, 20).kernel((20, 25), (28, 38));
    idle.ends(38, &[(LaunchesFree, 17.096), (DeviceOnly, 17.9)]);
}

#[test]
fn a_short_call_did_not_wait_for_work_of_another_thread() {
    let of = |thread: u32, lasts: u64| {
        let mut program = program();
        let call = |thread, start, end, class, id| Call {
            thread: ThreadId(thread),
            start: time(start),
            end: time(end),
            class,
            correlation: CorrelationId(id),
            tracing_ns: 0,
        };
        program.launches = 10;
        program.simulation.call(&call(thread, 0, 5, CallClass::Launch, 1));
        program.simulation.operation(&Operation {
            start: time(8),
            end: time(15),
            device: DEVICE,
            stream: StreamId(9),
            class: KERNEL,
            launch: Some(LaunchedBy { correlation: CorrelationId(1), start: time(0) }),
            excess: 0,
            bytes: 0,
            tracing_ns: 0,
            node: false,
            kernel: 0,
        });
        let back = 5 + lasts;
        program.call(CallClass::Wait, 5, back).kernel((back, back + 5), (back + 8, back + 18));
        program
    };
    of(1, 11).ends(34, &[(NoSyncs, 24.0), (LaunchesFree, 18.0), (DeviceOnly, 10.0)]);
    of(2, 11).ends(34, &[(LaunchesFree, 15.0), (DeviceOnly, 15.0)]);
    of(2, 20).ends(43, &[(NoSyncs, 33.0), (LaunchesFree, 27.0), (DeviceOnly, 15.0)]);
}

#[test]
fn launching_calls_of_more_than_50_us_wait() {
    // A kernel that ends at 50 releases the launch, whose own kernel runs on another stream.
    let with_launch = |end: u64| {
        let mut program = program();
        program.kernel((0, 5), (8, 50)).launch((5, end), 8, KERNEL, (end + 3, end + 13));
        program.kernel((end, end + 5), (end + 8, end + 18));
        program
    };
    with_launch(55).ends(73, &[(LaunchesFree, 52.096), (DeviceOnly, 52.9)]);
    // The kernel on the other stream depends on the entry of its launch.
    with_launch(56).ends(74, &[(NoSyncs, 69.0), (LaunchesFree, 58.0), (DeviceOnly, 52.9)]);
}

#[test]
fn only_the_input_within_a_gap_goes_away() {
    let with_input = |waits: &[(u64, u64)]| {
        let mut program = program();
        program.kernel((0, 5), (8, 9)).kernel((205, 210), (213, 214));
        for &(from, to) in waits {
            program.simulation.input_wait(ThreadId(1), time(from), time(to));
        }
        program
    };
    let others = [(LaunchesFree, 201.0), (DeviceOnly, 2.9)];
    // Time other than waiting is work of the host: of 214 us, the 14 us of two kernels are neither.
    let ends = |waits: &[(u64, u64)], data_ready: f64| {
        let no_host_work = 14.0 + 214.0 - data_ready;
        with_input(waits).ends(214, &[&others[..], &[(DataReady, data_ready), (NoHostWork, no_host_work)]].concat());
    };
    ends(&[(5, 85)], 134.0);
    ends(&[(20, 40), (100, 160)], 134.0);
    // Time before or after the gap is not part of it.
    ends(&[(0, 85)], 134.0);
    ends(&[(195, 900)], 204.0);
    ends(&[(0, 5)], 214.0);
    ends(&[(300, 400)], 214.0);
    // The complete gap: the kernel comes 3 us after its call.
    ends(&[(0, 900)], 14.0);
    // An empty interval, and the wait of another thread.
    ends(&[(50, 50)], 214.0);
    let mut other = with_input(&[]);
    other.simulation.input_wait(ThreadId(2), time(5), time(205));
    other.ends(214, &[&others[..], &[(NoHostWork, 14.0)]].concat());
}

/// A kernel of 100 us, then an operation of `class` for 100 us, then a kernel, all in one stream.
fn between_kernels(class: OperationClass, excess: u32) -> Program {
    let mut program = program();
    program.kernel((0, 5), (8, 108));
    program.launch_with((5, 10), 7, class, (109, 209), excess);
    program.kernel((10, 15), (210, 220));
    program
}

#[test]
fn copies_and_communication_run_beside_their_stream() {
    let base = [(LaunchesFree, 212.0), (DeviceOnly, 212.0)];
    // A copy from the host does not depend on the previous kernel: it runs from 10 to 110, the last kernel
    // from 109 to 119.
    let from_host = [&base[..], &[(CopiesOverlapped, 119.0)]].concat();
    between_kernels(OperationClass::CopyFromHost, 0).ends(220, &from_host);
    // Another copy depends on the result of the kernel.
    let other = [&base[..], &[(CopiesOverlapped, 209.0)]].concat();
    between_kernels(OperationClass::CopyOther, 0).ends(220, &other);
    // From pinned memory it takes 30 us less.
    let faster = [&base[..], &[(CopiesOverlapped, 179.0)]].concat();
    between_kernels(OperationClass::CopyOther, 30_000).ends(220, &faster);
    // Nodes of a graph follow each other faster, except for copies.
    let nodes = [(LaunchesFree, 210.392), (DeviceOnly, 212.0)];
    let hidden = [&nodes[..], &[(CommunicationHidden, 209.0)]].concat();
    between_kernels(OperationClass::Communication, 0).ends(220, &hidden);
    between_kernels(OperationClass::Memset, 0).ends(220, &nodes);
}

#[test]
fn copies_beside_a_stream_wait_for_each_other() {
    let mut program = program();
    program.kernel((0, 5), (8, 108));
    program.launch((5, 10), 7, OperationClass::CopyFromHost, (109, 209));
    program.launch((10, 15), 7, OperationClass::CopyFromHost, (210, 310));
    // From 10 to 110 and from there to 210.
    program.ends(310, &[(CopiesOverlapped, 210.0), (LaunchesFree, 302.0), (DeviceOnly, 302.0)]);
}

#[test]
fn what_another_stream_waited_for_is_the_end_right_before_it() {
    let with_second = |begin: u64| {
        let mut program = program();
        program.kernel((0, 5), (8, 108)).launch((5, 10), 8, KERNEL, (begin, begin + 10));
        program
    };
    with_second(110).ends(120, &[(LaunchesFree, 112.0), (DeviceOnly, 112.0)]);
    with_second(123).ends(133, &[(LaunchesFree, 125.0), (DeviceOnly, 125.0)]);
    // More than 15 us after it: the dependency is unknown.
    with_second(124).ends(108, &[(LaunchesFree, 100.0), (DeviceOnly, 100.0)]);
}

#[test]
fn a_launch_that_came_up_to_8_us_ago_explains_a_begin() {
    let with_third = |begin: u64| {
        let mut program = program();
        program.kernel((0, 5), (8, 16)).launch((5, 10), 8, KERNEL, (begin, begin + 100));
        program
    };
    with_third(18).ends(118, &[(LaunchesFree, 100.0), (DeviceOnly, 100.0)]);
    // Then the kernel that ended 3 us ago.
    with_third(19).ends(119, &[(LaunchesFree, 111.0), (DeviceOnly, 111.0)]);
}

#[test]
fn a_stream_goes_on_when_all_of_it_is_done() {
    // Two nodes of a graph run at once on what is reported as one stream.
    let mut program = program();
    program.kernel((0, 5), (8, 108)).kernel((5, 10), (13, 107)).kernel((10, 15), (109, 119));
    program.ends(120, &[(LaunchesFree, 111.196), (DeviceOnly, 112.0)]);
}

#[test]
fn a_copy_that_outlasts_its_call_was_staged_and_page_locked_memory_is_not() {
    // The call waits for the copy to start and returns while its last piece is in flight; a wait directly
    // after it is for the copy, too.
    let mut program = program();
    program.launch((0, 60), 7, OperationClass::CopyFromHost, (20, 70));
    program.call(CallClass::Wait, 60, 80).kernel((80, 85), (88, 188));
    // Issuing takes 12 us each.
    program.ends(188, &[(CopiesOverlapped, 132.0), (NoSyncs, 170.9), (LaunchesFree, 160.0), (DeviceOnly, 150.9)]);
}

#[test]
fn a_call_within_a_call_leads_to_that() {
    let mut within = program();
    within.call(CallClass::Launch, 0, 10).kernel((2, 8), (13, 23));
    within.ends(23, &[(LaunchesFree, 10.0), (DeviceOnly, 10.0)]);
    // One that is entered as the other returns is a different call.
    let mut behind = program();
    behind.call(CallClass::Wait, 0, 10).kernel((10, 15), (18, 28));
    behind.ends(28, &[(LaunchesFree, 10.0), (DeviceOnly, 10.0)]);
}

/// A thread launches `launches` kernels of 1 us, one every 5 us; another, new thread enters CUDA at `at`.
fn handed_over(launches: u64, at: u64) -> Program {
    let mut program = program();
    for index in 0..launches {
        program.kernel((5 * index, 5 * index + 5), (5 * index + 8, 5 * index + 9));
    }
    let correlation = CorrelationId(1_000);
    let call = Call {
        thread: ThreadId(2),
        start: time(at),
        end: time(at + 5),
        class: CallClass::Launch,
        correlation,
        tracing_ns: 0,
    };
    program.simulation.call(&call);
    program.simulation.operation(&Operation {
        start: time(at + 8),
        end: time(at + 9),
        device: DEVICE,
        stream: StreamId(7),
        class: KERNEL,
        launch: Some(LaunchedBy { correlation, start: time(at) }),
        excess: 0,
        tracing_ns: 0,
        node: false,
        bytes: 0,
        kernel: 0,
    });
    program
}

#[test]
fn a_new_thread_goes_on_where_the_launching_one_returned() {
    // Six nodes 0.096 us apart, and the seventh after them.
    handed_over(6, 40).ends(49, &[(LaunchesFree, 7.576), (DeviceOnly, 12.4)]);
    handed_over(6, 30).ends(39, &[(LaunchesFree, 7.576), (DeviceOnly, 12.4)]);
    // A thread with five launches does not hand over: the new one starts at its real time.
    handed_over(5, 40).ends(49, &[(LaunchesFree, 41.0), (DeviceOnly, 41.0)]);
}

#[test]
fn boundaries_behind_the_watermark_are_counted_and_left_out() {
    let series = StepSeries { source: StepSource::Annotated, period: 0 };
    let mut simulation = Simulation::new();
    simulation.advance(time(100));
    simulation.step_boundary(DEVICE, time(100), series);
    assert_eq!(simulation.late_boundaries(), 0);
    simulation.step_boundary(DEVICE, time(100) - 1, series);
    simulation.step_boundary(DEVICE, time(5), series);
    assert_eq!(simulation.late_boundaries(), 2);
    simulation.advance(time(50));
    simulation.step_boundary(DEVICE, time(99), series);
    assert_eq!(simulation.late_boundaries(), 3, "the watermark never goes back");
    simulation.stop();
    simulation.step_boundary(DEVICE, time(5), series);
    assert_eq!(simulation.late_boundaries(), 0, "nothing is known any more");
}

#[test]
fn what_is_not_explained_is_counted_while_the_device_was_idle() {
    let series = StepSeries { source: StepSource::Annotated, period: 0 };
    let unexplained = |begin: u64, beside: bool| {
        let mut program = program();
        program.kernel((0, 5), (8, 18));
        if beside {
            program.launch((5, 10), 9, KERNEL, (13, 513));
        }
        program.launch((20, 25), 8, KERNEL, (begin, begin + 10));
        // The stream of the first kernel continues later than any edge explains.
        program.kernel((600, 605), (begin + 600, begin + 610));
        for at in [18, begin, begin + 600] {
            program.simulation.step_boundary(DEVICE, time(at), series);
        }
        program.simulation.advance(u64::MAX);
        program.simulation.steps(DEVICE, series).iter().map(|row| row.unexplained / 1_000).sum::<u64>()
    };
    assert_eq!(unexplained(45, false), 0);
    assert_eq!(unexplained(200, false), 155);
    assert_eq!(unexplained(200, true), 0, "the device was busy");
}

#[test]
fn each_cause_has_its_additive_bound() {
    let mut leaves = [0; LEAF_COUNT];
    for (index, nanos) in leaves.iter_mut().enumerate() {
        *nanos = 1 << index;
    }
    let total: u64 = leaves.iter().sum::<u64>() - leaves[Leaf::NoWork as usize];
    // More compute than all that it could hide.
    leaves[Leaf::Compute as usize] = 1 << 40;
    let more = (1 << 40) - 1;
    let best_cases = BestCase::additive(&leaves, 0);
    let step =
        |kind| best_cases.iter().find(|best_case| best_case.kind == kind).expect("every cause has a bound").step_ns;
    let launch = [Leaf::Dispatch, Leaf::LaunchApi, Leaf::LaunchLatency, Leaf::InterKernel];
    assert_eq!(step(DataReady), more + total - (1 << Leaf::DataLoading as usize));
    assert_eq!(step(LaunchesFree), more + total - launch.map(|leaf| 1 << leaf as usize).iter().sum::<u64>());
    assert_eq!(step(NoSyncs), more + total - (1 << Leaf::SyncDrain as usize));
    assert_eq!(step(NoAllocations), more + total - (1 << Leaf::Allocator as usize));
    assert_eq!(step(CommunicationHidden), more + total - (1 << Leaf::Communication as usize));
    let copies: u64 =
        Leaf::ALL.into_iter().filter(|leaf| leaf.name().starts_with("copy_")).map(|leaf| leaves[leaf as usize]).sum();
    assert_eq!(step(CopiesOverlapped), more + total - copies, "a memset is no copy");
    // Time of another process, and time without a known cause, is not the host's.
    let stays = |leaf: &Leaf| leaf.is_busy() || matches!(leaf.cause(), Cause::OtherProcess | Cause::CannotTell);
    let rest: u64 = Leaf::ALL.into_iter().filter(stays).map(|leaf| leaves[leaf as usize]).sum();
    assert_eq!(step(DeviceOnly), rest);
    // As much communication and copying with pinned memory as there is compute can be hidden beneath it.
    let mut leaves = [0; LEAF_COUNT];
    leaves[Leaf::Compute as usize] = 30;
    leaves[Leaf::Communication as usize] = 50;
    leaves[Leaf::CopyD2hPageable as usize] = 7;
    leaves[Leaf::CopyP2p as usize] = 40;
    let best_cases = BestCase::additive(&leaves, 0);
    let step =
        |kind| best_cases.iter().find(|best_case| best_case.kind == kind).expect("every cause has a bound").step_ns;
    assert_eq!((step(CommunicationHidden), step(CopiesOverlapped)), (127 - 30, 127 - 37));
}

#[test]
fn a_gain_is_worth_a_line_from_one_percent_on() {
    let best_case = |speedup| BestCase { kind: NoSyncs, step_ns: 100, speedup, interval: None };
    assert!(best_case(1.01).is_worth_showing() && !best_case(1.0099).is_worth_showing());
    assert_eq!(best_case(1.25).saved(), 1.0 - 1.0 / 1.25);
}

#[test]
fn a_replay_that_leaves_5_percent_unexplained_or_is_more_than_5_percent_off_is_refused() {
    use profiler_core::whatif::SimulationProblem;
    let series = StepSeries { source: StepSource::Annotated, period: 0 };
    // A launch every millisecond, whose kernel starts `late` microseconds later than a launch explains.
    let judged = |late: [u64; 2]| {
        let mut program = program();
        for step in 0..41 {
            let at = 1_000 * step;
            let begin = at + 25 + late[(step % 2) as usize];
            program.kernel((at, at + 5), (begin, begin + 10));
            program.simulation.step_boundary(DEVICE, time(begin), series);
        }
        program.simulation.advance(u64::MAX);
        let answer = program.simulation.what_if(DEVICE, series, 0).expect("operations ran");
        (answer.refused, answer.best_cases.len(), answer.base_error.expect("steps"))
    };
    // All except the two that remove no cost of the program, and the one that needs counters.
    assert_eq!(judged([0, 0]), (None, SCENARIO_COUNT - 3, 0.0));
    assert_eq!(judged([49, 49]).0, None);
    // With a constant delay, the steps have their real length, but the device still had an unexplained wait.
    assert_eq!(judged([50, 50]), (Some(SimulationProblem::Unexplained(0.05)), 0, 0.0));
    // With an occasional delay, half of the steps are longer and half are shorter than simulated.
    assert_eq!(judged([0, 40]).0, None);
    let (refused, best_cases, error) = judged([0, 60]);
    assert_eq!((refused, best_cases), (Some(SimulationProblem::BaseError(error)), 0));
    assert!((error - 60.0 / 1_060.0).abs() < 1e-9, "{error}");
}

#[test]
fn steps_that_began_before_are_left_out() {
    let series = StepSeries { source: StepSource::Annotated, period: 0 };
    let mut program = program();
    for step in 0..10 {
        let at = 1_000 * step;
        program.kernel((at, at + 5), (at + 8, at + 18));
        program.simulation.step_boundary(DEVICE, time(at + 8), series);
    }
    program.simulation.advance(u64::MAX);
    // A step counts from when the device had finished the work before it: 18, 1,018 and so on; the last one
    // is open.
    let steps = |since| program.simulation.what_if(DEVICE, series, since).expect("operations ran").steps;
    assert_eq!([0, time(18), time(18) + 1, time(4_018), time(4_019), time(20_000)].map(steps), [8, 8, 7, 4, 3, 0]);
    let none = StepSeries { source: StepSource::Period, period: 3 };
    assert_eq!(program.simulation.what_if(DEVICE, none, 0).expect("operations ran").steps, 0);
    assert!(program.simulation.what_if(DeviceId(1), series, 0).is_none(), "nothing ran there");
}
