//! CUPTI's callbacks, dispatched to static methods of a handler type.
//!
//! The trampolines are generic over the handler, so no table and no lock lies between CUPTI and the handler.
//! They run on application threads in the middle of a launch and on CUPTI's own threads. A panic ends here:
//! the profiled program continues, and the buffer in question counts as not provided or is freed.

use crate::abi::{self, ApiCallbackData, CallbackSite, CuptiResult, Domain, GraphData, ResourceCallback, ResourceData};
mod launch;
mod memory;
mod submission;

pub use launch::{KernelLaunch, LAUNCHES};
pub use memory::{MEMORY_CALLS, MemoryCall, MemoryFunction};
pub use submission::{SUBMISSIONS, Submission};

use crate::buffer::{Buffer, CompletedBuffer, Purpose, take_back};
use crate::cupti::Cupti;
use std::ffi::c_void;
use std::panic::catch_unwind;
use std::ptr;
use std::sync::OnceLock;

/// Size in bytes of a buffer whose records are discarded. Small, because it exists only while the handler has
/// no buffer to provide; large enough for a few hundred records, so that a launch storm does not request one
/// at each launch.
const DISCARD_BYTES: usize = 64 * 1024;

/// Owner of the activity buffers. Methods must return quickly, must not call CUPTI, and must not take a lock that
/// is held around a CUPTI call.
pub trait ActivityHandler {
    /// Memory to write records into, requested on the thread that is about to launch. `None`: the records are
    /// lost.
    fn buffer_requested() -> Option<Buffer>;

    /// A buffer returned with records in it. Called from any thread, possibly after the last flush returned.
    fn buffer_completed(buffer: CompletedBuffer);

    /// Number of records lost because [`buffer_requested`](Self::buffer_requested) had no memory. From CUDA
    /// 12.9 on CUPTI counts these losses itself ([`Cupti::dropped_records`]), and this is not called.
    fn buffer_discarded(records: u64);

    /// A buffer returned that this crate did not lend: another profiler registered its callbacks too, and its
    /// `bytes` bytes of records arrived here. The memory is left alone.
    fn foreign_buffer(bytes: usize) {
        let _ = bytes;
    }
}

/// Receives the events of contexts, on the thread that causes them. Same rules as for [`ActivityHandler`].
pub trait ResourceHandler {
    /// A context was created, so CUDA is initialized.
    fn context_created();

    /// This thread adds a node to a graph, in the middle of a call or of one that is captured. `node` is its id
    /// in records, 0 if unknown. Only if [`ResourceCallback::GRAPHNODE_CREATED`] was enabled.
    fn graph_node_created(node: u64) {
        let _ = node;
    }

    /// A node was cloned from `original`, mostly into the graph that this thread is instantiating. Ids are those
    /// in records, 0 if unknown. Only if [`ResourceCallback::GRAPHNODE_CLONED`] was enabled.
    fn graph_node_cloned(node: u64, original: u64) {
        let _ = (node, original);
    }

    /// This thread has instantiated a graph, whose id in records is `id`. Only if
    /// [`ResourceCallback::GRAPHEXEC_CREATED`] was enabled and the library reports the id.
    fn graph_instantiated(id: u32) {
        let _ = id;
    }

    /// A function of the driver or runtime API is called; only functions passed to
    /// [`Subscriber::enable_api`](crate::Subscriber::enable_api). On the calling thread, in the middle of its
    /// call.
    fn api_called(domain: Domain, callback_id: u32, site: CallbackSite) {
        let _ = (domain, callback_id, site);
    }

    /// A kernel is about to be launched, or was launched; only for functions of [`LAUNCHES`] that were passed
    /// to [`Subscriber::enable_api`](crate::Subscriber::enable_api). On the launching thread, in the middle
    /// of its call. Of nested calls each is reported. The one method that may call CUPTI: its range profiler
    /// is started and stopped here.
    fn kernel_launched(launch: &KernelLaunch<'_>) {
        let _ = launch;
    }

    /// A copy or a CUDA graph is about to be submitted; only by functions of [`SUBMISSIONS`] that were passed to
    /// [`Subscriber::enable_api`](crate::Subscriber::enable_api). On the calling thread, in the middle of its call.
    fn submitted(work: Submission) {
        let _ = work;
    }

