//! Individual ranges of the program, with the ranges around them.
//!
//! Pushed ranges of one thread and domain nest; started ranges may overlap. Each range is put into a lane of
//! its thread in which ranges are either nested or disjoint, so that the ranges around a call are found
//! quickly. As in nsys's reports, the parent of a range is the range of the same thread that encloses it most
//! tightly, regardless of domain and kind. A range that starts and ends on different threads is left out,
//! because nsys searches launches on one thread only.
//!
//! All ranges are kept (some 60 bytes each). This is the only place in this crate where memory grows with the
//! trace; ranges beyond a limit are only counted.

use std::collections::VecDeque;

use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{ApiCall, NameId, RangeEventKind, Record, ThreadId, Timestamp};
use rustc_hash::FxHashMap;

use crate::error::ExportError;
use crate::ranges::{ClosedRange, OpenRanges};
use gpuwhy_import::{Passed, Progress, TraceFile};

/// Maximum number of ranges, 250 MB.
const LIMIT: usize = 1 << 22;

/// Maximum number of open ranges of one thread that can be parents; beyond it, the oldest are not considered.
const OPEN: usize = 1 << 10;

/// Maximum number of enclosing ranges shown; a program that forgets to pop nests deeper.
const SHOWN: usize = 128;

/// A range with its start and end.
#[derive(Clone, Copy, Debug)]
pub struct Instance {
    pub begin: u64,
    pub end: u64,
    pub thread: ThreadId,
    pub domain: NameId,
    pub message: NameId,
    /// True if the range was started rather than pushed.
    pub started: bool,
    /// Index of the range that encloses it most tightly.
    pub parent: Option<u32>,
    /// Number of ancestors.
    pub level: u32,
    /// Index of the enclosing range in the same lane.
    within: Option<u32>,
}

impl Instance {
    pub fn duration(&self) -> u64 {
        self.end - self.begin
    }
}

/// All ranges by start time; enclosing ranges precede enclosed ones.
#[derive(Debug, Default)]
pub struct Instances {
    pub all: Vec<Instance>,
    /// Lanes of each thread: indices of ranges, in order, that are either nested or disjoint.
    lanes: FxHashMap<ThreadId, Vec<Vec<u32>>>,
    /// Number of ranges enclosed by too many others of their lane; not all of these are considered.
    too_deep: u64,
}

impl Instances {
    /// Reads the ranges selected by `wanted` from the trace.
    pub fn read(
        trace: &TraceFile,
        wanted: Wanted,
        progress: &mut Progress<'_>,
        notes: &mut Vec<String>,
    ) -> Result<(Self, Passed), ExportError> {
        let mut open = OpenRanges::default();
        let mut all = Vec::new();
        let (mut last, mut beyond, mut elsewhere) = (Timestamp::ZERO, 0u64, 0u64);
        let mut take = |range: &ClosedRange| {
            let started = range.begin.kind == RangeEventKind::Start;
            if started && wanted == Wanted::Pushed {
                return;
            }
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
                    started,
                    parent: None,
                    level: 0,
                    within: None,
                });
            }
        };
        let passed = trace.pass(progress, |event, _| {
            match event {
                Event::Record(Record::Range(event)) => {
                    last = last.max(event.at);
                    open.take(event).iter().for_each(&mut take);
                }
                Event::Record(Record::Api(call)) => last = last.max(call.end),
                Event::Flush(at) | Event::End(_, at) => last = last.max(*at),
                _ => {}
            }
            Ok::<_, ExportError>(())
        })?;
        open.finish(last).iter().for_each(&mut take);
        notes.extend(open.notes());
        let (instances, unseen) = Self::new(all);
        let counts = [
            (beyond, "ranges are left out: there are too many"),
            (elsewhere, "ranges are left out because they ended on another thread"),
            (instances.too_deep, "ranges lie in more than 1024 of their thread and domain: the innermost count"),
            (unseen, "ranges could not be parents of others: there were too many open ones"),
        ];
        notes.extend(counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
        Ok((instances, passed))
    }

    /// Also returns the number of open ranges that were not considered as parents.
    fn new(mut all: Vec<Instance>) -> (Self, u64) {
        all.sort_by_key(|range| (range.begin, std::cmp::Reverse(range.end)));
        let unseen = nest(&mut all);
        let mut instances = Self { all, lanes: FxHashMap::default(), too_deep: 0 };
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
            instances.all[place].within = stack.last().copied();
            stack.push(place as u32);
            instances.too_deep += u64::from(stack.len() > OPEN);
        }
        (instances, unseen)
    }

    /// Adds a started range to the first lane of its thread that is free at its start.
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

    /// Indices of the calling thread's ranges that enclose the entire call; within one domain, innermost
    /// first.
    pub fn around(&self, call: &ApiCall) -> impl Iterator<Item = u32> {
        let (begin, end) = (call.start.nanos(), call.end.nanos());
        self.lanes.get(&call.thread).into_iter().flatten().flat_map(move |lane| {
            let before = lane.partition_point(|&place| self.all[place as usize].begin <= begin);
            let mut next = before.checked_sub(1).map(|newest| lane[newest]);
            std::iter::from_fn(move || {
                let place = next?;
                next = self.all[place as usize].within;
                Some(place)
            })
            .take(OPEN)
            .filter(move |&place| self.all[place as usize].end >= end)
        })
    }

    /// One-based numbers of a range and those around it, `:1:2`, in the order of their start times. Beyond
    /// [`SHOWN`], only the innermost: `:...:2000:2001`.
    pub fn stack(&self, place: u32) -> String {
        let parent = |&place: &u32| self.all[place as usize].parent;
        let chain: Vec<u32> = std::iter::successors(Some(place), parent).take(SHOWN + 1).collect();
        let cut = if chain.len() > SHOWN { ":..." } else { "" };
        let shown = chain.iter().take(SHOWN).rev();
        shown.fold(cut.to_owned(), |stack, place| format!("{stack}:{}", place + 1))
    }
}

