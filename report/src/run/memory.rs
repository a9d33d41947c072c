//! Memory held by the program: its amount, its peak, and the allocating code.

use gpuwhy_trace::dictionary::Dictionary;
use profiler_core::attribution::{Attributor, template};
use profiler_core::sorting::SortRows as _;

use super::{MemoryReport, MemoryRow, PeakBy, names};

impl MemoryReport {
    /// Builds the report from the current state; `None` when memory was not recorded.
    pub fn of(attributor: &Attributor, dictionary: &Dictionary) -> Option<Self> {
        let holdings = attributor.holdings();
        if holdings.is_empty() {
            return None;
        }
        let mut rows: Vec<_> = attributor
            .memory()
            .map(|((device, kind), holding, caller)| MemoryRow {
                device,
                kind,
                holding: *holding,
                peak_by: caller.map(|caller| PeakBy {
                    thread: caller.thread,
                    thread_name: dictionary.thread_name(caller.thread).map(str::to_owned),
                    function: names::function(dictionary, caller.function),
                    range: caller.range.map(|message| {
                        let text = dictionary.name(message);
                        template(text).unwrap_or_else(|| text.to_owned())
                    }),
                }),
            })
            .collect();
        rows.sort_rows_by(|a, b| b.holding.peak.cmp(&a.holding.peak).then((a.device, a.kind).cmp(&(b.device, b.kind))));
        Some(Self { rows, unknown_releases: holdings.unknown_releases(), table_overflow: holdings.table_overflow() })
    }
}
