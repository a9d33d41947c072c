//! Step detection on the launches of recorded programs, without their annotation.
//!
//! A reference trace has three to six steps, which is less than the detector requires. So the steps that the
//! program named are replayed repeatedly, as they were launched, and the detected period must be theirs.

use crate::reference_trace::load;
use profiler_core::steps::{Cut, LaunchKind, StepDetector, StepSource};
use profiler_core::whatif::{Operation, OperationClass};

/// Number of steps replayed.
const STEPS: usize = 48;

/// A launch: its symbol, and its kind.
type Launch = (u32, LaunchKind);

/// Launches of each complete step of the trace, in order.
fn steps(name: &str) -> Option<Vec<Vec<Launch>>> {
    let trace = load(name)?;
    let launches = trace.operations.iter().zip(&trace.symbols);
    let launch = |(operation, &symbol): (&Operation, &u32)| {
        let from_host = operation.class == OperationClass::CopyFromHost;
        let kind = if from_host { LaunchKind::HostCopy } else { LaunchKind::Other };
        Some((operation.launch?.start, operation.start, (symbol, kind)))
    };
    let mut launches: Vec<(u64, u64, Launch)> = launches.filter_map(launch).collect();
    launches.sort_unstable_by_key(|&(called, began, (symbol, _))| (called, began, symbol));
    let within = |from: u64, to: u64| launches.iter().filter(move |launch| (from..to).contains(&launch.0));
    let steps = trace.steps.windows(2).map(|pair| within(pair[0], pair[1]).map(|&(.., launch)| launch).collect());
    Some(steps.collect())
}

/// The period of `name` equals that of its named steps, and steps are found at exactly that distance.
fn check(name: &str) {
    let Some(steps) = steps(name) else { return };
    let length = steps[0].len();
    assert!(steps.iter().all(|step| step.len() == length), "{name}: steps of one length");
    // Unchanged, and as launches for which only the symbol is known.
    for copies_are_known in [true, false] {
        let mut detector = StepDetector::default();
        let mut begins = Vec::new();
        for (number, &(symbol, kind)) in steps.iter().cycle().take(STEPS).flatten().enumerate() {
            let kind = if copies_are_known { kind } else { LaunchKind::Other };
            if let Some(Cut::Begin(_)) = detector.push(symbol, 0, kind) {
                begins.push(number);
            }
        }
        println!("{name}: {length} launches a step, found {:?}, {} steps", detector.published(), begins.len());
        assert_eq!(detector.published(), Some((StepSource::Period, length as u32)), "{name}");
        assert!(begins.len() >= STEPS / 3, "{name}: {} steps", begins.len());
        let last = &begins[begins.len() - STEPS / 3..];
        assert!(last.windows(2).all(|pair| pair[1] - pair[0] == length), "{name}: {last:?}");
    }
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
