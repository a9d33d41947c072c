//! Speed, size and memory of every export: `cargo bench -p gpuwhy-export --bench formats [-- EVENTS]`.
//!
//! The benchmark creates its trace: a loop of a hundred kernels on two streams with their launching calls
//! (half of the events are kernels, half are calls), with seeded jitter. Each format is written by a separate
//! process, whose peak resident memory is read from the kernel (`VmHWM`) and includes SQLite's cache. Files
//! are written to the temporary folder and removed after their sizes have been added up.
//!
//! Each format is timed once, in wall time: files are written and other processes interfere, so times vary.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use gpuwhy_export::named::NamedQuery;
use gpuwhy_export::nsys::Reports;
use gpuwhy_export::query::Query;
use gpuwhy_export::stats::{Printer, StatsOptions, TableFormat};
use gpuwhy_export::tables::Label;
use gpuwhy_export::{Destination, Options, TargetFormat, TraceFile, export, unwatched};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, ContextId, CorrelationId, DeviceId, Kernel, LaunchConfig, Loss, Record, StreamId,
    ThreadId, Timestamp,
};

const EVENTS: u64 = 1_000_000;
const START: u64 = 1_790_000_000_000_000_000;
const KERNELS: u64 = 100;
/// Launches between two flushes.
const DELIVERY: u64 = 5_000;

const WORK: [&str; 8] = ["chrome", "chrome.gz", "json", "sqlite", "perfetto", "parquet", "stats", "query"];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if let [work, trace, folder] = arguments.as_slice() {
        return child(work, trace.as_ref(), folder.as_ref());
    }
    let events = arguments.first().map_or(EVENTS, |events| events.parse().expect("a number of events"));
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let trace = folder.path().join("trace.gpuwhy");
    make(&trace, events).expect("a trace");
    let bytes = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    println!("{events} events, a trace of {:.1} MB", bytes(&trace) as f64 / 1e6);
    println!("{:<10} {:>12} {:>9} {:>12} {:>10}", "", "events/s", "seconds", "bytes/event", "peak MiB");
    for work in WORK {
        let out = tempfile::tempdir_in(folder.path()).expect("a folder");
        let start = Instant::now();
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args([work.as_ref(), trace.as_os_str(), out.path().as_os_str()])
            .output()
            .expect("this program again");
        let seconds = start.elapsed().as_secs_f64();
        assert!(output.status.success(), "{work}: {}", String::from_utf8_lossy(&output.stderr));
        let peak: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("the peak in KiB");
        println!(
            "{work:<10} {:>12.0} {seconds:>9.1} {:>12.1} {:>10}",
            events as f64 / seconds,
            size(out.path()) as f64 / events as f64,
            peak / 1024
        );
    }
}

/// Does one kind of work and prints the peak resident memory, KiB.
fn child(work: &str, trace: &Path, folder: &Path) {
    let trace = TraceFile::open(trace).expect("a trace");
    let progress = &mut unwatched;
    let mut nowhere = BufWriter::new(File::create(folder.join("out")).expect("a file"));
    let label = Label { run: "run".to_owned(), rank: 0 };
    match work {
        "stats" => {
            let reports = [NamedQuery::named("cuda_gpu_kern_sum").expect("a report")];
            let loaded = Reports::load(vec![(&trace).into()], &reports, progress).expect("the tables");
            let mut printer = Printer::new(nowhere, StatsOptions::default(), []);
            loaded.print(&reports[0], &mut printer).expect("stats");
        }
        "query" => {
            let sql =
                "SELECT k.name, a.name, count(*), sum(k.duration_ns) FROM kernels k JOIN api a USING (correlation)
                       GROUP BY 1, 2";
            let query = Query::new(sql).expect("SQL");
            let csv = StatsOptions { format: TableFormat::Csv, ..StatsOptions::default() };
            query.answer(&[(trace, label)], &csv, &mut nowhere, progress).expect("an answer");
        }
        _ => {
            let (format, name) = match work {
                "chrome" => (TargetFormat::Chrome, "out.json"),
                "chrome.gz" => (TargetFormat::Chrome, "out.json.gz"),
                "json" => (TargetFormat::Json, "out.jsonl"),
                "sqlite" => (TargetFormat::Sqlite, "out.sqlite"),
                "perfetto" => (TargetFormat::Perfetto, "out.perfetto-trace"),
                _ => (TargetFormat::Parquet, ""),
            };
            let options = Options { label, ..Options::default() };
            let to = Destination::new(&folder.join(name), format.shape(), true, &[]).expect("a place");
            export(&trace, format, to, &options, progress).expect("an export");
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    println!("{}", peak.and_then(|peak| peak.split_whitespace().next()).expect("VmHWM"));
}

/// Total bytes of all files below a folder.
fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.map(|path: PathBuf| if path.is_dir() { size(&path) } else { path.metadata().map_or(0, |m| m.len()) }).sum()
}

fn make(path: &Path, events: u64) -> io::Result<()> {
    let mut dictionary = Dictionary::new();
    let launch = dictionary.intern_name("cudaLaunchKernel_v7000");
    let launch = ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name: launch };
    let function = dictionary.intern_api_function(launch);
    let configs: Vec<_> = (0..KERNELS)
        .map(|number| {
            let name = dictionary.intern_name(&format!("_ZN2at6native29vectorized_elementwise_kernel{number}EPfS1_i"));
            let grid = [1 + number as u32, 1, 1];
            dictionary.intern_launch_config(LaunchConfig { name, grid, block: [256, 1, 1], ..LaunchConfig::default() })
        })
        .collect();
    let session = ProcessInfo { start: Timestamp::from_nanos(START), process_id: 1, ..ProcessInfo::default() };
    let mut writer = TraceWriter::new(BufWriter::new(File::create(path)?), &session)?;
    // Fibonacci hashing: scattered, but the same in every run.
    let jitter = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 2_000;
    let (mut host, mut device) = (START, [START; 2]);
    for number in 0..events / 2 {
        let correlation = CorrelationId(number as u32 + 1);
        let begin = host + 1_000 + jitter(number);
        host = begin + 3_000;
        let call = ApiCall {
            start: Timestamp::from_nanos(begin),
            end: Timestamp::from_nanos(host),
            thread: ThreadId(1),
            correlation,
            function,
            return_value: 0,
        };
        let lane = usize::from(number % 10 == 0);
        let start = device[lane].max(begin + 2_000) + 900;
        device[lane] = start + 4_000 + jitter(number + 1);
        let kernel = Kernel {
            start: Timestamp::from_nanos(start),
            end: Timestamp::from_nanos(device[lane]),
            device: DeviceId(0),
            context: ContextId(1),
            stream: StreamId(7 + lane as u32),
            correlation,
            config: configs[(number % KERNELS) as usize],
            ..Kernel::default()
        };
        writer.event(&Event::Record(Record::Api(call)), &dictionary)?;
        writer.event(&Event::Record(Record::Kernel(kernel)), &dictionary)?;
        if number % DELIVERY == DELIVERY - 1 {
            writer.event(&Event::Flush(Timestamp::from_nanos(device[0].max(host))), &dictionary)?;
        }
    }
    let end = Timestamp::from_nanos(device[0].max(device[1]).max(host));
    writer.finish(End::Clean, end, &Loss::default(), &dictionary)?;
    Ok(())
}
