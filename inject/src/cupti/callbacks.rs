//! Callbacks of CUPTI: hand out empty buffers, take full ones.
//!
//! They run on application threads and on CUPTI's own. They take no lock that is held for long, and read no
//! record and no file, only the stack of a thread that adds a node to a graph or, on request, takes device memory: a
//! buffer goes from the pool to CUPTI, and from CUPTI into a bounded channel that has room for all buffers.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use cupti_sys::{
    ActivityHandler, Buffer, CallbackSite, CompletedBuffer, Domain, KernelLaunch, MemoryCall, ResourceHandler,
    Submission,
};

use crate::cupti::ownership;
use crate::kernels;
use crate::nvtx::submissions;
use crate::runtime::Profiler;
use crate::shared::Message;
use crate::sys::clock;

thread_local! {
    /// Number of nodes cloned on this thread since it last instantiated a graph.
    static NODES: Cell<u32> = const { Cell::new(0) };
}

/// Handlers that CUPTI calls, for the one [`Profiler`] of the process.
#[derive(Debug)]
pub struct Callbacks;

impl ActivityHandler for Callbacks {
    fn buffer_requested() -> Option<Buffer> {
        let shared = Profiler::running()?.shared();
        ownership::asked();
        shared.meters.timed(|| shared.pool.take())
    }

    fn buffer_completed(buffer: CompletedBuffer) {
        let Some(profiler) = Profiler::running() else { return };
        let shared = profiler.shared();
        if !shared.delivered.swap(true, Ordering::Relaxed) {
            // While other tools use CUPTI, no other callback reports that there is a context.
            profiler.context_created();
        }
        let bytes = buffer.bytes().len();
        shared.meters.timed(|| {
            // Fails only if the collector is dead. In that case the trace has ended, with a note about it.
            if let Err(refused) = shared.messages.try_send(Message::Buffer(buffer))
                && let Message::Buffer(buffer) = refused.into_inner()
            {
                shared.dropped.fetch_add(buffer.records(&shared.sizes).count() as u64, Ordering::Relaxed);
                shared.pool.put(buffer.into_buffer());
            }
            if shared.unflushed.add(bytes) {
                profiler.flush_soon();
            }
        });
    }

    fn buffer_discarded(records: u64) {
        if let Some(profiler) = Profiler::running() {
            profiler.shared().dropped.fetch_add(records, Ordering::Relaxed);
        }
    }

    fn foreign_buffer(bytes: usize) {
        if let Some(profiler) = Profiler::running() {
            profiler.shared().foreign_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

impl ResourceHandler for Callbacks {
    fn context_created() {
        if let Some(profiler) = Profiler::running() {
            profiler.context_created();
        }
    }

    fn graph_node_created(node: u64) {
        if let Some(profiler) = Profiler::running() {
            // Only at capture, and within a limit of its own: it must not use up the budget of recording.
            profiler.shared().graph_origins.added(node);
        }
    }

    fn graph_node_cloned(node: u64, original: u64) {
        NODES.set(NODES.get().saturating_add(1));
        if let Some(profiler) = Profiler::running() {
            profiler.shared().graph_origins.copied(node, original);
        }
    }

    fn graph_instantiated(id: u32) {
        let nodes = NODES.take();
        if let Some(profiler) = Profiler::running() {
            // Fails only if the collector has a large backlog; the number of nodes of the graph stays unknown.
            let _ = profiler.shared().messages.try_send(Message::Graph { id, nodes });
        }
    }

    fn api_called(domain: Domain, callback_id: u32, site: CallbackSite) {
        if let Some(profiler) = Profiler::running() {
            profiler.controller().api_called(domain, callback_id, site);
        }
    }

    fn kernel_launched(launch: &KernelLaunch<'_>) {
        if let Some(kernels) = Profiler::running().and_then(|profiler| profiler.kernels.as_ref()) {
            kernels::kernel_launched(kernels, launch);
        }
    }

    fn memory_call_begins() {
        if let Some(profiler) = Profiler::running() {
            profiler.shared().memory_calls.begins(|| clock::now(profiler.cupti));
        }
    }

    fn memory_called(call: MemoryCall) {
        if let Some(profiler) = Profiler::running()
            && profiler.shared().memory_calls.called(call, || clock::now(profiler.cupti))
        {
            profiler.shared().counters.request_reading();
        }
    }

    fn submitted(work: Submission) {
        if Profiler::running().is_some() {
            submissions::submitted(work);
        }
    }
}
