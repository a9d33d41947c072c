//! Other processes on a device, by the driver's readings.
//!
//! A queued operation of this process can wait for another process's work. The records do not show that work,
//! so such a wait is attributed to it only if a reading from right before the wait saw the other process use the
//! multiprocessors, and this process uses no other device, whose work the operation could wait for. What runs on
//! other streams of the device cannot be the reason: while the device is idle, nothing of them runs.
//!
//! A file that has the work of several processes shows it exactly: a wait is attributed to it where it fills half of
//! the wait or more.

use crate::sorting::SortRows as _;
use gpuwhy_trace::counters::{CounterEvent, ProcessReading, ProgramName};
use gpuwhy_trace::record::DeviceId;

/// Devices and processes with readings, and changes of a device; further ones are left out.
const DEVICE_LIMIT: usize = 256;
const PROCESS_LIMIT: usize = 256;
const CHANGE_LIMIT: usize = 65_536;
/// Uses of a process that are kept; older ones are joined.
const USE_LIMIT: usize = 512;
/// Time between two readings, nanoseconds: each is about the time since the one before.
const INTERVAL_NANOS: u64 = 1_000_000_000;
/// Longest time that a reading is valid, nanoseconds: five intervals.
const VALID_NANOS: u64 = 5_000_000_000;

/// Another process on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherProcess {
    /// Process id.
    pub pid: u32,
    /// Name of its program; empty if unknown.
    pub name: ProgramName,
    /// Readings of its use of the multiprocessors after the program's start-up.
    pub readings: u64,
    /// Their sum, percent.
    pub busy_sum: u64,
    /// Largest memory that it used, bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// Its operations on the device, where the records have them; else 0.
    pub operations: u64,
    /// Time in which at least one of them ran, nanoseconds.
    pub work_ns: u64,
}

impl OtherProcess {
    /// Mean use of the multiprocessors after the program's start-up, 0 to 1; `None` without readings.
    pub fn busy(&self) -> Option<f64> {
        (self.readings > 0).then(|| self.busy_sum as f64 / self.readings as f64 / 100.0)
    }
}

#[derive(Debug, Default)]
struct Seen {
    process: OtherProcess,
    /// Newest use, percent.
    newest: u32,
    uses: Uses,
    /// Latest end of its work.
    worked_until: u64,
}

/// Readings of the use of the multiprocessors, oldest first, in bounded memory.
#[derive(Debug, Default)]
struct Uses {
    parts: Vec<Use>,
    /// Readings are joined in parts of two to this power.
    power: u32,
}

/// Readings that follow each other: time of the last one, their number and sum.
#[derive(Clone, Copy, Debug)]
struct Use {
    at: u64,
    readings: u64,
    sum: u64,
}

impl Uses {
    fn add(&mut self, at: u64, percent: u32) {
        let new = Use { at, readings: 1, sum: u64::from(percent) };
        let whole = 1 << self.power;
        match self.parts.last_mut().filter(|last| last.readings < whole) {
            Some(last) => *last = last.and(new),
            None => self.parts.push(new),
        }
        if self.parts.len() > USE_LIMIT {
            let joined = |pair: &[Use]| pair.iter().copied().reduce(Use::and);
            self.parts = self.parts.chunks(2).filter_map(joined).collect();
            self.power += 1;
        }
    }

    /// Number and sum of the readings about the time from `from` on; of the newest one if there is none.
    fn since(&self, from: u64) -> (u64, u64) {
        let from = from.saturating_add(INTERVAL_NANOS);
        let first = self.parts.partition_point(|part| part.at < from).min(self.parts.len().saturating_sub(1));
        self.parts.iter().skip(first).fold((0, 0), |(readings, sum), part| (readings + part.readings, sum + part.sum))
    }
}

impl Use {
    fn and(self, next: Self) -> Self {
        Self { at: next.at, readings: self.readings + next.readings, sum: self.sum + next.sum }
    }
}

#[derive(Debug, Default)]
struct OnDevice {
    device: DeviceId,
    processes: Vec<Seen>,
    /// Times of readings, and whether any other process used the device then; at most one each second, and none
    /// that is older than the last gap that was judged.
    changes: Vec<(u64, bool)>,
    /// Time in which work of other processes ran, in disjoint intervals, as far as it is not judged.
    work: Vec<(u64, u64)>,
}

/// Other processes by device.
#[derive(Debug, Default)]
pub(super) struct OtherProcesses(Vec<OnDevice>);

