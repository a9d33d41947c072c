//! The timeline of a page says what the report says, to the nanosecond.

use gpuwhy_import::unwatched;
use gpuwhy_page::{Detail, Options};
use profiler_core::attribution::leaf::{LEAF_COUNT, Leaf};
use serde_json::Value;

use crate::page::{Page, Stage, launches, options};
use crate::programs::random_program;

/// Added to the number of a leaf where a gap ends.
const GAP_END: usize = 32;

/// Reads numbers of seven bits a byte.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (&byte, rest) = self.0.split_first().expect("the block is whole");
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }

    fn signed(&mut self) -> i64 {
        let value = self.next();
        (value >> 1) as i64 ^ -((value & 1) as i64)
    }
}

/// Events of a lane: begin, duration, values.
fn events(page: &Page, lane: &Value) -> Vec<(u64, u64, Vec<i64>)> {
    let mut all = Vec::new();
    for chunk in lane["chunks"].as_array().unwrap() {
        let bytes = page.block(&chunk["block"].to_string());
        let mut numbers = Numbers(&bytes);
        let count = chunk["count"].as_u64().unwrap() as usize;
        let pauses: Vec<i64> = (0..count).map(|_| numbers.signed()).collect();
        let durations: Vec<u64> = (0..count).map(|_| numbers.next()).collect();
        let mut end = 0;
        let begins: Vec<u64> = pauses
            .into_iter()
            .zip(&durations)
            .map(|(pause, duration)| {
                let begin = end + pause;
                end = begin + *duration as i64;
                begin as u64
            })
            .collect();
        let mut values = vec![Vec::new(); count];
        for _ in lane["columns"].as_array().unwrap() {
            let mut value = 0;
            for event in &mut values {
                value += numbers.signed();
                event.push(value);
            }
        }
        assert!(numbers.0.is_empty(), "nothing is left over");
        assert_eq!(begins[0], chunk["first"].as_u64().unwrap());
        all.extend(
            begins.into_iter().zip(durations).zip(values).map(|((begin, duration), values)| (begin, duration, values)),
        );
    }
    all.sort();
    all
}

/// The sums of a lane by key.
fn sums(page: &Page, lane: &Value, stretches: u64, keys: usize) -> Vec<u64> {
    let mut totals = vec![0; keys];
    let bytes = page.block(&lane["sums"].to_string());
    let mut numbers = Numbers(&bytes);
    for _ in 0..numbers.next() {
        let key = numbers.next() as usize;
        totals[key] = (0..stretches).map(|_| numbers.next()).sum();
    }
    assert!(numbers.0.is_empty());
    totals
}

fn lanes<'a>(manifest: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    manifest["timeline"]["lanes"].as_array().unwrap().iter().filter(move |lane| lane["kind"] == kind)
}

/// Sums and segments of each device are the leaves of the report.
fn assert_lanes_are_the_report(stage: &Stage, options: &Options) -> Page {
    let page = stage.page(options);
    let manifest = page.manifest();
    let report = stage.file().report(None, &mut unwatched).unwrap();
    assert_eq!(lanes(&manifest, "device").count(), report.devices.len());
    for (lane, device) in lanes(&manifest, "device").zip(&report.devices) {
        assert_eq!(lane["device"], device.device.id.0);
        let stretches = manifest["timeline"]["stretches"].as_u64().unwrap();
        assert_eq!(sums(&page, lane, stretches, LEAF_COUNT), device.leaves, "sums");
        let whole = manifest["timeline"]["windows"].is_null();
        if whole {
            let (mut leaves, mut gaps) = ([0; LEAF_COUNT], 0);
            let mut end = None;
            for (begin, duration, values) in events(&page, lane) {
                assert!(end.is_none_or(|end| end == begin), "segments touch");
                end = Some(begin + duration);
                leaves[values[0] as usize % GAP_END] += duration;
                gaps += u64::from(values[0] as usize >= GAP_END);
            }
            assert_eq!(leaves, device.leaves, "segments");
            let idle: u64 = Leaf::ALL.iter().filter(|l| !l.is_busy()).map(|&l| device.leaves[l as usize]).sum();
            assert_eq!(gaps > 0, idle > 0, "each gap says what ended it");
        }
    }
    assert_eq!(manifest["timeline"]["uncorrected_ns"], 0);
    page
}

#[test]
fn a_regular_program_is_told_exactly() {
    let page = assert_lanes_are_the_report(&Stage::of(&launches(3000, "my_kernel", "train")), &options());
    let manifest = page.manifest();
    let stream = lanes(&manifest, "stream").next().unwrap();
    let kernels = events(&page, stream);
    assert_eq!(kernels.len(), 3000);
    assert!(
        kernels.iter().enumerate().all(|(i, (begin, took, _))| (*begin, *took) == (i as u64 * 10_000 + 5_000, 4_000))
    );
    let thread = lanes(&manifest, "thread").next().unwrap();
    assert_eq!(events(&page, thread).len(), 3000);
    let names: Value = serde_json::from_slice(&page.block("names")).unwrap();
    let name = &names["names"][kernels[0].2[0] as usize];
    assert_eq!(name[0], "my_kernel");
}

#[test]
fn random_programs_with_late_records_are_told_exactly() {
    let mut corrected = 0;
    for seed in 0..40 {
        let stage = Stage::of(&random_program(seed, 600));
        assert_lanes_are_the_report(&stage, &options());
        corrected += stage.file().report(None, &mut unwatched).unwrap().completeness.late_corrected_ns;
    }
    assert!(corrected > 0, "no record came late");
    // More segments than wait for corrections.
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
            .map(|chunk| {
                let begin = format!("id=\"gpuwhy-{}\">", chunk["block"]);
                page.text[page.text.find(&begin).unwrap() + begin.len()..].find('<').unwrap()
            })
            .sum();
        assert!(of_events as u64 <= max_bytes, "{of_events} of {max_bytes}");
        assert!(!page.outcome.left_out.is_empty() && page.text.len() < whole.text.len());
    }
}