/// Selection of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Pushed and started ranges.
    All,
    /// Pushed ranges.
    Pushed,
}

/// Sets the parent and level of each range; enclosing ranges must precede enclosed ones. Returns the number
/// of open ranges that were not considered.
fn nest(all: &mut [Instance]) -> u64 {
    let mut open: FxHashMap<ThreadId, VecDeque<u32>> = FxHashMap::default();
    let mut unseen = 0;
    for place in 0..all.len() {
        let range = all[place];
        let open = open.entry(range.thread).or_default();
        open.retain(|&other| all[other as usize].end >= range.begin);
        let spare = |other: u32| {
            let other = &all[other as usize];
            other.end.checked_sub(range.end).map(|behind| range.begin - other.begin + behind)
        };
        let holding = open.iter().filter_map(|&other| Some((spare(other)?, other)));
        // Among equally tight ones, the newest.
        let parent = holding.min_by_key(|&(spare, other)| (spare, std::cmp::Reverse(other))).map(|(_, other)| other);
        all[place].level = parent.map_or(0, |parent| all[parent as usize].level + 1);
        all[place].parent = parent;
        open.push_back(place as u32);
        if open.len() > OPEN {
            open.pop_front();
            unseen += 1;
        }
    }
    unseen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(begin: u64, end: u64, domain: u32, started: bool) -> Instance {
        let (thread, domain, message) = (ThreadId(1), NameId(domain), NameId(0));
        Instance { begin, end, thread, domain, message, started, parent: None, level: 0, within: None }
    }

    fn call(start: u64, end: u64) -> ApiCall {
        let at = Timestamp::from_nanos;
        ApiCall { start: at(start), end: at(end), thread: ThreadId(1), ..ApiCall::default() }
    }

    #[test]
    fn ranges_nest_in_whatever_holds_them_most_tightly() {
        let (ranges, unseen) = Instances::new(vec![
            range(20, 30, 0, false),
            range(10, 100, 0, false),
            range(40, 90, 0, false),
            range(45, 50, 0, false),
            range(15, 95, 7, false),
        ]);
        let begins: Vec<u64> = ranges.all.iter().map(|range| range.begin).collect();
        assert_eq!(begins, [10, 15, 20, 40, 45]);
        let levels: Vec<u32> = ranges.all.iter().map(|range| range.level).collect();
        assert_eq!((levels, unseen), (vec![0, 1, 2, 2, 3], 0));
        assert_eq!(ranges.stack(4), ":1:2:4:5", "through another domain");
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
    fn what_never_ends_costs_no_square() {
        const DEPTH: u64 = 20_000;
        let (ranges, _) = Instances::new((0..DEPTH).map(|begin| range(begin, DEPTH, 0, false)).collect());
        assert_eq!(ranges.all[DEPTH as usize - 1].level, DEPTH as u32 - 1);
        assert_eq!(ranges.stack(127).matches(':').count(), 128);
        assert!(ranges.stack(DEPTH as u32 - 1).starts_with(":...:19873:") && ranges.stack(128).starts_with(":...:2:"));
        assert!((0..DEPTH as u32).map(|place| ranges.stack(place).len()).max().unwrap() < 2_000);
        assert_eq!(ranges.around(&call(DEPTH, DEPTH)).count(), OPEN);
        assert_eq!(ranges.too_deep, DEPTH - OPEN as u64);
    }

    #[test]
    fn started_ranges_overlap_and_are_all_found() {
        let (ranges, _) = Instances::new(vec![
            range(10, 50, 0, true),
            range(20, 60, 0, true),
            range(55, 70, 0, true),
            range(5, 80, 0, false),
        ]);
        let parents: Vec<_> = ranges.all.iter().map(|range| range.parent).collect();
        assert_eq!(parents, [None, Some(0), Some(0), Some(0)], "those that overlap hold each other not");
        assert_eq!(ranges.around(&call(30, 31)).count(), 3);
        assert_eq!(ranges.around(&call(57, 58)).count(), 3);
        assert_eq!(ranges.around(&call(65, 66)).count(), 2);
    }
}
