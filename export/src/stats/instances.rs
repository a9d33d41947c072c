//! Ranges of the program one by one, with the ranges around them.
//!
//! Pushed ranges of one thread and domain nest. Started ranges may overlap, so they nest in nothing, as nsys has it for
//! their levels; each is put into a lane in which it overlaps with no other. A range that ends on another thread than it
//! began on is left out, since nsys looks for launches on one thread only.
//!
//! All ranges are kept (some 60 bytes each), which is the one place in this crate where memory grows with the trace; beyond a
//! limit they are counted.

use profiler_core::record::{ApiCall, NameId, RangeEventKind, Record, ThreadId, Timestamp};
use profiler_core::trace::Item;
use rustc_hash::FxHashMap;

use super::{Input, Notes};
use crate::error::ExportError;
use crate::ranges::{OpenRanges, Range};
use crate::source::Passed;

/// Ranges that are kept, 250 MB of them.
const LIMIT: usize = 1 << 22;

/// A range from begin to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instance {
    pub begin: u64,
    pub end: u64,
    pub thread: ThreadId,
    pub domain: NameId,
    pub message: NameId,
    /// Started rather than pushed.
    pub started: bool,
    /// The range around it, by its place.
    pub parent: Option<u32>,
    /// How many are around it.
    pub level: u32,
    /// Ranges directly within it, and their time on the host.
    pub children: u32,
    pub children_ns: u64,
}

impl Instance {
    pub fn duration(&self) -> u64 {
        self.end - self.begin
    }
}

/// All ranges, in the order of their begins, those around others first.
#[derive(Debug, Default)]
pub(super) struct Instances {
    pub all: Vec<Instance>,
    /// For each thread its lanes: ranges by place, in order, that are within each other or apart.
    lanes: FxHashMap<ThreadId, Vec<Vec<u32>>>,
}

impl Instances {
    /// Reads the ranges of the trace.
    pub fn read(input: &mut Input<'_, '_>, notes: &mut Notes) -> Result<(Self, Passed), ExportError> {
        let mut open = OpenRanges::default();
        let mut all = Vec::new();
        let (mut last, mut beyond, mut elsewhere) = (Timestamp::ZERO, 0u64, 0u64);
        let mut take = |range: &Range| {
            if range.begin.thread != range.end_thread {
                elsewhere += 1;
            } else if all.len() >= LIMIT {
                beyond += 1;
            } else {
                all.push(Instance {
                    begin: range.begin.at.nanos(),
                    end: range.end.max(range.begin.at).nanos(),
                    thread: range.begin.thread,
                    domain: range.begin.domain,
                    message: range.begin.message,
                    started: range.begin.kind == RangeEventKind::Start,
                    parent: None,
                    level: 0,
                    children: 0,
                    children_ns: 0,
                });
            }
        };
        let passed = input.trace.pass(input.progress, |item, _| {
            match item {
                Item::Record(Record::Range(event)) => {
                    last = last.max(event.at);
                    open.take(event).iter().for_each(&mut take);
                }
                Item::Record(Record::Api(call)) => last = last.max(call.end),
                Item::Flush(at) | Item::End(_, at) => last = last.max(*at),
                _ => {}
            }
            Ok(())
        })?;
        open.finish(last).iter().for_each(&mut take);
        notes.0.extend(passed.notes());
        notes.0.extend(open.notes());
        notes.count(beyond, "ranges are left out: there are too many");
        notes.count(elsewhere, "ranges are left out because they ended on another thread");
        Ok((Self::new(all), passed))
    }

    fn new(mut all: Vec<Instance>) -> Self {
        all.sort_by_key(|range| (range.begin, std::cmp::Reverse(range.end)));
        let mut instances = Self { all, lanes: FxHashMap::default() };
        let mut stacks: FxHashMap<(ThreadId, NameId), (usize, Vec<u32>)> = FxHashMap::default();
        for place in 0..instances.all.len() {
            let range = instances.all[place];
            if range.started {
                instances.put_apart(place as u32);
                continue;
            }
            let lanes = instances.lanes.entry(range.thread).or_default();
            let (lane, stack) = stacks.entry((range.thread, range.domain)).or_insert_with(|| {
                lanes.push(Vec::new());
                (lanes.len() - 1, Vec::new())
            });
            lanes[*lane].push(place as u32);
            while stack.last().is_some_and(|&around| instances.all[around as usize].end < range.end) {
                stack.pop();
            }
            if let Some(&around) = stack.last() {
                let parent = &mut instances.all[around as usize];
                parent.children += 1;
                parent.children_ns += range.duration();
                instances.all[place].level = parent.level + 1;
                instances.all[place].parent = Some(around);
            }
            stack.push(place as u32);
        }
        instances
    }

