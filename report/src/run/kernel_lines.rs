//! Kernel time by the source line that launched it: an estimate.
//!
//! Only samples count whose stack was certainly read during a launch, so only launches that last long enough
//! (`profiler_core::thresholds::CERTAIN_LAUNCH_NANOS`): those of a full queue. A kernel's time in such launches is
//! divided by its samples, each weighted by the kernel time that it stands for. The rest of its time, and
//! kernels without such a sample, may belong to any line: they extend each interval upward. If they are more than
//! half of all kernel time, there are no rows.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::NameId;
use profiler_core::attribution::{Attributor, LaunchPlace, LaunchSampleCounts, LaunchSampleSum, LaunchedWork};
use profiler_core::sorting::SortRows as _;
use profiler_core::thresholds::{CERTAIN_LAUNCH_NANOS, STACK_DELAY_NANOS};
use rustc_hash::FxHashMap;

use super::launches::kernels_by_name;
use super::{KernelLineRow, KernelLines, LaunchLineRow, SampledLaunches, SampledTime, names};
use crate::launch_site::LaunchSite;
use crate::library::Library;
use crate::text_format::percent;

/// Maximum number of rows in a report.
const LINES: usize = 256;
const ROWS: usize = 1_024;
/// Part of kernel time below which rows would describe the smaller part: half.
const LEAST_PLACED: f64 = 0.5;

/// Standard normal deviate of a 95 % interval.
const DEVIATE: f64 = 1.959_964;

/// Returns the 95 % confidence interval of the true share when `hits` of `samples` matched; see [`wilson`]. Without
/// samples the interval is 0 to 1.
pub fn share_interval(hits: u64, samples: u64) -> (f64, f64) {
    wilson(hits as f64 / samples.max(1) as f64, samples as f64)
}

/// Wilson's 95 % score interval for a share seen in `n` samples (E. B. Wilson, JASA 22, 1927), which keeps its
/// coverage for few samples and for shares near 0 and 1 (Brown, Cai and `DasGupta`, Statistical Science 16,
/// 2001).
fn wilson(share: f64, n: f64) -> (f64, f64) {
    if n <= 0.0 {
        return (0.0, 1.0);
    }
    // A sum of weights in another order may be larger than their total by rounding.
    let share = share.min(1.0);
    let square = DEVIATE * DEVIATE;
    let middle = (share + square / (2.0 * n)) / (1.0 + square / n);
    let half = DEVIATE / (1.0 + square / n) * (share * (1.0 - share) / n + square / (4.0 * n * n)).sqrt();
    ((middle - half).clamp(0.0, share), (middle + half).clamp(share, 1.0))
}

/// A kernel or graph with certain samples.
#[derive(Clone, Copy, Debug, Default)]
struct SampledWork {
    certain: u64,
    weight: f64,
    squares: f64,
    /// Part of `weight` in samples without a stack.
    unknown: f64,
    total_ns: u64,
    /// The part of `total_ns` in launches that are long enough.
    certain_ns: f64,
}

impl SampledWork {
    fn share(&self, weight: f64) -> f64 {
        weight / self.weight
    }

    /// The share of a line, and its interval. The number of samples is Kish's effective one (Survey Sampling,
    /// 1965): of equal weights it is their number.
    fn shares(&self, weight: f64) -> (f64, f64, f64) {
        let share = self.share(weight);
        let (low, high) = wilson(share, self.weight * self.weight / self.squares);
        (share, low, high)
    }

    /// Time that may belong to any line.
    fn anywhere_ns(&self) -> f64 {
        self.total_ns as f64 - self.certain_ns * (1.0 - self.share(self.unknown))
    }

    /// The time of samples with this weight.
    fn time(&self, of: LaunchSampleSum) -> SampledTime {
        let (share, low, high) = self.shares(of.weight);
        let total = self.total_ns as f64;
        SampledTime {
            samples: of.certain,
            total_ns: share * total,
            low_ns: low * self.certain_ns,
            high_ns: (high * self.certain_ns + self.anywhere_ns()).min(total),
        }
    }
}

