//! Remedies of programs whose kernels have names of real ones: what is recognized, and what must not be said.

use crate::support::{Scenario, Work, gpu};
use gpuwhy_report::history::{Measured, arguments, program};
use gpuwhy_report::run::remedies::{Trial, remedy};
use gpuwhy_report::run::{Remedy, Report};
use gpuwhy_trace::record::{CopyKind, Device, MemoryKind};
use profiler_core::leaf::Cause;

pub(crate) const FP32_CONVOLUTION: &str = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize256x64x8_stage3_warpsize2x2x1_g1_ffma_aligna4_alignc4_execute_kernel__5x_cudnn";
pub(crate) const FP32_PRODUCT: &str = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_stage3_warpsize2x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas";
pub(crate) const HALF_CONVOLUTION: &str = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_stage3_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn";
pub(crate) const HALF_PRODUCT: &str = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT";
pub(crate) const SOFTMAX: &str = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, false, false>(float*, float const*, int)";
pub(crate) const SOFTMAX_GRADIENT: &str = "void (anonymous namespace)::softmax_warp_backward<float, float, float, 11, false, false>(float*, float const*, int)";
pub(crate) const LOG_SOFTMAX: &str =
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, true, false>(float*, float const*, int)";
pub(crate) const TO_FLOAT: &str = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>(int)";
pub(crate) const TO_HALF: &str = "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}>(int)";
pub(crate) const MUL: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > >(int)";
pub(crate) const ADD: &str =
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)";
pub(crate) const POW: &str =
    "void at::native::vectorized_elementwise_kernel<4, at::native::pow_tensor_scalar_kernel_impl<float, float> >(int)";
pub(crate) const TANH: &str =
    "void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel_cuda(at::TensorIteratorBase&)>(int)";
pub(crate) const MEAN: &str = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float> > >(int)";
pub(crate) const RSQRT: &str =
    "void at::native::vectorized_elementwise_kernel<4, at::native::rsqrt_kernel_cuda(at::TensorIteratorBase&)>(int)";
pub(crate) const NEGATE: &str =
    "void at::native::elementwise_kernel<128, 4, at::native::neg_kernel_cuda(at::TensorIteratorBase&)>(int)";
pub(crate) const CAT: &str =
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4, 64, 64>(float*)";
pub(crate) const COPY: &str = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)> >(int)";
pub(crate) const ADDCDIV: &str =
    "void at::native::vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel(at::TensorIteratorBase&)>(int)";
pub(crate) const LAYOUT: &str =
    "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true>(int)";
pub(crate) const FLASH: &str = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4> >(int)";
pub(crate) const FILL: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)";
pub(crate) const FP32_ATTENTION: &str = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(int)";
pub(crate) const UNALIGNED: &str =
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x4_nn_align2>(int)";
pub(crate) const HALF_WITHOUT_TENSOR_CORES: &str =
    "void implicit_convolve_sgemm<__nv_bfloat16, __nv_bfloat16, 128, 5, 5, 3, 3, 3, 1, false>(int)";
pub(crate) const DOUBLES: &str =
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<double> >(int)";
pub(crate) const MIXED: &str = "void at::native::unrolled_elementwise_kernel<at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > >(int)";
pub(crate) const SCATTER: &str = "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_gather_internal_kernel<true, float> >(int)";
pub(crate) const GATHER: &str = "void at::native::vectorized_gather_kernel<16, long>(char*)";
pub(crate) const INDEX_GRADIENT: &str = "void at::native::indexing_backward_kernel<float, 4>(long*)";
pub(crate) const SORT: &str = "void cub::DeviceRadixSortOnesweepKernel<long>(int)";
pub(crate) const LSTM: &str = "void LSTM_elementWise_fp(int)";
pub(crate) const DEQUANTIZE: &str = "void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>(float*)";

/// A program on an H200 whose GPU works all the time: 400 steps of these kernels, microseconds.
pub(crate) fn computing(kernels: &[(&str, u64)]) -> Report {
    on_device(kernels, [9, 0], true)
}

