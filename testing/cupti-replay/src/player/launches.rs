//! Launches and copies by the host program: callbacks with their parameters, as in the real library.

use std::ffi::{CString, c_char, c_void};
use std::ptr;

use cupti_sys::{CallbackSite, Domain, LAUNCHES, MEMORY_CALLS, SUBMISSIONS};

use super::Player;
use crate::ffi::{self, LaunchData};

/// A launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Mangled name.
    pub symbol: CString,
    /// Blocks in the grid.
    pub grid: [u32; 3],
    /// Threads in a block.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
}

/// Parameters of `cuLaunchKernel`.
#[repr(C)]
struct Driver {
    function: usize,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: usize,
    rest: [usize; 2],
}

/// Parameters of `cudaLaunchKernel`.
#[repr(C)]
struct Runtime {
    function: usize,
    grid: [u32; 3],
    block: [u32; 3],
    arguments: usize,
    shared_bytes: usize,
    stream: usize,
}

impl Player {
    /// True if the client has enabled callbacks of launches.
    pub fn is_heard(&self) -> bool {
        let client = self.client();
        LAUNCHES.iter().any(|&(domain, id, _)| client.listener(domain, id).is_some())
    }

    /// Launches a kernel on this thread, as `cudaLaunchKernel` does: it calls the driver's function. Active
    /// counter measurements count it. Does not write a record.
    pub fn launch(&self, launch: &Launch, correlation: u32) {
        let (grid, block) = (launch.grid, launch.block);
        let runtime =
            Runtime { function: 1, grid, block, arguments: 0, shared_bytes: launch.shared_bytes as usize, stream: 0 };
        let driver = Driver { function: 1, grid, block, shared_bytes: launch.shared_bytes, stream: 0, rest: [0; 2] };
        let [runtime, driver] = [(&raw const runtime).cast::<c_void>(), (&raw const driver).cast::<c_void>()];
        let outer = |site| self.tell_launch((Domain::RUNTIME, 211), site, launch, runtime, correlation);
        let inner = |site| self.tell_launch((Domain::DRIVER, 307), site, launch, driver, correlation);
        outer(CallbackSite::ENTER);
        inner(CallbackSite::ENTER);
        self.unit.launched(&launch.symbol.to_string_lossy());
        inner(CallbackSite::EXIT);
        outer(CallbackSite::EXIT);
    }

    /// Calls the function `name`, one of [`SUBMISSIONS`], on this thread, to copy `bytes` or to launch a graph. Writes
    /// no record. Returns true if it exists.
    pub fn submit(&self, name: &str, bytes: u64) -> bool {
        let Some(&(domain, id, ..)) = SUBMISSIONS.iter().find(|row| row.2 == name) else { return false };
        let parameters = [0x1000, 0x2000, bytes, 0];
        for site in [CallbackSite::ENTER, CallbackSite::EXIT] {
            let data = self.data(ptr::null(), parameters.as_ptr().cast(), 0);
            self.tell((domain, id), site, &data);
        }
        true
    }

    /// Calls the function `name`, one of [`MEMORY_CALLS`], on this thread: with these parameters, which it has written
    /// to already, and this result. Writes no record. Returns true if it exists.
    pub fn memory_call(&self, name: &str, result: u32, parameters: &[u64]) -> bool {
        let Some(&(id, ..)) = MEMORY_CALLS.iter().find(|row| row.1 == name) else { return false };
        for site in [CallbackSite::ENTER, CallbackSite::EXIT] {
            let data = self.data(ptr::null(), parameters.as_ptr().cast(), 0);
            self.tell((Domain::DRIVER, id), site, &LaunchData { result: &raw const result, ..data });
        }
        true
    }

    fn tell_launch(
        &self,
        function: (Domain, u32),
        site: CallbackSite,
        launch: &Launch,
        parameters: *const c_void,
        correlation: u32,
    ) {
        self.tell(function, site, &self.data(launch.symbol.as_ptr(), parameters, correlation));
    }

    fn data(&self, symbol: *const c_char, parameters: *const c_void, correlation: u32) -> LaunchData {
        // Like most programs, the recorded ones have one context.
        let context = self.session.contexts().next().unwrap_or(1);
        LaunchData { parameters, symbol, result: ptr::null(), context, correlation }
    }

    fn tell(&self, (domain, id): (Domain, u32), site: CallbackSite, data: &LaunchData) {
        let listener = self.client().listener(domain, id);
        if let Some(subscriber) = listener {
            ffi::tell_launch(&subscriber, domain, id, site, data);
        }
    }
}
