//! Joins calls and the work that they launched by correlation id.
//!
//! A first pass has found the calls that have work. Only those are kept, and only the newest: a graph's
//! kernels arrive long after the call, so a call cannot be dropped when its first kernel arrives. Work that
//! arrives before its call, which happens within one delivery, waits for it.

use std::collections::VecDeque;

use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{ApiCall, CorrelationId, Record};
use rustc_hash::FxHashMap;

use crate::correlations::Correlations;
use crate::error::ExportError;
use gpuwhy_import::{Passed, Progress, Scope, TraceFile};

/// Maximum number of calls kept, and of operations waiting for their call.
const LIMIT: usize = 1 << 20;

/// Correlation of a record of device work.
pub fn operations(record: &Record) -> Option<CorrelationId> {
    record.device_work().map(|work| work.correlation)
}

/// Passes every record that `wanted` contains and whose call is in the trace to `found`, with that call.
/// Returns the result of the pass and the number of records without a call.
pub fn join(
    trace: &TraceFile,
    progress: &mut Progress<'_>,
    wanted: fn(&Record) -> Option<CorrelationId>,
    mut found: impl FnMut(&ApiCall, &Record, &Scope<'_>) -> Result<(), ExportError>,
) -> Result<(Passed, u64), ExportError> {
    let mut with_work = Correlations::default();
    trace.pass(progress, |event, _| {
        if let Event::Record(record) = event
            && let Some(correlation) = wanted(record)
        {
            with_work.insert(correlation);
        }
        Ok::<_, ExportError>(())
    })?;
    let mut join = Join::default();
    let passed = trace.pass(progress, |event, scope| match event {
        Event::Record(Record::Api(call)) if with_work.contains(call.correlation) => {
            join.call(call).iter().try_for_each(|record| found(call, record, scope))
        }
        Event::Record(record) => match wanted(record).and_then(|correlation| join.work(correlation, record)) {
            Some(call) => found(&call, record, scope),
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
    waiting: FxHashMap<CorrelationId, Vec<Record>>,
    waiting_count: usize,
    without_room: u64,
}

impl Join {
    /// Adds a call and returns the records that waited for it. A correlation belongs to the first call that
    /// has it.
    fn call(&mut self, call: &ApiCall) -> Vec<Record> {
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

    /// Returns the call of a record, or stores the record until its call arrives.
    fn work(&mut self, correlation: CorrelationId, record: &Record) -> Option<ApiCall> {
        let call = self.calls.get(&correlation).copied();
        if call.is_none() {
            if self.waiting_count < LIMIT {
                self.waiting_count += 1;
                self.waiting.entry(correlation).or_default().push(*record);
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
    use gpuwhy_trace::record::{Kernel, Timestamp};

    use super::*;

    fn take(join: &mut Join, correlation: u32, start: u64) -> Option<ApiCall> {
        let (correlation, start) = (CorrelationId(correlation), Timestamp::from_nanos(start));
        join.work(correlation, &Record::Kernel(Kernel { correlation, start, ..Kernel::default() }))
    }

    fn call(correlation: u32) -> ApiCall {
        ApiCall { correlation: CorrelationId(correlation), ..ApiCall::default() }
    }

    #[test]
    fn either_may_come_first_and_a_graph_has_many_kernels() {
        let mut join = Join::default();
        assert!(take(&mut join, 1, 10).is_none() && take(&mut join, 1, 20).is_none());
        assert!(take(&mut join, 2, 30).is_none());
        assert_eq!(join.call(&call(1)).len(), 2);
        assert_eq!(take(&mut join, 1, 40), Some(call(1)));
        assert_eq!(join.without_call(), 1);
    }
}