/// The same kernels launched one by one, each 40 us.
pub(crate) fn launching(kernels: &[(&str, u64)]) -> Report {
    on_device(kernels, [9, 0], false)
}

pub(crate) fn on_device(kernels: &[(&str, u64)], compute_capability: [u32; 2], busy: bool) -> Report {
    let mut scenario = Scenario::new();
    let whole: u64 = kernels.iter().map(|(_, lasting)| lasting + 1).sum();
    // A period is found in enough launches.
    for step in 0..400 {
        let mut at = match busy {
            true => 1_000 + step * whole,
            false => 1_000 + step * 40 * kernels.len() as u64,
        };
        for (name, lasting) in kernels {
            let launched = if busy { at.saturating_sub(700) + 10 } else { at };
            gpu(0).kernel(name).at(at + 8).lasting(*lasting).launched(&mut scenario, 1, launched, 2);
            at += if busy { lasting + 1 } else { 40 };
        }
    }
    let name = "NVIDIA H200".to_owned();
    scenario.dictionary.add_device(Device { name, multiprocessors: 132, compute_capability, ..Device::default() });
    scenario.report()
}

fn ids(report: &Report) -> Vec<&'static str> {
    report.bottleneck.remedies.iter().map(|remedy| remedy.id).collect()
}

#[test]
fn kernels_that_a_change_makes_faster_have_their_remedy() {
    let rest = (HALF_PRODUCT, 100);
    let table: &[(&str, &[(&str, u64)])] = &[
        ("tf32", &[(FP32_CONVOLUTION, 900), rest]),
        ("bf16", &[(FP32_CONVOLUTION, 900), rest]),
        ("channels_last", &[(FP32_CONVOLUTION, 900), rest]),
        ("channels_last", &[(LAYOUT, 300), (FP32_CONVOLUTION, 700)]),
        ("tf32_matmul", &[(FP32_PRODUCT, 900), rest]),
        (
            "sdpa",
            &[(HALF_PRODUCT, 100), (TO_FLOAT, 200), (MUL, 200), (SOFTMAX, 200), (TO_HALF, 100), (HALF_PRODUCT, 100)],
        ),
        // A step may begin within attention.
        ("sdpa", &[(MUL, 200), (SOFTMAX, 200), (HALF_PRODUCT, 100), (FLASH, 50), (HALF_PRODUCT, 100)]),
        ("sdpa_fp32", &[(FP32_ATTENTION, 500), rest]),
        ("mask_built", &[(FLASH, 500), (FILL, 300), rest]),
        ("unaligned", &[(UNALIGNED, 500), rest]),
        ("conv_cuda_cores", &[(HALF_WITHOUT_TENSOR_CORES, 500), rest]),
        ("fp64", &[(DOUBLES, 500), rest]),
        ("mixed_operands", &[(MIXED, 500), rest]),
        ("cast_weights", &[(TO_HALF, 300), rest, (TO_HALF, 300), (HALF_PRODUCT, 101)]),
        ("fuse", &[(MUL, 300), (ADD, 300), (TANH, 300), rest]),
        ("relayout", &[(COPY, 300), rest]),
        ("cat", &[(CAT, 300), rest]),
        ("scatter", &[(SCATTER, 500), (GATHER, 200), rest]),
        ("index_grad", &[(INDEX_GRADIENT, 500), (SOFTMAX_GRADIENT, 20), rest]),
        ("index_put", &[(INDEX_GRADIENT, 500), rest]),
        ("sort_topk", &[(SORT, 500), rest]),
        ("rnn_cells", &[(LSTM, 500), rest]),
        ("dequantize", &[(DEQUANTIZE, 500), rest]),
        ("fp8", &[(HALF_PRODUCT, 900)]),
    ];
    for (id, kernels) in table {
        let report = computing(kernels);
        assert_eq!(report.bottleneck.cause, Cause::GpuCompute, "{id}: {}", report.summary());
        assert!(ids(&report).contains(id), "{id}: {:?}\n{}", ids(&report), report.summary());
    }
}

