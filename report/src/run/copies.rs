//! Classifies what limits copies: the link, the fixed cost per copy, or staging through the driver's own
//! pinned buffer; and detects that copies and computation are serialized.
//!
//! The reference is the link: the best rate of large copies in the same direction in this run, or the
//! practical rate of a link of this generation and width if that is higher. Copies between devices use only
//! the former, because the records do not show their route (NVLink, a switch, or through the host).

use gpuwhy_trace::record::{CopyKind, MemoryKind, PcieLink};
use profiler_core::attribution::statistics::{CopyPath, CopyStatistics, OctaveTotals};
use profiler_core::leaf::{Leaf, Leaves, Overlap, WorkKind};
use profiler_core::sorting::SortRows as _;

use super::{CopyClass, CopyFit, CopyOverlap, CopyRow, DeviceReport};
use crate::text_format::{duration, percent, rate};
use crate::words;

/// Share of the link's best rate above which the link is the limit.
pub const BANDWIDTH_SHARE: f64 = 0.70;
/// Share of the time due to the fixed cost per copy above which that cost is the limit.
pub const LATENCY_SHARE: f64 = 0.50;
/// Share of the nominal PCI Express bandwidth that any healthy link reaches with large pinned copies: 80 to
/// 90 % is usual, and 88 % was measured on an H200 (generation 5, 16 lanes: 55.5 of 63.0 GB/s).
pub const LINK_REACH: f64 = 0.80;
/// Copies of this octave (1 MiB) and above show the rate of the link: at 50 GB/s one takes over 20 us, ten
/// times the fixed cost of a pinned copy.
const LARGE_OCTAVE: usize = 20;
/// When sizes differ too little for a fit, copies are latency-bound below this mean size and median duration:
/// up to 64 KiB the driver may even return before a copy from pageable memory is done.
pub(super) const SMALL_BYTES: u64 = 65_536;
const SHORT_NANOS: u64 = 10_000;
/// Minimum ratio of the sizes for a fit.
const SIZE_SPREAD: f64 = 4.0;
/// Copies and computation count as serialized if less than this share of copy time overlaps computation.
pub const SERIAL_OVERLAP: f64 = 0.10;
/// Copies or computation below this share of the window are not worth overlapping.
const SERIAL_SHARE: f64 = 0.05;

impl CopyFit {
    /// Least-squares fit of relative errors over the octave means. Errors are relative because the error of a
    /// duration grows with it, and large copies would otherwise hide the fixed cost. Means suffice because
    /// the means of points on a straight line also lie on it. `None` when sizes differ by less than a factor
    /// of four or durations do not grow with them.
    pub fn of(octaves: &[OctaveTotals]) -> Option<Self> {
        let points: Vec<_> = octaves
            .iter()
            .filter(|totals| totals.count > 0 && totals.total_ns > 0)
            .map(|totals| {
                let count = totals.count as f64;
                let (bytes, nanos) = (totals.bytes as f64 / count, totals.total_ns as f64 / count);
                (count / (nanos * nanos), bytes, nanos)
            })
            .collect();
        let (smallest, largest) = (points.first()?.1, points.last()?.1);
        if largest < smallest * SIZE_SPREAD {
            return None;
        }
        let sum = |term: fn(f64, f64) -> f64| points.iter().map(|&(w, x, y)| w * term(x, y)).sum::<f64>();
        let weight = sum(|_, _| 1.0);
        let (mean_bytes, mean_nanos) = (sum(|x, _| x) / weight, sum(|_, y| y) / weight);
        let deviation = |of: fn(f64, f64) -> f64| {
            points.iter().map(|&(w, x, y)| w * of(x - mean_bytes, y - mean_nanos)).sum::<f64>()
        };
        let mut slope = deviation(|x, y| x * y) / deviation(|x, _| x * x);
        let mut latency_ns = mean_nanos - slope * mean_bytes;
        if latency_ns < 0.0 {
            latency_ns = 0.0;
            slope = sum(|x, y| x * y) / sum(|x, _| x * x);
        }
        let gigabytes_per_second = 1.0 / slope;
        (slope > 0.0 && gigabytes_per_second.is_finite() && latency_ns.is_finite())
            .then_some(Self { latency_ns, gigabytes_per_second })
    }
}

