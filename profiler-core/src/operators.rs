//! Time of a framework's operators: on the host with and without the operators inside, and of the device work that
//! they launch.
//!
//! Sums are kept for each path of operators, so memory does not grow with the run. Device work is added to the
//! innermost operator at its launch, and to the enclosing ones at the end. The definitions are those of PyTorch's
//! `key_averages()` (`torch/autograd/profiler_util.py`): the own host time of an operator leaves out operators and
//! CUDA calls directly in it; a name that is open twice counts in both, unless the inner one is all that the outer one
//! contains: then they are one call (`_remove_dup_nodes` there). This is known when the outer one goes on: device work
//! of an inner operator that was taken for all stays with the outer one.
//!
//! An operator of the backward pass is in the place of the operator that made its node of the graph: both have the
//! same sequence number, which autograd counts in each thread. Several operators begin with the number of the next
//! node; the last one of them makes it.

use std::collections::VecDeque;
use std::hash::Hash;

use gpuwhy_trace::record::{CorrelationId, ThreadId};
use rustc_hash::FxHashMap;

/// Maximum number of paths, some 130 bytes each with its index.
const PATH_LIMIT: usize = 131_072;
/// Launches whose device work is expected, and forward operators whose backward ones are, up to 80 bytes each: a stream
/// holds about a thousand launches.
const RECENT_LIMIT: usize = 131_072;
/// Open spans of a thread beyond which ends must be missing.
const DEPTH_LIMIT: usize = 4_096;
/// The path of what has no enclosing path, or no own one.
const NONE: u32 = u32::MAX;

/// What begins on a thread. The numbers are the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Span {
    /// An operator: numbers of its name, and of what else tells rows apart, such as the shapes of its inputs.
    Operator {
        /// Number of the name.
        name: u32,
        /// Number of the shapes.
        shapes: u32,
    },
    /// A module or a function around operators, 0 if it does not matter which: has no time of its own.
    Around(u32),
}

/// Sequence number of autograd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// Of an operator that makes the next node of the graph, or calls one that does.
    Forward(u64),
    /// Of the node that an operator runs, with the thread of the operator that made the node, if known.
    Backward(Option<ThreadId>, u64),
}

/// Sums of one path.
#[derive(Clone, Copy, Debug)]
pub struct OperatorPath {
    /// The innermost span.
    pub span: Span,
    /// The innermost `Around` on it; 0 if there is none.
    pub place: u32,
    /// Calls that ended.
    pub calls: u64,
    /// Their time on the host, nanoseconds.
    pub host_ns: u64,
    /// The part of it outside operators and CUDA calls directly inside.
    pub own_host_ns: u64,
    /// Floating point operations of the calls; `None` if unknown.
    pub flops: Option<u64>,
    /// Time of the device work launched directly in it, nanoseconds.
    pub own_device_ns: u64,
    /// The same with all that is inside, once it is [finished](OperatorPaths::finish).
    pub device_ns: u64,
    /// Device memory allocated, less what was freed, bytes; once finished with all that is inside.
    pub memory_bytes: i64,
    /// Flags of this device work, given with each; once finished with all that is inside.
    pub flags: u8,
    parent: u32,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    path: u32,
    span: Span,
    flops: Option<u64>,
    start: u64,
    /// Known end, or `u64::MAX`.
    end: u64,
    inside_ns: u64,
    /// True if something is directly inside.
    has_child: bool,
    /// True if it is one call with the enclosing one.
    is_merged: bool,
    /// The only operator inside, which is merged.
    merged: Option<Ended>,
}

/// A call that ended: its time, and its own time.
#[derive(Clone, Copy, Debug)]
struct Ended {
    span: Span,
    flops: Option<u64>,
    took: u64,
    own: u64,
}

#[derive(Debug, Default)]
struct Thread {
    open: Vec<Open>,
    /// Start and end of its last CUDA call that is not inside another one.
    call: (u64, u64),
    /// Of the operator that begins next.
    sequence: Option<Sequence>,
    /// Of its last operator of the backward pass that could not be joined.
    unjoined: Option<Sequence>,
}

