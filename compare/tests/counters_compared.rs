//! Limits of two runs, and of ranks, compared: the changes are synthetic, and the sums exact.

use gpuwhy_compare::diff::{Diff, compare};
use gpuwhy_compare::ranks::Collectives;
use gpuwhy_report::run::Report;
use gpuwhy_trace::counters::CounterEvent;
use gpuwhy_trace::event::Event;
use profiler_core::counters::roofs::Limit;
use profiler_core::leaf::Leaf;

use crate::counted::{Program, report};
use crate::kept_rows;

const MEMORY: usize = 4;

/// A run that uses `part` of the device memory bandwidth of the others.
fn run(interval: u64, part: f32) -> Report {
    let (mut items, dictionary) = Program::new(120, false).sample(interval, 0.5).delivered(100_000_000);
    for item in &mut items {
        if let Event::Counters(event) = item
            && let CounterEvent::Sample(sample) = &mut **event
        {
            sample.values[MEMORY] *= part;
        }
    }
    report(&(items, dictionary))
}

fn compared(a: &Report, b: &Report) -> Diff {
    let diff = compare(a, b).unwrap();
    let device = &diff.devices[0];
    let limits = device.limits.as_ref().expect("both were sampled");
    let compute = |unit: &gpuwhy_report::run::unit::Representative| unit.leaves[Leaf::Compute as usize];
    assert_eq!(limits.a.iter().sum::<u64>(), compute(&device.a));
    assert_eq!(limits.b.iter().sum::<u64>(), compute(&device.b));
    let changes: i64 = limits.changes.iter().map(|(_, nanos)| nanos).sum();
    assert_eq!(changes, compute(&device.b) as i64 - compute(&device.a) as i64);
    for line in diff.text(10).lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    diff
}

#[test]
fn less_use_of_memory_is_a_change_of_that_limit() {
    let (a, b) = (run(1_000_000, 1.0), run(1_000_000, 0.85));
    let diff = compared(&a, &b);
    let limits = diff.devices[0].limits.as_ref().unwrap();
    // In a step: adam 420 us from 88 to 74.8 %, and ten times add 24 us from 93 %, gelu 31 us from 80 %,
    // layer norm 39 us from 17.3 %.
    let wanted = -0.15 * (0.88 * 420e3 + 0.93 * 240e3 + 0.8 * 310e3 + 0.173 * 390e3);
    let (limit, found) = limits.changes[0];
    assert!(limit == Limit::Memory && (found as f64 / wanted - 1.0).abs() < 0.2, "{limit:?} {found} {wanted}");
    let text = diff.text(10);
    assert!(text.contains("memory (memory)") && text.contains("sum, computing (compute)"), "{text}");
    {
        let json = serde_json::to_value(gpuwhy_compare::diff::json::DiffJson(&Ok(diff))).unwrap();
        assert_eq!(json["devices"][0]["compute_limits"]["changes"][0]["name"], "memory");
        assert_eq!(json["devices"][0]["compute_limits"]["changes"][0]["change_ns"], found);
    }
}

#[test]
fn a_run_is_no_different_from_itself_and_other_rates_are_reported() {
    let (fast, slow) = (run(1_000_000, 1.0), run(4_000_000, 1.0));
    let same = compared(&fast, &fast);
    assert!(same.devices[0].limits.as_ref().unwrap().changes.is_empty());
    let reported =
        |diff: &Diff| diff.warnings.iter().any(|warning| warning.contains("every 1.0 ms in A and every 4.0 ms"));
    assert!(!reported(&same) && reported(&compared(&fast, &slow)));
}

#[test]
fn without_samples_on_both_sides_nothing_is_said_of_limits() {
    let unsampled = report(&Program::new(120, false).delivered(100_000_000));
    let diff = compare(&unsampled, &run(1_000_000, 1.0)).unwrap();
    assert_eq!(diff.devices[0].limits, None);
    assert!(!diff.text(10).contains("what limits computation"));
}

#[test]
fn ranks_show_what_limits_each() {
    let (sampled, unsampled) = (run(1_000_000, 1.0), report(&Program::new(120, false).delivered(100_000_000)));
    let none = Collectives::default();
    let ranks = kept_rows::compared([&sampled, &unsampled].into_iter().map(|report| (report, &none)));
    assert_eq!(ranks.rows[0].limits.unwrap().iter().sum::<u64>(), ranks.rows[0].leaves[Leaf::Compute as usize]);
    assert_eq!(ranks.rows[1].limits, None);
    let text = ranks.text();
    let table: Vec<_> = text.lines().skip_while(|line| !line.starts_with("what limits computation")).collect();
    assert_eq!(table[2].split_whitespace().next(), Some("0"), "{text}");
    let shares: f64 = table[2].split_whitespace().skip(1).map(|share| share.parse::<f64>().unwrap()).sum();
    assert!((shares - 100.0).abs() < 0.5 && table[2].len() == table[1].len(), "{text}");
    assert!(table.get(3).is_none_or(|line| !line.trim_start().starts_with("1 ")), "{text}");
    {
        let json = serde_json::to_value(&ranks).unwrap();
        let limits = [0, 1].map(|rank: usize| &json["ranks"][rank]["limits_ns"]);
        assert!(limits[0]["memory"].as_u64().unwrap() > 0 && limits[1].is_null());
    }
}
