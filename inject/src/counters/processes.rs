//! Reads which other processes use a device, and how much: once a second, by two calls of NVML.
//!
//! Process ids are those of the reader's namespace only if this process is listed under its own; else they
//! could name the wrong program, so nothing is recorded. Of a program only the short name that the kernel keeps
//! is read: arguments may be secret, and to read them takes a lock of the other process, which may hold it for
//! long while the program that is traced waits to fork or to exit.

use std::cmp::Reverse;
use std::time::{Duration, Instant};
use std::{fs, mem, process};

use gpuwhy_trace::counters::{ProcessReading, ProgramName};
use gpuwhy_trace::record::{DeviceId, Timestamp};
use nvml_sys::{Device, ProcessInfo, ProcessSample, Status};

use crate::sys::clock;
use profiler_core::sorting::SortRows as _;

/// Interval between two readings.
const EVERY: Duration = Duration::from_secs(1);
/// The same after [`FRUITLESS`] readings in a row that failed or do not list this process, as in a container.
const SELDOM: Duration = Duration::from_secs(60);
const FRUITLESS: u32 = 3;
/// Other processes recorded per reading; those that use the device most.
const MOST: usize = 8;
/// Memory that NVML does not know.
const UNKNOWN_MEMORY: u64 = u64::MAX;

/// Readings of the other processes of one device.
#[derive(Debug)]
pub struct Processes {
    device: Device,
    due: Instant,
    /// Time of the last reading, microseconds on the wall clock, which is NVML's.
    since: u64,
    fruitless: u32,
    is_absent: bool,
    others: Others,
}

/// The other processes of one device.
#[derive(Debug)]
struct Others {
    device: DeviceId,
    /// False if names are left out.
    named: bool,
    /// Processes of the reading before.
    known: Vec<Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    pid: u32,
    name: ProgramName,
    was_busy: bool,
}

impl Processes {
    /// `named`: with the names of programs.
    pub fn new(id: DeviceId, device: Device, named: bool) -> Self {
        Self {
            device,
            due: Instant::now(),
            since: wall_clock_micros(),
            fruitless: 0,
            is_absent: device.is_divided(),
            others: Others { device: id, named, known: Vec::new() },
        }
    }

    /// Reads them if that is due.
    pub fn read(&mut self, now: Instant, at: Timestamp) -> Vec<ProcessReading> {
        if self.is_absent || now < self.due {
            return Vec::new();
        }
        let since = mem::replace(&mut self.since, wall_clock_micros());
        let own = process::id();
        let listed = self.device.processes();
        if let Err(status) = listed {
            self.is_absent = matches!(status, Status::NOT_SUPPORTED | Status::FUNCTION_NOT_FOUND);
        }
        let listed = listed.ok().filter(|listed| listed.iter().any(|process| process.pid == own));
        self.fruitless = if listed.is_some() { 0 } else { self.fruitless.saturating_add(1) };
        self.due = now + pause(self.fruitless);
        let Some(mut listed) = listed else { return Vec::new() };
        listed.retain(|process| process.pid != own);
        if listed.is_empty() && self.others.known.is_empty() {
            return Vec::new();
        }
        let samples = self.device.process_samples(since).ok();
        self.others.readings(&listed, samples.as_deref(), at)
    }
}

/// Time to the next reading, by the number of fruitless ones in a row.
fn pause(fruitless: u32) -> Duration {
    if fruitless < FRUITLESS { EVERY } else { SELDOM }
}

impl Others {
    /// Readings of the processes that use the device most, of those that were busy at the reading before, and of
    /// those that have ended since then.
    fn readings(
        &mut self,
        listed: &[ProcessInfo],
        samples: Option<&[ProcessSample]>,
        at: Timestamp,
    ) -> Vec<ProcessReading> {
        let before = mem::take(&mut self.known);
        let known = |pid| before.iter().find(|known| known.pid == pid);
        let mut readings: Vec<_> = listed
            .iter()
            .map(|process| ProcessReading {
                device: self.device,
                at,
                until: None,
                pid: process.pid,
                name: ProgramName::default(),
                busy_percent: samples.map(|samples| busy(samples, process.pid)),
                memory_bytes: Some(process.memory).filter(|&bytes| bytes != UNKNOWN_MEMORY),
            })
            .collect();
        readings.sort_rows_by_key(|reading| Reverse((reading.busy_percent, reading.memory_bytes)));
        // A process that was busy is read until it is not, lest it seem to be busy ever after.
        let mut place = 0..;
        readings.retain(|reading| {
            place.next().is_some_and(|place| place < MOST) || known(reading.pid).is_some_and(|known| known.was_busy)
        });
        for reading in &mut readings {
            reading.name = match known(reading.pid) {
                Some(known) => known.name,
                None if self.named => name_of(reading.pid),
                None => ProgramName::default(),
            };
        }
        self.known = readings
            .iter()
            .map(|reading| Known {
                pid: reading.pid,
                name: reading.name,
                was_busy: reading.busy_percent.is_some_and(|percent| percent > 0),
            })
            .collect();
        let ended = before.iter().filter(|known| listed.iter().all(|process| process.pid != known.pid));
        readings.extend(ended.map(|known| ProcessReading {
            device: self.device,
            at,
            until: None,
            pid: known.pid,
            name: known.name,
            busy_percent: Some(0),
            memory_bytes: Some(0),
        }));
        readings
    }
}

