//! Records of the host on their way in: samples of threads, and ranges that the program named.
//!
//! Host samples are judged at once, because their stacks are in the dictionary. Ranges have to be in order before they
//! mean anything, so they are put aside until the flush that passes them.

use super::Attributor;
use super::host_samples::HostSampleView;
use super::ranges::Finding;
use super::sweep::LONGEST_WINDOW;
use crate::dictionary::Dictionary;
use crate::record::{HostSample, MemoryEvent, RangeEvent, Timestamp};

impl Attributor {
    pub(super) fn push_sample(&mut self, sample: &HostSample, dictionary: &Dictionary) {
        self.completeness.samples += 1;
        let (since, at) = (sample.since.nanos(), sample.at.nanos());
        if since == 0 || at < since || at - since > LONGEST_WINDOW {
            self.completeness.bad_timestamps += 1;
            return;
        }
        let class = self.stacks.get(sample.stack, dictionary);
        let thread = self.thread_index(sample.thread);
        let thread = &mut self.threads.rows[thread as usize];
        thread.samples.push(HostSampleView::new(sample, class));
        thread.launch_samples.push(at, sample.stack);
    }

    pub(super) fn push_range(&mut self, event: &RangeEvent, dictionary: &Dictionary) {
        self.completeness.ranges += 1;
        if event.at == Timestamp::ZERO {
            self.completeness.bad_timestamps += 1;
            return;
        }
        let thread = self.thread_index(event.thread);
        self.ranges.push(event, thread, dictionary);
    }

    pub(super) fn push_memory(&mut self, event: &MemoryEvent) {
        self.completeness.memory_events += 1;
        if event.at == Timestamp::ZERO {
            self.completeness.bad_timestamps += 1;
            return;
        }
        self.memory.push(event);
    }

    /// Places the range events up to `horizon`, before the timelines advance to it.
    pub(super) fn place_ranges(&mut self, horizon: u64) {
        for finding in self.ranges.advance(horizon) {
            match finding {
                Finding::Step { thread, at } => self.marks.push(thread, Timestamp::from_nanos(at)),
                Finding::LoaderBegins { thread, at, cause } => {
                    self.threads.rows[thread as usize].samples.enter_loader(at, cause);
                }
                Finding::LoaderEnds { thread, at } => self.threads.rows[thread as usize].samples.leave_loader(at),
            }
        }
        let ranges = &self.ranges;
        self.memory.place(|thread, at| ranges.innermost(thread, at));
    }
}
