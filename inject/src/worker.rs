//! Threads of this library.
//!
//! They are started before CUPTI is used, so that if the system refuses one, there is nothing to switch off.
//! A thread without work ends.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crossbeam_channel::{Sender, bounded};

use crate::sys::signals;

/// Stack size of each: the default of the standard library, which `RUST_MIN_STACK` in the program's
/// environment would change.
const STACK_BYTES: usize = 2 << 20;

type Work = Box<dyn FnOnce() + Send>;

/// A thread that waits for its work.
#[derive(Debug)]
pub struct Worker(Sender<Work>);

impl Worker {
    /// Starts a thread that receives no signals of the program, and whose panic ends only the thread. Fails
    /// if the system refuses.
    pub fn start(name: &str) -> io::Result<Self> {
        let (give, work) = bounded::<Work>(1);
        let run = move || {
            let Ok(work) = work.recv() else { return };
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                tracing::error!("internal error; measuring ends here, the program goes on");
            }
        };
        let builder = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
        signals::with_signals_blocked(|| builder.spawn(run)).map(|_| Self(give))
    }

    /// Runs this work on the thread.
    pub fn work(self, work: impl FnOnce() + Send + 'static) {
        // The thread waits only for this.
        let _ = self.0.send(Box::new(work));
    }
}
