//! Ranges that the program named, as events: starts and ends arrive as separate records.

use std::collections::BTreeMap;
use std::io;

use gpuwhy_trace::record::{NameId, RangeEvent, RangeEventKind};
use rustc_hash::FxHashMap;

use crate::device::Context;
use crate::lane::{Lane, LaneEvent};
use crate::lost::Lost;
use crate::names::NameKind;

/// Maximum number of lanes, of threads and of ranges that are ended by number; and of open ranges of each.
const LANES: usize = 64;
const OPEN: usize = 4_096;
/// Thread number used for ranges that any thread can end by number.
const BY_NUMBER: u64 = u64::MAX;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct RangeLanes {
    /// By thread.
    lanes: BTreeMap<u64, Lane>,
    /// By thread and domain.
    pushed: FxHashMap<(u32, NameId), Pushed>,
    started: FxHashMap<u64, (u64, NameId)>,
    latest: u64,
    pub(crate) lost: Lost,
}

/// Open ranges of a thread and domain.
#[derive(Debug, Default)]
struct Pushed {
    /// Start and message.
    open: Vec<(u64, NameId)>,
    /// Number of nested ranges above these that had no room; their ends come first.
    beyond: u64,
}

impl RangeLanes {
    pub(crate) fn take(&mut self, range: &RangeEvent, with: &mut Context<'_, '_>) -> io::Result<()> {
        let at = range.at.nanos().saturating_sub(with.origin);
        self.latest = self.latest.max(at);
        let key = (range.thread.0, range.domain);
        match range.kind {
            RangeEventKind::Push => {
                let pushed = self.pushed.entry(key).or_default();
                if pushed.open.len() < OPEN {
                    pushed.open.push((at, range.message));
                } else {
                    pushed.beyond += 1;
                    self.lost.ranges_too_many += 1;
                }
            }
            RangeEventKind::Pop => {
                let pushed = self.pushed.entry(key).or_default();
                if pushed.beyond > 0 {
                    pushed.beyond -= 1;
                } else if let Some((begin, message)) = pushed.open.pop() {
                    let level = pushed.open.len();
                    self.ended(range.thread.0.into(), (begin, at), message, level, with)?;
                } else {
                    self.lost.ranges_unmatched += 1;
                }
            }
            RangeEventKind::Start if self.started.len() < OPEN => {
                let replaced = self.started.insert(range.range_id, (at, range.message));
                self.lost.ranges_unmatched += u64::from(replaced.is_some());
            }
            RangeEventKind::End => {
                if let Some((begin, message)) = self.started.remove(&range.range_id) {
                    self.ended(BY_NUMBER, (begin, at), message, 0, with)?;
                } else {
                    self.lost.ranges_unmatched += 1;
                }
            }
            RangeEventKind::Mark => self.ended(range.thread.0.into(), (at, at), range.message, 0, with)?,
            RangeEventKind::Start => self.lost.ranges_too_many += 1,
            RangeEventKind::Unknown => self.lost.ranges_unmatched += 1,
        }
        Ok(())
    }

    fn ended(
        &mut self,
        thread: u64,
        (begin, end): (u64, u64),
        message: NameId,
        level: usize,
        with: &mut Context<'_, '_>,
    ) -> io::Result<()> {
        if self.lanes.len() >= LANES && !self.lanes.contains_key(&thread) {
            self.lost.without_row += 1;
            return Ok(());
        }
        let lane = self.lanes.entry(thread).or_insert_with(|| {
            let id = if thread == BY_NUMBER { 0 } else { thread };
            Lane::new("ranges", None, id, &["name", "level"]).named("ranges".to_owned())
        });
        lane.levels = lane.levels.max(level as u64 + 1);
        let name = with.names.name(NameKind::Range, message, with.dictionary);
        let event = LaneEvent { begin, duration: end.saturating_sub(begin), ..LaneEvent::default() };
        lane.push(event.with([name.into(), level as u64]), with.kept, with.blocks)
    }

    /// Writes all lanes; ranges that are still open end with the newest event.
    pub(crate) fn finish(&mut self, with: &mut Context<'_, '_>) -> io::Result<()> {
        let mut open: Vec<_> = std::mem::take(&mut self.pushed).into_iter().collect();
        open.sort_unstable_by_key(|&((thread, domain), _)| (thread, domain));
        let latest = self.latest;
        for ((thread, _), ranges) in open {
            for (level, (begin, message)) in ranges.open.into_iter().enumerate() {
                self.ended(thread.into(), (begin, latest), message, level, with)?;
            }
        }
        let mut started: Vec<_> = std::mem::take(&mut self.started).into_iter().collect();
        started.sort_unstable_by_key(|&(id, _)| id);
        for (_, (begin, message)) in started {
            self.ended(BY_NUMBER, (begin, latest), message, 0, with)?;
        }
        self.lanes.values_mut().try_for_each(|lane| {
            lane.name_thread(with.dictionary);
            lane.flush(with.kept, with.blocks)
        })
    }

    pub(crate) fn into_lanes(self) -> impl Iterator<Item = Lane> {
        self.lanes.into_values()
    }
}
