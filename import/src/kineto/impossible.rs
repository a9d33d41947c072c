//! Impossible times of a file, found by the calls around the work.

use gpuwhy_trace::record::{CorrelationId, Record, ThreadId, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};

use super::builder::Builder;
use crate::plausible::{Clocks, Plausible, Waits, clocks_differ};

/// Takes impossible times from the sorted records, and repeated records from the file. Returns notes.
pub(super) fn take_out(builder: &mut Builder) -> Vec<String> {
    let names = builder.dictionary.api_functions().iter().map(|function| builder.dictionary.name(function.name));
    // Queues of ROCm may run work of several streams at a time.
    let is_rocm = names.into_iter().any(|name| name.starts_with("hip"));
    let clocks = clocks(builder);
    let work = builder.records.iter().filter(|record| record.device_work().is_some()).count();
    let differ = clocks_differ(clocks.iter().filter(|&&clocks| clocks != Clocks::Agree).count(), work);
    let mut plausible = Plausible::unordered(is_rocm);
    builder.records = std::mem::take(&mut builder.records)
        .into_iter()
        .zip(clocks)
        .filter_map(|(record, clocks)| plausible.check(record, if differ.is_none() { clocks } else { Clocks::Agree }))
        .collect();
    plausible.found.sentences().into_iter().chain(differ).collect()
}

/// For each record.
fn clocks(builder: &Builder) -> Vec<Clocks> {
    let work = || builder.records.iter().filter_map(Record::device_work);
    let streams: FxHashSet<_> = work().map(|work| (work.device.0, work.context.0, work.stream.0)).collect();
    let calls =
        || builder.records.iter().filter_map(|record| if let Record::Api(call) = record { Some(call) } else { None });
    let named = calls().map(|call| {
        let function = builder.dictionary.api_function(call.function);
        let name = function.map_or("", |function| builder.dictionary.name(function.name));
        (name, call.thread, call.start, call.end)
    });
    let waits = Waits::of(named, &streams);
    let mut launches: FxHashMap<CorrelationId, (ThreadId, Timestamp, Timestamp)> = FxHashMap::default();
    for call in calls() {
        launches.entry(call.correlation).or_insert((call.thread, call.start, call.end));
    }
    let of = |record: &Record| {
        let work = record.device_work().filter(|work| work.start != Timestamp::ZERO)?;
        Some(waits.clocks((work.start, work.end), *launches.get(&work.correlation)?))
    };
    builder.records.iter().map(|record| of(record).unwrap_or_default()).collect()
}
