//! Times of other profilers' records that cannot be.
//!
//! Records come in the order of their ends. One with impossible times keeps its place in the statistics of
//! calls and launches, but not its times: the report counts it as not on the timeline, and it is never a
//! bottleneck.

use std::collections::VecDeque;

use gpuwhy_trace::record::{ContextId, CorrelationId, DeviceId, DeviceWork, Record, StreamId, ThreadId, Timestamp};
use profiler_core::api::without_suffix;
use rustc_hash::{FxHashMap, FxHashSet};

/// Time by which work may seem to begin before the call that launched it, or to end after a wait for it,
/// nanoseconds. Clocks of the device and the host that are mapped to each other once drift apart by at most
/// 100 ppm, the tolerance of common quartz oscillators: 100 ms in a thousand seconds.
const SLACK_NANOS: u64 = 100_000_000;
/// Later launches of the same stream that work may outlast. Work of a stream runs in the order of its launches, except
/// that a kernel may start before the previous one ends (programmatic dependent launch, CUDA C++ Programming
/// Guide); so more than a few are impossible.
const LATER: usize = 8;

/// Work that runs in the order of its launches: a stream, or an executable graph, which never runs twice at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Queue {
    Stream(DeviceId, ContextId, StreamId),
    Graph(DeviceId, u32),
}

/// Times of work on a device against those of the calls around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Clocks {
    /// In agreement, as far as is known.
    #[default]
    Agree,
    /// The work starts more than [`SLACK_NANOS`] before the call that launched it.
    Early,
    /// The work ends more than [`SLACK_NANOS`] after a wait for it.
    Late,
}

/// Calls that wait for all work of a device: start and end of those of each thread, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Waits(FxHashMap<ThreadId, Vec<(Timestamp, Timestamp)>>);

impl Waits {
    /// `calls` are the calls of a file with their names, `streams` device, context and stream of its work. Calls do not
    /// say what they wait for: that is all work if the file has only one stream, context or device.
    pub(crate) fn of<'a, T: Copy + Eq + std::hash::Hash>(
        calls: impl Iterator<Item = (&'a str, ThreadId, Timestamp, Timestamp)>,
        streams: &FxHashSet<(T, T, T)>,
    ) -> Self {
        let one_context =
            streams.iter().map(|&(device, context, _)| (device, context)).collect::<FxHashSet<_>>().len() == 1;
        let one_device = streams.iter().map(|&(device, ..)| device).collect::<FxHashSet<_>>().len() == 1;
        let mut waits = FxHashMap::<_, Vec<_>>::default();
        for (name, thread, start, end) in calls {
            let waits_for =
                |what: &str| without_suffix(name).strip_suffix("Synchronize").is_some_and(|of| of.ends_with(what));
            let all = one_device && waits_for("Device") || one_context && waits_for("Ctx");
            if all || streams.len() == 1 && waits_for("Stream") {
                waits.entry(thread).or_default().push((start, end));
            }
        }
        waits.values_mut().for_each(|of_thread| of_thread.sort_unstable());
        Self(waits)
    }

    /// Start and end of work against those of the call that launched it, and the end of its thread's next wait.
    pub(crate) fn clocks(
        &self,
        (start, end): (Timestamp, Timestamp),
        (thread, called, returned): (ThreadId, Timestamp, Timestamp),
    ) -> Clocks {
        if called.since(start) > SLACK_NANOS {
            return Clocks::Early;
        }
        let waits = self.0.get(&thread).map_or(&[][..], Vec::as_slice);
        let next = waits.get(waits.partition_point(|&(start, _)| start < returned));
        let is_late = next.is_some_and(|&(_, waited)| end.since(waited) > SLACK_NANOS);
        if is_late { Clocks::Late } else { Clocks::Agree }
    }
}

/// Note on a file most of whose work has times that are impossible by its calls: its clocks differ in all of it, and
/// no time is taken out.
pub(crate) fn clocks_differ(wrong: usize, work: usize) -> Option<String> {
    (wrong > work / 2).then(|| {
        format!(
            "{wrong} of {work} GPU operations are more than 100 ms outside of the time between the call that launched them and \
             a wait for them: the clocks of the GPU and the CPU differ, so causes of idle time are wrong"
        )
    })
}