type Works = FxHashMap<LaunchedWork, SampledWork>;
type Part<'a> = (LaunchedWork, &'a LaunchPlace, LaunchSampleSum);

/// Time of each kernel outside graphs, and of each graph.
fn times(attributor: &Attributor) -> FxHashMap<LaunchedWork, u64> {
    let kernels = kernels_by_name(attributor).into_iter();
    let kernels =
        kernels.filter_map(|(name, of)| Some((LaunchedWork::Kernel(name?), of.total_ns.saturating_sub(of.graph_ns))));
    let graphs = attributor.graph_kernels().map(|(graph, kernels)| (LaunchedWork::Graph(graph), kernels.total_ns));
    kernels.chain(graphs).collect()
}

fn sampled_works(attributor: &Attributor, times: &FxHashMap<LaunchedWork, u64>) -> Works {
    let mut works = Works::default();
    for (work, place, sum) in attributor.launch_lines().filter(|(.., sum)| sum.weight > 0.0) {
        let of = works.entry(work).or_default();
        of.certain += sum.certain;
        of.weight += sum.weight;
        of.squares += sum.squares;
        if place.is_none() {
            of.unknown += sum.weight;
        }
    }
    works.retain(|_, of| of.unknown < of.weight);
    let certain: FxHashMap<LaunchedWork, u64> = attributor.certain_launches().collect();
    for (work, of) in &mut works {
        of.total_ns = times.get(work).copied().unwrap_or_default();
        of.certain_ns = certain.get(work).map_or(0, |&nanos| nanos.min(of.total_ns)) as f64;
    }
    works
}

impl KernelLines {
    /// Builds the rows from samples; `None` when no sample was taken.
    pub(super) fn of(attributor: &Attributor, dictionary: &Dictionary) -> Option<Self> {
        let counts = attributor.launch_sample_counts();
        if counts == LaunchSampleCounts::default() {
            return None;
        }
        let times = times(attributor);
        let works = sampled_works(attributor, &times);
        let kernel_ns = kernels_by_name(attributor).values().fold(0u64, |sum, of| sum.saturating_add(of.total_ns));
        let sampled_ns = works.values().fold(0u64, |sum, of| sum.saturating_add(of.total_ns));
        let anywhere: f64 = works.values().map(SampledWork::anywhere_ns).sum();
        let placed_ns = sampled_ns as f64 - anywhere;
        let mut parts: Vec<Part<'_>> = attributor
            .launch_lines()
            .filter_map(|(work, place, sum)| Some((work, place?, sum)))
            .filter(|(work, _, sum)| sum.weight > 0.0 && works.contains_key(work))
            .collect();
        let time = |&(work, _, sum): &Part<'_>| works[&work].time(sum);
        parts.sort_rows_by(|a, b| {
            time(b).total_ns.total_cmp(&time(a).total_ns).then_with(|| (a.0, a.1).cmp(&(b.0, b.1)))
        });
        let not_sampled_ns = kernel_ns.saturating_sub(sampled_ns);
        let all = AllWorks { works: &works, kernel_ns, anywhere_ns: anywhere + not_sampled_ns as f64 };
        let (mut lines, distinct_lines) = all.lines(&parts, dictionary);
        let mut rows: Vec<_> = parts.iter().take(ROWS).map(|part| row(part, &works[&part.0], dictionary)).collect();
        if placed_ns < LEAST_PLACED * kernel_ns as f64 {
            lines.clear();
            rows.clear();
        }
        Some(Self {
            counts,
            samples: parts.iter().map(|(.., sum)| sum.certain).sum(),
            kernel_ns,
            not_sampled_ns,
            placed_ns: placed_ns.max(0.0) as u64,
            lines,
            distinct_lines,
            distinct_rows: parts.len() as u64,
            rows,
            launches: launches(attributor, &times, dictionary),
        })
    }

