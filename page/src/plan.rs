//! Selection of the timeline data that is worth its bytes.
//!
//! Sums of the complete run are always included. Events are, if they fit; otherwise those of windows selected
//! by the bottleneck.

use std::sync::Arc;

use gpuwhy_report::run::Report;
use gpuwhy_report::text_format::duration;
use gpuwhy_trace::dictionary::Dictionary;

use crate::lane::KeptEvents;
use crate::options::{Detail, Options};
use crate::prescan::{Extent, Prescan};
use crate::simulated::SimulationPlan;
use crate::sums::Intervals;

/// Estimated tenths of a byte of text per record: 42 to 62 on recorded runs (`benches/page.sh TRACE`),
/// including the device segments that the record causes.
const EVENT_TENTHS: u64 = 62;
/// Fraction of the room that is planned for, if not all events fit.
const FILLED: f64 = 0.7;
/// Number of typical steps, and of the slowest ones, that windows show.
const STEPS: usize = 3;
/// Time around each of the longest gaps, nanoseconds.
const AROUND: u64 = 1_000_000;
/// Maximum number of intervals of the device lanes, all devices together; and minimum number of events per
/// interval.
const INTERVALS: usize = 131_072;
const EVENTS_PER_INTERVAL: u64 = 16;
const FEWEST_INTERVALS: usize = 1_024;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Plan {
    /// Start of the timeline, nanoseconds since the Unix epoch.
    pub(crate) origin: u64,
    pub(crate) window: u64,
    pub(crate) shown: Option<u32>,
    pub(crate) kept: KeptEvents,
    pub(crate) intervals: Intervals,
    pub(crate) simulated: SimulationPlan,
    /// Names that replace those of the trace.
    pub(crate) marked: Option<Arc<Dictionary>>,
    /// Number of records that become events.
    pub(crate) records: u64,
    /// True if nodes of CUDA graphs have origins.
    pub(crate) has_origins: bool,
    /// Omitted data, and how to get it.
    pub(crate) left_out: Vec<String>,
}

impl Plan {
    /// Names that the page uses; `of_trace` are those that the trace has up to now.
    pub(crate) fn names<'a>(&'a self, of_trace: &'a Dictionary) -> &'a Dictionary {
        self.marked.as_deref().unwrap_or(of_trace)
    }

    pub(crate) fn new(report: &Report, prescan: &Prescan, options: &Options) -> Self {
        let shown = report.captures.shown;
        let extent = prescan.extent(shown, report.observed_ns).unwrap_or(Extent { first: 0, last: 0, events: 0 });
        let Extent { first: origin, last, events } = extent;
        let window = last.saturating_sub(origin);
        let most = (events / EVENTS_PER_INTERVAL).clamp(FEWEST_INTERVALS as u64, INTERVALS as u64) as usize;
        let devices = report.devices.len().max(1).next_power_of_two();
        let intervals = Intervals::of(window, (most / devices).max(FEWEST_INTERVALS));
        let needed = (events / 10).saturating_mul(EVENT_TENTHS);
        let fits = needed <= options.max_bytes;
        let windows = match options.detail {
            Detail::All => None,
            Detail::Auto if fits => None,
            Detail::Auto => {
                // Events may be denser than on average, and windows come last.
                let most = (window as f64 * options.max_bytes as f64 * FILLED / needed as f64) as u64;
                Some(filled(chosen(report, prescan, origin, last), most, window))
            }
            Detail::Windows => Some(chosen(report, prescan, origin, last)),
            Detail::None => Some(Vec::new()),
        };
        let mut left_out = Vec::new();
        if let Some(windows) = &windows {
            let kept: u64 = windows.iter().map(|(from, to)| to - from).sum();
            left_out.push(format!(
                "This page has the sums of the whole run, and single events of {} of {} ({} windows: typical and \
                 slow steps, the longest gaps, and those of the bottleneck). For the events of all {} records: \
                 --detail all --max-size {}.",
                duration(kept),
                duration(window),
                windows.len(),
                events,
                twice(needed),
            ));
        }
        Self {
            origin,
            window,
            shown,
            kept: KeptEvents { windows, most_bytes: options.max_bytes },
            intervals,
            simulated: SimulationPlan::new(report),
            marked: prescan.marked().cloned(),
            records: events,
            has_origins: report.graph_origins.is_some(),
            left_out,
        }
    }
}

/// Three typical steps, the three slowest, the surroundings of the longest gaps and the end of start-up, as
/// time after `origin`: disjoint, in order.
fn chosen(report: &Report, prescan: &Prescan, origin: u64, last: u64) -> Vec<(u64, u64)> {
    let mut windows = Vec::new();
    for device in &report.devices {
        let Some(steps) = &device.steps else { continue };
        let mut rows: Vec<_> = steps.rows.iter().collect();
        rows.sort_by_key(|row| row.duration());
        let middle = rows.len() / 2;
        let typical = rows.iter().skip(middle.saturating_sub(1)).take(STEPS);
        let slowest = rows.iter().rev().take(STEPS);
        windows.extend(typical.chain(slowest).map(|row| (row.start.nanos(), row.end.nanos())));
        windows.extend(rows.iter().map(|row| (row.start.nanos(), row.end.nanos())).min());
    }
    let gaps = prescan.gaps(report.captures.shown, report.bottleneck.cause);
    windows.extend(gaps.map(|(from, to)| (from.saturating_sub(AROUND), to.saturating_add(AROUND))));
    let clipped = windows.into_iter().map(|(from, to)| (from.max(origin) - origin, to.clamp(origin, last) - origin));
    joined(clipped.filter(|(from, to)| from < to).collect())
}

/// `windows` plus time around the middle of the run, together about `most` nanoseconds of its `window`.
fn filled(mut windows: Vec<(u64, u64)>, most: u64, window: u64) -> Vec<(u64, u64)> {
    let chosen: u64 = windows.iter().map(|(from, to)| to - from).sum();
    let half = most.saturating_sub(chosen) / 2;
    if half > 0 {
        windows.push(((window / 2).saturating_sub(half), (window / 2 + half).min(window)));
    }
    joined(windows)
}

/// Argument of `--max-size` for twice as many bytes: events of short runs take more than the estimate.
pub(crate) fn twice(bytes: u64) -> String {
    format!("{}M", bytes.saturating_mul(2).div_ceil(1_000_000).max(1))
}

/// Sorts windows by time, and merges adjacent ones.
fn joined(mut windows: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    windows.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in windows {
        match joined.last_mut() {
            Some(newest) if from <= newest.1 => newest.1 = newest.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_filled_around_the_middle() {
        let windows = vec![(0, 10), (480, 490), (990, 1000)];
        assert_eq!(filled(windows.clone(), 20, 1000), windows);
        assert_eq!(filled(windows.clone(), 230, 1000), [(0, 10), (400, 600), (990, 1000)]);
        assert_eq!(filled(windows, 5000, 1000), [(0, 1000)]);
        assert_eq!(filled(Vec::new(), 0, 0), []);
    }
}