impl CopyOverlap {
    pub(super) fn of(leaves: &Leaves, overlap: &Overlap) -> Self {
        let window: u64 = leaves.iter().sum();
        let copies = Leaf::ALL.into_iter().filter(|leaf| leaf.work() == Some(WorkKind::Copy));
        let exposed_ns: u64 = copies.map(|leaf| leaves[leaf as usize]).sum();
        let hidden_ns = overlap[WorkKind::Compute as usize][WorkKind::Copy as usize];
        let matters = |nanos: u64| nanos as f64 >= SERIAL_SHARE * window.max(1) as f64;
        let serial = matters(exposed_ns)
            && matters(leaves[Leaf::Compute as usize])
            && (hidden_ns as f64) < SERIAL_OVERLAP * (exposed_ns + hidden_ns) as f64;
        Self { exposed_ns, hidden_ns, serial }
    }
}

/// Returns the copies of a device, the largest total time first.
pub(super) fn rows<'a>(
    statistics: impl Iterator<Item = (CopyPath, &'a CopyStatistics)>,
    pcie: Option<&PcieLink>,
) -> Vec<CopyRow> {
    let paths: Vec<_> = statistics.collect();
    let reach = pcie.map(|link| LINK_REACH * link.bytes_per_second() / 1e9).filter(|&reach| reach > 0.0);
    let mut rows: Vec<_> = paths.iter().map(|&(path, of)| row(path, of, &paths, reach)).collect();
    rows.sort_rows_by(|a, b| b.durations.total().cmp(&a.durations.total()).then_with(|| a.path.cmp(&b.path)));
    rows
}

/// `reach` is the minimum rate of large copies between host and device in 10^9 bytes per second, if known.
fn row(path: CopyPath, of: &CopyStatistics, paths: &[(CopyPath, &CopyStatistics)], reach: Option<f64>) -> CopyRow {
    let same_direction = || paths.iter().filter(|(other, _)| other.kind == path.kind);
    let reach = reach.filter(|_| matches!(path.kind, CopyKind::HostToDevice | CopyKind::DeviceToHost));
    let at_least = |seen: Option<f64>| seen.into_iter().chain(reach).max_by(f64::total_cmp);
    let link = at_least(best_rate(same_direction()));
    let page_locked = at_least(best_rate(same_direction().filter(|(other, _)| !is_pageable(*other))));
    let mut row = CopyRow {
        path,
        bytes: of.bytes,
        durations: of.durations.clone(),
        octaves: of.octaves.clone(),
        fit: CopyFit::of(&of.octaves),
        link_gigabytes_per_second: link,
        class: CopyClass::Unknown,
    };
    let rate = row.gigabytes_per_second();
    let reaches = |best: f64| rate >= BANDWIDTH_SHARE * best;
    row.class = if is_latency_bound(&row) {
        CopyClass::Latency
    } else if is_pageable(path) {
        if page_locked.is_some_and(reaches) { CopyClass::Bandwidth } else { CopyClass::Staging }
    } else {
        link.map_or(CopyClass::Unknown, |best| if reaches(best) { CopyClass::Bandwidth } else { CopyClass::Mixed })
    };
    row
}

/// Number and bytes of the copies in rows of sizes that are at most this many bytes on average. An upload beside them
/// changes nothing.
pub(super) fn of_at_most(octaves: &[OctaveTotals], bytes: u64) -> (u64, u64) {
    let small = octaves.iter().filter(|of| of.count > 0 && of.bytes <= bytes.saturating_mul(of.count));
    small.fold((0, 0), |(count, sum), of| (count.saturating_add(of.count), sum.saturating_add(of.bytes)))
}

fn is_pageable(path: CopyPath) -> bool {
    path.source == MemoryKind::Pageable || path.destination == MemoryKind::Pageable
}

fn is_latency_bound(row: &CopyRow) -> bool {
    let count = row.durations.count() as f64;
    match row.fit {
        Some(fit) => fit.latency_ns * count >= LATENCY_SHARE * row.durations.total() as f64,
        None => row.durations.median() < SHORT_NANOS && (row.bytes as f64) < SMALL_BYTES as f64 * count,
    }
}

