//! Alignment of the clocks of several hosts by events that end simultaneously.
//!
//! The ranks of one host share its clock. Clocks of different hosts are off by the residual error of their
//! time service, up to milliseconds, and drift; but a collective ends on all ranks within the time of its
//! last message. So hosts are nodes of a graph, and an edge is the difference of the ends of collectives that
//! two hosts took part in, as a line over time (Theil and Sen: the median of the slopes between pairs). A
//! spanning tree of the edges with the least scatter yields initial offsets, least squares over all edges the
//! final ones. The remaining disagreement of the edges, around closed loops, is part of the reported error.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Minimum number of operations for an edge: fewer could be chance.
const FEWEST: usize = 10;
/// Maximum median scatter of ends, nanoseconds. A time service over a network is more accurate than that
/// anyway (RFC 5905: "less than a millisecond" on fast local networks).
const WORST_SCATTER: i64 = 1_000_000;
/// Maximum relative drift of two clocks: a time service corrects by at most 500 ppm (RFC 5905), and one of
/// two clocks may be fast and the other slow. A steeper line is noise over a short time.
const FASTEST_DRIFT: f64 = 1e-3;
/// Number of differences kept per edge, spread over the run.
const KEPT: usize = 128;
/// Number of these points whose slopes are used: 496 pairs.
const POINTS: usize = 32;
/// Number of least-squares iterations; the initial offsets are already close to the result.
const ROUNDS: usize = 200;
/// Minimum error assigned to an edge, nanoseconds: ends of one collective on two GPUs of one host, which
/// share a clock, were measured to differ by this much.
const FINEST: f64 = 100.0;
/// Distance between the ends of one collective on two ranks, nanoseconds (95 %), if no host has two ranks to
/// measure it: the value measured on two H200 of one host.
const ENDS_APART: f64 = 1_400.0;
/// Ratio of the standard error of a median to that of a mean (normal distribution): sqrt(pi / 2).
const OF_MEDIAN: f64 = 1.2533;
/// Ratio of the standard deviation to the median distance from the median (normal distribution).
const OF_DEVIATION: f64 = 1.4826;

/// The clock of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostClock {
    /// The host.
    pub host: String,
    /// Offset to add to its times, nanoseconds, to convert them to the clock of the first host, at the middle
    /// of the run. `None` if unknown.
    pub offset_ns: Option<i64>,
    /// Growth of the offset, nanoseconds per second.
    pub drift_ppb: i64,
    /// Error bound of the offset, nanoseconds: the largest of two standard errors along the graph, the
    /// closing error of loops (95 %), and twice the distance between ends of one collective on ranks of one
    /// host (95 %), since a rank of either host may always end later than others. `None` for the first host
    /// and for an unknown offset.
    pub error_ns: Option<u64>,
    /// Distance between the ends of one operation on this host and others (for the first host: between its
    /// ranks) after applying the offsets: median and 95 %. `None` without data.
    pub scatter_ns: Option<[u64; 2]>,
    /// Time on its clock at which the offset is exact.
    pub(super) middle: i64,
}

impl HostClock {
    /// Converts a time of this host to the clock of the first one; unchanged if the offset is unknown.
    pub fn common(&self, at: i64) -> i64 {
        let drift = at.saturating_sub(self.middle) as f64 * self.drift_ppb as f64 * 1e-9;
        at.saturating_add(self.offset_ns.unwrap_or_default()).saturating_add(drift.round() as i64)
    }
}

/// Differences of ends between two hosts, spread over the run.
#[derive(Clone, Debug)]
struct Differences {
    kept: Vec<(i64, i64)>,
    stride: u64,
    seen: u64,
}

impl Differences {
    fn push(&mut self, at: i64, difference: i64) {
        if self.seen.is_multiple_of(self.stride) {
            if self.kept.len() == KEPT {
                let mut place = 0;
                self.kept.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.stride *= 2;
            }
            if self.seen.is_multiple_of(self.stride) {
                self.kept.push((at, difference));
            }
        }
        self.seen += 1;
    }
}

