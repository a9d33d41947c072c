//! The rules of `nsys analyze`, under its names, with its columns, options and thresholds; and one of our own.
//!
//! Names, columns, defaults and what a rule leaves out are those of Nsight Systems' user guide (Expert Systems) and of
//! what nsys 2025.3 prints. A rule of nsys says that a device idled, never why: that is our own rule
//! `gpu_idle_causes`, which stands apart so that scripts find nsys's columns as they know them.

mod blocking;
mod causes;
mod largest;
mod utilization;

use std::fmt;
use std::io::Write;
use std::str::FromStr;

use super::fit::Widths;
use super::format::Printer;
use super::subject::{self, Labeled};
use super::table::{Cell, Heading, RowSink as _, TimeUnit, columns};
use super::{Input, Notes, StatsOptions, Subject, TableFormat, print, printing};
use crate::error::ExportError;
use gpuwhy_import::Progress;

/// What a rule found: rows, and how many were left out.
type Found = (Vec<Vec<Cell>>, u64);

/// Rows that a rule shows, unless told otherwise (nsys's own limit).
const ROWS: usize = 50;
/// Shortest gap, nanoseconds (nsys: 500 ms).
const GAP: u64 = 500_000_000;
/// Utilization below which a stretch is shown, percent, and into how many stretches the time is divided (nsys's own).
const THRESHOLD: f64 = 50.0;
const CHUNKS: u32 = 30;

/// What the copies of both rules are shown with.
const COPY: &str = "Duration @, Start @, *Src Kind, *Dst Kind, Bytes (MB), PID, Device ID, Context ID, Green Context ID, \
                    Stream ID, *API Name";

macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $title:literal, $columns:expr, $found:literal, $none:literal;)*) => {
        /// A rule of `nsys analyze`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Rule {
            $($(#[$doc])* $variant,)*
        }

        impl Rule {
            /// All of them, in the order of nsys.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            fn heading(self, unit: TimeUnit, is_empty: bool) -> Heading {
                let (title, names, note) = match self {
                    $(Self::$variant => ($title, $columns, if is_empty { $none } else { $found }),)*
                };
                Heading { title, name: self.name(), note: Some(note.to_owned()), columns: columns(names, unit) }
            }
        }
    };
}

rules! {
    /// Asynchronous copies from or to pageable memory.
    MemcpyAsync = "cuda_memcpy_async", "CUDA Async Memcpy with Pageable Memory", COPY,
        "Asynchronous copies from or to pageable memory: the driver stages them, and they are not asynchronous.\n\
         Use page-locked memory (cudaHostAlloc, pin_memory=True).",
        "No asynchronous copy used pageable memory.";
    /// Copies that hold the host.
    MemcpySync = "cuda_memcpy_sync", "CUDA Synchronous Memcpy", COPY,
        "Copies for which the host waits; left out: within a device, and 64 KB or less to a device.\n\
         Use cudaMemcpyAsync with page-locked memory (non_blocking=True).",
        "The host waited for no copy of more than 64 KB.";
    /// Memsets that hold the host.
    MemsetSync = "cuda_memset_sync", "CUDA Synchronous Memset",
        "Duration @, Start @, *Memory Kind, Bytes (MB), PID, Device ID, Context ID, Green Context ID, Stream ID, *API Name",
        "Memsets of page-locked or managed memory, for which the host waits. Use cudaMemsetAsync.",
        "The host waited for no memset.";
    /// Calls that wait for everything.
    ApiSync = "cuda_api_sync", "CUDA Synchronization APIs", "Duration @, Start @, PID, TID, *API Name",
        "Calls that hold the host until everything that was issued to a stream or device is done.\n\
         Wait less often, or for events (cudaStreamWaitEvent, cudaEventSynchronize).",
        "No call waited for a whole stream or device.";
    /// Long idle stretches of a device.
    Gaps = "gpu_gaps", "GPU Gaps", "Row#, Duration @, Start @, PID, Device ID, Context ID",
        "Stretches in which a device ran nothing. What they were spent on: rule gpu_idle_causes, and gpuwhy report.",
        "No device idled for longer than the threshold.";
    /// Stretches in which a device was seldom used.
    TimeUtilization = "gpu_time_util", "GPU Time Utilization",
        "Row#, In-Use (%), Duration @, Start @, PID, Device ID, Context ID",
        "Stretches in which a device ran anything for less than the threshold. In use does not mean that it was full.",
        "Every stretch is above the threshold.";
    /// Idle time of the devices by cause: gpuwhy's own.
    IdleCauses = "gpu_idle_causes", "GPU Idle Time by Cause",
        "Time (%), Total Time @, PID, Device ID, *Group, *Cause",
        "Idle time between the first and the last operation of a device, by what kept the next one from starting\n\
         (docs/reference/report.md). A rule of gpuwhy: nsys has none like it.",
        "No device idled.";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A rule and its options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Which.
    pub rule: Rule,
    /// Rows at most.
    pub rows: usize,
    /// Shortest gap, nanoseconds.
    pub gap: u64,
    /// Utilization below which a stretch is shown, percent.
    pub threshold: f64,
    /// Into how many stretches the time is divided.
    pub chunks: u32,
}

