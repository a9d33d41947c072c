//! Where the nodes of CUDA graphs come from: the Python stack of the thread that adds a node.
//!
//! CUPTI calls when a node is added, on the adding thread, inside the call that is captured. At that moment
//! PyTorch has mostly released the interpreter's lock, so that Python's own functions may not be called. But the
//! calling thread stands still: its frames are read as the sampler reads those of other threads, from memory and
//! without the lock, and one walk is enough.
//!
//! A replay costs nothing. Nodes wait here until the collector takes them, which it does before it decodes a
//! buffer: a node precedes the records that name it.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpuwhy_trace::record::Timestamp;
use host_sampler::process::Process;
use host_sampler::python::{Frame, Miss, Python};
use parking_lot::Mutex;

use crate::sync::CALLBACK_LOCK_TIMEOUT;
use crate::sys::{clock, memory, threads};

/// Maximum time for reading stacks in a run. It delays the program, once for each captured graph: 50 graphs of
/// 1,000 nodes would take 2 s at 40 us a stack. A second is little in the start of a program that captures that
/// much, which takes minutes.
const LONGEST_READING: Duration = Duration::from_secs(1);
/// Maximum number of nodes with a stack.
const MOST_STACKS: u64 = 1 << 17;
/// Maximum number of nodes that wait for the collector, 64 bytes each: it takes them ten times a second, and
/// CUPTI needs 4 us for a node.
const MOST_WAITING: usize = 1 << 16;

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
    reader: Mutex<Reader>,
    /// A panic under the lock leaves it valid: nothing in there panics halfway.
    waiting: Mutex<Vec<QueuedNode>>,
    /// Nodes whose stack was not read. `Relaxed`, like the next one: a statistic.
    unplaced: AtomicU64,
    /// Nodes that found the queue full.
    dropped: AtomicU64,
}

/// Reads stacks within limits.
#[derive(Debug)]
struct Reader {
    python: Interpreter,
    /// Time of all reads.
    spent: Duration,
    stacks: u64,
    /// The last stack: consecutive nodes are mostly added by the same line.
    last: Arc<[Frame]>,
}

#[derive(Debug)]
enum Interpreter {
    /// Not looked for yet: this happens at the first node, because most programs have none.
    Unknown,
    Found(Box<Python>),
    /// There is none, or reading was interrupted by a panic.
    None,
}

/// Why a node has no stack although stacks are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoStack {
    /// The thread runs no Python.
    NoPython,
    /// A limit was reached, or the stack could not be read.
    NotRead,
}

impl GraphOrigins {
    /// Creates an empty queue. Without `reads_stacks` only nodes and threads are noted.
    pub fn new(reads_stacks: bool) -> Self {
        let python = if reads_stacks { Interpreter::Unknown } else { Interpreter::None };
        Self {
            reader: Mutex::new(Reader { python, spent: Duration::ZERO, stacks: 0, last: Arc::new([]) }),
            waiting: Mutex::default(),
            unplaced: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
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
        let mut waiting = self.waiting.try_lock_for(CALLBACK_LOCK_TIMEOUT);
        let waiting = waiting.as_deref_mut().filter(|waiting| waiting.len() < MOST_WAITING);
        // A failed allocation would abort the program.
        match waiting.and_then(|waiting| waiting.try_reserve(1).ok().map(|()| waiting)) {
            Some(waiting) => waiting.push(node),
            None => _ = self.dropped.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Takes the waiting nodes, in the order in which they were added.
    pub fn take(&self) -> Vec<QueuedNode> {
        mem::take(&mut *self.waiting.lock())
    }

    /// Number of nodes whose stack was not read because of a limit, another thread, or an error.
    pub fn unplaced(&self) -> u64 {
        self.unplaced.load(Ordering::Relaxed)
    }

    /// Number of nodes that were lost because too many waited.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Reader {
    /// Stack of the calling thread, whose kernel id is `thread`.
    fn stack(&mut self, thread: u32) -> Result<Arc<[Frame]>, NoStack> {
        // Taken out while it is used: after a panic there is none.
        let mut python = match mem::replace(&mut self.python, Interpreter::None) {
            Interpreter::None => return Err(NoStack::NoPython),
            Interpreter::Found(python) => Some(python),
            Interpreter::Unknown => None,
        };
        let begun = Instant::now();
        if python.is_none() {
            let found = Python::find(&Process::this());
            if let Err(why) = &found {
                tracing::debug!("no places of the nodes of CUDA graphs: {why}");
            }
            python = found.ok().map(Box::new);
        }
        let Some(mut python) = python else { return Err(NoStack::NoPython) };
        let has_room = self.spent < LONGEST_READING && self.stacks < MOST_STACKS && !memory::is_short();
        let read = has_room.then(|| python.stack_of_still(thread));
        self.python = Interpreter::Found(python);
        let stack = match read {
            Some(Ok(frames)) if *frames == *self.last => Ok(Arc::clone(&self.last)),
            Some(Ok(frames)) => {
                self.last = frames.into();
                Ok(Arc::clone(&self.last))
            }
            Some(Err(Miss::NoPython)) => Err(NoStack::NoPython),
            Some(Err(Miss::Torn | Miss::Closed)) | None => Err(NoStack::NotRead),
        };
        self.stacks += u64::from(stack.is_ok());
        self.spent += begun.elapsed();
        stack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
