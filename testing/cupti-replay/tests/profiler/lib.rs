//! A minimal profiler for the tests of the host program: it counts records and prints the count at exit.
//!
//! `TEST_PROFILER` makes it misbehave: `refuse` to start, start and stay `idle`, `flush-inside` a callback,
//! `call-after-fork` in a child.
#![expect(unsafe_code, reason = "a library of C functions")]

use std::env;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use cupti_sys::{ActivityHandler, Buffer, CompletedBuffer, Cupti, Kind, RecordSizes, ResourceHandler, Search};

static CUPTI: OnceLock<(&'static Cupti, RecordSizes)> = OnceLock::new();
static RECORDS: AtomicU64 = AtomicU64::new(0);
static CONTEXTS: AtomicU64 = AtomicU64::new(0);

struct Counter;

impl ActivityHandler for Counter {
    fn buffer_requested() -> Option<Buffer> {
        Buffer::new(4096)
    }

    fn buffer_completed(buffer: CompletedBuffer) {
        if let Some((cupti, sizes)) = CUPTI.get() {
            RECORDS.fetch_add(buffer.records(sizes).count() as u64, Ordering::SeqCst);
            if habit() == "flush-inside" {
                let _ = cupti.flush(false);
            }
        }
    }

    fn buffer_discarded(_: u64) {}
}

impl ResourceHandler for Counter {
    fn context_created() {
        CONTEXTS.fetch_add(1, Ordering::SeqCst);
    }
}

fn habit() -> String {
    env::var("TEST_PROFILER").unwrap_or_default()
}

extern "C" fn at_exit() {
    if let Some((cupti, _)) = CUPTI.get() {
        let _ = cupti.flush(true);
        let (records, contexts) = (RECORDS.load(Ordering::SeqCst), CONTEXTS.load(Ordering::SeqCst));
        eprintln!("profiler: {records} records, {contexts} contexts");
    }
}

extern "C" fn in_child() {
    if habit() == "call-after-fork"
        && let Some((cupti, _)) = CUPTI.get()
    {
        let _ = cupti.timestamp();
    }
}

fn start() -> Option<()> {
    let search =
        Search { override_path: env::var_os("GPUWHY_CUPTI_PATH").map(Into::into), ..Search::for_this_process() };
    let cupti = Cupti::load(&search).ok()?;
    let sizes = RecordSizes::probe(cupti).ok()?;
    CUPTI.set((cupti, sizes)).ok()?;
    cupti.subscribe::<Counter>().ok()?;
    cupti.register_callbacks::<Counter>().ok()?;
    cupti.enable(Kind::CONCURRENT_KERNEL).ok()
}

/// The driver's entry point.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> i32 {
    if habit() == "idle" {
        eprintln!("profiler: idle");
        return 1;
    }
    if habit() == "refuse" || start().is_none() {
        return 0;
    }
    // SAFETY: both are functions of this library, which the host never unloads.
    let registered = unsafe { libc::atexit(at_exit) | libc::pthread_atfork(None, None, Some(in_child)) };
    i32::from(registered == 0)
}