impl OtherProcesses {
    /// Adds a reading. They come in order of time, each before the flush that passes it.
    pub(super) fn take(&mut self, event: &CounterEvent) {
        let CounterEvent::Process(reading) = event else { return };
        let place = self.0.iter().position(|row| row.device == reading.device);
        let place = place.or_else(|| {
            (self.0.len() < DEVICE_LIMIT).then(|| {
                self.0.push(OnDevice { device: reading.device, ..OnDevice::default() });
                self.0.len() - 1
            })
        });
        if let Some(row) = place.and_then(|place| self.0.get_mut(place)) {
            row.add(reading);
        }
    }

    /// True if the newest reading up to `at` saw another process use the device.
    pub(super) fn busy_at(&self, device: DeviceId, at: u64) -> bool {
        let Some(row) = self.0.iter().find(|row| row.device == device) else { return false };
        let newest = row.changes.partition_point(|&(time, _)| time <= at).checked_sub(1);
        newest.and_then(|index| row.changes.get(index)).is_some_and(|&(time, busy)| busy && at - time <= VALID_NANOS)
    }

    /// True if work of another process filled at least half of the time from `from` to `to` on the device.
    pub(super) fn worked_in(&self, device: DeviceId, from: u64, to: u64) -> bool {
        let Some(row) = self.0.iter().find(|row| row.device == device) else { return false };
        let first = row.work.partition_point(|&(_, end)| end <= from);
        let within = row.work[first..].iter().take_while(|&&(start, _)| start < to);
        let worked: u64 = within.map(|&(start, end)| end.min(to) - start.max(from)).sum();
        worked > 0 && 2 * worked >= to - from
    }

    /// Drops what is not needed to judge gaps from `oldest` on.
    pub(super) fn forget_before(&mut self, oldest: u64) {
        for row in &mut self.0 {
            // The newest reading before it is still valid then.
            let passed = row.changes.partition_point(|&(time, _)| time <= oldest).saturating_sub(1);
            row.changes.drain(..passed);
            let passed = row.work.partition_point(|&(_, end)| end <= oldest);
            row.work.drain(..passed);
        }
    }

    /// Other processes seen on a device, and their use from `from` on, the one with the most use first.
    pub(super) fn on(&self, device: DeviceId, from: u64) -> Vec<OtherProcess> {
        let row = self.0.iter().find(|row| row.device == device);
        let process = |seen: &Seen| {
            let (readings, busy_sum) = seen.uses.since(from);
            OtherProcess { readings, busy_sum, ..seen.process.clone() }
        };
        let mut processes: Vec<_> = row.into_iter().flat_map(|row| &row.processes).map(process).collect();
        processes.sort_rows_by_key(|process| {
            std::cmp::Reverse((process.busy_sum, process.work_ns, process.memory_bytes, process.pid))
        });
        processes
    }
}

impl OnDevice {
    fn add(&mut self, reading: &ProcessReading) {
        let place =
            self.processes.iter().position(|seen| (seen.process.pid, seen.process.name) == (reading.pid, reading.name));
        let place = place.unwrap_or_else(|| {
            let process = OtherProcess { pid: reading.pid, name: reading.name, ..OtherProcess::default() };
            self.processes.push(Seen { process, ..Seen::default() });
            self.processes.len() - 1
        });
        if let Some(until) = reading.until {
            self.worked(place, reading.at.nanos(), until.nanos());
            return;
        }
        if let Some(seen) = self.processes.get_mut(place) {
            seen.process.memory_bytes = seen.process.memory_bytes.max(reading.memory_bytes.unwrap_or(0));
            seen.newest = reading.busy_percent.unwrap_or(0).min(100);
            // A process that has ended is read once more.
            if reading.busy_percent.is_some() && reading.memory_bytes != Some(0) {
                seen.uses.add(reading.at.nanos(), seen.newest);
            }
        }
        let busy = self.processes.iter().any(|seen| seen.newest > 0);
        let at = reading.at.nanos();
        let room = self.changes.len() < CHANGE_LIMIT;
        match self.changes.last_mut() {
            // Several processes are read at once.
            Some((last, known)) if at <= *last => *known = busy,
            _ if room => self.changes.push((at, busy)),
            _ => {}
        }
        if self.processes.len() > PROCESS_LIMIT {
            self.processes.pop();
        }
    }