    /// Puts a started range into the first lane of its thread that is free by then.
    fn put_apart(&mut self, place: u32) {
        let range = self.all[place as usize];
        let lanes = self.lanes.entry(range.thread).or_default();
        let is_free = |lane: &&mut Vec<u32>| {
            lane.last().is_some_and(|&last| {
                let last = &self.all[last as usize];
                last.started && last.end <= range.begin
            })
        };
        match lanes.iter_mut().find(is_free) {
            Some(lane) => lane.push(place),
            None => lanes.push(vec![place]),
        }
    }

    /// The ranges of the calling thread that hold the whole call, by place; of one domain the innermost first.
    pub fn around(&self, call: &ApiCall) -> impl Iterator<Item = u32> {
        let (begin, end) = (call.start.nanos(), call.end.nanos());
        self.lanes.get(&call.thread).into_iter().flatten().flat_map(move |lane| {
            let before = lane.partition_point(|&place| self.all[place as usize].begin <= begin);
            let mut next = before.checked_sub(1).map(|newest| lane[newest]);
            std::iter::from_fn(move || {
                let place = next?;
                next = self.all[place as usize].parent;
                Some(place)
            })
            .filter(move |&place| self.all[place as usize].end >= end)
        })
    }

    /// Numbers of the ranges around one and its own, `:1:2`, counted from 1 in the order of their begins.
    pub fn stack(&self, place: u32) -> String {
        let mut stack = String::new();
        let mut next = Some(place);
        while let Some(place) = next {
            stack.insert_str(0, &format!(":{}", place + 1));
            next = self.all[place as usize].parent;
        }
        stack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(begin: u64, end: u64, domain: u32, started: bool) -> Instance {
        let (thread, domain, message) = (ThreadId(1), NameId(domain), NameId(0));
        Instance { begin, end, thread, domain, message, started, parent: None, level: 0, children: 0, children_ns: 0 }
    }

    fn call(start: u64, end: u64) -> ApiCall {
        let at = Timestamp::from_nanos;
        ApiCall { start: at(start), end: at(end), thread: ThreadId(1), ..ApiCall::default() }
    }

    #[test]
    fn ranges_nest_within_their_domain() {
        let ranges = Instances::new(vec![
            range(20, 30, 0, false),
            range(10, 100, 0, false),
            range(40, 90, 0, false),
            range(45, 50, 0, false),
            range(15, 95, 7, false),
        ]);
        let begins: Vec<u64> = ranges.all.iter().map(|range| range.begin).collect();
        assert_eq!(begins, [10, 15, 20, 40, 45]);
        let levels: Vec<u32> = ranges.all.iter().map(|range| range.level).collect();
        assert_eq!(levels, [0, 0, 1, 1, 2]);
        assert_eq!((ranges.all[0].children, ranges.all[0].children_ns), (2, 10 + 50));
        assert_eq!(ranges.stack(4), ":1:4:5");
        let around = |start, end| {
            let mut found: Vec<u32> = ranges.around(&call(start, end)).collect();
            found.sort_unstable();
            found
        };
        assert_eq!(around(46, 47), [0, 1, 3, 4]);
        assert_eq!(around(46, 60), [0, 1, 3], "not within the innermost as a whole");
        assert_eq!(around(92, 93), [0, 1]);
        assert_eq!(around(5, 12), [0; 0]);
    }

    #[test]
    fn started_ranges_overlap_and_are_all_found() {
        let ranges = Instances::new(vec![
            range(10, 50, 0, true),
            range(20, 60, 0, true),
            range(55, 70, 0, true),
            range(5, 80, 0, false),
        ]);
        assert!(ranges.all.iter().all(|range| range.level == 0 && range.parent.is_none()));
        assert_eq!(ranges.around(&call(30, 31)).count(), 3);
        assert_eq!(ranges.around(&call(57, 58)).count(), 3);
        assert_eq!(ranges.around(&call(65, 66)).count(), 2);
    }
}
