//! Reads which other processes use a device, and how much: once a second, by two calls of NVML.
//!
//! Process ids are those of the reader's namespace only if this process is listed under its own; else they
//! could name the wrong program, so nothing is recorded. Of a command line only the program and a script are
//! kept: arguments may be secret.

use std::fs;
use std::time::{Duration, Instant};

use gpuwhy_trace::counters::{ProcessReading, ProgramName};
use gpuwhy_trace::record::{DeviceId, Timestamp};
use nvml_sys::{Device, ProcessSample, Status};

use crate::sys::clock;

const EVERY: Duration = Duration::from_secs(1);
/// Other processes recorded per reading; those that use the device most.
const MOST: usize = 8;
/// Memory that NVML does not know.
const UNKNOWN_MEMORY: u64 = u64::MAX;
/// Endings of scripts that an interpreter runs.
const SCRIPTS: [&str; 3] = [".py", ".jl", ".lua"];

/// Other processes of one device.
#[derive(Debug)]
pub struct Processes {
    id: DeviceId,
    device: Device,
    due: Instant,
    /// Time of the last reading, microseconds on the wall clock, which is NVML's.
    since: u64,
    /// Processes of the reading before.
    known: Vec<(u32, ProgramName)>,
    is_absent: bool,
}

impl Processes {
    pub fn new(id: DeviceId, device: Device) -> Self {
        let is_absent = device.is_divided();
        Self { id, device, due: Instant::now(), since: wall_clock_micros(), known: Vec::new(), is_absent }
    }

    /// Reads them if that is due.
    pub fn read(&mut self, now: Instant, at: Timestamp) -> Vec<ProcessReading> {
        if self.is_absent || now < self.due {
            return Vec::new();
        }
        self.due = now + EVERY;
        let own = std::process::id();
        let mut listed = match self.device.processes() {
            Ok(listed) if listed.iter().any(|process| process.pid == own) => listed,
            Ok(_) => return Vec::new(),
            Err(status) => {
                self.is_absent = matches!(status, Status::NOT_SUPPORTED | Status::FUNCTION_NOT_FOUND);
                return Vec::new();
            }
        };
        listed.retain(|process| process.pid != own);
        if listed.is_empty() && self.known.is_empty() {
            return Vec::new();
        }
        let samples = self.device.process_samples(std::mem::replace(&mut self.since, wall_clock_micros())).ok();
        let (id, before) = (self.id, std::mem::take(&mut self.known));
        let mut readings: Vec<ProcessReading> = listed
            .iter()
            .map(|process| {
                let known = before.iter().find(|(pid, _)| *pid == process.pid).map(|&(_, name)| name);
                ProcessReading {
                    device: id,
                    at,
                    pid: process.pid,
                    name: known.unwrap_or_else(|| name_of(process.pid)),
                    busy_percent: samples.as_ref().map(|samples| busy(samples, process.pid)),
                    memory_bytes: Some(process.memory).filter(|&bytes| bytes != UNKNOWN_MEMORY),
                }
            })
            .collect();
        readings.sort_by_key(|reading| std::cmp::Reverse((reading.busy_percent, reading.memory_bytes)));
        readings.truncate(MOST);
        self.known = readings.iter().map(|reading| (reading.pid, reading.name)).collect();
        let ended = before.into_iter().filter(|(pid, _)| readings.iter().all(|reading| reading.pid != *pid));
        let ended: Vec<_> = ended
            .map(|(pid, name)| ProcessReading {
                device: id,
                at,
                pid,
                name,
                busy_percent: Some(0),
                memory_bytes: Some(0),
            })
            .collect();
        readings.extend(ended);
        readings
    }
}

fn wall_clock_micros() -> u64 {
    clock::wall_clock().nanos() / 1_000
}

/// Mean use of the multiprocessors by a process.
fn busy(samples: &[ProcessSample], pid: u32) -> u32 {
    let (sum, count) = samples
        .iter()
        .filter(|sample| sample.pid == pid)
        .fold((0_u32, 0), |(sum, count), sample| (sum + sample.busy.min(100), count + 1));
    sum.checked_div(count).unwrap_or(0)
}

/// `python3 server.py`: the program and its script, without folders and arguments. Empty for a process of which
/// nothing may be read.
fn name_of(pid: u32) -> ProgramName {
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    ProgramName::new(&named(program.trim(), &command))
}

fn named(program: &str, command: &[u8]) -> String {
    let first = command.split(|&byte| byte == 0).nth(1).and_then(|argument| std::str::from_utf8(argument).ok());
    let script = first.filter(|argument| SCRIPTS.iter().any(|end| argument.ends_with(end)));
    match script.map(|path| path.rsplit('/').next().unwrap_or(path)) {
        Some(script) => format!("{program} {script}"),
        None => program.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_without_its_arguments() {
        assert_eq!(named("python3", b"/usr/bin/python3\0/home/u/server.py\0--token=secret\0"), "python3 server.py");
        assert_eq!(named("python3", b"python3\0-c\0import secret\0"), "python3");
        assert_eq!(named("server", b"./server\0"), "server");
        assert_eq!(named("", b""), "");
    }

    #[test]
    fn a_process_without_samples_was_not_busy() {
        let sample = |pid, busy| ProcessSample { pid, busy, ..ProcessSample::default() };
        let samples = [sample(1, 60), sample(1, 40), sample(2, 7)];
        assert_eq!([1, 2, 3].map(|pid| busy(&samples, pid)), [50, 7, 0]);
    }
}
