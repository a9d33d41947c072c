//! Lines that launched a kernel: programs whose result is computed by hand, delivered in any order.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::{KernelLines, LaunchLineRow};
use gpuwhy_trace::record::{HostSample, MemoryKind, ThreadState};

const LINEAR: (&str, &str, u32) = ("/lib/python3.12/site-packages/torch/nn/modules/linear.py", "Linear.forward", 125);
const BLOCK: (&str, &str, u32) = ("/home/u/model.py", "Block.forward", 31);
const TRAIN: (&str, &str, u32) = ("/home/u/train.py", "main", 42);
const OTHER: (&str, &str, u32) = ("/home/u/train.py", "main", 50);

fn running() -> HostSample {
    HostSample { state: ThreadState::Running, ..HostSample::default() }
}

/// Adds a sample of a running thread at `at`.
fn seen(scenario: &mut Scenario, thread: u32, at: u64, stack: &[(&str, &str, u32)]) {
    scenario.sample(thread, at.saturating_sub(10), at, running(), stack);
}

fn lines(scenario: &Scenario) -> KernelLines {
    scenario.report().kernel_lines.expect("samples were taken")
}

/// File, line, samples and microseconds.
fn reported(row: &LaunchLineRow) -> (&str, u32, u64, u64) {
    (&row.place.file, row.place.line, row.time.samples, (row.time.total_ns / 1e3).round() as u64)
}

/// `gemm` runs ten times for 100 us, launched alternately by line 42 and 50; `add` once for 500 us. Samples
/// fall into three launches of line 42 and one of line 50. Each launch takes 150 us, so the lines are certain.
fn two_lines() -> Scenario {
    let mut scenario = Scenario::new();
    for index in 0..10 {
        let at = 1_000 + index * 1_000;
        gpu(0).kernel("gemm").at(at + 20).lasting(100).launched(&mut scenario, 1, at, 150);
        match index {
            0 | 2 | 4 => seen(&mut scenario, 1, at + 3, &[LINEAR, BLOCK, TRAIN]),
            5 => seen(&mut scenario, 1, at + 8, &[OTHER]),
            _ => {}
        }
    }
    gpu(0).kernel("add").at(20_020).lasting(500).launched(&mut scenario, 1, 20_000, 150);
    scenario
}

#[test]
fn the_time_of_a_kernel_is_divided_over_its_lines() {
    let lines = lines(&two_lines());
    assert_eq!((lines.kernel_ns, lines.not_sampled_ns), (1_500_000, 500_000));
    assert_eq!((lines.samples, lines.counts.in_launches, lines.distinct_lines), (4, 4, 2));
    let [first, second] = &lines.lines[..] else { panic!("{lines:?}") };
    assert_eq!(reported(first), ("/home/u/model.py", 31, 3, 750));
    assert_eq!(reported(second), ("/home/u/train.py", 50, 1, 250));
    assert!((first.share - 0.5).abs() < 1e-9 && first.largest == "gemm" && first.kernels == 1);
    let place = &first.place;
    assert_eq!((place.function.as_str(), place.module.as_deref()), ("Block.forward", Some("Linear")));
    assert_eq!(place.within.as_ref().map(|(function, _)| function.as_str()), Some("Linear.forward"));
    // Wilson's interval for 3 of 4: 0.3006 to 0.9544.
    assert!((first.time.low_ns - 300_640.0).abs() < 100.0, "{:?}", first.time);
    // `add` may be of any line.
    assert!((first.time.high_ns - (954_410.0 + 500_000.0)).abs() < 100.0, "{:?}", first.time);
    let row = &lines.rows[0];
    assert_eq!((row.kernel.as_str(), row.kernel_samples, row.kernel_ns, row.graph), ("gemm", 4, 1_000_000, None));
    assert!((row.time.high_ns - 954_410.0).abs() < 100.0, "{row:?}");
}

#[test]
fn the_order_of_delivery_does_not_matter() {
    let mut scenario = two_lines();
    let graph = scenario.call(2, "cudaGraphLaunch_v10000", 3_000, 150);
    seen(&mut scenario, 2, 3_020, &[TRAIN]);
    for node in 0..5 {
        scenario.add(gpu(0).stream(9).kernel("node").at(3_050 + node * 20).lasting(10).of_graph(3).by(graph));
    }
    let expected = lines(&scenario);
    assert_eq!(expected.samples, 5);
    for period in [100, 1_000, 7_000, 1_000_000] {
        for seed in 0..8 {
            let report = scenario.report_of(&scenario.run_with(period, seed));
            assert_eq!(report.kernel_lines.as_ref(), Some(&expected), "period {period}, seed {seed}");
        }
    }
}

