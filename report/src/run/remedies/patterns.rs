//! Classes of kernels by their demangled names.
//!
//! The parts of names were checked on recorded programs from V100 to H200 (PyTorch, JAX, Triton) and on public traces.
//! What decides is the type of operands, not the words around it: `sm80_xmma_gemm_f32f32_f32f32_f32_..._ffma_` uses no
//! tensor core, `sm90_xmma_gemm_f32f32_tf32f32_` does.

use gpuwhy_trace::demangle::demangled;

use crate::kernels::DataType;

/// A class of kernels. A kernel may be in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Class {
    /// Matrix products and convolutions in fp32 on CUDA cores.
    Fp32Products,
    /// Matrix products and convolutions in TF32.
    Tf32Products,
    /// Matrix products and convolutions in 16 bits on tensor cores.
    HalfProducts,
    /// Convolutions in 16 bits on CUDA cores.
    HalfWithoutTensorCores,
    /// Matrix products in 8 bits.
    Fp8Products,
    /// Matrix products in float64.
    Fp64Products,
    /// Elementwise kernels and reductions of doubles.
    Fp64Elements,
    /// Elementwise kernels of elements of eight bytes that do not name their type.
    EightBytes,
    /// Tensor-core kernels for operands that are not aligned to 16 bytes.
    Unaligned,
    /// Products of any kind.
    Products,
    /// Convolutions and what runs only beside them.
    Convolutions,
    /// Conversion between NCHW and NHWC.
    LayoutChange,
    /// Kernels for convolutional layers in NCHW.
    Nchw,
    Softmax,
    /// Fused attention in fp32.
    FusedAttentionFp32,
    /// Fused attention.
    FusedAttention,
    /// A triangular mask.
    TriangularMask,
    /// PyTorch's elementwise kernels.
    Elementwise,
    /// Those for operands that are strided or broadcast.
    Strided,
    /// Casts between types.
    Cast,
    /// Elementwise kernels with operands of different types.
    MixedTypes,
    /// Copies that change the layout (`.contiguous()`).
    Relayout,
    Concatenation,
    Fill,
    /// PyTorch's foreach kernels.
    Foreach,
    FusedOptimizer,
    /// Elementwise kernels of an optimizer that updates one tensor after another.
    LoopOptimizer,
    Selection,
    Scatter,
    Gather,
    /// Backward of indexing, which sorts.
    IndexGradient,
    Sort,
    RecurrentCell,
    Dequantize,
    Triton,
    Communication,
    Cupy,
    Tuner,
    Xla,
    /// `repeat_interleave`: the sizes are on the GPU.
    Repeat,
    /// Reductions to a bool.
    BoolReduction,
    /// Any reduction of PyTorch.
    Reduction,
}

const HALF: [&str; 8] = ["_bf16bf16_", "_f16f16_", "gemm_fp16", "gemm_f16", "gemm_bf16", "_tst_", "_hsh_", "_hss_"];
const ELEMENTWISE: [&str; 4] =
    ["elementwise_kernel<", "vectorized_elementwise_kernel", "unrolled_elementwise_kernel", "index_elementwise_kernel"];

/// The classes of a kernel, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Classes(u64);

