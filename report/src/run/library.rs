//! The library that a kernel belongs to, told by the kernel's name.
//!
//! Records do not say which file a kernel comes from, so a library is an estimate by name. A rule looks at the path of
//! the kernel's own function, not at its template arguments: `cub::DeviceScanKernel<at::native::...>` is CUB's, whoever
//! launched it. A kernel that no rule knows is the program's own or of a library without a rule; it gets none.

use gpuwhy_trace::demangle::demangled;
use gpuwhy_trace::named;

named! {
    /// A library that brings kernels.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Library: name {
        /// cuBLAS and cuBLASLt.
        Cublas "cuBLAS",
        Cudnn "cuDNN",
        Cufft "cuFFT",
        Curand "cuRAND",
        Cusolver "cuSOLVER",
        /// cuSPARSE and cuSPARSELt.
        Cusparse "cuSPARSE",
        Nccl "NCCL",
        Nvshmem "NVSHMEM",
        /// CUTLASS, where it is not inside cuBLAS or cuDNN.
        Cutlass "CUTLASS",
        /// CUB and Thrust.
        Cub "CUB/Thrust",
        TensorRt "TensorRT",
        TransformerEngine "Transformer Engine",
        Apex "Apex",
        /// `FlashAttention`, PyTorch's copy too.
        FlashAttention "FlashAttention",
        FlashInfer "FlashInfer",
        /// PyTorch's own kernels.
        Pytorch "PyTorch",
        /// Triton: what `torch.compile` generates, and kernels of Triton programs.
        Triton "Triton",
        /// XLA: what JAX and TensorFlow compile.
        Xla "XLA",
        /// TensorFlow's own kernels.
        TensorFlow "TensorFlow",
        Fbgemm "FBGEMM",
        Vllm "vLLM",
        Cupy "CuPy",
        Numba "Numba",
        /// RAPIDS: cuDF, cuML, RAFT and their like.
        Rapids "RAPIDS",
        Magma "MAGMA",
    }
}

impl Library {
    /// The library of a kernel, told by its name, mangled or not; `None` when no rule knows it.
    pub fn of_kernel(name: &str) -> Option<Self> {
        let readable = demangled(name);
        let nested;
        let whole = if readable.starts_with("_ZN") {
            // Too long, or of a form that the demangler does not know: the namespaces stand at its begin.
            nested = namespaces(&readable);
            nested.as_str()
        } else {
            readable.as_str()
        };
        let path = path_of(whole);
        let fits = |places: &[Place]| places.iter().any(|place| place.fits(path, whole));
        RULES.iter().find(|(_, places)| fits(places)).map(|&(library, _)| library)
    }

    /// The library that a loaded file belongs to, by the file's name: `libcublasLt.so.12` is cuBLAS. `None` for files
    /// of the CUDA runtime and driver, which every launch goes through, and for any other.
    pub fn of_file(file: &str) -> Option<Self> {
        let name = file.rsplit('/').next().unwrap_or(file);
        FILES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|&(_, library)| library)
    }
}

