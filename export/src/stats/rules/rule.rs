//! Which rules there are, their columns and their options.

use std::fmt;
use std::str::FromStr;

use crate::stats::table::{Cell, Heading, TimeUnit, columns};

/// What a rule found: rows, and how many were left out.
pub(super) type Found = (Vec<Vec<Cell>>, u64);

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

            pub(super) fn heading(self, unit: TimeUnit, is_empty: bool) -> Heading {
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