#[test]
fn functions_of_many_kernels_have_their_remedy() {
    let gelu = [POW, MUL, ADD, MUL, TANH, ADD, MUL].map(|name| (name, 3));
    let norm = [POW, MEAN, ADD, RSQRT, MUL, MUL].map(|name| (name, 3));
    let rope = [MUL, NEGATE, CAT, MUL, ADD].map(|name| (name, 3));
    for (id, kernels) in [("gelu_parts", &gelu[..]), ("rmsnorm_parts", &norm), ("rope_parts", &rope)] {
        let report = launching(&[&[(HALF_PRODUCT, 5)], kernels].concat());
        assert_eq!(report.bottleneck.cause, Cause::Launch, "{id}: {}", report.summary());
        assert!(ids(&report).contains(&id), "{id}: {:?}\n{}", ids(&report), report.summary());
        // A part of it is no such function.
        let report = launching(&[&[(HALF_PRODUCT, 5)], &kernels[..2], &[(HALF_PRODUCT, 6)]].concat());
        assert!(!ids(&report).contains(&id), "{id}: {:?}", ids(&report));
    }
    let mut optimizer = vec![(HALF_PRODUCT, 5)];
    optimizer.extend([(MUL, 2), (ADDCDIV, 2)].repeat(60));
    let report = launching(&optimizer);
    assert_eq!(ids(&report).first(), Some(&"fused_optimizer"), "{}", report.summary());
}

#[test]
fn advice_for_other_programs_is_not_given() {
    let silent = |id: &str, report: &Report| {
        assert!(remedy(id).is_some() && !ids(report).contains(&id), "{id}: {:?}\n{}", ids(report), report.summary());
    };
    // The GPU waits for launches: its products need not be faster.
    let late = launching(&[(FP32_PRODUCT, 5), (FP32_CONVOLUTION, 5), (FP32_ATTENTION, 5), (MIXED, 5)]);
    ["bf16", "tf32", "tf32_matmul", "channels_last", "sdpa_fp32", "mixed_operands"]
        .iter()
        .for_each(|id| silent(id, &late));
    // Volta has neither TF32 nor bf16.
    let volta = on_device(&[(FP32_PRODUCT, 900), (MUL, 50)], [7, 0], true);
    ["bf16", "tf32_matmul"].iter().for_each(|id| silent(id, &volta));
    assert!(ids(&volta).contains(&"fp16"), "{:?}", ids(&volta));
    // The softmax of a loss is no attention, and neither is one beside other kernels.
    silent("sdpa", &computing(&[(HALF_PRODUCT, 100), (LOG_SOFTMAX, 300), (HALF_PRODUCT, 101)]));
    silent("sdpa", &computing(&[(HALF_PRODUCT, 100), (FLASH, 100), (SOFTMAX, 300), (FLASH, 101)]));
    let gradient = SOFTMAX.replace("forward", "backward");
    let loss = [(HALF_PRODUCT, 100), (SOFTMAX, 200), (POW, 30), (MEAN, 30), (&gradient, 200), (HALF_PRODUCT, 101)];
    silent("sdpa", &computing(&loss));
    silent("fp8", &computing(&[(HALF_CONVOLUTION, 900)]));
    // 16-bit products use tensor cores already; short ones gain nothing from 8 bits.
    let half = computing(&[(HALF_PRODUCT, 30), (FLASH, 40)]);
    ["bf16", "tf32", "tf32_matmul", "fp8", "unaligned", "sdpa_fp32", "graph"].iter().for_each(|id| silent(id, &half));
    assert!(half.bottleneck.recommendation.starts_with("The GPU is busy. No remedy is known"), "{}", half.summary());
    // Convolutions with channels last.
    let nhwc = FP32_CONVOLUTION.replace("nchwkcrs_nchw", "nhwckrsc_nhwc");
    silent("channels_last", &computing(&[(&nhwc, 900), (HALF_PRODUCT, 100)]));
    // One convolution, however many conversions it has.
    silent("channels_last", &computing(&[vec![(LAYOUT, 100); 6], vec![(&nhwc, 300), (HALF_PRODUCT, 100)]].concat()));
    // Two elementwise kernels, and short ones.
    silent("fuse", &computing(&[(MUL, 300), (ADD, 300), (HALF_PRODUCT, 100)]));
    silent("fuse", &computing(&[(MUL, 8), (ADD, 8), (TANH, 8), (HALF_PRODUCT, 10)]));
    // Attention by hand has its own casts.
    silent(
        "cast_weights",
        &computing(&[(HALF_PRODUCT, 100), (TO_FLOAT, 300), (SOFTMAX, 200), (TO_HALF, 100), (HALF_PRODUCT, 101)]),
    );
}

