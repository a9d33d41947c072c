//! What the threads of the library share: messages to each other, and state that several of them use.
//!
//! Types with hardly any logic: senders and receivers import this folder, and not each other.

pub mod callback_queue;
pub mod graph_origins;
pub mod launchers;
pub mod memory_calls;
mod message;
pub mod pool;
pub mod samples;
mod stack_reader;
pub mod stop;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crossbeam_channel::Sender;
use cupti_sys::RecordSizes;

use self::graph_origins::GraphOrigins;
use self::launchers::Launchers;
use self::memory_calls::MemoryCalls;
pub use self::message::{
    Detail, FlusherCommand, LiveState, Message, Question, RunOutcome, SessionCommand, StatusSummary,
};
use self::pool::{FlushBacklog, Pool};
use self::samples::SampleQueue;
use self::stop::Stop;
use crate::cost::CallbackTimer;

/// State shared by the threads of the library and the callbacks.
#[derive(Debug)]
pub struct Shared {
    /// Source of buffers.
    pub pool: Pool,
    /// Destination of buffers.
    pub messages: Sender<Message>,
    /// Record sizes of the loaded CUPTI.
    pub sizes: RecordSizes,
    /// Bytes of records in buffers of another profiler that this library received since the last read.
    /// `Relaxed`: a statistic.
    pub foreign_bytes: AtomicU64,
    /// Number of records dropped by this library. `Relaxed`: a statistic without ordering.
    pub dropped: AtomicU64,
    /// Number of buffers that went to another tool. `Relaxed`: a statistic.
    pub undelivered: AtomicU64,
    /// True if a buffer has arrived. `Relaxed`: seeing it a moment later is fine.
    pub delivered: AtomicBool,
    /// Records that have arrived since the last flush.
    pub unflushed: FlushBacklog,
    /// Kernel's id of the flushing thread, whose calls are not the program's; 0 before it exists. `Relaxed`:
    /// set before its first call.
    pub flusher: AtomicU32,
    /// Cost of tracing.
    pub meters: CallbackTimer,
    /// Threads that the sampler reads.
    pub launchers: Launchers,
    /// Host samples.
    pub sample_queue: SampleQueue,
    /// Nodes of CUDA graphs.
    pub graph_origins: GraphOrigins,
    /// Calls that take or give device memory.
    pub memory_calls: MemoryCalls,
    /// Stops the thread that reads counters.
    pub counters: Stop,
}

impl Shared {
    /// Creates the state before any recording.
    pub fn new(pool: Pool, messages: Sender<Message>, sizes: RecordSizes, reads_stacks: bool) -> Self {
        Self {
            pool,
            messages,
            sizes,
            foreign_bytes: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            undelivered: AtomicU64::new(0),
            delivered: AtomicBool::new(false),
            unflushed: FlushBacklog::default(),
            flusher: AtomicU32::new(0),
            meters: CallbackTimer::default(),
            launchers: Launchers::new(),
            sample_queue: SampleQueue::default(),
            graph_origins: GraphOrigins::new(reads_stacks),
            memory_calls: MemoryCalls::new(reads_stacks),
            counters: Stop::default(),
        }
    }

    /// True if a buffer has arrived.
    pub fn has_delivered(&self) -> bool {
        self.delivered.load(Ordering::Relaxed)
    }

    pub fn set_flusher(&self, thread: u32) {
        self.flusher.store(thread, Ordering::Relaxed);
    }

    /// Notes that some buffers will not come back.
    pub fn give_up(&self, buffers: usize) {
        self.undelivered.fetch_add(buffers as u64, Ordering::Relaxed);
        self.pool.forget(buffers);
    }
}
