//! Joins, sizes and times of synthetic programs.

use gpuwhy_trace::collective::{
    Algorithm, CollectiveEvent, Communicator, DataType, Execution, Function, Protocol, QueuedOperation,
};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, ApiFunctionId, ContextId, CorrelationId, DeviceId, Kernel, LaunchConfig,
    LaunchConfigId, Record, StreamId, ThreadId, Timestamp,
};

use super::{Basis, Collective, CollectiveTable, Joiner, Overlap, Unjoined, arithmetic, join};

const MS: u64 = 1_000_000;
const START: u64 = 1_790_000_000_000_000_000;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(START + nanos)
}

/// A program of one thread with a computing kernel, an all-reduce kernel, and calls that launch them.
struct Program {
    dictionary: Dictionary,
    launch: ApiFunctionId,
    other: ApiFunctionId,
    compute: LaunchConfigId,
    nccl: LaunchConfigId,
    joiner: Joiner,
}

impl Program {
    fn new() -> Self {
        let mut dictionary = Dictionary::new();
        let mut function = |name: &str, callback_id| {
            let name = dictionary.intern_name(name);
            dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Driver, callback_id, name })
        };
        let (launch, other) = (function("cuLaunchKernelEx", 1), function("cuStreamWaitEvent", 2));
        let mut config = |name: &str| {
            let name = dictionary.intern_name(name);
            dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() })
        };
        let (compute, nccl) = (config("gemm"), config("ncclDevKernel_AllReduce_Sum_f32_RING_LL"));
        let mut joiner = Joiner::default();
        let name = dictionary.intern_name("dp");
        let communicator = Communicator { number: 1, id: 0xabc, name, nodes: 1, ranks: 4, rank: 2 };
        joiner.event(&CollectiveEvent::Communicator(communicator));
        Self { dictionary, launch, other, compute, nccl, joiner }
    }

    fn call(&mut self, function: ApiFunctionId, thread: u32, start: u64, correlation: u32) {
        let call = ApiCall {
            start: at(start),
            end: at(start + 4_000),
            thread: ThreadId(thread),
            correlation: CorrelationId(correlation),
            function,
            return_value: 0,
        };
        self.joiner.push(&Record::Api(call), &self.dictionary);
    }

    fn kernel(&mut self, config: LaunchConfigId, (start, end): (u64, u64), correlation: u32, graph_id: u32) {
        let kernel = Kernel {
            start: at(start),
            end: at(end),
            device: DeviceId(0),
            context: ContextId(1),
            stream: StreamId(7),
            correlation: CorrelationId(correlation),
            config,
            graph_id,
            graph_node_id: graph_id.into(),
        };
        self.joiner.push(&Record::Kernel(kernel), &self.dictionary);
    }

    fn operation(&mut self, sequence: u64, thread: u32, reported: u64, launch: Option<(u64, u64)>) {
        let (begin, end) = launch.map_or_else(Default::default, |(begin, end)| (at(begin), at(end)));
        self.joiner.event(&CollectiveEvent::Operation(QueuedOperation {
            communicator: 1,
            thread: ThreadId(thread),
            at: at(reported),
            launch_begin: begin,
            launch_end: end,
            function: Function::AllReduce,
            data_type: DataType::Float32,
            algorithm: Algorithm::Ring,
            protocol: Protocol::Simple,
            channels: 24,
            count: 1 << 20,
            sequence: Some(sequence),
            root_or_peer: 0,
            way: Execution::Kernel,
            by_range: false,
        }));
    }

    /// An all-reduce of 4,096 bytes, as an NVTX range reports it.
    fn range(&mut self, thread: u32, launch: Option<(u64, u64)>) {
        let (begin, end) = launch.map_or_else(Default::default, |(begin, end)| (at(begin), at(end)));
        self.joiner.event(&CollectiveEvent::Operation(QueuedOperation {
            communicator: 1,
            thread: ThreadId(thread),
            at: launch.map_or(at(5 * MS), |(_, end)| at(end)),
            launch_begin: begin,
            launch_end: end,
            function: Function::AllReduce,
            count: 4_096,
            by_range: true,
            ..QueuedOperation::default()
        }));
    }

    fn finish(&mut self) -> Vec<Collective> {
        let mut rows = Vec::new();
        self.joiner.finish(at(1 << 60), |row| rows.push(*row));
        rows
    }
}

