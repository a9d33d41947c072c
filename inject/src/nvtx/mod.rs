//! The program's own ranges and marks, received from NVTX without CUPTI.
//!
//! CUPTI can record NVTX too, but only for tools that loaded the very libcupti that NVTX was pointed at; a
//! program that brings its own (as PyTorch does) yields none. So libprof.so is the library that NVTX loads
//! (`NVTX_INJECTION64_PATH`).
//!
//! Ranges go into the [`rings`](crate::rings); `autoload` makes NVTX find this library, on the thread that calls `cuInit`.
//!
//! Not recorded: names of CUDA objects and resources, payloads of the extension except those of NCCL
//! (`nccl::ranges`), `nvtxDomainDestroy`.

mod autoload;
pub mod message;
pub mod range_watch;
pub mod submissions;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpuwhy_trace::pytorch_range;
use gpuwhy_trace::record::{RangeEventKind, ThreadId};
use nvtx_sys::{Attributes, Domain, Handler, Message, RegisteredString, Text};

use crate::config::request::RangeName;
use crate::rings::table::RowTable;
use crate::rings::{stacks, writer};

pub use autoload::invite;

/// Names of domains; the handle of the first is 1. One table segment, whose last rows are never used.
static DOMAINS: RowTable<Box<str>, 1> = RowTable::new();
/// Registered strings; the handle of the first is 1. At most 64 Ki.
static STRINGS: RowTable<Box<str>, 64> = RowTable::new();
/// Names of categories, in the order of their definition; the last one for a number counts. At most 16 Ki.
pub static CATEGORIES: RowTable<Category, 16> = RowTable::new();

/// Names of threads, in the order of their definition; the last one for a thread counts. At most 1 Ki, the
/// limit of the dictionary.
pub static THREADS: RowTable<(ThreadId, Box<str>), 1> = RowTable::new();

/// Handle of the strings beyond the table's limit.
const FURTHER_STRING: u32 = u32::MAX;

#[derive(Debug)]
pub struct Category {
    pub domain: u32,
    pub number: u32,
    pub name: Box<str>,
}

/// Counter for the numbers of start/end ranges. `Relaxed`: they only have to differ.
static RANGES: AtomicU64 = AtomicU64::new(1);
/// Bits of a range's number that hold its domain: an end does not name its domain.
const DOMAIN_BITS: u32 = 10;

/// True if a copy of NVTX has loaded this library. `Relaxed`: only for a note in the report.
static ATTACHED: AtomicBool = AtomicBool::new(false);

/// Notes that a copy of NVTX has loaded this library.
pub fn attached() {
    ATTACHED.store(true, Ordering::Relaxed);
}

/// Handlers that NVTX calls.
#[derive(Debug)]
pub struct Ranges;

/// Return value if depths are not counted: `NVTX_NO_PUSH_POP_TRACKING`.
const NO_TRACKING: i32 = -2;
/// Return value of a pop without a push.
const NOTHING_TO_POP: i32 = -1;

impl Handler for Ranges {
    fn mark(domain: Domain, event: &Attributes<'_>) {
        writer::with(|writer| writer.begin(RangeEventKind::Mark, stacks::index(domain.0), 0, event));
    }

    fn push(domain: Domain, event: &Attributes<'_>) -> i32 {
        if range_watch::is_armed() {
            let domain = stacks::index(domain.0);
            range_watch::pushing(domain, |wanted| is_meant(wanted, domain, event));
        }
        let level = writer::with(|writer| writer.push(stacks::index(domain.0), event));
        level.map_or(NO_TRACKING, |level| i32::try_from(level).unwrap_or(i32::MAX))
    }

    fn pop(domain: Domain) -> i32 {
        let popped = writer::with(|writer| writer.pop(stacks::index(domain.0)));
        if range_watch::is_armed() {
            range_watch::popped(stacks::index(domain.0));
        }
        match popped {
            Some(Some(level)) => i32::try_from(level).unwrap_or(i32::MAX),
            Some(None) => NOTHING_TO_POP,
            None => NO_TRACKING,
        }
    }

    fn start(domain: Domain, event: &Attributes<'_>) -> u64 {
        let domain = stacks::index(domain.0);
        let range = RANGES.fetch_add(1, Ordering::Relaxed) << DOMAIN_BITS | u64::from(domain);
        if range_watch::is_armed() {
            range_watch::starting(range, |wanted| is_meant(wanted, domain, event));
        }
        let recorded = writer::with(|writer| writer.begin(RangeEventKind::Start, domain, range, event));
        if recorded != Some(true) {
            // The program gets no number with which to end it.
            range_watch::ended(range);
            return 0;
        }
        range
    }

    fn end(range: u64) {
        // 0 is the return value of a dropped start, and of NVTX without a tool.
        if range != 0 {
            let domain = u32::try_from(range & u64::from(stacks::DOMAINS)).unwrap_or(0);
            writer::with(|writer| writer.end(domain, range));
            if range_watch::is_armed() {
                range_watch::ended(range);
            }
        }
    }

    fn name_category(domain: Domain, category: u32, name: Text<'_>) {
        let name = name.to_string_lossy().into();
        // If the table is full, the number replaces the name.
        let _ = CATEGORIES.add(Category { domain: stacks::index(domain.0), number: category, name });
    }

    fn name_thread(thread: u32, name: Text<'_>) {
        // If the table is full, the thread keeps its number as its name.
        let _ = THREADS.add((ThreadId(thread), name.to_string_lossy().into()));
    }

    fn create_domain(name: Text<'_>) -> Domain {
        let name = name.to_string_lossy();
        // Copies of NVTX in different libraries request the same domain; a thread has one stack in it.
        let known = DOMAINS.from(0).position(|known| **known == *name);
        let at = known.or_else(|| DOMAINS.add(name.into())).and_then(|at| u32::try_from(at).ok());
        Domain(at.map_or(stacks::DOMAINS, |at| stacks::index(at + 1)))
    }

    fn register_string(text: Text<'_>) -> RegisteredString {
        let at = STRINGS.add(text.to_string_lossy().into()).and_then(|at| u32::try_from(at).ok());
        RegisteredString(at.map_or(FURTHER_STRING, |at| at + 1))
    }
}

/// True if a range is the one to capture: by its complete message, or without the numbers in it.
fn is_meant(wanted: &RangeName, domain: u32, event: &Attributes<'_>) -> bool {
    let domain = domain_name(domain);
    match event.message {
        Message::Text(text) => {
            let text = text.to_string_lossy();
            wanted.matches(&text, domain) || wanted.matches(&pytorch_range::split(&text).0, domain)
        }
        Message::Registered(string) => wanted.matches(registered_string(string.0), domain),
        Message::None => wanted.matches("", domain),
    }
}

/// Name of a domain by its number.
pub fn domain_name(number: u32) -> &'static str {
    match number {
        0 => "",
        stacks::DOMAINS => "<other domains>",
        // A number that was never assigned is another tool's handle.
        _ => DOMAINS.get(number as usize - 1).map_or("<other domains>", |name| name),
    }
}

/// Registered string by its number.
pub fn registered_string(number: u32) -> &'static str {
    if number == FURTHER_STRING {
        return message::FURTHER;
    }
    STRINGS.get((number as usize).wrapping_sub(1)).map_or("<unregistered>", |text| text)
}

const _: () = assert!(stacks::DOMAINS == (1 << DOMAIN_BITS) - 1);
