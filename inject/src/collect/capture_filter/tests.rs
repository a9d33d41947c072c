//! Calls and kernels around the edges of a range from 1 ms to 2 ms.

use profiler_core::record::{ApiCall, Kernel};

use crate::collect::capture_filter::*;

const BEGIN: u64 = 1_000_000;
const END: u64 = 2_000_000;

fn time(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn call(id: u32, start: u64) -> Record {
    let (start, end) = (time(start), time(start + 5_000));
    Record::Api(ApiCall { start, end, correlation: CorrelationId(id), ..ApiCall::default() })
}

fn kernel(id: u32, start: u64) -> Record {
    let (start, end) = (time(start), time(start + 5_000));
    Record::Kernel(Kernel { start, end, correlation: CorrelationId(id), ..Kernel::default() })
}

fn id_of(record: &Record) -> u32 {
    match record {
        Record::Kernel(kernel) => kernel.correlation.0,
        Record::Api(call) => call.correlation.0,
        _ => panic!("only calls and kernels are made here"),
    }
}

fn gate() -> Gate {
    Gate::new(Some(time(BEGIN)))
}

fn released(gate: &mut Gate) -> Vec<(u32, bool)> {
    let mut got = Vec::new();
    gate.flushed(|record, inside| got.push((id_of(&record), inside)));
    got
}

#[test]
fn calls_belong_by_their_begin_and_their_kernels_with_them() {
    let mut gate = gate();
    assert_eq!(gate.judge(&call(9, BEGIN - 10)), Decision::Out);
    assert_eq!(gate.judge(&call(10, BEGIN + 10)), Decision::In);
    assert_eq!(gate.judge(&kernel(10, BEGIN + 20)), Decision::In);
    gate.end(time(END));
    assert_eq!(gate.judge(&call(12, END - 10)), Decision::In);
    assert_eq!(gate.judge(&call(13, END + 10)), Decision::Out);
    // Both run long after the end; only one was launched before it.
    assert_eq!(gate.judge(&kernel(12, END + 500_000)), Decision::In);
    assert_eq!(gate.judge(&kernel(13, END + 500_000)), Decision::Out);
}

#[test]
fn kernels_launched_before_the_begin_stay_out_whenever_they_run() {
    let mut gate = gate();
    assert_eq!(gate.judge(&kernel(5, BEGIN - 500_000)), Decision::Out, "it ran before the begin");
    assert_eq!(gate.judge(&kernel(6, BEGIN + 500_000)), Decision::Waits, "it may be of a call that comes later");
    assert_eq!(gate.judge(&call(10, BEGIN + 10)), Decision::In);
    assert_eq!(released(&mut gate), [], "its call may not have returned yet");
    assert_eq!(released(&mut gate), [(6, false)]);
}

#[test]
fn a_kernel_that_comes_before_its_call_waits_for_it() {
    let mut gate = gate();
    assert_eq!(gate.judge(&kernel(10, BEGIN + 20)), Decision::Waits);
    assert_eq!(gate.judge(&call(10, BEGIN + 10)), Decision::In);
    assert_eq!(released(&mut gate), [(10, true)]);

    gate.end(time(END));
    assert_eq!(gate.judge(&kernel(20, END + 100_000)), Decision::Waits);
    assert_eq!(gate.judge(&kernel(22, END + 120_000)), Decision::Waits);
    assert_eq!(released(&mut gate), []);
    assert_eq!(gate.judge(&call(20, END - 100)), Decision::In);
    assert_eq!(gate.judge(&call(22, END + 100)), Decision::Out);
    assert_eq!(released(&mut gate), [(20, true), (22, false)]);
}

#[test]
fn the_error_of_the_device_clock_decides_nothing() {
    let mut gate = gate();
    // Seems to begin before its call, and before the range.
    assert_eq!(gate.judge(&call(10, BEGIN + 10)), Decision::In);
    assert_eq!(gate.judge(&kernel(10, BEGIN - 20_000)), Decision::In);
    gate.end(time(END));
    // Launched behind the end, seems to begin before it.
    assert_eq!(gate.judge(&call(13, END + 10)), Decision::Out);
    assert_eq!(gate.judge(&kernel(13, END - 20_000)), Decision::Out);
}

#[test]
fn what_nobody_claims_belongs_to_the_capture_at_its_close() {
    let mut gate = gate();
    gate.judge(&call(10, BEGIN + 10));
    gate.end(time(END));
    assert_eq!(gate.judge(&kernel(30, END + 100_000)), Decision::Waits);
    assert_eq!(gate.judge(&kernel(3, END + 100_000)), Decision::Waits);
    let mut got = Vec::new();
    gate.close(|record, inside| got.push((id_of(&record), inside)));
    assert_eq!(got, [(30, true), (3, false)]);
}

#[test]
fn ids_wrap() {
    let mut gate = gate();
    assert_eq!(gate.judge(&call(u32::MAX, BEGIN + 10)), Decision::In);
    assert_eq!(gate.judge(&call(2, BEGIN + 20)), Decision::In);
    assert_eq!(gate.judge(&kernel(2, BEGIN + 30)), Decision::In);
    gate.end(time(END));
    assert_eq!(gate.judge(&kernel(1, END + 100_000)), Decision::In);
}

#[test]
fn a_whole_run_takes_everything_until_it_is_stopped() {
    let mut gate = Gate::new(None);
    assert_eq!(gate.judge(&kernel(7, 1)), Decision::In);
    assert_eq!(gate.judge(&call(8, 2)), Decision::In);
    gate.end(time(END));
    assert_eq!(gate.judge(&kernel(8, END + 100_000)), Decision::In);
    assert_eq!(gate.judge(&call(9, END + 1)), Decision::Out);
    assert_eq!(gate.judge(&kernel(9, END + 100_000)), Decision::Out);
}

#[test]
fn memory_is_bounded() {
    let mut gate = gate();
    for id in 0..WAITING_LIMIT as u32 {
        assert_eq!(gate.judge(&kernel(id + 1, BEGIN + 20)), Decision::Waits);
    }
    assert_eq!(gate.judge(&kernel(7, BEGIN + 20)), Decision::In);
}
