//! Records of host activity: API calls, synchronizations, events, overhead.
//!
//! Times are nanoseconds on CUPTI's clock.

use super::view::layout;
use crate::abi::{Domain, Kind, ObjectKind, OverheadKind, SyncType};

layout! {
    /// A call of the driver or runtime API.
    ApiRecord, at least 40 bytes
    always {
        callback_id: u32 = "cbid" @ 4, "Which function, within its domain.";
        start: u64 = "start" @ 8, "Entry.";
        end: u64 = "end" @ 16, "Return.";
        thread_id: u32 = "threadId" @ 28,
            "Calling thread: the kernel's id only after [`set_thread_id_type`](crate::Cupti::set_thread_id_type).";
        correlation_id: u32 = "correlationId" @ 32, "Joins to the device work.";
        return_value: u32 = "returnValue" @ 36, "`CUresult` or `cudaError_t`.";
    }
    since {}
}

impl ApiRecord<'_> {
    /// The API that the function belongs to. [`Kind::INTERNAL_LAUNCH_API`] numbers its functions as the
    /// driver does.
    #[inline]
    pub fn domain(&self) -> Domain {
        if self.record().kind() == Kind::RUNTIME { Domain::RUNTIME } else { Domain::DRIVER }
    }
}

layout! {
    /// A synchronization.
    SyncRecord, at least 40 bytes
    always {
        sync_type: u32 = "type" @ 4, "What was waited for, as a number; see [`kind`](Self::kind).";
        start: u64 = "start" @ 8, "Begin on the host.";
        end: u64 = "end" @ 16, "End on the host.";
        correlation_id: u32 = "correlationId" @ 24, "Joins to the call.";
        context_id: u32 = "contextId" @ 28, "Context.";
        stream_id: u32 = "streamId" @ 32, "Stream, or `u32::MAX`.";
        event_id: u32 = "cudaEventId" @ 36, "Event, or `u32::MAX`. Ids are reused.";
    }
    since {
        event_sync_id: u64 = "cudaEventSyncId" @ 40, "Pairs with [`CudaEventRecord::event_sync_id`]. Since 12.8.";
    }
    as {
        kind: SyncType = sync_type, "What was waited for.";
    }
}

layout! {
    /// Recording of a CUDA event on a stream.
    CudaEventRecord, at least 24 bytes
    always {
        correlation_id: u32 = "correlationId" @ 4, "Joins to the call.";
        context_id: u32 = "contextId" @ 8, "Context.";
        stream_id: u32 = "streamId" @ 12, "Stream.";
        event_id: u32 = "eventId" @ 16, "Event. Ids are reused.";
    }
    since {
        event_sync_id: u64 = "cudaEventSyncId" @ 48, "Unique id of this recording. Since 12.8.";
    }
}

layout! {
    /// Time taken by CUPTI or the driver.
    OverheadRecord, at least 40 bytes
    always {
        overhead_kind: u32 = "overheadKind" @ 4, "What on, as a number; see [`kind`](Self::kind).";
        object_kind: u32 = "objectKind" @ 8,
            "What the object id names, as a number; see [`thread_id`](Self::thread_id).";
        object_id: [u8; 12] = "objectId" @ 12,
            "Three words whose meaning depends on the object kind; see [`thread_id`](Self::thread_id).";
        start: u64 = "start" @ 24, "Begin.";
        end: u64 = "end" @ 32, "End.";
    }
    since {
        correlation_id: u32 = "correlationId" @ 40, "The call during which it happened. Since 12.3.";
    }
    as {
        kind: OverheadKind = overhead_kind, "What the time was spent on.";
    }
}

impl OverheadRecord<'_> {
    /// The thread that the overhead delayed, if the record is about a thread.
    pub fn thread_id(&self) -> Option<u32> {
        // The process id comes first, then the thread id.
        let [_, _, _, _, thread @ .., _, _, _, _] = self.object_id();
        (self.object_kind() == ObjectKind::THREAD.0).then_some(u32::from_le_bytes(thread))
    }
}
