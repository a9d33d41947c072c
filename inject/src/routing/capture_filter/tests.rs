//! Calls and kernels around the edges of a range from 1 ms to 2 ms.

use gpuwhy_trace::record::{ApiCall, Kernel};

use crate::routing::capture_filter::*;

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

fn filter() -> CaptureFilter {
    CaptureFilter::new(Some(time(BEGIN)))
}

fn released(filter: &mut CaptureFilter) -> Vec<(u32, bool)> {
    let mut got = Vec::new();
    filter.flushed(|record, inside| got.push((id_of(&record), inside)));
    got
}

#[test]
fn calls_belong_by_their_begin_and_their_kernels_with_them() {
    let mut filter = filter();
    assert_eq!(filter.judge(&call(9, BEGIN - 10)), Membership::Out);
    assert_eq!(filter.judge(&call(10, BEGIN + 10)), Membership::In);
    assert_eq!(filter.judge(&kernel(10, BEGIN + 20)), Membership::In);
    filter.end(time(END));
    assert_eq!(filter.judge(&call(12, END - 10)), Membership::In);
    assert_eq!(filter.judge(&call(13, END + 10)), Membership::Out);
    // Both run long after the end; only one was launched before it.
    assert_eq!(filter.judge(&kernel(12, END + 500_000)), Membership::In);
    assert_eq!(filter.judge(&kernel(13, END + 500_000)), Membership::Out);
}

#[test]
fn where_calls_may_be_missing_kernels_belong_by_their_own_time() {
    for (may_be, belongs) in [(true, true), (false, false)] {
        let mut filter = filter().without_calls(may_be);
        assert_eq!(filter.judge(&kernel(5, BEGIN - 500_000)), Membership::Out);
        assert_eq!(filter.judge(&kernel(6, BEGIN + 500_000)), Membership::Pending);
        assert_eq!(released(&mut filter), []);
        assert_eq!(released(&mut filter), [(6, belongs)], "its call has had its time to come");
        assert_eq!(filter.judge(&kernel(7, BEGIN + 600_000)), Membership::Pending);
        assert_eq!(filter.judge(&kernel(8, END + 500_000)), Membership::Pending);
        filter.end(time(END));
        let mut got = Vec::new();
        filter.close(|record, inside| got.push((id_of(&record), inside)));
        assert_eq!(got, [(7, belongs), (8, false)]);
    }
    // One call is enough to show that calls are recorded.
    let mut filter = filter().without_calls(true);
    assert_eq!(filter.judge(&kernel(6, BEGIN + 500_000)), Membership::Pending);
    assert_eq!(filter.judge(&call(10, BEGIN + 600_000)), Membership::In);
    assert_eq!(released(&mut filter), []);
    assert_eq!(released(&mut filter), [(6, false)]);
}

#[test]
fn kernels_launched_before_the_begin_stay_out_whenever_they_run() {
    let mut filter = filter();
    assert_eq!(filter.judge(&kernel(5, BEGIN - 500_000)), Membership::Out, "it ran before the begin");
    assert_eq!(filter.judge(&kernel(6, BEGIN + 500_000)), Membership::Pending, "it may be of a call that comes later");
    assert_eq!(filter.judge(&call(10, BEGIN + 10)), Membership::In);
    assert_eq!(released(&mut filter), [], "its call may not have returned yet");
    assert_eq!(released(&mut filter), [(6, false)]);
}

#[test]
fn a_kernel_that_comes_before_its_call_waits_for_it() {
    let mut filter = filter();
    assert_eq!(filter.judge(&kernel(10, BEGIN + 20)), Membership::Pending);
    assert_eq!(filter.judge(&call(10, BEGIN + 10)), Membership::In);
    assert_eq!(released(&mut filter), [(10, true)]);

    filter.end(time(END));
    assert_eq!(filter.judge(&kernel(20, END + 100_000)), Membership::Pending);
    assert_eq!(filter.judge(&kernel(22, END + 120_000)), Membership::Pending);
    assert_eq!(released(&mut filter), []);
    assert_eq!(filter.judge(&call(20, END - 100)), Membership::In);
    assert_eq!(filter.judge(&call(22, END + 100)), Membership::Out);
    assert_eq!(released(&mut filter), [(20, true), (22, false)]);
}

#[test]
fn the_error_of_the_device_clock_decides_nothing() {
    let mut filter = filter();
    // Seems to start before its call, and before the range.
    assert_eq!(filter.judge(&call(10, BEGIN + 10)), Membership::In);
    assert_eq!(filter.judge(&kernel(10, BEGIN - 20_000)), Membership::In);
    filter.end(time(END));
    // Launched after the end, seems to start before it.
    assert_eq!(filter.judge(&call(13, END + 10)), Membership::Out);
    assert_eq!(filter.judge(&kernel(13, END - 20_000)), Membership::Out);
}

#[test]
fn what_nobody_claims_belongs_to_the_capture_at_its_close() {
    let mut filter = filter();
    filter.judge(&call(10, BEGIN + 10));
    filter.end(time(END));
    assert_eq!(filter.judge(&kernel(30, END + 100_000)), Membership::Pending);
    assert_eq!(filter.judge(&kernel(3, END + 100_000)), Membership::Pending);
    let mut got = Vec::new();
    filter.close(|record, inside| got.push((id_of(&record), inside)));
    assert_eq!(got, [(30, true), (3, false)]);
}

#[test]
fn ids_wrap() {
    let mut filter = filter();
    assert_eq!(filter.judge(&call(u32::MAX, BEGIN + 10)), Membership::In);
    assert_eq!(filter.judge(&call(2, BEGIN + 20)), Membership::In);
    assert_eq!(filter.judge(&kernel(2, BEGIN + 30)), Membership::In);
    filter.end(time(END));
    assert_eq!(filter.judge(&kernel(1, END + 100_000)), Membership::In);
}

#[test]
fn a_whole_run_takes_everything_until_it_is_stopped() {
    let mut filter = CaptureFilter::new(None);
    assert_eq!(filter.judge(&kernel(7, 1)), Membership::In);
    assert_eq!(filter.judge(&call(8, 2)), Membership::In);
    filter.end(time(END));
    assert_eq!(filter.judge(&kernel(8, END + 100_000)), Membership::In);
    assert_eq!(filter.judge(&call(9, END + 1)), Membership::Out);
    assert_eq!(filter.judge(&kernel(9, END + 100_000)), Membership::Out);
}

#[test]
fn memory_is_bounded() {
    let mut filter = filter();
    for id in 0..WAITING_LIMIT as u32 {
        assert_eq!(filter.judge(&kernel(id + 1, BEGIN + 20)), Membership::Pending);
    }
    assert_eq!(filter.judge(&kernel(7, BEGIN + 20)), Membership::In);
}
