//! The largest part of the CPU work between launches: what it is, what to do, and what that gains.

use gpuwhy_trace::record::CopyKind;
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::whatif::{Removed, ScenarioKind, WORTH_DOING, limited};

use super::host::writes_checkpoints;
use crate::run::{DeviceReport, HostReport, LineRow};
use crate::text_format::names::short_path;

/// Lines of one function that are at most this far apart are one part.
const NEAR_LINES: u32 = 2;
/// Parts of the step without the line that remain, relative to what its share of the idle time leaves: the
/// median and the least of nine programs whose line was removed (1.0 at most). A CPU that is further ahead
/// also hides other delays.
const REMAINS: (f64, f64) = (0.82, 0.58);
/// Share from which that is so, the least of these programs; of less, in proportion.
const MEASURED_SHARE: f64 = 1.0 / 3.0;

/// The largest part of the CPU work between launches.
pub(super) struct MainWork {
    /// Recommended change, in words that follow a number.
    pub(super) action: String,
    /// What the thread does there most.
    pub(super) cause: HostCause,
    /// False for the work of a framework.
    pub(super) is_own: bool,
    /// Share of the steady time in which the GPU was idle because of it, or made its copies, 0 to 1, with its 95 %
    /// interval.
    share: (f64, f64, f64),
    /// Speedup of a step with nothing but the work of the GPU that stays.
    most: f64,
    /// What goes with it.
    removed: Removed,
}

/// True if the program itself does more of the CPU work between launches than its largest part, at named lines.
pub(super) fn has_more(host: &HostReport) -> bool {
    let own = |row: &&LineRow| row.is_evident() && !row.file.is_empty() && !row.is_backward() && !row.is_of_framework();
    let mut rows = host.lines_of(Cause::HostCpu);
    let first = rows.next();
    rows.filter(own).any(|row| first.is_none_or(|first| row.cause != first.cause || !is_near(row, first)))
}

/// Speedup of a program without work that takes this share of the steady time, 0 to 1.
pub(super) fn gain_without(share: f64) -> f64 {
    speedup(share, REMAINS.0)
}

fn speedup(share: f64, remains: f64) -> f64 {
    let remains = 1.0 - (1.0 - remains) * (share / MEASURED_SHARE).min(1.0);
    1.0 / (remains * (1.0 - share.min(0.99)))
}

impl MainWork {
    /// `None` if no part is half of that work, or if it is not one that a program can do without.
    pub(super) fn of(host: &HostReport, devices: &[DeviceReport]) -> Option<Self> {
        let rows = || host.lines_of(Cause::HostCpu);
        let first = rows().next().filter(|row| row.is_evident() && !row.is_backward())?;
        let anywhere =
            matches!(first.cause, HostCause::Preempted | HostCause::InterpreterLock | HostCause::GarbageCollection);
        let of_part = |row: &&LineRow| match anywhere {
            true => row.cause == first.cause,
            false => is_near(row, first),
        };
        let sum = |rows: &mut dyn Iterator<Item = &LineRow>| rows.map(|row| row.total_ns).sum::<u64>();
        if 2 * sum(&mut rows().filter(of_part)) < sum(&mut rows()) {
            return None;
        }
        let part = || rows().filter(of_part);
        let share: f64 = part().map(|row| row.share).sum();
        // The rows come from different samples.
        let off = |end: fn(&LineRow) -> f64| part().map(|row| (end(row) - row.share).powi(2)).sum::<f64>().sqrt();
        let (below, above) = (off(|row| row.share_low), off(|row| row.share_high));
        let mut share = (share, (share - below).max(0.0), share + above);
        let mut removed = Removed::of(ScenarioKind::NoHostWork);
        if writes_checkpoints(host) {
            // The copies to the CPU are its part, too, and most of the waits.
            let copies = of_steady(devices, |leaf| leaf.copy_kind() == Some(CopyKind::DeviceToHost));
            let waits = of_steady(devices, |leaf| leaf == Leaf::SyncDrain);
            share = (share.0 + copies + waits, share.1 + copies, share.2 + copies + waits);
            removed = removed.and(ScenarioKind::ReadsReduced);
        }
        share.2 = share.2.min(0.99);
        let busy = devices.iter().filter_map(|device| Some(device.what_if.as_ref()?.busy));
        let most = busy.map(|busy| busy.most(removed)).fold(f64::INFINITY, f64::min);
        let is_own = !first.is_of_framework();
        Some(Self {
            action: action(first, part().map(|row| row.line)),
            cause: first.cause,
            is_own,
            share,
            most,
            removed,
        })
    }

    /// True if removing only this is worth a step, and so is removing the rest, with which the program is
    /// `whole` times as fast.
    pub(super) fn is_worth(&self, whole: f64) -> bool {
        let (part, _) = self.gain();
        part >= WORTH_DOING && whole >= part * WORTH_DOING
    }

    /// Speedup of the program without it, with the interval that contains nine of ten programs.
    pub(super) fn gain(&self) -> (f64, (f64, f64)) {
        let (share, low, high) = self.share;
        let interval = (speedup(low, 1.0), speedup(high, REMAINS.1));
        (gain_without(share).min(self.most), limited(interval, self.most, self.removed))
    }
}

/// Share of the steady time in these leaves, 0 to 1.
fn of_steady(devices: &[DeviceReport], is_one: fn(Leaf) -> bool) -> f64 {
    let sum = |leaves: &mut dyn Iterator<Item = Leaf>| -> u64 {
        leaves.flat_map(|leaf| devices.iter().map(move |device| device.steady_leaves[leaf as usize])).sum()
    };
    sum(&mut Leaf::ALL.into_iter().filter(|&leaf| is_one(leaf))) as f64 / sum(&mut Leaf::ALL.into_iter()).max(1) as f64
}

fn is_near(row: &LineRow, first: &LineRow) -> bool {
    let same = row.file == first.file && row.function == first.function;
    same && row.line.abs_diff(first.line) <= NEAR_LINES
}

fn action(first: &LineRow, lines: impl Iterator<Item = u32>) -> String {
    let (from, to) = lines.fold((u32::MAX, 0), |(from, to), line| (from.min(line), to.max(line)));
    let file = short_path(&first.file);
    let place = match (first.file.is_empty(), from) {
        (true, _) => first.at_place(),
        (false, 0) => format!("in {file}"),
        (false, _) if from < to => format!("at {file}:{from}-{to}"),
        (false, _) => format!("at {file}:{from}"),
    };
    match first.cause {
        HostCause::Sleep => format!("remove the sleep {place}"),
        HostCause::InterpreterLock => "free the interpreter's lock (GIL) for the launching thread".to_owned(),
        HostCause::Preempted => "give the launching thread a free core".to_owned(),
        HostCause::GarbageCollection => "keep garbage collection out of the loop".to_owned(),
        HostCause::Io | HostCause::Disk => format!("move the input or output {place} to another thread"),
        HostCause::Code => format!("move the code {place} out of the loop"),
        _ => format!("do not wait {place}"),
    }
}
