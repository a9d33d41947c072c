//! Bounded memory of the profiler for a program without repetition.
//!
//! Kernels by the hundred thousand, each with a separate name, launch configuration, stream, context and
//! thread, pass through dictionary, attributor and trace writer while an allocator counts. Without limits
//! they would need some 400 MB and more with each kernel; memory must not grow in the last fifth of the run.

use std::sync::atomic::Ordering;

use crate::counting::LIVE;
use gpuwhy_report::run::Report;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;
use profiler_core::attribution::Attributor;

/// Above every limit of the dictionary.
const RECORDS: u64 = 400_000;
/// Megabytes: full tables as in docs/design/reliability.md.
const MAX_MEGABYTES: usize = 220;
const FLUSH_EVERY: u64 = 2_000;
const START: u64 = 1_790_000_000_000_000_000;

#[test]
fn a_program_of_which_nothing_repeats_does_not_grow_without_end() {
    let _alone = crate::counting::alone();
    let mut dictionary = Dictionary::new();
    let mut attributor = Attributor::new();
    let session = ProcessInfo { start: Timestamp::from_nanos(START), ..ProcessInfo::default() };
    let mut trace = TraceWriter::new(std::io::sink(), &session).unwrap();
    let loss = Loss::default();
    let mut sampled = Vec::new();
    for index in 0..RECORDS {
        let id = index as u32;
        let at = START + index * 5_000;
        let name = dictionary.intern_name(&format!("void kernel_{index}<float, {index}>(float*, float const*, int)"));
        let config =
            dictionary.intern_launch_config(LaunchConfig { name, grid: [id + 1, 1, 1], ..LaunchConfig::default() });
        dictionary.add_context(Context { id: ContextId(id), device: DeviceId(id), null_stream: StreamId(7) });
        let launch = dictionary.intern_name("cudaLaunchKernel_v7000");
        let function = ApiFunction { domain: ApiDomain::Runtime, callback_id: 211 + id % 50_000, name: launch };
        let call = Record::Api(ApiCall {
            start: Timestamp::from_nanos(at),
            end: Timestamp::from_nanos(at + 1_000),
            thread: ThreadId(id + 1),
            correlation: CorrelationId(id + 1),
            function: dictionary.intern_api_function(function),
            return_value: 0,
        });
        let kernel = Record::Kernel(Kernel {
            start: Timestamp::from_nanos(at + 1_500),
            end: Timestamp::from_nanos(at + 4_500),
            device: DeviceId(0),
            context: ContextId(id),
            stream: StreamId(id),
            correlation: CorrelationId(id + 1),
            config,
            graph_id: 0,
            graph_node_id: 0,
        });
        for record in [call, kernel] {
            attributor.push(&record, &dictionary);
            trace.event(&Event::Record(record), &dictionary).unwrap();
        }
        if index % FLUSH_EVERY == 0 {
            attributor.flushed(Timestamp::from_nanos(at), &dictionary);
            trace
                .event(&Event::from(loss), &dictionary)
                .and_then(|()| trace.event(&Event::Flush(Timestamp::from_nanos(at)), &dictionary))
                .unwrap();
        }
        if index % (RECORDS / 20) == 0 {
            sampled.push(LIVE.load(Ordering::Relaxed) / 1_000_000);
        }
    }
    println!("megabytes in use at each twentieth of the run: {sampled:?}");
    let (fifth, end) = (sampled[sampled.len() * 4 / 5], sampled[sampled.len() - 1]);
    assert!(end < fifth + 5, "still growing in the last fifth: {sampled:?} MB");
    assert!(end < MAX_MEGABYTES, "{sampled:?} MB");
    assert!(dictionary.beyond() > 0);

    let report = Report::new(&session, &attributor, &dictionary, &loss, End::Clean, Vec::new());
    assert_eq!(report.completeness.kernels, RECORDS);
}