/// The newest keys, with their values.
#[derive(Debug)]
struct Recent<K, V> {
    known: FxHashMap<K, V>,
    in_order: VecDeque<K>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { known: FxHashMap::default(), in_order: VecDeque::new() }
    }
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    fn insert(&mut self, key: K, value: V) {
        if self.known.insert(key, value).is_none() {
            self.in_order.push_back(key);
            if self.in_order.len() > RECENT_LIMIT
                && let Some(oldest) = self.in_order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
    }
}

/// Operators of a process. Events of a thread come in the order of their starts; device work comes after its launch.
#[derive(Debug, Default)]
pub struct OperatorPaths {
    paths: Vec<OperatorPath>,
    known: FxHashMap<(u32, Span), u32>,
    threads: FxHashMap<ThreadId, Thread>,
    launches: Recent<CorrelationId, u32>,
    /// Place of the operator that made a node, by its thread and sequence number.
    forward: Recent<(ThreadId, u64), u32>,
    beyond: u64,
    unjoined: u64,
}

impl OperatorPaths {
    /// `span` begins, with this number of floating point operations, if known. Its `end` is `u64::MAX` if
    /// [`end`](Self::end) will tell it; otherwise spans that it is not within end here.
    pub fn begin(&mut self, thread: ThreadId, (start, mut end): (u64, u64), span: Span, flops: Option<u64>) {
        self.ended(thread, start);
        let of = self.threads.entry(thread).or_default();
        if of.open.len() >= DEPTH_LIMIT {
            of.open.clear();
        }
        while let Some(open) = self.innermost(thread).filter(|open| end != u64::MAX && end > open.end) {
            // Functions are recorded by another clock than the operators around them.
            if matches!((span, open.span), (Span::Around(_), Span::Operator { .. })) {
                end = open.end;
            } else {
                self.end(thread, open.end);
            }
        }
        let around = self.innermost(thread);
        let is_merged = around.is_some_and(|around| !around.has_child && is_of_name(around.span, span));
        if matches!(span, Span::Operator { .. }) {
            self.has_child(thread);
            // What is one call with the enclosing one is also in its place.
            if let Some(place) = self.place_of_forward(thread).filter(|_| !is_merged) {
                self.open(thread, (start, end), Span::Around(place), None, false);
            }
        }
        self.open(thread, (start, end), span, flops, is_merged);
    }

    fn open(&mut self, thread: ThreadId, (start, end): (u64, u64), span: Span, flops: Option<u64>, is_merged: bool) {
        let parent = self.innermost(thread).map_or(NONE, |open| open.path);
        let path = if is_merged { parent } else { self.path(parent, span) };
        self.threads.entry(thread).or_default().open.push(Open {
            path,
            span,
            flops,
            start,
            end,
            inside_ns: 0,
            has_child: false,
            is_merged,
            merged: None,
        });
    }

    /// The operator of the thread that begins next has this number. Its end must be known at its start.
    pub fn sequence(&mut self, thread: ThreadId, sequence: Sequence) {
        self.threads.entry(thread).or_default().sequence = Some(sequence);
    }

    /// Takes the sequence number of the operator that begins. Returns the place of its forward one, if it differs.
    fn place_of_forward(&mut self, thread: ThreadId) -> Option<u32> {
        let sequence = self.threads.get_mut(&thread)?.sequence.take()?;
        let path = self.innermost(thread).and_then(|open| self.paths.get(open.path as usize));
        let here = path.map_or(0, |path| path.place);
        match sequence {
            Sequence::Forward(number) => {
                self.forward.insert((thread, number), here);
                None
            }
            Sequence::Backward(of, number) => {
                let place = of.and_then(|of| self.forward.known.get(&(of, number)).copied());
                if place.is_none() {
                    // A node is two operators: that of the engine, and its function in it.
                    let last = self.threads.get_mut(&thread)?.unjoined.replace(sequence);
                    self.unjoined += u64::from(last != Some(sequence));
                }
                place.filter(|&place| place != here)
            }
        }
    }

    /// The innermost span of the thread ends.
    pub fn end(&mut self, thread: ThreadId, at: u64) {
        let Some(of) = self.threads.get_mut(&thread) else { return };
        let Some(Open { path, span, flops, start, inside_ns, is_merged, .. }) = of.open.pop() else { return };
        let took = match span {
            Span::Operator { .. } => at.saturating_sub(start),
            Span::Around(_) => inside_ns,
        };
        let ended = Ended { span, flops, took, own: took.saturating_sub(inside_ns) };
        if let Some(around) = of.open.last_mut() {
            let inside_ns = if is_merged { took - ended.own } else { took };
            around.inside_ns = around.inside_ns.saturating_add(inside_ns);
            around.merged = if is_merged { Some(ended) } else { around.merged };
        }
        if !is_merged {
            self.count(path, &ended);
        }
    }