    /// A call that takes or gives device memory begins; only of functions of [`MEMORY_CALLS`] that were passed to
    /// [`Subscriber::enable_api`](crate::Subscriber::enable_api). On the calling thread, in the middle of its call.
    fn memory_call_begins() {}

    /// The same call ends. Not called if CUPTI provides no parameters.
    fn memory_called(call: MemoryCall) {
        let _ = call;
    }
}

/// The library whose callbacks are registered.
static REGISTERED: OnceLock<Registered> = OnceLock::new();

struct Registered {
    cupti: &'static Cupti,
    /// True if the library survives a NULL buffer in reply to a request: CUDA 12.9 and later.
    tolerates_null: bool,
}

/// Stores the library; to be called before callbacks are registered. Only one library can be loaded, so the
/// first call decides.
pub(crate) fn remember(cupti: &'static Cupti) {
    REGISTERED.get_or_init(|| Registered {
        cupti,
        tolerates_null: cupti.version().is_ok_and(|version| version >= abi::NULL_BUFFER_TOLERATED_SINCE),
    });
}

/// Address and size to reply to a request for memory.
fn answer(given: Option<Buffer>, tolerates_null: bool) -> (*mut u8, usize) {
    match given {
        Some(buffer) => buffer.lend(Purpose::Deliver),
        None if tolerates_null => (ptr::null_mut(), 0),
        None => Buffer::new(DISCARD_BYTES).map_or((ptr::null_mut(), 0), |buffer| buffer.lend(Purpose::Discard)),
    }
}

pub(crate) unsafe extern "C" fn requested<H: ActivityHandler>(
    address: *mut *mut u8,
    size: *mut usize,
    max_records: *mut usize,
) {
    let given = catch_unwind(H::buffer_requested).unwrap_or(None);
    let tolerates_null = REGISTERED.get().is_some_and(|registered| registered.tolerates_null);
    let (memory, bytes) = answer(given, tolerates_null);
    // SAFETY: CUPTI passes three valid pointers to fill in. 0 records means that only the size is a limit.
    unsafe {
        address.write(memory);
        size.write(bytes);
        max_records.write(0);
    }
}

pub(crate) unsafe extern "C" fn completed<H: ActivityHandler>(
    context: abi::Context,
    stream: u32,
    address: *mut u8,
    _size: usize,
    valid: usize,
) {
    // A panic unwinds through the buffer, which frees it. There is no caller to report it to.
    let _ = catch_unwind(|| match take_back(address) {
        // `returned` lives until the handler has the records.
        Some((buffer, returned)) => {
            // SAFETY: CUPTI just returned this buffer with `valid` bytes of records, and is never unloaded.
            let buffer = unsafe { CompletedBuffer::from_cupti(buffer, valid, context as usize, stream) };
            match returned.purpose {
                Purpose::Deliver => H::buffer_completed(buffer),
                Purpose::Discard => {
                    let records = REGISTERED.get().map_or(0, |registered| count_by_library(registered.cupti, &buffer));
                    H::buffer_discarded(records);
                }
            }
        }
        // CUPTI may return the NULL of an earlier reply as an empty completed buffer.
        None if address.is_null() => {}
        None => H::foreign_buffer(valid),
    });
}

/// Counts the records of a buffer with the library's own iterator, which needs no size table.
pub fn count_by_library(cupti: &Cupti, buffer: &CompletedBuffer) -> u64 {
    let valid = buffer.bytes();
    let mut record = ptr::null_mut();
    let mut records = 0;
    // The smallest record is 8 bytes, which bounds the loop if the library makes no progress.
    while records < valid.len() as u64 / 8 {
        // SAFETY: the library reads `valid.len()` bytes at most and writes none; `record` is NULL or the
        // pointer that the previous call stored.
        let code = unsafe { (cupti.symbols.next_record)(valid.as_ptr().cast_mut(), valid.len(), &raw mut record) };
        if code != CuptiResult::SUCCESS {
            break;
        }
        records += 1;
    }
    records
}

