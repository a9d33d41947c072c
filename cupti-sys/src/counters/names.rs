//! Names of a chip's metrics: a base name, a rollup over the hardware's units, and a submetric, such as
//! `dram__bytes` `.sum` `.per_second`.

use std::collections::BTreeMap;

use super::host::{Host, MetricKind};
use crate::cupti::Error;

/// Rollups of counters and throughputs.
const ROLLUPS: [&str; 4] = [".avg", ".max", ".min", ".sum"];
/// Submetrics of a counter, after a rollup.
const OF_COUNTERS: [&str; 11] = [
    "",
    ".peak_sustained",
    ".peak_sustained_active",
    ".peak_sustained_active.per_second",
    ".peak_sustained_elapsed",
    ".peak_sustained_elapsed.per_second",
    ".per_cycle_active",
    ".per_cycle_elapsed",
    ".per_second",
    ".pct_of_peak_sustained_active",
    ".pct_of_peak_sustained_elapsed",
];
/// Submetrics of a throughput, after a rollup.
const OF_THROUGHPUTS: [&str; 2] = [".pct_of_peak_sustained_active", ".pct_of_peak_sustained_elapsed"];
/// Submetrics of a ratio, which has no rollups.
const OF_RATIOS: [&str; 3] = [".max_rate", ".pct", ".ratio"];

impl MetricKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Counter, Self::Ratio, Self::Throughput];

    /// What may follow the base name of a metric of this kind. The same for all chips: `testing/layout-check`
    /// compares it with released libraries.
    pub fn suffixes(self) -> Vec<String> {
        let with_rollups = |of: &[&str]| {
            ROLLUPS.iter().flat_map(|rollup| of.iter().map(move |submetric| format!("{rollup}{submetric}"))).collect()
        };
        match self {
            Self::Counter => with_rollups(&OF_COUNTERS),
            Self::Ratio => OF_RATIOS.map(str::to_owned).to_vec(),
            Self::Throughput => with_rollups(&OF_THROUGHPUTS),
        }
    }

    /// The shortest of them, which a base name alone stands for.
    fn first_suffixes(self) -> Vec<String> {
        let parts = |suffix: &String| suffix.matches('.').count();
        let all = self.suffixes();
        let least = all.iter().map(parts).min();
        all.into_iter().filter(|suffix| Some(parts(suffix)) == least).collect()
    }
}

/// The base metrics of a chip with their kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog(pub BTreeMap<String, MetricKind>);

impl Host {
    /// All metrics of the chip: some 2,000 to 4,000.
    ///
    /// # Errors
    /// If CUPTI refuses.
    pub fn catalog(&self) -> Result<Catalog, Error> {
        let mut all = BTreeMap::new();
        for kind in MetricKind::ALL {
            all.extend(self.base_metrics(kind)?.into_iter().map(|name| (name, kind)));
        }
        Ok(Catalog(all))
    }
}

impl Catalog {
    /// Metrics that this name stands for: the metric itself, or for a base name its shortest suffixes, as in
    /// Nsight Compute. Empty if the chip does not have it.
    pub fn named(&self, name: &str) -> Vec<String> {
        if let Some(kind) = self.0.get(name) {
            return kind.first_suffixes().iter().map(|suffix| format!("{name}{suffix}")).collect();
        }
        let known = self.base_of(name).is_some_and(|(base, kind)| kind.suffixes().iter().any(|of| *of == name[base..]));
        if known { vec![name.to_owned()] } else { Vec::new() }
    }

