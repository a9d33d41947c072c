//! A client that cannot keep up can stop the simulation without losing any other result.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, CorrelationId, Kernel, LaunchConfig, Record, StreamId, ThreadId, Timestamp,
};
use profiler_core::attribution::Attributor;

/// 1,000 launches of 5 us, each with a kernel of 20 us, flushed every 100; the simulation stops after
/// `stop_after` launches.
fn run(stop_after: Option<u32>) -> Attributor {
    let mut dictionary = Dictionary::new();
    let name = dictionary.intern_name("cudaLaunchKernel_v7000");
    let function = dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name });
    let kernel_name = dictionary.intern_name("gemm");
    let config = dictionary.intern_launch_config(LaunchConfig { name: kernel_name, ..LaunchConfig::default() });
    let at = |micros: u32| Timestamp::from_nanos(1_000_000_000 + u64::from(micros) * 1_000);
    let mut attributor = Attributor::new();
    for launch in 0..1_000 {
        let correlation = CorrelationId(launch + 1);
        let begin = launch * 30;
        let (start, end, thread) = (at(begin), at(begin + 5), ThreadId(7));
        let call = ApiCall { start, end, thread, correlation, function, return_value: 0 };
        let kernel = Kernel {
            start: at(begin + 8),
            end: at(begin + 28),
            stream: StreamId(7),
            correlation,
            config,
            ..Kernel::default()
        };
        attributor.push(&Record::Api(call), &dictionary);
        attributor.push(&Record::Kernel(kernel), &dictionary);
        if launch % 100 == 99 {
            attributor.flushed(at(begin + 28), &dictionary);
        }
        if stop_after == Some(launch) {
            attributor.stop_what_if();
        }
    }
    attributor.finish(at(40_000), &dictionary);
    attributor
}

#[test]
fn totals_are_the_same_without_the_simulation() {
    let (whole, stopped) = (run(None), run(Some(450)));
    let account = |attributor: &Attributor| {
        let account = attributor.devices().next().unwrap();
        (*account.leaves(), account.window_ns(), account.operations(), account.id())
    };
    assert_eq!(account(&whole), account(&stopped));
    let device = account(&whole).3;
    assert!(whole.what_if(device).is_some());
    assert!(stopped.what_if(device).is_none());
}
