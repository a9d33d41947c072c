//! Speed and memory of the statistics on one core: `cargo bench -p gpuwhy-export --bench stats`.
//!
//! The trace file is synthetic, with ten million events (or `GPUWHY_BENCH_EVENTS`): calls and kernels in
//! steps of a thousand launches, each with a pushed range around it and one around every hundred. The file is
//! in the page cache. Resident memory is the peak, as counted by Linux (`VmHWM`).

use std::fs::{self, File};
use std::io::BufWriter;
use std::time::Instant;

use gpuwhy_export::named::NamedQuery;
use gpuwhy_export::nsys::Reports;
use gpuwhy_export::stats::{Printer, StatsOptions, TableFormat};
use gpuwhy_export::{TraceFile, unwatched};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;

const EVENTS: u64 = 10_000_000;
/// Launches per step; two events each, and two for every range.
const STEP: u64 = 1_000;
const IN_RANGE: u64 = 100;
const START: u64 = 1_790_000_000_000_000_000;

fn main() {
    let events = std::env::var("GPUWHY_BENCH_EVENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(EVENTS);
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let written = write(file.path(), events);
    let bytes = fs::metadata(file.path()).expect("its size").len();
    println!("{written} events, {:.1} MB, highest resident memory {} MB", bytes as f64 / 1e6, resident());
    let trace = TraceFile::open(file.path()).expect("the trace");
    let reports = ["cuda_gpu_kern_sum", "cuda_api_sum", "cuda_kern_exec_sum", "nvtx_sum", "nvtx_gpu_proj_sum"];
    for name in reports.into_iter().chain(["cuda_api_sync", "gpu_gaps", "gpu_time_util"]) {
        timed(&trace, NamedQuery::named(name).expect("a report or rule"), written);
    }
}

fn timed(trace: &TraceFile, report: NamedQuery, events: u64) {
    let options = StatsOptions { format: TableFormat::Csv, ..StatsOptions::default() };
    let began = Instant::now();
    let reports = [report];
    let loaded = Reports::load(vec![trace.into()], &reports, &mut unwatched).expect("the tables");
    loaded.print(&reports[0], &mut Printer::new(Vec::new(), options, [])).expect("the report");
    let seconds = began.elapsed().as_secs_f64();
    let rate = events as f64 / seconds / 1e6;
    println!(
        "{:<20} {seconds:>6.2} s  {rate:>6.2} M events/s  highest resident memory {:>5} MB",
        reports[0].name,
        resident()
    );
}

/// Peak resident memory in megabytes; 0 if `/proc` does not show it.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kilobytes| kilobytes / 1024)
}

fn write(path: &std::path::Path, events: u64) -> u64 {
    let mut dictionary = Dictionary::new();
    let none = dictionary.intern_name("");
    let names: Vec<_> = (0..40).map(|number| dictionary.intern_name(&format!("_Z6kernel{number}Pf"))).collect();
    let configs: Vec<_> = names
        .iter()
        .map(|&name| {
            dictionary.intern_launch_config(LaunchConfig { name, grid: [64, 1, 1], ..LaunchConfig::default() })
        })
        .collect();
    let launch = dictionary.intern_name("cudaLaunchKernel_v7000");
    let function =
        dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name: launch });
    let texts: Vec<_> = ["step", "layer"].map(|text| dictionary.intern_name(text)).into();
    let session = ProcessInfo { process_id: 1, start: Timestamp::from_nanos(START), ..ProcessInfo::default() };
    let file = BufWriter::new(File::create(path).expect("the file"));
    let mut writer = TraceWriter::new(file, &session).expect("the trace");
    let at = |nanos: u64| Timestamp::from_nanos(START + nanos);
    let mut written = 0;
    let mut launches = 0u64;
    while written < events {
        let now = launches * 4_000;
        let mut push = |record: Record| {
            writer.event(&Event::Record(record), &dictionary).expect("a record");
            written += 1;
        };
        let range = |kind, nanos, message| {
            let event =
                RangeEvent { at: at(nanos), thread: ThreadId(1), kind, domain: none, message, ..RangeEvent::default() };
            Record::Range(event)
        };
        for (every, text) in [(STEP, texts[0]), (IN_RANGE, texts[1])] {
            if launches.is_multiple_of(every) {
                push(range(RangeEventKind::Push, now, text));
            }
        }
        let correlation = CorrelationId(launches as u32 + 1);
        let (thread, jitter) = (ThreadId(1), launches * 7_919 % 997);
        let (start, end) = (at(now + 100), at(now + 2_100 + jitter));
        push(Record::Api(ApiCall { start, end, thread, correlation, function, return_value: 0 }));
        let config = configs[launches as usize % configs.len()];
        let (start, end) = (at(now + 5_000), at(now + 7_000 + jitter));
        push(Record::Kernel(Kernel { start, end, correlation, config, ..Kernel::default() }));
        launches += 1;
        for every in [IN_RANGE, STEP] {
            if launches.is_multiple_of(every) {
                push(range(RangeEventKind::Pop, launches * 4_000 - 1, none));
            }
        }
        if launches.is_multiple_of(STEP * 25) {
            writer.event(&Event::Flush(at(now)), &dictionary).expect("a mark");
        }
    }
    writer.finish(End::Clean, at(launches * 4_000), &Loss::default(), &dictionary).expect("the end");
    written
}
