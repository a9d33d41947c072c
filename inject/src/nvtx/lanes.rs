//! A ring for each thread that says something, found without a lock.
//!
//! Rings hang in a chain that only grows; a thread takes the first that is free and leaves it at its end. So there are
//! as many as threads were at it at the same time, up to a limit, beyond which threads are not heard.
//!
//! A child of a fork begins a chain of its own and never reads that of its parent: the events in there are the
//! parent's to report, and whatever another thread was doing in there at the fork is never finished.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::nvtx::packed;
use crate::nvtx::ring::Ring;

/// Threads that can be heard at the same time: with full rings, 128 MiB.
pub const LANES: usize = 64;
/// Forks from fork to fork that are followed, each from a process that had not used CUDA.
const GENERATIONS: usize = 8;

/// Where nothing is recorded any more.
const INERT: u32 = u32::MAX;

/// The chain in use: forks since the library was loaded, or [`INERT`]. `Relaxed`: it says which chain, and what is in
/// the chain is published by the chain.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static CHAINS: [OnceLock<Box<ThreadRing>>; GENERATIONS] = [const { OnceLock::new() }; GENERATIONS];

/// A ring and its place in the chain.
#[derive(Debug)]
pub struct ThreadRing {
    /// What its threads said, one after the other.
    pub ring: Ring,
    /// Whether a thread writes here. `Acquire` when it comes and `Release` when it goes: the next one goes on where it
    /// stopped.
    taken: AtomicBool,
    next: OnceLock<Box<ThreadRing>>,
}

impl ThreadRing {
    /// For its thread, at its end.
    pub fn leave(&self) {
        self.taken.store(false, Ordering::Release);
    }
}

/// The chain that events go to now; `None` when they go nowhere.
pub fn generation() -> Option<u32> {
    Some(GENERATION.load(Ordering::Relaxed)).filter(|&generation| generation != INERT)
}

/// From now on nothing is recorded in this process.
pub fn stop() {
    GENERATION.store(INERT, Ordering::Relaxed);
}

/// For the child of a fork of a process that may still come to be measured.
pub fn forked() {
    let next = |generation| {
        let next = u32::saturating_add(generation, 1);
        Some(if (next as usize) < GENERATIONS { next } else { INERT })
    };
    let _ = GENERATION.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
}

/// A ring for this thread, or `None` when all are taken or full.
pub fn take(generation: u32, thread: u32) -> Option<&'static ThreadRing> {
    let mut link = CHAINS.get(generation as usize)?;
    for _ in 0..LANES {
        let lane = link.get_or_init(|| {
            Box::new(ThreadRing { ring: Ring::new(), taken: AtomicBool::new(false), next: OnceLock::new() })
        });
        if !lane.taken.swap(true, Ordering::Acquire) {
            if packed::write_thread(&lane.ring, thread) {
                return Some(lane);
            }
            lane.leave();
        }
        link = &lane.next;
    }
    None
}

/// All rings of a chain, in an order that does not change.
pub fn all(generation: u32) -> impl Iterator<Item = &'static ThreadRing> {
    let first = CHAINS.get(generation as usize).and_then(OnceLock::get);
    std::iter::successors(first, |lane| lane.next.get()).map(Box::as_ref)
}