impl Classes {
    /// Classes of a demangled name. Triton, XLA and NCCL come first: they write the names of operators into names of
    /// kernels that are fused already.
    pub(super) fn of(name: &str) -> Self {
        let any = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        let mut classes = Self::default();
        if is_triton(name) {
            return classes.with(Class::Triton, true);
        }
        if name.starts_with("nccl") && name.contains("Kernel") {
            return classes.with(Class::Communication, true);
        }
        if any(&["RedzoneAllocator", "DelayKernel", "xla_fp_comparison", "RepeatBuffer"]) {
            return classes.with(Class::Tuner, true);
        }
        if is_xla(name) {
            return classes.with(Class::Xla, true);
        }
        if name.starts_with("cupy_") {
            classes = classes.with(Class::Cupy, true);
            return classes.with(Class::Fp64Elements, any(&["float64", "complex128"]));
        }
        let native = name.contains("at::native::");
        let fp32 = is_fp32_product(name);
        let tf32 = any(&["_tf32f32_", "_tf32tf32_", "_sss_"]) && !fp32
            || name.contains("cutlass")
                && name.contains("tensorop_s")
                && name.contains("gemm_")
                && !any(&["_bf16_", "_f16_", "gemm_bf16", "gemm_f16"])
                && is_tf32_instance(name);
        let half = !fp32 && (any(&HALF) || is_nvjet_half(name) || is_half_instance(name));
        let half_slow = any(&[
            "convolve_sgemm<__nv_bfloat16",
            "convolve_sgemm<__half",
            "dgrad_engine<__nv_bfloat16",
            "dgrad_engine<__half",
        ]) || name.contains("wgrad_alg") && any(&["_engine<__nv_bfloat16", "_engine<__half"]);
        let fp64 = any(&["dgemm_", "_f64f64_", "tensorop_d884"]);
        let fp8 = any(&["e4m3", "e5m2", "nvjet_qq"]) || name.starts_with("nvjet_sm") && name.contains("_qq");
        let flash =
            any(&["flash_fprop", "flash_bprop", "flash_fwd", "flash_bwd", "fmha_cutlass", "flashinfer", "FlashAttn"]);
        let convolution = any(&[
            "convolve",
            "implicit_gemm",
            "fprop",
            "dgrad",
            "wgrad",
            "winograd",
            "fft2d_",
            "cudnn_",
            "conv2d",
            "conv_",
        ]) && !flash;
        let rules = [
            (Class::Fp32Products, fp32),
            (Class::Tf32Products, tf32),
            (Class::HalfProducts, half && !flash),
            (Class::HalfWithoutTensorCores, half_slow),
            (Class::Fp8Products, fp8),
            (Class::Fp64Products, fp64),
            (Class::Fp64Elements, native && (name.contains("<double") || name.contains(" double,"))),
            (
                Class::EightBytes,
                native && name.contains("::vectorized_elementwise_kernel<2,") && !any(&["<long", ", long"]),
            ),
            (Class::Unaligned, is_unaligned(name)),
            (Class::Products, fp32 || tf32 || half && !flash || fp8 || fp64 || any(&["gemm", "nvjet", "gemv"])),
            (Class::Convolutions, convolution),
        ];
        rules.into_iter().fold(classes, |classes, (class, has)| classes.with(class, has)).with_others(name, flash)
    }

    /// Adds the classes of kernels that are no products.
    fn with_others(self, name: &str, flash: bool) -> Self {
        let any = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        let native = name.contains("at::native::");
        let elementwise = native && any(&ELEMENTWISE);
        let copies = name.contains("direct_copy_kernel");
        let unrolled = name.contains("unrolled_elementwise_kernel");
        let strided = elementwise && name.contains("::elementwise_kernel<");
        let reduction = native && name.contains("reduce_kernel<");
        let rules = [
            (Class::LayoutChange, any(&["nchwToNhwcKernel", "nhwcToNchwKernel", "nhwcAddPaddingKernel"])),
            (
                Class::Nchw,
                any(&["_nchwkcrs_nchw", "_nchw_tilesize", "bn_fw_tr_1C11", "bn_bw_1C11"])
                    || name.contains("max_pool") && name.contains("nchw"),
            ),
            (
                Class::Softmax,
                any(&["softmax_warp_forward", "softmax_warp_backward", "cunn_SoftMaxForward", "cunn_SoftMaxBackward"]),
            ),
            (Class::FusedAttentionFp32, any(&["fmha_cutlassF_f32", "fmha_cutlassB_f32"])),
            (Class::FusedAttention, flash),
            (Class::TriangularMask, name.contains("triu_tril_kernel")),
            (Class::Elementwise, elementwise),
            (Class::Strided, strided),
            (Class::Cast, any(&["bfloat16_copy_kernel_cuda", "float16_copy_kernel_cuda"]) || unrolled && copies),
            (Class::MixedTypes, native && unrolled && !copies && !name.contains("_copy_kernel")),
            (Class::Relayout, strided && copies),
            (Class::Concatenation, name.contains("CatArrayBatchedCopy")),
            (Class::Fill, name.contains("FillFunctor")),
            (
                Class::Foreach,
                name.contains("multi_tensor_apply_kernel")
                    && name.contains("TensorList")
                    && !name.contains("FusedOptimizer"),
            ),
            (Class::FusedOptimizer, any(&["FusedOptimizerTensorListMetadata", "FusedAdam"])),
            (Class::LoopOptimizer, any(&["addcdiv_cuda_kernel", "addcmul_cuda_kernel", "lerp_scalar_kernel"])),
            (Class::Selection, any(&["DeviceSelectSweep", "DeviceCompactInit", "NonZeroOp", "DeviceSelect"])),
            (
                Class::Scatter,
                any(&["indexFuncLargeIndex", "indexFuncSmallIndex", "_scatter_gather_elementwise_kernel"]),
            ),
            (Class::Gather, any(&["vectorized_gather_kernel", "indexSelectLargeIndex", "indexSelectSmallIndex"])),
            (Class::IndexGradient, name.contains("indexing_backward_kernel")),
            (
                Class::Sort,
                any(&[
                    "DeviceRadixSort",
                    "radixSortKVInPlace",
                    "bitonicSortKVInPlace",
                    "sbtopk::",
                    "mbtopk::",
                    "gatherTopK",
                    "sort_postprocess_kernel",
                    "fill_index_and_segment_kernel",
                ]),
            ),
            (Class::RecurrentCell, any(&["LSTM_elementWise", "lstm_cell", "gru_cell"])),
            (Class::Dequantize, name.contains("kDequantizeBlockwise")),
            (Class::Repeat, name.contains("compute_cuda_kernel<")),
            (Class::BoolReduction, reduction && name.contains("<bool")),
            (Class::Reduction, reduction),
        ];
        rules.into_iter().fold(self, |classes, (class, has)| classes.with(class, has))
    }

