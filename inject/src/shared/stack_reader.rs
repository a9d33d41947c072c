//! Reads stacks of the thread that is in a callback of CUPTI.
//!
//! At that moment PyTorch has mostly released the interpreter's lock, so that Python's own functions may not be
//! called. But the calling thread stands still: its frames are read as the sampler reads those of other threads, from
//! memory and without the lock, and one walk is enough.

use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use host_sampler::native::Native;
use host_sampler::process::Process;
use host_sampler::python::{Frame, Miss, Python};

use crate::sys::{memory, threads};

/// Maximum time for reading stacks in a run. It delays the program: for graphs once each, and 50 graphs of 1,000
/// nodes would take 2 s at 40 us a stack. A second is little in the start of a program that captures that much, which
/// takes minutes.
const LONGEST_READING: Duration = Duration::from_secs(1);
/// Maximum number of stacks.
const MOST_STACKS: u64 = 1 << 17;
/// Starts of the names of the files between a program and this library: the driver, the CUDA runtime, CUPTI.
const INNER: [&str; 4] = ["libcuda.so", "libcudart.so", "libcupti", "libnvperf"];

/// Reads stacks within limits.
#[derive(Debug)]
pub struct StackReader {
    python: Interpreter,
    /// Finds the calling library, once it was asked for; `None` where threads cannot be unwound.
    native: Option<Option<Box<Native>>>,
    /// Time of all reads.
    spent: Duration,
    stacks: u64,
    /// The last stack: consecutive calls are mostly made by the same line.
    last: Arc<[Frame]>,
}

#[derive(Debug)]
enum Interpreter {
    /// Not looked for yet: this happens at the first stack, because most programs need none.
    Unknown,
    Found(Box<Python>),
    /// There is none, or reading was interrupted by a panic.
    None,
}

/// Why there is no stack although stacks are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStack {
    /// The thread runs no Python.
    NoPython,
    /// A limit was reached, or the stack could not be read.
    NotRead,
}

impl StackReader {
    /// Creates a reader. Without `reads` it knows no Python.
    pub fn new(reads: bool) -> Self {
        let python = if reads { Interpreter::Unknown } else { Interpreter::None };
        Self { python, native: None, spent: Duration::ZERO, stacks: 0, last: Arc::new([]) }
    }

    /// File whose code called the driver or the CUDA runtime on this thread, which is inside that call. A path from
    /// the package's folder on, or the name of the file; `None` if unknown. Not inlined: its frame must exist.
    #[inline(never)]
    pub fn library(&mut self) -> Option<Arc<str>> {
        if self.spent >= LONGEST_READING || memory::is_short() {
            return None;
        }
        let begun = Instant::now();
        let registers = threads::registers()?;
        let native = self.native.get_or_insert_with(|| Native::new(&Process::this()).ok().map(Box::new)).as_mut()?;
        let found = native.caller_of(registers, |name| INNER.iter().any(|inner| name.starts_with(inner)));
        self.spent += begun.elapsed();
        found.map(|path| within_package(&path))
    }

    /// Stack of the calling thread, whose kernel id is `thread`.
    pub fn stack(&mut self, thread: u32) -> Result<Arc<[Frame]>, NoStack> {
        // Taken out while it is used: after a panic there is none.
        let mut python = match mem::replace(&mut self.python, Interpreter::None) {
            Interpreter::None => return Err(NoStack::NoPython),
            Interpreter::Found(python) => Some(python),
            Interpreter::Unknown => None,
        };
        let begun = Instant::now();
        if python.is_none() {
            let found = Python::find(&Process::this());
            if let Err(why) = &found {
                tracing::debug!("no stacks at calls: {why}");
            }
            python = found.ok().map(Box::new);
        }
        let Some(mut python) = python else { return Err(NoStack::NoPython) };
        let has_room = self.spent < LONGEST_READING && self.stacks < MOST_STACKS && !memory::is_short();
        let read = has_room.then(|| python.stack_of_still(thread));
        self.python = Interpreter::Found(python);
        let stack = match read {
            Some(Ok(frames)) if *frames == *self.last => Ok(Arc::clone(&self.last)),
            Some(Ok(frames)) => {
                self.last = frames.into();
                Ok(Arc::clone(&self.last))
            }
            Some(Err(Miss::NoPython)) => Err(NoStack::NoPython),
            Some(Err(Miss::Torn | Miss::Closed)) | None => Err(NoStack::NotRead),
        };
        self.stacks += u64::from(stack.is_ok());
        self.spent += begun.elapsed();
        stack
    }
}

/// The part of a path that says what the file belongs to, without the user's folders.
fn within_package(path: &Path) -> Arc<str> {
    let text = path.to_string_lossy();
    let package = text.rsplit_once("/site-packages/").or_else(|| text.rsplit_once("/dist-packages/"));
    match package {
        Some((_, package)) => package.into(),
        None => path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_without_the_folders_of_the_user() {
        for (path, told) in [
            ("/home/u/venv/lib/python3.12/site-packages/torch/lib/libc10_cuda.so", "torch/lib/libc10_cuda.so"),
            ("/usr/lib/python3/dist-packages/cupy/_core/core.so", "cupy/_core/core.so"),
            ("/usr/lib/x86_64-linux-gnu/libnccl.so.2", "libnccl.so.2"),
            ("/home/u/solver", "solver"),
        ] {
            assert_eq!(&*within_package(Path::new(path)), told);
        }
    }

    #[test]
    fn without_the_driver_among_the_callers_no_library_is_told() {
        assert_eq!(StackReader::new(false).library(), None);
    }
}