#[test]
fn the_launch_that_nccl_tells_leads_to_the_kernel_among_launches_of_other_kernels() {
    let mut program = Program::new();
    let (launch, other, nccl, compute) = (program.launch, program.other, program.nccl, program.compute);
    // A launch right before and right after, on the same thread, and one at the same time on another thread.
    program.call(launch, 5, 90_000, 1);
    program.call(other, 5, 101_000, 99);
    program.call(launch, 5, 110_000, 2);
    program.call(launch, 6, 110_000, 3);
    program.call(launch, 5, 130_000, 4);
    program.operation(17, 5, 121_000, Some((100_000, 120_000)));
    program.kernel(compute, (100_000, 400_000), 1, 0);
    program.kernel(nccl, (300_000, 900_000), 2, 0);
    program.kernel(nccl, (900_000, 950_000), 3, 0);
    program.kernel(compute, (700_000, 800_000), 4, 0);
    let rows = program.finish();
    assert_eq!(rows.len(), 2);
    let expected = Collective {
        communicator: 0xabc,
        ranks: 4,
        function: Function::AllReduce,
        sequence: Some(17),
        ordinal: 0,
        bytes: 4 << 20,
        data_type: DataType::Float32,
        algorithm: Algorithm::Ring,
        protocol: Protocol::Simple,
        channels: 24,
        root_or_peer: 0,
        operations_in_kernel: 1,
        queued: at(100_000),
        start: at(300_000),
        end: at(900_000),
        // 600 us, less 100 us of the first and 100 us of the last computing kernel.
        exposed_ns: 400_000,
        device: DeviceId(0),
        stream: StreamId(7),
        correlation: CorrelationId(2),
        graph: 0,
        graph_node: 0,
        basis: Basis::Plugin,
    };
    assert_eq!(rows[0], expected);
    assert_eq!((rows[1].basis, rows[1].communicator, rows[1].bytes), (Basis::KernelName, 0, 0));
    assert_eq!(program.joiner.unjoined(), Unjoined { kernels: 1, ..Unjoined::default() });
}

#[test]
fn an_operation_of_a_range_has_the_only_launch_in_it_and_is_guessed_nowhere_else() {
    let mut program = Program::new();
    program.joiner.event(&CollectiveEvent::Communicator(Communicator { number: 1, id: 0xabc, ..Default::default() }));
    let (launch, nccl) = (program.launch, program.nccl);
    // One launch, reported twice (runtime and driver), followed by another launch of the thread.
    program.call(launch, 5, 110_000, 1);
    program.call(launch, 5, 110_500, 1);
    program.call(launch, 5, 200_000, 2);
    program.range(5, Some((100_000, 120_000)));
    // Two launches; none; the launch of another thread; a range without a launch.
    program.call(launch, 5, MS + 10_000, 3);
    program.call(launch, 5, MS + 20_000, 4);
    program.range(5, Some((MS, MS + 50_000)));
    program.range(5, Some((2 * MS, 2 * MS + 10_000)));
    program.call(launch, 6, 3 * MS + 1_000, 5);
    program.range(5, Some((3 * MS, 3 * MS + 10_000)));
    program.range(5, None);
    for correlation in 1..=5 {
        let start = (10 + u64::from(correlation)) * MS;
        program.kernel(nccl, (start, start + 500_000), correlation, 0);
    }
    let rows = program.finish();
    let reported: Vec<_> = rows.iter().map(|row| (row.correlation.0, row.basis, row.communicator, row.bytes)).collect();
    let by_name = |correlation| (correlation, Basis::KernelName, 0, 0);
    assert_eq!(reported, [(1, Basis::Range, 0xabc, 4_096), by_name(2), by_name(3), by_name(4), by_name(5)]);
    assert_eq!((rows[0].ranks, rows[0].data_type, rows[0].sequence), (0, DataType::Unknown, None));
    assert_eq!(program.joiner.unjoined(), Unjoined { operations: 4, kernels: 4, ..Unjoined::default() });
}

#[test]
fn without_launches_the_last_launch_of_the_thread_is_taken_and_said_to_rest_on_order() {
    let mut program = Program::new();
    let (launch, nccl) = (program.launch, program.nccl);
    for step in 0..3 {
        program.call(launch, 5, step * MS, step as u32 + 1);
        program.call(launch, 6, step * MS + 2_000, step as u32 + 10);
        program.operation(step, 5, step * MS + 10_000, None);
        // Kernels run much later.
        program.kernel(nccl, (10 * MS + step * MS, 10 * MS + step * MS + 500_000), step as u32 + 1, 0);
    }
    let rows = program.finish();
    let joined: Vec<_> = rows.iter().map(|row| (row.sequence, row.correlation.0, row.basis)).collect();
    assert_eq!(joined, [0, 1, 2].map(|step| (Some(step), step as u32 + 1, Basis::Order)));
    assert_eq!(program.joiner.unjoined(), Unjoined::default());
}

