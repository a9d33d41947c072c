//! Time and memory of opening a long trace: `cargo bench -p gpuwhy --bench long_trace -- 100000000`. With a path as
//! a second argument the trace stays there.
//!
//! The trace is a loop of a hundred kernels with the calls that launch them and a synchronization, flushed
//! every 0.1 s of its time, with a stored report at its end. It is written to a file in the folder for
//! temporary files and read again as `gpuwhy report` does it: by its stored report, in part, and from all of
//! its records. Times are of a single run, with the file in the page cache; memory is the peak of the process
//! while it reads (Linux).

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{StoredReport, TraceWriter};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;

/// Default without an argument; `cargo bench --workspace` passes only `--bench`.
const EVENTS: u64 = 1_000_000;
const START: u64 = 1_790_000_000_000_000_000;
const FLUSH_NANOS: u64 = 100_000_000;
/// Kernels per step.
const KERNELS: u64 = 100;

fn main() {
    let events = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(EVENTS);
    let kept = std::env::args().skip(1).find(|argument| argument.contains('/')).map(PathBuf::from);
    let name = format!("gpuwhy-long-{}.gpuwhy", std::process::id());
    let path = kept.clone().unwrap_or_else(|| std::env::temp_dir().join(name));
    let end = timed("written", events, || write(&path, events).expect("a trace"));
    let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
    println!("{events} events, {:.1} MB, {:.1} s of a run", bytes as f64 / 1e6, (end - START) as f64 / 1e9);
    let answer = || StoredReport::read(BufReader::new(File::open(&path).expect("the trace")));
    timed("its answer", events, || answer().expect("a trace").expect("an answer"));
    let run = Duration::from_nanos(end - START);
    let part = timed("a hundredth of it", events, || gpuwhy::open_window(&path, run / 2, run / 2 + run / 100));
    let whole = timed("all of it", events, || gpuwhy::open(&path));
    let [part, whole] = [part, whole].map(|report| report.expect("a report").completeness.kernels);
    println!("kernels: {part} in a hundredth, {whole} in all");
    if kept.is_none() {
        fs::remove_file(&path).expect("the trace can be removed");
    }
}

fn time(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// A pseudo-random number for each `number`: splitmix64 (Steele, Lea and Flood, 2014).
fn noise(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Writes the trace and returns the end of the run.
fn write(path: &Path, events: u64) -> io::Result<u64> {
    let mut dictionary = Dictionary::new();
    dictionary.add_device(Device { id: DeviceId(0), multiprocessors: 132, ..Device::default() });
    let name = dictionary.intern_name("cudaLaunchKernel");
    let launch = dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name });
    let configs: Vec<_> = (0..KERNELS)
        .map(|index| {
            let name = dictionary.intern_name(&format!("kernel_{index}"));
            dictionary.intern_launch_config(LaunchConfig { name, grid: [64, 1, 1], ..LaunchConfig::default() })
        })
        .collect();
    let mut writer =
        TraceWriter::new(File::create(path)?, &ProcessInfo { start: time(START), ..ProcessInfo::default() })?;
    let (mut host, mut device, mut flushed) = (START, START, START);
    for number in 0..events / 2 {
        let (place, noise) = (number % KERNELS, noise(number));
        // Calls, pauses between them and kernels vary from step to step.
        if place == 0 {
            // Wait for the previous step.
            host = host.max(device) + 20_000;
        }
        let correlation = CorrelationId(number as u32 + 1);
        let call = ApiCall {
            start: time(host),
            end: time(host + 4_000 + noise % 512),
            function: launch,
            correlation,
            ..ApiCall::default()
        };
        let begin = device.max(host + 5_000) + 900;
        device = begin + 3_000 + place * 160 + (noise >> 32) % 64 * 32;
        let kernel = Kernel {
            start: time(begin),
            end: time(device),
            correlation,
            config: configs[place as usize],
            stream: StreamId(7),
            ..Kernel::default()
        };
        writer.event(&Event::Record(Record::Api(call)), &dictionary)?;
        writer.event(&Event::Record(Record::Kernel(kernel)), &dictionary)?;
        host += 6_000 + (noise >> 16) % 1_024;
        if host - flushed >= FLUSH_NANOS && place == KERNELS - 1 {
            flushed = host.max(device);
            writer.event(&Event::Flush(time(flushed)), &dictionary)?;
        }
    }
    let text = "kept\n".to_owned();
    let answer = StoredReport { summary: text.clone(), full: text, ..StoredReport::default() };
    writer.answer(time(device), &answer, &dictionary)?;
    writer.finish(End::Clean, time(device), &Loss::default(), &dictionary)?;
    Ok(device)
}

fn timed<T>(what: &str, events: u64, work: impl FnOnce() -> T) -> T {
    // Resets the peak (proc(5)).
    let _ = fs::write("/proc/self/clear_refs", "5");
    let begun = Instant::now();
    let answer = work();
    let seconds = begun.elapsed().as_secs_f64();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or(" unknown").trim();
    println!("{what:<18} {seconds:>8.2} s {:>12.0} events/s, peak {peak}", events as f64 / seconds);
    answer
}
