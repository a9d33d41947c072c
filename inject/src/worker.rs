//! The threads of this library.
//!
//! They are started before anything of CUPTI's is touched, so that a system that refuses one has nothing left switched
//! on. A thread without work ends.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crossbeam_channel::{Sender, bounded};

use crate::sys::signals;

/// Stack of each: the default of the standard library, which `RUST_MIN_STACK` in the program's environment would
/// change.
const STACK_BYTES: usize = 2 << 20;

type Work = Box<dyn FnOnce() + Send>;

/// A thread that waits for its work.
#[derive(Debug)]
pub struct Worker(Sender<Work>);

impl Worker {
    /// Starts a thread that takes no signal of the program's, and whose panic ends nothing but itself. Fails when the
    /// system refuses.
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

    /// Has it do this.
    pub fn work(self, work: impl FnOnce() + Send + 'static) {
        // It waits for this and nothing else.
        let _ = self.0.send(Box::new(work));
    }
}
