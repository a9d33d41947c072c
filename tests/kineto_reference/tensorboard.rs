//! Comparison with the step breakdown of the TensorBoard plugin.
//!
//! The plugin subtracts roles from each other in a fixed order (Kernel, Memcpy, Memset, Runtime, DataLoader;
//! communication by operator name is in the middle and is zero in these traces). The ends of steps are moved
//! to the device: a step ends when its mark or its last operation ends, the later of the two, and the next
//! starts there.

use profiler_core::leaf::{Cause, Leaf};
use profiler_core::steps::StepSource;

use super::oracle::{Kind, Span, Trace, clipped, union, without};

/// Kernel, Memcpy, Memset, Runtime, DataLoader and total of a step, nanoseconds.
type Row = [i64; 6];

/// Steps by the plugin's rule.
fn steps(trace: &Trace) -> Vec<Span> {
    let launches = trace.launches();
    let mut begin = None;
    let mut out = Vec::new();
    for mark in trace.spans(Kind::Step) {
        let launched = |row: &&_| trace.launch_of(row, &launches).is_some_and(|at| mark.0 <= at && at <= mark.1);
        let device_end = trace.device_rows().filter(launched).map(|row| row.span.1).max().unwrap_or(mark.1);
        let step = (begin.unwrap_or(mark.0).max(mark.0), mark.1.max(device_end));
        begin = Some(step.1);
        out.push(step);
    }
    out
}

fn table(trace: &Trace) -> Vec<Row> {
    let roles = [Kind::Kernel, Kind::Copy, Kind::Memset, Kind::Call, Kind::DataLoader].map(|kind| trace.spans(kind));
    let row = |step: Span| {
        let mut taken: Vec<Span> = Vec::new();
        let mut row = [0; 6];
        for (cell, spans) in row.iter_mut().zip(&roles) {
            let spans = clipped(spans, step);
            *cell = union(without(&spans, &taken));
            taken.extend(spans);
        }
        row[5] = step.1 - step.0;
        row
    };
    steps(trace).into_iter().map(row).collect()
}

#[test]
fn the_table_of_resnet50_without_workers() {
    let Some(trace) = Trace::load("resnet50_workers0") else { return };
    let published = [
        [98_598, 1_941, 90, 2_796, 69_317, 187_948],
        [98_570, 1_947, 89, 2_762, 57_669, 175_153],
        [98_596, 1_931, 91, 2_877, 61_257, 179_733],
        [98_623, 1_938, 89, 2_841, 56_453, 174_564],
        [98_504, 1_937, 87, 2_788, 62_690, 182_172],
        [98_641, 1_798, 88, 3_381, 48_185, 165_983],
    ];
    let table = table(&trace);
    assert_eq!(table, published.map(|row| row.map(|micros| micros * 1_000)));

    // All work of these steps lies within them, so its sums equal the engine's, without exception.
    let report = trace.import();
    let device = &report.devices[0];
    let sum = |column: usize| table.iter().map(|row| row[column]).sum::<i64>() as u64;
    let leaf = |leaf: Leaf| device.leaves[leaf as usize];
    assert_eq!(leaf(Leaf::Compute), sum(0));
    assert_eq!(leaf(Leaf::Memset), sum(2));
    assert_eq!(Cause::Copy.total(&device.leaves), sum(1) + sum(2));

    // The named steps, cut on the device: the last one is open, because no step follows it.
    let steps = device.steps.as_ref().unwrap();
    assert_eq!(steps.source, StepSource::Annotated);
    assert_eq!(steps.rows.len(), 5);
    for (step, row) in steps.rows.iter().zip(&table) {
        assert_eq!(step.leaves[Leaf::Compute as usize], row[0] as u64);
        assert_eq!(step.leaves.iter().sum::<u64>(), step.end.since(step.start));
    }
    // A step of the plugin starts with fetching its batch, one of the engine ends with fetching the next one.
    for (step, row) in steps.rows.iter().zip(&table[1..]) {
        let (named, plugin) = (step.leaves[Leaf::DataLoading as usize], row[4] as u64);
        println!("data_loading {named}, plugin {plugin}");
        assert!(named <= plugin && (plugin - named) * 50 <= plugin, "2 % at most are missing");
    }
}

#[test]
fn the_averages_of_resnet50_with_four_workers() {
    let Some(trace) = Trace::load("resnet50_workers4") else { return };
    let table = table(&trace);
    let average = |column: usize| {
        let sum: i64 = table.iter().map(|row| row[column]).sum();
        (sum as f64 / table.len() as f64 / 1_000.0).round() as i64
    };
    assert_eq!([0, 1, 2, 3, 4, 5].map(average), [99_145, 3_160, 98, 10_564, 1_186, 141_068]);
    let device = &trace.import().devices[0];
    let kernels: i64 = table.iter().map(|row| row[0]).sum();
    assert_eq!(device.leaves[Leaf::Compute as usize], kernels as u64);
}

/// Deviation: the marks of the host run ahead of the device. In this trace the first marks pass in a fraction
/// of a step's time because the launches only queue up; the device takes the same time for every step.
#[test]
fn marks_on_the_host_run_ahead_of_the_device() {
    let Some(trace) = Trace::load("hta_ns_resolution") else { return };
    let on_host: Vec<i64> = trace.spans(Kind::Step).iter().map(|(start, end)| end - start).collect();
    let on_device: Vec<i64> = steps(&trace).iter().map(|(start, end)| end - start).collect();
    println!("host {on_host:?}, device {on_device:?}");
    let spread = |steps: &[i64]| *steps.iter().max().unwrap() as f64 / *steps.iter().min().unwrap() as f64;
    assert!(spread(&on_host) > 2.0);
    assert!(spread(&on_device[1..]) < 1.01, "the first one includes the wait for its first launch");
}