#[test]
fn only_launches_and_the_short_gap_before_them_count() {
    let at_line = |samples: &[u64]| {
        let mut scenario = Scenario::new();
        // A wait until 500, a launch from 590 to 600, and one from 800: gaps of 90 and 200 us.
        gpu(0).kernel("first").at(20).lasting(100).launched(&mut scenario, 1, 10, 5);
        scenario.call(1, "cudaDeviceSynchronize_v3020", 100, 400);
        gpu(0).kernel("second").at(610).lasting(100).launched(&mut scenario, 1, 590, 10);
        gpu(0).kernel("third").at(820).lasting(100).launched(&mut scenario, 1, 800, 10);
        for &at in samples {
            seen(&mut scenario, 1, at, &[TRAIN]);
        }
        let lines = lines(&scenario);
        let kernels: Vec<String> = lines.launches.iter().map(|row| format!("{} {}", row.kernel, row.samples)).collect();
        (kernels.join(", "), lines.counts.elsewhere)
    };
    assert_eq!(at_line(&[595]), ("second 1".to_owned(), 0), "within the call");
    assert_eq!(at_line(&[505, 600]), ("second 2".to_owned(), 0), "the gap before it, and its end");
    assert_eq!(at_line(&[700]), (String::new(), 1), "the gap is long");
    assert_eq!(at_line(&[300, 500]), (String::new(), 2), "a call that launches nothing");
    assert_eq!(at_line(&[5]), (String::new(), 1), "before the first call nothing is known of the gap");
    assert_eq!(at_line(&[900]), (String::new(), 1), "behind the last call");
}

/// Launches of two lines in turn, each `lasting` this long. The stack of each sample is that of the moment 40 us
/// later, as in recordings.
fn in_turn(lasting: u64) -> Scenario {
    let mut scenario = Scenario::new();
    for index in 0..200 {
        let at = 1_000 + index * 400;
        for (turn, (kernel, line)) in [("gemm", TRAIN), ("add", OTHER)].into_iter().enumerate() {
            let at = at + turn as u64 * 200;
            gpu(0).kernel(kernel).at(at + 2).lasting(100).launched(&mut scenario, 1, at, lasting);
            let sampled = at + (index * 7) % lasting;
            let seen_line = if sampled + 40 <= at + lasting {
                line
            } else if turn == 0 {
                OTHER
            } else {
                TRAIN
            };
            seen(&mut scenario, 1, sampled, &[seen_line]);
        }
    }
    scenario
}

#[test]
fn a_stack_that_is_read_late_is_assigned_to_no_other_line() {
    let report = in_turn(190).report();
    let lines = report.kernel_lines.as_ref().unwrap();
    let rows: Vec<_> = lines.rows.iter().map(|row| (row.kernel.as_str(), row.place.line)).collect();
    assert_eq!((rows, lines.left_out()), (vec![("gemm", 42), ("add", 50)], None));
    for row in &lines.lines {
        let half = lines.kernel_ns as f64 / 2.0;
        assert!(row.time.low_ns <= half && half <= row.time.high_ns, "{row:?}");
    }
    assert!(lines.launches.len() > 2, "all samples include wrong lines: {:?}", lines.launches);
}

#[test]
fn lines_of_short_launches_are_left_out() {
    let report = in_turn(30).report();
    let lines = report.kernel_lines.as_ref().unwrap();
    assert!(lines.lines.is_empty() && lines.rows.is_empty() && !lines.launches.is_empty());
    assert_eq!((lines.samples, lines.placed_ns, lines.not_sampled_ns), (0, 0, lines.kernel_ns));
    let full = report.full();
    let why = "== kernel time by line\nLeft out: the lines of 0 % of kernel time are known.";
    assert!(full.contains(why) && !full.contains("launched at:"), "{full}");
}