#[test]
fn operations_of_one_launch_are_one_kernel_and_its_time_counts_once() {
    let mut program = Program::new();
    let (launch, nccl) = (program.launch, program.nccl);
    program.call(launch, 5, 110_000, 2);
    for sequence in 0..3 {
        program.operation(sequence, 5, 121_000 + sequence, Some((100_000, 120_000)));
    }
    program.kernel(nccl, (300_000, 900_000), 2, 0);
    let rows = program.finish();
    assert!(rows.iter().all(|row| row.operations_in_kernel == 3), "{rows:?}");
    let mut table = CollectiveTable::default();
    rows.iter().for_each(|row| table.add(row));
    let [row] = table.rows()[..] else { panic!("{:?}", table.rows()) };
    assert_eq!((row.kernels, row.grouped, row.operations, row.bytes), (1, 1, 3, 12 << 20));
    assert_eq!((row.time_ns, row.exposed_ns, row.hidden_ns(), row.bases), (600_000, 600_000, 0, [1, 0, 0, 0]));
    // 12 MiB in 600 us; a ring of four moves 1.5 times that over each link.
    let (algorithm, bus) = (row.algorithm_bandwidth().unwrap(), row.bus_bandwidth().unwrap());
    assert!((algorithm - f64::from(12 << 20) / 600e-6).abs() < 1.0, "{algorithm}");
    assert!((bus / algorithm - 1.5).abs() < 1e-9, "{bus}");
}

#[test]
fn host_functions_join_by_order_and_graphs_are_reported_by_name() {
    let mut program = Program::new();
    let nccl = program.nccl;
    // Reported on a thread that launches nothing.
    program.operation(3, 9, MS, None);
    program.kernel(nccl, (2 * MS, 3 * MS), 40, 8);
    program.kernel(nccl, (4 * MS, 5 * MS), 40, 8);
    let captured = QueuedOperation { way: Execution::Captured, ..QueuedOperation::default() };
    program.joiner.event(&CollectiveEvent::Operation(captured));
    let rows = program.finish();
    let reported: Vec<_> = rows.iter().map(|row| (row.sequence, row.graph, row.basis)).collect();
    assert_eq!(reported, [(Some(3), 8, Basis::Order), (None, 8, Basis::KernelName)]);
    let unjoined = program.joiner.unjoined();
    assert_eq!(unjoined, Unjoined { captured: 1, kernels: 1, graph_kernels: 1, ..Unjoined::default() });
}

#[test]
fn rows_come_once_when_their_time_is_final_and_what_never_runs_is_counted() {
    let mut program = Program::new();
    let (launch, nccl, compute) = (program.launch, program.nccl, program.compute);
    let mut rows = Vec::new();
    program.operation(0, 5, 121_000, Some((100_000, 120_000)));
    program.joiner.flushed(at(50_000), |row| rows.push(*row));
    program.call(launch, 5, 110_000, 2);
    program.joiner.flushed(at(MS), |row| rows.push(*row));
    program.kernel(nccl, (300_000, 2 * MS), 2, 0);
    program.joiner.flushed(at(3 * MS), |row| rows.push(*row));
    assert!(rows.is_empty(), "a kernel that began beside it may still run");
    program.kernel(compute, (MS, 500 * MS), 3, 0);
    program.joiner.flushed(at(join::HOLD_NANOS + 3 * MS), |row| rows.push(*row));
    assert_eq!(rows.iter().map(|row| row.exposed_ns).collect::<Vec<_>>(), [700_000]);
    program.operation(1, 5, 600 * MS, Some((599 * MS, 600 * MS)));
    assert_eq!(program.finish().len(), 0);
    assert_eq!(program.joiner.unjoined(), Unjoined { operations: 1, ..Unjoined::default() });
}

#[test]
fn a_program_without_communication_keeps_nothing() {
    let mut program = Program::new();
    program.joiner = Joiner::default();
    let (launch, compute) = (program.launch, program.compute);
    for step in 0..100 {
        program.call(launch, 5, step * MS, step as u32);
        program.kernel(compute, (step * MS, step * MS + 1000), step as u32, 0);
    }
    assert!(!program.joiner.is_active());
    assert!(program.finish().is_empty());
}