    /// Counts a call, unless the path is that of an enclosing span, because there are too many.
    fn count(&mut self, path: u32, ended: &Ended) {
        if let Some(path) = self.paths.get_mut(path as usize).filter(|path| path.span == ended.span) {
            path.calls += 1;
            path.host_ns = path.host_ns.saturating_add(ended.took);
            path.own_host_ns = path.own_host_ns.saturating_add(ended.own);
            path.flops = [path.flops, ended.flops].into_iter().flatten().reduce(u64::saturating_add);
        }
    }

    /// A CUDA call from `start` to `end`. Of calls inside each other the outer one may come last.
    pub fn call(&mut self, thread: ThreadId, (start, end): (u64, u64), correlation: CorrelationId) {
        self.ended(thread, start);
        self.has_child(thread);
        let Some(of) = self.threads.get_mut(&thread) else { return };
        let Some(open) = of.open.last_mut() else { return };
        let (last_start, last_end) = of.call;
        let is_outer = start <= last_start && end >= last_end;
        if start >= last_end || is_outer {
            let counted = if start >= last_end { 0 } else { last_end.saturating_sub(last_start) };
            let more = end.saturating_sub(start).saturating_sub(counted);
            open.inside_ns = open.inside_ns.saturating_add(more);
            of.call = (start, end);
        }
        if open.path != NONE {
            self.launches.insert(correlation, open.path);
        }
    }

    /// Device memory was allocated, or freed if `bytes` is negative.
    pub fn memory(&mut self, thread: ThreadId, at: u64, bytes: i64) {
        self.ended(thread, at);
        let path = self.innermost(thread).and_then(|open| self.paths.get_mut(open.path as usize));
        if let Some(path) = path {
            path.memory_bytes = path.memory_bytes.saturating_add(bytes);
        }
    }

    /// Something else is inside the innermost span: a merged one becomes a call of its own.
    fn has_child(&mut self, thread: ThreadId) {
        let Some(open) = self.threads.get_mut(&thread).and_then(|of| of.open.last_mut()) else { return };
        open.has_child = true;
        let parent = open.path;
        if let Some(ended) = open.merged.take() {
            open.inside_ns = open.inside_ns.saturating_add(ended.own);
            let path = self.path(parent, ended.span);
            self.count(path, &ended);
        }
    }

    fn innermost(&self, thread: ThreadId) -> Option<Open> {
        self.threads.get(&thread)?.open.last().copied()
    }

    /// Ends the spans whose known end is not after `at`.
    fn ended(&mut self, thread: ThreadId, at: u64) {
        while let Some(open) = self.innermost(thread).filter(|open| open.end <= at) {
            self.end(thread, open.end);
        }
    }

    fn path(&mut self, parent: u32, span: Span) -> u32 {
        if let Some(&path) = self.known.get(&(parent, span)) {
            return path;
        }
        if self.paths.len() >= PATH_LIMIT {
            self.beyond += 1;
            return parent;
        }
        let path = self.paths.len() as u32;
        let place = match span {
            Span::Around(place) => place,
            Span::Operator { .. } => self.paths.get(parent as usize).map_or(0, |parent| parent.place),
        };
        self.known.insert((parent, span), path);
        self.paths.push(OperatorPath {
            span,
            place,
            calls: 0,
            host_ns: 0,
            own_host_ns: 0,
            flops: None,
            own_device_ns: 0,
            device_ns: 0,
            memory_bytes: 0,
            flags: 0,
            parent,
        });
        path
    }

    /// Device work that this call launched. False if the call was outside all operators, or is forgotten.
    pub fn work(&mut self, correlation: CorrelationId, nanos: u64, flags: u8) -> bool {
        let Some(&path) = self.launches.known.get(&correlation) else { return false };
        let path = &mut self.paths[path as usize];
        path.own_device_ns = path.own_device_ns.saturating_add(nanos);
        path.device_ns = path.own_device_ns;
        path.flags |= flags;
        true
    }

    /// Calls without a path of their own, because there are too many.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Nodes of the backward pass whose forward operator is unknown.
    pub fn unjoined(&self) -> u64 {
        self.unjoined
    }

