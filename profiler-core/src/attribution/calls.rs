//! API calls on their way in: in order by thread, told apart from those made inside others, and known to the rest of
//! the engine as launches, as time in a function, and as what ends a host gap of their thread.
//!
//! A call is placed by the first flush that passes its end: until then one around it may be missing.

use super::api::ApiClass;
use super::join::Launch;
use super::launch_lines::SampledCall;
use super::threads::Nesting;
use super::{Attributor, is_no_time};
use crate::dictionary::Dictionary;
use crate::record::{ApiCall, Overhead, OverheadKind, ThreadId, Timestamp};
use crate::thresholds::FUTURE_NANOS;

impl Attributor {
    pub(super) fn push_call(&mut self, mut call: ApiCall) {
        self.completeness.api_calls += 1;
        if is_no_time(call.start.nanos()) || is_no_time(call.end.nanos()) {
            self.completeness.bad_timestamps += 1;
            return;
        }
        if call.end < call.start {
            self.completeness.clamped_clocks += 1;
            call.end = call.start;
        }
        let thread = self.thread_index(call.thread);
        self.threads.rows[thread as usize].push(call);
    }

    /// Only what tracing itself costs a thread is kept: module loading and the like are the program's own doing and
    /// show as API time.
    pub(super) fn push_overhead(&mut self, overhead: &Overhead) {
        self.completeness.overheads += 1;
        let by_tracing = matches!(
            overhead.kind,
            OverheadKind::BufferFlush
                | OverheadKind::Instrumentation
                | OverheadKind::Resource
                | OverheadKind::ActivityBufferRequest
                | OverheadKind::UnifiedMemoryInit
        );
        if by_tracing && overhead.thread.0 != 0 && overhead.start != Timestamp::ZERO {
            let thread = self.thread_index(overhead.thread);
            self.threads.rows[thread as usize].push_overhead(overhead.start.nanos(), overhead.end.nanos());
        }
    }

    /// Places the calls that ended up to `horizon`, and all that began up to `begun`, complete or not.
    pub(super) fn place_calls(&mut self, horizon: u64, begun: u64, dictionary: &Dictionary) {
        let latest = self.newest_flush.saturating_add(FUTURE_NANOS);
        let threads = self.threads.rows.len();
        for index in 0..self.threads.rows.len() {
            let mut newest_launch = None;
            self.threads.rows[index].sort_pending();
            while let Some(call) = self.threads.rows[index].take_next(horizon, latest, begun) {
                let (start, end) = (call.start.nanos(), call.end.nanos());
                if self.is_damaged(start, end) {
                    self.completeness.bad_timestamps += 1;
                    continue;
                }
                self.observe(start, end);
                self.place_call(index, &call, &mut newest_launch, dictionary);
            }
            self.threads.rows[index].limit(threads);
        }
    }

    /// `newest_launch` is the launch of the newest outermost call, when it launches: its bounds and sequence.
    fn place_call(
        &mut self,
        index: usize,
        call: &ApiCall,
        newest_launch: &mut Option<(Launch, u64)>,
        dictionary: &Dictionary,
    ) {
        let (start, end) = (call.start.nanos(), call.end.nanos());
        self.memory.called(index as u32, call);
        let class = self.api_classes.get(call.function, dictionary);
        let thread = &mut self.threads.rows[index];
        let succeeded = call.return_value == 0;
        let before = thread.newest_end();
        match thread.place(start, end, call.function, class) {
            Nesting::Outermost => {
                let launches = class.launches() && succeeded && !thread.capturing;
                let sampled = thread.launch_samples.any_until(end) && {
                    let launches = launches.then_some(class);
                    let call = SampledCall { thread: index as u32, before, start, end, launches };
                    self.launch_lines.placed(call, &mut thread.launch_samples, dictionary)
                };
                self.simulation.call(index, call, class, launches);
                if class == ApiClass::Synchronize && succeeded {
                    self.marks.waits.push(index as u32, call.function, end);
                }
                self.api_table.add(call.function, end - start, succeeded);
                *newest_launch = None;
                if succeeded {
                    match class {
                        ApiClass::CaptureBegin => thread.capturing = true,
                        ApiClass::CaptureEnd => thread.capturing = false,
                        _ => {}
                    }
                    if class.launches() {
                        thread.launches = true;
                        let launch = Launch { start, end, thread: index as u32, class, sampled };
                        let sequence = self.launches.insert(call.correlation, launch, thread.capturing);
                        *newest_launch = Some((launch, sequence));
                    }
                }
            }
            Nesting::Within { start, end } => {
                self.completeness.nested_api_calls += 1;
                if !succeeded || !class.launches() {
                    return;
                }
                thread.launches = true;
                self.simulation.call(index, call, class, true);
                match newest_launch {
                    Some((launch, sequence)) if launch.start == start => {
                        self.launches.alias(call.correlation, *launch, *sequence);
                    }
                    _ => {
                        // A launch inside a call that is not known to launch.
                        let launch = Launch { start, end, thread: index as u32, class, sampled: false };
                        let sequence = self.launches.insert(call.correlation, launch, thread.capturing);
                        *newest_launch = Some((launch, sequence));
                    }
                }
            }
        }
    }

    #[inline]
    pub(super) fn thread_index(&mut self, id: ThreadId) -> u32 {
        self.threads.place(id, &self.launches, self.flush)
    }
}
