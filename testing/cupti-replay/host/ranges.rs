//! A program that marks its phases: NVTX ranges and marks, while the recording is played.
#![expect(unsafe_code, reason = "loads a library as NVTX does, and calls C functions")]

use std::env;
use std::ffi::CString;
use std::thread::JoinHandle;
use std::time::Duration;

use libloading::os::unix::{Library, RTLD_LAZY};
use nvtx_sys::abi::{EventAttributes, message_type};
use nvtx_sys::program::{Initialize, Program};

/// Steps of the worker thread; each is a nested range.
const STEPS: usize = 1000;
/// The category of the steps.
const CATEGORY: u32 = 7;

/// Two libraries of this program that include NVTX.
const MAIN: Program<0> = Program;
const LIBRARY: Program<1> = Program;

/// Open ranges, and the thread that makes more.
#[derive(Debug)]
pub struct Ranges {
    whole_run: u64,
    worker: JoinHandle<()>,
}

impl Ranges {
    /// Uses NVTX for the first time, then opens ranges.
    pub fn begin() -> Result<Self, String> {
        attach()?;
        MAIN.push(c"main");
        let whole_run = MAIN.start(c"whole run");
        let worker = std::thread::Builder::new().name("worker".to_owned()).spawn(worker);
        Ok(Self { whole_run, worker: worker.map_err(|error| format!("cannot start a thread: {error}"))? })
    }

    /// Waits for the thread, then ends the open ranges.
    pub fn end(self) -> Result<(), String> {
        self.worker.join().map_err(|_| "the thread of the ranges panicked".to_owned())?;
        // SAFETY: takes a number.
        unsafe { MAIN.end(self.whole_run) };
        // SAFETY: takes no arguments.
        unsafe { MAIN.pop() };
        MAIN.mark(c"done");
        Ok(())
    }
}

/// Uses NVTX for the first time, in both libraries.
pub fn attach() -> Result<(), String> {
    if let Some(path) = env::var_os("NVTX_INJECTION64_PATH").filter(|path| !path.is_empty()) {
        let shown = path.to_string_lossy().into_owned();
        // SAFETY: the user of this program requests that this library's initializers run.
        let library = unsafe { Library::open(Some(&path), RTLD_LAZY) }.map_err(|error| format!("{shown}: {error}"))?;
        // NVTX never unloads a library that returned 1, and any other return value ends this program.
        let library = Box::leak(Box::new(library));
        // SAFETY: the name belongs to a function of this type: the contract of NVTX with injected libraries.
        let initialize = unsafe { library.get::<Initialize>("InitializeInjectionNvtx2") }
            .map_err(|error| format!("{shown}: {error}"))?;
        // SAFETY: it was found by its name, in a library that stays loaded.
        let answers = unsafe { [MAIN.initialize(*initialize), LIBRARY.initialize(*initialize)] };
        if answers != [1, 1] {
            return Err(format!("{shown}: InitializeInjectionNvtx2 answered {answers:?}"));
        }
    }
    Ok(())
}

/// Pushes a range on this thread, if NVTX has found a library.
pub fn push(name: &str) {
    MAIN.push(&CString::new(name).unwrap_or_default());
}

/// Pops it.
pub fn pop() {
    // SAFETY: takes no arguments.
    unsafe { MAIN.pop() };
}

/// The system's id of this thread; 0 if it is unavailable.
fn thread_id() -> u32 {
    let place = std::fs::read_link("/proc/thread-self").ok();
    place.and_then(|place| place.file_name()?.to_str()?.parse().ok()).unwrap_or(0)
}

/// In a separate domain: `step 0`, `step 1`, ..., each with a nested `compute`, whose name is registered.
fn worker() {
    // SAFETY: each string ends with NUL and outlives the calls; attributes state their size.
    unsafe {
        LIBRARY.name_os_thread_a(thread_id(), c"range worker".as_ptr());
        let domain = LIBRARY.domain_create_a(c"worker".as_ptr());
        LIBRARY.name_category_a(domain, CATEGORY, c"training".as_ptr());
        let compute = LIBRARY.register_string_a(domain, c"compute".as_ptr());
        let compute = EventAttributes {
            message_type: message_type::REGISTERED,
            message: compute.cast(),
            ..EventAttributes::new()
        };
        for step in 0..STEPS {
            if step % 10 == 0 {
                // Spreads the steps over the start of the profiler and a part of the recording.
                std::thread::sleep(Duration::from_millis(1));
            }
            let name = CString::new(format!("step {step}")).unwrap_or_default();
            let step = EventAttributes { category: CATEGORY, ..EventAttributes::text(&name) };
            LIBRARY.domain_push_ex(domain, &raw const step);
            LIBRARY.domain_push_ex(domain, &raw const compute);
            LIBRARY.domain_pop(domain);
            LIBRARY.domain_pop(domain);
        }
    }
}
