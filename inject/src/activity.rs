//! What CUPTI calls: buffers out, full buffers in.
//!
//! These run on application threads and on CUPTI's own. They take no lock that anything slow holds, do no I/O and
//! look at no record: a buffer goes from the pool to CUPTI, and from CUPTI into a bounded channel that has room for
//! every buffer there is.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crossbeam_channel::Sender;
use cupti_sys::{ActivityHandler, Buffer, CallbackSite, CompletedBuffer, Domain, RecordSizes, ResourceHandler};
use profiler_core::process_info::End;
use profiler_core::record::{CaptureMark, Timestamp};
use profiler_core::utilization::UtilizationReading;

use crate::control::Question;
use crate::cost::Meters;
use crate::enable;
use crate::pool::Pool;
use crate::profiler::Profiler;
use crate::sampler::{Batch, Launchers, Outbox};
use crate::session::Command;
use crate::unflushed::Unflushed;

/// What travels to the collector.
#[derive(Debug)]
pub enum Delivery {
    /// A buffer with records.
    Buffer(CompletedBuffer),
    /// What the sampler saw since the last flush.
    Looks(Batch),
    /// What gauges of a device say, while the program is only watched.
    Gauges(UtilizationReading),
    /// A CUDA graph is ready to run.
    Graph {
        /// What its records call it.
        id: u32,
        /// Nodes that it has.
        nodes: u32,
    },
    /// Ranges of the program wait to be fetched, more than usual.
    Ranges,
    /// Everything that was complete before this time has been delivered.
    Flushed {
        /// That time; not later than the one before while CUPTI keeps something back.
        before: Timestamp,
        /// Records that CUPTI says it dropped, since the start.
        dropped_by_cupti: u64,
    },
    /// Nothing is recorded just now; what else there is goes on.
    Idle,
    /// Somebody outside asks how things are.
    Question(Question),
    /// A capture begins, or its range ends.
    Capture(CaptureMark),
    /// The program begins or ends a session, or wants to see what there is of it.
    Session(Command),
    /// The last one.
    Finish {
        /// When.
        at: Timestamp,
        /// Whether everything was delivered.
        end: End,
        /// Records that CUPTI says it dropped, since the start.
        dropped_by_cupti: u64,
    },
}

/// Has the collector fetch the program's ranges before its next round. Without one they wait.
pub fn ranges_wait() {
    if let Some(profiler) = Profiler::running() {
        // Refused only when the collector is far behind or dead; then the ring fills up and says so.
        let _ = profiler.inlet().deliveries.try_send(Delivery::Ranges);
    }
}

/// What the threads of the library and the callbacks share.
#[derive(Debug)]
pub struct Inlet {
    /// Where buffers come from.
    pub pool: Pool,
    /// Where they go.
    pub deliveries: Sender<Delivery>,
    /// Record sizes of the loaded CUPTI.
    pub sizes: RecordSizes,
    /// Bytes of records in buffers of another profiler that came to us since this was last looked at. `Relaxed`: a
    /// statistic.
    pub foreign_bytes: AtomicU64,
    /// Records thrown away here. `Relaxed`: a statistic that orders nothing.
    pub dropped: AtomicU64,
    /// Buffers that went to another tool. `Relaxed`: a statistic.
    pub undelivered: AtomicU64,
    /// Whether a buffer has come. `Relaxed`: seen a moment later it is as good.
    pub delivered: AtomicBool,
    /// Records that have come since the last flush.
    pub unflushed: Unflushed,
    /// The kernel's id of the flushing thread, whose calls are none of the program's; 0 before there is one. `Relaxed`: set
    /// before its first call.
    pub flusher: AtomicU32,
    /// What tracing takes.
    pub meters: Meters,
    /// Which threads the sampler should look at.
    pub launchers: Launchers,
    /// What it saw.
    pub outbox: Outbox,
}

impl Inlet {
    /// Whether a buffer has come.
    pub fn has_delivered(&self) -> bool {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Names the flushing thread.
    pub fn set_flusher(&self, thread: u32) {
        self.flusher.store(thread, Ordering::Relaxed);
    }

    /// So many buffers will not come back.
    pub fn give_up(&self, buffers: usize) {
        self.undelivered.fetch_add(buffers as u64, Ordering::Relaxed);
        self.pool.forget(buffers);
    }
}

thread_local! {
    /// Nodes that were copied on this thread since it last made a graph ready to run.
    static NODES: Cell<u32> = const { Cell::new(0) };
}

/// The handlers that CUPTI calls, for the one [`Profiler`] of the process.
#[derive(Debug)]
pub struct Callbacks;

impl ActivityHandler for Callbacks {
    fn buffer_requested() -> Option<Buffer> {
        let inlet = Profiler::running()?.inlet();
        enable::asked();
        inlet.meters.timed(|| inlet.pool.take())
    }

    fn buffer_completed(buffer: CompletedBuffer) {
        let Some(profiler) = Profiler::running() else { return };
        let inlet = profiler.inlet();
        if !inlet.delivered.swap(true, Ordering::Relaxed) {
            // Whoever leaves CUPTI to others is not told of it otherwise.
            profiler.context_created();
        }
        let bytes = buffer.bytes().len();
        inlet.meters.timed(|| {
            // Refused only when the collector is dead; then the trace has ended and says so.
            if let Err(refused) = inlet.deliveries.try_send(Delivery::Buffer(buffer))
                && let Delivery::Buffer(buffer) = refused.into_inner()
            {
                inlet.dropped.fetch_add(buffer.records(&inlet.sizes).count() as u64, Ordering::Relaxed);
                inlet.pool.put(buffer.into_buffer());
            }
            if inlet.unflushed.add(bytes) {
                profiler.flush_soon();
            }
        });
    }

    fn buffer_discarded(records: u64) {
        if let Some(profiler) = Profiler::running() {
            profiler.inlet().dropped.fetch_add(records, Ordering::Relaxed);
        }
    }

    fn foreign_buffer(bytes: usize) {
        if let Some(profiler) = Profiler::running() {
            profiler.inlet().foreign_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

impl ResourceHandler for Callbacks {
    fn context_created() {
        if let Some(profiler) = Profiler::running() {
            profiler.context_created();
        }
    }

    fn initialized() {
        if let Some(profiler) = Profiler::running() {
            profiler.director().initialized();
        }
    }

    fn graph_node_cloned() {
        NODES.set(NODES.get().saturating_add(1));
    }

    fn graph_instantiated(id: u32) {
        let nodes = NODES.take();
        if let Some(profiler) = Profiler::running() {
            // Refused only when the collector is far behind: then how many nodes the graph has is not known.
            let _ = profiler.inlet().deliveries.try_send(Delivery::Graph { id, nodes });
        }
    }

    fn api_called(domain: Domain, callback_id: u32, site: CallbackSite) {
        if let Some(profiler) = Profiler::running() {
            profiler.director().api_called(domain, callback_id, site);
        }
    }
}
