//! History of a program: one short line per run, and the gains that were measured.
//!
//! A line is JSON written by hand ([`Run::line`]), because the injected library writes it too. It holds only
//! the data for a comparison: a representative step by cause, some step durations for a rank test, and the kernels that
//! ran. The storage of the lines and their comparison are not part of this module.

mod apply;
mod measured;
#[cfg(feature = "serde")]
mod read;

pub use measured::{Measured, arguments, measured};

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use gpuwhy_trace::json_text::Object;
use gpuwhy_trace::short_text::cut;
use profiler_core::leaf::{Cause, Leaves};
use profiler_core::sorting::SortRows as _;

use crate::run::unit::{comparable, durations, representative};
use crate::run::{DeviceReport, Report};

/// Version of a line. Fields may be added within it.
pub const VERSION: u64 = 1;
/// Start of every line.
const FIRST_FIELD: &[u8] = b"{\"gpuwhy_history\":";
/// Number of bytes of a file that [`may_grow`] needs.
pub const BEGINNING: u64 = 64 << 10;
/// Maximum number of step durations in a line: enough for the rank test to detect shifts of a fraction of the
/// spread, and about 1 kB.
pub const MOST_DURATIONS: usize = 100;
/// Size in bytes at which the file is rotated: about 2,000 runs.
pub const PUT_ASIDE_FROM: u64 = 4 << 20;
/// Maximum size in bytes of a file that still gets a line, if it is not rotated.
pub const LARGEST_FILE: u64 = 8 << 20;
/// Maximum number of kernel names in a line, the most executed first.
const MOST_KERNELS: usize = 24;
/// Maximum number of devices of one process in a line.
const MOST_DEVICES: usize = 16;
/// Maximum number of words of a command line, and bytes of a word.
const MOST_WORDS: usize = 64;
const LONGEST_WORD: usize = 200;

/// Path of the file for these values of `XDG_STATE_HOME` and `HOME`. Relative paths are ignored, as XDG
/// requires.
pub fn path(state_home: Option<&OsStr>, home: Option<&OsStr>) -> Option<PathBuf> {
    let absolute = |path: Option<&OsStr>| path.map(Path::new).filter(|path| path.is_absolute()).map(Path::to_owned);
    let state = absolute(state_home).or_else(|| Some(absolute(home)?.join(".local/state")))?;
    Some(state.join("gpuwhy/history.jsonl"))
}

/// Version of a line that was read; one of another version is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(try_from = "u64"))]
pub struct LineVersion;

/// One run of a program.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
pub struct Run {
    /// Version of the line.
    pub gpuwhy_history: LineVersion,
    /// Start of measurement, nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// Time from the first record to the last, nanoseconds.
    pub observed_ns: u64,
    /// Host name.
    pub host: String,
    /// Process id.
    pub process_id: u32,
    /// Number of processes of its job; `None` if no launcher set it.
    pub world_size: Option<u32>,
    /// Version of gpuwhy that measured it.
    pub version: String,
    /// Kernel-mode driver version; empty when unknown.
    pub driver: String,
    /// Amount of recording: the name of a [`gpuwhy_trace::cost::Mode`].
    pub mode: String,
    /// Command line, limited to 64 words of at most 200 bytes.
    pub command: Vec<String>,
    /// The trace file, if one was written.
    pub trace: Option<String>,
    /// The bottleneck: the name of a [`Cause`]. The alias is its name in lines of earlier builds.
    #[cfg_attr(feature = "serde", serde(alias = "verdict"))]
    pub bottleneck: String,
    /// Its share of the time, 0 to 1.
    #[cfg_attr(feature = "serde", serde(alias = "verdict_share"))]
    pub bottleneck_share: f64,
    /// Total number of kernel executions.
    pub executions: u64,
    /// Kernels by executions, the most first: a hash of the name (FNV-1a folded to 32 bits) and the number of
    /// executions.
    pub kernels: Vec<(u64, u64)>,
    /// Its devices, by ordinal.
    pub devices: Vec<DeviceRun>,
}

