//! PyTorch's process groups, from the arguments of kernels.
//!
//! Kineto copies them from the operator `record_param_comms` to each kernel that it launched. The event of a
//! kernel also names the CUDA call that launched it. From both, this module makes a collective operation that
//! belongs to that call.

use std::hash::Hasher as _;

use gpuwhy_trace::collective::{CollectiveEvent, Communicator, DataType, Function, QueuedOperation};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{ApiCall, CorrelationId};
use rustc_hash::{FxHashMap, FxHasher};

use super::row::CollectiveArguments;

/// Maximum number of distinct process groups.
const GROUPS: usize = 1 << 12;
/// PyTorch's description of a group without one.
const UNDESCRIBED: &str = "undefined";

/// Process groups of a file, and their operations.
#[derive(Debug, Default)]
pub(super) struct ProcessGroups {
    numbers: FxHashMap<u64, u32>,
    /// Communicators with their ranks, as PyTorch writes them.
    communicators: Vec<(Communicator, String)>,
    operations: FxHashMap<CorrelationId, QueuedOperation>,
}

impl ProcessGroups {
    /// Takes a kernel; skips it if PyTorch names no group for it.
    pub(super) fn kernel(
        &mut self,
        kernel: &str,
        correlation: CorrelationId,
        of: &CollectiveArguments,
        dictionary: &mut Dictionary,
    ) {
        let (name, ranks) = (as_text(&of.group), of.group_ranks.text());
        if of.name.text().is_empty() || (name.is_empty() && ranks.is_empty()) {
            return;
        }
        let size: u32 = of.group_size.within().unwrap_or(0);
        let mut hasher = FxHasher::default();
        hasher.write(name.as_bytes());
        hasher.write(ranks.as_bytes());
        hasher.write_u32(size);
        // 0 means unknown.
        let id = hasher.finish().max(1);
        let next = self.communicators.len() as u32 + 1;
        if !self.numbers.contains_key(&id) && self.communicators.len() == GROUPS {
            return;
        }
        let number = *self.numbers.entry(id).or_insert_with(|| {
            let description = of.group_description.text();
            let shown = if description.is_empty() || description == UNDESCRIBED { &name } else { description };
            let name = dictionary.intern_name(shown);
            let communicator = Communicator { number: next, id, name, nodes: 0, ranks: size, rank: 0 };
            self.communicators.push((communicator, ranks.to_owned()));
            next
        });
        // An operation that this version does not know, such as a barrier, is described by its kernel.
        let function = match Function::of_kernel(of.name.text()) {
            Function::Unknown => Function::of_kernel(kernel),
            function => function,
        };
        let data_type = data_type(of.data_type.text());
        let [elements_in, elements_out] = [&of.elements_in, &of.elements_out].map(|of| of.within::<u64>().unwrap_or(0));
        // The share of one rank.
        let elements = match function {
            Function::ReduceScatter | Function::Scatter => elements_out,
            Function::AllToAll => elements_in / u64::from(size.max(1)),
            _ => elements_in,
        };
        let operation = QueuedOperation {
            communicator: number,
            function,
            data_type,
            count: elements.saturating_mul(data_type.bytes()),
            by_range: true,
            ..QueuedOperation::default()
        };
        self.operations.insert(correlation, operation);
    }

    /// Groups, to be written before all operations. `rank` is the rank of the process in its job.
    pub(super) fn communicators(&self, rank: Option<u32>) -> impl Iterator<Item = CollectiveEvent> {
        self.communicators.iter().map(move |(communicator, ranks)| {
            let rank = rank.and_then(|rank| rank_in(rank, ranks, communicator.ranks)).unwrap_or(communicator.ranks);
            CollectiveEvent::Communicator(Communicator { rank, ..*communicator })
        })
    }

    /// Returns the operation whose kernel this call launched.
    pub(super) fn launched_by(&mut self, call: &ApiCall) -> Option<CollectiveEvent> {
        let mut operation = self.operations.remove(&call.correlation)?;
        (operation.thread, operation.at) = (call.thread, call.end);
        (operation.launch_begin, operation.launch_end) = (call.start, call.end);
        Some(CollectiveEvent::Operation(operation))
    }
}

/// Position of `rank` in a group of `size` ranks, from PyTorch's list. For more than 30 ranks, the list has
/// the first ones, dots and the last one.
fn rank_in(rank: u32, list: &str, size: u32) -> Option<u32> {
    let members: Vec<u32> =
        list.split(|letter: char| !letter.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    let at = members.iter().position(|&member| member == rank)?;
    let is_last = at + 1 == members.len();
    if is_last && list.contains("...") { size.checked_sub(1) } else { u32::try_from(at).ok() }
}

/// Returns the name as text; older versions wrote it as a number.
fn as_text(name: &super::scalar::Scalar) -> String {
    name.integer().map_or_else(|| name.text().to_owned(), |number| number.to_string())
}

/// Looks up a type by PyTorch's name.
fn data_type(name: &str) -> DataType {
    match name {
        "Char" => DataType::Int8,
        "Byte" | "Bool" => DataType::Uint8,
        "Int" => DataType::Int32,
        "UInt32" => DataType::Uint32,
        "Long" => DataType::Int64,
        "UInt64" => DataType::Uint64,
        "Half" => DataType::Float16,
        "Float" => DataType::Float32,
        "Double" => DataType::Float64,
        "BFloat16" => DataType::Bfloat16,
        "Float8_e4m3fn" => DataType::Float8E4m3,
        "Float8_e5m2" => DataType::Float8E5m2,
        _ => DataType::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::rank_in;

    #[test]
    fn the_place_of_a_rank_is_known_unless_dots_hide_it() {
        assert_eq!(rank_in(6, "[4, 5, 6, 7]", 4), Some(2));
        assert_eq!(rank_in(9, "[4, 5, 6, 7]", 4), None);
        let many = "[0, 2, 4, ..., 126]";
        assert_eq!([4, 126, 60].map(|rank| rank_in(rank, many, 64)), [Some(2), Some(63), None]);
    }
}
