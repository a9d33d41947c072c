use gpuwhy_trace::geometry::{Geometry, Multiprocessors};
use gpuwhy_trace::kernels::KernelProfile;
use gpuwhy_trace::record::{Device, LaunchConfig};

use super::*;
use crate::kernels::{DataType, Figures, Peaks, Roof, Roofline};

struct Case {
    name: String,
    launch: LaunchConfig,
    device: Device,
    values: Vec<(String, f64)>,
}

impl Case {
    fn new(values: &[(&str, f64)]) -> Self {
        Self {
            name: "kernel".to_owned(),
            launch: LaunchConfig {
                grid: [1_056, 1, 1],
                block: [256, 1, 1],
                registers_per_thread: 32,
                ..LaunchConfig::default()
            },
            device: Device {
                compute_capability: [9, 0],
                multiprocessors: 132,
                core_clock_khz: 1_980_000,
                memory_bandwidth_kbps: 4_800_000_000,
                ..Device::default()
            },
            values: values.iter().map(|&(name, value)| (name.to_owned(), value)).collect(),
        }
    }

    fn with(mut self, name: &str, value: f64) -> Self {
        self.values.push((name.to_owned(), value));
        self
    }

    fn check(&self, name: &str) -> Check {
        let profile = KernelProfile { values: self.values.clone(), ..KernelProfile::default() };
        let figures = Figures::of(&profile);
        let (room, peaks) = (Multiprocessors::of(&self.device), Peaks::of(&self.device));
        let geometry = room.as_ref().and_then(|room| Geometry::of(&self.launch, room));
        let roofline = Roofline::of(&figures, peaks.as_ref());
        let evidence = Evidence {
            name: &self.name,
            launch: &self.launch,
            capability: self.device.compute_capability,
            figures: &figures,
            roofline: &roofline,
            peaks: peaks.as_ref(),
            geometry: geometry.as_ref(),
            room: room.as_ref(),
        };
        let rule = all().into_iter().find(|rule| rule.name == name).unwrap();
        let check = rule.check(&evidence);
        let listed = findings(&evidence).into_iter().find(|finding| finding.rule == name);
        assert_eq!(listed.map_or(Check::Clear, |finding| finding.check), check, "the list has what the rule says");
        check
    }

    /// Local gain in whole per mille, or -1 if the rule does not apply.
    fn gain(&self, name: &str) -> i64 {
        match self.check(name) {
            Check::Applies { local_gain, .. } => (local_gain.unwrap_or(0.0) * 1e3).round() as i64,
            _ => -1,
        }
    }

    fn cannot_tell(&self, name: &str) -> bool {
        matches!(self.check(name), Check::CannotTell(_))
    }
}

fn roofs(tensor: f64, dram: f64, issue: f64) -> Case {
    Case::new(&[(Roof::Tensor.metric(), tensor), (Roof::Dram.metric(), dram), (Roof::Issue.metric(), issue)])
}

#[test]
fn the_limit_is_the_unit_that_is_used_most() {
    let copy = roofs(0.0, 84.1, 4.0);
    // Fusing can remove the kernel completely.
    assert_eq!((copy.gain("at_roof"), copy.gain("latency_bound")), (1000, -1));
    let Check::Applies { says, advice, .. } = copy.check("at_roof") else { panic!() };
    assert!(says.contains("84 %") && says.contains("device memory") && advice.contains("fuse"), "{says} {advice}");
    // 1 - 0.841 / 0.92.
    assert!(says.contains("the same bytes could take 9 % less time"), "{says}");
    let Check::Applies { says, .. } = roofs(0.0, 93.0, 4.0).check("at_roof") else { panic!() };
    assert!(says.contains("as much as copies do"), "{says}");
    assert_eq!(roofs(82.0, 83.0, 4.0).gain("at_roof"), 180, "fused it would still multiply matrices");
    assert_eq!(roofs(95.0, 20.0, 10.0).gain("at_roof"), 0, "nothing is left above what libraries reach");
    let between = roofs(0.0, 70.0, 61.0);
    assert_eq!((between.gain("at_roof"), between.gain("latency_bound")), (-1, -1), "two units are as near");
    assert_eq!(roofs(25.0, 70.0, 30.0).gain("at_roof"), 750, "the tensor cores have to work for a quarter");
    assert_eq!(roofs(70.0, 30.0, 10.0).gain("at_roof"), -1, "tensor cores that wait");
    assert!(Case::new(&[]).cannot_tell("at_roof") && Case::new(&[]).cannot_tell("latency_bound"));
}

#[test]
fn waiting_can_bring_what_is_left_of_issue_slots_and_of_the_roof() {
    let waits = roofs(0.0, 40.0, 10.0).with("smsp__issue_active.avg.per_cycle_active", 0.7);
    assert_eq!(waits.gain("latency_bound"), 300, "issue slots are what is left least");
    assert_eq!(roofs(0.0, 40.0, 10.0).gain("latency_bound"), 600);
}