    fn with(self, class: Class, has: bool) -> Self {
        Self(self.0 | (u64::from(has) << class as u8))
    }

    /// True if the kernel is in this class.
    pub(super) fn has(self, class: Class) -> bool {
        self.0 & (1 << class as u8) != 0
    }

    /// True if the kernel is in one of these classes.
    pub(super) fn has_any(self, classes: &[Class]) -> bool {
        classes.iter().any(|&class| self.has(class))
    }
}

/// Types of the matrix products and convolutions in a kernel, by its name, mangled or not.
pub(crate) fn product_types(kernel: &str) -> Vec<DataType> {
    let classes = Classes::of(&demangled(kernel));
    let types = [
        (Class::Fp32Products, DataType::Fp32),
        (Class::Tf32Products, DataType::Tf32),
        (Class::HalfProducts, DataType::Fp16),
        (Class::Fp8Products, DataType::Fp8),
        (Class::Fp64Products, DataType::TensorFp64),
    ];
    types.into_iter().filter(|&(class, _)| classes.has(class)).map(|(_, of)| of).collect()
}

fn is_triton(name: &str) -> bool {
    ["triton_poi_", "triton_red_", "triton_per_", "triton_tem_", "triton_for_"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Names of XLA's fusions: no parentheses, which a kernel of C++ has. A kernel that is declared `extern "C"` may look
/// the same; what holds for XLA needs most kernels to be of it.
fn is_xla(name: &str) -> bool {
    let starts =
        ["loop_", "input_", "gemm_fusion", "wrapped_", "transpose_fusion", "concatenate_", "fusion", "scatter_fusion"];
    !name.contains('(') && !name.contains('<') && starts.iter().any(|start| name.starts_with(start))
}

fn is_fp32_product(name: &str) -> bool {
    let any = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let architectures = ["volta", "ampere", "turing", "maxwell"];
    let begins_with_sgemm = |at: usize| !name[..at].ends_with(|before: char| before.is_ascii_lowercase());
    any(&[
        "_ffma_",
        "simt_sgemm",
        "_volta_scudnn_",
        "_ampere_scudnn_",
        "convolve_sgemm<float",
        "dgrad_engine<float",
        "dgrad_float_engine<float",
        "fft2d_r2c",
        "fft2d_c2r",
    ]) || name.find("sgemm_").is_some_and(begins_with_sgemm)
        || architectures.iter().any(|name_of| any(&[&format!("{name_of}_sgemm"), &format!("{name_of}_scudnn")]))
        || name.contains("wgrad_alg") && name.contains("_engine<float")
        || name.contains("d_grouped_direct_kernel<") && name.contains(" float, float, float>")
        || name.contains("winograd") && name.contains("<float")
        || name.contains("cf32") && name.contains("gemm")
}

/// `cutlass_80_tensorop_s1688gemm_128x128_`: single precision by tensor cores, which is TF32.
fn is_tf32_instance(name: &str) -> bool {
    after(name, "tensorop_s").is_some_and(|rest| {
        let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
        rest.strip_prefix("gemm_").is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
            || rest.contains("_tf32_")
    })
}

fn is_half_instance(name: &str) -> bool {
    ["bf16_s", "f16_s", "fp16_s"].iter().any(|part| {
        after(name, part).is_some_and(|rest| rest.chars().take(3).filter(char::is_ascii_digit).count() == 3)
    })
}

/// `nvjet_sm90_tst_`, `nvjet_hsh_`: the letters are the types of operands, accumulator and result.
fn is_nvjet_half(name: &str) -> bool {
    name.starts_with("nvjet_")
        && name.split('_').take(3).any(|part| ["tst", "tss", "hsh", "hss", "tts", "ttt"].contains(&part))
}

fn is_unaligned(name: &str) -> bool {
    let any = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if name.contains("simt") {
        return false;
    }
    let small = any(&["_align1", "_align2", "_align4", "_aligna1_", "_aligna2_", "_aligna4_"])
        && !any(&["_align16", "_align128"]);
    let half = any(&["tensorop_f16", "tensorop_bf16", "bf16bf16", "f16f16", "gemm_bf16", "gemm_f16"]);
    // TF32 needs four elements only.
    let tf32 = any(&["_align1", "_align2"]) && !any(&["_align16", "_align128"]) && is_tf32_instance(name);
    small && half || tf32
}

fn after<'a>(name: &'a str, part: &str) -> Option<&'a str> {
    name.split_once(part).map(|(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_classes(name: &str, has: &[Class], has_not: &[Class]) {
        let classes = Classes::of(name);
        has.iter().for_each(|&class| assert!(classes.has(class), "{name} is {class:?}"));
        has_not.iter().for_each(|&class| assert!(!classes.has(class), "{name} is not {class:?}"));
    }

    #[test]
    fn the_types_of_operands_decide_and_not_the_word_gemm() {
        use Class::{Fp32Products, HalfProducts, HalfWithoutTensorCores, Tf32Products, Unaligned};
        assert_classes(
            "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_stage3_warpsize2x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
            &[Fp32Products],
            &[Tf32Products, HalfProducts, Unaligned],
        );
        assert_classes(
            "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
            &[Tf32Products],
            &[Fp32Products, HalfProducts],
        );
        assert_classes(
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(cutlass_80_simt_sgemm_128x32_8x5_nn_align1::Params)",
            &[Fp32Products],
            &[Unaligned, Tf32Products],
        );
        assert_classes(
            "void implicit_convolve_sgemm<__nv_bfloat16, __nv_bfloat16, 128, 5, 5, 3, 3, 3, 1, false, false, true>(int)",
            &[HalfWithoutTensorCores],
            &[Fp32Products],
        );
        assert_classes("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", &[HalfProducts], &[Fp32Products, Tf32Products]);
        assert_classes(
            "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align1>(int)",
            &[Tf32Products, Unaligned],
            &[Fp32Products],
        );
        assert_classes(
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_32x6_tn_align8>(int)",
            &[HalfProducts],
            &[Unaligned, Tf32Products],
        );
        assert_classes("volta_sgemm_128x64_nn", &[Fp32Products], &[]);
    }

    #[test]
    fn fused_kernels_with_names_of_operators_are_only_fused() {
        let norm = Classes::of("triton_red_fused_native_batch_norm_backward_27");
        assert!(norm.has(Class::Triton) && !norm.has(Class::Elementwise));
        assert!(Classes::of("loop_add_fusion").has(Class::Xla));
        assert!(!Classes::of("loop_add_fusion(float*)").has(Class::Xla));
    }
}
