//! The page of a kernel for a reader who cannot change it, or with inconsistent figures.

use gpuwhy_trace::kernels::KernelProfile;
use gpuwhy_trace::record::{Device, LaunchConfig};

use super::rules::{Check, Finding};
use super::{Figures, InGraphs, InGraphsPart, KernelView, KernelsReport, Roof, Roofline, StepGain, text};
use crate::text_format::Style;

const CUDNN: &str =
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0";

fn finding(rule: &'static str, local_gain: f64) -> Finding {
    let check = Check::Applies { says: format!("This is {rule}."), advice: "change it", local_gain: Some(local_gain) };
    Finding { rule, check }
}

fn view(symbol: &str, share: f64, values: &[(&str, f64)]) -> KernelView {
    let values = values.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let profile = KernelProfile { values, ..KernelProfile::default() };
    KernelView {
        name: symbol.to_owned(),
        symbol: symbol.to_owned(),
        launch: LaunchConfig::default(),
        device: Device::default(),
        launches: 10,
        total_ns: 1_000_000,
        share: Some(share),
        in_graphs: None,
        figures: Figures::of(&profile),
        profile,
        roofline: Roofline::default(),
        geometry: None,
        reductions: Vec::new(),
        findings: Vec::new(),
        finding_gains: Vec::new(),
        gains: None,
    }
}

/// The page with its lines joined.
fn page(measured: Vec<KernelView>) -> String {
    let shown = text(&KernelsReport { measured, ..KernelsReport::default() }, Style::default(), None);
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn busy() -> [(&'static str, f64); 2] {
    [(Roof::Dram.metric(), 84.0), (Roof::Issue.metric(), 4.0)]
}

#[test]
fn nobody_is_reported_to_change_the_code_of_a_closed_library() {
    let with_advice = |symbol: &str| {
        let mut view = view(symbol, 0.5, &busy());
        view.findings = vec![finding("at_roof", 0.9), finding("theoretical_occupancy", 0.5)];
        view.finding_gains = vec![None; 2];
        page(vec![view])
    };
    let closed = with_advice(CUDNN);
    assert!(closed.contains("library cuDNN: its code is fixed; another shape"), "{closed}");
    assert!(
        closed.contains("This is at_roof. At most 90 % of the kernel and 45 % of the run. To do: change it."),
        "{closed}"
    );
    assert!(
        closed.ends_with("This is theoretical_occupancy. At most 50 % of the kernel and 25 % of the run."),
        "{closed}"
    );
    let open = with_advice("void at::native::vectorized_elementwise_kernel<4>");
    assert!(open.contains("library PyTorch: torch.compile may fuse") && open.matches("To do").count() == 2, "{open}");
    let own = with_advice("_Z6k_copyPfPKf");
    assert!(!own.contains("library ") && own.matches("To do: change it.").count() == 2, "{own}");
    let source_lines = |page: &str| page.contains("source lines: `ncu --set full --import-source yes");
    assert_eq!([&closed, &open, &own].map(|page| source_lines(page)), [false, true, true], "{open}");
}

#[test]
fn the_use_of_one_part_of_a_unit_is_called_a_lower_bound() {
    let l2 = Roof::L2;
    let sectors = page(vec![view("kernel", 0.5, &[(l2.metric(), 18.9)])]);
    assert!(sectors.contains("L2 cache at least 18 %"), "{sectors}");
    let busiest = page(vec![view("kernel", 0.5, &[(l2.metric(), 18.9), (l2.throughput().unwrap(), 83.5)])]);
    assert!(busiest.contains("L2 cache 84 %"), "{busiest}");
}

#[test]
fn shares_above_everything_are_reported_as_inconsistent() {
    let says = |values: &[(&str, f64)]| page(vec![view("kernel", 0.5, values)]).contains("inconsistent shares above");
    assert!(!says(&busy()) && !says(&[(Roof::Dram.metric(), 108.0)]), "counters overshoot a little");
    assert!(says(&[(Roof::Dram.metric(), 112.0)]));
    assert!(says(&[(Roof::Dram.metric(), 20.0), ("lts__t_sector_hit_rate.pct", 381.0)]));
}

#[test]
fn a_gain_that_the_rest_of_the_program_hides_has_its_reason() {
    let says = |share: f64, speedup: f64| {
        let mut view = view("kernel", share, &busy());
        view.findings = vec![finding("at_roof", 0.5)];
        view.finding_gains = vec![Some(StepGain { speedup, interval: Some((1.0, speedup + 0.1)) })];
        page(vec![view]).contains("other work or the CPU is the limit without it")
    };
    // Half of the kernel is 10 % of the run: 1.11x on its own.
    assert!(says(0.2, 1.03) && !says(0.2, 1.09));
    assert!(!says(0.02, 1.0), "too little to be missed");
}

#[test]
fn kernels_that_were_not_measured_do_not_count_as_measured() {
    assert!(page(vec![view("a", 0.5, &busy()), view("b", 0.2, &busy())]).starts_with("2 kernels measured;"));
    assert!(page(vec![view("a", 0.5, &busy()), view("b", 0.2, &[])]).starts_with("1 of 2 kernels measured;"));
}

#[test]
fn the_part_in_graphs_is_said_to_be_unmeasured() {
    let mut view = view("add", 0.5, &busy());
    assert!(!page(vec![view.clone()]).contains("CUDA graphs"));
    let parts = vec![InGraphsPart { captured_in: "Mlp > Linear".to_owned(), share: 0.4 }];
    view.in_graphs = Some(InGraphs { share: 0.62, parts });
    let shown = page(vec![view]);
    assert!(shown.contains("not measured in CUDA graphs 62 % of the time of this name: Mlp > Linear 40 %"), "{shown}");
}
