//! What was open when: the ranges of one thread and domain over time.
//!
//! Device work comes long after its launch, and idle time is explained later still, so each change of the innermost
//! range is remembered with its time.

use std::collections::VecDeque;

use super::table::Instance;

/// Changes remembered of one lane (24 bytes each, 768 KiB): far more than the device lags the host by.
const CHANGE_LIMIT: usize = 32_768;

/// An open range with a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) node: u32,
    pub(super) instance: Instance,
}

/// From `at` on `open` is the innermost range.
#[derive(Clone, Copy, Debug)]
struct Change {
    at: u64,
    open: Option<Open>,
}

/// The stack of one thread and domain, or one place for a range that is started and ended.
#[derive(Debug, Default)]
pub(super) struct OpenRangeStack {
    /// Open ranges, the innermost last; `None` for one without a row.
    pub(super) stack: Vec<Option<Open>>,
    /// Pushes beyond the deepest that is kept.
    pub(super) too_deep: u64,
    changes: VecDeque<Change>,
    /// Changes were forgotten.
    forgot: bool,
}

impl OpenRangeStack {
    /// The innermost open range that has a row.
    pub(super) fn innermost(&self) -> Option<Open> {
        self.stack.iter().rev().find_map(|open| *open)
    }

    /// The stack changed at `at`, which is not before the change before.
    pub(super) fn changed(&mut self, at: u64) {
        let open = self.innermost();
        self.changes.push_back(Change { at, open });
        if self.changes.len() > CHANGE_LIMIT {
            self.changes.pop_front();
            self.forgot = true;
        }
    }

    /// The innermost range at `time`; an error when that was forgotten.
    pub(super) fn at(&self, time: u64) -> Result<Option<Open>, Forgotten> {
        let index = self.changes.partition_point(|change| change.at <= time);
        match index.checked_sub(1).and_then(|index| self.changes.get(index)) {
            Some(change) => Ok(change.open),
            None if self.forgot => Err(Forgotten),
            None => Ok(None),
        }
    }

    /// The innermost ranges from `from` to `to`, with when they were it; only where there is one.
    pub(super) fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (Open, u64, u64)> {
        let index = self.changes.partition_point(|change| change.at <= from).saturating_sub(1);
        let ends = self
            .changes
            .range((index + 1).min(self.changes.len())..)
            .map(|next| next.at)
            .chain(std::iter::once(u64::MAX));
        let parts = self.changes.range(index.min(self.changes.len())..).zip(ends);
        parts.take_while(move |(change, _)| change.at < to).filter_map(move |(change, end)| {
            let (from, to) = (change.at.max(from), end.min(to));
            change.open.filter(|_| from < to).map(|open| (open, from, to))
        })
    }
}

/// What was open then is no longer known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forgotten;
