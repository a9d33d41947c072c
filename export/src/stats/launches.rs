//! Calls and the kernels that they launched, joined by correlation id.
//!
//! A first pass has found which calls have kernels, so only those are kept, and only the newest: a graph's kernels
//! come long after the call, so no call is dropped when its first kernel has come. Kernels that come before their
//! call, which happens within one delivery, wait for it.

use std::collections::VecDeque;

use profiler_core::record::{ApiCall, CorrelationId, Kernel, Record};
use profiler_core::trace::Item;
use rustc_hash::FxHashMap;

use super::Input;
use crate::correlations::Correlations;
use crate::error::ExportError;
use crate::source::{Passed, Scope};

/// Calls that are kept, and kernels that wait, at once.
const LIMIT: usize = 1 << 20;

/// Hands every kernel whose call is in the trace to `found`, with that call. Answers what the pass left and how many
/// kernels found no call.
pub(super) fn join(
    input: &mut Input<'_, '_>,
    mut found: impl FnMut(&ApiCall, &Kernel, &Scope<'_>) -> Result<(), ExportError>,
) -> Result<(Passed, u64), ExportError> {
    let mut with_kernel = Correlations::default();
    input.trace.pass(input.progress, |item, _| {
        if let Item::Record(Record::Kernel(kernel)) = item {
            with_kernel.insert(kernel.correlation);
        }
        Ok(())
    })?;
    let mut join = Join::default();
    let passed = input.trace.pass(input.progress, |item, scope| match item {
        Item::Record(Record::Api(call)) if with_kernel.contains(call.correlation) => {
            join.call(call).iter().try_for_each(|kernel| found(call, kernel, scope))
        }
        Item::Record(Record::Kernel(kernel)) => match join.kernel(kernel) {
            Some(call) => found(&call, kernel, scope),
            None => Ok(()),
        },
        _ => Ok(()),
    })?;
    Ok((passed, join.without_call()))
}

#[derive(Debug, Default)]
struct Join {
    calls: FxHashMap<CorrelationId, ApiCall>,
    order: VecDeque<CorrelationId>,
    waiting: FxHashMap<CorrelationId, Vec<Kernel>>,
    waiting_count: usize,
    without_room: u64,
}

impl Join {
    /// Takes a call; the kernels that waited for it. A correlation belongs to the first call that has it.
    fn call(&mut self, call: &ApiCall) -> Vec<Kernel> {
        if self.calls.contains_key(&call.correlation) {
            return Vec::new();
        }
        self.calls.insert(call.correlation, *call);
        self.order.push_back(call.correlation);
        if self.order.len() > LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            self.calls.remove(&oldest);
        }
        let waited = self.waiting.remove(&call.correlation).unwrap_or_default();
        self.waiting_count -= waited.len();
        waited
    }

    /// Takes a kernel; its call, if that has come.
    fn kernel(&mut self, kernel: &Kernel) -> Option<ApiCall> {
        let call = self.calls.get(&kernel.correlation).copied();
        if call.is_none() {
            if self.waiting_count < LIMIT {
                self.waiting_count += 1;
                self.waiting.entry(kernel.correlation).or_default().push(*kernel);
            } else {
                self.without_room += 1;
            }
        }
        call
    }

    fn without_call(&self) -> u64 {
        self.without_room + self.waiting_count as u64
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::record::Timestamp;

    use super::*;

    fn kernel(correlation: u32, start: u64) -> Kernel {
        Kernel { correlation: CorrelationId(correlation), start: Timestamp::from_nanos(start), ..Kernel::default() }
    }

    fn call(correlation: u32) -> ApiCall {
        ApiCall { correlation: CorrelationId(correlation), ..ApiCall::default() }
    }

    #[test]
    fn either_may_come_first_and_a_graph_has_many_kernels() {
        let mut join = Join::default();
        assert!(join.kernel(&kernel(1, 10)).is_none() && join.kernel(&kernel(1, 20)).is_none());
        assert!(join.kernel(&kernel(2, 30)).is_none());
        assert_eq!(join.call(&call(1)).len(), 2);
        assert_eq!(join.kernel(&kernel(1, 40)), Some(call(1)));
        assert_eq!(join.without_call(), 1);
    }
}
