//! Ranges of a session: NVTX ranges for the collector and for the tool that NVTX is configured with.
//!
//! The NVTX header is C; this module repeats its initialization at the first call. A tool named by
//! `NVTX_INJECTION64_PATH` gets the ranges as from any program, and the collector also gets them, once.
#![expect(unsafe_code, reason = "loads a library as NVTX does, and calls C functions")]

use std::env;
use std::ffi::CString;
use std::marker::PhantomData;
use std::sync::Once;

use libloading::os::unix::{Library, RTLD_LAZY};
use nvtx_sys::program::{Initialize, Program};

use super::fork;
use super::functions::Collector;

const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";
/// Instance of NVTX whose ranges go to the collector.
const COLLECTOR: Program<0> = Program;
/// Instance of NVTX whose ranges go to another tool.
const TOOL: Program<1> = Program;

/// A range that ends when it goes out of scope, on the thread that started it.
#[derive(Debug)]
#[must_use = "the range ends where this goes out of scope"]
pub struct Range<'session> {
    /// Ranges nest by thread, so this one must stay on its thread.
    not_send: PhantomData<*const ()>,
    session: PhantomData<&'session ()>,
}

impl Range<'_> {
    /// Starts a range on this thread.
    pub(crate) fn begin(name: &str) -> Self {
        listen();
        let name = c_text(name);
        COLLECTOR.push(&name);
        TOOL.push(&name);
        Self { not_send: PhantomData, session: PhantomData }
    }
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        pop();
    }
}

/// Starts a range that [`pop`] ends.
pub(crate) fn push(name: &str) {
    std::mem::forget(Range::begin(name));
}

/// Ends the innermost range of this thread, if there is one.
pub(crate) fn pop() {
    // SAFETY: the calls take no arguments.
    unsafe {
        TOOL.pop();
        COLLECTOR.pop();
    }
}

/// Steps of a program: each is a range from one call to the next, on any thread, with a name that is
/// recognized as a step.
#[derive(Debug, Default)]
pub(crate) struct StepRanges {
    /// Ids of the open range in both instances.
    open: Option<[u64; 2]>,
}

impl StepRanges {
    /// Ends the open step and starts the next.
    pub(crate) fn next(&mut self) {
        listen();
        self.end();
        self.open = Some([COLLECTOR.start(c"step"), TOOL.start(c"step")]);
    }

    /// Ends the open step, if there is one.
    pub(crate) fn end(&mut self) {
        if let Some([collector, tool]) = self.open.take() {
            // SAFETY: the calls take only a number.
            unsafe {
                COLLECTOR.end(collector);
                TOOL.end(tool);
            }
        }
    }
}

/// Connects both instances to their tools, once.
fn listen() {
    static LISTENING: Once = Once::new();
    // If a thread of the parent was initializing when this process was forked, `call_once` would never
    // return.
    if !LISTENING.is_completed() && fork::check().is_err() {
        return;
    }
    LISTENING.call_once(|| {
        let collector = Collector::of_this_process().nvtx();
        // SAFETY: this is the collector's function, which is never unloaded.
        unsafe { COLLECTOR.initialize(collector) };
        if let Some(tool) = other_tool(collector) {
            // SAFETY: the function was found by its name in a library that stays loaded.
            unsafe { TOOL.initialize(tool) };
        }
    });
}

/// Initialization function of the tool that NVTX is configured with, unless that is the collector itself.
fn other_tool(collector: Initialize) -> Option<Initialize> {
    let path = env::var_os(NVTX_INJECTION).filter(|path| !path.is_empty())?;
    // SAFETY: the user requested that this library's initializers run in this process.
    let library = unsafe { Library::open(Some(path), RTLD_LAZY) }.ok()?;
    // NVTX never unloads it either.
    let library = Box::leak(Box::new(library));
    // SAFETY: a function with this name has this type, by the contract of NVTX with the libraries that it
    // loads.
    let initialize = unsafe { library.get::<Initialize>("InitializeInjectionNvtx2") }.ok()?;
    (*initialize as usize != collector as usize).then_some(*initialize)
}

/// `text` as a C string, up to the first NUL.
fn c_text(text: &str) -> CString {
    let until = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..until]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_a_nul() {
        assert_eq!(c_text("forward").as_c_str(), c"forward");
        assert_eq!(c_text("a\0b").as_c_str(), c"a");
    }
}
