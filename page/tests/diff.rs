//! The page of a comparison: the operations of a step are counted, named and marked as they changed.

use gpuwhy_compare::diff::compare;
use gpuwhy_import::unwatched;
use gpuwhy_page::write_diff;
use gpuwhy_report::run::Report;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, ContextId, CorrelationId, DeviceId, Kernel, LaunchConfig, Loss, Record, StreamId,
    ThreadId,
};

use crate::page::{Stage, at};

const STEPS: u64 = 300;

/// Report of a program that launches these kernels in each of its steps, for so many microseconds each.
fn program(kernels: &[(&str, u64)]) -> Report {
    let mut dictionary = Dictionary::new();
    let name = dictionary.intern_name("cudaLaunchKernel");
    let function = dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name });
    let session = ProcessInfo { process_id: 10, start: at(0), ..ProcessInfo::default() };
    let mut writer = TraceWriter::new(Vec::new(), &session).unwrap();
    let (mut micros, mut correlation) = (0, CorrelationId(0));
    // Loading the program launches one kernel twenty times more than each step does.
    let start_up = std::iter::repeat_n(("gemm", 5), 20);
    for (kernel, length) in start_up.chain((0..STEPS).flat_map(|_| kernels.iter().copied())) {
        let name = dictionary.intern_name(kernel);
        let config = dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() });
        correlation.0 += 1;
        let (start, end) = (at(micros), at(micros + 2));
        let call = ApiCall { start, end, thread: ThreadId(5), correlation, function, return_value: 0 };
        let (start, end) = (at(micros + 4), at(micros + 4 + length));
        let (device, context, stream) = (DeviceId(0), ContextId(1), StreamId(7));
        let kernel = Kernel { start, end, device, context, stream, correlation, config, ..Kernel::default() };
        writer.event(&Event::Record(Record::Api(call)), &dictionary).unwrap();
        writer.event(&Event::Record(Record::Kernel(kernel)), &dictionary).unwrap();
        micros += 6 + length;
        if correlation.0 % 100 == 99 {
            writer.event(&Event::Flush(at(micros)), &dictionary).unwrap();
        }
    }
    let trace = writer.finish(End::Clean, at(micros), &Loss::default(), &dictionary).unwrap();
    Stage::of(&trace).file().report(None, &mut unwatched).unwrap()
}

#[test]
fn operations_of_a_step_are_counted_named_and_marked() {
    let a = program(&[("gemm", 20), ("relu", 10), ("gemm", 20), ("norm", 10), ("softmax", 10)]);
    let b = program(&[("gemm", 20), ("relu", 15), ("gemm", 20), ("softmax", 10), ("dropout", 10)]);
    let diff = compare(&a, &b).unwrap();
    let mut page = Vec::new();
    write_diff(&diff, (&a, "a"), (&b, "b"), None, &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    let row = |name: &str, counts: [u64; 2]| {
        let [of_a, of_b] = counts;
        let wanted = format!("<span>{name}</span></td><td class=\"n\">{of_a}</td><td class=\"n\">{of_b}</td>");
        assert!(page.contains(&wanted), "{name}: {page}");
    };
    row("gemm", [2, 2]);
    row("norm", [1, 0]);
    row("dropout", [0, 1]);
    for what in ["relu: 10.0 us, slower in B", "norm: 10.0 us, only in A", "dropout: 10.0 us, only in B"] {
        assert!(page.contains(&format!("<title>{what}</title>")), "{what}: {page}");
    }
    for sign in ["\u{25b2} relu", "\u{2212} norm", "+ dropout"] {
        assert!(page.contains(&format!(">{sign}</text>")), "{sign}: {page}");
    }
}