    /// The reason why there are no rows; `None` if there are rows, or no kernel ran.
    pub fn left_out(&self) -> Option<String> {
        let what = self.lines.is_empty() && self.kernel_ns > 0;
        what.then(|| {
            format!(
                "Left out: the lines of {} of kernel time are known. A stack may be read up to {} us after its sample \
                 was taken, so only launches of at least {} us have a known line.",
                percent(self.placed_ns as f64 / self.kernel_ns as f64),
                STACK_DELAY_NANOS / 1_000,
                CERTAIN_LAUNCH_NANOS / 1_000,
            )
        })
    }
}

/// All samples in launches, also those of short ones, whose stack may be of a later line.
fn launches(
    attributor: &Attributor,
    times: &FxHashMap<LaunchedWork, u64>,
    dictionary: &Dictionary,
) -> Vec<SampledLaunches> {
    let mut samples: FxHashMap<LaunchedWork, u64> = FxHashMap::default();
    for (work, place, sum) in attributor.launch_lines() {
        *samples.entry(work).or_default() += if place.is_some() { sum.samples } else { 0 };
    }
    let mut rows: Vec<_> =
        attributor.launch_lines().filter_map(|(work, place, sum)| Some((work, place?, sum.samples))).collect();
    rows.sort_unstable_by(|a, b| b.2.cmp(&a.2).then_with(|| (a.0, a.1).cmp(&(b.0, b.1))));
    rows.iter()
        .take(ROWS)
        .map(|&(work, place, count)| SampledLaunches {
            kernel: name_of(work, dictionary),
            place: LaunchSite::of(place, dictionary),
            samples: count,
            estimated_ns: count as f64 / samples[&work].max(1) as f64
                * times.get(&work).copied().unwrap_or_default() as f64,
        })
        .collect()
}

/// Kernels and graphs, with what may have been launched by any line.
struct AllWorks<'a> {
    works: &'a Works,
    kernel_ns: u64,
    anywhere_ns: f64,
}

