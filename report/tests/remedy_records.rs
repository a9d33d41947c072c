//! Each remedy with a record on which it speaks and one on which it must not, though something there is like it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use crate::attribution_bottlenecks::rows;
use crate::bottleneck_host::{judge, judge_simulated, line};
use crate::remedies::*;
use crate::support::{Scenario, gpu};
use crate::{attribution_other_process, bottleneck_launch, counted, host_lock};
use gpuwhy_report::capture::Captures;
use gpuwhy_report::run::remedies::{RemedyEntry, opened_by_lines, remedies, remedy};
use gpuwhy_report::run::{Bottleneck, DeviceReport, LineRow, bottleneck_of};
use gpuwhy_trace::completeness::Completeness;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceReader;
use gpuwhy_trace::geometry::Limiter;
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::{
    CopyKind, Device, DeviceId, HostSample, ManagedEvent, ManagedKind, MemoryKind, Record, ThreadState, Timestamp,
};
use profiler_core::attribution::SampleTotals;
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::counters::roofs::Limit;
use profiler_core::leaf::Leaf;
use profiler_core::whatif::ScenarioKind;

pub(crate) type Frame = (&'static str, &'static str, u32);

pub(crate) const TRAIN: Frame = ("/home/u/train.py", "main", 42);
const SITE: &str = "/usr/lib/python3.12/site-packages/";
const CLIP: Frame = ("/usr/lib/python3.12/site-packages/torch/nn/utils/clip_grad.py", "_get_total_norm", 90);
const CACHE: Frame = ("/usr/lib/python3.12/site-packages/transformers/cache_utils.py", "DynamicCache.update", 120);
const GEOMETRIC: Frame = ("/usr/lib/python3.12/site-packages/torch_geometric/utils/loop.py", "add_self_loops", 30);
const AVERAGE: Frame = ("/usr/lib/python3.12/site-packages/timm/utils/model_ema.py", "ModelEmaV2._update", 120);
const ANOMALY: Frame = ("/usr/lib/python3.12/site-packages/torch/autograd/anomaly_mode.py", "__enter__", 90);
pub(crate) const SINGLE: Frame = ("/usr/lib/python3.12/site-packages/torch/optim/adam.py", "_single_tensor_adam", 400);
const PRIMITIVE: Frame = ("/usr/lib/python3.12/site-packages/jax/_src/dispatch.py", "apply_primitive", 90);
const CUPY: Frame = ("/usr/lib/python3.12/site-packages/cupy/cuda/compiler.py", "_compile", 300);
const CONVOLUTION: Frame = ("/usr/lib/python3.12/site-packages/torch/nn/modules/conv.py", "Conv2d._conv_forward", 500);
const ATTENTION: Frame = ("/usr/lib/python3.12/site-packages/transformers/integrations/sdpa_attention.py", "sdpa", 40);
const SELECT: &str = "void at_cuda_detail::cub::DeviceSelectSweepKernel<int>(int)";
const COMPACT: &str = "void at_cuda_detail::cub::DeviceCompactInitKernel<int>(int)";
const CHECK: &str =
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<bool, at::native::or_kernel_cuda> >(int)";
const REPEAT: &str = "void compute_cuda_kernel<long>(long const*, long const*, long*, long, long)";
const FUSION: &str = "loop_add_fusion";
const CUPY_ADD: &str = "cupy_add__float32_float32_float32";
const CUPY_SIN: &str = "cupy_sin__float32_float32";
const CUPY_MULTIPLY: &str = "cupy_multiply__float32_float32_float32";
const CUPY_SUM: &str = "cupy_sum__float32_float32";
const NCCL: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
const FOREACH: [&str; 5] = ["LerpFunctor", "Sqrt", "std::plus", "std::multiplies", "std::divides"];

