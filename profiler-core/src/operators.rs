//! Time of a framework's operators: on the host with and without the operators inside, and of the device work that
//! they launch.
//!
//! Sums are kept for each path of operators, so memory does not grow with the run. Device work is added to the
//! innermost operator at its launch, and to the enclosing ones when rows are made. The definitions are those of
//! PyTorch's `key_averages()` (`torch/autograd/profiler_util.py`): the own host time of an operator leaves out
//! operators and CUDA calls directly in it; a name that is open twice counts in both, unless the inner one is all
//! that the outer one contains: then they are one call (`_remove_dup_nodes` there). This is known when the outer
//! one goes on: device work of an inner operator that was taken for all stays with the outer one.

use std::collections::VecDeque;

use gpuwhy_trace::record::{CorrelationId, ThreadId};
use rustc_hash::FxHashMap;

/// Maximum number of paths, some 150 bytes each with its index.
const PATH_LIMIT: usize = 131_072;
/// Launches whose device work is expected, 40 bytes each: a stream holds about a thousand launches.
const LAUNCH_LIMIT: usize = 131_072;
/// Open spans of a thread beyond which ends must be missing.
const DEPTH_LIMIT: usize = 4_096;
/// The path of what has no enclosing path, or no own one.
const NONE: u32 = u32::MAX;

/// What begins on a thread. The numbers are the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Span {
    /// An operator, and its name: the same for operators with other inputs.
    Operator {
        /// Number of the operator.
        number: u32,
        /// Number of its name.
        name: u32,
    },
    /// A module or a function around operators: has no time of its own.
    Around(u32),
}

/// Sums of one path, without those inside.
#[derive(Clone, Copy, Debug)]
pub struct OperatorPath {
    /// The innermost span.
    pub span: Span,
    /// Calls that ended.
    pub calls: u64,
    /// Their time on the host, nanoseconds.
    pub host_ns: u64,
    /// The part of it outside operators and CUDA calls directly inside.
    pub own_host_ns: u64,
    /// Time of the device work launched directly in it, nanoseconds.
    pub device_ns: u64,
    /// Device memory allocated directly in it, less what was freed, bytes.
    pub memory_bytes: i64,
    /// Flags of this device work, given with each.
    pub flags: u8,
    parent: u32,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    path: u32,
    span: Span,
    start: u64,
    /// Known end, or `u64::MAX`.
    end: u64,
    inside_ns: u64,
    /// True if something is directly inside.
    has_child: bool,
    /// True if it is one call with the enclosing one.
    is_merged: bool,
    /// The only operator inside, which is merged: itself, its time, and its own time.
    merged: Option<(Span, u64, u64)>,
}

#[derive(Debug, Default)]
struct Thread {
    open: Vec<Open>,
    /// Start and end of its last CUDA call that is not inside another one.
    call: (u64, u64),
}

/// Operators of a process. Events of a thread come in the order of their starts; device work comes after its launch.
#[derive(Debug, Default)]
pub struct OperatorPaths {
    paths: Vec<OperatorPath>,
    known: FxHashMap<(u32, Span), u32>,
    threads: FxHashMap<ThreadId, Thread>,
    launches: FxHashMap<CorrelationId, u32>,
    in_order: VecDeque<CorrelationId>,
    beyond: u64,
}