/// What a rule looks at.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The path of the function begins so.
    Begin(&'static str),
    /// The path of the function has this in it.
    Within(&'static str),
    /// The whole name, with template arguments and parameters, has this in it.
    Anywhere(&'static str),
    /// The path of the function ends so, with a number behind it or none.
    End(&'static str),
    /// Triton's description of the arguments at the end: `_0d1d2de`.
    TritonArguments,
}

impl Place {
    fn fits(self, path: &str, whole: &str) -> bool {
        match self {
            Self::Begin(part) => path.starts_with(part),
            Self::Within(part) => path.contains(part),
            Self::Anywhere(part) => whole.contains(part),
            Self::End(part) => {
                let stem = path.trim_end_matches(|c: char| c.is_ascii_digit());
                path.ends_with(part)
                    || (stem.len() < path.len() && stem.strip_suffix('_').is_some_and(|stem| stem.ends_with(part)))
            }
            Self::TritonArguments => path.rsplit_once('_').is_some_and(|(_, last)| is_triton_signature(last)),
        }
    }
}

use Place::{Anywhere, Begin, End, TritonArguments, Within};

/// The first rule that fits counts: namespaces come before parts of names, which also occur in template arguments.
///
/// Sources: names in traces of these libraries (the recorded sessions of this repository, PyTorch's and HTA's sample
/// traces, Volta to Hopper), and where the names are made: PyTorch's namespaces (`aten/src/ATen/native/cuda`,
/// `third_party/flash-attention`), `torch/_inductor/codegen/triton.py` (`triton_poi_fused_...`), Triton 2's
/// `compiler/compiler.py` (`_0d1d2de`), XLA's fusions (`xla/hlo/ir` and `xla/service/gpu`: `loop_add_fusion`,
/// `wrapped_add`), NCCL's `src/device/generate.py` (`ncclDevKernel_...`), CuPy's `_core/_kernel.pyx` (`cupy_add__...`),
/// Numba's `cuda/compiler.py` (`cudapy`), FBGEMM's `codegen` (`split_embedding_...`), Apex's
/// `csrc/multi_tensor_apply.cuh`, and the CUTLASS library's names of instances, which cuBLAS uses
/// (`cutlass::Kernel<cutlass_80_...>`).
const RULES: [(Library, &[Place]); 34] = [
    (Library::FlashAttention, &[Begin("pytorch_flash::"), Begin("flash::"), Begin("flash_fwd"), Begin("flash_bwd")]),
    (Library::FlashInfer, &[Begin("flashinfer::")]),
    (Library::Vllm, &[Begin("vllm::")]),
    (
        Library::Fbgemm,
        &[
            Begin("fbgemm_gpu::"),
            Begin("split_embedding_"),
            Begin("bounds_check_indices_kernel"),
            Begin("permute_pooled_embs"),
        ],
    ),
    (Library::TransformerEngine, &[Begin("transformer_engine::")]),
    (Library::Cub, &[Begin("cub::"), Within("::cub::"), Begin("thrust::"), Within("::thrust::")]),
    (Library::Pytorch, &[Begin("at::"), Begin("c10::"), Begin("torch::"), Begin("cunn_")]),
    // The same kernel inside PyTorch stands in `at::native`.
    (Library::Apex, &[Begin("multi_tensor_apply_kernel"), Begin("cuApplyLayerNorm")]),
    (Library::TensorFlow, &[Begin("tensorflow::"), Begin("Eigen::internal::EigenMetaKernel")]),
    (Library::TensorRt, &[Begin("nvinfer1::"), Begin("__myl_"), Begin("trt_")]),
    (Library::Nccl, &[Begin("nccl")]),
    (Library::Nvshmem, &[Begin("nvshmem")]),
    (Library::Cupy, &[Begin("cupy_"), Begin("cupyx_")]),
    (Library::Numba, &[Begin("cudapy::")]),
    (Library::Rapids, &[Begin("cudf::"), Begin("raft::"), Begin("cuvs::"), Begin("ML::")]),
    (Library::Magma, &[Begin("magma")]),
    (Library::Xla, &[Begin("triton_gemm_"), Begin("triton_softmax")]),
    (Library::Triton, &[Begin("triton_")]),
    (Library::Xla, &[Begin("wrapped_"), Begin("gemm_fusion_"), Begin("__xla_"), End("_fusion")]),
    (Library::Triton, &[TritonArguments]),
    (Library::Cusparse, &[Begin("cusparse")]),
    (Library::Cusolver, &[Begin("cusolver")]),
    (Library::Curand, &[Begin("curand"), Begin("gen_sequenced"), Begin("generate_seed_pseudo")]),
    (
        Library::Cufft,
        &[
            Begin("vector_fft"),
            Begin("regular_fft"),
            Begin("composite_2way_fft"),
            Begin("multi_bluestein_fft"),
            Begin("cufft"),
        ],
    ),
    // cuDNN and cuBLAS have kernels in their namespaces, and generated ones that name them somewhere.
    (Library::Cudnn, &[Within("cudnn")]),
    (Library::Cublas, &[Within("cublas"), Begin("nvjet_")]),
    (Library::Cudnn, &[Within("_xmma_fprop"), Within("_xmma_dgrad"), Within("_xmma_wgrad")]),
    (Library::Cublas, &[Within("_xmma_gemm")]),
    (
        Library::Cudnn,
        &[
            Begin("implicit_convolve_"),
            Begin("explicit_convolve_"),
            Begin("wgrad_alg"),
            Begin("dgrad_engine"),
            Begin("dgrad2d_"),
            Begin("fft2d_"),
            Begin("nchwToNhwcKernel"),
            Begin("nhwcToNchwKernel"),
        ],
    ),
    (Library::Cublas, &[Anywhere("cutlass::Kernel<cutlass_"), Anywhere("cutlass::Kernel2<cutlass_")]),
    (Library::Cutlass, &[Begin("cutlass"), Begin("fmha_cutlass")]),
    (
        Library::Cublas,
        &[
            Begin("volta_"),
            Begin("turing_"),
            Begin("ampere_"),
            Begin("maxwell_"),
            Begin("gemv2"),
            Begin("gemvNSP_kernel"),
            Begin("gemmSN_"),
            Begin("gemmk1_kernel"),
            Within("gemm_largek_lds64"),
        ],
    ),
    // Reductions and helpers of cuBLAS take its types as parameters.
    (Library::Cublas, &[Anywhere("cublas")]),
    (Library::Cudnn, &[Anywhere("cudnn")]),
];

/// Files of libraries, by the begin of their names. Source: the file lists of NVIDIA's and PyTorch's packages.
const FILES: [(&str, Library); 19] = [
    ("libcublas", Library::Cublas),
    ("libcudnn", Library::Cudnn),
    ("libcufft", Library::Cufft),
    ("libcurand", Library::Curand),
    ("libcusolver", Library::Cusolver),
    ("libcusparse", Library::Cusparse),
    ("libnccl", Library::Nccl),
    ("libnvshmem", Library::Nvshmem),
    ("libnvinfer", Library::TensorRt),
    ("libtransformer_engine", Library::TransformerEngine),
    ("transformer_engine", Library::TransformerEngine),
    ("flash_attn", Library::FlashAttention),
    ("libtorch", Library::Pytorch),
    ("libc10", Library::Pytorch),
    ("libtriton", Library::Triton),
    ("xla_", Library::Xla),
    ("libtensorflow", Library::TensorFlow),
    ("fbgemm_gpu", Library::Fbgemm),
    ("libmagma", Library::Magma),
];

/// Namespaces and name of the function, without return type, template arguments and parameters.
fn path_of(name: &str) -> &str {
    let end = name.find(['<', '(']).unwrap_or(name.len());
    let path = &name[..end];
    path.rsplit_once(' ').map_or(path, |(_, path)| path)
}

/// The leading names of a mangled nested name, joined by `::`: `_ZN2at6native4fillE...` is `at::native::fill`.
fn namespaces(mangled: &str) -> String {
    let mut rest = mangled.strip_prefix("_ZN").unwrap_or_default();
    let mut path = String::new();
    loop {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let part =
            rest[..digits].parse::<usize>().ok().and_then(|length| rest.get(digits..digits.checked_add(length)?));
        let Some(part) = part else { return path };
        if !path.is_empty() {
            path.push_str("::");
        }
        path.push_str(part);
        rest = &rest[digits + part.len()..];
    }
}

/// Numbers of arguments from 0 on, each perhaps with `d` (divisible by 16), `e` (by 8) or `c` (a constant).
fn is_triton_signature(text: &str) -> bool {
    text.starts_with('0')
        && text.contains('d')
        && text.chars().all(|c| c.is_ascii_digit() || matches!(c, 'd' | 'e' | 'c'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names as they stand in recorded sessions and published traces.
    const KNOWN: [(&str, Library); 46] = [
        ("volta_sgemm_128x32_nt", Library::Cublas),
        ("ampere_sgemm_128x128_tn", Library::Cublas),
        ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN", Library::Cublas),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_execute_kernel__5x_cublas", Library::Cublas),
        ("_ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4EEvNT_6ParamsE", Library::Cublas),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(Params)", Library::Cublas),
        ("_Z11scal_kernelIffLi1ELb1ELi6ELi5ELi5ELi3EEv21cublasTransposeParamsIT0_EPKT_PS3_PKS1_", Library::Cublas),
        ("_Z18sgemm_largek_lds64ILb1ELb0ELi5ELi5ELi4ELi4ELi4ELi34EEvPfPKfS2_iiiiiiS2_S2_ffiiPiS3_", Library::Cublas),
        ("void splitKreduce_kernel<float, float>(cublasSplitKParams<float>, float const*)", Library::Cublas),
        ("void cublasLt::epilogue::impl::globalKernel<8, 32>(int)", Library::Cublas),
        ("void epilogue::impl::globalKernel<float>(int, cublasLtEpilogue_t, int)", Library::Cublas),
        ("void gemv2N_kernel<int, int, float>(cublasGemvParams<float>)", Library::Cublas),
        ("volta_scudnn_128x64_relu_interior_nn_v1", Library::Cudnn),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64", Library::Cudnn),
        ("sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_kernel__5x_cudnn", Library::Cudnn),
        ("void implicit_convolve_sgemm<float, float, 1024>(int, int, int, float const*)", Library::Cudnn),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float>(cudnnTensorStruct)", Library::Cudnn),
        ("void cask_cudnn_infer::computeOffsetsKernel3D<false>(Params)", Library::Cudnn),
        ("_ZN5cudnn6fusion20convert_dq_to_16bitsILb1EEEvPKvPvjjjjjjjjjjPKfS6_S6_PfS3_S4_S4_bb", Library::Cudnn),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", Library::Nccl),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Library::Nccl),
        ("triton_poi_fused_add_relu_0", Library::Triton),
        ("triton_red_fused__to_copy_mean_3", Library::Triton),
        ("add_kernel_0d1d2d3de", Library::Triton),
        ("loop_add_fusion", Library::Xla),
        ("input_reduce_fusion_12", Library::Xla),
        ("wrapped_transpose", Library::Xla),
        ("triton_softmax_5", Library::Xla),
        ("void at::native::reduce_kernel<512, 1, ReduceOp<float, thrust::pair<float, float>>>(int)", Library::Pytorch),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>(float*)", Library::Pytorch),
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
            Library::Pytorch,
        ),
        ("void cunn_ClassNLLCriterion_updateOutput_kernel<float, float>(float*)", Library::Pytorch),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>(int)", Library::Apex),
        ("void cub::DeviceScanKernel<cub::AgentScanPolicy<128>, at::native::X>(int)", Library::Cub),
        ("void at_cuda_detail::cub::DeviceRadixSortKernel<int>(int)", Library::Cub),
        ("void thrust::cuda_cub::core::_kernel_agent<int>(int)", Library::Cub),
        (
            "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>(P)",
            Library::FlashAttention,
        ),
        ("void flash_fwd_splitkv_kernel<int>(P)", Library::FlashAttention),
        ("void vllm::paged_attention_v1_kernel<float>(float*)", Library::Vllm),
        ("void fbgemm_gpu::permute_indices_weights_kernel<false>(int)", Library::Fbgemm),
        ("cupy_add__float32_float32_float32", Library::Cupy),
        ("_ZN6cudapy8__main__6matmulB2v1E5ArrayIfLi2E1C7mutable7alignedE", Library::Numba),
        ("void cutlass::device_kernel<MyGemm>(MyGemm::Params)", Library::Cutlass),
        ("void regular_fft<256u, EPT<16u>>(kernel_parameters_t)", Library::Cufft),
        ("void cusparse::csrmv_v3_kernel<int>(int)", Library::Cusparse),
        ("void flashinfer::BatchDecodeKernel<int>(int)", Library::FlashInfer),
    ];

    #[test]
    fn names_of_traces_lead_to_their_library() {
        for (name, library) in KNOWN {
            assert_eq!(Library::of_kernel(name), Some(library), "{name}");
        }
        for name in
            ["gemm", "saxpy(float*)", "_Z12empty_kernelPi", "my_fusion_of_kernels", "scan_00", "", "_ZN", "_ZN9"]
        {
            assert_eq!(Library::of_kernel(name), None, "{name}");
        }
    }

    #[test]
    fn a_name_that_cannot_be_demangled_shows_its_namespaces() {
        let long = format!("_ZN2at6native4fillI{}EEvv", "x".repeat(1 << 15));
        assert_eq!(Library::of_kernel(&long), Some(Library::Pytorch));
        assert_eq!(namespaces("_ZN2at6native99"), "at::native");
    }

    #[test]
    fn files_lead_to_their_library_and_the_runtime_to_none() {
        assert_eq!(Library::of_file("libcublasLt.so.12"), Some(Library::Cublas));
        assert_eq!(Library::of_file("/x/torch/lib/libtorch_cuda.so"), Some(Library::Pytorch));
        for file in ["libcudart.so.12", "libcuda.so.1", "train.py", ""] {
            assert_eq!(Library::of_file(file), None, "{file}");
        }
    }
}