#[test]
fn the_library_decides_the_words() {
    let mut scenario = Scenario::new();
    for step in 0..100 {
        let at = 1_000 + step * 5_000;
        let copy = scenario.call(1, "cudaMemcpy_v3020", at, 4_000);
        scenario.add(gpu(0).h2d(MemoryKind::Pageable, 64 << 20).at(at + 100).lasting(3_890).by(copy));
        gpu(0).kernel("loop_add_fusion").at(at + 4_020).lasting(900).launched(&mut scenario, 1, at + 4_010, 5);
    }
    let report = scenario.report();
    assert_eq!(report.bottleneck.cause, Cause::Copy, "{}", report.summary());
    let advice = &report.bottleneck.recommendation;
    assert!(advice.contains("jax.device_put") && !advice.contains("DataLoader"), "{advice}");
}

/// 100 steps of 5 ms: these copies one after the other, each for its part of 3.9 ms, and a kernel of a library.
pub(crate) fn copying(copies: &[(Work, u64)], kernel: &str) -> Report {
    let mut scenario = Scenario::new();
    for step in 0..100 {
        let mut at = 1_000 + step * 5_000;
        for (copy, lasting) in copies {
            let call = scenario.call(1, "cudaMemcpyAsync_v3020", at, 5);
            scenario.add(copy.clone().at(at + 10).lasting(*lasting).by(call));
            at += lasting + 30;
        }
        gpu(0).kernel(kernel).at(at + 20).lasting(900).launched(&mut scenario, 1, at + 10, 5);
    }
    scenario.report()
}

#[test]
fn copies_have_the_advice_of_their_direction() {
    let bytes = 64 << 20;
    let (to, from) = (|memory| gpu(0).h2d(memory, bytes), |memory| gpu(0).d2h(memory, bytes));
    let between = |kind| gpu(0).between(kind, bytes);
    let all = [
        ("pinned", to(MemoryKind::Pageable), "DataLoader"),
        ("overlap_copies", to(MemoryKind::Pinned), "next batch"),
        ("pinned_results", from(MemoryKind::Pageable), "to pinned memory"),
        ("overlap_results", from(MemoryKind::Pinned), "copies to the CPU"),
        ("overlap_peers", between(CopyKind::PeerToPeer), "between GPUs"),
        ("device_copies", between(CopyKind::DeviceToDevice), "within the GPU"),
    ];
    for (id, work, words) in &all {
        let report = copying(&[(work.clone(), 3_900)], MUL);
        assert_eq!(report.bottleneck.cause, Cause::Copy, "{id}: {}", report.summary());
        let found = ids(&report);
        assert!(found.contains(id), "{id}: {found:?}");
        for (other, ..) in all.iter().filter(|(other, ..)| other != id) {
            assert!(!found.contains(other), "{other} of {id}: {found:?}");
        }
        let said = |of: &&Remedy| of.id == *id && of.text.contains(words);
        assert!(report.bottleneck.remedies.iter().any(|remedy| said(&remedy)), "{id}: {}", report.summary());
    }
    let jax = copying(&[(from(MemoryKind::Pageable), 3_900)], "loop_add_fusion").bottleneck.recommendation;
    assert!(!jax.contains("device_put"), "{jax}");
    // Nothing is copied.
    let cleared = ids(&copying(&[(gpu(0).memset(bytes), 3_900)], MUL));
    assert!(all.iter().all(|(id, ..)| !cleared.contains(id)), "{cleared:?}");
}