impl Default for Differences {
    fn default() -> Self {
        Self { kept: Vec::new(), stride: 1, seen: 0 }
    }
}

/// Collects the ends of collectives by pair of hosts.
#[derive(Debug, Default)]
pub(super) struct ClockGraph {
    /// By pair of hosts, the smaller number first; a host paired with itself holds distances between its own
    /// ranks.
    pairs: BTreeMap<(usize, usize), Differences>,
}

/// An edge: the offset of `to` is that of `from` plus `offset`, within `error`.
#[derive(Clone, Copy, Debug)]
struct Edge {
    from: usize,
    to: usize,
    offset: f64,
    drift: f64,
    error: f64,
}

impl ClockGraph {
    /// Adds an operation that ended on two ranks, each given as a host and a time on its clock.
    pub(super) fn ended(&mut self, (a, end_a): (usize, i64), (b, end_b): (usize, i64)) {
        let difference = end_a.saturating_sub(end_b);
        match a.cmp(&b) {
            std::cmp::Ordering::Less => self.pairs.entry((a, b)).or_default().push(end_b, difference),
            std::cmp::Ordering::Equal => self.pairs.entry((a, a)).or_default().push(end_a, difference.saturating_abs()),
            std::cmp::Ordering::Greater => {
                self.pairs.entry((b, a)).or_default().push(end_a, difference.saturating_neg());
            }
        }
    }

    /// Returns the clocks of `hosts`, aligned to the first one.
    pub(super) fn clocks(&self, hosts: &[String]) -> Vec<HostClock> {
        let times = self.pairs.values().flat_map(|pair| &pair.kept).map(|&(at, _)| at);
        let (first, last) = times.fold((i64::MAX, i64::MIN), |(first, last), at| (first.min(at), last.max(at)));
        let middle = if first <= last { first + (last - first) / 2 } else { 0 };
        let across = self.pairs.iter().filter(|((a, b), _)| a != b);
        let edges: Vec<Edge> = across.filter_map(|(&pair, kept)| edge(pair, &kept.kept, middle)).collect();
        let (mut offsets, mut drifts, variance) = spanning_tree(hosts.len(), &edges);
        improve(&mut offsets, &edges, |edge| edge.offset);
        improve(&mut drifts, &edges, |edge| edge.drift);
        let least = closing_error(&offsets, &edges).max(2.0 * self.ends_apart());
        let of_host = |(place, host): (usize, &String)| {
            let known = offsets[place];
            HostClock {
                host: host.clone(),
                offset_ns: known.map(|offset| offset.round() as i64),
                drift_ppb: (drifts[place].unwrap_or_default() * 1e9).round() as i64,
                error_ns: (place > 0 && known.is_some())
                    .then(|| (2.0 * variance[place].sqrt()).max(least).ceil() as u64),
                scatter_ns: None,
                middle,
            }
        };
        let mut clocks: Vec<HostClock> = hosts.iter().enumerate().map(of_host).collect();
        for place in 0..clocks.len() {
            clocks[place].scatter_ns = self.scatter(place, &clocks);
        }
        clocks
    }

    /// Distance between the ends of one collective on ranks of one host, nanoseconds (95 %).
    fn ends_apart(&self) -> f64 {
        let within = self.pairs.iter().filter(|((a, b), _)| a == b);
        let mut distances: Vec<i64> = within.flat_map(|(_, pair)| &pair.kept).map(|&(_, distance)| distance).collect();
        match distances.len() {
            0..FEWEST => ENDS_APART,
            _ => quantile(&mut distances, 0.95).map_or(ENDS_APART, |distance| distance as f64),
        }
    }

