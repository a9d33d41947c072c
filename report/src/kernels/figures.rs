//! Figures derived from a profile: utilization of each unit, work, memory access, stalls.
//!
//! The formulas combine NVIDIA's definitions of the metrics. Shares refer to the kernel's time unless stated
//! otherwise, 0 to 1; hardware counters may overshoot a little.

use gpuwhy_trace::kernels::KernelProfile;
use gpuwhy_trace::named;

use super::DataType;
use super::sets::{stall_metric, stall_reasons};
use profiler_core::sorting::SortRows as _;

named! {
    /// A unit that can limit a kernel. Of two equally used units, the first in this order counts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Roof: name words {
        /// The tensor pipes.
        Tensor "tensor" "tensor cores",
        /// Device memory.
        Dram "dram" "device memory",
        /// The L2 cache.
        L2 "l2" "L2 cache",
        /// The L1 cache and shared memory.
        L1 "l1" "L1 cache and shared memory",
        /// Issuing instructions.
        Issue "issue" "instruction issue",
    }
}

impl Roof {
    /// Metric of its utilization, percent of its peak over the elapsed cycles.
    pub const fn metric(self) -> &'static str {
        match self {
            Self::Tensor => "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
            Self::Issue => "sm__inst_executed.avg.pct_of_peak_sustained_elapsed",
            Self::Dram => "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
            Self::L2 => "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
            Self::L1 => "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
        }
    }

    /// Metric of its busiest part, percent, for units of which [`Roof::metric`] counts only one of several
    /// parts: NVIDIA's throughput of the unit, which takes more passes. That of L1 refers to the cycles in
    /// which a multiprocessor was active.
    pub const fn throughput(self) -> Option<&'static str> {
        match self {
            Self::L2 => Some("lts__throughput.avg.pct_of_peak_sustained_elapsed"),
            Self::L1 => Some("l1tex__throughput.avg.pct_of_peak_sustained_active"),
            Self::Tensor | Self::Issue | Self::Dram => None,
        }
    }
}

/// Utilization of a unit: of its busiest part if that was measured.
fn used(profile: &KernelProfile, roof: Roof) -> Option<f64> {
    let throughput = roof.throughput().and_then(|metric| profile.share(metric));
    let throughput = match roof {
        Roof::L1 => throughput.zip(profile.share(SM_ACTIVE)).map(|(used, active)| used * active),
        _ => throughput,
    };
    profile.share(roof.metric()).into_iter().chain(throughput).reduce(f64::max)
}

fn lower_bounds(profile: &KernelProfile) -> Vec<Roof> {
    let is_bound = |roof: &Roof| roof.throughput().is_some_and(|metric| profile.share(metric).is_none());
    Roof::ALL.into_iter().filter(is_bound).collect()
}

/// Share of the time in which a multiprocessor had a warp.
const SM_ACTIVE: &str = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed";

/// A reason for which warps wait, and its share of their time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StallReason {
    /// Reason as spelled in the metric's name.
    pub reason: &'static str,
    /// Share of the time between two instructions of a warp, 0 to 1.
    pub share: f64,
}

impl StallReason {
    /// Meaning of the reason and its remedy, as text, based on NVIDIA's metric reference.
    pub fn words(&self) -> &'static str {
        match self.reason {
            "barrier" => "waiting for other warps of the block at a barrier",
            "branch_resolving" => "waiting for a branch",
            "dispatch_stall" => "held back by the dispatcher",
            "drain" => "waiting at the exit for memory writes",
            "gmma" => "waiting for asynchronous matrix instructions",
            "imc_miss" => "waiting for constants that are not in the cache",
            "lg_throttle" => "waiting for space in the queue of loads and stores to global or local memory",
            "long_scoreboard" => "waiting for data from device memory, L2 or L1",
            "math_pipe_throttle" => "waiting for an arithmetic pipe that is full",
            "membar" => "waiting at a memory fence",
            "mio_throttle" => "waiting for space in the queue of shared memory and special functions",
            "misc" => "stalled for other reasons",
            "no_instruction" => "waiting for instructions to be fetched",
            "not_selected" => "ready, but another warp was chosen",
            "short_scoreboard" => "waiting for shared memory or special functions",
            "sleeping" => "asleep at the program's request",
            "tex_throttle" => "waiting for space in the queue of texture instructions",
            "wait" => "waiting for the fixed latency of its own instruction",
            _ => "stalled for an unnamed reason",
        }
    }
}

