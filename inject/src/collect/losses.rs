//! Counts of data that did not become events.

use std::mem;
use std::sync::atomic::Ordering;

use cupti_sys::CompletedBuffer;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::Loss;

use crate::capture::controller::CaptureController;
use crate::nccl;
use crate::rings::writer;
use crate::shared::Shared;

/// Loss counters up to now.
#[derive(Default)]
pub struct Losses {
    pub loss: Loss,
    foreign_buffers_logged: bool,
    shortage_logged: bool,
}

impl Losses {
    /// Reads the counters of every part that loses data. `missed`: records that came after their capture was
    /// over.
    pub fn count(
        &mut self,
        dropped_by_cupti: u64,
        missed: u64,
        shared: &Shared,
        controller: &CaptureController,
        dictionary: &Dictionary,
    ) {
        let loss = &mut self.loss;
        loss.dropped_by_cupti = loss.dropped_by_cupti.max(dropped_by_cupti);
        loss.dropped_by_gpuwhy = shared.dropped.load(Ordering::Relaxed) + missed;
        loss.dictionary_overflow = dictionary.beyond();
        loss.dropped_ranges = writer::dropped();
        loss.dropped_collectives = nccl::dropped();
        loss.unplaced_graph_nodes = shared.graph_origins.unplaced();
        loss.dropped_graph_nodes = shared.graph_origins.dropped();
        loss.dropped_memory_calls = shared.memory_calls.dropped();
        loss.unobserved_ns = controller.unobserved();
        loss.undelivered_buffers = shared.undelivered.load(Ordering::Relaxed);
        let foreign = shared.foreign_bytes.swap(0, Ordering::Relaxed);
        if foreign > 0 && !mem::replace(&mut self.foreign_buffers_logged, true) {
            tracing::warn!(
                "another profiler's activity buffers come to gpuwhy: its records are left alone, and some of ours may \
                 have gone to it; run the two apart"
            );
        }
    }

    /// Drops a buffer because there is no memory for its contents.
    pub fn drop_buffer(&mut self, buffer: CompletedBuffer, shared: &Shared) {
        let records = buffer.records(&shared.sizes).count();
        shared.dropped.fetch_add(records as u64, Ordering::Relaxed);
        shared.pool.put(buffer.into_buffer());
        if !mem::replace(&mut self.shortage_logged, true) {
            tracing::warn!(
                "the limits of this process (ulimit -v, ulimit -d) leave too little memory: records are dropped, and counted"
            );
        }
    }
}