impl From<Rule> for Request {
    fn from(rule: Rule) -> Self {
        Self { rule, rows: ROWS, gap: GAP, threshold: THRESHOLD, chunks: CHUNKS }
    }
}

impl FromStr for Request {
    type Err = String;

    /// `NAME[:OPTION=VALUE]...`, as nsys has it: `gpu_gaps:gap=10:rows=5`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let rule = Rule::ALL.iter().copied().find(|rule| rule.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
            format!("no such rule; there are {}", names.join(", "))
        })?;
        let mut request = Self::from(rule);
        for part in parts {
            let wrong = || {
                format!(
                    "{part:?}: expected rows=N (-1 for all), gap=MILLISECONDS (gpu_gaps), threshold=PERCENT or chunks=N \
                     (gpu_time_util)"
                )
            };
            let (option, value) = part.split_once('=').ok_or_else(wrong)?;
            let number: f64 = value.parse().map_err(|_| wrong())?;
            match (option, rule) {
                ("rows", _) if number == -1.0 => request.rows = usize::MAX,
                ("rows", _) if number >= 1.0 => request.rows = number as usize,
                ("gap", Rule::Gaps) if number >= 0.0 => request.gap = (number * 1e6) as u64,
                ("threshold", Rule::TimeUtilization) if (0.0..=100.0).contains(&number) => request.threshold = number,
                ("chunks", Rule::TimeUtilization) if (1.0..=1e6).contains(&number) => request.chunks = number as u32,
                _ => return Err(wrong()),
            }
        }
        Ok(request)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rule.fmt(f)
    }
}

/// Writes what a rule finds in the traces, with the columns `Run` and `Rank` in front when there are several. Without a
/// finding, a text says so and other forms are empty.
///
/// # Errors
///
/// When a trace cannot be read, or `output` cannot be written.
pub fn analyze(
    subjects: &[Subject<'_>],
    request: &Request,
    options: &StatsOptions,
    output: &mut dyn Write,
    progress: &mut Progress<'_>,
) -> Result<Vec<String>, ExportError> {
    let several = subjects.len() > 1;
    let (mut said, mut tables, mut left_out) = (Vec::new(), Vec::new(), 0);
    for subject in subjects {
        let mut notes = Notes::default();
        let (rows, more) = found(request, &mut subject.input(options, progress), &mut notes)?;
        said.extend(subject.said(notes, several));
        left_out += more;
        tables.push((subject, rows));
    }
    let is_empty = tables.iter().all(|(_, rows)| rows.is_empty());
    let heading = request.rule.heading(options.unit, is_empty);
    let mut heading = if several { subject::of_several(heading) } else { heading };
    if let Some(note) = heading.note.as_mut().filter(|_| left_out > 0) {
        note.push_str(&format!("\n{left_out} more are not shown (rows=-1 shows all)."));
    }
    if is_empty {
        if options.format == TableFormat::Table {
            heading.columns.clear();
            let mut printer = Printer::new(output, options.format, Widths::default());
            printer.begin(&heading).map_err(printing)?;
        }
        return Ok(said);
    }
    print(&heading, options, output, |sink| {
        for (subject, rows) in &tables {
            let mut sink = Labeled::new(subject, several, sink);
            rows.iter().try_for_each(|row| sink.row(row)).map_err(printing)?;
        }
        Ok(())
    })?;
    Ok(said)
}

/// The rows of one trace, and how many more there are than are shown.
fn found(request: &Request, input: &mut Input<'_, '_>, notes: &mut Notes) -> Result<Found, ExportError> {
    match request.rule {
        Rule::MemcpyAsync | Rule::MemcpySync | Rule::MemsetSync => blocking::operations(request, input, notes),
        Rule::ApiSync => blocking::calls(request, input, notes),
        Rule::Gaps => utilization::gaps(request, input, notes),
        Rule::TimeUtilization => utilization::chunks(request, input, notes),
        Rule::IdleCauses => causes::rows(request, input, notes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_asked_for_as_in_nsys() {
        let request: Request = "gpu_gaps:gap=1.5:rows=-1".parse().unwrap();
        assert_eq!((request.rule, request.gap, request.rows), (Rule::Gaps, 1_500_000, usize::MAX));
        let request: Request = "gpu_time_util:threshold=80:chunks=10".parse().unwrap();
        assert_eq!((request.threshold, request.chunks), (80.0, 10));
        for &rule in Rule::ALL {
            assert_eq!(rule.name().parse(), Ok(Request::from(rule)));
        }
        for wrong in
            ["gpu_gap", "gpu_gaps:chunks=3", "gpu_gaps:gap", "cuda_api_sync:rows=0", "gpu_time_util:threshold=x"]
        {
            assert!(wrong.parse::<Request>().is_err(), "{wrong}");
        }
    }
}