#[test]
fn a_remedy_has_its_gain_and_its_source() {
    let report = computing(&[(FP32_CONVOLUTION, 900), (HALF_PRODUCT, 100)]);
    let bf16 = report.bottleneck.remedies.iter().find(|remedy| remedy.id == "bf16").unwrap();
    let (low, high) = bf16.interval.unwrap();
    // 1.79x and 3.84x were measured for programs that spend 93 and 91 % there.
    assert!((1.6..1.9).contains(&low) && high.is_infinite() && bf16.speedup == Some(low), "{low} to {high}");
    assert!(bf16.link.is_some_and(|link| link.starts_with("https://")));
    assert_eq!((bf16.results.name(), bf16.certainty.name(), bf16.outside), ("rounding", "measured", true));
    let text = report.summary();
    let gain = report.gain().unwrap();
    assert!(gain.starts_with("Gain: at least 1.") && gain.ends_with("x (an estimate)."), "{gain}");
    // Under the first change, and before the evidence.
    let places = ["What to do: ", &gain, "  - ", "Also: "].map(|part| text.find(part).expect(part));
    assert!(places.is_sorted(), "{text}");
    assert!(text.matches("Also: ").count() <= 2, "{text}");
}

/// The low end of the gain of this remedy, which is an estimate.
#[track_caller]
fn least(report: &Report, id: &str) -> Option<f64> {
    let found = report.bottleneck.remedies.iter().find(|remedy| remedy.id == id);
    let found = found.unwrap_or_else(|| panic!("{id}: {:?}", ids(report)));
    assert!(found.interval.is_none_or(|(_, high)| high.is_infinite()), "{found:?}");
    found.speedup
}

#[track_caller]
fn assert_least(report: &Report, id: &str, range: std::ops::Range<f64>) {
    let low = least(report, id);
    assert!(low.is_some_and(|low| range.contains(&low)), "{id}: {low:?}");
}

#[test]
fn a_row_of_kernels_becomes_one_as_long_as_the_longest() {
    // 1,200 us become 150 us at most, beside 100 us that stay.
    let row = [MUL, ADD, TANH, MUL, POW, ADD, MUL, TANH, ADD, MUL, MUL, POW].map(|name| (name, 100));
    assert_least(&computing(&[&row[..], &[(HALF_PRODUCT, 100)]].concat()), "fuse", 4.8..5.3);
    // Two rows become two.
    let halves = [&row[..6], &[(HALF_PRODUCT, 50)], &row[6..], &[(FLASH, 50)]].concat();
    assert_least(&computing(&halves), "fuse", 3.0..3.5);
    // Of RMS norm the casts and the product with the weight go, too.
    let norm = [TO_FLOAT, POW, MEAN, ADD, RSQRT, MUL, TO_HALF, MUL].map(|name| (name, 100));
    assert_least(&computing(&[&norm[..], &[(HALF_PRODUCT, 200)]].concat()), "rmsnorm_parts", 2.5..3.0);
}

#[test]
fn products_gain_what_tensor_cores_leave_of_them() {
    // A large product reaches most of the rate, a short one has its casts and its start.
    assert_least(&computing(&[(FP32_PRODUCT, 900), (HALF_PRODUCT, 10)]), "bf16", 4.8..5.6);
    assert_least(&computing(&[(FP32_PRODUCT, 24), (HALF_PRODUCT, 6)]), "bf16", 1.3..1.9);
    assert_least(&computing(&[(FP32_ATTENTION, 2_000)]), "sdpa_fp32", 5.5..6.0);
    // Kernels of cuDNN that compute volumes in fp32.
    const VOLUME: &str = "void cudnn::cnn::wgrad2d_grouped_direct_kernel<true, true, int, float, float, float>(int)";
    const VOLUME_DATA: &str = "void convolveNd_dgrad_float_engine<float, 3, 512, 6, 5, 3, 3, 3, false>(int)";
    assert_least(&computing(&[(VOLUME, 2_000), (VOLUME_DATA, 900), (HALF_PRODUCT, 10)]), "bf16", 1.5..6.0);
    // Attention: all between the products goes, and some of the products.
    let chain = [(HALF_PRODUCT, 80), (MUL, 130), (ADD, 330), (SOFTMAX, 370), (HALF_PRODUCT, 81)];
    assert_least(&computing(&chain), "sdpa", 4.0..6.5);
}

