//! A ring for each thread with events, found without a lock.
//!
//! Rings form a chain that only grows; a thread takes the first free one and releases it at its end. So there
//! are as many as threads were active at the same time, up to a limit beyond which the events of a thread are
//! dropped.
//!
//! A child of a fork starts a separate chain and never reads that of its parent: the parent reports those
//! events, and an event that another thread was writing at the fork is never finished.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::rings::packed;
use crate::rings::ring::Ring;

/// Maximum number of threads at the same time: with full rings, 128 MiB.
pub const LANES: usize = 64;
/// Maximum depth of nested forks, each from a process that had not used CUDA.
const GENERATIONS: usize = 8;

/// Value for recording being stopped.
const INERT: u32 = u32::MAX;

/// Index of the current chain: forks since the library was loaded, or [`INERT`]. `Relaxed`: it only selects
/// the chain, and the chain publishes its contents.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static CHAINS: [OnceLock<Box<ThreadRing>>; GENERATIONS] = [const { OnceLock::new() }; GENERATIONS];

/// A ring and its link in the chain.
#[derive(Debug)]
pub struct ThreadRing {
    /// Events of its threads, one thread after the other.
    pub ring: Ring,
    next: OnceLock<Box<ThreadRing>>,
}

/// Index of the current chain; `None` once recording is stopped.
pub fn generation() -> Option<u32> {
    Some(GENERATION.load(Ordering::Relaxed)).filter(|&generation| generation != INERT)
}

/// Stops recording in this process.
pub fn stop() {
    GENERATION.store(INERT, Ordering::Relaxed);
}

/// Called in the child of a fork, if the child may still be measured.
pub fn forked() {
    let next = |generation| {
        let next = u32::saturating_add(generation, 1);
        Some(if (next as usize) < GENERATIONS { next } else { INERT })
    };
    let _ = GENERATION.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
}

/// Takes a ring for this thread; `None` if all are taken or full.
pub fn take(generation: u32, thread: u32) -> Option<&'static ThreadRing> {
    let mut link = CHAINS.get(generation as usize)?;
    for _ in 0..LANES {
        let lane = link.get_or_init(|| Box::new(ThreadRing { ring: Ring::new(), next: OnceLock::new() }));
        if lane.ring.take() {
            if packed::write_thread(&lane.ring, thread) {
                return Some(lane);
            }
            lane.ring.leave();
        }
        link = &lane.next;
    }
    None
}

/// All rings of a chain, in a constant order.
pub fn all(generation: u32) -> impl Iterator<Item = &'static ThreadRing> {
    let first = CHAINS.get(generation as usize).and_then(OnceLock::get);
    std::iter::successors(first, |lane| lane.next.get()).map(Box::as_ref)
}
