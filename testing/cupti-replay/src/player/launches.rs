//! Launches by the host program: callbacks with the kernel's name and shape, as in the real library.

use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use cupti_sys::{CallbackSite, Domain, LAUNCHES};

use super::Player;
use crate::ffi::{self, LaunchData};
use crate::violation::Rule;

/// Time that a thread has to enter the driver if no other thread blocks it.
const BESIDE: Duration = Duration::from_millis(30);

thread_local! {
    /// Notified when this thread is in the driver.
    static DRIVER: Cell<Option<Sender<()>>> = const { Cell::new(None) };
}

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
    /// True if the client has enabled callbacks of launches, not only of all calls.
    pub fn is_heard(&self) -> bool {
        let client = self.client();
        LAUNCHES.iter().any(|&(domain, id, _)| client.has_asked_for(domain, id))
    }

    /// Launches an arbitrary kernel of the program.
    pub fn launch_something(&self) {
        let symbol = c"something".to_owned();
        let correlation = 2_000_000 + self.launches.fetch_add(1, Ordering::Relaxed);
        self.launch(&Launch { symbol, grid: [1; 3], block: [32, 1, 1], shared_bytes: 0 }, correlation);
    }

    /// Launches on another thread while PC sampling is called by `function`. If that thread can enter the
    /// driver, the real library can deadlock: it holds its own lock here and waits for the driver's, which
    /// the launch holds while it waits for the library's.
    pub fn launch_beside(&'static self, function: &'static str) {
        let (tell, inside) = channel();
        let launch = move || {
            DRIVER.set(Some(tell));
            self.launch_something();
            self.beside.fetch_sub(1, Ordering::Release);
        };
        self.beside.fetch_add(1, Ordering::Relaxed);
        // Without a thread no violation can be detected.
        let begun = thread::Builder::new().name("beside".to_owned()).spawn(launch);
        if begun.is_err() {
            self.beside.fetch_sub(1, Ordering::Relaxed);
        }
        if begun.is_ok() && inside.recv_timeout(BESIDE) == Ok(()) {
            self.violations.note(Rule::ProgramCountersBesideLaunch, || function.to_owned());
        }
    }

    /// True if all launches of [`launch_beside`](Self::launch_beside) have returned.
    pub fn nothing_is_beside(&self) -> bool {
        self.beside.load(Ordering::Acquire) == 0
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
        // Here the driver holds its lock.
        if let Some(tell) = DRIVER.take() {
            let _ = tell.send(());
        }
        self.unit.launched(&launch.symbol.to_string_lossy());
        inner(CallbackSite::EXIT);
        outer(CallbackSite::EXIT);
    }

    fn tell_launch(
        &self,
        (domain, id): (Domain, u32),
        site: CallbackSite,
        launch: &Launch,
        parameters: *const c_void,
        correlation: u32,
    ) {
        let listener = self.client().listener(domain, id);
        if let Some(subscriber) = listener {
            let symbol = launch.symbol.as_ptr();
            // Like most programs, the recorded ones have one context.
            let context = self.session.contexts().next().unwrap_or(1);
            let data = LaunchData { parameters, symbol, context, correlation };
            ffi::tell_launch(&subscriber, domain, id, site, &data);
        }
    }
}