/// One device of a run.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
pub struct DeviceRun {
    /// Product name, such as `NVIDIA H200`.
    pub name: String,
    /// Representative step, nanoseconds: the mean of the steps between the quartiles, as in a comparison of runs.
    /// `None` without comparable steps.
    pub step_ns: Option<u64>,
    /// Number of steps considered.
    pub steps: u64,
    /// Median number of device operations per step.
    pub operations: u64,
    /// The step by cause, nanoseconds; without steps, the time after start-up. Causes without time are
    /// omitted.
    #[cfg_attr(feature = "serde", serde(rename = "causes_ns", deserialize_with = "read::causes"))]
    pub causes: Vec<(Cause, u64)>,
    /// Durations of up to [`MOST_DURATIONS`] steps, nanoseconds, evenly selected in step order.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read::durations"))]
    pub durations_ns: Vec<u64>,
}

/// True if a line may be appended to a file with these first bytes: an empty file, or one that starts with a
/// history line.
pub fn may_grow(beginning: &[u8]) -> bool {
    let mut lines = beginning.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).peekable();
    lines.peek().is_none() || lines.any(|line| line.starts_with(FIRST_FIELD) || Measured::is_line(line))
}

impl Run {
    /// Builds the line of a run; `trace` is its file. `None` for a run that does not represent its program:
    /// no device work was recorded, or it is not the first rank of its job.
    pub fn of(report: &Report, trace: Option<&str>) -> Option<Self> {
        let process = &report.process;
        if report.devices.is_empty() || report.bottleneck.cause == Cause::NoWork || process.rank().unwrap_or(0) != 0 {
            return None;
        }
        let mut counts = BTreeMap::<u64, u64>::new();
        for row in report.devices.iter().flat_map(|device| &device.kernels) {
            let count = counts.entry(hash(&row.name)).or_default();
            *count = count.saturating_add(row.durations.count());
        }
        let executions = counts.values().fold(0_u64, |sum, &count| sum.saturating_add(count));
        let mut kernels: Vec<_> = counts.into_iter().collect();
        kernels.sort_rows_by_key(|&(hash, count)| (std::cmp::Reverse(count), hash));
        kernels.truncate(MOST_KERNELS);
        Some(Self {
            gpuwhy_history: LineVersion,
            start_ns: process.start.nanos(),
            observed_ns: report.observed_ns,
            host: process.host.clone(),
            process_id: process.process_id,
            world_size: process.world_size(),
            version: process.gpuwhy_version.clone(),
            driver: process.driver_version.clone(),
            mode: report.cost.map_or("unknown", |cost| cost.mode.name()).to_owned(),
            command: process.command.iter().take(MOST_WORDS).map(|word| cut(word, LONGEST_WORD).to_owned()).collect(),
            trace: trace.map(str::to_owned),
            bottleneck: report.bottleneck.cause.name().to_owned(),
            bottleneck_share: report.bottleneck.share,
            executions,
            kernels,
            devices: report.devices.iter().take(MOST_DEVICES).map(DeviceRun::of).collect(),
        })
    }

    /// Identity of a run: host, process id and start. A line about the same run replaces an earlier one.
    pub fn identity(&self) -> (&str, u32, u64) {
        (&self.host, self.process_id, self.start_ns)
    }

    /// The program: the name of its file, and for a Python interpreter the following script or module.
    pub fn program(&self) -> String {
        program(&self.command)
    }

    /// Device with the longest step; `None` when no device has comparable steps.
    pub fn slowest(&self) -> Option<(usize, &DeviceRun)> {
        let devices = self.devices.iter().enumerate().filter(|(_, device)| device.step_ns.is_some());
        // The first of several equal ones.
        devices.rev().max_by_key(|(_, device)| device.step_ns)
    }

