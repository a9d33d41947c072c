//! The timeline of a page equals the report to the nanosecond.

use std::fs;
use std::path::Path;

use gpuwhy_import::unwatched;
use gpuwhy_page::{Detail, Options};
use gpuwhy_page_reader::{self as read, Numbers, PageEvent};
use profiler_core::leaf::{LEAF_COUNT, Leaf, Leaves};
use serde_json::Value;

use crate::page::{Page, Stage, launches, options};
use crate::programs::random_program;

/// Added to the number of a leaf where a gap ends.
const GAP_END: usize = 32;

/// Sums of the lane of a device by leaf.
fn sums(page: &Page, lane: &Value, intervals: u64) -> Leaves {
    let mut totals = [0; LEAF_COUNT];
    let bytes = page.block(&lane["sums"].to_string());
    let mut numbers = Numbers(&bytes);
    for _ in 0..numbers.number() {
        let key = numbers.number() as usize;
        totals[key] = (0..intervals).map(|_| numbers.number()).sum();
    }
    assert!(numbers.0.is_empty());
    totals
}

fn lanes<'a>(manifest: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    manifest["timeline"]["lanes"].as_array().unwrap().iter().filter(move |lane| lane["kind"] == kind)
}

/// Leaves with the time of `together` in the first of these.
fn joined(mut leaves: Leaves, together: &[Leaf]) -> Leaves {
    let sum = together.iter().map(|&leaf| std::mem::take(&mut leaves[leaf as usize])).sum();
    together.iter().take(1).for_each(|&first| leaves[first as usize] = sum);
    leaves
}

/// Checks that sums and segments of each device equal the leaves of the report.
fn assert_lanes_are_the_report(stage: &Stage, options: &Options) -> Page {
    assert_lanes_sum_to_the_report(stage, options, &[])
}

/// The same, where the report divides the time of the leaves `together` otherwise.
fn assert_lanes_sum_to_the_report(stage: &Stage, options: &Options, together: &[Leaf]) -> Page {
    let page = stage.page(options);
    let manifest = page.manifest();
    let report = stage.file().report(None, &mut unwatched).unwrap();
    assert_eq!(lanes(&manifest, "device").count(), report.devices.len());
    for (lane, device) in lanes(&manifest, "device").zip(&report.devices) {
        assert_eq!(lane["device"], device.device.id.0);
        let intervals = manifest["timeline"]["intervals"].as_u64().unwrap();
        let sums = sums(&page, lane, intervals);
        assert_eq!(joined(sums, together), joined(device.leaves, together), "sums");
        let whole = manifest["timeline"]["windows"].is_null();
        if whole {
            let (mut leaves, mut gaps) = ([0; LEAF_COUNT], 0);
            let mut end = None;
            for PageEvent { begin, duration, values } in page.events(lane) {
                assert!(end.is_none_or(|end| end == begin), "segments touch");
                end = Some(begin + duration);
                leaves[values[0] as usize % GAP_END] += duration;
                gaps += u64::from(values[0] as usize >= GAP_END);
            }
            assert_eq!(leaves, sums, "segments");
            let idle: u64 = Leaf::ALL.iter().filter(|l| !l.is_busy()).map(|&l| device.leaves[l as usize]).sum();
            assert_eq!(gaps > 0, idle > 0, "each gap says what ended it");
        }
    }
    assert_eq!(manifest["timeline"]["uncorrected_ns"], 0);
    page
}

#[test]
fn a_regular_program_is_reported_exactly() {
    let page = assert_lanes_are_the_report(&Stage::of(&launches(3000, "my_kernel", "train")), &options());
    let manifest = page.manifest();
    let stream = lanes(&manifest, "stream").next().unwrap();
    let kernels = page.events(stream);
    assert_eq!(kernels.len(), 3000);
    assert!(kernels.iter().enumerate().all(|(i, of)| (of.begin, of.duration) == (i as u64 * 10_000 + 5_000, 4_000)));
    let thread = lanes(&manifest, "thread").next().unwrap();
    assert_eq!(page.events(thread).len(), 3000);
    let names: Value = serde_json::from_slice(&page.block("names")).unwrap();
    let name = &names["names"][kernels[0].values[0] as usize];
    assert_eq!(name[0], "my_kernel");
}

#[test]
fn of_a_run_with_bursts_the_reported_part_is_shown() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/fixtures/traces/graph_bursts_one_id.gpuwhy");
    let stage = Stage::of(&fs::read(trace).unwrap());
    let page = assert_lanes_are_the_report(&stage, &options());
    let (header, _) = page.text.split_once("<main>").unwrap();
    assert!(header.contains("Recording was reduced to bursts after 3.01 s"), "{header}");
    let manifest = page.manifest();
    let (shown, observed) = (&manifest["timeline"]["window_ns"], &manifest["report"]["observed_ns"]);
    assert!(shown.as_u64().unwrap().abs_diff(observed.as_u64().unwrap()) < 100_000_000, "{shown} of {observed}");
}