    /// Ends all spans whose end is known, and adds what is inside to the enclosing paths. Returns all paths, the
    /// enclosing ones first.
    #[must_use]
    pub fn finish(mut self) -> Vec<OperatorPath> {
        let threads: Vec<ThreadId> = self.threads.keys().copied().collect();
        threads.into_iter().for_each(|thread| self.ended(thread, u64::MAX - 1));
        for at in (0..self.paths.len()).rev() {
            let OperatorPath { parent, device_ns, memory_bytes, flags, .. } = self.paths[at];
            if let Some(parent) = self.paths.get_mut(parent as usize) {
                parent.device_ns = parent.device_ns.saturating_add(device_ns);
                parent.memory_bytes = parent.memory_bytes.saturating_add(memory_bytes);
                parent.flags |= flags;
            }
        }
        self.paths
    }
}

fn is_of_name(a: Span, b: Span) -> bool {
    matches!((a, b), (Span::Operator { name: a, .. }, Span::Operator { name: b, .. }) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: ThreadId = ThreadId(1);

    fn operator(name: u32) -> Span {
        Span::Operator { name, shapes: 0 }
    }

    /// Name, calls, host time, own host time, device time, own device time by path.
    fn rows(paths: &[OperatorPath]) -> Vec<(u32, [u64; 5])> {
        let row = |path: &OperatorPath| {
            let Span::Operator { name, .. } = path.span else { return None };
            Some((name, [path.calls, path.host_ns, path.own_host_ns, path.device_ns, path.own_device_ns]))
        };
        paths.iter().filter_map(row).collect()
    }

    #[test]
    fn own_times_leave_out_operators_and_calls_inside() {
        let mut paths = OperatorPaths::default();
        paths.begin(THREAD, (0, u64::MAX), operator(1), None);
        paths.begin(THREAD, (10, u64::MAX), operator(2), None);
        // The outer call is recorded after the one in it.
        paths.call(THREAD, (14, 16), CorrelationId(5));
        paths.call(THREAD, (12, 20), CorrelationId(5));
        paths.end(THREAD, 30);
        paths.call(THREAD, (40, 45), CorrelationId(6));
        paths.end(THREAD, 100);
        assert!(paths.work(CorrelationId(5), 1_000, 1));
        assert!(paths.work(CorrelationId(6), 300, 4));
        assert!(!paths.work(CorrelationId(7), 1, 0));
        let paths = paths.finish();
        assert_eq!(rows(&paths), [(1, [1, 100, 75, 1_300, 300]), (2, [1, 20, 12, 1_000, 1_000])]);
        let flags: Vec<u8> = paths.iter().map(|path| path.flags).collect();
        assert_eq!(flags, [5, 1]);
    }

    #[test]
    fn spans_with_known_ends_close_each_other() {
        let mut paths = OperatorPaths::default();
        paths.begin(THREAD, (0, 50), operator(1), None);
        paths.begin(THREAD, (0, 20), Span::Around(7), None);
        paths.begin(THREAD, (5, 15), operator(2), None);
        paths.memory(THREAD, 6, 512);
        // Not within the first one, so beside it.
        paths.begin(THREAD, (40, 60), operator(3), None);
        paths.memory(THREAD, 60, 1);
        let paths = paths.finish();
        assert_eq!(
            rows(&paths),
            [(1, [1, 50, 40, 0, 0]), (2, [1, 10, 10, 0, 0]), (3, [1, 20, 20, 0, 0])],
            "what is around has no time of its own"
        );
        let places: Vec<_> = paths.iter().map(|path| (path.place, path.memory_bytes)).collect();
        assert_eq!(places, [(0, 512), (7, 512), (7, 512), (0, 0)]);
    }

    #[test]
    fn an_operator_that_only_calls_one_of_its_name_is_one_call_with_it() {
        let mut paths = OperatorPaths::default();
        for (end_of_inner, more) in [(90, false), (80, true)] {
            paths.begin(THREAD, (0, u64::MAX), operator(1), None);
            paths.begin(THREAD, (10, u64::MAX), Span::Operator { name: 1, shapes: 9 }, None);
            paths.begin(THREAD, (20, u64::MAX), operator(2), None);
            paths.end(THREAD, 50);
            paths.end(THREAD, end_of_inner);
            if more {
                paths.call(THREAD, (85, 95), CorrelationId(1));
            }
            paths.end(THREAD, 100);
        }
        // Own time is 100 less the 30 of the operator inside; then less the 70 of the inner one and the 10 of the call.
        assert_eq!(rows(&paths.finish()), [(1, [2, 200, 90, 0, 0]), (2, [2, 60, 60, 0, 0]), (1, [1, 70, 40, 0, 0])]);
    }

    #[test]
    fn ends_without_a_beginning_and_beginnings_without_an_end_do_no_harm() {
        let mut paths = OperatorPaths::default();
        paths.end(THREAD, 5);
        (0..3 * DEPTH_LIMIT as u64).for_each(|at| paths.begin(THREAD, (at, u64::MAX), operator(at as u32 % 2), None));
        assert!(paths.finish().len() <= DEPTH_LIMIT);
    }

    #[test]
    fn backward_operators_are_in_the_place_of_the_last_forward_operator_of_their_number() {
        let (backward, other) = (ThreadId(2), ThreadId(3));
        let mut paths = OperatorPaths::default();
        // Two modules; an operator before them has the number of the next node already.
        paths.sequence(THREAD, Sequence::Forward(7));
        paths.begin(THREAD, (0, 5), operator(1), None);
        for (module, at) in [(1, 10), (2, 20)] {
            paths.begin(THREAD, (at, at + 9), Span::Around(module), None);
            paths.sequence(THREAD, Sequence::Forward(6 + u64::from(module)));
            paths.begin(THREAD, (at + 1, at + 8), operator(1), Some(3));
        }
        // Each thread counts on its own.
        paths.begin(other, (22, 29), Span::Around(3), None);
        for (number, at) in [(8, 23), (9, 26)] {
            paths.sequence(other, Sequence::Forward(number));
            paths.begin(other, (at, at + 1), operator(1), None);
        }
        for (of, number, at, name) in [
            (Some(THREAD), 8, 40, 2),
            (Some(THREAD), 7, 50, 3),
            (Some(other), 8, 60, 6),
            (Some(THREAD), 9, 70, 4),
            (None, 8, 80, 5),
        ] {
            paths.sequence(backward, Sequence::Backward(of, number));
            paths.begin(backward, (at, at + 9), operator(name), None);
            // The function of the node has its number too.
            paths.sequence(backward, Sequence::Backward(of, number));
            paths.begin(backward, (at + 1, at + 8), operator(10 + name), None);
        }
        assert_eq!(paths.unjoined(), 2, "9 is of the other thread, and a thread is unknown");
        let paths = paths.finish();
        let rows: Vec<_> = paths.iter().filter(|path| path.calls > 0).collect();
        let placed = |wanted: u32| {
            let found = rows.iter().find(|path| path.span == operator(wanted)).unwrap();
            (found.place, found.host_ns)
        };
        assert_eq!([2, 12, 3, 13, 6, 16].map(placed), [(2, 9), (2, 7), (1, 9), (1, 7), (3, 9), (3, 7)]);
        assert_eq!([4, 14, 5].map(placed), [(0, 9), (0, 7), (0, 9)]);
        let own: u64 = rows.iter().map(|path| path.own_host_ns).sum();
        assert_eq!(rows.iter().filter_map(|path| path.flops).sum::<u64>(), 6);
        assert_eq!(own, 5 + 2 * 7 + 2 + 5 * 9, "each time is of one operator");
    }

    #[test]
    fn a_merged_backward_operator_stays_in_the_place_of_the_outer_one() {
        let mut paths = OperatorPaths::default();
        paths.begin(THREAD, (0, 5), Span::Around(1), None);
        paths.sequence(THREAD, Sequence::Forward(7));
        paths.begin(THREAD, (1, 4), operator(1), None);
        paths.begin(THREAD, (10, 90), operator(2), None);
        paths.sequence(THREAD, Sequence::Backward(Some(THREAD), 7));
        paths.begin(THREAD, (20, 80), operator(2), Some(6));
        paths.call(THREAD, (30, 40), CorrelationId(1));
        assert!(paths.work(CorrelationId(1), 500, 0));
        assert_eq!(rows(&paths.finish()), [(1, [1, 3, 3, 0, 0]), (2, [1, 80, 70, 500, 500])]);
    }
}
