//! What is measured: named sets of metrics.
//!
//! A set lists metrics of NVIDIA's profiling libraries. The hardware counts a few of them at a time, so a set takes
//! several passes, each over one launch. The library that counts refuses a name that its chip does not have; such a
//! name is left out and shown as missing.

/// A named set of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    /// Time, clock, use of each unit, bytes, hits, work of the tensor pipes.
    Core,
    /// Core, and the throughput of each unit of the chip.
    SpeedOfLight,
    /// Core, and how memory is accessed.
    Memory,
    /// Core, and what warps wait for.
    Stalls,
    /// All of them.
    Full,
}

/// In all sets. Time, clock and work first: they are what every figure is relative to.
const CORE: [&str; 24] = [
    "gpu__time_duration.sum",
    "gpc__cycles_elapsed.max",
    "gpc__cycles_elapsed.avg.per_second",
    "sm__cycles_active.avg",
    "sm__cycles_active.max",
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed.sum",
    "sm__inst_executed.avg.pct_of_peak_sustained_elapsed",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "smsp__thread_inst_executed_pipe_fma_pred_on.sum",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "lts__t_bytes.sum",
    "lts__t_sector_hit_rate.pct",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "l1tex__t_bytes.sum",
    "l1tex__t_sector_hit_rate.pct",
    "sm__inst_executed_pipe_lsu.sum",
];

const SPEED_OF_LIGHT: [&str; 4] = [
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
];

const MEMORY: [&str; 10] = [
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "smsp__inst_executed_op_local_ld.sum",
    "smsp__inst_executed_op_local_st.sum",
];

/// The parts of `STALL_METRIC`'s name, without `selected`, which is no stall.
pub const STALL_REASONS: [&str; 18] = [
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instruction",
    "not_selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
];

/// Warps that wait for a reason, for each instruction that is issued; the reason takes the place of `{}`.
const STALL_METRIC: &str = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio";

const STALLS: [&str; 5] = [
    "smsp__average_warp_latency_per_inst_issued.ratio",
    "smsp__issue_active.avg.per_cycle_active",
    "smsp__warps_active.avg.per_cycle_active",
    "smsp__warps_eligible.avg.per_cycle_active",
    "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio",
];

/// Only in [`Set::Full`]: work by type, and how many threads of a warp do it.
const WORK: [&str; 10] = [
    "sm__ops_path_tensor_src_fp16.sum",
    "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    "sm__ops_path_tensor_src_fp8.sum",
    "sm__ops_path_tensor_src_int8.sum",
    "sm__ops_path_tensor_src_fp64.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    "sm__inst_executed_pipe_alu.sum",
    "sm__inst_executed_pipe_fma.sum",
    "sm__inst_executed_pipe_xu.sum",
];

/// The parts of [`Set::Full`] in the order in which they are measured: what takes many launches and tells little comes
/// last.
const IN_ORDER: &[Set] = &[Set::Core, Set::Memory, Set::Stalls, Set::Full];

/// The metrics that `text` names, in the groups that are measured one after the other: sets and names of metrics,
/// separated by commas. The most important ones come first and nothing comes twice, so that a program that ends early
/// leaves whole groups. `None` for a name that is neither, and for more than 200 metrics.
#[must_use]
pub fn groups(text: &str) -> Option<Vec<Vec<String>>> {
    let (mut groups, mut others): (Vec<Vec<String>>, Vec<String>) = (Vec::new(), Vec::new());
    let mut add = |metrics: Vec<String>| {
        let new: Vec<_> =
            metrics.into_iter().filter(|metric| !groups.iter().flatten().any(|known| known == metric)).collect();
        if !new.is_empty() {
            groups.push(new);
        }
    };
    for word in text.split(',').map(str::trim) {
        match Set::named(word) {
            Some(set) => {
                let parts = if set == Set::Full { IN_ORDER } else { &[Set::Core, set] };
                parts.iter().for_each(|part| add(part.metrics()));
            }
            None if is_metric_name(word) => {
                if !others.iter().any(|known| known == word) {
                    others.push(word.to_owned());
                }
            }
            None => return None,
        }
    }
    add(others);
    (groups.iter().map(Vec::len).sum::<usize>() <= MOST_METRICS).then_some(groups)
}