/// The report divides time outside CUDA that no host sample saw like the sampled time; which gap is which is unknown.
#[test]
fn time_that_no_sample_saw_is_divided_in_the_report_alone() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/fixtures/traces/sleeper.gpuwhy");
    let stage = Stage::of(&fs::read(trace).unwrap());
    let page = assert_lanes_sum_to_the_report(&stage, &options(), &[Leaf::HostCpu, Leaf::HostBlocked, Leaf::NoWork]);
    let manifest = page.manifest();
    let lane = lanes(&manifest, "device").next().unwrap();
    let asleep: Vec<PageEvent> = page
        .events(lane)
        .into_iter()
        .filter(|of| of.values[0] as usize % GAP_END == Leaf::HostBlocked as usize)
        .collect();
    let names: Value = serde_json::from_slice(&page.block("names")).unwrap();
    assert!(asleep.iter().all(|of| names["subjects"][of.values[1] as usize][0] == "host"), "a sample saw each");
    let shown: u64 = asleep.iter().map(|of| of.duration).sum();
    let reported = manifest["report"]["devices"][0]["leaves"]["host_blocked"].as_u64().unwrap();
    assert!(shown > 0 && shown < reported, "{shown} of {reported}");
}

#[test]
fn random_programs_with_late_records_are_reported_exactly() {
    let mut corrected = 0;
    for seed in 0..40 {
        let stage = Stage::of(&random_program(seed, 600));
        assert_lanes_are_the_report(&stage, &options());
        corrected += stage.file().report(None, &mut unwatched).unwrap().completeness.late_corrected_ns;
    }
    assert!(corrected > 0, "no record came late");
    // More segments than can wait for corrections.
    assert_lanes_are_the_report(&Stage::of(&random_program(99, 40_000)), &options());
}

#[test]
fn a_page_without_events_has_the_sums_and_says_what_is_not_there() {
    let stage = Stage::of(&random_program(7, 5_000));
    let page = assert_lanes_are_the_report(&stage, &Options { detail: Detail::None, ..options() });
    assert_eq!(page.outcome.events, 0);
    assert!(page.outcome.left_out[0].contains("--detail all"), "{:?}", page.outcome);
    assert!(page.text.contains("sums of the whole run"));
}

#[test]
fn a_budget_is_kept_and_what_fell_out_is_named() {
    let stage = Stage::of(&random_program(3, 60_000));
    let whole = stage.page(&options());
    for max_bytes in [0, 20_000, 200_000] {
        let page = assert_lanes_are_the_report(&stage, &Options { max_bytes, ..options() });
        let manifest = page.manifest();
        let of_events: usize = manifest["timeline"]["lanes"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|lane| lane["chunks"].as_array().unwrap())
            .map(|chunk| read::text(&page.text, &chunk["block"].to_string()).unwrap().len())
            .sum();
        assert!(of_events as u64 <= max_bytes, "{of_events} of {max_bytes}");
        assert!(!page.outcome.left_out.is_empty() && page.text.len() < whole.text.len());
    }
}

/// If not all events fit, the longest idle intervals of the bottleneck are included.
#[test]
fn windows_show_the_bottleneck() {
    let stage = Stage::of(&random_program(3, 60_000));
    let whole = stage.page(&options());
    let page = stage.page(&Options { detail: Detail::Windows, ..options() });
    let [all, part] = [&whole, &page].map(Page::manifest);
    let cause = all["report"]["bottleneck"]["cause"].as_str().unwrap();
    let number = all["causes"].as_array().unwrap().iter().position(|row| row["name"] == cause).unwrap();
    let is_of_group = |leaf: &Value| leaf["cause"] == number && leaf["busy"] == false;
    let leaves: Vec<bool> = all["leaves"].as_array().unwrap().iter().map(is_of_group).collect();
    assert!(leaves.contains(&true), "a program that {cause} limits has no idle time by it");
    let windows = part["timeline"]["windows"].as_array().unwrap();
    let mut idle: Vec<(u64, u64)> = lanes(&all, "device")
        .flat_map(|lane| whole.events(lane))
        .filter(|event| leaves[event.values[0] as usize % GAP_END])
        .map(|event| (event.duration, event.begin))
        .collect();
    idle.sort_unstable();
    for (duration, begin) in idle.into_iter().rev().take(5) {
        let holds = |window: &&Value| window[0].as_u64() <= Some(begin) && Some(begin + duration) <= window[1].as_u64();
        assert!(windows.iter().any(|window| holds(&window)), "{duration} ns at {begin}: {windows:?}");
    }
}