named! {
    /// An execution pipe.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Pipe: name words {
        /// Integer and logic instructions, comparisons, minima.
        Alu "alu" "integer and logic",
        /// Multiplications and additions in FP32, integer multiplications.
        Fma "fma" "multiply and add",
        /// Loads and stores.
        Lsu "lsu" "loads and stores",
        /// Matrix instructions.
        Tensor "tensor" "matrix",
        /// Square roots, sines, exponentials, conversions.
        Xu "xu" "special functions",
    }
}

fn pipes(profile: &KernelProfile) -> Vec<(Pipe, f64)> {
    let all = profile.value("sm__inst_executed.sum");
    let part = |pipe: Pipe| ratio(profile.value(&format!("sm__inst_executed_pipe_{}.sum", pipe.name())), all);
    let mut found: Vec<_> = Pipe::ALL.into_iter().filter_map(|pipe| Some((pipe, part(pipe)?))).collect();
    found.sort_rows_by(|a, b| b.1.total_cmp(&a.1));
    found
}

/// Memory access patterns. `None` if not measured, or if there were no such accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryTable {
    /// Sectors of 32 bytes per load request of a warp; 4 is ideal for 4-byte values, 16 for 16-byte values.
    pub sectors_per_load: Option<f64>,
    /// The same for stores.
    pub sectors_per_store: Option<f64>,
    /// L1 hit rate by sectors.
    pub l1_hit: Option<f64>,
    /// L2 hit rate by sectors.
    pub l2_hit: Option<f64>,
    /// Share of the shared-memory wavefronts of loads that bank conflicts added.
    pub load_conflicts: Option<f64>,
    /// The same for stores.
    pub store_conflicts: Option<f64>,
    /// Number of loads from and stores to local memory: spilled registers and arrays that are not in
    /// registers.
    pub local_instructions: Option<f64>,
}

/// Figures derived from one profile. `None` if a metric is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Duration, nanoseconds.
    pub duration_ns: Option<f64>,
    /// Multiprocessor clock during the kernel, Hz.
    pub clock_hz: Option<f64>,
    /// Utilization of each unit, in the order of [`Roof::ALL`]: of its busiest part, or of the part in
    /// [`Roof::metric`] if only that was measured.
    pub roofs: [Option<f64>; Roof::ALL.len()],
    /// Units with only the part in [`Roof::metric`] measured: their utilization is at least the value in
    /// `roofs`.
    pub lower_bounds: Vec<Roof>,
    /// Sectors of the L2 cache as a fraction of its capability.
    pub l2_sectors: Option<f64>,
    /// Share of the time in which a multiprocessor had a warp, averaged over all.
    pub sm_active: Option<f64>,
    /// Mean divided by largest active time of the multiprocessors: 1 is balanced.
    pub balance: Option<f64>,
    /// Resident warps as a fraction of the maximum, while active.
    pub achieved_occupancy: Option<f64>,
    /// Throughput of the multiprocessors' busiest part.
    pub compute_throughput: Option<f64>,
    /// Throughput of the memory system's busiest part.
    pub memory_throughput: Option<f64>,
    /// Bytes per second read from device memory.
    pub dram_read: Option<f64>,
    /// Bytes per second written to device memory.
    pub dram_write: Option<f64>,
    /// Bytes through device memory, L2 and L1, in this order.
    pub bytes: [Option<f64>; 3],
    /// Number of operations by data type, without zeros; a multiply-add counts as two.
    pub operations: Vec<(DataType, f64)>,
    /// Instructions issued per scheduler and cycle, at most 1.
    pub issued_per_cycle: Option<f64>,
    /// Eligible warps per scheduler and cycle.
    pub eligible_warps: Option<f64>,
    /// Active threads of a warp per instruction, of 32.
    pub threads_per_instruction: Option<f64>,
    /// Number of executed warp instructions.
    pub instructions: Option<f64>,
    /// Share of these instructions by measured pipe, the largest first. A pipe is a kind of work: see
    /// [`Pipe`].
    pub pipes: Vec<(Pipe, f64)>,
    /// Stall reasons, the largest first.
    pub stalls: Vec<StallReason>,
    /// Memory access.
    pub memory: MemoryTable,
}