impl OperatorPaths {
    /// `span` begins. Its `end` is `u64::MAX` if [`end`](Self::end) will tell it; otherwise spans that it is not within
    /// end here.
    pub fn begin(&mut self, thread: ThreadId, start: u64, mut end: u64, span: Span) {
        self.ended(thread, start);
        let lacks_ends = self.threads.get_mut(&thread).filter(|of| of.open.len() >= DEPTH_LIMIT);
        if let Some(of) = lacks_ends {
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
        let parent = around.map_or(NONE, |open| open.path);
        let is_merged = around.is_some_and(|around| !around.has_child && is_of_name(around.span, span));
        if matches!(span, Span::Operator { .. }) {
            self.has_child(thread);
        }
        let path = if is_merged { parent } else { self.path(parent, span) };
        self.threads.entry(thread).or_default().open.push(Open {
            path,
            span,
            start,
            end,
            inside_ns: 0,
            has_child: false,
            is_merged,
            merged: None,
        });
    }

    /// The innermost span of the thread ends.
    pub fn end(&mut self, thread: ThreadId, at: u64) {
        let Some(of) = self.threads.get_mut(&thread) else { return };
        let Some(open) = of.open.pop() else { return };
        let took = match open.span {
            Span::Operator { .. } => at.saturating_sub(open.start),
            Span::Around(_) => open.inside_ns,
        };
        let own = took.saturating_sub(open.inside_ns);
        if let Some(around) = of.open.last_mut().filter(|_| open.is_merged) {
            around.inside_ns = around.inside_ns.saturating_add(took - own);
            around.merged = Some((open.span, took, own));
            return;
        }
        if let Some(around) = of.open.last_mut() {
            around.inside_ns = around.inside_ns.saturating_add(took);
        }
        // A path that is not its own is that of an enclosing span.
        if let Some(path) = self.paths.get_mut(open.path as usize).filter(|path| path.span == open.span) {
            path.calls += 1;
            path.host_ns = path.host_ns.saturating_add(took);
            path.own_host_ns = path.own_host_ns.saturating_add(own);
        }
    }

    /// A CUDA call from `start` to `end`. Of calls inside each other the outer one may come last.
    pub fn call(&mut self, thread: ThreadId, (start, end): (u64, u64), correlation: CorrelationId) {
        self.ended(thread, start);
        self.has_child(thread);
        let Some(of) = self.threads.get_mut(&thread) else { return };
        let Some(open) = of.open.last_mut() else { return };
        let (last_start, last_end) = of.call;
        if start >= last_end {
            open.inside_ns = open.inside_ns.saturating_add(end.saturating_sub(start));
            of.call = (start, end);
        } else if start <= last_start && end >= last_end {
            let more = end.saturating_sub(start).saturating_sub(last_end.saturating_sub(last_start));
            open.inside_ns = open.inside_ns.saturating_add(more);
            of.call = (start, end);
        }
        if open.path != NONE && self.launches.insert(correlation, open.path).is_none() {
            self.in_order.push_back(correlation);
            if self.in_order.len() > LAUNCH_LIMIT
                && let Some(oldest) = self.in_order.pop_front()
            {
                self.launches.remove(&oldest);
            }
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
        let Some((span, took, own)) = open.merged.take() else { return };
        open.inside_ns = open.inside_ns.saturating_add(own);
        let path = self.path(parent, span);
        if let Some(path) = self.paths.get_mut(path as usize).filter(|path| path.span == span) {
            path.calls += 1;
            path.host_ns = path.host_ns.saturating_add(took);
            path.own_host_ns = path.own_host_ns.saturating_add(own);
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
        self.known.insert((parent, span), path);
        self.paths.push(OperatorPath {
            span,
            calls: 0,
            host_ns: 0,
            own_host_ns: 0,
            device_ns: 0,
            memory_bytes: 0,
            flags: 0,
            parent,
        });
        path
    }

    /// Ends all spans whose end is known.
    pub fn finish(&mut self) {
        let threads: Vec<ThreadId> = self.threads.keys().copied().collect();
        threads.into_iter().for_each(|thread| self.ended(thread, u64::MAX - 1));
    }

    /// Device work that this call launched. False if the call was outside all operators, or is forgotten.
    pub fn work(&mut self, correlation: CorrelationId, nanos: u64, flags: u8) -> bool {
        let Some(&path) = self.launches.get(&correlation) else { return false };
        let path = &mut self.paths[path as usize];
        path.device_ns = path.device_ns.saturating_add(nanos);
        path.flags |= flags;
        true
    }

    /// Calls without a path of their own, because there are too many.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// All paths, the enclosing ones first. Each with the number of the innermost `Around` on it, and with the device
    /// time, memory and flags of all that is inside.
    pub fn paths(&self) -> impl Iterator<Item = (&OperatorPath, Option<u32>, Inside)> {
        let mut inside: Vec<Inside> = self.paths.iter().map(Inside::of).collect();
        let mut around: Vec<Option<u32>> = Vec::with_capacity(self.paths.len());
        for path in &self.paths {
            around.push(match path.span {
                Span::Around(number) => Some(number),
                Span::Operator { .. } => around.get(path.parent as usize).copied().flatten(),
            });
        }
        for at in (0..self.paths.len()).rev() {
            let of = inside[at];
            if let Some(parent) = inside.get_mut(self.paths[at].parent as usize) {
                parent.device_ns = parent.device_ns.saturating_add(of.device_ns);
                parent.memory_bytes = parent.memory_bytes.saturating_add(of.memory_bytes);
                parent.flags |= of.flags;
            }
        }
        self.paths.iter().zip(around).zip(inside).map(|((path, around), inside)| (path, around, inside))
    }
}

fn is_of_name(a: Span, b: Span) -> bool {
    matches!((a, b), (Span::Operator { name: a, .. }, Span::Operator { name: b, .. }) if a == b)
}

/// Sums of a path with all that is inside.
#[derive(Clone, Copy, Debug)]
pub struct Inside {
    /// Time of device work, nanoseconds.
    pub device_ns: u64,
    /// Device memory allocated, less what was freed, bytes.
    pub memory_bytes: i64,
    /// Flags of the device work.
    pub flags: u8,
}

impl Inside {
    fn of(path: &OperatorPath) -> Self {
        Self { device_ns: path.device_ns, memory_bytes: path.memory_bytes, flags: path.flags }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: ThreadId = ThreadId(1);

    fn operator(name: u32) -> Span {
        Span::Operator { number: name, name }
    }

    /// Name, calls, host time, own host time, device time, own device time by path.
    fn rows(paths: &OperatorPaths) -> Vec<(u32, [u64; 5])> {
        let of = |path: &OperatorPath| match path.span {
            Span::Operator { name, .. } => Some(name),
            Span::Around(_) => None,
        };
        let row = |path: &OperatorPath, inside: Inside| {
            [path.calls, path.host_ns, path.own_host_ns, inside.device_ns, path.device_ns]
        };
        paths.paths().filter_map(|(path, _, inside)| Some((of(path)?, row(path, inside)))).collect()
    }

    #[test]
    fn own_times_leave_out_operators_and_calls_inside() {
        let mut paths = OperatorPaths::default();
        paths.begin(THREAD, 0, u64::MAX, operator(1));
        paths.begin(THREAD, 10, u64::MAX, operator(2));
        // The outer call is recorded after the one in it.
        paths.call(THREAD, (14, 16), CorrelationId(5));
        paths.call(THREAD, (12, 20), CorrelationId(5));
        paths.end(THREAD, 30);
        paths.call(THREAD, (40, 45), CorrelationId(6));
        paths.end(THREAD, 100);
        assert!(paths.work(CorrelationId(5), 1_000, 1));
        assert!(paths.work(CorrelationId(6), 300, 4));
        assert!(!paths.work(CorrelationId(7), 1, 0));
        assert_eq!(rows(&paths), [(1, [1, 100, 75, 1_300, 300]), (2, [1, 20, 12, 1_000, 1_000])]);
        let flags: Vec<u8> = paths.paths().map(|(.., inside)| inside.flags).collect();
        assert_eq!(flags, [5, 1]);
    }

    #[test]
    fn spans_with_known_ends_close_each_other() {
        let mut paths = OperatorPaths::default();
        paths.begin(THREAD, 0, 50, operator(1));
        paths.begin(THREAD, 0, 20, Span::Around(7));
        paths.begin(THREAD, 5, 15, operator(2));
        paths.memory(THREAD, 6, 512);
        // Not within the first one, so beside it.
        paths.begin(THREAD, 40, 60, operator(3));
        paths.memory(THREAD, 60, 1);
        paths.finish();
        assert_eq!(
            rows(&paths),
            [(1, [1, 50, 40, 0, 0]), (2, [1, 10, 10, 0, 0]), (3, [1, 20, 20, 0, 0])],
            "what is around has no time of its own"
        );
        let around: Vec<_> = paths.paths().map(|(_, around, inside)| (around, inside.memory_bytes)).collect();
        assert_eq!(around, [(None, 512), (Some(7), 512), (Some(7), 512), (None, 0)]);
    }

    #[test]
    fn an_operator_that_only_calls_one_of_its_name_is_one_call_with_it() {
        let mut paths = OperatorPaths::default();
        for (end_of_inner, more) in [(90, false), (80, true)] {
            paths.begin(THREAD, 0, u64::MAX, operator(1));
            paths.begin(THREAD, 10, u64::MAX, Span::Operator { number: 9, name: 1 });
            paths.begin(THREAD, 20, u64::MAX, operator(2));
            paths.end(THREAD, 50);
            paths.end(THREAD, end_of_inner);
            if more {
                paths.call(THREAD, (85, 95), CorrelationId(1));
            }
            paths.end(THREAD, 100);
        }
        // Own time is 100 less the 30 of the operator inside; then less the 70 of the inner one and the 10 of the call.
        assert_eq!(rows(&paths), [(1, [2, 200, 90, 0, 0]), (2, [2, 60, 60, 0, 0]), (1, [1, 70, 40, 0, 0])]);
    }

    #[test]
    fn ends_without_a_beginning_and_beginnings_without_an_end_do_no_harm() {
        let mut paths = OperatorPaths::default();
        paths.end(THREAD, 5);
        (0..3 * DEPTH_LIMIT as u64).for_each(|at| paths.begin(THREAD, at, u64::MAX, operator(at as u32 % 2)));
        paths.finish();
        assert!(paths.paths().count() <= DEPTH_LIMIT);
    }
}