fn wall_clock_micros() -> u64 {
    clock::wall_clock().nanos() / 1_000
}

/// Mean use of the multiprocessors by a process, without values that are no percentages.
fn busy(samples: &[ProcessSample], pid: u32) -> u32 {
    let (sum, count) = samples
        .iter()
        .filter(|sample| sample.pid == pid && sample.busy <= 100)
        .fold((0_u32, 0), |(sum, count), sample| (sum + sample.busy, count + 1));
    sum.checked_div(count).unwrap_or(0)
}

/// Name of a program. Empty for a process of which nothing may be read.
fn name_of(pid: u32) -> ProgramName {
    ProgramName::new(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(pid: u32, busy: u32) -> ProcessSample {
        ProcessSample { pid, busy, ..ProcessSample::default() }
    }

    fn others(named: bool) -> Others {
        Others { device: DeviceId(0), named, known: Vec::new() }
    }

    impl Others {
        /// Id and use of each process of a reading that lists these.
        fn read(&mut self, listed: &[(u32, u32)]) -> Vec<(u32, u32)> {
            let samples: Vec<_> = listed.iter().map(|&(pid, busy)| sample(pid, busy)).collect();
            let listed: Vec<_> =
                listed.iter().map(|&(pid, _)| ProcessInfo { pid, memory: 1, ..ProcessInfo::default() }).collect();
            let readings = self.readings(&listed, Some(&samples), Timestamp::ZERO);
            readings.iter().map(|reading| (reading.pid, reading.busy_percent.unwrap())).collect()
        }
    }

    #[test]
    fn only_valid_samples_of_a_process_count() {
        let samples = [sample(1, 60), sample(1, 40), sample(1, 101), sample(1, u32::MAX), sample(2, 7), sample(4, 300)];
        assert_eq!([1, 2, 3, 4].map(|pid| busy(&samples, pid)), [50, 7, 0, 0]);
    }

    #[test]
    fn a_process_that_others_displace_has_not_ended() {
        let mut others = others(false);
        let most: Vec<_> = (1..=8).map(|pid| (pid, 50)).collect();
        assert_eq!(others.read(&[&most[..], &[(9, 0), (10, 20)]].concat()), most, "not the least busy ones");
        let busier: Vec<_> = (11..=18).map(|pid| (pid, 60)).collect();
        let both = [&busier[..], &most[..]].concat();
        assert_eq!(others.read(&both), both, "were busy");
        let idle: Vec<_> = (1..=8).map(|pid| (pid, 0)).collect();
        let both = [&busier[..], &idle[..]].concat();
        assert_eq!(others.read(&both), both, "are not");
        assert_eq!(others.read(&both), busier);
        assert_eq!(others.read(&busier[1..]), [&busier[1..], &[(11, 0)]].concat(), "has ended");
        assert_eq!(others.read(&busier[1..]), busier[1..]);
    }

    #[test]
    fn names_can_be_left_out() {
        let own = ProcessInfo { pid: process::id(), ..ProcessInfo::default() };
        let name = |named| others(named).readings(&[own], None, Timestamp::ZERO)[0].name;
        assert_eq!(name(false).as_str(), "");
        assert_eq!(name(true).as_str(), fs::read_to_string("/proc/self/comm").unwrap().trim());
    }

    #[test]
    fn fruitless_readings_become_seldom() {
        assert_eq!([0, 2, 3, 9].map(pause), [EVERY, EVERY, SELDOM, SELDOM]);
    }
}
