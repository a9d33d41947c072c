//! What a roofline tells apart: data types and levels of memory.

/// What the operations work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataType {
    /// Tensor pipes, BF16.
    Bf16,
    /// Tensor pipes, FP16.
    Fp16,
    /// Tensor pipes, TF32.
    Tf32,
    /// Tensor pipes, FP8.
    Fp8,
    /// Tensor pipes, 8-bit integers.
    Int8,
    /// Tensor pipes, FP64.
    TensorFp64,
    /// FP32 outside of the tensor pipes.
    Fp32,
}

impl DataType {
    /// Stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Tf32 => "tf32",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
            Self::TensorFp64 => "tensor_fp64",
            Self::Fp32 => "fp32",
        }
    }
}

/// A level of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Device memory.
    Dram,
    /// The L2 cache.
    L2,
    /// The L1 cache.
    L1,
}

impl Level {
    /// All of them, in the order of the `bytes` of `Figures`.
    pub const ALL: [Self; 3] = [Self::Dram, Self::L2, Self::L1];

    /// Stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dram => "dram",
            Self::L2 => "l2",
            Self::L1 => "l1",
        }
    }

    /// Words for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Dram => "device memory",
            Self::L2 => "the L2 cache",
            Self::L1 => "the L1 cache",
        }
    }
}
