//! Body of a GRAPH_NODES block: groups of nodes, each preceded by its length so that a reader can skip unknown
//! kinds.
//!
//! Consecutive nodes of one kind form a group. Each is written field by field as the difference to the previous
//! one: ids and times of nodes that are added or copied together follow each other.

use super::block::MAX_EVENTS;
use super::varint::{self, Cursor, Malformed, unzigzag, zigzag};
use crate::graph_node::GraphNode;
use crate::record::{StackId, ThreadId, Timestamp};

/// Contents of a group. Numbers are never reused.
mod what {
    pub(super) const ADDED: u8 = 1;
    pub(super) const COPIED: u8 = 2;
}

/// Earliest and latest time of `nodes`; both 0 if there are no times.
pub(super) fn times(nodes: &[GraphNode]) -> (u64, u64) {
    let times = nodes.iter().map(|node| node.at.nanos()).filter(|&at| at != 0);
    times.map(|at| (at, at)).reduce(|extent, at| (extent.0.min(at.0), extent.1.max(at.1))).unwrap_or_default()
}

/// Appends `nodes`, with times relative to `base`.
pub(super) fn encode(nodes: &[GraphNode], base: u64, body: &mut Vec<u8>) {
    let mut bytes = Vec::new();
    for group in nodes.chunk_by(|a, b| is_copy(a) == is_copy(b)) {
        bytes.clear();
        varint::put(&mut bytes, group.len() as u64);
        let mut before = Before([0, base, 0, 0]);
        for node in group {
            let third = if is_copy(node) { node.original } else { number_of(node.stack) };
            let new = [node.node, node.at.nanos(), node.thread.0.into(), third];
            varint::put_all(&mut bytes, &before.differences(new));
        }
        body.push(if group.first().is_some_and(is_copy) { what::COPIED } else { what::ADDED });
        varint::put_bytes(body, &bytes);
    }
}

/// The inverse of [`encode`]. Returns the number of groups of unknown kinds. A malformed body yields no nodes.
pub(super) fn decode(body: &[u8], base: u64, give: impl FnMut(GraphNode)) -> Result<u64, Malformed> {
    let mut nodes = Vec::new();
    let mut unknown = 0;
    let mut cursor = Cursor::new(body);
    while !cursor.is_empty() {
        let kind = cursor.byte()?;
        let mut group = Cursor::new(cursor.bytes()?);
        match kind {
            what::ADDED | what::COPIED => decode_group(&mut group, base, kind == what::COPIED, &mut nodes)?,
            _ => unknown += 1,
        }
    }
    nodes.into_iter().for_each(give);
    Ok(unknown)
}

fn decode_group(group: &mut Cursor<'_>, base: u64, copied: bool, nodes: &mut Vec<GraphNode>) -> Result<(), Malformed> {
    let count = group.varint()?;
    if count > (MAX_EVENTS - nodes.len()) as u64 {
        return Err(Malformed);
    }
    let mut before = Before([0, base, 0, 0]);
    for _ in 0..count {
        let [node, at, thread, third] = before.add(|| group.varint())?;
        let mut row = GraphNode {
            node,
            at: Timestamp::from_nanos(at),
            thread: ThreadId(thread.try_into().map_err(|_| Malformed)?),
            ..GraphNode::default()
        };
        if copied {
            row.original = third;
        } else {
            row.stack = stack_of(third)?;
        }
        nodes.push(row);
    }
    Ok(())
}

fn is_copy(node: &GraphNode) -> bool {
    node.original != 0
}

/// 0 is no stack, so that an id of the dictionary is one more.
pub(super) fn number_of(stack: StackId) -> u64 {
    if stack == StackId::NONE { 0 } else { u64::from(stack.0) + 1 }
}

pub(super) fn stack_of(number: u64) -> Result<StackId, Malformed> {
    match number.checked_sub(1) {
        None => Ok(StackId::NONE),
        Some(id) => id.try_into().map(StackId).map_err(|_| Malformed),
    }
}

/// Fields of the previous node: id, time, thread, and original or stack.
pub(super) struct Before<const N: usize>(pub(super) [u64; N]);

impl<const N: usize> Before<N> {
    pub(super) fn differences(&mut self, new: [u64; N]) -> [u64; N] {
        let mut out = new;
        for (value, before) in out.iter_mut().zip(self.0) {
            *value = zigzag(value.wrapping_sub(before));
        }
        self.0 = new;
        out
    }

    pub(super) fn add(&mut self, mut next: impl FnMut() -> Result<u64, Malformed>) -> Result<[u64; N], Malformed> {
        for value in &mut self.0 {
            *value = value.wrapping_add(unzigzag(next()?));
        }
        Ok(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(1_790_000_000_000_000_000 + nanos)
    }

    fn nodes() -> Vec<GraphNode> {
        let added = |node, stack| GraphNode {
            node,
            at: at(100 + node % 7),
            thread: ThreadId(4711),
            stack,
            ..GraphNode::default()
        };
        let copied =
            |node, original| GraphNode { node, original, at: at(900), thread: ThreadId(1), ..added(1, StackId::NONE) };
        vec![
            added(1, StackId(0)),
            added(2, StackId::NONE),
            added(u64::MAX, StackId(u32::MAX - 1)),
            copied(9, 1),
            copied(8, u64::MAX),
            GraphNode { at: Timestamp::ZERO, thread: ThreadId(u32::MAX), ..added(3, StackId(7)) },
        ]
    }

    #[test]
    fn nodes_come_back_in_their_order() {
        let (nodes, mut body, mut read) = (nodes(), Vec::new(), Vec::new());
        encode(&nodes, times(&nodes).0, &mut body);
        assert_eq!(decode(&body, times(&nodes).0, |node| read.push(node)), Ok(0));
        assert_eq!(read, nodes);
        assert_eq!(times(&nodes), (at(101).nanos(), at(900).nanos()));
        assert_eq!(times(&nodes[5..]), (0, 0));
    }

    #[test]
    fn a_node_of_a_captured_step_takes_few_bytes() {
        let node = |index: u64| GraphNode {
            node: 1_000 + index,
            at: at(5_000 * index),
            thread: ThreadId(4711),
            stack: StackId(300),
            ..GraphNode::default()
        };
        let nodes: Vec<_> = (0..1_000).map(node).collect();
        let mut body = Vec::new();
        encode(&nodes, times(&nodes).0, &mut body);
        assert!(body.len() <= 5 * nodes.len() + 20, "{}", body.len());
    }

    #[test]
    fn a_body_that_is_cut_or_announces_too_much_gives_nothing() {
        let mut body = Vec::new();
        encode(&nodes(), 0, &mut body);
        for length in 0..body.len() {
            let mut read = Vec::new();
            let result = decode(&body[..length], 0, |node| read.push(node));
            // A prefix that ends at a group boundary is valid.
            assert!(result.is_ok() || read.is_empty(), "{length}");
        }
        let mut hostile = vec![what::COPIED];
        varint::put_bytes(&mut hostile, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]);
        assert_eq!(decode(&hostile, 0, |_| {}), Err(Malformed));
    }

    #[test]
    fn groups_of_newer_versions_are_stepped_over() {
        let mut body = vec![9];
        varint::put_bytes(&mut body, b"newer");
        encode(&nodes()[..2], 0, &mut body);
        let mut read = Vec::new();
        assert_eq!(decode(&body, 0, |node| read.push(node)), Ok(1));
        assert_eq!(read, nodes()[..2]);
    }
}
