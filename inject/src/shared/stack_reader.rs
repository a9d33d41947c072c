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
    /// Finds the calling library; `None` before [`prepare`](StackReader::prepare), and where threads cannot be unwound.
    native: Option<Box<Native>>,
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

    /// Finds the interpreter and the files with code, for [`library`](Self::library). Takes milliseconds, so it is no
    /// part of a callback.
    pub fn prepare(&mut self) {
        if let Interpreter::Unknown = self.python {
            self.python = find_python();
        }
        self.native = Native::new(&Process::this()).ok().map(Box::new);
        self.renew();
    }

    /// Takes note of files that were loaded since, if that is due. The same applies.
    pub fn renew(&mut self) {
        if let Some(native) = &mut self.native {
            native.renew();
        }
    }

    /// File whose code called the driver or the CUDA runtime on this thread, which is inside that call. A path from
    /// the package's folder on, or the name of the file; `None` if unknown.
    pub fn library(&mut self) -> Option<Arc<str>> {
        self.caller_of(|name| INNER.iter().any(|inner| name.starts_with(inner)))
    }

    /// The same for the files that `is_inner` accepts. Not inlined: its frame must exist.
    #[inline(never)]
    fn caller_of(&mut self, is_inner: impl Fn(&str) -> bool) -> Option<Arc<str>> {
        if self.spent >= LONGEST_READING || memory::is_short() {
            return None;
        }
        let begun = Instant::now();
        let registers = threads::registers()?;
        let found = self.native.as_mut()?.caller_of(registers, is_inner);
        self.spent += begun.elapsed();
        found.map(|path| within_package(&path))
    }

    /// Stack of the calling thread, whose kernel id is `thread`.
    pub fn stack(&mut self, thread: u32) -> Result<Arc<[Frame]>, NoStack> {
        let begun = Instant::now();
        // Taken out while it is used: after a panic there is none.
        let python = match mem::replace(&mut self.python, Interpreter::None) {
            Interpreter::Unknown => find_python(),
            python => python,
        };
        let Interpreter::Found(mut python) = python else { return Err(NoStack::NoPython) };
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

fn find_python() -> Interpreter {
    match Python::find(&Process::this()) {
        Ok(python) => Interpreter::Found(Box::new(python)),
        Err(why) => {
            tracing::debug!("no stacks at calls: {why}");
            Interpreter::None
        }
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
    fn the_caller_of_the_inner_files_is_told_and_without_them_none() {
        let mut reader = StackReader::new(false);
        let own = std::env::current_exe().unwrap();
        let own = own.file_name().unwrap().to_str().unwrap();
        assert_eq!(reader.caller_of(|name| name == own), None, "not prepared");
        reader.prepare();
        assert_eq!(reader.library(), None, "the driver is not among the callers");
        let told = reader.caller_of(|name| name == own);
        // The C library started this thread.
        let known = if cfg!(target_arch = "x86_64") { Some("libc.so.6") } else { None };
        assert_eq!(told.as_deref(), known);
    }
}
