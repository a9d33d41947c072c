//! Speed, size and memory of the page of a run: `cargo bench -p gpuwhy-page --bench page -- [EVENTS | TRACE]
//! [OUT]`.
//!
//! Without a trace one is generated here: steps of a hundred kernels on one stream with the calls that launch
//! them, half of the events each, and a wait at the end of each step. Pauses and durations scatter without a
//! pattern, which is the worst case for a page's size. The page is written to OUT or to a temporary folder;
//! `benches/page.sh` opens it in a browser.
//!
//! Reports the wall-clock time of one run, and its CPU time over all cores, which is more reliable on a busy
//! machine. A record becomes two events: its own and the piece of GPU time that it ends. Memory is the peak
//! of the process while it writes the page (Linux). Timestamps of an H100 and an H200 are multiples of 32 ns,
//! and so are those of the kernels here.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Instant;

use gpuwhy_import::{TraceFile, unwatched};
use gpuwhy_page::{Detail, Options, write_report};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;

/// Default number of events; with `cargo bench --workspace` the argument is `--bench`.
const EVENTS: u64 = 200_000;
const START: u64 = 1_790_000_000_000_000_000;
/// Kernels per step.
const KERNELS: u64 = 100;
/// Time between two deliveries of records, nanoseconds.
const FLUSH_NANOS: u64 = 100_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let trace = match arguments.first() {
        Some(path) if path.parse::<u64>().is_err() => PathBuf::from(path),
        events => {
            let path = folder.path().join("trace.gpuwhy");
            make(&path, events.map_or(EVENTS, |events| events.parse().expect("a number"))).expect("a trace");
            path
        }
    };
    let out = arguments.get(1).map_or_else(|| folder.path().join("page.html"), PathBuf::from);
    // Reset the peak (proc(5)).
    let _ = fs::write("/proc/self/clear_refs", "5");
    let (begun, processor) = (Instant::now(), processor_seconds());
    let file = TraceFile::open(&trace).expect("a trace");
    let options = Options { detail: Detail::Auto, ..Options::default() };
    let to = BufWriter::new(File::create(&out).expect("a file"));
    let outcome = write_report(&file, &options, to, &mut unwatched).expect("a page");
    let (seconds, processor) = (begun.elapsed().as_secs_f64(), processor_seconds() - processor);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or(" unknown").trim();
    let bytes = out.metadata().map_or(0, |metadata| metadata.len());
    let records = outcome.records.max(1);
    println!(
        "{records} records, trace {:.1} MB, page {:.1} MB ({:.2} bytes a record), {} events in it",
        trace.metadata().map_or(0, |metadata| metadata.len()) as f64 / 1e6,
        bytes as f64 / 1e6,
        bytes as f64 / records as f64,
        outcome.events,
    );
    println!(
        "{seconds:.2} s ({processor:.2} s of a core), {:.2} million events/s ({:.2} million records/s), peak {peak}",
        outcome.events as f64 / seconds / 1e6,
        records as f64 / seconds / 1e6,
    );
    outcome.left_out.iter().for_each(|note| println!("{note}"));
}

/// CPU time of this process over all cores, seconds: user and system time in hundredths (proc(5)).
fn processor_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Pseudorandom number for each `number`: splitmix64 (Steele, Lea and Flood, 2014).
fn noise(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn make(path: &Path, events: u64) -> io::Result<()> {
    let time = Timestamp::from_nanos;
    let mut dictionary = Dictionary::new();
    dictionary.add_device(Device { id: DeviceId(0), multiprocessors: 132, ..Device::default() });
    let mut function = |name: &str, callback_id| {
        let name = dictionary.intern_name(name);
        dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id, name })
    };
    let (launch, wait) = (function("cudaLaunchKernel", 211), function("cudaDeviceSynchronize", 165));
    let configs: Vec<_> = (0..KERNELS)
        .map(|index| {
            let name = dictionary.intern_name(&format!("kernel_{}", index % 40));
            let grid = [64 + index as u32, 1, 1];
            dictionary.intern_launch_config(LaunchConfig { name, grid, ..LaunchConfig::default() })
        })
        .collect();
    let session = ProcessInfo { start: time(START), command: vec!["benchmark".into()], ..ProcessInfo::default() };
    let mut writer = TraceWriter::new(BufWriter::new(File::create(path)?), &session)?;
    let (mut host, mut device, mut flushed) = (START, START, START);
    for number in 0..events / 2 {
        let (place, noise) = (number % KERNELS, noise(number));
        let correlation = CorrelationId(number as u32 + 1);
        let call = |function, start, end| {
            let (thread, start, end) = (ThreadId(9), time(start), time(end));
            Record::Api(ApiCall { start, end, thread, correlation, function, return_value: 0 })
        };
        writer.event(&Event::Record(call(launch, host, host + 4_000 + noise % 512)), &dictionary)?;
        let begin = (device.max(host + 5_000) + 900 + (noise >> 40) % 8 * 32) & !31;
        device = begin + 3_008 + place * 160 + (noise >> 32) % 64 * 32;
        let kernel = Kernel {
            start: time(begin),
            end: time(device),
            context: ContextId(1),
            stream: StreamId(7),
            correlation,
            config: configs[place as usize],
            ..Kernel::default()
        };
        writer.event(&Event::Record(Record::Kernel(kernel)), &dictionary)?;
        host += 6_000 + (noise >> 16) % 1_024;
        if place == KERNELS - 1 {
            let end = host.max(device) + 6_000;
            writer.event(&Event::Record(call(wait, host, end)), &dictionary)?;
            host = end + 14_000;
            if host - flushed >= FLUSH_NANOS {
                flushed = end;
                writer.event(&Event::Flush(time(flushed)), &dictionary)?;
            }
        }
    }
    writer.finish(End::Clean, time(host.max(device)), &Loss::default(), &dictionary)?;
    Ok(())
}
