//! Metrics that are measured for a kernel.
//!
//! The metrics are those of NVIDIA's profiling libraries. The hardware counts a few metrics at a time, so the
//! complete set takes several passes, each over one launch. The counting library rejects names that its chip
//! lacks; such a metric is skipped and shown as missing.

/// Time, clock and work come first, because every figure is relative to them. Then follow the utilization of
/// each unit, bytes, cache hits, and the work of the tensor pipes.
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

/// Throughput of each unit of the chip.
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

/// Reasons to insert into `STALL_METRIC`, without `selected`, which is no stall.
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

/// Warps stalled for a reason, per issued instruction; the reason replaces `{}`.
const STALL_METRIC: &str = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio";

/// Metrics about stalls, in addition to the reasons.
const STALLS: [&str; 5] = [
    "smsp__average_warp_latency_per_inst_issued.ratio",
    "smsp__issue_active.avg.per_cycle_active",
    "smsp__warps_active.avg.per_cycle_active",
    "smsp__warps_eligible.avg.per_cycle_active",
    "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio",
];

/// Work by type, and active threads per warp.
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

/// Returns all metrics in groups that are measured one after the other. Metrics that take many launches for
/// little information come last, so that a program that ends early leaves complete groups.
pub fn groups() -> Vec<Vec<String>> {
    let named = |metrics: &[&str]| metrics.iter().map(|&metric| metric.to_owned()).collect::<Vec<_>>();
    let stalls = [named(&STALLS), STALL_REASONS.map(stall_metric).to_vec()].concat();
    vec![named(&CORE), named(&MEMORY), stalls, [named(&SPEED_OF_LIGHT), named(&WORK)].concat()]
}

/// Returns the metric of a stall reason.
pub fn stall_metric(reason: &str) -> String {
    STALL_METRIC.replace("{}", reason)
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
