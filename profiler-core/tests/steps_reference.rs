//! Step detection on the launches of recorded programs, without their annotation.
//!
//! A reference trace has three to six steps, which is less than the detector waits for. So the steps that the program
//! named are played again and again, as they were launched, and the period that is found must be theirs.

mod reference_trace;

use profiler_core::steps::{Cut, StepDetector, StepSource};
use reference_trace::load;

/// Steps that are played.
const STEPS: usize = 48;

/// What each complete step of the trace launches, in order.
fn steps(name: &str) -> Option<Vec<Vec<u32>>> {
    let trace = load(name)?;
    let launches = trace.operations.iter().zip(&trace.symbols);
    let mut launches: Vec<(u64, u64, u32)> =
        launches.filter_map(|(operation, &symbol)| Some((operation.launch?.start, operation.start, symbol))).collect();
    launches.sort_unstable();
    let within = |from: u64, to: u64| launches.iter().filter(move |launch| (from..to).contains(&launch.0));
    let steps = trace.steps.windows(2).map(|pair| within(pair[0], pair[1]).map(|&(.., symbol)| symbol).collect());
    Some(steps.collect())
}

/// The period of `name` is that of its named steps, and steps are found at just that distance.
fn check(name: &str) {
    let Some(steps) = steps(name) else { return };
    let length = steps[0].len();
    assert!(steps.iter().all(|step| step.len() == length), "{name}: steps of one length");
    let mut detector = StepDetector::default();
    let mut begins = Vec::new();
    for (number, &symbol) in steps.iter().cycle().take(STEPS).flatten().enumerate() {
        if let Some(Cut::Begin(_)) = detector.push(symbol, 0, false) {
            begins.push(number);
        }
    }
    println!("{name}: {length} launches a step, found {:?}, {} steps", detector.published(), begins.len());
    assert_eq!(detector.published(), Some((StepSource::Period, length as u32)), "{name}");
    assert!(begins.len() >= STEPS / 3, "{name}: {} steps", begins.len());
    let last = &begins[begins.len() - STEPS / 3..];
    assert!(last.windows(2).all(|pair| pair[1] - pair[0] == length), "{name}: {last:?}");
}

#[test]
fn resnet50() {
    check("resnet50_workers0");
    check("resnet50_workers4");
}

#[test]
fn traces_of_holistic_trace_analysis() {
    check("hta_df_index_resolver");
    check("hta_trace_diff_control");
    check("hta_ns_resolution");
    check("hta_nccl");
}