#[test]
fn a_line_whose_launches_take_longer_has_no_more_time() {
    let mut scenario = Scenario::new();
    for index in 0..10 {
        let at = 1_000 + index * 3_000;
        gpu(0).kernel("gemm").at(at + 20).lasting(100).launched(&mut scenario, 1, at, 1_050);
        gpu(0).kernel("gemm").at(at + 2_020).lasting(100).launched(&mut scenario, 1, at + 2_000, 150);
        // Certain for 1,000 us of the first call and for 100 us of the second.
        seen(&mut scenario, 1, at + 100 * index, &[TRAIN]);
        if index == 3 {
            seen(&mut scenario, 1, at + 2_050, &[OTHER]);
        }
    }
    let lines = lines(&scenario);
    let mut times: Vec<_> = lines.lines.iter().map(reported).collect();
    times.sort_unstable();
    assert_eq!(times, [(TRAIN.0, 42, 10, 1_000), (OTHER.0, 50, 1, 1_000)]);
}

#[test]
fn kernels_of_short_launches_may_be_of_any_line() {
    let mut scenario = Scenario::new();
    for index in 0..10 {
        let (at, lasting) = (1_000 + index * 1_000, if index < 6 { 150 } else { 8 });
        gpu(0).kernel("gemm").at(at + 20).lasting(100).launched(&mut scenario, 1, at, lasting);
        seen(&mut scenario, 1, at + 4, &[if index < 6 { TRAIN } else { OTHER }]);
    }
    let lines = lines(&scenario);
    let [line] = &lines.lines[..] else { panic!("{lines:?}") };
    // Wilson's interval for 6 of 6: 0.6097 to 1, of the 600 us in long launches.
    assert!((line.time.low_ns - 365_800.0).abs() < 100.0 && line.time.high_ns == 1e6, "{line:?}");
    assert_eq!((line.place.line, lines.placed_ns), (42, 600_000));
}

#[test]
fn samples_of_other_threads_tell_nothing() {
    let mut scenario = two_lines();
    seen(&mut scenario, 7, 20_004, &[OTHER]);
    assert_eq!(lines(&scenario), {
        let mut expected = lines(&two_lines());
        expected.counts.elsewhere = 1;
        expected
    });
}

#[test]
fn a_graph_is_reported_as_the_graph_and_its_kernels_are_no_others() {
    let mut scenario = Scenario::new();
    // Alone, `node` runs for 100 us; in graph 3 twice for 10 us each time.
    gpu(0).kernel("node").at(120).lasting(100).launched(&mut scenario, 1, 100, 150);
    seen(&mut scenario, 1, 104, &[OTHER]);
    for launch in 0..2 {
        let at = 1_000 + launch * 1_000;
        let correlation = scenario.call(1, "cudaGraphLaunch_v10000", at, 150);
        for node in 0..2 {
            let at = at + 50 + node * 20;
            scenario.add(gpu(0).kernel("node").at(at).lasting(10).of_graph(3).by(correlation));
        }
        seen(&mut scenario, 1, at + 5, &[TRAIN]);
    }
    let lines = lines(&scenario);
    let rows: Vec<_> = lines.rows.iter().map(|row| (row.kernel.as_str(), row.graph, row.kernel_ns)).collect();
    assert_eq!(rows, [("node", None, 100_000), ("CUDA graph 3", Some(3), 40_000)]);
    assert_eq!((lines.kernel_ns, lines.not_sampled_ns), (140_000, 0));
    assert_eq!(reported(&lines.lines[1]), ("/home/u/train.py", 42, 2, 40));
}

#[test]
fn copies_captured_and_lost_launches_are_counted_and_tell_nothing() {
    let mut scenario = Scenario::new();
    gpu(0).kernel("gemm").at(120).lasting(100).launched(&mut scenario, 1, 100, 8);
    gpu(0).h2d(MemoryKind::Pinned, 1 << 20).at(1_020).lasting(100).launched(&mut scenario, 1, 1_000, 8);
    scenario.call(1, "cudaStreamBeginCapture_v10000", 2_000, 5);
    scenario.call(1, "cudaLaunchKernel_v7000", 3_000, 8);
    scenario.call(1, "cudaStreamEndCapture_v10000", 4_000, 5);
    scenario.call(1, "cudaLaunchKernel_v7000", 5_000, 8);
    for at in [1_004, 3_004, 5_004] {
        seen(&mut scenario, 1, at, &[TRAIN]);
    }
    let lines = lines(&scenario);
    assert!(lines.rows.is_empty() && lines.lines.is_empty());
    let counts = lines.counts;
    assert_eq!((counts.in_copies, counts.elsewhere, counts.in_launches, counts.without_record), (1, 1, 1, 1));
    assert_eq!((lines.kernel_ns, lines.not_sampled_ns), (100_000, 100_000));
}

