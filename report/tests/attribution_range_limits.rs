//! Programs with more ranges, or more operations in ranges, than are kept: the excess is counted.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::{RangeRow, RangesReport};
use gpuwhy_trace::record::RangeEventKind as Kind;

fn rows(scenario: &Scenario) -> RangesReport {
    scenario.report().ranges.expect("there are ranges")
}

fn row<'a>(report: &'a RangesReport, name: &str) -> &'a RangeRow {
    report.rows.iter().find(|row| row.name() == name).unwrap_or_else(|| panic!("{name}: {report:?}"))
}

#[test]
fn ranges_of_sixty_four_threads_are_kept_apart() {
    let of = |threads: u32| {
        let mut scenario = Scenario::new();
        (1..=threads).for_each(|thread| scenario.pushed(thread, 100 + u64::from(thread), 1_000, "work"));
        let report = rows(&scenario);
        (row(&report, "work").host.durations.count(), report.counts.table_overflow)
    };
    assert_eq!(of(64), (64, 0));
    assert_eq!(of(67), (64, 3));
}

#[test]
fn each_end_without_a_begin_is_counted() {
    let mut scenario = Scenario::new();
    scenario.pushed(1, 100, 200, "work");
    (300..303).for_each(|at| scenario.range(1, at, Kind::Pop, "", 0));
    let report = rows(&scenario);
    assert_eq!((report.counts.unmatched, report.open), (3, 0));
    assert_eq!(row(&report, "work").host.durations.total(), 100_000);
}

#[test]
fn kernels_beyond_the_table_are_counted_and_those_in_it_go_on() {
    let mut scenario = Scenario::new();
    scenario.pushed(1, 100, 100_000, "work");
    let names = (0..4_100).chain([0, 1]);
    for (at, name) in (0..).zip(names) {
        let call = 200 + 10 * at;
        gpu(0).kernel(&format!("kernel{name}")).at(call + 6).lasting(2).launched(&mut scenario, 1, call, 1);
    }
    let report = rows(&scenario);
    assert_eq!(report.counts.kernel_overflow, 4);
    let work = row(&report, "work");
    assert_eq!((work.operations, work.device_ns), (4_102, 4_102 * 2_000));
}

/// A kernel that is launched in `first` and runs after `others` more ranges have ended, on thread `thread`.
fn late(thread: u32, others: u64) -> RangesReport {
    let mut scenario = Scenario::new();
    scenario.pushed(1, 100, 200, "first");
    (0..others).for_each(|other| scenario.pushed(thread, 300 + 2 * other, 301 + 2 * other, "other"));
    for kernel in 0..3 {
        let end = 1_000 + 2 * others + 10 * kernel;
        gpu(0).kernel("late").at(end).lasting(5).launched(&mut scenario, 1, 110 + 10 * kernel, 5);
    }
    rows(&scenario)
}

#[test]
fn work_of_a_range_that_a_thread_has_forgotten_is_counted() {
    // A thread remembers 32,768 starts and ends; the range open at the launches is older.
    let report = late(1, 16_384);
    assert_eq!((report.counts.evicted, row(&report, "first").operations), (3, 0));
    let report = late(1, 16_383);
    assert_eq!((report.counts.evicted, row(&report, "first").device_ns), (0, 15_000));
}

#[test]
fn a_range_waits_for_its_work_until_so_many_others_are_over() {
    // The last 32,768 completed ranges, of any thread, still receive the work launched in them.
    let report = late(2, 32_767);
    let first = row(&report, "first");
    assert_eq!((first.device_ns, first.operations, first.projected.durations.total()), (15_000, 3, 25_000));
    // After that, the work counts only for the name, and for no other range.
    let report = late(2, 32_768);
    let first = row(&report, "first");
    assert_eq!((first.device_ns, first.projected.durations.count()), (15_000, 0));
    assert_eq!(row(&report, "other").operations, 0);
}
