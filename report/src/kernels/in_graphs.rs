//! The part of a kernel's time that ran in CUDA graphs, whose nodes cannot be measured, by what captured it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::NameId;
use profiler_core::attribution::{Attributor, LaunchPlace};
use profiler_core::sorting::SortRows as _;
use rustc_hash::FxHashMap;

use crate::launch_site::LaunchSite;
use crate::text_format::percent;

/// Maximum number of parts of a kernel.
const PARTS: usize = 3;

/// Time in CUDA graphs of all kernels with one name, whatever their shape.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct InGraphs {
    /// Share of their time, 0 to 1.
    pub share: f64,
    /// By what captured it: the three parts with the most.
    pub parts: Vec<InGraphsPart>,
}

/// Time that one module captured.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct InGraphsPart {
    /// Module, or outside modules line.
    pub captured_in: String,
    /// Share of the time of all kernels with the name, 0 to 1.
    pub share: f64,
}

impl InGraphs {
    /// Display text.
    pub(super) fn text(&self) -> String {
        let part = |part: &InGraphsPart| format!("{} {}", part.captured_in, percent(part.share));
        let parts: Vec<String> = self.parts.iter().map(part).collect();
        let colon = if parts.is_empty() { "" } else { ": " };
        format!("in CUDA graphs {} of the time of this name{colon}{}", percent(self.share), parts.join(", "))
    }
}

/// What captured kernels, by their name.
pub(super) struct Captured<'a> {
    attributor: &'a Attributor,
    dictionary: &'a Dictionary,
    places: FxHashMap<NameId, Vec<(&'a LaunchPlace, u64)>>,
}

impl<'a> Captured<'a> {
    pub(super) fn new(attributor: &'a Attributor, dictionary: &'a Dictionary) -> Self {
        let mut places: FxHashMap<NameId, Vec<_>> = FxHashMap::default();
        for (kernel, place, _, ns) in attributor.graph_origins() {
            kernel.into_iter().for_each(|name| places.entry(name).or_default().push((place, ns)));
        }
        Self { attributor, dictionary, places }
    }

    /// `None` if no kernel of this name ran in a graph.
    pub(super) fn of(&self, name: NameId) -> Option<InGraphs> {
        let rows = self.attributor.devices().flat_map(|account| account.statistics().kernels());
        let rows = rows.filter(|&(of, _)| of == Some(name));
        // Saturating, like those of the statistics: times of a damaged trace may be anything.
        let (all, graphs) = rows.fold((0_u64, 0_u64), |(all, graphs), (_, row)| {
            (all.saturating_add(row.durations.total()), graphs.saturating_add(row.graph_ns))
        });
        let share = |ns: u64| ns as f64 / all.max(1) as f64;
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for &(place, ns) in self.places.get(&name).into_iter().flatten() {
            let sum = sums.entry(LaunchSite::of(place, self.dictionary).captured_in()).or_default();
            *sum = sum.saturating_add(ns);
        }
        let mut parts: Vec<_> = sums.into_iter().collect();
        parts.sort_rows_by_key(|&(_, ns)| Reverse(ns));
        let part = |(captured_in, ns)| InGraphsPart { captured_in, share: share(ns) };
        let parts = parts.into_iter().take(PARTS).map(part).collect();
        (graphs > 0).then(|| InGraphs { share: share(graphs), parts })
    }
}