/// Number of records whose times were taken out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Implausible {
    /// End before the start.
    pub(crate) reversed: u64,
    /// Start long before the launching call.
    pub(crate) early: u64,
    /// End long after a wait for it.
    pub(crate) late: u64,
    /// End after the ends of later launches of the same stream.
    pub(crate) endless: u64,
    /// Records equal to another one, which are left out.
    pub(crate) repeated: u64,
}

/// Checks the records of a file in the order of their ends.
#[derive(Debug, Default)]
pub(crate) struct Plausible {
    /// The newest launches to end: call, and earliest start of its work.
    ended: FxHashMap<Queue, VecDeque<(CorrelationId, Timestamp)>>,
    /// Records with the newest end.
    newest: Vec<Record>,
    /// False if work of one stream may overlap, as in queues of ROCm.
    unordered: bool,
    pub(crate) found: Implausible,
}

impl Plausible {
    /// For a file in which work of one stream may overlap.
    pub(crate) fn unordered(unordered: bool) -> Self {
        Self { unordered, ..Self::default() }
    }

    /// Returns the record, without its times if they are impossible; `None` if it repeats another one.
    pub(crate) fn check(&mut self, record: Record, clocks: Clocks) -> Option<Record> {
        if self.repeats(&record) {
            self.found.repeated += 1;
            return None;
        }
        Some(self.times(record, clocks))
    }

    /// Returns the record, without its times if they are impossible.
    fn times(&mut self, record: Record, clocks: Clocks) -> Record {
        let Some(work) = record.device_work().filter(|work| work.start != Timestamp::ZERO) else { return record };
        let Implausible { reversed, early, late, endless, .. } = &mut self.found;
        if work.end < work.start {
            *reversed += 1;
        } else if clocks == Clocks::Early {
            *early += 1;
        } else if !self.unordered && outlasts(&mut self.ended, &work) {
            *endless += 1;
        } else if clocks == Clocks::Late {
            *late += 1;
        } else {
            return record;
        }
        without_times(record)
    }

    /// True if an equal record was seen: work of a device, or a call, that takes time is not done twice at once.
    fn repeats(&mut self, record: &Record) -> bool {
        let is_one = matches!(record, Record::Kernel(_) | Record::Copy(_) | Record::Memset(_) | Record::Api(_));
        let Some((start, end)) = record.span().filter(|(start, end)| is_one && start < end) else { return false };
        if self.newest.first().and_then(Record::span).is_some_and(|(_, newest)| newest != end) {
            self.newest.clear();
        }
        debug_assert!(start < end);
        let repeats = self.newest.contains(record);
        if !repeats {
            self.newest.push(*record);
        }
        repeats
    }
}

/// True if later launches of the queue have ended before this work, too many to overlap with it.
fn outlasts(ended: &mut FxHashMap<Queue, VecDeque<(CorrelationId, Timestamp)>>, work: &DeviceWork) -> bool {
    let queue = match work.graph_id {
        0 => Queue::Stream(work.device, work.context, work.stream),
        graph => Queue::Graph(work.device, graph),
    };
    let newest = ended.entry(queue).or_default();
    if newest.len() == LATER && newest.iter().all(|&(_, start)| start > work.start) {
        return true;
    }
    match newest.back_mut().filter(|(launch, _)| *launch == work.correlation && launch.0 != 0) {
        Some((_, start)) => *start = work.start.min(*start),
        None => {
            if newest.len() == LATER {
                newest.pop_front();
            }
            newest.push_back((work.correlation, work.start));
        }
    }
    false
}

fn without_times(mut record: Record) -> Record {
    let times = match &mut record {
        Record::Kernel(row) => [&mut row.start, &mut row.end],
        Record::Copy(row) => [&mut row.start, &mut row.end],
        Record::Memset(row) => [&mut row.start, &mut row.end],
        _ => return record,
    };
    times.into_iter().for_each(|time| *time = Timestamp::ZERO);
    record
}

