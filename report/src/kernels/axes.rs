//! Axes of a roofline: data types and memory levels.

use gpuwhy_trace::named;

named! {
    /// Data type of the operations.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum DataType: name {
        /// Tensor pipes, BF16.
        Bf16 "bf16",
        /// Tensor pipes, FP16.
        Fp16 "fp16",
        /// Tensor pipes, TF32.
        Tf32 "tf32",
        /// Tensor pipes, FP8.
        Fp8 "fp8",
        /// Tensor pipes, 8-bit integers.
        Int8 "int8",
        /// Tensor pipes, FP64.
        TensorFp64 "tensor_fp64",
        /// FP32 outside of the tensor pipes.
        Fp32 "fp32",
    }
}

named! {
    /// A level of memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Level: name words {
        /// Device memory.
        Dram "dram" "device memory",
        /// The L2 cache.
        L2 "l2" "the L2 cache",
        /// The L1 cache.
        L1 "l1" "the L1 cache",
    }
}