/// One thing that the launching thread does.
#[derive(Clone, Copy)]
pub(crate) enum Do {
    /// Launches a kernel of this duration, on so many blocks.
    Kernel(&'static str, u64, u32),
    /// Reads so many bytes, and waits for them.
    Read(MemoryKind, u64),
    /// Copies so many bytes to the GPU, for so long.
    Send(MemoryKind, u64, u64),
    /// Copies so many bytes to the CPU, for so long.
    Fetch(MemoryKind, u64, u64),
    /// Waits for the GPU in this function.
    Wait(&'static str),
    /// Is in this call for so long.
    Call(&'static str, u64),
    /// Is outside of CUDA for so long.
    Away(u64),
    /// Is in this frame from here on.
    In(Frame),
}
use Do::{Away, Call, Fetch, In, Kernel, Read, Send, Wait};

/// Repeats this on an H200, with a sample in each call and each 500 us outside.
fn program(steps: u64, step: &[Do]) -> Scenario {
    let mut scenario = Scenario::new();
    scenario.dictionary.add_device(Device {
        name: "NVIDIA H200".to_owned(),
        multiprocessors: 132,
        compute_capability: [9, 0],
        threads_per_multiprocessor: 2_048,
        blocks_per_multiprocessor: 32,
        registers_per_multiprocessor: 65_536,
        shared_bytes_per_multiprocessor: 233_472,
        ..Device::default()
    });
    let (mut at, mut free, mut since) = (1_000, 0, 1_000);
    for _ in 0..steps {
        let mut frames = vec![TRAIN];
        let mut seen = |scenario: &mut Scenario, at: u64, frames: &[Frame]| {
            let sample =
                HostSample { state: ThreadState::Running, on_cpu: (at - since) * 1_000, ..HostSample::default() };
            scenario.sample(1, since, at, sample, frames);
            since = at;
        };
        for &doing in step {
            let start = (at + 8).max(free + 1);
            match doing {
                Kernel(name, lasting, blocks) => {
                    gpu(0).kernel(name).blocks(blocks).at(start).lasting(lasting).launched(&mut scenario, 1, at, 5);
                    seen(&mut scenario, at + 2, &frames);
                    (at, free) = (at + 8, start + lasting);
                }
                Read(memory, bytes) => {
                    let call = scenario.call(1, "cudaMemcpyAsync_v3020", at, start + 4 - at);
                    scenario.add(gpu(0).d2h(memory, bytes).at(start).lasting(2).by(call));
                    seen(&mut scenario, at + 2, &frames);
                    scenario.call(1, "cudaStreamSynchronize_v3020", start + 5, 3);
                    (at, free) = (start + 12, start + 2);
                }
                Send(memory, bytes, lasting) | Fetch(memory, bytes, lasting) => {
                    let waits = if memory == MemoryKind::Pageable { start + lasting - at } else { 5 };
                    let call = scenario.call(1, "cudaMemcpyAsync_v3020", at, waits);
                    let is_sent = matches!(doing, Send(..));
                    let copy = if is_sent { gpu(0).h2d(memory, bytes) } else { gpu(0).d2h(memory, bytes) };
                    scenario.add(copy.at(start).lasting(lasting).by(call));
                    seen(&mut scenario, at + 2, &frames);
                    (at, free) = (at + waits + 3, start + lasting);
                }
                Wait(function) => {
                    let until = (free + 4).max(at + 4);
                    scenario.call(1, function, at, until - at);
                    seen(&mut scenario, at + 2, &frames);
                    at = until + 3;
                }
                Call(function, lasting) => {
                    scenario.call(1, function, at, lasting);
                    seen(&mut scenario, at + 2, &frames);
                    at += lasting + 3;
                }
                Away(lasting) => {
                    for past in (250..lasting).step_by(500) {
                        seen(&mut scenario, at + past, &frames);
                    }
                    at += lasting;
                }
                In(TRAIN) => frames = vec![TRAIN],
                In(frame) => frames = vec![frame, TRAIN],
            }
        }
    }
    scenario
}

/// A run of at least 300 steps and 6,000 things.
pub(crate) fn run(step: &[Do]) -> Bottleneck {
    program((6_000 / step.len() as u64).max(300), step).report().bottleneck
}
/// A recorded program (testing/fixtures/traces).
fn trace(name: &str) -> Bottleneck {
    trace_until(name, u64::MAX)
}

/// A recorded program, without its records after this many nanoseconds.
pub(crate) fn trace_until(name: &str, nanos: u64) -> Bottleneck {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../testing/fixtures/traces/{name}.gpuwhy"));
    let mut reader = TraceReader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    let mut captures = Captures::new(None);
    let mut last = Timestamp::ZERO;
    let end = reader.session().start.nanos().saturating_add(nanos);
    while let Some(event) = reader.next_event().unwrap() {
        if let Event::Flush(at) = event
            && at.nanos() > end
        {
            break;
        }
        captures.event(&event, reader.session(), reader.dictionary());
        if let Event::Flush(at) | Event::End(_, at) = event {
            last = last.max(at);
        }
    }
    captures.finish(last, reader.session(), reader.dictionary());
    captures.report(reader.session(), reader.dictionary(), End::Clean, Vec::new()).bottleneck
}

/// A program that waits for its CPU, which does this at line 42, in a function of this file.
fn host(cause: HostCause, within: Option<(&str, &str)>) -> Bottleneck {
    let within = within.map(|(function, file)| (function.to_owned(), file.to_owned()));
    judge(cause.leaf(), &[(cause, 550)], &[LineRow { within, ..line(cause, 42, 0.55, None) }])
}

pub(crate) fn many(count: usize, part: &[Do]) -> Vec<Do> {
    part.repeat(count)
}

/// A device that computes all the time, changed like this.
fn changed(change: impl Fn(&mut DeviceReport)) -> Bottleneck {
    let scenario = program(300, &[Kernel("own_kernel(float*)", 400, 4_096), Wait("cudaStreamSynchronize_v3020")]);
    let attributor = scenario.run();
    let mut device = scenario.report_of(&attributor).devices.remove(0);
    change(&mut device);
    let completeness = Completeness { kernels: 300, api_calls: 600, ..Completeness::default() };
    bottleneck_of(&attributor, &[device], None, &completeness)
}

/// The same, with all of the time at this limit.
fn limited(limit: Limit) -> Bottleneck {
    limited_by(&[(limit, 1.0)], true)
}

/// The same, with these parts of the time at these limits, and limits of its kernel: its `own`, or a mean of several.
fn limited_by(parts: &[(Limit, f64)], own: bool) -> Bottleneck {
    let sampled = counted::report(&counted::Program::new(300, false).sample(1_000_000, 1.0).delivered(100_000_000));
    let limits = sampled.devices[0].limits.clone();
    let mut named = sampled.devices[0].kernels.iter().find_map(|row| row.limits).unwrap();
    named.limits.own = own;
    changed(|device| {
        device.limits = limits.clone().map(|mut limits| {
            let total: u64 = limits.steady.times.iter().sum();
            limits.steady.times.fill(0);
            for &(limit, part) in parts {
                limits.steady.times[limit as usize] = (part * total as f64) as u64;
            }
            limits.step = None;
            limits
        });
        device.kernels[0].limits = Some(named);
    })
}

/// Each step ends with work of the CPU in these frames that ends in the loading of a kernel.
fn building(kernel: &'static str, frame: Option<Frame>) -> Bottleneck {
    let mut step = many(100, &[Kernel(kernel, 30, 4_096), Away(20)]);
    step.extend(frame.map(In));
    step.extend([Away(5_900), Call("cuLibraryLoadData", 60)]);
    let scenario = program(150, &step);
    match frame {
        Some(_) => scenario.report().bottleneck,
        None => without_samples(scenario).report().bottleneck,
    }
}

fn without_samples(mut scenario: Scenario) -> Scenario {
    scenario.records.retain(|(_, record)| !matches!(record, Record::Sample(_)));
    scenario
}

/// 60 tensors that an optimizer updates one by one, in these frames.
pub(crate) fn updates(frame: Frame) -> Bottleneck {
    let mut step = vec![Kernel(HALF_PRODUCT, 5, 4_096), In(frame)];
    step.extend(many(60, &[Kernel(MUL, 2, 8), Kernel(ADDCDIV, 2, 8)]));
    step.push(In(TRAIN));
    run(&step)
}

/// Graphs of so many kernels each.
fn graphs(nodes: u64) -> Bottleneck {
    let mut scenario = Scenario::new();
    for launch in 0..4_000 {
        let at = 1_000 + launch * (20 + 3 * nodes);
        let call = scenario.call(1, "cudaGraphLaunch_v10000", at, 10);
        for node in 0..nodes {
            let work = gpu(0).kernel(["a", "b", "c"][(node % 3) as usize]);
            scenario.add(work.at(at + 15 + 3 * node).lasting(1).of_graph(3).by(call));
        }
    }
    scenario.report().bottleneck
}

/// Steps of one kernel in a call that lasts as long as the kernel, or of ordinary length.
fn blocking(waits: bool) -> Bottleneck {
    let mut scenario = Scenario::new();
    for step in 0..2_000 {
        let at = 1_000 + step * 150;
        let lasts = if waits { 130 } else { 5 };
        gpu(0).kernel(["a", "b"][(step % 2) as usize]).at(at + 8).lasting(100).launched(&mut scenario, 1, at, lasts);
    }
    scenario.report().bottleneck
}

#[expect(clippy::too_many_lines, reason = "a table of records")]
fn record(name: &str) -> Bottleneck {
    let rest = (HALF_PRODUCT, 100);
    let read = Read(MemoryKind::Pinned, 4);
    let small = |name| Kernel(name, 3, 8);
    let gelu = [POW, MUL, ADD, MUL, TANH, ADD, MUL].map(|name| (name, 3));
    let norm = [POW, MEAN, ADD, RSQRT, MUL, MUL].map(|name| (name, 3));
    let rope = [MUL, NEGATE, CAT, MUL, ADD].map(|name| (name, 3));
    let selection = [small(COMPACT), small(SELECT), read];
    let launches = many(3, &[MUL, TANH, POW, ADD, RSQRT, MEAN, SOFTMAX, FILL].map(small));
    let copy = |memory, bytes, lasts| [Send(memory, bytes, lasts), Kernel(MUL, 30, 4_096)];
    let foreach: Vec<&'static str> = FOREACH
        .map(|of| format!("void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, {of}>(int)"))
        .map(|name| &*name.leak())
        .to_vec();
    match name {
        // Kernels of a GPU that works all the time.
        "fp32 convolutions in NCHW" => computing(&[(FP32_CONVOLUTION, 900), rest]).bottleneck,
        "fp32 convolutions in NHWC" => {
            computing(&[(&FP32_CONVOLUTION.replace("nchwkcrs_nchw", "nhwckrsc_nhwc"), 900), rest]).bottleneck
        }
        "fp32 products" => computing(&[(FP32_PRODUCT, 900), rest]).bottleneck,
        "fp32 products on Volta" => on_device(&[(FP32_PRODUCT, 900), (MUL, 50)], [7, 0], true).bottleneck,
        "fp32 convolutions on Volta" => on_device(&[(FP32_CONVOLUTION, 900), (MUL, 50)], [7, 0], true).bottleneck,
        "short fp32 kernels, launched late" => {
            launching(&[(FP32_PRODUCT, 5), (FP32_CONVOLUTION, 5), (FP32_ATTENTION, 5), (MIXED, 5)]).bottleneck
        }
        "large products in 16 bits" => computing(&[(HALF_PRODUCT, 900)]).bottleneck,
        "short products in 16 bits" => computing(&[(HALF_PRODUCT, 30), (FLASH, 40)]).bottleneck,
        "casts of weights" => computing(&[(TO_HALF, 300), rest, (TO_HALF, 300), (HALF_PRODUCT, 101)]).bottleneck,
        "attention by hand" => {
            let chain = [rest, (TO_FLOAT, 200), (MUL, 200), (SOFTMAX, 200), (TO_HALF, 100), (HALF_PRODUCT, 101)];
            computing(&chain).bottleneck
        }
        "a softmax of a loss" => {
            let gradient = SOFTMAX.replace("forward", "backward");
            computing(&[rest, (SOFTMAX, 200), (POW, 30), (MEAN, 30), (&gradient, 200), (HALF_PRODUCT, 101)]).bottleneck
        }
        "operands of two types" => computing(&[(MIXED, 500), rest]).bottleneck,
        "doubles" => computing(&[(DOUBLES, 500), rest]).bottleneck,
        "elements of eight bytes" => {
            computing(&[(&DOUBLES.replace("CUDAFunctor_add<double>", "clamp"), 500), rest]).bottleneck
        }
        "unaligned operands" => computing(&[(UNALIGNED, 500), rest]).bottleneck,
        "16-bit convolutions on CUDA cores" => computing(&[(HALF_WITHOUT_TENSOR_CORES, 500), rest]).bottleneck,
        "16-bit convolutions on tensor cores" => computing(&[(HALF_CONVOLUTION, 500), rest]).bottleneck,
        "copies into another layout" => computing(&[(COPY, 300), rest]).bottleneck,
        "fused attention in fp32" => computing(&[(FP32_ATTENTION, 500), rest]).bottleneck,
        "masks beside fused attention" => computing(&[(FLASH, 500), (FILL, 300), rest]).bottleneck,
        "short fills beside fused attention" => computing(&[(FLASH, 500), (FILL, 5), rest]).bottleneck,
        "three elementwise kernels in a row" => computing(&[(MUL, 300), (ADD, 300), (TANH, 300), rest]).bottleneck,
        "two elementwise kernels in a row" => computing(&[(MUL, 300), (ADD, 300), rest]).bottleneck,
        "kernels of GELU" => launching(&[&[(HALF_PRODUCT, 5)], &gelu[..]].concat()).bottleneck,
        "kernels of RMS norm" => launching(&[&[(HALF_PRODUCT, 5)], &norm[..]].concat()).bottleneck,
        "kernels of rotary embeddings" => launching(&[&[(HALF_PRODUCT, 5)], &rope[..]].concat()).bottleneck,
        "transposed operands" => computing(&[(NEGATE, 300), (COPY, 100), rest]).bottleneck,
        "operands that are broadcast" => computing(&[(NEGATE, 300), rest]).bottleneck,
        "concatenations" => computing(&[(CAT, 300), rest]).bottleneck,
        "scatters beside gathers" => computing(&[(SCATTER, 500), (GATHER, 200), rest]).bottleneck,
        "scatters alone" => computing(&[(SCATTER, 500), rest]).bottleneck,
        "gradients of indexing" => computing(&[(INDEX_GRADIENT, 500), (SOFTMAX_GRADIENT, 20), rest]).bottleneck,
        "index_put without a backward pass" => computing(&[(INDEX_GRADIENT, 500), rest]).bottleneck,
        "sorts" => computing(&[(SORT, 500), rest]).bottleneck,
        "a short sort" => computing(&[(SORT, 20), (HALF_PRODUCT, 900)]).bottleneck,
        "recurrent cells" => computing(&[(LSTM, 500), rest]).bottleneck,
        "4-bit weights" => computing(&[(DEQUANTIZE, 500), rest]).bottleneck,
        "foreach updates of five kinds" => {
            run(&many(8, &foreach.iter().map(|of| Kernel(of, 20, 500)).collect::<Vec<_>>()))
        }
        "fused updates" => {
            let fused = "void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>, FusedAdam>(int)";
            run(&many(8, &[Kernel(foreach[0], 20, 500), Kernel(fused, 20, 500)]))
        }
        // Grids, queues and hardware counters.
        "64 rows with one block each" => rows(1).report().bottleneck,
        "64 rows with 67 blocks each" => rows(67).report().bottleneck,
        "a long kernel of 4 blocks" => run(&[Kernel("own_kernel(float*)", 500, 4)]),
        "a long kernel of a library of 4 blocks" => run(&[Kernel(HALF_PRODUCT, 500, 4)]),
        "grids of 1.1 waves" => run(&[Kernel("own_kernel(float*)", 500, 290)]),
        "grids of 16 waves" => run(&[Kernel("own_kernel(float*)", 500, 4_224)]),
        "a kernel of 2,000,000 blocks of one warp" => changed(|device| {
            for row in &mut device.kernels {
                if let Some(geometry) = &mut row.geometry {
                    (geometry.limiter, geometry.waves) = (Limiter::Blocks, 473.0);
                }
            }
        }),
        "streams in one queue" => trace("one_connection"),
        "streams in eight queues" => trace("eight_connections"),
        "tensor cores at their limit" => limited(Limit::Tensor),
        "the L1 cache at its limit" => trace("kernels_live_counters"),
        "memory at its limit" => limited(Limit::Memory),
        "issue at its limit" => limited(Limit::Issue),
        "latency" => limited(Limit::Latency),
        "few warps" => limited(Limit::Occupancy),
        "idle multiprocessors" => limited(Limit::IdleMultiprocessors),
        "a lowered clock" => limited(Limit::LoweredClock),
        "pages that move in kernels" => moving(200),
        "pages that moved before" => moving(10),
        // Launches.
        "samples one by one" => run(&[small(MUL), small(FP32_PRODUCT), small(ADD)]),
        "training steps of small kernels" => run(&[small(MUL), small(FP32_PRODUCT), small(ADDCDIV), small(foreach[0])]),
        "updates of each tensor" => updates(SINGLE),
        "addcdiv of the program's own" => run(&[Kernel(HALF_PRODUCT, 5, 4_096), small(ADDCDIV), small(MUL)]),
        "graphs of two kernels" => graphs(2),
        "graphs of thirty kernels" => graphs(30),
        "equal launches" => bottleneck_launch::program(0, 0, |_, _| false).bottleneck,
        "launches that differ" => bottleneck_launch::program(0, 0, |_, kernel| kernel == 7).bottleneck,
        "launches of elementwise kernels" => run(&launches),
        "threads that take turns with the lock" => host_lock::taking_turns().bottleneck,
        "a thread that holds the lock" => host_lock::hogged(true).bottleneck,
        "launches that wait" => blocking(true),
        "launches that do not wait" => blocking(false),
        // Waits and reads.
        "selections" => run(&[&launches[..], &selection].concat()),
        "selections in PyTorch Geometric" => {
            run(&[&launches[..4], &[In(GEOMETRIC)], &many(6, &selection), &[In(TRAIN)]].concat())
        }
        "48 checks" => run(&[&launches[..], &many(12, &[small(CHECK), read])].concat()),
        "one check" => run(&[&launches[..], &[small(CHECK), read]].concat()),
        "reads of values" => run(&[&launches[..], &[small(MEAN), read]].concat()),
        "reads of 4 KB" => run(&[&launches[..], &[Read(MemoryKind::Pinned, 4_096)]].concat()),
        "sizes of repeats" => run(&many(8, &[small(REPEAT), small(MUL), read])),
        "norms that are read" => run(&[&launches.repeat(4)[..], &[In(CLIP), Away(300), small(CHECK), read]].concat()),
        "norms that are not read" => run(&[&launches.repeat(4)[..], &[In(CLIP), Away(300), small(CHECK)]].concat()),
        "waits for the device" => run(&[&launches[..], &[Wait("cudaDeviceSynchronize_v3020")]].concat()),
        "waits for each kernel" => run(&[Kernel(MUL, 40, 500), Wait("cudaStreamSynchronize_v3020")]),
        "tensors of few bytes" => run(&[&launches[..], &many(5, &[Send(MemoryKind::Pinned, 8, 2)])].concat()),
        "tensors of many bytes" => run(&[&launches[..], &many(5, &[Send(MemoryKind::Pinned, 8_192, 2)])].concat()),
        "anomaly detection" => run(&[&launches[..], &[In(ANOMALY)], &many(8, &[small(CHECK), read])].concat()),
        // Copies.
        "pageable copies to the GPU" => copying(&[(gpu(0).h2d(MemoryKind::Pageable, 64 << 20), 3_900)], MUL).bottleneck,
        "pinned copies to the GPU" => copying(&[(gpu(0).h2d(MemoryKind::Pinned, 64 << 20), 3_900)], MUL).bottleneck,
        "pageable copies to the CPU" => copying(&[(gpu(0).d2h(MemoryKind::Pageable, 64 << 20), 3_900)], MUL).bottleneck,
        "pinned copies to the CPU" => copying(&[(gpu(0).d2h(MemoryKind::Pinned, 64 << 20), 3_900)], MUL).bottleneck,
        "copies between GPUs" => copying(&[(gpu(0).between(CopyKind::PeerToPeer, 64 << 20), 3_900)], MUL).bottleneck,
        "copies within the GPU" => {
            copying(&[(gpu(0).between(CopyKind::DeviceToDevice, 64 << 20), 3_900)], MUL).bottleneck
        }
        "nothing but copies to the GPU" => run(&copy(MemoryKind::Pinned, 64 << 20, 3_900)),
        "nothing but copies to the CPU" => {
            let mut scenario = Scenario::new();
            for step in 0..300 {
                let at = 1_000 + step * 4_000;
                gpu(0).d2h(MemoryKind::Pinned, 64 << 20).at(at).lasting(3_950).launched(&mut scenario, 1, at - 500, 5);
                gpu(0).kernel(MUL).at(at + 3_955).lasting(30).launched(&mut scenario, 1, at - 480, 5);
            }
            scenario.report().bottleneck
        }
        "weights that the CPU averages" => {
            let copies = many(20, &[Read(MemoryKind::Pageable, 1 << 20), Away(300)]);
            run(&[&launches[..], &[In(AVERAGE)], &copies].concat())
        }
        "many small copies" => run(&[&[small(MUL)], &many(9, &[Send(MemoryKind::Pinned, 256, 2)])[..]].concat()),
        "text generation" => run(&[&launches[..4], &[In(CACHE), small(CAT), small(CAT), In(TRAIN)]].concat()),
        "kernels of Numba" => run(&[
            Kernel("_ZN6cudapy8__main__6kernelB2v1E5ArrayIfLi1E1C7mutable7alignedE", 300, 4_096),
            Send(MemoryKind::Pinned, 8, 2),
        ]),
        "arrays of Numba" => run(&[
            Send(MemoryKind::Pageable, 8 << 20, 900),
            Kernel("_ZN6cudapy8__main__6kernelB2v1E5ArrayIfLi1E1C7mutable7alignedE", 300, 4_096),
        ]),
        // Builds.
        "attention that cuDNN builds" => building("cudnn_generated_sdpa_sm90_flash_fprop", Some(ATTENTION)),
        "convolutions that cuDNN builds" => building(FP32_CONVOLUTION, Some(CONVOLUTION)),
        "kernels that CuPy builds" => building("own_kernel", Some(CUPY)),
        "kernels that are built at a line" => building("own_kernel", Some(TRAIN)),
        "kernels that are built, without samples" => building("own_kernel", None),
        // Memory.
        "memory that is freed and allocated" => run(&[
            Call("cudaMalloc_v3020", 600),
            Kernel(MUL, 300, 4_096),
            Kernel(ADD, 9, 500),
            Call("cudaFree_v3020", 100),
        ]),
        "memory that is allocated" => {
            run(&[Call("cudaMalloc_v3020", 600), Kernel(MUL, 300, 4_096), Kernel(ADD, 9, 500)])
        }
        "memory that is freed now and then" => {
            let step = [Call("cudaMalloc_v3020", 600), Kernel(MUL, 300, 4_096), Kernel(ADD, 9, 500)];
            let mut scenario = program(300, &step);
            (0..20).for_each(|of| _ = scenario.call(2, "cudaFree_v3020", 2_000 + of * 9_000, 10));
            scenario.report().bottleneck
        }
        // Other libraries.
        "operations of JAX one by one" => run(&many(10, &[In(PRIMITIVE), small(FUSION), In(TRAIN)])),
        "a jitted step" => run(&many(10, &[small(FUSION)])),
        "chains of CuPy" => run(&[CUPY_ADD, CUPY_SIN, CUPY_MULTIPLY, CUPY_SUM].map(small)),
        "one kernel of CuPy" => run(&[small(CUPY_ADD), small("own_kernel(float*)"), small("other_kernel(float*)")]),
        // Several GPUs and processes.
        "collectives that nothing covers" => {
            run(&[Kernel(HALF_PRODUCT, 400, 4_096), Kernel(NCCL, 500, 32), Wait("cudaStreamSynchronize_v3020")])
        }
        "short collectives" => {
            run(&[Kernel(HALF_PRODUCT, 900, 4_096), Kernel(NCCL, 10, 32), Wait("cudaStreamSynchronize_v3020")])
        }
        "another process on the GPU" => {
            attribution_other_process::judged(&[attribution_other_process::reading(500, 66)]).bottleneck
        }
        "no other process" => attribution_other_process::judged(&[]).bottleneck,
        _ => of_the_cpu(name),
    }
}

/// Programs that wait for their CPU, and for data.
fn of_the_cpu(name: &str) -> Bottleneck {
    let loading = |cause| judge(Leaf::DataLoading, &[(cause, 550)], &[line(cause, 42, 0.55, None)]);
    match name {
        "a sleep" => host(HostCause::Sleep, None),
        "collections" => host(HostCause::GarbageCollection, None),
        "output to a file" => host(HostCause::Io, None),
        "too few cores" => host(HostCause::Preempted, None),
        "a command" => host(HostCause::Child, Some(("Popen.wait", "/usr/lib/python3.12/subprocess.py"))),
        "a condition of another thread" => {
            host(HostCause::Lock, Some(("Condition.wait", "/usr/lib/python3.12/threading.py")))
        }
        "a lock" => host(HostCause::Lock, None),
        "page faults" => host(HostCause::Memory, None),
        "code at a line" => host(HostCause::Code, None),
        "code of PyTorch" => {
            host(HostCause::Code, Some(("Function.apply", &format!("{SITE}torch/autograd/function.py"))))
        }
        "code of a server" => host(HostCause::Code, Some(("step", &format!("{SITE}vllm/v1/engine/core.py")))),
        "the backward pass" => {
            host(HostCause::Code, Some(("_engine_run_backward", &format!("{SITE}torch/autograd/graph.py"))))
        }
        "work of the driver" => host(HostCause::Driver, None),
        "a checkpoint" => trace("checkpoint"),
        "results that numpy reduces" => trace("numpy_post"),
        "workers that are started" => {
            judge(Leaf::DataLoading, &[(HostCause::LoaderStart, 550)], &[line(HostCause::LoaderStart, 42, 0.55, None)])
        }
        "batches that the launching thread makes" => loading(HostCause::LoaderInline),
        "tensors that PyTorch joins one by one" | "an image that is decoded" => {
            let joins = ("collate_tensor_fn", "torch/utils/data/_utils/collate.py");
            let decodes = ("Image.load", "PIL/Image.py");
            let (function, file) = if name.starts_with("tensors") { joins } else { decodes };
            let row = LineRow {
                within: Some((function.to_owned(), format!("{SITE}{file}"))),
                ..line(HostCause::LoaderCollate, 42, 0.55, None)
            };
            judge(Leaf::DataLoading, &[(HostCause::LoaderCollate, 550)], &[row])
        }
        "batches that it joins" => loading(HostCause::LoaderCollate),
        "batches that it receives" => loading(HostCause::LoaderReceive),
        "busy workers" => loading(HostCause::LoaderWaitBusy),
        "workers that wait for storage" => loading(HostCause::LoaderWaitIo),
        "idle workers" => loading(HostCause::LoaderWaitIdle),
        "more threads of workers than cores" | "as many threads of workers as cores" => {
            let runnable_ns = if name.starts_with("more") { 30 } else { 1 };
            let totals = SampleTotals {
                workers: 8,
                waits_for_workers: 1,
                covered_ns: 100,
                runnable_ns,
                ..SampleTotals::default()
            };
            let seen = [(HostCause::LoaderWaitBusy, 550)];
            judge_simulated(Leaf::DataLoading, &seen, &[line(seen[0].0, 42, 0.55, None)], totals, None)
        }
        _ => panic!("no record {name:?}"),
    }
}

/// A kernel of 400 us, beside which managed memory moves for so long.
fn moving(micros: u64) -> Bottleneck {
    let mut scenario = program(300, &[Kernel("own_kernel(float*)", 400, 4_096), Wait("cudaStreamSynchronize_v3020")]);
    let kernels = scenario.records.iter().filter_map(|(_, record)| match record {
        Record::Kernel(kernel) => Some(kernel.start),
        _ => None,
    });
    let moved = kernels.map(|start| ManagedEvent {
        start,
        end: Timestamp::from_nanos(start.nanos() + micros * 1_000),
        kind: ManagedKind::HostToDevice,
        destination: DeviceId(0),
        value: 1 << 20,
        ..ManagedEvent::default()
    });
    let moved: Vec<_> = moved.map(|event| (event.end.nanos(), Record::Managed(event))).collect();
    scenario.records.extend(moved);
    scenario.report().bottleneck
}

/// Each remedy, a record on which it speaks, and one on which it is silent.
const TABLE: &[(&str, &str, &str)] = &[
    ("bf16", "fp32 convolutions in NCHW", "short fp32 kernels, launched late"),
    ("fp16", "fp32 products on Volta", "fp32 products"),
    ("tf32", "fp32 convolutions in NCHW", "fp32 convolutions on Volta"),
    ("tf32_matmul", "fp32 products", "fp32 convolutions in NCHW"),
    ("cast_weights", "casts of weights", "attention by hand"),
    ("mixed_operands", "operands of two types", "short fp32 kernels, launched late"),
    ("fp64", "doubles", "elements of eight bytes"),
    ("fp8", "large products in 16 bits", "short products in 16 bits"),
    ("unaligned", "unaligned operands", "large products in 16 bits"),
    ("conv_cuda_cores", "16-bit convolutions on CUDA cores", "16-bit convolutions on tensor cores"),
    ("channels_last", "fp32 convolutions in NCHW", "fp32 convolutions in NHWC"),
    ("relayout", "copies into another layout", "operands that are broadcast"),
    ("sdpa", "attention by hand", "a softmax of a loss"),
    ("sdpa_fp32", "fused attention in fp32", "short fp32 kernels, launched late"),
    ("mask_built", "masks beside fused attention", "short fills beside fused attention"),
    ("attention_build", "attention that cuDNN builds", "convolutions that cuDNN builds"),
    ("kv_cat", "text generation", "concatenations"),
    ("fuse", "three elementwise kernels in a row", "two elementwise kernels in a row"),
    ("gelu_parts", "kernels of GELU", "kernels of rotary embeddings"),
    ("rmsnorm_parts", "kernels of RMS norm", "kernels of GELU"),
    ("rope_parts", "kernels of rotary embeddings", "concatenations"),
    ("strided", "transposed operands", "operands that are broadcast"),
    ("cat", "concatenations", "text generation"),
    ("scatter", "scatters beside gathers", "scatters alone"),
    ("index_grad", "gradients of indexing", "index_put without a backward pass"),
    ("index_put", "index_put without a backward pass", "gradients of indexing"),
    ("sort_topk", "sorts", "a short sort"),
    ("rnn_cells", "recurrent cells", "fp32 products"),
    ("dequantize", "4-bit weights", "casts of weights"),
    ("foreach_fused", "foreach updates of five kinds", "fused updates"),
    ("batch_grids", "64 rows with one block each", "64 rows with 67 blocks each"),
    ("small_grid", "a long kernel of 4 blocks", "a long kernel of a library of 4 blocks"),
    ("small_blocks", "a kernel of 2,000,000 blocks of one warp", "grids of 16 waves"),
    ("connections", "streams in one queue", "streams in eight queues"),
    ("wave_tail", "grids of 1.1 waves", "grids of 16 waves"),
    ("limit_tensor", "tensor cores at their limit", "memory at its limit"),
    ("limit_l1", "the L1 cache at its limit", "memory at its limit"),
    ("limit_memory", "memory at its limit", "the L1 cache at its limit"),
    ("limit_issue", "issue at its limit", "latency"),
    ("limit_latency", "latency", "few warps"),
    ("limit_occupancy", "few warps", "latency"),
    ("limit_idle", "idle multiprocessors", "few warps"),
    ("clocks", "a lowered clock", "issue at its limit"),
    ("batch_loop", "samples one by one", "training steps of small kernels"),
    ("fused_optimizer", "updates of each tensor", "addcdiv of the program's own"),
    ("graph_whole", "graphs of two kernels", "graphs of thirty kernels"),
    ("graph_nodes", "graphs of thirty kernels", "graphs of two kernels"),
    ("graph", "equal launches", "launches that differ"),
    ("compile", "launches that differ", "equal launches"),
    ("compile_elementwise", "launches of elementwise kernels", "updates of each tensor"),
    ("one_launcher", "threads that take turns with the lock", "a thread that holds the lock"),
    ("backward", "the backward pass", "code of PyTorch"),
    ("launch_blocking", "launches that wait", "launches that do not wait"),
    ("mask_index", "selections", "selections in PyTorch Geometric"),
    ("pyg_edges", "selections in PyTorch Geometric", "selections"),
    ("check_each", "48 checks", "one check"),
    ("clip_norm", "norms that are read", "norms that are not read"),
    ("unknown_size", "sizes of repeats", "reads of values"),
    ("read_value", "reads of values", "reads of 4 KB"),
    ("timer_sync", "waits for the device", "reads of values"),
    ("wait_less", "waits for each kernel", "reads of values"),
    ("scalar_tensor", "tensors of few bytes", "tensors of many bytes"),
    ("anomaly", "anomaly detection", "launches of elementwise kernels"),
    ("device_copies", "copies within the GPU", "copies between GPUs"),
    ("reduce_first", "results that numpy reduces", "a checkpoint"),
    ("average_on_gpu", "weights that the CPU averages", "results that numpy reduces"),
    ("join_copies", "many small copies", "tensors of many bytes"),
    ("pinned", "pageable copies to the GPU", "pageable copies to the CPU"),
    ("pinned_results", "pageable copies to the CPU", "pageable copies to the GPU"),
    ("overlap_copies", "pinned copies to the GPU", "pinned copies to the CPU"),
    ("overlap_results", "pinned copies to the CPU", "pinned copies to the GPU"),
    ("overlap_peers", "copies between GPUs", "copies within the GPU"),
    ("send_less", "nothing but copies to the GPU", "pinned copies to the GPU"),
    ("copy_less", "nothing but copies to the CPU", "pinned copies to the CPU"),
    ("persistent", "workers that are started", "busy workers"),
    ("workers", "batches that the launching thread makes", "busy workers"),
    ("collate", "batches that it joins", "batches that it receives"),
    ("whole_batches", "tensors that PyTorch joins one by one", "an image that is decoded"),
    ("receive", "batches that it receives", "batches that it joins"),
    ("more_workers", "busy workers", "idle workers"),
    ("loader_io", "workers that wait for storage", "busy workers"),
    ("loader_prefetch", "idle workers", "busy workers"),
    ("worker_threads", "more threads of workers than cores", "as many threads of workers as cores"),
    ("sleep", "a sleep", "a lock"),
    ("gc", "collections", "code at a line"),
    ("gil", "a thread that holds the lock", "threads that take turns with the lock"),
    ("save_less", "a checkpoint", "results that numpy reduces"),
    ("file_output", "output to a file", "a checkpoint"),
    ("cores", "too few cores", "code at a line"),
    ("commands", "a command", "a condition of another thread"),
    ("wait_result", "a condition of another thread", "a lock"),
    ("wait_other", "a lock", "a condition of another thread"),
    ("page_faults", "page faults", "code at a line"),
    ("move_work", "code at a line", "code of PyTorch"),
    ("framework_work", "code of PyTorch", "code at a line"),
    ("server_work", "code of a server", "code of PyTorch"),
    ("find_work", "work of the driver", "code at a line"),
    ("cudnn_no_search", "convolutions that cuDNN builds", "attention that cuDNN builds"),
    ("build_once", "kernels that CuPy builds", "kernels that are built at a line"),
    ("new_shapes", "kernels that are built at a line", "attention that cuDNN builds"),
    ("new_kernels", "kernels that are built, without samples", "kernels that are built at a line"),
    ("empty_cache", "memory that is freed and allocated", "memory that is allocated"),
    ("fragmentation", "memory that is freed now and then", "memory that is freed and allocated"),
    ("managed_prefetch", "pages that move in kernels", "pages that moved before"),
    ("allocate_once", "memory that is allocated", "launches of elementwise kernels"),
    ("overlap", "collectives that nothing covers", "short collectives"),
    ("other_process", "another process on the GPU", "no other process"),
    ("jax_no_jit", "operations of JAX one by one", "a jitted step"),
    ("cupy_fuse", "chains of CuPy", "one kernel of CuPy"),
    ("numba_copies", "arrays of Numba", "kernels of Numba"),
];

#[test]
fn the_largest_limit_is_one_whatever_the_samples_do_not_resolve() {
    let of_memory = |memory, latency, unresolved| {
        let parts = [(Limit::Memory, memory), (Limit::Latency, latency), (Limit::Unresolved, unresolved)];
        ids(&limited_by(&parts, true)).contains(&"limit_memory")
    };
    assert!(of_memory(0.5, 0.2, 0.25));
    assert!(!of_memory(0.4, 0.2, 0.4));
    assert!(!of_memory(0.45, 0.4, 0.15));
    assert!(of_memory(0.5, 0.45, 0.05));
}

#[test]
fn no_kernel_is_named_by_the_mean_of_several() {
    for own in [true, false] {
        let of = limited_by(&[(Limit::Latency, 1.0)], own);
        let mut texts = of.remedies.iter().map(|remedy| &remedy.text).chain(&of.evidence);
        let names =
            |text: &String| ["most of all of kernel own", "most in own"].iter().any(|words| text.contains(words));
        assert_eq!(texts.any(names), own, "{:?} {:?}", of.remedies, of.evidence);
    }
}

fn ids(of: &Bottleneck) -> Vec<&'static str> {
    of.remedies.iter().map(|remedy| remedy.id).collect()
}

/// The remedies that a record opens. Those that a line of source code opens have theirs in `import/tests/source.rs`,
/// where there is a parser.
fn of_records() -> impl Iterator<Item = &'static RemedyEntry> {
    remedies().filter(|entry| !opened_by_lines().any(|id| id == entry.id))
}

#[test]
fn each_remedy_has_a_record_on_which_it_speaks_and_one_on_which_it_is_silent() {
    let listed: Vec<&str> = TABLE.iter().map(|(id, ..)| *id).collect();
    let missing: Vec<&str> = of_records().map(|entry| entry.id).filter(|id| !listed.contains(id)).collect();
    assert!(missing.is_empty(), "no records for {missing:?}");
    assert_eq!(listed.len(), of_records().count(), "a remedy is listed twice, or is none");
    let names: BTreeSet<&str> = TABLE.iter().flat_map(|&(_, speaks, silent)| [speaks, silent]).collect();
    let found: BTreeMap<&str, Bottleneck> = names.into_iter().map(|name| (name, record(name))).collect();
    let wrong: Vec<String> = TABLE
        .iter()
        .filter(|(id, speaks, silent)| !ids(&found[speaks]).contains(id) || ids(&found[silent]).contains(id))
        .map(|(id, speaks, silent)| {
            let of = |name: &&str| format!("{name} ({:?}): {:?}", found[name].cause, ids(&found[name]));
            format!("{id}\n  {}\n  {}", of(speaks), of(silent))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_framework_that_runs_the_loop_has_its_option() {
    const TRAINER: Frame =
        ("/usr/lib/python3.12/site-packages/transformers/trainer.py", "Trainer.training_step", 3_700);
    let launches = many(3, &[MUL, TANH, POW, ADD, RSQRT, SOFTMAX].map(|name| Kernel(name, 3, 8)));
    let read = [Kernel(MEAN, 3, 8), Read(MemoryKind::Pinned, 4)];
    let texts = |of: &Bottleneck| of.remedies.iter().map(|remedy| remedy.text.clone()).collect::<Vec<_>>().join(" ");
    let trainer = texts(&run(&[&[In(TRAINER)], &launches[..], &read].concat()));
    for option in ["torch_compile_mode=\"reduce-overhead\"", "logging_nan_inf_filter=False"] {
        assert!(trainer.contains(option), "{option}: {trainer}");
    }
    let own = texts(&run(&[&launches[..], &read].concat()));
    assert!(own.contains("CUDA graph") && !own.contains("TrainingArguments"), "{own}");
}

#[test]
fn channels_last_is_said_beside_bf16_though_it_may_gain_little_alone() {
    let nchw = (FP32_CONVOLUTION, 300);
    let report = computing(&[nchw, (FP32_PRODUCT, 600), (HALF_PRODUCT, 100)]);
    let found = ids(&report.bottleneck);
    assert!(found.contains(&"bf16") && found.contains(&"channels_last"), "{found:?}");
}

/// The table as it is in `remedies.md`.
fn table() -> String {
    let mut text =
        String::from("| remedy | speaks on | silent on | tried by `gpuwhy try` | gain |\n|---|---|---|---|---|\n");
    let lines = opened_by_lines().map(|id| (id, "a line of source code that shows it", "other lines"));
    for (id, speaks, silent) in TABLE.iter().copied().chain(lines) {
        let entry = remedy(id).unwrap();
        let tried = entry.trial.map_or("-", |trial| trial.id);
        let _ = writeln!(text, "| `{id}` | {speaks} | {silent} | {tried} | {} |", entry.gain.replace('|', "\\|"));
    }
    text
}

#[test]
fn the_table_of_remedies_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/remedies.md");
    let text = format!(
        "# Remedies\n\nEach remedy of the catalog, with a record of `remedy_records.rs` on which it speaks and one on which it must \
         be silent.\nWritten by `GPUWHY_BLESS=1 cargo test -p gpuwhy-report --test main remedy_records`.\n\n{}",
        table()
    );
    if std::env::var_os("GPUWHY_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text, "GPUWHY_BLESS=1 writes {}", path.display());
}

#[test]
fn arguments_of_a_jitted_function_that_are_on_the_gpu_are_copied_no_more() {
    let copy = Send(MemoryKind::Pageable, 1 << 20, 100);
    let jitted = |kernel| run(&[&[copy][..], &many(10, &[Kernel(kernel, 5, 16)]), &[Away(700)]].concat());
    let jax = jitted(FUSION);
    let first = &jax.remedies[0];
    assert_eq!((first.id, first.is_bound), ("framework_work", true), "{jax:#?}");
    // The kernels take less than a tenth of the step, the copies as much again.
    assert!(first.speedup > Some(8.0), "{first:?}");
    assert!(jax.plan.iter().all(|step| step.kind != ScenarioKind::CopiesOverlapped), "{:#?}", jax.plan);
    assert!(!jax.evidence.iter().any(|sentence| sentence.contains("without it")), "{:#?}", jax.evidence);
    let torch = jitted(ADD);
    assert!(torch.evidence.iter().any(|sentence| sentence.contains("without it about")), "{:#?}", torch.evidence);
}