impl Implausible {
    /// Sentences for the user.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let of = |count: u64, one: &str, many: &str, rest: &str| {
            (count > 0).then(|| format!("{count} {} {rest}", if count == 1 { one } else { many }))
        };
        let operations = |count, rest| of(count, "GPU operation", "GPU operations", rest);
        [
            operations(self.reversed, "ended before the start: their times are not used"),
            operations(
                self.early,
                "started more than 100 ms before the call that launched them, so on another clock: their times are not \
                 used",
            ),
            operations(
                self.late,
                "ended more than 100 ms after a wait for them, so on another clock: their times are not used",
            ),
            operations(
                self.endless,
                "ended after eight later launches of the same stream or graph, which is impossible: their times are not used",
            ),
            of(self.repeated, "record", "records", "left out: equal to another one"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::{Kernel, MemoryEvent};

    fn kernel(start: u64, end: u64, correlation: u32) -> Kernel {
        let at = |micros: u64| Timestamp::from_nanos(1_000_000_000 + micros * 1_000);
        Kernel { start: at(start), end: at(end), correlation: CorrelationId(correlation), ..Kernel::default() }
    }

    /// Number of records that come out with times.
    fn timed(kernels: &[Kernel]) -> (usize, Implausible) {
        let mut sorted = kernels.to_vec();
        sorted.sort_by_key(|kernel| kernel.end);
        let mut plausible = Plausible::default();
        let out = sorted.into_iter().filter_map(|kernel| plausible.check(Record::Kernel(kernel), Clocks::Agree));
        (out.filter(|record| record.span().is_some_and(|(start, _)| start.nanos() > 0)).count(), plausible.found)
    }

    fn row(count: u32) -> Vec<Kernel> {
        (0..count).map(|index| kernel(u64::from(index) * 10, u64::from(index) * 10 + 9, index + 1)).collect()
    }

    #[test]
    fn a_kernel_that_outlasts_many_later_ones_has_no_end() {
        let mut kernels = row(40);
        kernels[20].end = kernels[39].end.max(kernel(0, 5_000_000, 1).end);
        assert_eq!(timed(&kernels), (39, Implausible { endless: 1, ..Implausible::default() }));
        // On another stream, it may.
        kernels[20].stream = StreamId(9);
        assert_eq!(timed(&kernels), (40, Implausible::default()));
        // The nodes of one launch of a graph overlap, those of two launches do not.
        let mut nodes = row(40);
        nodes.iter_mut().for_each(|node| (node.graph_id, node.correlation) = (3, CorrelationId(7)));
        nodes[0].end = nodes[39].end.max(kernel(0, 9_000, 1).end);
        assert_eq!(timed(&nodes).0, 40);
        nodes.iter_mut().zip(1..).for_each(|(node, launch)| node.correlation = CorrelationId(launch));
        assert_eq!(timed(&nodes).0, 39);
    }

    #[test]
    fn kernels_that_overlap_the_next_ones_stay() {
        let mut kernels = row(40);
        for kernel in &mut kernels {
            kernel.end = Timestamp::from_nanos(kernel.end.nanos() + 30_000);
        }
        assert_eq!(timed(&kernels), (40, Implausible::default()));
    }

    #[test]
    fn work_long_before_its_launch_and_ends_before_starts_have_no_times() {
        let mut plausible = Plausible::default();
        let work = kernel(0, 10, 1);
        assert_eq!(plausible.check(Record::Kernel(work), Clocks::Agree), Some(Record::Kernel(work)));
        let early = Kernel { correlation: CorrelationId(2), ..work };
        let without = Kernel { start: Timestamp::ZERO, end: Timestamp::ZERO, ..early };
        assert_eq!(plausible.check(Record::Kernel(early), Clocks::Early), Some(Record::Kernel(without)));
        let reversed = Kernel { start: work.end, end: work.start, ..early };
        assert_eq!(plausible.check(Record::Kernel(reversed), Clocks::Agree), Some(Record::Kernel(without)));
        let late = Kernel { correlation: CorrelationId(3), ..work };
        let without = Kernel { correlation: CorrelationId(3), ..without };
        assert_eq!(plausible.check(Record::Kernel(late), Clocks::Late), Some(Record::Kernel(without)));
        assert_eq!(plausible.found, Implausible { early: 1, late: 1, reversed: 1, ..Implausible::default() });
        assert_eq!(plausible.found.sentences().len(), 3);
    }

    #[test]
    fn equal_records_count_once() {
        let mut kernels = row(10);
        kernels.extend_from_slice(&row(10)[3..5]);
        assert_eq!(timed(&kernels), (10, Implausible { repeated: 2, ..Implausible::default() }));
        let mut plausible = Plausible::default();
        let event = Record::Memory(MemoryEvent::default());
        assert!(plausible.check(event, Clocks::Agree).is_some() && plausible.check(event, Clocks::Agree).is_some());
    }
}