fn ratio(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    let (part, whole) = (part?, whole?);
    (whole > 0.0).then(|| part / whole)
}

impl Figures {
    /// Derives the figures from `profile`.
    pub fn of(profile: &KernelProfile) -> Self {
        let value = |name: &str| profile.value(name);
        let duration_ns = value("gpu__time_duration.sum").filter(|&nanos| nanos > 0.0);
        let per_second = |bytes: Option<f64>| Some(bytes? / duration_ns? * 1e9);
        let (read, write) = (value("dram__bytes_read.sum"), value("dram__bytes_write.sum"));
        Self {
            duration_ns,
            clock_hz: value("gpc__cycles_elapsed.avg.per_second").filter(|&clock| clock > 0.0),
            roofs: Roof::ALL.map(|roof| used(profile, roof)),
            lower_bounds: lower_bounds(profile),
            l2_sectors: profile.share(Roof::L2.metric()),
            sm_active: profile.share(SM_ACTIVE),
            balance: ratio(value("sm__cycles_active.avg"), value("sm__cycles_active.max")),
            achieved_occupancy: profile.share("sm__warps_active.avg.pct_of_peak_sustained_active"),
            compute_throughput: profile.share("sm__throughput.avg.pct_of_peak_sustained_elapsed"),
            memory_throughput: profile.share("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"),
            dram_read: per_second(read),
            dram_write: per_second(write),
            bytes: [
                read.zip(write).map(|(read, write)| read + write),
                value("lts__t_bytes.sum"),
                value("l1tex__t_bytes.sum"),
            ],
            operations: operations(profile),
            issued_per_cycle: value("smsp__issue_active.avg.per_cycle_active")
                .or_else(|| profile.share("smsp__issue_active.avg.pct_of_peak_sustained_active")),
            eligible_warps: value("smsp__warps_eligible.avg.per_cycle_active"),
            threads_per_instruction: value("smsp__thread_inst_executed_per_inst_executed.ratio"),
            instructions: value("sm__inst_executed.sum").filter(|&count| count > 0.0),
            pipes: pipes(profile),
            stalls: stalls(profile),
            memory: memory(profile),
        }
    }

    /// Share of the instructions that no measured pipe executed: branches, uniform and FP64 instructions and
    /// others. `None` unless all of [`Pipe::ALL`] were measured.
    pub fn other_pipes(&self) -> Option<f64> {
        let known: f64 = self.pipes.iter().map(|&(_, share)| share).sum();
        (self.pipes.len() == Pipe::ALL.len()).then(|| (1.0 - known).max(0.0))
    }

    /// Utilization of one unit.
    pub fn roof(&self, roof: Roof) -> Option<f64> {
        let place = Roof::ALL.iter().position(|&other| other == roof)?;
        self.roofs[place]
    }