impl AllWorks<'_> {
    /// Sums by line: the rows with the most time, and the total number of lines. `parts` is sorted, the largest
    /// first.
    fn lines(&self, parts: &[Part<'_>], dictionary: &Dictionary) -> (Vec<LaunchLineRow>, u64) {
        let mut by_line: FxHashMap<(NameId, u32, NameId), Vec<&Part<'_>>> = FxHashMap::default();
        for part in parts {
            let place = part.1;
            by_line.entry((place.file, place.line, place.function)).or_default().push(part);
        }
        let total = |parts: &[&Part<'_>]| -> f64 {
            parts.iter().map(|(work, _, sum)| self.works[work].time(*sum).total_ns).sum()
        };
        let mut sums: Vec<_> = by_line.into_iter().map(|(line, parts)| (total(&parts), line, parts)).collect();
        sums.sort_rows_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let count = sums.len() as u64;
        (sums.into_iter().take(LINES).map(|(_, _, parts)| self.line(&parts, dictionary)).collect(), count)
    }

    /// The sum of independent kernels: the distances to the ends of their intervals add in squares (G. Y. Zou and A.
    /// Donner, Statistics in Medicine 27, 2008); what may belong to any line adds to the upper end.
    fn line(&self, parts: &[&Part<'_>], dictionary: &Dictionary) -> LaunchLineRow {
        let mut weights: FxHashMap<LaunchedWork, f64> = FxHashMap::default();
        for (work, _, sum) in parts {
            *weights.entry(*work).or_default() += sum.weight;
        }
        let (mut total_ns, mut certain_ns, mut below, mut above) = (0.0, 0.0, 0.0, 0.0);
        for (work, of) in self.works {
            let (share, low, high) = of.shares(weights.get(work).copied().unwrap_or_default());
            total_ns += share * of.total_ns as f64;
            certain_ns += share * of.certain_ns;
            below += ((share - low) * of.certain_ns).powi(2);
            above += ((high - share) * of.certain_ns).powi(2);
        }
        let time = SampledTime {
            samples: parts.iter().map(|(.., sum)| sum.certain).sum(),
            total_ns,
            low_ns: (certain_ns - below.sqrt()).max(0.0),
            high_ns: (certain_ns + above.sqrt() + self.anywhere_ns).min(self.kernel_ns as f64),
        };
        LaunchLineRow {
            place: common_place(parts, dictionary),
            time,
            share: total_ns / self.kernel_ns.max(1) as f64,
            kernels: weights.len() as u64,
            largest: name_of(parts[0].0, dictionary),
        }
    }
}

/// The line, with the details that all its launches share.
fn common_place(parts: &[&Part<'_>], dictionary: &Dictionary) -> LaunchSite {
    let mut place = *parts[0].1;
    for (_, other, _) in parts {
        place.within = place.within.filter(|_| place.within == other.within);
        place.module = place.module.filter(|_| place.module == other.module);
        place.parent = place.parent.filter(|_| place.parent == other.parent);
        place.operator = place.operator.filter(|_| place.operator == other.operator);
        place.binary = place.binary.filter(|_| place.binary == other.binary);
    }
    LaunchSite::of(&place, dictionary)
}

fn row(&(work, place, sum): &Part<'_>, of: &SampledWork, dictionary: &Dictionary) -> KernelLineRow {
    let (graph, library) = match work {
        LaunchedWork::Kernel(name) => (None, Library::of_kernel(dictionary.name(name))),
        LaunchedWork::Graph(graph) => (Some(graph), None),
    };
    KernelLineRow {
        kernel: name_of(work, dictionary),
        graph,
        library,
        place: LaunchSite::of(place, dictionary),
        time: of.time(sum),
        kernel_samples: of.certain,
        kernel_ns: of.total_ns,
    }
}

fn name_of(work: LaunchedWork, dictionary: &Dictionary) -> String {
    match work {
        LaunchedWork::Kernel(name) => names::kernel(dictionary, name),
        LaunchedWork::Graph(0) => "CUDA graph".to_owned(),
        LaunchedWork::Graph(graph) => format!("CUDA graph {graph}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_wilson() {
        // Values computed by hand for 3 of 10 from the formula in Brown, Cai and DasGupta.
        let (low, high) = share_interval(3, 10);
        assert!((low - 0.107_79).abs() < 1e-4 && (high - 0.603_22).abs() < 1e-4, "{low} {high}");
        assert_eq!(share_interval(0, 0), (0.0, 1.0));
        let (low, high) = share_interval(1, 1);
        assert!((low - 1.0 / (1.0 + DEVIATE * DEVIATE)).abs() < 1e-9 && high > 1.0 - 1e-9, "{low} {high}");
        let (low, high) = share_interval(0, 4);
        assert!(low < 1e-9 && (high - 0.489_89).abs() < 1e-4, "{low} {high}");
        let rounded = 1.0 + f64::EPSILON;
        assert_eq!(wilson(rounded, 10.0), wilson(1.0, 10.0));
    }

    #[test]
    fn samples_of_unequal_weight_count_as_fewer() {
        let of = SampledWork { weight: 4.0, squares: 4.0, total_ns: 100, certain_ns: 100.0, ..SampledWork::default() };
        let one_outweighs = SampledWork { squares: 10.0, ..of };
        assert_eq!(of.shares(3.0), (0.75, share_interval(3, 4).0, share_interval(3, 4).1));
        let (share, low, high) = one_outweighs.shares(3.0);
        assert!(share == 0.75 && low < of.shares(3.0).1 && high > of.shares(3.0).2);
    }
}