    /// Distance between ends with these clocks.
    fn scatter(&self, host: usize, clocks: &[HostClock]) -> Option<[u64; 2]> {
        let is_of =
            |&(a, b): &(usize, usize)| if host == 0 { (a, b) == (0, 0) } else { a != b && (a == host || b == host) };
        let pairs = self.pairs.iter().filter(|(pair, _)| is_of(pair));
        let mut distances: Vec<i64> = pairs
            .flat_map(|(&(a, b), pair)| {
                // These differences are raw: subtract the part that the offsets explain.
                pair.kept.iter().map(move |&(at, difference)| {
                    let [moved_a, moved_b] = [a, b].map(|host| clocks[host].common(at).saturating_sub(at));
                    difference.saturating_sub(moved_b.saturating_sub(moved_a)).saturating_abs()
                })
            })
            .collect();
        if distances.len() < FEWEST {
            return None;
        }
        let half = quantile(&mut distances, 0.5)?;
        Some([half.unsigned_abs(), quantile(&mut distances, 0.95)?.unsigned_abs()])
    }
}

/// Fits a line through the differences of two hosts; `None` with insufficient data.
fn edge((from, to): (usize, usize), kept: &[(i64, i64)], middle: i64) -> Option<Edge> {
    if kept.len() < FEWEST {
        return None;
    }
    let step = kept.len().div_ceil(POINTS);
    let points: Vec<(i64, i64)> = kept.iter().step_by(step).copied().collect();
    let mut slopes: Vec<f64> = Vec::with_capacity(POINTS * POINTS / 2);
    for (place, a) in points.iter().enumerate() {
        let later = points.iter().skip(place + 1).filter(|b| b.0 != a.0);
        slopes.extend(later.map(|b| (b.1 - a.1) as f64 / (b.0 - a.0) as f64));
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let drift = slopes.get(slopes.len() / 2).copied().filter(|drift| drift.abs() <= FASTEST_DRIFT).unwrap_or_default();
    let line = |at: i64| (drift * (at - middle) as f64).round() as i64;
    let mut levels: Vec<i64> = kept.iter().map(|&(at, difference)| difference.saturating_sub(line(at))).collect();
    let offset = quantile(&mut levels, 0.5)?;
    let mut distances: Vec<i64> = levels.iter().map(|level| level.saturating_sub(offset).saturating_abs()).collect();
    let scatter = quantile(&mut distances, 0.5)?;
    let error = (OF_MEDIAN * OF_DEVIATION * scatter as f64 / (kept.len() as f64).sqrt()).max(FINEST);
    (scatter <= WORST_SCATTER).then_some(Edge { from, to, offset: offset as f64, drift, error })
}

/// Offsets, drifts and variances of the offsets along the edges of least error (Prim's algorithm), from the
/// first host.
fn spanning_tree(hosts: usize, edges: &[Edge]) -> (Vec<Option<f64>>, Vec<Option<f64>>, Vec<f64>) {
    let mut links: Vec<Vec<usize>> = vec![Vec::new(); hosts];
    for (place, edge) in edges.iter().enumerate() {
        links[edge.from].push(place);
        links[edge.to].push(place);
    }
    let (mut offsets, mut drifts, mut variance) = (vec![None; hosts], vec![None; hosts], vec![0.0; hosts]);
    let mut near = BinaryHeap::new();
    // Errors are rounded to whole nanoseconds, since floating-point numbers have no total order.
    let reach = |near: &mut BinaryHeap<_>, host: usize| {
        near.extend(links[host].iter().map(|&edge| (Reverse(edges[edge].error as u64), Reverse(edge))));
    };
    if hosts > 0 {
        (offsets[0], drifts[0]) = (Some(0.0), Some(0.0));
        reach(&mut near, 0);
    }
    while let Some((_, Reverse(place))) = near.pop() {
        let edge = edges[place];
        let (known, new, sign) = match (offsets[edge.from], offsets[edge.to]) {
            (Some(_), None) => (edge.from, edge.to, 1.0),
            (None, Some(_)) => (edge.to, edge.from, -1.0),
            _ => continue,
        };
        offsets[new] = offsets[known].map(|offset| offset + sign * edge.offset);
        drifts[new] = drifts[known].map(|drift| drift + sign * edge.drift);
        variance[new] = variance[known] + edge.error * edge.error;
        reach(&mut near, new);
    }
    (offsets, drifts, variance)
}

/// Least squares over all edges (Gauss and Seidel), weighted by their errors; the first host is fixed.
fn improve(values: &mut [Option<f64>], edges: &[Edge], of: impl Fn(&Edge) -> f64) {
    let mut links: Vec<Vec<(usize, f64, f64)>> = vec![Vec::new(); values.len()];
    for edge in edges {
        let weight = 1.0 / (edge.error * edge.error);
        links[edge.to].push((edge.from, of(edge), weight));
        links[edge.from].push((edge.to, -of(edge), weight));
    }
    for _ in 0..ROUNDS {
        for place in 1..values.len() {
            let (mut sum, mut weights) = (0.0, 0.0);
            for &(other, difference, weight) in &links[place] {
                if let Some(value) = values[other] {
                    sum += weight * (value + difference);
                    weights += weight;
                }
            }
            if weights > 0.0 && values[place].is_some() {
                values[place] = Some(sum / weights);
            }
        }
    }
}

/// Disagreement of the edges with these offsets, nanoseconds (95 %); 0 without a closed loop.
fn closing_error(offsets: &[Option<f64>], edges: &[Edge]) -> f64 {
    let known = offsets.iter().flatten().count();
    if edges.len() < known {
        return 0.0;
    }
    let residuals = edges.iter().filter_map(|edge| Some(offsets[edge.to]? - offsets[edge.from]? - edge.offset));
    let mut residuals: Vec<i64> = residuals.map(|residual| residual.abs().ceil() as i64).collect();
    quantile(&mut residuals, 0.95).unwrap_or_default() as f64
}

/// The quantile `share` of the values; `None` without values. Sorts them.
pub(super) fn quantile(values: &mut [i64], share: f64) -> Option<i64> {
    values.sort_unstable();
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * share).round() as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four hosts in a ring whose clocks are off and drift; no collective includes all hosts.
    #[test]
    fn hosts_that_share_no_collective_are_brought_together_over_others() {
        let (offsets, drifts) = ([0_i64, 4_000_000, -250_000, 90_000_000], [0.0, 20e-6, -5e-6, 1e-6]);
        let second = 1_000_000_000_i64;
        let shown = |host: usize, at: i64| at + offsets[host] + (drifts[host] * (at - 300 * second) as f64) as i64;
        let mut graph = ClockGraph::default();
        let mut noise = 1_u64;
        for tick in 0..6_000 {
            let at = tick * second / 10;
            for pair in [(0, 1), (1, 2), (2, 3), (0, 3)] {
                let mut jitter = || {
                    noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (noise >> 33) as i64 % 3_000
                };
                let ends = [pair.0, pair.1].map(|host| (host, shown(host, at + jitter())));
                graph.ended(ends[0], ends[1]);
            }
        }
        let hosts: Vec<String> = (0..5).map(|host| format!("host{host}")).collect();
        let clocks = graph.clocks(&hosts);
        assert_eq!((clocks[4].offset_ns, clocks[4].error_ns), (None, None), "nothing links it");
        for host in 1..4 {
            let clock = &clocks[host];
            let error = clock.error_ns.unwrap() as i64;
            assert!(error < 3_000, "{clock:?}");
            for at in [0, 150, 300, 450, 599] {
                let off = clock.common(shown(host, at * second)) - at * second;
                assert!(off.abs() <= error, "at {at} s off by {off}: {clock:?}");
            }
            assert!((clock.drift_ppb as f64 * 1e-9 + drifts[host]).abs() < 1e-8, "{clock:?}");
        }
    }

    #[test]
    fn few_or_scattered_ends_say_nothing() {
        let mut graph = ClockGraph::default();
        (0..9).for_each(|at| graph.ended((0, at), (1, at + 5)));
        (0..100).for_each(|at| graph.ended((0, at), (2, at + at % 7 * 3_000_000)));
        let hosts = ["a", "b", "c"].map(str::to_owned);
        let clocks = graph.clocks(&hosts);
        assert_eq!(clocks.iter().map(|clock| clock.offset_ns).collect::<Vec<_>>(), [Some(0), None, None]);
    }
}