/// Highest mean rate of an octave of large copies, 10^9 bytes per second.
fn best_rate<'a>(paths: impl Iterator<Item = &'a (CopyPath, &'a CopyStatistics)>) -> Option<f64> {
    paths
        .flat_map(|(_, statistics)| statistics.octaves.iter().skip(LARGE_OCTAVE))
        .filter(|totals| totals.total_ns > 0)
        .map(|totals| totals.bytes as f64 / totals.total_ns as f64)
        .max_by(f64::total_cmp)
}

/// Least part of the time of exposed copies between host and device that those of pageable memory must take for
/// pinning to be the change: of less, pinning gains under 15 % even if pinned copies are 2.5 times as fast.
const PAGEABLE_SHARE: f64 = 0.25;

/// Directions whose copies from or to pageable memory take a quarter or more of the time in which only copies between
/// host and device ran, after start-up.
pub(super) fn pageable_copies(device: &DeviceReport) -> impl Iterator<Item = CopyKind> + use<'_> {
    let time = |wanted: &dyn Fn(Leaf) -> bool| -> u64 {
        Leaf::ALL.into_iter().filter(|&leaf| wanted(leaf)).map(|leaf| device.steady_leaves[leaf as usize]).sum()
    };
    let all = time(&Leaf::is_host_copy);
    [CopyKind::HostToDevice, CopyKind::DeviceToHost].into_iter().filter(move |&kind| {
        let pageable = time(&|leaf| leaf.is_pageable() && leaf.copy_kind() == Some(kind));
        pageable > 0 && pageable as f64 >= PAGEABLE_SHARE * all as f64
    })
}

/// Sentences about the limits of a device's copies, the most important first.
pub fn copy_evidence(device: &DeviceReport) -> Vec<String> {
    let mut sentences = Vec::new();
    let overlap = &device.copy_overlap;
    if overlap.serial {
        let copied = (overlap.exposed_ns + overlap.hidden_ns) as f64;
        sentences.push(match overlap.exposed_ns as f64 / copied {
            alone if alone > 0.995 => "Copies and kernels take turns: they never run at the same time.".to_owned(),
            alone => format!("Copies and kernels take turns: {} of the copy time no kernel runs.", percent(alone)),
        });
    }
    if let Some(row) = device.copies.first() {
        let (what, rate) = (words::capitalized(&words::copies(row.path, 2)), rate(row.gigabytes_per_second()));
        let link = device.pcie.filter(|_| matches!(row.path.kind, CopyKind::HostToDevice | CopyKind::DeviceToHost));
        let link = link.map_or_else(String::new, |link| {
            let carries = link.bytes_per_second() / 1e9;
            format!(" (PCIe {} x{} can do {carries:.0} GB/s)", link.generation, link.lanes)
        });
        match (row.class, row.fit, row.link_gigabytes_per_second) {
            (CopyClass::Latency, Some(fit), _) => sentences.push(format!(
                "{what} take {} each whatever their size, {:.0} % of their time: fewer, larger ones would take less.",
                duration(fit.latency_ns.round() as u64),
                fit.latency_ns * row.durations.count() as f64 / row.durations.total().max(1) as f64 * 100.0,
            )),
            (CopyClass::Latency, None, _) => sentences.push(format!("{what} are too small to use the link well.")),
            // No link: each byte is read from device memory and written to it.
            (CopyClass::Bandwidth, ..) if row.path.kind == CopyKind::DeviceToDevice => sentences.push(format!(
                "{what} run at {rate}, which reads and writes the GPU's memory at {}.",
                crate::text_format::rate(2.0 * row.gigabytes_per_second()),
            )),
            (CopyClass::Bandwidth, _, Some(best)) => sentences.push(format!(
                "{what} run at {rate}, {:.0} % of what the link reaches{link}.",
                row.gigabytes_per_second() / best * 100.0,
            )),
            (CopyClass::Staging, ..) => sentences.push(format!(
                "{what} go through a buffer of the driver, at {rate}{link}; pinned memory avoids that.",
            )),
            _ => {}
        }
    }
    sentences
}