#[test]
fn sizes_and_factors_are_those_of_nccl_tests() {
    let size = |function, ranks| arithmetic::bytes(function, DataType::Bfloat16, 100, ranks);
    assert_eq!(size(Function::AllReduce, 8), 200);
    assert_eq!(size(Function::AllGather, 8), 1600);
    assert_eq!(size(Function::ReduceScatter, 8), 1600);
    assert_eq!(size(Function::AllToAll, 8), 1600);
    assert_eq!(size(Function::Broadcast, 8), 200);
    assert_eq!(size(Function::Unknown, 8), 0);
    assert_eq!(arithmetic::bytes(Function::AllReduce, DataType::Unknown, 100, 8), 0);
    for (function, expected) in [
        (Function::AllReduce, 1.75),
        (Function::AllGather, 0.875),
        (Function::ReduceScatter, 0.875),
        (Function::AllToAll, 0.875),
        (Function::Broadcast, 1.0),
        (Function::SendReceive, 1.0),
    ] {
        assert!((arithmetic::bus_factor(function, 8) - expected).abs() < 1e-12, "{function:?}");
        assert!((arithmetic::bus_factor(function, 0) - 1.0).abs() < 1e-12, "{function:?}");
    }
    assert_eq!(arithmetic::algorithm_bandwidth(0, 5), None);
    assert_eq!(arithmetic::algorithm_bandwidth(5, 0), None);
}

#[test]
fn both_directions_of_one_kernel_have_the_size_of_the_larger_one() {
    let mut table = CollectiveTable::default();
    let row = |function, bytes, start: u64| Collective {
        function,
        bytes,
        start: at(start),
        end: at(start + 1000),
        basis: Basis::Plugin,
        operations_in_kernel: 2,
        ..Collective::default()
    };
    table.add(&row(Function::Send, 700, 0));
    table.add(&row(Function::Receive, 900, 0));
    table.add(&row(Function::AllReduce, 100, 5000));
    table.add(&row(Function::Broadcast, 100, 5000));
    let rows = table.rows();
    let reported: Vec<_> = rows.iter().map(|row| (row.function, row.bytes, row.sized_ns)).collect();
    assert_eq!(reported, [(Function::Unknown, 0, 0), (Function::SendReceive, 900, 1000)]);
}

#[test]
fn names_of_nccl_and_of_kernels_are_recognized_and_codes_come_back() {
    assert_eq!(Function::from_nccl(b"Recv"), Function::Receive);
    assert_eq!(Function::from_nccl(b"PutSignal"), Function::Unknown);
    assert_eq!(DataType::from_nccl(b"ncclBfloat16").bytes(), 2);
    assert_eq!(Algorithm::from_nccl(b"NVLS_TREE"), Algorithm::NvlsTree);
    assert_eq!(Protocol::from_nccl(b"LL128"), Protocol::Ll128);
    for (name, function) in [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Function::AllReduce),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", Function::ReduceScatter),
        ("ncclDevKernel_SendRecv", Function::SendReceive),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", Function::Reduce),
        ("void vllm::cross_device_reduce_1stage<half, 2>", Function::AllReduce),
        ("ncclSymkDevKernel_AllGather_LL", Function::AllGather),
        ("deep_ep::internode::dispatch", Function::Unknown),
    ] {
        assert_eq!(Function::of_kernel(name), function, "{name}");
    }
    assert!(Function::ALL.iter().all(|&function| Function::from_code(function.code().into()) == function));
    assert_eq!(Function::from_code(200), Function::Unknown);
}

#[test]
fn computing_time_is_a_union_and_what_nobody_asks_for_goes() {
    let mut overlap = Overlap::default();
    for (start, end) in [(10, 20), (15, 30), (40, 50), (5, 5), (60, 55)] {
        overlap.push(at(start), at(end));
    }
    overlap.merge();
    assert_eq!(overlap.covered(at(0), at(100)), 30);
    assert_eq!(overlap.covered(at(18), at(42)), 14);
    assert_eq!(overlap.covered(at(30), at(40)), 0);
    // Later intervals may lie before, between and after the known ones, and join separate ones.
    for (start, end) in [(1, 3), (30, 40), (55, 58)] {
        overlap.push(at(start), at(end));
    }
    overlap.merge();
    assert_eq!(overlap.covered(at(0), at(100)), 2 + 40 + 3);
    assert_eq!(overlap.covered(at(2), at(56)), 1 + 40 + 1);
    overlap.forget(at(50));
    assert_eq!((overlap.covered(at(0), at(100)), overlap.lost()), (3, 0));
}
