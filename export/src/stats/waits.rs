//! What the launching threads waited in, under the name and with the columns of nsys's `osrt_sum`.
//!
//! nsys counts calls of the C library; a trace of gpuwhy has looks at threads, some hundred a second. So a row is what
//! the kernel said the thread slept in and not a function, looks of a thread that follow each other in the same wait
//! count as one, and waits shorter than the time between two looks are seldom seen. The report says so above its table.

use profiler_core::record::{HostSample, Record, ThreadId, ThreadState};
use profiler_core::trace::Item;
use rustc_hash::FxHashMap;

use super::columns::times;
use super::distribution::Distribution;
use super::input::{Input, Notes};
use super::table::Cell;
use crate::error::ExportError;

/// What the kernel calls it, in the words of the functions that a program would have called.
const fn name(state: ThreadState) -> Option<&'static str> {
    match state {
        ThreadState::Futex => Some("futex (lock, condition, queue)"),
        ThreadState::Poll => Some("poll, select, epoll_wait"),
        ThreadState::Io => Some("read, write"),
        ThreadState::Disk => Some("storage"),
        ThreadState::Sleep => Some("nanosleep"),
        ThreadState::Child => Some("waitpid"),
        ThreadState::Memory => Some("page fault, mmap"),
        ThreadState::Driver => Some("ioctl"),
        ThreadState::Other => Some("other"),
        ThreadState::Running | ThreadState::Unknown => None,
    }
}

/// A wait that may go on at the next look.
#[derive(Clone, Copy, Debug)]
struct Wait {
    state: ThreadState,
    until: u64,
    nanos: u64,
}

/// Waits by what they were in, the largest total first.
pub(super) fn rows(input: &mut Input<'_, '_>, notes: &mut Notes) -> Result<Vec<Vec<Cell>>, ExportError> {
    let (filter, unit) = (input.filter, input.unit);
    let mut groups: FxHashMap<&'static str, Distribution> = FxHashMap::default();
    let mut open: FxHashMap<ThreadId, Wait> = FxHashMap::default();
    let mut end = |wait: Wait| {
        if let Some(name) = name(wait.state).filter(|_| wait.nanos > 0) {
            groups.entry(name).or_default().add(wait.nanos);
        }
    };
    let passed = input.trace.pass(input.progress, |item, scope| {
        let Item::Record(Record::Sample(look)) = item else { return Ok::<_, ExportError>(()) };
        if !filter.admits(scope.session.start, look.since, look.at) {
            return Ok(());
        }
        let off = off_core(look);
        match open.get_mut(&look.thread) {
            Some(wait) if wait.state == look.state && wait.until == look.since.nanos() => {
                wait.nanos = wait.nanos.saturating_add(off);
                wait.until = look.at.nanos();
            }
            _ => {
                let wait = Wait { state: look.state, until: look.at.nanos(), nanos: off };
                open.insert(look.thread, wait).into_iter().for_each(&mut end);
            }
        }
        Ok(())
    })?;
    open.into_values().for_each(&mut end);
    notes.0.extend(passed.notes());
    let all: f64 = groups.values().map(|group| group.total() as f64).sum();
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(name, group)| (std::cmp::Reverse(group.total()), *name));
    let row = |(name, group): (&str, Distribution)| {
        let mut cells = times(&group, all, unit);
        cells.push(Cell::Text(name.to_owned()));
        cells
    };
    Ok(groups.into_iter().map(row).collect())
}

/// Time since the look before in which the thread neither was on a core nor waited for one, nanoseconds.
fn off_core(look: &HostSample) -> u64 {
    look.at.since(look.since).saturating_sub(look.on_cpu).saturating_sub(look.runnable)
}
