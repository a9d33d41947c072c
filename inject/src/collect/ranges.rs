//! The collector's side: converts the events of all threads to records, in order of time.
//!
//! All rings are read up to the same time, which is before the call. A range can end on another thread, whose
//! ring may be read before the ring with the start. Because the start is in its ring before the end happens,
//! the common limit yields both events or only the start, never the end alone. That holds on Arm too: what the
//! thread of the end has seen is seen by all threads from then on, and the end's clock is read after that.

use std::collections::HashMap;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::pytorch_range;
use gpuwhy_trace::record::{NameId, Payload, RangeEvent, RangeEventKind, ThreadId, ThreadName, Timestamp};
use rustc_hash::FxBuildHasher;

use crate::nccl::{self, Operations};
use crate::nvtx::message::Names;
use crate::nvtx::{CATEGORIES, Category, THREADS, domain_name, registered_string};
use crate::rings::lanes;
use crate::rings::nccl::ReadEvent;
use crate::rings::packed::{self, Next, Packed};

/// Number of range names kept for the message that no capture began.
const FIRST: usize = 8;

/// Empties the rings. One per process, since a ring has one reader.
#[derive(Debug, Default)]
pub struct RangeDrain {
    /// Thread of the next events in each ring.
    threads: Vec<u32>,
    names: Names,
    /// Names of categories by domain and number.
    categories: HashMap<(u32, u32), NameId, FxBuildHasher>,
    /// Number of rows read from the tables of categories and threads.
    categories_seen: usize,
    threads_seen: usize,
    /// Domain and name of the first distinct ranges.
    first: Vec<(NameId, NameId)>,
    batch: Vec<RangeEvent>,
    /// Operations of NCCL.
    pub operations: Operations,
    text: Vec<u8>,
}

impl RangeDrain {
    /// Returns every event before `until`, the earliest first.
    pub fn events(&mut self, until: Timestamp, dictionary: &mut Dictionary) -> std::vec::Drain<'_, RangeEvent> {
        if let Some(generation) = lanes::generation() {
            self.learn_categories(dictionary);
            self.learn_threads(dictionary);
            self.operations.learn(dictionary);
            for (at, ring) in lanes::all(generation).enumerate() {
                self.ring(at, ring, until, dictionary);
            }
        }
        // Stable: events of one thread at the same nanosecond keep their order.
        self.batch.sort_by_key(|event| event.at);
        self.batch.drain(..)
    }

    fn ring(&mut self, index: usize, ring: &lanes::ThreadRing, until: Timestamp, dictionary: &mut Dictionary) {
        if self.threads.len() <= index {
            self.threads.resize(index + 1, 0);
        }
        let readable = ring.ring.readable();
        let mut at = readable.start;
        while at < readable.end && packed::time(&ring.ring, at).is_none_or(|time| time < until) {
            match packed::read(&ring.ring, &mut at, &mut self.text) {
                Next::Thread(thread) => self.threads[index] = thread,
                Next::Event(event) => {
                    let event = self.event(self.threads[index], &event, dictionary);
                    self.batch.push(event);
                }
                Next::Nccl => match ReadEvent::read(&ring.ring, &mut at) {
                    Some(event) => self.operations.take(index, self.threads[index], &event),
                    // Its length is unknown, so the rest of the ring is discarded.
                    None => at = readable.end,
                },
            }
        }
        ring.ring.release(at);
    }

    fn event(&mut self, thread: u32, event: &Packed, dictionary: &mut Dictionary) -> RangeEvent {
        let none = dictionary.intern_name("");
        let mut payload = match event.payload {
            // The layout is known only for the domain of NCCL, which is handled below.
            nvtx_sys::Payload::None | nvtx_sys::Payload::Extended(_) => Payload::None,
            nvtx_sys::Payload::Unsigned(value) => Payload::Unsigned(value),
            nvtx_sys::Payload::Signed(value) => Payload::Signed(value),
            nvtx_sys::Payload::Float(value) => Payload::Float(value),
        };
        let has_text = !matches!(event.kind, RangeEventKind::Pop | RangeEventKind::End);
        let message = if event.registered != 0 {
            self.names.intern(registered_string(event.registered), dictionary)
        } else if has_text {
            let text = String::from_utf8_lossy(&self.text);
            let (name, number) = pytorch_range::split(&text);
            if let (Payload::None, Some(number)) = (payload, number) {
                payload = Payload::Unsigned(number);
            }
            self.names.intern(&name, dictionary)
        } else {
            none
        };
        let category = match event.category {
            0 => none,
            number => self.categories.get(&(event.domain, number)).copied().unwrap_or_else(|| {
                let name = number.to_string();
                self.names.intern(&name, dictionary)
            }),
        };
        if domain_name(event.domain) == nccl::ranges::DOMAIN {
            let payload = if let nvtx_sys::Payload::Extended(of) = &event.payload { Some(of) } else { None };
            self.operations.range(thread, (event.kind, event.at), dictionary.name(message), payload);
        }
        let domain = dictionary.intern_name(domain_name(event.domain));
        if matches!(event.kind, RangeEventKind::Push | RangeEventKind::Start) {
            self.remember(domain, message);
        }
        RangeEvent {
            at: event.at,
            thread: ThreadId(thread),
            kind: event.kind,
            domain,
            message,
            category,
            color: event.color,
            range_id: event.range,
            payload,
        }
    }

    fn remember(&mut self, domain: NameId, name: NameId) {
        if self.first.len() < FIRST && !self.first.contains(&(domain, name)) {
            self.first.push((domain, name));
        }
    }

    /// First few ranges that the program has opened, as a user would name them.
    pub fn opened(&self, dictionary: &Dictionary) -> Vec<String> {
        let names = self.first.iter().map(|&(domain, name)| match (dictionary.name(name), dictionary.name(domain)) {
            (name, "") => name.to_owned(),
            (name, domain) => format!("{name}@{domain}"),
        });
        names.collect()
    }

    fn learn_threads(&mut self, dictionary: &mut Dictionary) {
        for (thread, name) in THREADS.from(self.threads_seen) {
            self.threads_seen += 1;
            let name = self.names.intern(name, dictionary);
            dictionary.add_thread_name(ThreadName { thread: *thread, name });
        }
    }

    fn learn_categories(&mut self, dictionary: &mut Dictionary) {
        for Category { domain, number, name } in CATEGORIES.from(self.categories_seen) {
            self.categories_seen += 1;
            self.categories.insert((*domain, *number), self.names.intern(name, dictionary));
        }
    }
}
