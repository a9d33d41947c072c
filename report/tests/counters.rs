//! Hardware counter samples combined with kernel records: counters of kernels with a known truth, and the
//! resulting division of computation.

use gpuwhy_report::run::{DeviceReport, Report};
use gpuwhy_trace::counters::{CounterEvent, CounterLoss, GaugeReading, Sample, Throttle, UnavailableReason};
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::*;
use profiler_core::counters::roofs::{Limit, Roof};
use profiler_core::leaf::Leaf;

use crate::counted::*;

fn device(report: &Report) -> &DeviceReport {
    assert_eq!(report.devices.len(), 1);
    &report.devices[0]
}

fn shares(device: &DeviceReport) -> [f64; 8] {
    let limits = device.limits.as_ref().expect("it was sampled");
    Limit::ALL.map(|limit| limits.share(limit) * 100.0)
}

/// The true division.
fn true_shares() -> [f64; 8] {
    let mut shares = [0.0; 8];
    let total: f64 = kernels().iter().map(|kernel| times(kernel) * kernel.micros as f64).sum();
    for kernel in kernels() {
        let weight = times(&kernel) * kernel.micros as f64 / total;
        let [clock, sm, issue, tensor, dram, l2, l1, warps, ..] = kernel.values;
        let roofs = [(tensor, 0), (dram, 1), (l2, 1), (l1, 1), (issue, 2)];
        let (used, limit) = roofs.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        let lowered = if used == dram { 0.0 } else { 1.0 - clock / HIGHEST };
        shares[limit] += weight * used * (1.0 - lowered);
        shares[6] += weight * used * lowered;
        shares[5] += weight * (100.0 - sm);
        let few = warps / sm < 0.5 && tensor < 10.0;
        shares[if few { 4 } else { 3 }] += weight * (sm - used);
    }
    shares
}

