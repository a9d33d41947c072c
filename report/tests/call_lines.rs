//! Lines of calls that launch, copy, set memory and wait, from samples of the launching thread.

use crate::support::{Scenario, Work, gpu};
use gpuwhy_report::run::{CallLineRow, Report};
use gpuwhy_trace::record::{HostSample, MemoryKind, ThreadState};

const TRAIN: (&str, &str, u32) = ("/home/u/train.py", "main", 42);
const NEXT: (&str, &str, u32) = ("/home/u/train.py", "main", 43);
const WAIT: &str = "cudaStreamSynchronize_v3020";

/// Adds a sample whose stack was read within `read_within` microseconds; 0 if unknown.
fn seen(scenario: &mut Scenario, at: u64, read_within: u32, stack: &[(&str, &str, u32)]) {
    let sample = HostSample { state: ThreadState::Running, read_within: 1_000 * read_within, ..HostSample::default() };
    scenario.sample(1, at.saturating_sub(10), at, sample, stack);
}

/// Lines of a kind: kind, line and samples.
fn rows(report: &Report) -> Vec<(&str, u32, u64)> {
    let calls = report.host.iter().flat_map(|host| &host.calls);
    calls.map(|row: &CallLineRow| (row.calls.name(), row.line, row.samples)).collect()
}

/// Twelve times a kernel, a copy of a value, a wait of 10 us for it from 6 on, and another kernel from 100 on.
fn reads(mut sample: impl FnMut(&mut Scenario, u64)) -> Report {
    let mut scenario = Scenario::new();
    for unit in 0..12 {
        let at = 1_000 + 1_000 * unit;
        gpu(0).kernel("sum").at(at - 98).lasting(105).launched(&mut scenario, 1, at - 110, 5);
        let copy = scenario.call(1, "cudaMemcpyAsync_v3020", at, 5);
        scenario.add(gpu(0).d2h(MemoryKind::Pinned, 8).at(at + 10).lasting(2).by(copy));
        scenario.call(1, WAIT, at + 6, 10);
        gpu(0).kernel("next").at(at + 108).lasting(50).launched(&mut scenario, 1, at + 100, 5);
        sample(&mut scenario, at);
    }
    scenario.report()
}

#[test]
fn a_sample_counts_for_a_short_wait_if_its_stack_was_read_within_it() {
    assert_eq!(rows(&reads(|scenario, at| seen(scenario, at + 8, 3, &[TRAIN]))), [("waits", 42, 12)]);
    // The stack is that of the next line.
    assert_eq!(rows(&reads(|scenario, at| seen(scenario, at + 8, 30, &[NEXT]))), []);
    // Old traces do not say when it was read.
    assert_eq!(rows(&reads(|scenario, at| seen(scenario, at + 8, 0, &[NEXT]))), [("waits", 43, 12)]);
}

#[test]
fn a_copy_and_the_wait_for_it_are_one_line() {
    assert_eq!(rows(&reads(|scenario, at| seen(scenario, at + 3, 6, &[TRAIN]))), [("waits", 42, 12)]);
    assert_eq!(rows(&reads(|scenario, at| seen(scenario, at + 1, 2, &[TRAIN]))), [("copies", 42, 12)]);
    assert_eq!(rows(&reads(|scenario, at| seen(scenario, at + 3, 60, &[NEXT]))), []);
}

/// Launches in a row, 10 us each with 10 us between, with a memset in every fourth place.
fn launches(work: impl Fn(u64) -> Work, mut sample: impl FnMut(&mut Scenario, u64)) -> Report {
    let mut scenario = Scenario::new();
    for index in 0..4_000 {
        let at = 1_000 + 20 * index;
        work(index).at(at + 12).lasting(4).launched(&mut scenario, 1, at, 10);
        if index % 80 == 3 {
            sample(&mut scenario, at);
        }
    }
    scenario.report()
}

#[test]
fn memsets_are_no_copies() {
    let work = |index| if index % 4 == 3 { gpu(0).memset(64) } else { gpu(0).kernel("gemm") };
    let report = launches(work, |scenario, at| seen(scenario, at + 2, 3, &[TRAIN]));
    assert_eq!(rows(&report), [("memsets", 42, 50)]);
}

#[test]
fn a_stack_that_is_read_some_launches_later_is_of_a_line_that_launches() {
    let report = launches(|_| gpu(0).kernel("gemm"), |scenario, at| seen(scenario, at + 2, 65, &[TRAIN]));
    assert_eq!(rows(&report), [("launches", 42, 50)]);
}

#[test]
fn inside_a_line_that_holds_everything_the_lines_that_divide_it_are_named() {
    const MODULE: (&str, &str, u32) = ("/home/u/run.py", "<module>", 13);
    const LOOP: (&str, &str, u32) = ("/v/lib/python3.12/site-packages/transformers/trainer.py", "Trainer.train", 100);
    let step = |line| ("/v/lib/python3.12/site-packages/transformers/trainer.py", "Trainer._epoch", line);
    let mut turn = 0;
    let report = launches(
        |_| gpu(0).kernel("gemm"),
        |scenario, at| {
            turn += 1;
            seen(scenario, at + 2, 3, &[step(if turn % 5 < 3 { 201 } else { 202 }), LOOP, MODULE]);
        },
    );
    let row = &report.host.as_ref().expect("sampled").calls[0];
    let inner: Vec<_> = row.inner.iter().map(|row| (row.line, (100.0 * row.share).round())).collect();
    assert_eq!((row.line, inner), (13, vec![(201, 60.0), (202, 40.0)]));
    let text = report.summary().split_whitespace().collect::<Vec<_>>().join(" ");
    let inside = "inside it at transformers/trainer.py:201 (Trainer._epoch) (60 %) and transformers/trainer.py:202";
    assert!(text.contains(inside), "{text}");
    // A line that does the work itself is the answer.
    let mut turn = 0;
    let report = launches(
        |_| gpu(0).kernel("gemm"),
        |scenario, at| {
            turn += 1;
            seen(scenario, at + 2, 3, if turn % 5 < 2 { &[LOOP, TRAIN] } else { &[TRAIN] });
        },
    );
    let row = &report.host.as_ref().expect("sampled").calls[0];
    assert!(row.line == 42 && row.inner.is_empty(), "{row:?}");
}

#[test]
fn a_program_bound_by_kernels_names_the_line_that_launches_them() {
    let mut scenario = Scenario::new();
    for index in 0..100 {
        let at = 1_000 + index * 1_000;
        gpu(0).kernel("gemm").at(at + 20).lasting(1_000).launched(&mut scenario, 1, at, 900);
        seen(&mut scenario, at + 30, 3, &[TRAIN]);
    }
    let text = scenario.report().summary();
    assert!(text.contains("The kernels that take the time are launched at train.py:42 (main) (100 %, "), "{text}");
}