#[test]
fn the_tail_and_small_grids_follow_from_the_grid() {
    // 8 blocks of 256 threads fit on each of 132 multiprocessors: a wave is 1,056 blocks.
    let mut case = roofs(0.0, 30.0, 10.0);
    assert_eq!((case.gain("tail"), case.gain("small_grid")), (-1, -1));
    case.launch.grid = [1_057, 1, 1];
    assert_eq!(case.gain("tail"), 500, "one block more makes a second wave, nearly empty");
    case.launch.grid = [66, 1, 1];
    assert_eq!((case.gain("tail"), case.gain("small_grid")), (-1, 500));
    case.launch.block = [48, 1, 1];
    assert_eq!(case.gain("block_size"), 250, "48 of 64 lanes");
    case.device = Device::default();
    assert!(case.cannot_tell("tail") && case.cannot_tell("small_grid") && case.cannot_tell("block_size"));
}

#[test]
fn occupancy_counts_where_warps_wait() {
    let mut case = roofs(0.0, 30.0, 10.0).with("sm__warps_active.avg.pct_of_peak_sustained_active", 20.0);
    case.launch.registers_per_thread = 128;
    // 2 blocks of 8 warps of 64.
    assert_eq!(case.gain("theoretical_occupancy"), 700, "0.75 missing, and 0.7 left to the roof");
    assert_eq!(case.gain("achieved_occupancy"), 200, "0.20 of 0.25");
    let near = Case { values: roofs(90.0, 30.0, 10.0).values, ..case };
    assert_eq!(near.gain("theoretical_occupancy"), -1, "a matrix kernel near its roof needs no more warps");
    assert!(near.cannot_tell("achieved_occupancy"));
}

#[test]
fn imbalance_is_what_the_mean_lacks() {
    let case = roofs(0.0, 30.0, 10.0)
        .with("sm__cycles_active.avg", 700.0)
        .with("sm__cycles_active.max", 1_000.0)
        .with("sm__cycles_active.avg.pct_of_peak_sustained_elapsed", 60.0);
    assert_eq!(case.gain("imbalance"), 180);
    assert!(roofs(0.0, 30.0, 10.0).cannot_tell("imbalance"));
}