#[test]
fn kernels_get_their_own_counters_from_samples_of_a_thousand_hertz() {
    let report = report(&Program::new(300, false).sample(1_000_000, 1.0).delivered(100_000_000));
    let device = device(&report);
    assert_eq!(device.limits.as_ref().unwrap().samples.unplaced, 0);
    for kernel in kernels() {
        let row = device.kernels.iter().find(|row| row.name == kernel.name).unwrap();
        let limits = row.limits.unwrap().limits;
        let (roof, used, error) = limits.roof.unwrap_or_else(|| panic!("{} has no roof", kernel.name));
        let column = METRICS.iter().position(|metric| *metric == roof.metric()).unwrap();
        let largest = kernel.values[2..7].iter().copied().fold(0.0, f64::max);
        assert_eq!(kernel.values[column], largest, "{}: {roof:?}", kernel.name);
        let off = (used * 100.0 - largest).abs();
        assert!(off < 3.0 && off < 1.0 + 300.0 * error, "{}: {used} {largest} {error}", kernel.name);
        assert!(error > 0.0 && error < 0.03, "{}: {error}", kernel.name);
        let clock = limits.clock_hz.unwrap();
        assert!((clock / kernel.values[0] - 1.0).abs() < 0.05, "{}: {clock}", kernel.name);
        assert!((limits.active.unwrap() * 100.0 - kernel.values[1]).abs() < 4.0, "{}", kernel.name);
        assert!((limits.parts.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
}

#[test]
fn two_hundred_hertz_are_enough_for_the_division() {
    let report = report(&Program::new(900, false).sample(5_000_000, 0.5).delivered(100_000_000));
    for (found, wanted) in shares(device(&report)).into_iter().zip(true_shares()) {
        assert!((found - wanted).abs() < 3.0, "{:?} {:?}", shares(device(&report)), true_shares());
    }
}

#[test]
fn the_division_sums_to_the_leaf_and_to_that_of_a_step() {
    let report = report(&Program::new(100, false).sample(1_000_000, 1.0).delivered(70_000_000));
    let device = device(&report);
    let limits = device.limits.as_ref().unwrap();
    assert_eq!(limits.steady.times.iter().sum::<u64>(), device.steady_leaves[Leaf::Compute as usize]);
    let typical = device.typical.expect("steps repeat");
    let step = limits.step.expect("steps repeat");
    assert_eq!(step.times.iter().sum::<u64>(), typical.leaves[Leaf::Compute as usize] / typical.steps);
    assert!(step.small_grids_ns > 0, "layer norm has 29 blocks: {step:?}");
    let bytes =
        kernels().iter().map(|kernel| times(kernel) * kernel.micros as f64 * 1e-6 * kernel.values[8]).sum::<f64>();
    let read = limits.step_bytes.unwrap().0 as f64;
    assert!((read / bytes - 1.0).abs() < 0.03, "{read} {bytes}");
    let text = report.full();
    for wanted in ["Kernel time by limit: ", "tensor cores", "idle multiprocessors", "GHz", "unit that it uses most"] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    assert!(text.contains("if each kernel reached 90 %"), "{text}");
    assert!(report.live_line().ends_with("(97 % of each step; latency 36 %)"), "{}", report.live_line());
}

#[test]
fn kernels_that_run_at_once_share_the_samples() {
    let report = report(&Program::new(100, true).sample(1_000_000, 0.5).delivered(100_000_000));
    let device = device(&report);
    for kernel in kernels().iter().filter(|kernel| kernel.micros >= 70) {
        let row = device.kernels.iter().find(|row| row.name == kernel.name).unwrap();
        let (roof, used, error) = row.limits.unwrap().limits.roof.unwrap();
        let column = METRICS.iter().position(|metric| *metric == roof.metric()).unwrap();
        let off = (used * 100.0 - kernel.values[column]).abs();
        assert!(off < 4.0 + 300.0 * error, "{}: {roof:?} {used} {error}", kernel.name);
    }
    let limits = device.limits.as_ref().unwrap();
    assert_eq!(limits.steady.times.iter().sum::<u64>(), device.steady_leaves[Leaf::Compute as usize]);
}

#[test]
fn few_samples_tell_nothing_and_say_so() {
    let mut program = Program::new(60, false);
    program = program.sample(1_000_000, 1.0);
    let mut seen = 0;
    program.items.retain(|(_, item)| {
        seen += usize::from(matches!(item, Event::Counters(event) if matches!(**event, CounterEvent::Sample(_))));
        seen <= 6 || !matches!(item, Event::Counters(_))
    });
    let report = report(&program.delivered(100_000_000));
    let shares = shares(device(&report));
    assert!(shares[Limit::Unresolved as usize] > 99.9, "{shares:?}");
    assert!(!report.full().contains("Kernel flash_backward uses"), "no kernel is spoken of");
}

#[test]
fn it_does_not_matter_when_flushes_come() {
    let of = |period| {
        let report = report(&Program::new(60, false).sample(1_000_000, 1.0).delivered(period));
        let device = device(&report);
        (device.limits.clone(), device.kernels.iter().map(|row| row.limits).collect::<Vec<_>>())
    };
    let (limits, kernels) = of(50_000_000);
    for period in [10_000_000, 1_000_000_000] {
        let (others, other_kernels) = of(period);
        assert_eq!(limits, others);
        assert_eq!(kernels, other_kernels);
    }
}

#[test]
fn the_trace_says_what_the_live_run_said() {
    let delivered = Program::new(40, false).sample(1_000_000, 1.0).delivered(50_000_000);
    let live = report(&delivered);
    let (items, dictionary) = &delivered;
    let mut writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
    for item in items {
        writer.event(item, dictionary).unwrap();
    }
    let bytes = writer.close(dictionary).unwrap().1;
    let compacted = gpuwhy_trace::format::compact::compact(&bytes[..], Vec::new()).unwrap().1;
    for bytes in [bytes, compacted] {
        let mut reader = TraceReader::new(&bytes[..]).unwrap();
        let mut read = Vec::new();
        while let Some(item) = reader.next_event().unwrap() {
            read.push(item);
        }
        let (_, dictionary, damage) = reader.into_parts();
        assert!(damage.is_none());
        let again = report(&(read, dictionary));
        assert_eq!(device(&live).limits, device(&again).limits);
        assert_eq!(live.full(), again.full());
    }
}

#[test]
fn samples_from_before_the_capture_are_left_out() {
    let (mut items, dictionary) = Program::new(200, false).sample(1_000_000, 1.0).delivered(50_000_000);
    let begin = START + 100_000_000;
    let is_before = |item: &Event| match item {
        Event::Record(record) => record.span().is_some_and(|(start, _)| start.nanos() < begin),
        _ => false,
    };
    items.retain(|item| !is_before(item));
    let mark = CaptureMark::Begin { number: 1, at: Timestamp::from_nanos(begin), trigger: Trigger::Command };
    items.insert(1, Event::Capture(mark));
    let report = report(&(items, dictionary));
    let limits = device(&report).limits.as_ref().unwrap();
    assert_eq!(limits.samples.unplaced, 100, "{:?}", limits.samples);
    let gemm = device(&report).kernels.iter().find(|row| row.name == "gemm_ntn").unwrap();
    let (roof, used, error) = gemm.limits.unwrap().limits.roof.unwrap();
    assert_eq!(roof, Roof::Tensor);
    assert!((used - 0.888).abs() < 0.01 + 3.0 * error, "{used} {error}");
}

#[test]
fn what_reads_wrong_is_counted_and_left_out() {
    let (mut items, dictionary) = Program::new(40, false).sample(1_000_000, 0.0).delivered(50_000_000);
    let wrong = |begin: u64, end: u64, value: f32| {
        let (begin, end) = (Timestamp::from_nanos(START + begin), Timestamp::from_nanos(START + end));
        Event::from(CounterEvent::Sample(Sample::new(DeviceId(0), begin, end, &[value; 10])))
    };
    // Samples without length, reversed, not a number, or in the past: all after the good ones.
    for (begin, end, value) in [(9, 9, 1.0), (20, 10, 1.0), (0, 5, 1.0)] {
        items.insert(items.len() - 1, wrong(begin, end, value));
    }
    items.insert(2, wrong(0, 1_000, f32::NAN));
    let report = report(&(items, dictionary));
    let samples = device(&report).limits.as_ref().unwrap().samples;
    assert!(samples.unusable >= 4, "{samples:?}");
    assert!(samples.used > 200);
}

#[test]
fn gauges_say_that_the_clock_is_lowered_and_by_what() {
    let mut program = Program::new(100, false);
    for index in 0..20u64 {
        let at = START + index * 100_000_000;
        let reading = GaugeReading {
            at: Timestamp::from_nanos(at),
            power_mw: Some(698_000),
            sm_clock_mhz: Some(1_660),
            throttle: Some(Throttle::PowerCap.bit()),
            ..GaugeReading::default()
        };
        program.items.push((at, Event::from(CounterEvent::Gauges(reading))));
    }
    let refused = CounterLoss { refused: Some(UnavailableReason::Busy), ..CounterLoss::default() };
    program.items.push((START, Event::from(CounterEvent::Loss(refused))));
    // Readings before the first record belong to no capture.
    let report = report(&program.delivered(100_000_000));
    let gauges = device(&report).gauges.as_ref().unwrap();
    assert!(gauges.readings >= 18, "{}", gauges.readings);
    assert_eq!(gauges.watts().map(f64::round), Some(698.0));
    let text = report.full();
    assert!(text.contains("100 % of the time by the power limit (698 W on average)"), "{text}");
    assert!(text.contains("J a step"), "{text}");
    assert!(text.contains("another tool or process uses the GPU's counters"), "{text}");
    assert!(device(&report).limits.is_none(), "nothing was sampled");
}

#[test]
fn kernels_at_their_roofs_are_simulated() {
    use profiler_core::whatif::ScenarioKind;
    let report = report(&Program::new(120, false).sample(1_000_000, 0.5).delivered(50_000_000));
    let what_if = device(&report).what_if.as_ref().unwrap();
    assert_eq!(what_if.refused, None);

    let best_case = what_if.best_case(ScenarioKind::KernelsAtRoof).expect("roofs are known");
    // Remaining kernel time if each used 90 % of its nearest roofline; gaps stay.
    let (mut at_roof, mut all) = (0.0, 0.0);
    for kernel in kernels() {
        let used = kernel.values[2..7].iter().copied().fold(0.0, f64::max) / 100.0;
        at_roof += times(&kernel) * kernel.micros as f64 * (used / 0.9f64).min(1.0);
        all += times(&kernel) * kernel.micros as f64;
    }
    let gaps = 71.0 * 1.5 + 168.0;
    let wanted = (all + gaps) / (at_roof + gaps);
    assert!((best_case.speedup / wanted - 1.0).abs() < 0.08, "{} {wanted}", best_case.speedup);
    let without = self::report(&Program::new(60, false).delivered(50_000_000));
    let what_if = device(&without).what_if.as_ref().unwrap();
    assert!(what_if.best_case(ScenarioKind::KernelsAtRoof).is_none(), "without counters nothing is said");
}
