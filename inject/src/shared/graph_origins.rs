//! Where the nodes of CUDA graphs come from: the Python stack of the thread that adds a node.
//!
//! CUPTI calls when a node is added, on the adding thread, inside the call that is captured.
//!
//! A replay costs nothing. Nodes wait here until the collector takes them, which it does before it decodes a
//! buffer: a node precedes the records that name it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuwhy_trace::record::Timestamp;
use host_sampler::python::Frame;
use parking_lot::Mutex;

use super::callback_queue::CallbackQueue;
use super::stack_reader::{NoStack, StackReader};
use crate::sync::CALLBACK_LOCK_TIMEOUT;
use crate::sys::{clock, threads};

/// A node that was added or copied.
#[derive(Clone, Debug)]
pub struct QueuedNode {
    /// Its id in records.
    pub node: u64,
    /// `Some` for a copy: the id of the node it was copied from, 0 if unknown.
    pub original: Option<u64>,
    pub at: Timestamp,
    /// Kernel id of the thread that did it.
    pub thread: u32,
    /// Stack of that thread, innermost frame first; empty if unknown, and for a copy.
    pub frames: Arc<[Frame]>,
}

/// Nodes on their way from the callbacks to the collector.
#[derive(Debug)]
pub struct GraphOrigins {
    reader: Mutex<StackReader>,
    waiting: CallbackQueue<QueuedNode>,
    /// Nodes whose stack was not read. `Relaxed`: a statistic.
    unplaced: AtomicU64,
}

impl GraphOrigins {
    /// Creates an empty queue. Without `reads_stacks` only nodes and threads are noted.
    pub fn new(reads_stacks: bool) -> Self {
        Self {
            reader: Mutex::new(StackReader::new(reads_stacks)),
            waiting: CallbackQueue::default(),
            unplaced: AtomicU64::new(0),
        }
    }

    /// The calling thread adds a node.
    pub fn added(&self, node: u64) {
        let thread = threads::thread_id();
        let read = match self.reader.try_lock_for(CALLBACK_LOCK_TIMEOUT) {
            Some(mut reader) => reader.stack(thread),
            None => Err(NoStack::NotRead),
        };
        if read == Err(NoStack::NotRead) {
            self.unplaced.fetch_add(1, Ordering::Relaxed);
        }
        let frames = read.unwrap_or_else(|_| Arc::new([]));
        self.put(QueuedNode { node, original: None, at: clock::wall_clock(), thread, frames });
    }

    /// The calling thread copies a node.
    pub fn copied(&self, node: u64, original: u64) {
        let (at, thread) = (clock::wall_clock(), threads::thread_id());
        self.put(QueuedNode { node, original: Some(original), at, thread, frames: Arc::new([]) });
    }

    fn put(&self, node: QueuedNode) {
        // A node without an id cannot be found.
        if node.node == 0 {
            return;
        }
        self.waiting.put(node);
    }

    /// Takes the waiting nodes, in the order in which they were added.
    pub fn take(&self) -> Vec<QueuedNode> {
        self.waiting.take()
    }

    /// Number of nodes whose stack was not read because of a limit, another thread, or an error.
    pub fn unplaced(&self) -> u64 {
        self.unplaced.load(Ordering::Relaxed)
    }

    /// Number of nodes that were lost because too many waited.
    pub fn dropped(&self) -> u64 {
        self.waiting.dropped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::callback_queue::MOST_WAITING;
    use std::time::Instant;

    #[test]
    fn nodes_come_in_order_and_those_without_an_id_not_at_all() {
        let origins = GraphOrigins::new(true);
        origins.added(1);
        origins.added(0);
        origins.copied(5, 1);
        origins.copied(6, 0);
        let taken: Vec<_> = origins.take().into_iter().map(|node| (node.node, node.original)).collect();
        assert_eq!(taken, [(1, None), (5, Some(1)), (6, Some(0))]);
        assert!(origins.take().is_empty());
        assert_eq!((origins.unplaced(), origins.dropped()), (0, 0), "a program without Python loses nothing");
    }

    #[test]
    fn what_waits_is_bounded_and_the_rest_is_counted() {
        let origins = GraphOrigins::new(false);
        (1..=MOST_WAITING as u64 + 3).for_each(|node| origins.copied(node, 1));
        assert_eq!((origins.take().len(), origins.dropped()), (MOST_WAITING, 3));
        origins.added(1);
        assert_eq!((origins.take().len(), origins.unplaced()), (1, 0), "reading is off");
    }

    #[test]
    fn a_reader_in_use_delays_a_node_for_a_moment_and_takes_its_stack() {
        let origins = GraphOrigins::new(true);
        let reading = origins.reader.lock();
        let begun = Instant::now();
        origins.added(1);
        assert!(begun.elapsed() >= CALLBACK_LOCK_TIMEOUT);
        drop(reading);
        assert_eq!((origins.take().len(), origins.unplaced()), (1, 1));
    }
}
