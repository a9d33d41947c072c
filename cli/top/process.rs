//! One process of a display: its most recent response, and the earlier totals for the tables of the last
//! minute.

use std::collections::VecDeque;
use std::fmt;

use profiler_core::leaf::Cause;

use super::answer::{CAUSES, StatusReply, TotalsRow, Window, tables};
use gpuwhy_report::state::{Live, Status};

/// Number of totals kept: a minute at one response per second.
const KEPT: usize = 61;
/// The tables cover the last minute.
const MINUTE_NS: u64 = 60_000_000_000;

/// Identifies a process: its host, as the source calls it (empty for this host), and its name on that host.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessKey {
    pub host: String,
    pub process: String,
}

impl fmt::Display for ProcessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.as_str() {
            "" => f.write_str(&self.process),
            host => write!(f, "{host}:{}", self.process),
        }
    }
}

/// Availability of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    #[default]
    Here,
    /// The process does not respond; with a possible reason.
    Silent(String),
    /// The process has ended.
    Ended,
}

/// Tables of the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessTable {
    #[default]
    Kernels,
    Lines,
    Ranges,
}

/// Row of a table of the last minute.
#[derive(Clone, Debug, PartialEq)]
pub struct Recent {
    pub name: String,
    pub count: Option<u64>,
    pub nanos: u64,
    /// Share of the time of all devices, 0 to 1; more if several kernels or ranges overlapped. `None` before
    /// any time is attributed.
    pub share: Option<f64>,
}

/// Totals at one time.
#[derive(Clone, Debug, Default)]
struct Totals {
    observed_ns: u64,
    /// Sum of the windows of all devices.
    devices_ns: u64,
    tables: [Vec<TotalsRow>; 3],
}

#[derive(Clone, Debug, Default)]
pub struct ProcessView {
    pub key: ProcessKey,
    pub presence: Presence,
    pub status: Status,
    /// Most recent response to `live`; kept after measuring is finished.
    pub live: Option<Live>,
    totals: VecDeque<Totals>,
}

impl ProcessView {
    /// Creates a process without data.
    pub fn new(key: ProcessKey) -> Self {
        Self { key, ..Self::default() }
    }

    pub fn take(&mut self, answer: StatusReply) {
        self.presence = Presence::Here;
        self.status = answer.status;
        let Some(live) = answer.live else { return };
        let devices_ns = live.devices.iter().map(|device| device.window_ns).fold(0, u64::saturating_add);
        let totals = Totals { observed_ns: live.observed_ns, devices_ns, tables: tables(&live) };
        self.live = Some(live);
        let newest = self.totals.back();
        // Another capture counts from its own start.
        if newest.is_some_and(|newest| newest.observed_ns > totals.observed_ns || newest.devices_ns > devices_ns) {
            self.totals.clear();
        }
        // A response may arrive twice.
        if self.totals.back().is_none_or(|newest| newest.observed_ns < totals.observed_ns) {
            self.totals.push_back(totals);
        }
        let oldest = |kept: &VecDeque<Totals>| kept.get(1).map(|totals| totals.observed_ns);
        let now = self.totals.back().map_or(0, |totals| totals.observed_ns);
        while self.totals.len() > KEPT || oldest(&self.totals).is_some_and(|oldest| now - oldest >= MINUTE_NS) {
            self.totals.pop_front();
        }
    }

    /// Bottleneck and its share; the cause is `None` for a name that only another version knows.
    pub fn bottleneck(&self) -> (Option<Cause>, f64) {
        let (name, share) = match &self.live {
            Some(live) => (&live.live_bottleneck, live.live_share),
            None => (&self.status.bottleneck, self.status.share),
        };
        (Cause::ALL.into_iter().find(|cause| cause.name() == name), share)
    }

    /// Time that the tables cover, nanoseconds: at most the last minute. Until two responses have arrived,
    /// the complete run.
    pub fn recent_ns(&self) -> u64 {
        self.ends().map_or(0, |(before, now)| now.observed_ns - before.observed_ns)
    }

    /// True if [`recent`](Self::recent) covers the complete run.
    pub fn is_complete(&self) -> bool {
        self.ends().is_none_or(|(before, _)| before.observed_ns == 0)
    }

