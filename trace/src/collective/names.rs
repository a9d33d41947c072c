//! NCCL's names of functions, types, algorithms and protocols, with the codes stored in traces.

/// Defines an enumeration with stable codes and names. The first variant means "unknown" and has code 0.
macro_rules! named {
    ($(#[$doc:meta])* $type:ident: $unknown:ident $(, $variant:ident = $code:literal $name:literal $nccl:literal)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type {
            /// Not reported, or a value unknown to this version.
            #[default]
            $unknown,
            $(#[doc = concat!("`", $nccl, "`")] $variant,)*
        }

        impl $type {
            /// All values; the unknown one is first.
            pub const ALL: &[Self] = &[Self::$unknown, $(Self::$variant),*];

            /// Stable code in traces.
            pub const fn code(self) -> u8 {
                match self {
                    Self::$unknown => 0,
                    $(Self::$variant => $code,)*
                }
            }

            /// The inverse of [`code`](Self::code); unknown for codes of newer versions.
            pub const fn from_code(code: u64) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    _ => Self::$unknown,
                }
            }

            /// Stable name in JSON and tables.
            pub const fn name(self) -> &'static str {
                match self {
                    Self::$unknown => "unknown",
                    $(Self::$variant => $name,)*
                }
            }

            /// Parses NCCL's own text.
            pub fn from_nccl(text: &[u8]) -> Self {
                let all = [$((Self::$variant, $nccl.as_bytes())),*];
                all.iter().find(|(_, nccl)| *nccl == text).map_or(Self::$unknown, |&(value, _)| value)
            }
        }
    };
}

named! {
    /// Function of an operation.
    Function: Unknown,
    AllReduce = 1 "all_reduce" "AllReduce",
    AllGather = 2 "all_gather" "AllGather",
    ReduceScatter = 3 "reduce_scatter" "ReduceScatter",
    Broadcast = 4 "broadcast" "Broadcast",
    Reduce = 5 "reduce" "Reduce",
    Send = 6 "send" "Send",
    Receive = 7 "receive" "Recv",
    SendReceive = 8 "send_receive" "SendRecv",
    AllToAll = 9 "all_to_all" "AlltoAll",
    Gather = 10 "gather" "Gather",
    Scatter = 11 "scatter" "Scatter"
}

named! {
    /// Type of the elements.
    DataType: Unknown,
    Int8 = 1 "int8" "ncclInt8",
    Uint8 = 2 "uint8" "ncclUint8",
    Int32 = 3 "int32" "ncclInt32",
    Uint32 = 4 "uint32" "ncclUint32",
    Int64 = 5 "int64" "ncclInt64",
    Uint64 = 6 "uint64" "ncclUint64",
    Float16 = 7 "float16" "ncclFloat16",
    Float32 = 8 "float32" "ncclFloat32",
    Float64 = 9 "float64" "ncclFloat64",
    Bfloat16 = 10 "bfloat16" "ncclBfloat16",
    Float8E4m3 = 11 "float8_e4m3" "ncclFloat8e4m3",
    Float8E5m2 = 12 "float8_e5m2" "ncclFloat8e5m2"
}

named! {
    /// How data moves between ranks.
    Algorithm: Unknown,
    Tree = 1 "tree" "TREE",
    Ring = 2 "ring" "RING",
    CollnetDirect = 3 "collnet_direct" "COLLNET_DIRECT",
    CollnetChain = 4 "collnet_chain" "COLLNET_CHAIN",
    Nvls = 5 "nvls" "NVLS",
    NvlsTree = 6 "nvls_tree" "NVLS_TREE",
    Pat = 7 "pat" "PAT"
}

named! {
    /// How ranks signal to each other that data is ready.
    Protocol: Unknown,
    Ll = 1 "ll" "LL",
    Ll128 = 2 "ll128" "LL128",
    Simple = 3 "simple" "SIMPLE"
}

/// Parts of kernel names, in lower case without underscores, in search order.
const KERNELS: [(&str, Function); 9] = [
    ("allreduce", Function::AllReduce),
    ("crossdevicereduce", Function::AllReduce),
    ("allgather", Function::AllGather),
    ("reducescatter", Function::ReduceScatter),
    ("alltoall", Function::AllToAll),
    ("sendrecv", Function::SendReceive),
    ("broadcast", Function::Broadcast),
    // Must follow the others, some of which contain it.
    ("reduce", Function::Reduce),
    ("scatter", Function::Scatter),
];

impl Function {
    /// Function by the name of a kernel, mangled or not. Names of NCCL's kernels contain the function but
    /// neither algorithm nor protocol, because one kernel serves several.
    pub fn of_kernel(name: &str) -> Self {
        let plain = name.to_ascii_lowercase().replace('_', "");
        KERNELS.iter().find(|(part, _)| plain.contains(part)).map_or(Self::Unknown, |&(_, function)| function)
    }

    /// True if a kernel of this function can execute an operation of `other`.
    pub fn may_do(self, other: Self) -> bool {
        let as_kernel = |function| match function {
            // NCCL implements these as sends and receives unless a dedicated kernel exists.
            Self::Send | Self::Receive | Self::AllToAll | Self::Gather | Self::Scatter => Self::SendReceive,
            function => function,
        };
        self == Self::Unknown || other == Self::Unknown || self == other || as_kernel(self) == as_kernel(other)
    }
}

impl DataType {
    /// Bytes per element; 0 if the type is unknown.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::Int8 | Self::Uint8 | Self::Float8E4m3 | Self::Float8E5m2 => 1,
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float32 => 4,
            Self::Int64 | Self::Uint64 | Self::Float64 => 8,
        }
    }
}
