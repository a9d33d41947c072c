//! One row of `traceEvents`: only the fields that become part of a record.
//!
//! Most rows of a file are framework operators with stacks and shapes. Their arguments are skipped without being
//! kept, which is possible as soon as the category is known; Kineto writes it before the arguments.

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess};
use serde_json::value::RawValue;

use super::lenient::{Lenient, Shape};
use super::scalar::{Extent, Scalar};

/// Subject of a row. Names changed over the versions of Kineto; the older spellings are from 2021.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Category {
    /// `kernel`, `Kernel`.
    Kernel,
    /// `gpu_memcpy`, `Memcpy`.
    Copy,
    /// `gpu_memset`, `Memset`.
    Memset,
    /// `cuda_runtime`, `Runtime`.
    Runtime,
    /// `cuda_driver`, `Driver`.
    Driver,
    /// `cuda_sync`.
    Sync,
    /// `overhead`.
    Overhead,
    /// Host ranges, including the steps: `user_annotation`, `cpu_op`, `Operator`.
    Range,
    /// A point in time, as of an allocation: `cpu_instant_event`.
    Instant,
    /// `python_function`.
    Python,
    /// Begin or end of an arrow from a forward operator to its backward one: `fwdbwd`.
    Arrow,
    /// Any category that this import does not use.
    #[default]
    Other,
}

impl Category {
    fn of(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "kernel" => Self::Kernel,
            "gpu_memcpy" | "memcpy" => Self::Copy,
            "gpu_memset" | "memset" => Self::Memset,
            "cuda_runtime" | "runtime" => Self::Runtime,
            "cuda_driver" | "driver" => Self::Driver,
            "cuda_sync" => Self::Sync,
            "overhead" => Self::Overhead,
            "user_annotation" | "cpu_op" | "operator" => Self::Range,
            "cpu_instant_event" => Self::Instant,
            "python_function" => Self::Python,
            "fwdbwd" => Self::Arrow,
            _ => Self::Other,
        }
    }

    const fn is_without_arguments(self) -> bool {
        matches!(self, Self::Range | Self::Instant | Self::Python | Self::Arrow | Self::Other)
    }
}

/// A row. Missing fields are absent or empty.
#[derive(Debug, Default)]
pub(super) struct KinetoRow {
    /// `"ph": "X"`: start and duration in one row.
    pub(super) complete: bool,
    /// `"ph": "M"`: a description.
    pub(super) metadata: bool,
    /// `"ph": "s"`: the begin of an arrow.
    pub(super) begins: bool,
    /// Number of the arrow.
    pub(super) id: Scalar,
    pub(super) category: Category,
    /// True if the row has a category.
    pub(super) categorized: bool,
    pub(super) name: String,
    pub(super) process: Scalar,
    pub(super) thread: Scalar,
    /// Microseconds, as written.
    pub(super) start: Option<Box<RawValue>>,
    /// Microseconds, as written.
    pub(super) duration: Option<Box<RawValue>>,
    pub(super) arguments: Arguments,
    /// Contents of `args` of ranges and points, unread.
    pub(super) of_operator: Option<Box<RawValue>>,
}

/// Contents of `args` of an operator or an allocation.
#[derive(Debug, Default)]
pub(super) struct OperatorArguments {
    /// `Input Dims`: the text of a list.
    pub(super) shapes: Option<Box<RawValue>>,
    /// `Concrete Inputs`: the text of a list.
    pub(super) values: Option<Box<RawValue>>,
    pub(super) device_type: Scalar,
    pub(super) bytes: Scalar,
    /// `Sequence number` of autograd.
    pub(super) sequence: Scalar,
    /// `Fwd thread id`: of a backward operator the thread of its forward one, by PyTorch's number; else 0.
    pub(super) forward_thread: Scalar,
}