    /// Work of the process at `place` ran from `start` to `end`.
    fn worked(&mut self, place: usize, start: u64, end: u64) {
        if let Some(seen) = self.processes.get_mut(place) {
            seen.process.operations += 1;
            let more = end.saturating_sub(start.max(seen.worked_until));
            seen.process.work_ns = seen.process.work_ns.saturating_add(more);
            seen.worked_until = seen.worked_until.max(end);
        }
        let room = self.work.len() < CHANGE_LIMIT;
        match self.work.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ if room && start < end => self.work.push((start, end)),
            _ => {}
        }
        self.processes.truncate(PROCESS_LIMIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::Timestamp;

    const SECOND: u64 = 1_000_000_000;

    fn reading(at: u64, pid: u32, busy: Option<u32>) -> CounterEvent {
        let at = Timestamp::from_nanos(at * SECOND);
        let name = ProgramName::new("server");
        CounterEvent::Process(ProcessReading {
            at,
            pid,
            name,
            busy_percent: busy,
            memory_bytes: Some(7),
            ..ProcessReading::default()
        })
    }

    #[test]
    fn the_newest_reading_counts_for_a_while() {
        let mut others = OtherProcesses::default();
        for (at, pid, busy) in [(10, 1, Some(60)), (10, 2, Some(0)), (11, 1, Some(0)), (11, 2, Some(0)), (12, 1, None)]
        {
            others.take(&reading(at, pid, busy));
        }
        let busy = |at: u64| others.busy_at(DeviceId(0), at * SECOND);
        assert_eq!([9, 10, 11, 12].map(busy), [false, true, false, false]);
        others.take(&reading(20, 2, Some(30)));
        let busy = |at: u64| others.busy_at(DeviceId(0), at * SECOND);
        assert_eq!([20, 25, 26].map(busy), [true, true, false], "no longer known");
        assert!(!others.busy_at(DeviceId(1), 20 * SECOND));
        let seen: Vec<_> = others.on(DeviceId(0), 0).iter().map(|process| (process.pid, process.busy())).collect();
        assert_eq!(seen, [(1, Some(0.3)), (2, Some(0.1))]);
        let later =
            |from: u64| others.on(DeviceId(0), from * SECOND).iter().map(OtherProcess::busy).collect::<Vec<_>>();
        assert_eq!(later(19), [Some(0.3), Some(0.0)], "the newest reading of the other one is older");
        assert_eq!(later(10), [Some(0.15), Some(0.0)]);
    }

    #[test]
    fn work_counts_where_it_fills_half_of_a_wait() {
        let mut others = OtherProcesses::default();
        let at = Timestamp::from_nanos;
        for (start, end) in [(100, 200), (150, 180), (190, 230), (300, 310)] {
            let work = ProcessReading { at: at(start), until: Some(at(end)), pid: 9, ..ProcessReading::default() };
            others.take(&CounterEvent::Process(work));
        }
        let worked = |from, to| others.worked_in(DeviceId(0), from, to);
        assert!(worked(100, 230) && worked(50, 300) && worked(220, 240) && worked(299, 311));
        assert!(!worked(230, 300) && !worked(229, 300) && !worked(0, 100) && !worked(310, 400));
        assert!(!others.worked_in(DeviceId(1), 100, 230) && !others.busy_at(DeviceId(0), 150));
        let seen = &others.on(DeviceId(0), 0)[0];
        assert_eq!((seen.pid, seen.operations, seen.work_ns, seen.busy()), (9, 4, 140, None));
        others.forget_before(235);
        assert_eq!(others.0[0].work, [(300, 310)]);
    }

    #[test]
    fn readings_of_judged_time_leave_room() {
        let mut others = OtherProcesses::default();
        let last = 2 * CHANGE_LIMIT as u64;
        for at in 1..=last {
            others.take(&reading(at, 1, Some(50)));
            if at % 100 == 0 {
                others.forget_before((at - 10) * SECOND + 1);
                assert_eq!(others.0[0].changes.len(), 11);
            }
        }
        let busy = |at: u64| others.busy_at(DeviceId(0), at * SECOND);
        assert!(busy(last) && busy(last - 10), "after 36 hours");
        assert_eq!(others.on(DeviceId(0), 0)[0].readings, last);
        assert!(others.0[0].processes[0].uses.parts.len() <= USE_LIMIT);
        let half = others.on(DeviceId(0), last / 2 * SECOND)[0].clone();
        assert!(half.readings.abs_diff(last / 2) <= 512 && half.busy() == Some(0.5), "{half:?}");
        others.forget_before(u64::MAX);
        assert!(others.busy_at(DeviceId(0), (last + 5) * SECOND), "the newest one remains");
    }

    #[test]
    fn processes_are_bounded() {
        let mut others = OtherProcesses::default();
        (0..1_000).for_each(|pid| others.take(&reading(u64::from(pid), pid, Some(1))));
        assert_eq!(others.on(DeviceId(0), 0).len(), PROCESS_LIMIT);
    }
}