#[test]
fn of_an_estimate_the_low_end_is_said() {
    let text = computing(&[(FP32_PRODUCT, 900), (HALF_PRODUCT, 100)]).summary();
    assert!(text.contains("Gain: at least 3.8x, often 5.7x (an estimate)."), "{text}");
}

#[test]
fn a_size_on_the_gpu_is_asked_for() {
    let repeat = "void compute_cuda_kernel<long>(long const*, long const*, long*, long, long)";
    let check = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<bool, at::native::and_kernel_cuda> >(int)";
    let mut scenario = Scenario::new();
    for step in 0..60 {
        let mut at = 1_000 + step * 1_300;
        for _ in 0..10 {
            for name in [check, repeat] {
                gpu(0).kernel(name).at(at + 8).lasting(2).launched(&mut scenario, 1, at, 3);
                at += 20;
            }
            let read = scenario.call(1, "cudaMemcpyAsync_v3020", at, 20);
            scenario.add(gpu(0).d2h(MemoryKind::Pinned, 8).at(at + 8).lasting(2).by(read));
            at += 60;
        }
        gpu(0).kernel(TANH).at(at + 8).lasting(9).launched(&mut scenario, 1, at, 3);
    }
    let report = scenario.report();
    assert!(ids(&report).contains(&"unknown_size"), "{:?}\n{}", ids(&report), report.summary());
    assert!(!ids(&report).contains(&"check_each"), "{:?}", ids(&report));
}

/// Steps of four kernels of 4 us, with a call of 7 us that waits after each; `read`: each wait is for a copy.
fn waiting(function: &str, read: bool) -> Report {
    let mut scenario = Scenario::new();
    for step in 0..200 {
        let mut at = 1_000 + step * 80;
        for name in [MUL, ADD, TANH, POW] {
            gpu(0).kernel(name).at(at + 5).lasting(4).launched(&mut scenario, 1, at, 3);
            if read {
                let copy = scenario.call(1, "cudaMemcpyAsync_v3020", at + 3, 1);
                scenario.add(gpu(0).d2h(MemoryKind::Pinned, 8).at(at + 9).lasting(1).by(copy));
            }
            scenario.call(1, function, at + 4, 7);
            at += 20;
        }
    }
    scenario.report()
}

#[test]
fn short_waits_for_events_and_streams_are_waits_too() {
    for (function, words) in [
        ("cudaEventSynchronize_v3020", "Do not wait for an event (cudaEventSynchronize)"),
        ("cudaStreamSynchronize_v3020", "Do not wait for a stream"),
        ("cudaDeviceSynchronize_v3020", "Do not wait for the GPU"),
    ] {
        let report = waiting(function, false);
        let remedy = report.bottleneck.remedies.iter().find(|remedy| remedy.id == "timer_sync");
        let remedy = remedy.unwrap_or_else(|| panic!("{function}: {:?}\n{}", ids(&report), report.summary()));
        assert!(remedy.text.contains(words), "{}", remedy.text);
        assert!(remedy.speedup.is_some_and(|gain| gain > 1.3), "{function}: {:?}", remedy.speedup);
    }
    let report = waiting("cudaStreamSynchronize_v3020", true);
    assert!(!ids(&report).contains(&"timer_sync"), "{:?}", ids(&report));
}

#[test]
fn what_the_cpu_limits_may_gain_nothing() {
    // The GPU is busy 60 % of the time.
    let report = launching(&[(FP32_PRODUCT, 24), (HALF_PRODUCT, 24)]);
    assert!(!ids(&report).contains(&"tf32_matmul"), "{:?}", ids(&report));
}

