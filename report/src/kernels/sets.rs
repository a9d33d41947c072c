//! Metrics that are measured for a kernel.
//!
//! The metrics are those of NVIDIA's profiling libraries. The hardware counts a few metrics at a time, so the
//! complete set takes several passes, each over one launch. The counting library rejects names that its chip
//! lacks; such a metric is skipped and shown as missing.

use std::sync::OnceLock;

/// The sections, with their source.
const SECTIONS: &str = include_str!("sections.txt");
/// The sections of gpuwhy, which are measured without a choice, one after the other. The others are of Nsight
/// Compute.
pub const MEASURED: [&str; 4] = ["core", "memory", "stalls", "work"];
/// Warps stalled for a reason, per issued instruction: what surrounds the reason.
const STALL_METRIC: [&str; 2] = ["smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"];

/// A named list of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name.
    pub name: &'static str,
    /// Title.
    pub title: &'static str,
    /// Names of the metrics for all chips, each of which has a part of them.
    pub metrics: Vec<&'static str>,
}

/// All sections.
pub fn sections() -> &'static [Section] {
    static PARSED: OnceLock<Vec<Section>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let texts = SECTIONS.split("\n= ").skip(1);
        let parsed = texts.filter_map(|text| {
            let (head, metrics) = text.split_once('\n')?;
            let (name, title) = head.split_once(": ")?;
            Some(Section { name, title, metrics: metrics.lines().filter(|line| !line.is_empty()).collect() })
        });
        parsed.collect()
    })
}

/// Returns the section with this name, in upper or lower case.
pub fn section(name: &str) -> Option<&'static Section> {
    sections().iter().find(|section| section.name.eq_ignore_ascii_case(name))
}

/// Returns the metrics that are measured without a choice, in groups that are measured one after the other.
pub fn groups() -> Vec<Vec<String>> {
    let metrics = |section: &Section| section.metrics.iter().map(|&metric| metric.to_owned()).collect();
    MEASURED.iter().filter_map(|name| section(name)).map(metrics).collect()
}

/// True if launches have this value without a counter.
pub fn is_of_launch(metric: &str) -> bool {
    metric.starts_with("launch__") || metric == THEORETICAL_OCCUPANCY
}

/// Warps that fit on a multiprocessor, percent of the maximum.
pub const THEORETICAL_OCCUPANCY: &str = "sm__maximum_warps_per_active_cycle_pct";

/// Returns the reasons for which warps stall, without `selected`, which is no stall.
pub fn stall_reasons() -> impl Iterator<Item = &'static str> {
    let metrics = section("stalls").map(|section| section.metrics.as_slice()).unwrap_or_default();
    let reason = |metric: &&'static str| metric.strip_prefix(STALL_METRIC[0])?.strip_suffix(STALL_METRIC[1]);
    metrics.iter().filter_map(reason).filter(|reason| *reason != "selected")
}

/// Returns the metric of a stall reason.
pub fn stall_metric(reason: &str) -> String {
    STALL_METRIC.join(reason)
}

/// Returns the unit of a metric as printed by Nsight Compute, derived from the name; empty for a plain
/// number.
pub fn unit(metric: &str) -> &'static str {
    let counter = metric.split('.').next().unwrap_or(metric);
    let per_second = metric.ends_with(".per_second");
    if metric.contains(".pct") {
        "%"
    } else if counter.contains("bytes") {
        if per_second { "byte/second" } else { "byte" }
    } else if counter == "gpu__time_duration" {
        "ns"
    } else if counter.contains("cycles") {
        if per_second { "cycle/second" } else { "cycle" }
    } else if metric.ends_with("per_cycle_active") {
        if counter.contains("inst") || counter.contains("issue") { "inst/cycle" } else { "warp" }
    } else if metric.ends_with(".ratio") {
        ""
    } else if counter.contains("inst_executed") {
        "inst"
    } else if counter.contains("sectors") {
        "sector"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_metric_is_measured_twice() {
        let all = groups().concat();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!((groups().len(), all[0].as_str()), (MEASURED.len(), "gpu__time_duration.sum"));
    }

    #[test]
    fn sections_are_read_from_their_file() {
        assert_eq!(sections().len(), SECTIONS.matches("\n= ").count());
        assert_eq!(section("speedoflight").unwrap().title, "GPU Speed Of Light Throughput");
        assert!(section("Nothing").is_none() && section("").is_none());
        for section in sections() {
            assert_eq!(section.metrics.iter().collect::<BTreeSet<_>>().len(), section.metrics.len(), "{section:?}");
            assert!(section.metrics.iter().all(|metric| metric.contains("__") && !metric.contains(' ')), "{section:?}");
        }
        assert_eq!(stall_reasons().count(), 18);
        assert_eq!(stall_metric("wait"), "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio");
    }

    #[test]
    fn units_are_those_that_scripts_expect() {
        for (metric, of) in [
            ("gpu__time_duration.sum", "ns"),
            ("gpc__cycles_elapsed.avg.per_second", "cycle/second"),
            ("gpc__cycles_elapsed.max", "cycle"),
            ("sm__inst_executed.sum", "inst"),
            ("dram__bytes_read.sum", "byte"),
            ("dram__bytes_read.sum.per_second", "byte/second"),
            ("lts__t_sector_hit_rate.pct", "%"),
            ("sm__warps_active.avg.pct_of_peak_sustained_active", "%"),
            ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "sector"),
            ("smsp__average_warp_latency_per_inst_issued.ratio", ""),
        ] {
            assert_eq!(unit(metric), of, "{metric}");
        }
    }
}
