//! Bursts: input for their schedule, and their rows. In mode auto the complete run is monitored in parallel.

use gpuwhy_trace::record::Timestamp;
use profiler_core::leaf::Cause;
use profiler_core::monitoring::{BottleneckChange, MonitorView};

use super::{Captures, MONITORED, ROW_LIMIT};
use crate::run::{BurstRow, BurstTable, CaptureRow, Report};

impl Captures {
    /// Input for decisions about bursts.
    pub fn monitor_view(&self) -> MonitorView {
        let monitored = self.open.iter().find(|capture| capture.row.number == MONITORED);
        let burst = self.open.iter().rev().find(|capture| capture.row.trigger.is_burst());
        let steps = burst.and_then(|burst| burst.attributor.devices().map(|account| account.steps().seen).max());
        MonitorView {
            names_one: monitored.is_some() && self.changes.names_one(),
            busy: monitored.map_or_else(Vec::new, |monitored| monitored.monitoring.busy_seconds().collect()),
            burst_steps: steps.unwrap_or(0),
        }
    }

    /// Updates the bottleneck by samples, once a second.
    pub(super) fn watch_changes(&mut self, at: Timestamp) {
        let monitored = self.open.iter().find(|capture| capture.row.number == MONITORED);
        if let Some(monitored) = monitored.filter(|_| self.changes.is_due(at)) {
            let recent = monitored.monitoring.recent_time();
            self.changes.sampled(at, recent.as_ref());
        }
    }

    /// Records the result of a capture that has ended, if it is a burst.
    pub(super) fn note_burst(&mut self, row: &CaptureRow, report: &Report) {
        if !row.trigger.is_burst() {
            return;
        }
        let burst = BurstRow::of(row, report);
        self.changes.recorded(BottleneckChange {
            at: burst.begin,
            cause: burst.cause,
            share: burst.share,
            burst: Some(burst.number),
        });
        if self.bursts.len() < ROW_LIMIT {
            self.bursts.push(burst);
        }
    }

    pub(super) fn burst_table(&self) -> BurstTable {
        BurstTable {
            rows: self.bursts.clone(),
            changes: self.changes.rows().to_vec(),
            earlier_changes: self.changes.forgotten(),
        }
    }

    /// Bottleneck and share that a display shows now for this report: `named`, or that its capture is too
    /// young.
    pub fn name_now(&self, report: &Report, named: (Cause, f64)) -> (&'static str, f64) {
        if self.open.is_empty() { (named.0.name(), named.1) } else { report.name_now(named) }
    }
}
