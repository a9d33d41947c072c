//! Calls into the client, on the right thread and with that thread marked.
//!
//! The mark makes it possible to detect a flush from inside a callback, which deadlocks the real library.
#![expect(unsafe_code, reason = "calls the client's C functions")]

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use cupti_sys::abi::{BufferCompleted, GraphData, ResourceData};
use cupti_sys::{CallbackSite, Domain, ResourceCallback};

use crate::client::Subscriber;

thread_local! {
    static CALLBACK: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Name of the client's callback that is running on this thread, if any.
#[must_use]
pub fn callback_on_this_thread() -> Option<&'static str> {
    CALLBACK.get()
}

/// Runs `call` with this thread marked as being in the client's callback `name`.
pub fn in_callback(name: &'static str, call: impl FnOnce()) {
    let before = CALLBACK.replace(Some(name));
    call();
    CALLBACK.set(before);
}

/// A handle that represents an id and cannot be dereferenced. Not NULL for id 0.
#[must_use]
pub fn token(id: u32) -> *mut c_void {
    ptr::without_provenance_mut((id as usize + 1) << 12)
}

/// The id that a handle represents.
pub fn id_of(token: *mut c_void) -> Option<u32> {
    u32::try_from((token.addr() >> 12).checked_sub(1)?).ok()
}

/// A handle of a node of a graph; NULL for id 0. It keeps all bits of the id, and cannot be dereferenced.
fn node_token(id: u64) -> *mut c_void {
    ptr::without_provenance_mut(id.rotate_left(NODE_BITS) as usize)
}

/// Moves the high bits of ids of nodes down, which are a number of their graph: handles look like addresses.
const NODE_BITS: u32 = 12;

/// The id that a handle of a node represents.
pub fn node_of(token: *mut c_void) -> u64 {
    (token.addr() as u64).rotate_right(NODE_BITS)
}

/// Notifies the subscriber of a node of a graph that was added, or copied from another one (0: none).
pub fn tell_node(subscriber: &Subscriber, id: ResourceCallback, node: u64, original: u64) {
    let nodes = [node, original].map(node_token);
    tell_graph(subscriber, id, ptr::null_mut(), Some(GraphData { node: nodes[0], original: nodes[1], ..no_graph() }));
}

/// Nothing but NULL.
const fn no_graph() -> GraphData {
    GraphData {
        graphs: [ptr::null_mut(); 2],
        node: ptr::null_mut(),
        original: ptr::null_mut(),
        node_type: 0,
        dependency: ptr::null_mut(),
        exec: ptr::null_mut(),
    }
}

/// Notifies the subscriber of a resource event.
pub fn tell_resource(subscriber: &Subscriber, id: ResourceCallback, context: Option<u32>, graph: Option<u32>) {
    let graph = graph.map(|graph| GraphData { exec: token(graph), ..no_graph() });
    tell_graph(subscriber, id, context.map_or(ptr::null_mut(), token), graph);
}

fn tell_graph(subscriber: &Subscriber, id: ResourceCallback, context: *mut c_void, graph: Option<GraphData>) {
    let descriptor = graph.as_ref().map_or(ptr::null(), |graph| ptr::from_ref(graph).cast());
    let data = ResourceData { context, stream: ptr::null_mut(), descriptor };
    in_callback("a resource callback", || {
        let userdata = ptr::with_exposed_provenance_mut(subscriber.userdata);
        // SAFETY: the client subscribed this function with this pointer; the data lives until the call returns.
        unsafe { (subscriber.callback)(userdata, Domain::RESOURCE, id.0, (&raw const data).cast()) };
    });
}

/// Data of API callbacks: `CUpti_CallbackData`. Only the site is real; no pointer can be dereferenced.
#[repr(C)]
struct ApiData {
    site: CallbackSite,
    pointers: [*mut c_void; 5],
    context_id: u32,
    correlation_data: *mut u64,
    correlation_id: u32,
}

/// Notifies the subscriber of one side of an API call.
pub fn tell_api(subscriber: &Subscriber, domain: Domain, id: u32, site: CallbackSite) {
    let data = ApiData {
        site,
        pointers: [ptr::null_mut(); 5],
        context_id: 0,
        correlation_data: ptr::null_mut(),
        correlation_id: 0,
    };
    in_callback("an API callback", || {
        let userdata = ptr::with_exposed_provenance_mut(subscriber.userdata);
        // SAFETY: the client subscribed this function with this pointer; the data lives until the call returns.
        unsafe { (subscriber.callback)(userdata, domain, id, (&raw const data).cast()) };
    });
}

