//! Maps kernel threads to thread states of the interpreter.
//!
//! From 3.11 on, a thread state contains the kernel's thread id. Before, it contains only the address of the
//! C library's thread structure, which has the kernel's id at a fixed offset. This offset is verified once,
//! with the first thread of the process, whose id is known.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::layout::Layout;
use crate::memory::{Memory, Unreadable};

/// Maximum number of interpreters walked.
const MAX_INTERPRETERS: usize = 64;
/// Maximum number of threads walked per interpreter.
const MAX_THREADS: usize = 4096;
/// Offset of the kernel's id in glibc's thread structure: after the header, whose size depends on the
/// architecture, and a list entry of two pointers. It is unchanged since at least glibc 2.2.
#[cfg(target_arch = "x86_64")]
const GLIBC_ID: usize = 720;
#[cfg(not(target_arch = "x86_64"))]
const GLIBC_ID: usize = 208;
/// Maximum number of cached thread ids.
const MAX_KNOWN: usize = 64;

/// A thread of an interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadAddress {
    /// Its `PyThreadState`.
    pub state: u64,
    /// Its `PyInterpreterState`.
    pub interpreter: u64,
}

/// Finds and caches thread states.
#[derive(Debug)]
pub struct Threads {
    runtime: u64,
    id: IdField,
    known: HashMap<u32, ThreadAddress, FxBuildHasher>,
}

/// Location of a thread's kernel id.
#[derive(Clone, Copy, Debug)]
enum IdField {
    State(usize),
    /// In the C library's structure to which the thread state points.
    Structure {
        pointer: usize,
        id: usize,
    },
}

impl Threads {
    /// Returns `None` if the lists are not as expected.
    pub fn find(memory: &Memory, layout: &Layout, runtime: u64, process: u32) -> Option<Self> {
        let all = list(memory, layout, runtime).ok()?;
        let id = match layout.thread.native_id {
            Some(offset) => IdField::State(offset),
            None => IdField::Structure { pointer: layout.thread.pthread, id: GLIBC_ID },
        };
        let threads = Self { runtime, id, known: HashMap::default() };
        let is_first = |thread: &ThreadAddress| threads.id_of(memory, *thread) == Ok(process);
        let is_sound = !all.is_empty() && (layout.thread.native_id.is_some() || all.iter().any(is_first));
        is_sound.then_some(threads)
    }

    /// Thread state of a kernel thread.
    pub fn state_of(&mut self, memory: &Memory, layout: &Layout, thread: u32) -> Option<ThreadAddress> {
        if let Some(&known) = self.known.get(&thread)
            && self.still(memory, layout, known, thread) == Ok(true)
        {
            return Some(known);
        }
        self.known.remove(&thread);
        let all = list(memory, layout, self.runtime).ok()?;
        let found = all.into_iter().find(|&candidate| self.id_of(memory, candidate) == Ok(thread))?;
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(thread, found);
        Some(found)
    }

    /// True if the state is still in its list and still belongs to the thread: freed memory keeps its
    /// contents for a while, but the list no longer points to it.
    fn still(&self, memory: &Memory, layout: &Layout, known: ThreadAddress, thread: u32) -> Result<bool, Unreadable> {
        let before = memory.u64(known.state.wrapping_add(layout.thread.previous as u64))?;
        let link = match before {
            0 => known.interpreter.wrapping_add(layout.interpreter.threads_head as u64),
            before => before.wrapping_add(layout.thread.next as u64),
        };
        Ok(memory.u64(link)? == known.state && self.id_of(memory, known)? == thread)
    }

    /// Kernel id of a thread.
    pub fn id_of(&self, memory: &Memory, thread: ThreadAddress) -> Result<u32, Unreadable> {
        match self.id {
            IdField::State(offset) => memory.u32(thread.state.wrapping_add(offset as u64)),
            IdField::Structure { pointer, id } => {
                let structure = memory.u64(thread.state.wrapping_add(pointer as u64))?;
                memory.u32(structure.wrapping_add(id as u64))
            }
        }
    }
}

/// All threads of all interpreters. If a thread refers to another interpreter than the one whose list
/// contains it, the walk fails: this is not a list of threads, or it changed during the walk.
fn list(memory: &Memory, layout: &Layout, runtime: u64) -> Result<Vec<ThreadAddress>, Unreadable> {
    let mut all = Vec::new();
    let mut interpreter = memory.u64(runtime.wrapping_add(layout.interpreters_head as u64))?;
    for _ in 0..MAX_INTERPRETERS {
        if interpreter == 0 {
            break;
        }
        let mut state = memory.u64(interpreter.wrapping_add(layout.interpreter.threads_head as u64))?;
        for _ in 0..MAX_THREADS {
            if state == 0 {
                break;
            }
            if memory.u64(state.wrapping_add(layout.thread.interpreter as u64))? != interpreter {
                return Err(Unreadable(state));
            }
            all.push(ThreadAddress { state, interpreter });
            state = memory.u64(state.wrapping_add(layout.thread.next as u64))?;
        }
        interpreter = memory.u64(interpreter.wrapping_add(layout.interpreter.next as u64))?;
    }
    Ok(all)
}
