//! Work that queued operations waited for while the device was idle, if events show it.

use profiler_core::attribution::{DeviceAccount, Producer, Subject};
use profiler_core::leaf::Leaf;
use profiler_core::sorting::SortRows as _;

use super::Awaited;
use crate::text_format::{counted, duration};

/// Waits of a device that events resolve, the longest first.
pub(super) fn awaited(account: &DeviceAccount) -> Vec<Awaited> {
    let mut rows: Vec<Awaited> = Vec::new();
    for (subject, totals) in [Leaf::DependencyWait, Leaf::GraphWait].iter().flat_map(|&leaf| account.causes(leaf)) {
        let Subject::Awaited(producer) = subject else { continue };
        match rows.iter_mut().find(|row| row.producer == producer) {
            Some(row) => row.totals.add(totals),
            None => rows.push(Awaited { producer, totals }),
        }
    }
    rows.sort_rows_by(|a, b| b.totals.total_ns.cmp(&a.totals.total_ns).then(a.producer.cmp(&b.producer)));
    rows
}

pub(super) fn awaited_sentence(row: &Awaited) -> String {
    let times = counted(row.totals.count, "time");
    format!("{} {} ({times})", waited_for(row.producer), duration(row.totals.total_ns))
}

pub(super) fn waited_for(producer: Producer) -> String {
    let place = if producer.other_device { "another GPU" } else { "another stream" };
    format!("{} on {place}", producer.work.name())
}
