//! Ranges that the program named: their host time, their device work, and the causes of idle time within
//! them.
//!
//! Kernels and operations of a range include those of nested ranges. Messages that differ only in a counter share a
//! row.

use gpuwhy_trace::dictionary::Dictionary;
use profiler_core::attribution::{Attributor, RangeCounts, RangeInside, RangeKey, RangeTotals, template};
use profiler_core::leaf::Leaf;
use profiler_core::sorting::SortRows as _;

use super::{RangeRow, RangesReport, names};

impl RangesReport {
    /// Builds the report from the current state; `None` when no range ended, is open, or failed to match.
    pub fn of(attributor: &Attributor, dictionary: &Dictionary) -> Option<Self> {
        let (counts, open) = attributor.range_counts();
        let mut rows: Vec<_> =
            attributor.ranges().into_iter().map(|(totals, inside)| row(totals, inside, dictionary)).collect();
        if rows.is_empty() && open == 0 && counts == RangeCounts::default() {
            return None;
        }
        rows.sort_rows_by(|a, b| {
            let totals = |row: &RangeRow| (row.projected.durations.total(), row.host.durations.total());
            totals(b)
                .cmp(&totals(a))
                .then_with(|| (&a.domain, &a.message, a.style).cmp(&(&b.domain, &b.message, b.style)))
        });
        Some(Self { rows, counts, open })
    }
}

impl RangeRow {
    /// Domain and message in the format of Nsight Systems.
    pub fn name(&self) -> String {
        if self.domain.is_empty() { self.message.clone() } else { format!("{}:{}", self.domain, self.message) }
    }

    /// Idle device time within the range, nanoseconds.
    pub fn idle_ns(&self) -> u64 {
        self.idle.iter().sum()
    }

    /// Idle device time within the range by leaf, the largest first.
    pub fn causes(&self) -> Vec<(Leaf, u64)> {
        let mut causes: Vec<_> = Leaf::ALL.into_iter().map(|leaf| (leaf, self.idle[leaf as usize])).collect();
        causes.retain(|&(_, nanos)| nanos > 0);
        causes.sort_rows_by_key(|&(leaf, nanos)| (std::cmp::Reverse(nanos), leaf));
        causes
    }
}

fn row(totals: RangeTotals, inside: RangeInside, dictionary: &Dictionary) -> RangeRow {
    let RangeTotals { key: RangeKey { style, domain, message }, host, projected, operations, levels, children } =
        totals;
    let instances = projected.durations.count().max(1) as f64;
    let mut kernels: Vec<_> =
        inside.kernels.into_iter().map(|(name, of)| (names::kernel(dictionary, name), of)).collect();
    kernels.sort_rows_by(|a, b| b.1.total().cmp(&a.1.total()).then_with(|| a.0.cmp(&b.0)));
    let message = dictionary.name(message);
    RangeRow {
        domain: dictionary.name(domain).to_owned(),
        message: template(message).unwrap_or_else(|| message.to_owned()),
        style,
        host,
        projected,
        operations,
        mean_level: levels as f64 / instances,
        mean_children: children as f64 / instances,
        device_ns: inside.device_ns,
        idle: inside.idle,
        kernels,
        limits: None,
    }
}