    /// The most used unit and its utilization.
    pub fn nearest_roof(&self) -> Option<(Roof, f64)> {
        let known = Roof::ALL.into_iter().zip(self.roofs).filter_map(|(roof, share)| Some((roof, share?)));
        // `max_by` returns the last of equal elements, so the order is reversed.
        known.rev().max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Metrics of operations. FP32 is counted as instructions of the multiply-add pipe, which also executes
/// integer multiplications; each counts as two.
const OPERATIONS: [(DataType, &str, f64); 7] = [
    (DataType::Bf16, "sm__ops_path_tensor_src_bf16_dst_fp32.sum", 1.0),
    (DataType::Fp16, "sm__ops_path_tensor_src_fp16.sum", 1.0),
    (DataType::Tf32, "sm__ops_path_tensor_src_tf32_dst_fp32.sum", 1.0),
    (DataType::Fp8, "sm__ops_path_tensor_src_fp8.sum", 1.0),
    (DataType::Int8, "sm__ops_path_tensor_src_int8.sum", 1.0),
    (DataType::TensorFp64, "sm__ops_path_tensor_src_fp64.sum", 1.0),
    (DataType::Fp32, "smsp__thread_inst_executed_pipe_fma_pred_on.sum", 2.0),
];

fn operations(profile: &KernelProfile) -> Vec<(DataType, f64)> {
    let counted = OPERATIONS.iter().filter_map(|&(of, metric, weight)| Some((of, profile.value(metric)? * weight)));
    let mut found: Vec<_> = counted.filter(|&(_, count)| count > 0.0).collect();
    found.sort_rows_by(|a, b| b.1.total_cmp(&a.1));
    found
}

fn stalls(profile: &KernelProfile) -> Vec<StallReason> {
    let latency = profile.value("smsp__average_warp_latency_per_inst_issued.ratio");
    let share = |reason| Some(StallReason { reason, share: ratio(profile.value(&stall_metric(reason)), latency)? });
    let mut found: Vec<_> = stall_reasons().filter_map(share).collect();
    found.sort_rows_by(|a, b| b.share.total_cmp(&a.share));
    found
}

fn memory(profile: &KernelProfile) -> MemoryTable {
    let value = |name: &str| profile.value(name);
    let per_request = |of: &str| {
        let name = |what: &str| format!("l1tex__t_{what}_pipe_lsu_mem_global_op_{of}.sum");
        ratio(value(&name("sectors")), value(&name("requests")))
    };
    let conflicts = |of: &str| {
        ratio(
            value(&format!("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{of}.sum")),
            value(&format!("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{of}.sum")),
        )
    };
    let local = value("smsp__inst_executed_op_local_ld.sum").zip(value("smsp__inst_executed_op_local_st.sum"));
    MemoryTable {
        sectors_per_load: per_request("ld"),
        sectors_per_store: per_request("st"),
        l1_hit: profile.share("l1tex__t_sector_hit_rate.pct"),
        l2_hit: profile.share("lts__t_sector_hit_rate.pct"),
        load_conflicts: conflicts("ld"),
        store_conflicts: conflicts("st"),
        local_instructions: local.map(|(loads, stores)| loads + stores),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(values: &[(&str, f64)]) -> KernelProfile {
        KernelProfile {
            values: values.iter().map(|&(name, value)| (name.to_owned(), value)).collect(),
            ..KernelProfile::default()
        }
    }

    #[test]
    fn the_nearest_roof_is_the_one_that_is_used_most() {
        // Measured values of a copy kernel on an H200.
        let figures = Figures::of(&profile(&[
            ("gpu__time_duration.sum", 541_000.0),
            (Roof::Dram.metric(), 84.1),
            (Roof::Issue.metric(), 4.0),
            (Roof::Tensor.metric(), 0.0),
            ("dram__bytes_read.sum", 1.07e9),
            ("dram__bytes_write.sum", 1.05e9),
        ]));
        assert_eq!(figures.nearest_roof(), Some((Roof::Dram, 0.841)));
        assert_eq!(figures.roof(Roof::L2), None);
        assert!((figures.dram_read.unwrap() / 1e12 - 1.978).abs() < 1e-3);
        assert!((figures.bytes[0].unwrap() - 2.12e9).abs() < 1.0);
        assert_eq!(Figures::of(&profile(&[])).nearest_roof(), None);
        let equal = Figures::of(&profile(&[(Roof::Issue.metric(), 50.0), (Roof::Tensor.metric(), 50.0)]));
        assert_eq!(equal.nearest_roof(), Some((Roof::Tensor, 0.5)));
    }

    #[test]
    fn a_unit_is_used_as_much_as_its_busiest_part() {
        // Measured values of a gather on an H200; ncu shows 83.5 % of L2, 17.3 % of L1 and 53.6 % of device
        // memory.
        let gather = [
            (Roof::Dram.metric(), 53.841),
            (Roof::L2.metric(), 18.345),
            (Roof::L1.metric(), 8.791),
            (SM_ACTIVE, 99.218),
        ];
        let sectors = Figures::of(&profile(&gather));
        assert_eq!((sectors.roof(Roof::L2), sectors.nearest_roof()), (Some(0.18345), Some((Roof::Dram, 0.53841))));
        assert_eq!(sectors.lower_bounds, [Roof::L2, Roof::L1]);
        let more = [(Roof::L2.throughput().unwrap(), 82.687), (Roof::L1.throughput().unwrap(), 17.085)];
        let figures = Figures::of(&profile(&[&gather[..], &more].concat()));
        assert_eq!(figures.nearest_roof(), Some((Roof::L2, 0.82687)));
        assert!((figures.roof(Roof::L1).unwrap() - 0.17085 * 0.99218).abs() < 1e-9, "of the elapsed cycles");
        assert_eq!((figures.l2_sectors, figures.lower_bounds.len()), (Some(0.18345), 0));
    }

    #[test]
    fn ratios_without_a_whole_are_unknown() {
        let figures = Figures::of(&profile(&[
            ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", 0.0),
            ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 0.0),
            ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", 10.0),
            ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", 320.0),
            ("sm__cycles_active.avg", f64::NAN),
            ("gpu__time_duration.sum", 0.0),
            ("dram__bytes_read.sum", 10.0),
        ]));
        assert_eq!(figures.memory.sectors_per_load, None);
        assert_eq!(figures.memory.sectors_per_store, Some(32.0));
        assert_eq!((figures.balance, figures.dram_read, figures.duration_ns), (None, None, None));
    }

    #[test]
    fn stalls_are_parts_of_the_time_between_two_instructions() {
        let (long, not_selected) = (stall_metric("long_scoreboard"), stall_metric("not_selected"));
        let figures = Figures::of(&profile(&[
            ("smsp__average_warp_latency_per_inst_issued.ratio", 20.0),
            (&long, 15.0),
            (&not_selected, 1.0),
        ]));
        let found: Vec<_> = figures.stalls.iter().map(|stall| (stall.reason, stall.share)).collect();
        assert_eq!(found, [("long_scoreboard", 0.75), ("not_selected", 0.05)]);
        for reason in stall_reasons() {
            assert_ne!(StallReason { reason, share: 0.0 }.words(), "stalled for an unnamed reason", "{reason}");
        }
    }

    #[test]
    fn instructions_are_reported_by_pipe() {
        let of = |values: &[(&str, f64)]| Figures::of(&profile(values));
        let mut values = vec![("sm__inst_executed.sum", 1_000.0)];
        values.extend([("sm__inst_executed_pipe_lsu.sum", 200.0), ("sm__inst_executed_pipe_alu.sum", 500.0)]);
        let some = of(&values);
        assert_eq!((some.instructions, &some.pipes[..]), (Some(1_000.0), &[(Pipe::Alu, 0.5), (Pipe::Lsu, 0.2)][..]));
        assert_eq!(some.other_pipes(), None, "not all were measured");
        values.extend([("sm__inst_executed_pipe_fma.sum", 100.0), ("sm__inst_executed_pipe_tensor.sum", 0.0)]);
        values.push(("sm__inst_executed_pipe_xu.sum", 50.0));
        assert!((of(&values).other_pipes().unwrap() - 0.15).abs() < 1e-12);
        assert_eq!(of(&values[1..]).pipes, []);
        for pipe in Pipe::ALL {
            let metric = format!("sm__inst_executed_pipe_{}.sum", pipe.name());
            assert!(crate::kernels::sets::groups().concat().contains(&metric), "{metric}");
        }
    }

    #[test]
    fn operations_are_reported_by_type() {
        let figures = Figures::of(&profile(&[
            ("sm__ops_path_tensor_src_bf16_dst_fp32.sum", 1e12),
            ("sm__ops_path_tensor_src_fp8.sum", 0.0),
            ("smsp__thread_inst_executed_pipe_fma_pred_on.sum", 4e9),
        ]));
        assert_eq!(figures.operations, [(DataType::Bf16, 1e12), (DataType::Fp32, 8e9)]);
    }
}