    /// Rows of the last minute, longest time first; rows without time are omitted.
    pub fn recent(&self, table: ProcessTable) -> Vec<Recent> {
        let Some((before, now)) = self.ends() else { return Vec::new() };
        let devices_ns = now.devices_ns - before.devices_ns;
        let old = &before.tables[table as usize];
        // A row that was not listed had less time than the last listed row.
        let unlisted = if old.len() >= 16 { old.last().map_or(0, |row| row.total_ns) } else { 0 };
        let recent = |row: &TotalsRow| {
            let then = old.iter().find(|then| then.name == row.name);
            let nanos = row.total_ns.saturating_sub(then.map_or(unlisted, |then| then.total_ns));
            let count = row.count.map(|count| count.saturating_sub(then.and_then(|then| then.count).unwrap_or(0)));
            let share = (devices_ns > 0).then(|| nanos as f64 / devices_ns as f64);
            Recent { name: row.name.clone(), count, nanos, share }
        };
        let mut rows: Vec<_> = now.tables[table as usize].iter().map(recent).filter(|row| row.nanos > 0).collect();
        rows.sort_by(|a, b| b.nanos.cmp(&a.nanos).then_with(|| a.name.cmp(&b.name)));
        rows
    }

    fn ends(&self) -> Option<(Totals, &Totals)> {
        let now = self.totals.back()?;
        // At the very start, the tables are ahead of the attributed time.
        let before = self.totals.front().filter(|before| before.observed_ns > 0 && self.totals.len() > 1);
        Some((before.cloned().unwrap_or_default(), now))
    }
}

/// Intervals of a device that ended less than a minute before the end of the newest one, oldest first.
pub fn last_minute(windows: &[Window]) -> &[Window] {
    let newest = windows.last().map_or(0, |window| window.end_ns);
    let first = windows.partition_point(|window| window.end_ns + MINUTE_NS <= newest);
    &windows[first..]
}

/// Sum of the intervals by cause, microseconds.
pub fn sums(windows: &[Window]) -> [u64; CAUSES] {
    let mut sums = [0_u64; CAUSES];
    for window in windows {
        sums.iter_mut().zip(window.causes).for_each(|(sum, time)| *sum = sum.saturating_add(time));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_report::state::{DeviceState, KernelTotal};

    fn answer(observed_s: u64, rows: &[(&str, u64)]) -> StatusReply {
        let row = |&(name, total_ns): &(&str, u64)| KernelTotal { name: name.to_owned(), count: total_ns, total_ns };
        let observed_ns = observed_s * 1_000_000_000;
        let devices = vec![DeviceState { window_ns: observed_ns, ..DeviceState::default() }];
        let top_kernels = rows.iter().map(row).collect();
        let live = Live { observed_ns, devices, top_kernels, ..Live::default() };
        StatusReply { live: Some(live), ..StatusReply::default() }
    }

    #[test]
    fn a_table_is_about_the_last_minute_at_most() {
        let mut process = ProcessView::default();
        process.take(answer(100, &[("a", 50)]));
        assert!(process.is_complete());
        assert_eq!(process.recent(ProcessTable::Kernels)[0].nanos, 50, "all there is");
        for second in 101..=200 {
            process.take(answer(second, &[("a", 50), ("b", 1_000_000_000 * (second - 100))]));
        }
        assert_eq!(process.recent_ns(), MINUTE_NS);
        let rows = process.recent(ProcessTable::Kernels);
        assert_eq!((rows.len(), rows[0].name.as_str(), rows[0].nanos), (1, "b", MINUTE_NS));
        assert!(rows[0].share.is_some_and(|share| (share - 1.0).abs() < 1e-9) && !process.is_complete());
        assert!(process.totals.len() <= KEPT);
        assert!(process.recent(ProcessTable::Lines).is_empty());
    }

    #[test]
    fn a_table_that_is_ahead_of_the_time_has_no_shares() {
        let mut process = ProcessView::default();
        process.take(answer(0, &[("a", 50)]));
        assert_eq!(process.recent(ProcessTable::Kernels)[0].share, None);
        process.take(answer(100, &[("a", 70)]));
        assert_eq!((process.is_complete(), process.recent(ProcessTable::Kernels)[0].nanos), (true, 70), "not 20");
    }

    #[test]
    fn another_capture_begins_anew_and_the_end_keeps_what_was_known() {
        let mut process = ProcessView::default();
        process.take(answer(100, &[("a", 50)]));
        process.take(answer(101, &[("a", 60)]));
        process.take(answer(3, &[("a", 7)]));
        assert_eq!((process.is_complete(), process.recent(ProcessTable::Kernels)[0].nanos), (true, 7));
        let status = Status { state: "finished".to_owned(), ..Status::default() };
        process.take(StatusReply { status, live: None });
        assert_eq!((process.status.state.as_str(), process.recent(ProcessTable::Kernels).len()), ("finished", 1));
    }

    #[test]
    fn intervals_of_the_last_minute_are_reported_by_their_ends() {
        let window = |second: u64| Window { end_ns: second * 1_000_000_000, causes: [1; CAUSES] };
        let windows: Vec<_> = [1, 30, 61, 62, 90].map(window).to_vec();
        assert_eq!(last_minute(&windows).len(), 3);
        assert_eq!(sums(last_minute(&windows)), [3; CAUSES]);
        assert!(last_minute(&[]).is_empty());
    }
}
