//! Which thread state of the interpreter belongs to which thread of the kernel.
//!
//! From 3.11 on a thread state notes the kernel's id. Before, it notes only the address of the C library's thread
//! structure, in which the C library itself keeps the kernel's id at a fixed place. That it is there is checked once,
//! with the first thread of the process, whose id is known.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::layout::Layout;
use crate::memory::{Memory, Unreadable};

/// Interpreters walked at most.
const MAX_INTERPRETERS: usize = 64;
/// Threads of one interpreter walked at most.
const MAX_THREADS: usize = 4096;
/// Where glibc keeps the kernel's id in its thread structure: behind the header, whose size depends on the
/// architecture, and a list entry of two pointers. It has not moved since glibc 2.2 at least.
#[cfg(target_arch = "x86_64")]
const GLIBC_ID: usize = 720;
#[cfg(not(target_arch = "x86_64"))]
const GLIBC_ID: usize = 208;
/// Thread ids remembered at most.
const MAX_KNOWN: usize = 64;

/// A thread of an interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadAddress {
    /// Its `PyThreadState`.
    pub state: u64,
    /// Its `PyInterpreterState`.
    pub interpreter: u64,
}

/// Finds thread states.
#[derive(Debug)]
pub struct Threads {
    runtime: u64,
    id: IdField,
    known: HashMap<u32, ThreadAddress, FxBuildHasher>,
}

/// Where a thread's kernel id is.
#[derive(Clone, Copy, Debug)]
enum IdField {
    State(usize),
    /// In the C library's structure that the thread state points to.
    Structure {
        pointer: usize,
        id: usize,
    },
}

impl Threads {
    /// `None` when the lists are not what they should be.
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

    /// The thread state of a kernel thread.
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

    /// Whether the state is still in its list and still belongs to the thread: memory that was given back keeps its
    /// contents for a while, but nothing in the list points to it any more.
    fn still(&self, memory: &Memory, layout: &Layout, known: ThreadAddress, thread: u32) -> Result<bool, Unreadable> {
        let before = memory.u64(known.state.wrapping_add(layout.thread.previous as u64))?;
        let link = match before {
            0 => known.interpreter.wrapping_add(layout.interpreter.threads_head as u64),
            before => before.wrapping_add(layout.thread.next as u64),
        };
        Ok(memory.u64(link)? == known.state && self.id_of(memory, known)? == thread)
    }

    fn id_of(&self, memory: &Memory, thread: ThreadAddress) -> Result<u32, Unreadable> {
        match self.id {
            IdField::State(offset) => memory.u32(thread.state.wrapping_add(offset as u64)),
            IdField::Structure { pointer, id } => {
                let structure = memory.u64(thread.state.wrapping_add(pointer as u64))?;
                memory.u32(structure.wrapping_add(id as u64))
            }
        }
    }
}

/// All threads of all interpreters. A thread that names another interpreter than the one in whose list it is ends
/// the walk with an error: then this is no list of threads, or it changed just now.
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