#[test]
fn elements_of_eight_bytes_beside_doubles_are_doubles() {
    const UNNAMED: &str = "void at::native::vectorized_elementwise_kernel<2, at::native::launch_clamp_scalar(at::TensorIteratorBase&), std::array<char*, (unsigned long)2> >(int)";
    const LONGS: &str = "void at::native::vectorized_elementwise_kernel<2, at::native::CUDAFunctor_add<long> >(int)";
    let low = |other: &str| least(&computing(&[(DOUBLES, 300), (HALF_PRODUCT, 10), (other, 300)]), "fp64");
    assert!(low(UNNAMED) > low(LONGS), "{:?} and {:?}", low(UNNAMED), low(LONGS));
    assert!(!ids(&computing(&[(UNNAMED, 300), (HALF_PRODUCT, 300)])).contains(&"fp64"));
}

/// A line of the history about the program of [`Scenario`].
fn tried(report: &Report, remedy: &str, (gain, low, high): (f64, f64, f64)) -> Measured {
    Measured {
        at_ns: 1_795_703_260_651_223_400,
        host: report.process.host.clone(),
        program: program(&report.process.command),
        arguments: arguments(&report.process.command),
        remedy: remedy.to_owned(),
        gain,
        low,
        high,
        pairs: 5,
        ..Measured::default()
    }
}

#[test]
fn measured_gains_take_the_place_of_estimates() {
    let plain = computing(&[(FP32_CONVOLUTION, 500), (FP32_PRODUCT, 300), (LAYOUT, 300)]);
    let all = ids(&plain);
    assert!(all.len() >= 3, "{all:?}");
    let (first, last) = (all[0], all[all.len() - 1]);
    let mut report = plain.clone();
    report.apply_measured(&[tried(&plain, last, (9.5, 9.0, 9.9)), tried(&plain, first, (1.01, 0.99, 1.02))]);
    let found = ids(&report);
    assert_eq!((found[0], found[found.len() - 1]), (last, first), "{found:?}");
    let words = "Measured 9.50x (9.00x to 9.90x) by gpuwhy try on 2026-11-26.";
    assert_eq!(report.gain().as_deref(), Some(words));
    let further = report.bottleneck.further_remedies();
    let useless = &plain.bottleneck.remedies[0].text;
    assert!(!further.iter().any(|text| text.contains(useless)), "{further:?}");
    let full = report.full().replace('\n', " ");
    assert!(full.contains("Not advised, as they make no difference:"), "{full}");
    assert!(!report.summary().contains("Not advised"));

    // Nothing is left, and what is said of the rest stays.
    let mut report = plain.clone();
    let lines: Vec<_> = all.iter().map(|id| tried(&plain, id, (1.0, 0.9, 1.1))).collect();
    report.apply_measured(&lines);
    assert!(report.bottleneck.recommendation.starts_with("No remedy is left"), "{}", report.bottleneck.recommendation);
    assert_eq!(ids(&report).len(), all.len());

    // Those of another host say nothing.
    let mut report = plain.clone();
    let other = Measured { host: "other".to_owned(), ..tried(&plain, last, (9.5, 9.0, 9.9)) };
    report.apply_measured(&[other]);
    assert_eq!(report.bottleneck, plain.bottleneck);
}

#[test]
fn both_updates_of_optimizers_have_the_same_measurement() {
    let tried = |id| Trial::named(id).unwrap().id;
    assert_eq!((tried("foreach_fused"), tried("pinned")), ("fused_optimizer", "pinned"));
}

/// `isfinite` of a tensor is four kernels, `isnan` one.
#[test]
fn checks_of_many_tensors_are_replaced_by_fewer_kernels() {
    for sentence in remedy("check_each").unwrap().sentences() {
        assert!(sentence.contains("get_total_norm(tensors, norm_type=float(\"inf\")).isfinite()"), "{sentence}");
    }
}