/// Contents of `args`.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) device: Scalar,
    pub(super) context: Scalar,
    pub(super) stream: Scalar,
    pub(super) correlation: Scalar,
    pub(super) grid: Extent,
    pub(super) block: Extent,
    pub(super) registers: Scalar,
    pub(super) shared_bytes: Scalar,
    pub(super) bytes: Scalar,
    pub(super) callback_id: Scalar,
    pub(super) graph: Scalar,
    pub(super) graph_node: Scalar,
    pub(super) sync_kind: Scalar,
    /// Name of a process or thread, in a description of it.
    pub(super) name: Scalar,
    /// Properties of a kernel, copy or memset in one text, as XLA writes them.
    pub(super) details: Scalar,
    /// PyTorch's description of the collective that a kernel performs.
    pub(super) collective: CollectiveArguments,
}

/// Arguments that PyTorch 2.3 and later copies from `record_param_comms` to kernels.
#[derive(Debug, Default)]
pub(super) struct CollectiveArguments {
    /// For example `_allgather_base`.
    pub(super) name: Scalar,
    pub(super) group: Scalar,
    pub(super) group_description: Scalar,
    /// For example `[0, 1]`; for more than 30 ranks, dots precede the last one.
    pub(super) group_ranks: Scalar,
    pub(super) group_size: Scalar,
    pub(super) elements_in: Scalar,
    pub(super) elements_out: Scalar,
    /// For example `BFloat16`.
    pub(super) data_type: Scalar,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum RowKey {
    Ph,
    Cat,
    Name,
    Id,
    Pid,
    Tid,
    Ts,
    Dur,
    Args,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum ArgumentKey {
    Device,
    Context,
    Stream,
    #[serde(alias = "correlation_id")]
    Correlation,
    Name,
    #[serde(rename = "kernel_details", alias = "memcpy_details", alias = "memset_details")]
    Details,
    Grid,
    Block,
    #[serde(rename = "registers per thread")]
    Registers,
    #[serde(rename = "shared memory")]
    SharedBytes,
    Bytes,
    #[serde(rename = "cbid")]
    CallbackId,
    #[serde(rename = "graph id")]
    Graph,
    #[serde(rename = "graph node id")]
    GraphNode,
    #[serde(rename = "cuda_sync_kind")]
    SyncKind,
    #[serde(rename = "Collective name")]
    CollectiveName,
    #[serde(rename = "Process Group Name")]
    ProcessGroup,
    #[serde(rename = "Process Group Description")]
    ProcessGroupDescription,
    #[serde(rename = "Process Group Ranks")]
    ProcessGroupRanks,
    #[serde(rename = "Group size")]
    GroupSize,
    #[serde(rename = "In msg nelems")]
    ElementsIn,
    #[serde(rename = "Out msg nelems")]
    ElementsOut,
    #[serde(rename = "dtype")]
    DataType,
    #[serde(other)]
    Other,
}

impl Shape for KinetoRow {
    fn members<'de, A: MapAccess<'de>>(mut map: A) -> Result<Option<Self>, A::Error> {
        let mut row = Self::default();
        while let Some(key) = map.next_key::<RowKey>()? {
            match key {
                RowKey::Ph => {
                    let phase = map.next_value::<Scalar>()?;
                    (row.complete, row.metadata) = (phase.text() == "X", phase.text() == "M");
                    row.begins = phase.text() == "s";
                }
                RowKey::Cat => {
                    row.category = Category::of(map.next_value::<Scalar>()?.text());
                    row.categorized = true;
                }
                RowKey::Name => row.name = map.next_value::<Scalar>()?.into_text(),
                RowKey::Pid => row.process = map.next_value()?,
                RowKey::Id => row.id = map.next_value()?,
                RowKey::Tid => row.thread = map.next_value()?,
                RowKey::Ts => row.start = Some(map.next_value()?),
                RowKey::Dur => row.duration = Some(map.next_value()?),
                RowKey::Args if row.categorized && !row.category.is_without_arguments() => {
                    row.arguments = map.next_value::<Lenient<Arguments>>()?.0.unwrap_or_default();
                }
                RowKey::Args if !row.categorized || matches!(row.category, Category::Range | Category::Instant) => {
                    row.of_operator = Some(map.next_value()?);
                }
                RowKey::Args | RowKey::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        // Writers that sort their keys have the arguments first.
        if !(row.categorized && row.category.is_without_arguments())
            && let Some(unread) = row.of_operator.take()
        {
            let arguments = serde_json::from_str::<Lenient<Arguments>>(unread.get());
            row.arguments = arguments.ok().and_then(|arguments| arguments.0).unwrap_or_default();
        }
        Ok(Some(row))
    }
}

impl Shape for Arguments {
    fn members<'de, A: MapAccess<'de>>(mut map: A) -> Result<Option<Self>, A::Error> {
        let mut arguments = Self::default();
        while let Some(key) = map.next_key::<ArgumentKey>()? {
            match key {
                ArgumentKey::Device => arguments.device = map.next_value()?,
                ArgumentKey::Context => arguments.context = map.next_value()?,
                ArgumentKey::Stream => arguments.stream = map.next_value()?,
                ArgumentKey::Correlation => arguments.correlation = map.next_value()?,
                ArgumentKey::Name => arguments.name = map.next_value()?,
                ArgumentKey::Details => arguments.details = map.next_value()?,
                ArgumentKey::Grid => arguments.grid = map.next_value()?,
                ArgumentKey::Block => arguments.block = map.next_value()?,
                ArgumentKey::Registers => arguments.registers = map.next_value()?,
                ArgumentKey::SharedBytes => arguments.shared_bytes = map.next_value()?,
                ArgumentKey::Bytes => arguments.bytes = map.next_value()?,
                ArgumentKey::CallbackId => arguments.callback_id = map.next_value()?,
                ArgumentKey::Graph => arguments.graph = map.next_value()?,
                ArgumentKey::GraphNode => arguments.graph_node = map.next_value()?,
                ArgumentKey::SyncKind => arguments.sync_kind = map.next_value()?,
                ArgumentKey::CollectiveName => arguments.collective.name = map.next_value()?,
                ArgumentKey::ProcessGroup => arguments.collective.group = map.next_value()?,
                ArgumentKey::ProcessGroupDescription => arguments.collective.group_description = map.next_value()?,
                ArgumentKey::ProcessGroupRanks => arguments.collective.group_ranks = map.next_value()?,
                ArgumentKey::GroupSize => arguments.collective.group_size = map.next_value()?,
                ArgumentKey::ElementsIn => arguments.collective.elements_in = map.next_value()?,
                ArgumentKey::ElementsOut => arguments.collective.elements_out = map.next_value()?,
                ArgumentKey::DataType => arguments.collective.data_type = map.next_value()?,
                ArgumentKey::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Some(arguments))
    }
}

#[derive(Deserialize)]
#[serde(field_identifier)]
enum OperatorKey {
    #[serde(rename = "Input Dims", alias = "Input dims")]
    Shapes,
    #[serde(rename = "Concrete Inputs")]
    Values,
    #[serde(rename = "Device Type")]
    DeviceType,
    Bytes,
    #[serde(rename = "Sequence number")]
    Sequence,
    #[serde(rename = "Fwd thread id")]
    ForwardThread,
    #[serde(other)]
    Other,
}

impl Shape for OperatorArguments {
    fn members<'de, A: MapAccess<'de>>(mut map: A) -> Result<Option<Self>, A::Error> {
        let mut arguments = Self::default();
        while let Some(key) = map.next_key::<OperatorKey>()? {
            match key {
                OperatorKey::Shapes => arguments.shapes = Some(map.next_value()?),
                OperatorKey::Values => arguments.values = Some(map.next_value()?),
                OperatorKey::DeviceType => arguments.device_type = map.next_value()?,
                OperatorKey::Bytes => arguments.bytes = map.next_value()?,
                OperatorKey::Sequence => arguments.sequence = map.next_value()?,
                OperatorKey::ForwardThread => arguments.forward_thread = map.next_value()?,
                OperatorKey::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Some(arguments))
    }
}
