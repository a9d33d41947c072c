//! Bottlenecks that monitor mode names, on recordings of real programs: the lessons of `examples/python` on
//! an H100, eight seconds each, sampled 200 times a second without activity records. Shares are those of
//! other runs of the same programs, with records (mode light); memsets and copies within the device count as
//! computation here.

use std::path::Path;

use crate::support::report;

/// Causes in [`LESSONS`], in their order.
const GROUPS: [&str; 7] = ["gpu_compute", "copy", "data_loading", "host_cpu", "launch", "sync", "allocator"];

/// Lesson, bottleneck by records, and shares by records.
const LESSONS: [(&str, &str, [f64; 7]); 8] = [
    ("01_data_loading", "data_loading", [0.018, 0.016, 0.897, 0.057, 0.009, 0.003, 0.000]),
    ("02_sync_item", "sync", [0.539, 0.010, 0.000, 0.005, 0.037, 0.408, 0.000]),
    ("03_pageable_copies", "copy", [0.088, 0.887, 0.000, 0.003, 0.016, 0.005, 0.000]),
    ("04_launch_bound", "launch", [0.251, 0.000, 0.000, 0.028, 0.719, 0.000, 0.000]),
    ("05_multi_stream", "gpu_compute", [0.996, 0.003, 0.000, 0.000, 0.001, 0.000, 0.000]),
    ("06_gpt_training", "gpu_compute", [0.925, 0.000, 0.000, 0.022, 0.050, 0.003, 0.000]),
    ("07_allocator", "allocator", [0.126, 0.000, 0.000, 0.003, 0.109, 0.000, 0.761]),
    ("11_before_and_after", "data_loading", [0.036, 0.000, 0.909, 0.029, 0.021, 0.004, 0.000]),
];
/// Number of lessons whose bottleneck is named; samples leave the others open.
const NAMED: usize = 7;
/// Minimum part of all shares that lie within their interval; two runs of a program differ as well.
const WITHIN: f64 = 0.9;

#[test]
fn monitored_programs_get_their_bottleneck_or_none() {
    let (mut named, mut within) = (0, 0);
    for (lesson, bottleneck, shares) in LESSONS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testing/fixtures/monitored/{lesson}.gpuwhy"));
        let (_, report) = report(&path);
        let time = &report["monitored"];
        let found = time["bottleneck"].as_str().unwrap();
        assert!(found == bottleneck || found == "cannot_tell", "{lesson}: {found}, by records {bottleneck}");
        named += usize::from(found == bottleneck);
        let mut sum = time["unresolved_ns"].as_u64().unwrap();
        for (group, share) in GROUPS.into_iter().zip(shares) {
            let part = &time["causes"][group];
            sum += part["ns"].as_u64().unwrap();
            let [low, high] = ["low", "high"].map(|bound| part[bound].as_f64().unwrap());
            if low <= share && share <= high {
                within += 1;
            } else {
                println!("{lesson}: {group} {share:.3} is not in {low:.3} to {high:.3}");
            }
        }
        assert_eq!(sum, time["window_ns"].as_u64().unwrap(), "{lesson}");
        println!("{lesson}: {found}");
    }
    let all = LESSONS.len() * GROUPS.len();
    assert!(named >= NAMED, "{named} of {} are named", LESSONS.len());
    assert!(within as f64 >= WITHIN * all as f64, "{within} of {all} shares are within their interval");
}
