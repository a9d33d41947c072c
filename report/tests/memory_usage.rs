//! Memory use of a synthetic program: amount, time of the peak, and responsible call, for any order of
//! delivery.

use crate::support::{Scenario, ZERO, gpu};
use gpuwhy_report::run::MemoryReport;
use gpuwhy_trace::record::MemoryOperation::{Allocation, Release};

fn program() -> Scenario {
    let mut scenario = Scenario::new();
    gpu(0).kernel("gemm").at(100).lasting(50).launched(&mut scenario, 1, 90, 5);
    scenario.memory(1, 1_000, Allocation, 0x1000, 3_000_000);
    scenario.pushed(2, 1_900, 2_500, "train");
    scenario.pushed(2, 1_950, 2_400, "step 7");
    scenario.memory(2, 2_000, Allocation, 0x2000, 5_000_000);
    // One thread releases memory that another one allocated.
    scenario.memory(1, 3_000, Release, 0x2000, 5_000_000);
    scenario.memory(1, 4_000, Allocation, 0x3000, 1_000_000);
    // Allocated before the start of recording.
    scenario.memory(1, 5_000, Release, 0x9000, 7_000_000);
    scenario
}

fn check(memory: &MemoryReport) {
    assert_eq!((memory.rows.len(), memory.unknown_releases, memory.table_overflow), (1, 1, 0));
    let row = &memory.rows[0];
    let holding = &row.holding;
    assert_eq!((holding.peak, holding.current, holding.largest), (8_000_000, 4_000_000, 5_000_000));
    assert_eq!((holding.allocations, holding.releases, holding.allocated), (3, 1, 9_000_000));
    assert_eq!(holding.peak_at.nanos(), ZERO + 2_005_000);
    let by = row.peak_by.as_ref().expect("the call is there");
    assert_eq!((by.thread.0, by.function.as_str()), (2, "cudaMalloc"));
    assert_eq!(by.range.as_deref(), Some("step *"), "the innermost range of that thread");
}

#[test]
fn the_peak_is_found_with_its_call_and_range_whatever_the_order() {
    let scenario = program();
    for (period, seed) in [(10_000, 0), (700, 1), (3, 2), (50, 77), (100_000, 5)] {
        check(&scenario.report_of(&scenario.run_with(period, seed)).memory.expect("memory was recorded"));
    }
}

#[test]
fn the_report_says_it_in_one_sentence() {
    let text = program().report().summary().replace("\n        ", " ");
    let sentence = "Memory: 2 allocations hold 4.0 MB, at most 8.0 MB (1 other was released).";
    assert!(text.contains(sentence), "{text}");
    let sentence = "1 release of memory that was allocated before recording.";
    assert!(text.contains(sentence), "{text}");
}

#[test]
fn without_records_of_memory_there_is_no_section() {
    let mut scenario = Scenario::new();
    gpu(0).kernel("gemm").at(100).lasting(50).launched(&mut scenario, 1, 90, 5);
    let report = scenario.report();
    assert!(report.memory.is_none() && !report.full().contains("Memory:"));
}
