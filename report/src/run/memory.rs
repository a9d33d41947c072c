//! Memory held by the program: its amount, its peak, and the allocating code.

use std::fmt::Write;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::Timestamp;
use profiler_core::attribution::{Attributor, template};

use super::{MemoryReport, MemoryRow, PeakBy, names};
use crate::text_format::{Page, bytes, counted, duration, printable, wrapped};
use crate::words;

impl MemoryReport {
    /// Builds the report from the current state; `None` when memory was not recorded.
    pub fn of(attributor: &Attributor, dictionary: &Dictionary) -> Option<Self> {
        let holdings = attributor.holdings();
        if holdings.is_empty() {
            return None;
        }
        let mut rows: Vec<_> = attributor
            .memory()
            .map(|((device, kind), holding, caller)| MemoryRow {
                device,
                kind,
                holding: *holding,
                peak_by: caller.map(|caller| PeakBy {
                    thread: caller.thread,
                    thread_name: dictionary.thread_name(caller.thread).map(str::to_owned),
                    function: names::function(dictionary, caller.function),
                    range: caller.range.map(|message| {
                        let text = dictionary.name(message);
                        template(text).unwrap_or_else(|| text.to_owned())
                    }),
                }),
            })
            .collect();
        rows.sort_by(|a, b| b.holding.peak.cmp(&a.holding.peak).then((a.device, a.kind).cmp(&(b.device, b.kind))));
        Some(Self { rows, unknown_releases: holdings.unknown_releases(), table_overflow: holdings.table_overflow() })
    }

    /// Appends the section of the long report. `start` is the start of measurement.
    pub(super) fn write(&self, out: &mut Page, start: Timestamp) {
        for row in self.rows.iter().filter(|row| row.holding.allocations > 0) {
            wrapped(out, "Memory: ", &row.sentence(start));
        }
        let mut parts = Vec::new();
        if self.unknown_releases > 0 {
            parts.push(format!("{} of memory that was allocated before", counted(self.unknown_releases, "release")));
        }
        if self.table_overflow > 0 {
            parts.push(format!("{} too many to follow to their release", counted(self.table_overflow, "allocation")));
        }
        if !parts.is_empty() {
            wrapped(out, "Memory: ", &parts.join(", "));
        }
    }
}

impl MemoryRow {
    fn sentence(&self, start: Timestamp) -> String {
        let holding = &self.holding;
        let mut line = format!(
            "GPU {}, {} memory: peak {}, {} after the start",
            self.device,
            words::memory_word(self.kind),
            bytes(holding.peak),
            duration(holding.peak_at.since(start)),
        );
        if let Some(by) = &self.peak_by {
            let thread = by.thread_name.clone().unwrap_or_else(|| by.thread.to_string());
            let _ = write!(line, ", by {} on {}", printable(&by.function), words::thread(&thread));
            if let Some(range) = &by.range {
                let _ = write!(line, " in {range:?}");
            }
        }
        let _ = write!(
            line,
            "; {}, {} in all; {} at the end",
            counted(holding.allocations, "allocation"),
            bytes(holding.allocated),
            bytes(holding.current)
        );
        if holding.pool_peak > 0 {
            let _ = write!(line, "; pools held up to {}", bytes(holding.pool_peak));
        }
        line
    }
}
