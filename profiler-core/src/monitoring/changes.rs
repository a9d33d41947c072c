//! Bottlenecks of a monitored run over time.
//!
//! The samples of the last 20 s determine one, or leave it unknown; a burst determines the one of its time. A
//! bottleneck by samples counts once it has been the same for three seconds: while the bottleneck changes,
//! samples contain some of both.

use gpuwhy_trace::record::Timestamp;

use crate::leaf::Cause;
use crate::monitoring::MonitoredTime;

/// Interval between two evaluations of the samples, nanoseconds.
const EVERY: u64 = 1_000_000_000;
/// Consecutive evaluations that must find the same bottleneck.
const CONFIRMED: u32 = 3;
/// Maximum number of changes kept, the newest.
const KEPT: usize = 64;

/// A bottleneck and when it started.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BottleneckChange {
    /// Start, as far as known.
    #[cfg_attr(feature = "serde", serde(rename = "at_unix_ns"))]
    pub at: Timestamp,
    /// The bottleneck.
    pub cause: Cause,
    /// Its share of the time, 0 to 1: the lower bound from samples, or the share in the burst.
    pub share: f64,
    /// Burst that determined it; `None` for samples.
    #[cfg_attr(feature = "serde", serde(rename = "capture"))]
    pub burst: Option<u32>,
}

/// Bottlenecks of a run in order of time.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    rows: Vec<BottleneckChange>,
    forgotten: u64,
    due: u64,
    names_one: bool,
    /// Bottleneck by samples, since when, and the number of consecutive evaluations that found it.
    named: Option<(BottleneckChange, u32)>,
}

impl Changes {
    /// True if the samples should be evaluated now.
    pub fn is_due(&self, at: Timestamp) -> bool {
        at.nanos() >= self.due
    }

    /// Adds the result of the samples of the last 20 s before `at`.
    pub fn sampled(&mut self, at: Timestamp, recent: Option<&MonitoredTime>) {
        self.due = at.nanos().saturating_add(EVERY);
        let bottleneck = recent.map_or(Cause::CannotTell, |recent| recent.bottleneck);
        self.names_one = bottleneck != Cause::CannotTell;
        if !self.names_one {
            self.named = None;
            return;
        }
        let share = recent.and_then(|recent| recent.part(bottleneck)).map_or(0.0, |part| part.low);
        let (mut change, times) = match self.named {
            Some((change, times)) if change.cause == bottleneck => (change, times.saturating_add(1)),
            _ => (BottleneckChange { at, cause: bottleneck, share, burst: None }, 1),
        };
        change.share = share;
        self.named = Some((change, times));
        if times >= CONFIRMED {
            self.enter(change);
        }
    }

    /// Adds the result of a burst.
    pub fn recorded(&mut self, change: BottleneckChange) {
        if !matches!(change.cause, Cause::CannotTell | Cause::NoWork) {
            self.enter(change);
        }
    }

    fn enter(&mut self, change: BottleneckChange) {
        match self.rows.last_mut() {
            Some(last) if last.cause == change.cause => last.share = change.share,
            // Samples of the newest seconds still show what a burst has seen end.
            Some(last) if change.burst.is_none() && change.at < last.at => {}
            _ => {
                if self.rows.len() >= KEPT {
                    self.rows.remove(0);
                    self.forgotten += 1;
                }
                self.rows.push(change);
            }
        }
    }

    /// True if samples determine a bottleneck now.
    pub fn names_one(&self) -> bool {
        self.names_one
    }

    /// Newest changes, in order.
    pub fn rows(&self) -> &[BottleneckChange] {
        &self.rows
    }

    /// Number of changes that are not kept.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitoring::MonitoredPart;

    fn named(cause: Cause) -> MonitoredTime {
        MonitoredTime {
            window_ns: 1,
            start_up_ns: 0,
            parts: vec![MonitoredPart { cause, nanos: 1, low: 0.5, high: 0.6 }],
            unresolved_ns: 0,
            busy: (0.5, 0.5),
            covered: 1.0,
            samples: (1, 1),
            bottleneck: cause,
        }
    }

    #[test]
    fn samples_count_once_they_have_said_the_same_thrice_and_bursts_at_once() {
        let mut changes = Changes::default();
        let mut second = 0;
        let mut see = |changes: &mut Changes, cause: Cause, times: u64| {
            for _ in 0..times {
                second += 1;
                let at = Timestamp::from_nanos(second * EVERY);
                assert!(changes.is_due(at));
                changes.sampled(at, Some(&named(cause)));
                assert!(!changes.is_due(at));
            }
        };
        see(&mut changes, Cause::Launch, 2);
        see(&mut changes, Cause::CannotTell, 1);
        assert!(changes.rows().is_empty() && !changes.names_one());
        let burst =
            |cause, number| BottleneckChange { at: Timestamp::from_nanos(1), cause, share: 0.4, burst: Some(number) };
        changes.recorded(burst(Cause::CannotTell, 1));
        changes.recorded(burst(Cause::Launch, 2));
        see(&mut changes, Cause::Launch, 5);
        see(&mut changes, Cause::DataLoading, 2);
        see(&mut changes, Cause::GpuCompute, 4);
        let rows: Vec<_> = changes.rows().iter().map(|row| (row.cause, row.burst, row.at.nanos() / EVERY)).collect();
        assert_eq!(rows, [(Cause::Launch, Some(2), 0), (Cause::GpuCompute, None, 11)]);
        assert_eq!(changes.rows()[0].share, 0.5, "the newest share of it");
        assert!(changes.names_one());
        for number in 0..100 {
            changes.recorded(burst(if number % 2 == 0 { Cause::Copy } else { Cause::Sync }, number));
        }
        assert_eq!((changes.rows().len(), changes.forgotten()), (KEPT, 38));
    }

    #[test]
    fn samples_from_before_a_burst_change_nothing_after_it() {
        let mut changes = Changes::default();
        let at = |second: u64| Timestamp::from_nanos(second * EVERY);
        (1..6).for_each(|second| changes.sampled(at(second), Some(&named(Cause::GpuCompute))));
        changes.recorded(BottleneckChange { at: at(6), cause: Cause::Sync, share: 0.4, burst: Some(1) });
        // The newest time is still mostly that of before.
        (7..12).for_each(|second| changes.sampled(at(second), Some(&named(Cause::GpuCompute))));
        let causes = |changes: &Changes| changes.rows().iter().map(|row| row.cause).collect::<Vec<_>>();
        assert_eq!(causes(&changes), [Cause::GpuCompute, Cause::Sync]);
        // Samples that begin to say so later count.
        (12..16).for_each(|second| changes.sampled(at(second), Some(&named(Cause::Copy))));
        assert_eq!(causes(&changes), [Cause::GpuCompute, Cause::Sync, Cause::Copy]);
    }
}