    /// Metrics whose base names are accepted, with their shortest suffixes. If there is none, the metrics whose
    /// complete names are accepted.
    pub fn matching(&self, accept: impl Fn(&str) -> bool) -> Vec<String> {
        let bases: Vec<_> = self.0.keys().filter(|name| accept(name)).flat_map(|name| self.named(name)).collect();
        if !bases.is_empty() {
            return bases;
        }
        let full = |(name, kind): (&String, &MetricKind)| {
            kind.suffixes().into_iter().map(|suffix| format!("{name}{suffix}")).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(full).filter(|name| accept(name)).collect()
    }

    /// Up to `most` names that are closest to one that the chip does not have, the closest first: for a known
    /// base name those with another suffix, else other base names. `distance` is 0 for equal names.
    pub fn nearest(&self, name: &str, most: usize, distance: impl Fn(&str, &str) -> usize) -> Vec<String> {
        let (compared, mut names): (_, Vec<String>) = match self.base_of(name) {
            Some((base, kind)) => {
                (name, kind.suffixes().iter().map(|suffix| format!("{}{suffix}", &name[..base])).collect())
            }
            None => (&name[..base_length(name)], self.0.keys().cloned().collect()),
        };
        names.sort_by_cached_key(|known| distance(known, compared));
        names.truncate(most);
        names
    }

    /// Length and kind of the base name of a metric. Some base names contain a point themselves.
    fn base_of(&self, name: &str) -> Option<(usize, MetricKind)> {
        let ends = name.match_indices('.').map(|(at, _)| at);
        ends.filter_map(|at| Some((at, *self.0.get(&name[..at])?))).next()
    }
}

/// Length of the part before the first rollup or submetric.
fn base_length(name: &str) -> usize {
    let suffixes = ROLLUPS.iter().chain(&OF_RATIOS);
    suffixes.filter_map(|suffix| name.find(suffix)).min().unwrap_or(name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let of = |(name, kind): &(&str, MetricKind)| ((*name).to_owned(), *kind);
        Catalog(
            [
                ("dram__bytes", MetricKind::Counter),
                ("dram__bytes_read", MetricKind::Counter),
                ("dram__throughput", MetricKind::Throughput),
                ("lts__t_sector_hit_rate", MetricKind::Ratio),
                ("LTS.Triage.lts__hits", MetricKind::Counter),
            ]
            .iter()
            .map(of)
            .collect(),
        )
    }

    #[test]
    fn a_name_is_a_metric_or_a_base_name() {
        let named = |name: &str| catalog().named(name);
        assert_eq!(named("dram__bytes.sum.per_second"), ["dram__bytes.sum.per_second"]);
        assert_eq!(named("dram__bytes"), ["dram__bytes.avg", "dram__bytes.max", "dram__bytes.min", "dram__bytes.sum"]);
        assert_eq!(named("LTS.Triage.lts__hits.sum"), ["LTS.Triage.lts__hits.sum"]);
        assert_eq!(named("lts__t_sector_hit_rate").len(), 3);
        assert_eq!(named("dram__throughput").len(), 8, "it has no shorter suffix");
        for unknown in ["dram__bytes.total", "dram__bytes.", "dram__byte.sum", "", "lts__t_sector_hit_rate.sum"] {
            assert!(named(unknown).is_empty(), "{unknown}");
        }
    }

    #[test]
    fn base_names_are_matched_before_complete_ones() {
        let matching = |part: &str| catalog().matching(|name| name.contains(part));
        assert_eq!(matching("dram__bytes").len(), 8);
        assert_eq!(
            matching("bytes_read.sum.per"),
            [
                "dram__bytes_read.sum.per_cycle_active",
                "dram__bytes_read.sum.per_cycle_elapsed",
                "dram__bytes_read.sum.per_second"
            ]
        );
        assert!(matching("nvlink").is_empty());
    }

    #[test]
    fn an_unknown_name_has_the_nearest_known_ones() {
        let different =
            |a: &str, b: &str| a.len().abs_diff(b.len()) + a.bytes().zip(b.bytes()).filter(|(a, b)| a != b).count();
        let nearest = |name: &str| catalog().nearest(name, 2, different);
        assert_eq!(nearest("dram__bytes_reed.sum"), ["dram__bytes_read", "dram__bytes"]);
        assert_eq!(nearest("lts__t_sector_hit_rate.pcc")[0], "lts__t_sector_hit_rate.pct");
    }
}