pub(crate) unsafe extern "C" fn resource<H: ResourceHandler>(
    _user_data: *mut c_void,
    domain: Domain,
    callback: u32,
    data: *const c_void,
) {
    // The panic ends here; the handler is responsible for its own state.
    let _ = catch_unwind(|| match (domain, ResourceCallback(callback)) {
        (Domain::RESOURCE, ResourceCallback::CONTEXT_CREATED) => H::context_created(),
        (Domain::RESOURCE, ResourceCallback::GRAPHNODE_CREATED) => {
            // SAFETY: in this domain the data is a `CUpti_ResourceData`, and lives until the callback returns.
            let [node, _] = unsafe { nodes(data.cast::<ResourceData>()) };
            H::graph_node_created(node);
        }
        (Domain::RESOURCE, ResourceCallback::GRAPHNODE_CLONED) => {
            // SAFETY: as above.
            let [node, original] = unsafe { nodes(data.cast::<ResourceData>()) };
            H::graph_node_cloned(node, original);
        }
        (Domain::RESOURCE, ResourceCallback::GRAPHEXEC_CREATED) => {
            // SAFETY: as above.
            if let Some(id) = unsafe { instantiated(data.cast::<ResourceData>()) } {
                H::graph_instantiated(id);
            }
        }
        (Domain::DRIVER | Domain::RUNTIME, _) if !data.is_null() && launch::is_launch(domain, callback) => {
            // SAFETY: in these domains the data is a `CUpti_CallbackData`, and lives until the callback returns.
            if let Some(launch) = unsafe { launch::launch(domain, callback, &*data.cast::<ApiCallbackData>()) } {
                H::kernel_launched(&launch);
            }
        }
        (Domain::DRIVER, _) if !data.is_null() && memory::function(callback).is_some() => {
            // SAFETY: as above.
            let data = unsafe { &*data.cast::<ApiCallbackData>() };
            // Other uses of the same callback.
            H::api_called(domain, callback, data.site);
            if data.site == CallbackSite::ENTER {
                H::memory_call_begins();
            // SAFETY: the data is of this function.
            } else if let Some(call) = unsafe { memory::call(callback, data) } {
                H::memory_called(call);
            }
        }
        (Domain::DRIVER | Domain::RUNTIME, _) if !data.is_null() => match submission::kind(domain, callback) {
            Some(kind) => {
                // SAFETY: as above.
                if let Some(work) = unsafe { submission::submission(kind, &*data.cast::<ApiCallbackData>()) } {
                    H::submitted(work);
                }
            }
            None => {
                // SAFETY: in these domains the data is a `CUpti_CallbackData`, which starts with the site, and
                // lives until the callback returns.
                let site = unsafe { (*data.cast::<ApiCallbackData>()).site };
                H::api_called(domain, callback, site);
            }
        },
        _ => {}
    });
}

/// Id in records of the graph that was instantiated.
///
/// # Safety
/// `data` is NULL or what CUPTI passes for [`ResourceCallback::GRAPHEXEC_CREATED`].
unsafe fn instantiated(data: *const ResourceData) -> Option<u32> {
    // SAFETY: guaranteed by the caller; the descriptor is then NULL or a `CUpti_GraphData` with the same
    // lifetime.
    let exec = unsafe { data.as_ref()?.descriptor.cast::<GraphData>().as_ref()?.exec };
    if exec.is_null() {
        return None;
    }
    // SAFETY: CUPTI names the graph that this thread has just instantiated.
    unsafe { REGISTERED.get()?.cupti.graph_exec_id(exec) }
}

/// Ids in records of a node, and of the node that it was cloned from; 0 if unknown. CUPTI answers inside this
/// callback.
///
/// # Safety
/// `data` is NULL or what CUPTI passes for a callback about nodes of graphs.
unsafe fn nodes(data: *const ResourceData) -> [u64; 2] {
    // SAFETY: guaranteed by the caller; the descriptor is then NULL or a `CUpti_GraphData` with the same
    // lifetime.
    let graph = unsafe { data.as_ref().and_then(|data| data.descriptor.cast::<GraphData>().as_ref()) };
    let (Some(graph), Some(registered)) = (graph, REGISTERED.get()) else { return [0; 2] };
    [graph.node, graph.original].map(|node| {
        if node.is_null() {
            return 0;
        }
        // SAFETY: CUPTI names a node that exists until the callback returns.
        unsafe { registered.cupti.graph_node_id(node) }.unwrap_or(0)
    })
}

#[cfg(test)]
mod tests;
