//! The clocks of several hosts brought together by what ends at once.
//!
//! The ranks of one host share its clock. Between hosts, clocks are off by what their time service leaves, up to
//! milliseconds; but a collective ends on all ranks within the time of its last message. So the median difference of
//! the ends is the offset, and how far the differences scatter is how exactly it is known. A drift of the clocks
//! against each other during the run is not modeled; it shows in the scatter.

use super::collectives::{Operation, Paired};

/// Operations that an offset rests on, at least: fewer could be chance.
const FEWEST: usize = 10;

/// Ends that scatter more, nanoseconds (median), say less about a clock than a time service over a network keeps
/// anyway (RFC 5905: "less than a millisecond" on fast local networks).
const WORST_SCATTER: i64 = 1_000_000;

/// The clock of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostClock {
    /// The host.
    pub host: String,
    /// What is added to its times, nanoseconds, to bring them to the clock of the first host. `None`: not known.
    pub offset_ns: Option<i64>,
    /// How far ends of one operation lie apart from this host to the first (within the first: between its ranks) when
    /// offsets are applied: half of them at most this far, and 95 %. `None` where there is nothing to compare.
    pub scatter_ns: Option<[u64; 2]>,
}

/// Clocks of the hosts of the ranks, in the order in which they come first, and the host of each rank.
pub(super) fn clocks(hosts: &[&str], paired: &Paired) -> (Vec<HostClock>, Vec<usize>) {
    let mut clocks: Vec<HostClock> = Vec::new();
    let mut of_ranks = Vec::with_capacity(hosts.len());
    for &host in hosts {
        let known = clocks.iter().position(|clock| clock.host == host);
        of_ranks.push(known.unwrap_or_else(|| {
            clocks.push(HostClock { host: host.to_owned(), offset_ns: None, scatter_ns: None });
            clocks.len() - 1
        }));
    }
    let operations: Vec<&Operation> = paired.names.iter().flatten().collect();
    for (index, clock) in clocks.iter_mut().enumerate() {
        let mut differences: Vec<i64> = operations
            .iter()
            .filter_map(|operation| {
                let ends = |host: usize| {
                    let of_host = operation.iter().zip(&of_ranks).filter(move |(_, of)| **of == host);
                    of_host.map(|(span, _)| span.end)
                };
                match index {
                    // Within the first host: how far its ranks end apart.
                    0 => Some(ends(0).max()? - ends(0).min()?),
                    _ => Some(ends(0).max()? - ends(index).max()?),
                }
            })
            .collect();
        if index == 0 {
            clock.offset_ns = Some(0);
        }
        let has_neighbor = index > 0 || of_ranks.iter().filter(|&&of| of == 0).count() > 1;
        if differences.len() < FEWEST || !has_neighbor {
            continue;
        }
        let offset = if index == 0 { 0 } else { quantile(&mut differences, 0.5).unwrap_or_default() };
        let mut scatter: Vec<i64> = differences.iter().map(|difference| (difference - offset).abs()).collect();
        let (half, most) = (quantile(&mut scatter, 0.5), quantile(&mut scatter, 0.95));
        clock.scatter_ns = half.zip(most).map(|(half, most)| [half.unsigned_abs(), most.unsigned_abs()]);
        if half.is_some_and(|half| half <= WORST_SCATTER) {
            clock.offset_ns = Some(offset);
        }
    }
    (clocks, of_ranks)
}

/// The value below which `share` of the values lie; `None` without values. Sorts them.
pub(super) fn quantile(values: &mut [i64], share: f64) -> Option<i64> {
    values.sort_unstable();
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * share).round() as usize).copied()
}
