//! Impossible times of a file, found by the calls around the work.

use gpuwhy_trace::record::{ApiCall, CorrelationId, DeviceWork, Record, ThreadId, Timestamp};
use profiler_core::attribution::api::{ApiClass, without_suffix};
use rustc_hash::{FxHashMap, FxHashSet};

use super::builder::Builder;
use crate::plausible::{Clocks, Plausible, SLACK_NANOS};

/// Takes impossible times from the sorted records, and repeated records from the file. Returns notes.
pub(super) fn take_out(builder: &mut Builder) -> Vec<String> {
    let names = builder.dictionary.api_functions().iter().map(|function| builder.dictionary.name(function.name));
    // Queues of ROCm may run work of several streams at a time.
    let is_rocm = names.into_iter().any(|name| name.starts_with("hip"));
    let calls = Calls::of(builder);
    let clocks: Vec<Clocks> = builder.records.iter().map(|record| calls.clocks(record)).collect();
    let work = builder.records.iter().filter(|record| record.device_work().is_some()).count();
    let wrong = clocks.iter().filter(|&&clocks| clocks != Clocks::Agree).count();
    // If that is most of the work, the clocks of host and device differ in all of the file.
    let agree = wrong <= work / 2;
    let mut plausible = Plausible::unordered(is_rocm);
    builder.records = std::mem::take(&mut builder.records)
        .into_iter()
        .zip(clocks)
        .filter_map(|(record, clocks)| plausible.check(record, if agree { clocks } else { Clocks::Agree }))
        .collect();
    let mut notes = plausible.found.sentences();
    if !agree {
        notes.push(format!(
            "{wrong} of {work} GPU operations are more than 100 ms outside of the time between the call that launched them and \
             a wait for them: the clocks of the GPU and the CPU differ, so causes of idle time are wrong"
        ));
    }
    notes
}

/// Calls that launch, and those that wait for all work of a device.
struct Calls {
    launches: FxHashMap<CorrelationId, (ThreadId, Timestamp, Timestamp)>,
    /// Start and end, oldest first.
    waits: FxHashMap<ThreadId, Vec<(Timestamp, Timestamp)>>,
}

impl Calls {
    fn of(builder: &Builder) -> Self {
        let work = builder.records.iter().filter_map(Record::device_work);
        let streams: FxHashSet<_> = work.map(|work| (work.device, work.context, work.stream)).collect();
        let name = |call: &ApiCall| {
            let function = builder.dictionary.api_function(call.function);
            function.map_or("", |function| builder.dictionary.name(function.name))
        };
        let waits_for_all = |call: &ApiCall| {
            let name = without_suffix(name(call));
            let all = name.ends_with("DeviceSynchronize") || name.ends_with("CtxSynchronize");
            // Rows do not name the stream of a call.
            all || (streams.len() == 1 && name.ends_with("StreamSynchronize"))
        };
        let (mut launches, mut waits) = (FxHashMap::default(), FxHashMap::<_, Vec<_>>::default());
        for record in &builder.records {
            let Record::Api(call) = record else { continue };
            launches.entry(call.correlation).or_insert((call.thread, call.start, call.end));
            if ApiClass::of(name(call)) == ApiClass::Synchronize && waits_for_all(call) {
                waits.entry(call.thread).or_default().push((call.start, call.end));
            }
        }
        waits.values_mut().for_each(|of_thread| of_thread.sort_unstable());
        Self { launches, waits }
    }

    fn clocks(&self, record: &Record) -> Clocks {
        let work = record.device_work().filter(|work| work.start != Timestamp::ZERO);
        work.map_or(Clocks::Agree, |work| self.clocks_of(&work))
    }

    fn clocks_of(&self, work: &DeviceWork) -> Clocks {
        let Some(&(thread, start, end)) = self.launches.get(&work.correlation) else { return Clocks::Agree };
        if start.since(work.start) > SLACK_NANOS {
            return Clocks::Early;
        }
        let waits = self.waits.get(&thread).map_or(&[][..], Vec::as_slice);
        let next = waits.get(waits.partition_point(|&(start, _)| start < end));
        let is_late = next.is_some_and(|&(_, returned)| work.end.since(returned) > SLACK_NANOS);
        if is_late { Clocks::Late } else { Clocks::Agree }
    }
}