/// The metric of a stall reason.
#[must_use]
pub fn stall_metric(reason: &str) -> String {
    STALL_METRIC.replace("{}", reason)
}

impl Set {
    /// All of them, the smallest first.
    pub const ALL: [Self; 5] = [Self::Core, Self::SpeedOfLight, Self::Memory, Self::Stalls, Self::Full];

    /// Stable name, as the command line has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::SpeedOfLight => "sol",
            Self::Memory => "memory",
            Self::Stalls => "stalls",
            Self::Full => "full",
        }
    }

    /// The set of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.name() == name)
    }

    /// What it is for, in a few words.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Core => "time, clock, use of each unit, bytes, cache hits, tensor work",
            Self::SpeedOfLight => "core, and the throughput of each unit",
            Self::Memory => "core, and sectors per request, bank conflicts, spills",
            Self::Stalls => "core, and what warps wait for",
            Self::Full => "all of these, and work by data type",
        }
    }

    /// Its metrics, without repetition.
    #[must_use]
    pub fn metrics(self) -> Vec<String> {
        let parts: &[&[&str]] = match self {
            Self::Core => &[&CORE],
            Self::SpeedOfLight => &[&CORE, &SPEED_OF_LIGHT],
            Self::Memory => &[&CORE, &MEMORY],
            Self::Stalls => &[&CORE, &STALLS],
            Self::Full => &[&CORE, &SPEED_OF_LIGHT, &MEMORY, &STALLS, &WORK],
        };
        let named = parts.iter().flat_map(|part| part.iter().map(|&name| name.to_owned()));
        let stalls = STALL_REASONS.iter().filter(|_| matches!(self, Self::Stalls | Self::Full));
        named.chain(stalls.map(|reason| stall_metric(reason))).collect()
    }
}

/// Unit of a metric's value as Nsight Compute prints it; empty for a plain number. Follows from the name.
#[must_use]
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

/// The longest name of a metric that is taken from a user, bytes.
const LONGEST_NAME: usize = 200;
/// The most metrics of one request.
pub const MOST_METRICS: usize = 200;

/// Whether `name` can be the name of a metric: `unit__counter.rollup[.submetric]`.
#[must_use]
pub fn is_metric_name(name: &str) -> bool {
    let plain =
        name.len() <= LONGEST_NAME && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte));
    plain && name.contains("__") && name.contains('.')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn sets_grow_and_repeat_nothing() {
        let all: BTreeSet<_> = Set::Full.metrics().into_iter().collect();
        for set in Set::ALL {
            let metrics = set.metrics();
            let distinct: BTreeSet<_> = metrics.iter().cloned().collect();
            assert_eq!(distinct.len(), metrics.len(), "{}", set.name());
            assert!(distinct.is_subset(&all) && metrics.len() <= MOST_METRICS);
            assert!(metrics.iter().all(|metric| is_metric_name(metric)));
            assert_eq!(Set::named(set.name()), Some(set));
        }
        assert_eq!(Set::named("everything"), None);
    }

    #[test]
    fn groups_are_measured_in_order_and_nothing_twice() {
        let full = groups("full").unwrap();
        assert_eq!(full.len(), 4);
        assert_eq!(full[0], Set::Core.metrics());
        let all: Vec<_> = full.concat();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(all.len(), Set::Full.metrics().len());
        let mixed = groups("core, sm__cycles_active.avg,a__b.sum,a__b.sum").unwrap();
        assert_eq!(mixed, [Set::Core.metrics(), vec!["a__b.sum".to_owned()]]);
        assert_eq!(groups("stalls").unwrap().len(), 2);
        for bad in ["", "core,", "everything", "core;memory"] {
            assert_eq!(groups(bad), None, "{bad}");
        }
        let many: Vec<_> = (0..=MOST_METRICS).map(|number| format!("a__{number}.sum")).collect();
        assert_eq!(groups(&many.join(",")), None);
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

    #[test]
    fn a_name_from_the_command_line_is_checked() {
        assert!(is_metric_name("sm__cycles_active.avg"));
        for bad in ["", "sm__cycles_active", "sm.avg", "a__b.sum; rm", "a__b.sum\u{0}", &"a__b.".repeat(99)] {
            assert!(!is_metric_name(bad), "{bad}");
        }
    }
}