/// Data of a callback about a launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchData {
    /// Parameters of the function.
    pub parameters: *const c_void,
    /// Mangled name of the kernel.
    pub symbol: *const c_char,
    /// Return value, at the exit; NULL if the client need not know.
    pub result: *const u32,
    /// Id of the context.
    pub context: u32,
    /// Correlation id of the call.
    pub correlation: u32,
}

/// Notifies the subscriber of one side of a launch.
pub fn tell_launch(subscriber: &Subscriber, domain: Domain, id: u32, site: CallbackSite, launch: &LaunchData) {
    let mut pointers = [ptr::null_mut(); 5];
    pointers[1] = launch.parameters.cast_mut();
    pointers[2] = launch.result.cast_mut().cast();
    pointers[3] = launch.symbol.cast_mut().cast();
    pointers[4] = token(launch.context);
    let data = ApiData {
        site,
        pointers,
        context_id: launch.context,
        correlation_data: ptr::null_mut(),
        correlation_id: launch.correlation,
    };
    in_callback("an API callback", || {
        let userdata = ptr::with_exposed_provenance_mut(subscriber.userdata);
        // SAFETY: as for other calls; parameters and name live until the call returns.
        unsafe { (subscriber.callback)(userdata, domain, id, (&raw const data).cast()) };
    });
}

/// A buffer on its way back to the client.
#[derive(Debug)]
pub struct Return {
    /// The client's function.
    pub completed: BufferCompleted,
    /// Token of the recorded context, or 0.
    pub context: u64,
    /// Stream id, or 0.
    pub stream: u32,
    /// Address, size and valid size.
    pub returned: (*mut u8, usize, usize),
}

// SAFETY: the pointer is to memory that the library holds and now passes on; only one thread owns it at a
// time.
unsafe impl Send for Return {}

impl Return {
    /// Calls the client.
    pub fn run(self) {
        let Self { completed, context, stream, returned: (address, size, valid) } = self;
        let context = usize::try_from(context).unwrap_or(0);
        in_callback("bufferCompleted", || {
            // SAFETY: the client registered this function; the buffer is the one it lent, and the library
            // does not touch it any more.
            unsafe { completed(ptr::without_provenance_mut(context), stream, address, size, valid) };
        });
    }

    /// Calls the client from another thread, after `time`. If no thread can be started, the buffer is lost.
    pub fn run_after(self, time: Duration) {
        let work = move || {
            thread::sleep(time);
            self.run();
        };
        let _ = thread::Builder::new().name("cupti-late".to_owned()).spawn(work);
    }
}

/// The kernel's id of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: takes no arguments and cannot fail.
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    u32::try_from(id).unwrap_or_default()
}

/// Memory that no client has lent, large enough for a record's head.
#[must_use]
pub fn foreign_memory() -> *mut u8 {
    static FOREIGN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
    FOREIGN.as_ptr().cast_mut().cast()
}

/// The thread that returns buffers, as CUPTI has one.
#[derive(Debug)]
pub struct Worker {
    /// `None` if no thread could be started: then the caller does the work.
    line: Option<(Sender<Return>, Receiver<()>)>,
}

impl Worker {
    /// Starts the thread.
    #[must_use]
    pub fn start() -> Self {
        let (give, take) = channel::<Return>();
        let (tell, hear) = channel();
        let work = move || {
            for job in take {
                job.run();
                if tell.send(()).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("cupti-replay".to_owned()).spawn(work);
        Self { line: thread.is_ok().then_some((give, hear)) }
    }

    /// Passes on a buffer and waits until the client has it, so that play never gets ahead of its client.
    pub fn run(&self, job: Return) {
        match &self.line {
            Some((give, done)) => {
                if let Err(unsent) = give.send(job) {
                    unsent.0.run();
                } else {
                    // An error means that the thread has ended, and the job with it: there is no reply to
                    // wait for.
                    let _ = done.recv();
                }
            }
            None => job.run(),
        }
    }
}