#[test]
fn sectors_above_those_of_wide_accesses_are_wasted() {
    let loads = |sectors: f64| {
        roofs(0.0, 80.0, 10.0)
            .with("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", 100.0)
            .with("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 100.0 * sectors)
    };
    assert_eq!(loads(32.0).gain("uncoalesced_loads"), 400, "half of the sectors at 80 % of the level");
    assert_eq!(loads(16.0).gain("uncoalesced_loads"), -1, "16-byte loads");
    assert_eq!(loads(4.0).check("uncoalesced_stores"), Check::Clear, "there were none");
    assert!(roofs(0.0, 80.0, 10.0).cannot_tell("uncoalesced_loads"));
}

#[test]
fn conflicts_count_by_the_use_of_shared_memory() {
    let mut case = Case::new(&[(Roof::L1.metric(), 90.0)])
        .with("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", 930.0)
        .with("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", 1_000.0);
    assert_eq!(case.gain("bank_conflicts"), 837);
    case.values.push((Roof::Dram.metric().to_owned(), 60.0));
    assert_eq!(case.gain("bank_conflicts"), 400, "then device memory is the limit");
    case.values.retain(|(name, _)| name == Roof::L1.metric());
    assert_eq!(case.check("bank_conflicts"), Check::Clear, "it has no shared memory");
    case.launch.static_shared_bytes = 1;
    assert!(case.cannot_tell("bank_conflicts"));
}

#[test]
fn a_conversion_of_the_layout_goes_altogether() {
    let named = |name: &str| Case { name: name.to_owned(), ..roofs(0.0, 70.0, 10.0) };
    for name in [
        "_ZN5cudnn19engines_precompiled16nchwToNhwcKernelI6__halfS2_fLb0ELb1EL21cudnnKernelDataType_t0EEEv",
        "_ZN5cudnn3ops16nhwcToNchwKernelIffffLb1ELb0E",
    ] {
        assert_eq!(named(name).gain("layout_conversion"), 1000, "{name}");
    }
    let Check::Applies { advice, .. } = named("nchwToNhwcKernel").check("layout_conversion") else { panic!() };
    assert!(advice.contains("channels_last") && !advice.contains("  "), "{advice}");
    for name in ["sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", "bn_fw_tr_1C11_kernel_NCHW"] {
        assert_eq!(named(name).gain("layout_conversion"), -1, "{name} works");
    }
}

#[test]
fn spills_are_reported_without_a_gain() {
    let mut case = roofs(0.0, 30.0, 10.0);
    assert_eq!(case.gain("spills"), -1);
    case.launch.local_bytes_per_thread = 64;
    assert_eq!(case.gain("spills"), 0);
    let unused = case.with("smsp__inst_executed_op_local_ld.sum", 0.0).with("smsp__inst_executed_op_local_st.sum", 0.0);
    assert_eq!(unused.gain("spills"), -1, "it has an array that it does not touch");
}

#[test]
fn divergence_leaves_threads_idle() {
    let case = |threads| roofs(0.0, 10.0, 50.0).with("smsp__thread_inst_executed_per_inst_executed.ratio", threads);
    assert_eq!((case(8.0).gain("divergence"), case(30.0).gain("divergence")), (375, -1));
    assert!(roofs(0.0, 10.0, 50.0).cannot_tell("divergence"));
}

#[test]
fn the_largest_stall_counts_while_few_instructions_are_issued() {
    let case = |issued| {
        roofs(0.0, 50.0, 10.0)
            .with("smsp__average_warp_latency_per_inst_issued.ratio", 10.0)
            .with(&crate::kernels::sets::stall_metric("not_selected"), 5.0)
            .with(&crate::kernels::sets::stall_metric("long_scoreboard"), 4.0)
            .with("smsp__issue_active.avg.per_cycle_active", issued)
    };
    assert_eq!((case(0.2).gain("stalls"), case(0.9).gain("stalls")), (400, -1));
    let Check::Applies { says, .. } = case(0.2).check("stalls") else { panic!() };
    assert!(says.contains("40 %") && says.contains("device memory"), "{says}");
    assert!(roofs(0.0, 50.0, 10.0).cannot_tell("stalls"));
}

#[test]
fn old_matrix_instructions_are_distinguished_from_new_ones() {
    // Measured on an H200: mma.sync at 84 % did 546 TFLOP/s, wgmma at 88.8 % and 1.674 GHz 804.
    let case = |tera: f64, tensor: f64| {
        roofs(tensor, 20.0, 10.0)
            .with("gpu__time_duration.sum", 1e6)
            .with("gpc__cycles_elapsed.avg.per_second", 1.674e9)
            .with("sm__ops_path_tensor_src_bf16_dst_fp32.sum", tera * 1e12 * 1e-3)
    };
    assert_eq!(case(804.0, 88.8).gain("old_tensor_path"), -1);
    let gain = case(546.0, 84.0).gain("old_tensor_path");
    assert!((235..=240).contains(&gain), "0.84 of the time, of which 0.72 is work: {gain}");
    assert!(roofs(80.0, 20.0, 10.0).cannot_tell("old_tensor_path"));
    let ampere = Case { device: Device { compute_capability: [8, 0], ..case(1.0, 1.0).device }, ..case(546.0, 84.0) };
    assert_eq!(ampere.gain("old_tensor_path"), -1, "it has no newer ones");
}

#[test]
fn fp32_products_could_use_the_tensor_cores() {
    // 45 of 66.9 TFLOP/s.
    let case = roofs(0.0, 20.0, 60.0)
        .with("gpu__time_duration.sum", 1e6)
        .with("gpc__cycles_elapsed.avg.per_second", 1.98e9)
        .with("smsp__thread_inst_executed_pipe_fma_pred_on.sum", 45e9 / 2.0);
    assert_eq!(case.gain("fp32_matrix"), 958, "BF16 is 16 times as fast as the FP32 peak, of which 0.67 is used");
    let slow = roofs(0.0, 20.0, 60.0).with("smsp__thread_inst_executed_pipe_fma_pred_on.sum", 1e9);
    assert_eq!(slow.gain("fp32_matrix"), -1);
    assert_eq!(DataType::Fp32.name(), "fp32");
}

#[test]
fn a_lowered_clock_counts_for_units_that_follow_it() {
    let case = |tensor, dram| roofs(tensor, dram, 5.0).with("gpc__cycles_elapsed.avg.per_second", 1.584e9);
    assert_eq!((case(90.0, 20.0).gain("lowered_clock"), case(20.0, 90.0).gain("lowered_clock")), (180, -1));
    assert!(roofs(90.0, 20.0, 5.0).cannot_tell("lowered_clock"));
}

#[test]
fn every_rule_has_a_source_and_a_name_of_its_own() {
    let mut names: Vec<_> = all().iter().map(|rule| rule.name).collect();
    assert!(all().iter().all(|rule| rule.source.len() > 5 && rule.threshold >= 0.0));
    names.sort_unstable();
    let before = names.len();
    names.dedup();
    assert_eq!(names.len(), before);
}

#[test]
fn what_brings_most_comes_first_and_what_is_not_known_last() {
    let case = roofs(0.0, 30.0, 10.0);
    let profile = KernelProfile { values: case.values.clone(), ..KernelProfile::default() };
    let figures = Figures::of(&profile);
    let evidence = Evidence {
        name: "kernel",
        launch: &case.launch,
        capability: [9, 0],
        figures: &figures,
        roofline: &Roofline::default(),
        peaks: None,
        geometry: None,
        room: None,
    };
    let found = findings(&evidence);
    assert_eq!(found[0].rule, "latency_bound");
    let first_unknown = found.iter().position(|finding| matches!(finding.check, Check::CannotTell(_))).unwrap();
    assert!(found[first_unknown..].iter().all(|finding| matches!(finding.check, Check::CannotTell(_))));
    assert!(found.iter().all(|finding| finding.check != Check::Clear));
}
