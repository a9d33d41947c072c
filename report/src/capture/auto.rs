//! What mode auto adds: the whole run as it is monitored, and bursts beside it; and what a display names.

use gpuwhy_trace::record::Timestamp;
use profiler_core::attribution::leaf::Group;
use profiler_core::monitoring::{Change, MonitorView};

use super::{Captures, MONITORED, ROW_LIMIT};
use crate::run::{BurstRow, BurstTable, CaptureRow, Report};

impl Captures {
    /// What decides about bursts: in mode auto, else `None`.
    pub fn monitor_view(&self) -> Option<MonitorView> {
        let monitored = self.open.iter().find(|capture| capture.row.number == MONITORED)?;
        let burst = self.open.iter().rev().find(|capture| capture.row.trigger.is_burst());
        let steps = burst.and_then(|burst| burst.attributor.devices().map(|account| account.steps().seen).max());
        Some(MonitorView {
            names_one: self.changes.names_one(),
            busy: monitored.monitoring.busy_second(),
            burst_steps: steps.unwrap_or(0),
        })
    }

    /// Looks at what samples name, once a second.
    pub(super) fn watch_changes(&mut self, at: Timestamp) {
        let monitored = self.open.iter().find(|capture| capture.row.number == MONITORED);
        if let Some(monitored) = monitored.filter(|_| self.changes.is_due(at)) {
            let recent = monitored.monitoring.recent_time();
            self.changes.sampled(at, recent.as_ref());
        }
    }

    /// A capture has ended: what it came to, if it is a burst.
    pub(super) fn note_burst(&mut self, row: &CaptureRow, report: &Report) {
        if !row.trigger.is_burst() {
            return;
        }
        let burst = BurstRow::of(row, report);
        self.changes.recorded(Change {
            at: burst.begin,
            group: burst.group,
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

    /// What a display names now for this report, with its share: `named`, or that its capture is too young.
    pub fn name_now(&self, report: &Report, named: (Group, f64)) -> (&'static str, f64) {
        if self.open.is_empty() { (named.0.name(), named.1) } else { report.name_now(named) }
    }
}