    /// The line with its terminator.
    pub fn line(&self) -> String {
        let devices = self.devices.iter().map(|device| {
            let causes =
                device.causes.iter().fold(Object::new(), |object, &(cause, ns)| object.field(cause.name(), ns));
            Object::new()
                .field("name", &device.name)
                .field("step_ns", device.step_ns)
                .field("steps", device.steps)
                .field("operations", device.operations)
                .field("causes_ns", causes)
                .field("durations_ns", &device.durations_ns)
        });
        Object::new()
            .field("gpuwhy_history", VERSION)
            .field("start_ns", self.start_ns)
            .field("observed_ns", self.observed_ns)
            .field("host", &self.host)
            .field("process_id", self.process_id)
            .field("world_size", self.world_size)
            .field("version", &self.version)
            .field("driver", &self.driver)
            .field("mode", &self.mode)
            .field("command", &self.command)
            .field("trace", &self.trace)
            .field("bottleneck", &self.bottleneck)
            .field("bottleneck_share", self.bottleneck_share)
            .field("executions", self.executions)
            .field("kernels", self.kernels.iter().map(|&(hash, count)| [hash, count]).collect::<Vec<_>>())
            .field("devices", devices.collect::<Vec<_>>())
            .end()
    }
}

/// The program that a command line runs, as [`Run::program`] names it.
pub fn program(command: &[String]) -> String {
    let base = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let Some(first) = command.first() else { return "unknown program".to_owned() };
    let program = base(first);
    if !["python", "pypy"].iter().any(|name| program.starts_with(name)) {
        return program;
    }
    let mut words = command[1..].iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-m" => return format!("python -m {}", words.next().map_or("", String::as_str)),
            "-c" => return "python -c".to_owned(),
            // Python options with a separate value.
            "-W" | "-X" => drop(words.next()),
            option if option.starts_with('-') && option.len() > 1 => {}
            script => return format!("python {}", base(script)),
        }
    }
    "python".to_owned()
}

impl DeviceRun {
    fn of(device: &DeviceReport) -> Self {
        let causes = |leaves: &Leaves| {
            let all = Cause::ALL.into_iter().map(|cause| (cause, cause.total(leaves)));
            all.filter(|&(_, ns)| ns > 0).collect()
        };
        let name = device.device.name.clone();
        let Some((source, rows)) = comparable(device.steps.as_ref()) else {
            return Self { name, causes: causes(&device.steady_leaves), ..Self::default() };
        };
        let step = representative(source, rows);
        let all = durations(rows);
        let kept = all.len().min(MOST_DURATIONS);
        Self {
            name,
            step_ns: Some(step.unit_ns),
            steps: step.considered as u64,
            operations: step.operations,
            causes: causes(&step.leaves),
            durations_ns: (0..kept).filter_map(|at| all.get(at * all.len() / kept).copied()).collect(),
        }
    }
}

/// FNV-1a of 64 bits (Fowler, Noll and Vo, RFC 9923), XOR-folded to 32 bits, so that every JSON reader
/// represents it exactly. With a thousand names, two collide with a probability of 1e-4; the similarity then
/// changes slightly.
fn hash(name: &str) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
    (hash >> 32) ^ (hash & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(command: &[&str]) -> String {
        Run { command: command.iter().map(|&word| word.to_owned()).collect(), ..Run::default() }.program()
    }

    #[test]
    fn a_program_is_its_file_or_its_script() {
        assert_eq!(program(&["/opt/bin/simulate", "--fast"]), "simulate");
        assert_eq!(
            program(&["/usr/bin/python3.12", "-u", "-X", "dev", "/home/x/train.py", "--lr", "1"]),
            "python train.py"
        );
        assert_eq!(program(&["python", "-m", "torch.distributed.run", "train.py"]), "python -m torch.distributed.run");
        assert_eq!(program(&["python3", "-c", "print(1)"]), "python -c");
        assert_eq!(program(&["python3"]), "python");
        assert_eq!(program(&[]), "unknown program");
    }

    #[test]
    fn the_hash_is_that_of_the_specification() {
        // FNV-1a of "a" is 0xaf63dc4c8601ec8c.
        assert_eq!(hash("a"), 0xaf63_dc4c ^ 0x8601_ec8c);
        assert_ne!(hash("relu"), hash("gelu"));
    }
}