#[test]
fn a_sample_without_a_stack_has_no_row() {
    let mut scenario = two_lines();
    seen(&mut scenario, 1, 20_004, &[]);
    let lines = lines(&scenario);
    assert_eq!((lines.samples, lines.counts.in_launches, lines.counts.overflow), (4, 5, 1));
    assert_eq!(lines.not_sampled_ns, 500_000);
}

#[test]
fn without_samples_there_are_libraries_and_no_lines() {
    let mut scenario = Scenario::new();
    for (index, name) in
        ["ampere_sgemm_32x32_nn", "volta_sgemm_64x64_tn", "mine", "ncclDevKernel_AllReduce"].iter().enumerate()
    {
        let at = 1_000 * (index as u64 + 1);
        gpu(0).kernel(name).at(at + 20).lasting(100 + index as u64).launched(&mut scenario, 1, at, 8);
    }
    let report = scenario.report();
    assert_eq!(report.kernel_lines, None);
    let rows: Vec<_> = report
        .kernel_libraries
        .iter()
        .map(|row| (row.library.as_deref(), row.names, row.count, row.total_ns, row.largest.as_str()))
        .collect();
    assert_eq!(
        rows,
        [
            (Some("cuBLAS"), 2, 2, 201_000, "volta_sgemm_64x64_tn"),
            (Some("NCCL"), 1, 1, 103_000, "ncclDevKernel_AllReduce"),
            (None, 1, 1, 102_000, "mine"),
        ]
    );
    let shares: f64 = report.kernel_libraries.iter().map(|row| row.share).sum();
    assert!((shares - 1.0).abs() < 1e-9);
}

#[test]
fn native_frames_name_the_library_where_the_name_does_not() {
    let mut scenario = Scenario::new();
    for (index, (name, file)) in
        [("kernel_of_a_plugin", "libplugin.so"), ("gemm_odd", "libcublasLt.so.12"), ("ncclDevKernel_X", "libplugin.so")]
            .into_iter()
            .enumerate()
    {
        let at = 1_000 * (index as u64 + 1);
        gpu(0).kernel(name).at(at + 20).lasting(300 - index as u64).launched(&mut scenario, 1, at, 8);
        seen(&mut scenario, 1, at + 4, &[("libcudart.so.12", "cudaLaunchKernel", 0), (file, "run", 0), TRAIN]);
    }
    let report = scenario.report();
    let rows: Vec<_> = report.kernel_libraries.iter().map(|row| (row.library.as_deref(), row.by_samples_ns)).collect();
    assert_eq!(rows, [(Some("libplugin.so"), 300_000), (Some("cuBLAS"), 299_000), (Some("NCCL"), 0)]);
    let lines = report.kernel_lines.unwrap().launches;
    assert!(lines.len() == 3 && lines.iter().all(|row| row.place.file == TRAIN.0), "the line is Python's: {lines:?}");
}

#[test]
fn the_long_report_has_the_tables_and_the_first_screen_has_not() {
    let mut scenario = two_lines();
    scenario.pushed(1, 900, 30_000, "epoch");
    let report = scenario.report();
    let full = report.full();
    assert!(!report.summary().contains("by line"));
    let section = |title: &str| {
        let (_, rest) = full.split_once(title).unwrap_or_else(|| panic!("{title}: {full}"));
        rest.split("\n\n").next().unwrap().to_owned()
    };
    let by_line = section("== kernel time by line (estimate, 4 samples; 500.0 us of 1.5 ms not sampled)");
    assert!(
        by_line.contains("750.0 us  50.00    20.0 to 97.0       3  model.py:31 (Block.forward), Linear: gemm"),
        "{by_line}"
    );
    let by_range = section("== kernel time by range (exact; includes nested ranges)");
    assert!(by_range.contains("1.5 ms 100.00        11  epoch: gemm"), "{by_range}");
    assert!(section("== kernel time by library").contains("unknown or the program's own"));
    assert!(!report.full_with_kernels(0).contains("== kernel time"));
}
