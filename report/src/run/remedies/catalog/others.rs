//! Changes that no report advises under their own name: other forms of what entries advise, and settings whose effect
//! depends on the program.

use crate::run::Results;
use crate::run::remedies::trial::{How, Trial};

use Results::{Behavior, Rounding, Same};

const fn change(id: &'static str, change: &'static str, keep: &'static str, how: How, needs: &'static str) -> Trial {
    Trial { id, change, keep, how, needs }
}

pub(super) const COMPILE_GRAPHS: Trial = change(
    "compile_graphs",
    "torch.compile with CUDA graphs around the outermost module",
    "model = torch.compile(model, mode=\"reduce-overhead\")",
    How::PyTorch,
    "no module was called on the GPU, or it is compiled already",
);
pub(super) const COMPILE_DYNAMIC: Trial = change(
    "compile_dynamic",
    "dynamic=True in torch.compile",
    "torch.compile(..., dynamic=True)",
    How::PyTorch,
    "torch.compile was not called, or with its own choice for dynamic shapes",
);
pub(super) const NON_BLOCKING: Trial = change(
    "non_blocking",
    "copies from pinned memory to the GPU do not wait",
    "x.to(\"cuda\", non_blocking=True), where the memory is not written again before the copy has ended",
    How::PyTorch,
    "no tensor was copied from pinned memory, or none that waits",
);
pub(super) const TENSOR_BATCHES: Trial = change(
    "tensor_batches",
    "a batch of a TensorDataset is taken by one index",
    "a method __getitems__(self, indices) of the dataset, and a collate_fn that takes what it returns",
    How::PyTorch,
    "no DataLoader with batches of a TensorDataset and without a collate_fn of its own was made",
);
pub(super) const XLA_OVERLAP: Trial = change(
    "xla_overlap",
    "XLA hides collectives behind computation",
    "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true",
    How::Python,
    "the program did not import jax, its XLA does not know --xla_gpu_enable_latency_hiding_scheduler, or it is set already",
);

/// With their effect on the results.
pub(super) const OTHERS: [(Results, &[&Trial]); 3] = [(Same, SAME), (Rounding, ROUNDING), (Behavior, BEHAVIOR)];
const SAME: &[&Trial] = &[
    &TENSOR_BATCHES,
    &XLA_OVERLAP,
    &change(
        "malloc",
        "another allocator for the memory of the CPU",
        "LD_PRELOAD=libtcmalloc_minimal.so.4 or libjemalloc.so.2",
        How::Preload(&["libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libjemalloc.so.2"]),
        "neither tcmalloc nor jemalloc is installed, or one is loaded already",
    ),
    &change(
        "numa",
        "the CPU cores beside the GPU alone",
        "taskset --cpu-list with the cores of the GPU's NUMA node",
        How::Cores,
        "all cores are as near to the GPU, it runs there already, or GPUs are at several nodes and the first number in \
             CUDA_VISIBLE_DEVICES does not say which it is",
    ),
    &change(
        "eager_modules",
        "the driver loads all kernels at the start",
        "CUDA_MODULE_LOADING=EAGER",
        How::Set(&[("CUDA_MODULE_LOADING", "EAGER")]),
        "CUDA_MODULE_LOADING=EAGER is set already",
    ),
    &change(
        "malloc_async",
        "PyTorch leaves memory of the GPU to cudaMallocAsync",
        "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync",
        How::Add(&["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"], "backend:cudaMallocAsync"),
        "a backend is set already",
    ),
];
const ROUNDING: &[&Trial] = &[
    &COMPILE_GRAPHS,
    &COMPILE_DYNAMIC,
    &change(
        "foreach_optimizer",
        "foreach=True in optimizers that were told otherwise",
        "foreach=True for the optimizer",
        How::PyTorch,
        "no optimizer was made with foreach=False",
    ),
    &change(
        "cudnn_search",
        "cuDNN measures which algorithm is fastest",
        "torch.backends.cudnn.benchmark = True",
        How::PyTorch,
        "it does so already",
    ),
    &change(
        "xla_triton",
        "XLA uses Triton for all matrix products that it can",
        "XLA_FLAGS=--xla_gpu_triton_gemm_any=true",
        How::Python,
        "the program did not import jax, its XLA does not know --xla_gpu_triton_gemm_any, or it is set already",
    ),
];
const BEHAVIOR: &[&Trial] = &[
    &NON_BLOCKING,
    // The next call writes over the results of this one.
    &change(
        "graphed_module",
        "the outermost module is a CUDA graph, forward and backward, while its inputs keep their shapes",
        "model = torch.cuda.make_graphed_callables(model, (x,))",
        How::PyTorch,
        "no module that trains was called with tensors of the GPU alone",
    ),
    &change(
        "zero_grad",
        "zero_grad() frees the gradients in place of filling them",
        "optimizer.zero_grad(set_to_none=True)",
        How::PyTorch,
        "zero_grad(set_to_none=False) was not called",
    ),
];
