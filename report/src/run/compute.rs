//! Computation, classified by how its grids fill the device, with totals per kernel and per device.
//!
//! Every sum is weighted by kernel duration, not by the timeline: two kernels that run at the same time count
//! twice, and the geometry of each is computed as if it had the device to itself. Communication kernels are
//! excluded because they use few multiprocessors by design.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::geometry::{Geometry, Limiter, Multiprocessors};
use gpuwhy_trace::record::{Device, NameId};
use profiler_core::attribution::DeviceAccount;
use profiler_core::attribution::statistics::{ConfigTotals, TINY_NANOS};
use profiler_core::sorting::SortRows as _;
use profiler_core::thresholds::WORTH_SHARE;
use rustc_hash::FxHashMap;

use super::{ComputeSplit, GridClass, KernelGeometry};
use crate::text_format::percent;

/// Minimum tail loss for a grid to count as wasting its last wave. Equals the share of time at which a cause
/// can become the bottleneck.
pub const TAIL_SHARE: f64 = WORTH_SHARE;
/// Below this occupancy a multiprocessor may lack warps to switch to while others wait: one warp in four of
/// the maximum. NVIDIA's best-practices guide sees no more benefit above 50 %; matrix kernels run well below
/// both.
pub const LOW_OCCUPANCY: f64 = 0.25;
/// Maximum share of kernel time with unknown geometry for which the device still gets an estimate.
const UNKNOWN_SHARE: f64 = 0.05;

impl GridClass {
    fn of(geometry: &Geometry) -> Self {
        if geometry.sm_efficiency < 1.0 {
            Self::UnderFilled
        } else if geometry.tail_loss >= TAIL_SHARE {
            Self::Tail
        } else if geometry.theoretical_occupancy < LOW_OCCUPANCY {
            Self::LowOccupancy
        } else {
            Self::Full
        }
    }
}

/// Duration-weighted sums of the geometry figures.
#[derive(Debug, Default)]
struct GeometrySums {
    configurations: u64,
    nanos: u64,
    /// Time and limiter of the configuration with the most time.
    largest: Option<(u64, Limiter)>,
    theoretical_occupancy: f64,
    achieved_occupancy: f64,
    sm_efficiency: f64,
    waves: f64,
    tail_loss: f64,
}

impl GeometrySums {
    fn add(&mut self, geometry: &Geometry, totals: &ConfigTotals) {
        let weight = totals.total_ns as f64;
        self.configurations += 1;
        self.nanos = self.nanos.saturating_add(totals.total_ns);
        if self.largest.is_none_or(|(nanos, _)| totals.total_ns > nanos) {
            self.largest = Some((totals.total_ns, geometry.limiter));
        }
        self.theoretical_occupancy += weight * geometry.theoretical_occupancy;
        self.achieved_occupancy += weight * geometry.achieved_occupancy;
        self.sm_efficiency += weight * geometry.sm_efficiency;
        self.waves += weight * geometry.waves;
        self.tail_loss += weight * geometry.tail_loss;
    }

    fn means(&self) -> Option<KernelGeometry> {
        let (_, limiter) = self.largest?;
        let weight = self.nanos as f64;
        (self.nanos > 0).then(|| KernelGeometry {
            configurations: self.configurations,
            known_ns: self.nanos,
            limiter,
            theoretical_occupancy: self.theoretical_occupancy / weight,
            achieved_occupancy: self.achieved_occupancy / weight,
            sm_efficiency: self.sm_efficiency / weight,
            waves: self.waves / weight,
            tail_loss: self.tail_loss / weight,
        })
    }
}

/// Returns the split of a device's computation and the geometry of its kernels by name.
pub(super) fn split(
    account: &DeviceAccount,
    device: &Device,
    dictionary: &Dictionary,
) -> (ComputeSplit, FxHashMap<NameId, KernelGeometry>) {
    let multiprocessors = Multiprocessors::of(device);
    let statistics = account.statistics();
    let communicating: FxHashMap<_, _> =
        statistics.kernels().filter_map(|(name, row)| Some((name?, row.communication))).collect();
    let mut compute = ComputeSplit { multiprocessors: device.multiprocessors, ..ComputeSplit::default() };
    let mut of_device = GeometrySums::default();
    let mut of_names: FxHashMap<NameId, GeometrySums> = FxHashMap::default();
    for (id, totals) in statistics.configs() {
        let config = dictionary.launch_config(id);
        let geometry = multiprocessors.as_ref().and_then(|room| Geometry::of(&config, room));
        if let Some(geometry) = &geometry {
            of_names.entry(config.name).or_default().add(geometry, totals);
        }
        if communicating.get(&config.name).copied().unwrap_or(false) {
            continue;
        }
        let class = geometry.as_ref().map_or(GridClass::Unknown, GridClass::of);
        for (class, nanos) in [(GridClass::Tiny, totals.tiny_ns), (class, totals.total_ns - totals.tiny_ns)] {
            compute.classes[class as usize] = compute.classes[class as usize].saturating_add(nanos);
        }
        if let Some(geometry) = &geometry {
            of_device.add(geometry, totals);
        }
    }
    let tallied = compute.total();
    // Kernels that did not fit into the table of configurations are not counted anywhere.
    let all = statistics
        .kernels()
        .filter(|(_, row)| !row.communication)
        .fold(0u64, |sum, (_, row)| sum.saturating_add(row.durations.total()));
    let unknown = &mut compute.classes[GridClass::Unknown as usize];
    *unknown = unknown.saturating_add(all.saturating_sub(tallied));
    if all.saturating_sub(of_device.nanos) as f64 <= UNKNOWN_SHARE * all as f64 {
        compute.geometry = of_device.means();
        let window = account.window_ns();
        compute.window_sm_efficiency =
            compute.geometry.filter(|_| window > 0).map(|_| (of_device.sm_efficiency / window as f64).min(1.0));
    }
    (compute, of_names.into_iter().filter_map(|(name, sums)| Some((name, sums.means()?))).collect())
}

/// Sentences about the split of a device that computes, the class with the most time first; empty when its
/// grids fill the device. Low occupancy alone is no evidence against a kernel, so it is not mentioned. `own`: most of
/// the time is in kernels of the program, whose grids it chooses.
pub fn compute_evidence(compute: &ComputeSplit, own: bool) -> Vec<String> {
    let mut classes = [GridClass::Tiny, GridClass::UnderFilled, GridClass::Tail];
    classes.sort_rows_by_key(|&class| std::cmp::Reverse(compute.time(class)));
    classes
        .into_iter()
        .filter(|&class| compute.share(class) >= WORTH_SHARE && (own || class != GridClass::Tail))
        .map(|class| {
            let what = match class {
                GridClass::Tiny => format!("kernels shorter than {} us", TINY_NANOS / 1_000),
                GridClass::UnderFilled => {
                    let all = compute.multiprocessors;
                    // Of several configurations, the mean says little about each.
                    let only = compute.geometry.filter(|geometry| geometry.configurations == 1);
                    only.map_or_else(
                        || format!("kernels with fewer blocks than the GPU's {all} multiprocessors"),
                        |only| {
                            let used = (only.sm_efficiency * f64::from(all)).round().max(1.0);
                            format!(
                                "a kernel that runs on {used} of {all} multiprocessors: its grid has no more blocks"
                            )
                        },
                    )
                }
                _ => format!("grids whose last blocks leave {:.0} % of the GPU or more idle", TAIL_SHARE * 100.0),
            };
            format!("{} of the time of kernels is in {what}.", percent(compute.share(class)))
        })
        .collect()
}
