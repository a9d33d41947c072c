//! Loads the libcupti named by the first argument and prints what cupti-sys finds out about it, as `key
//! value` lines.
//!
//! A separate program, because two copies of libcupti in one process conflict, and because some versions
//! crash the process if there is no driver: with `--symbols` no function of the library is called, and
//! `--guarded` loads it as the profiler does, which refuses it without a driver. `--counters` prints the counter
//! interfaces instead, `--ranges` the number of passes that groups of metrics take on a chip. It is the child
//! process of the tests of released libraries and does not judge what it prints.

mod counters;

use cupti_sys::{
    ActivityHandler, Buffer, CompletedBuffer, Cupti, Domain, Kind, RecordSizes, ResourceHandler, Search,
    count_by_library,
};
use std::env;
use std::error::Error;
use std::process::ExitCode;

struct Handler;

impl ActivityHandler for Handler {
    fn buffer_requested() -> Option<Buffer> {
        Buffer::new(64 * 1024)
    }
    fn buffer_completed(_: CompletedBuffer) {}
    fn buffer_discarded(_: u64) {}
}

impl ResourceHandler for Handler {
    fn context_created() {}
}

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let (path, described) = match arguments.as_slice() {
        [path] => (path, describe(path, false)),
        [path, flag] if flag == "--symbols" => (path, describe(path, true)),
        [path, flag] if flag == "--guarded" => (path, guarded(path)),
        [path, flag] if flag == "--counters" => (path, counters::describe(path)),
        [path, flag, chip, groups @ ..] if flag == "--ranges" => (path, counters::describe_ranges(path, chip, groups)),
        _ => {
            eprintln!(
                "usage: cupti-layout-check LIBCUPTI [--symbols | --guarded | --counters | --ranges CHIP METRIC,METRIC...]"
            );
            return ExitCode::from(2);
        }
    };
    match described {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn describe(path: &str, symbols_only: bool) -> Result<(), Box<dyn Error>> {
    let cupti = Cupti::load_without_driver(&Search { override_path: Some(path.into()), ..Search::default() })?;
    println!("path {}", cupti.path().display());
    println!("missing {}", cupti.missing_functions().join(" "));
    if symbols_only {
        return Ok(());
    }
    println!("version {}", cupti.version()?);
    println!("timestamp {}", cupti.timestamp()?);
    let sizes = RecordSizes::probe(cupti)?;
    for (kind, size) in sizes.iter() {
        println!("size.{} {size}", kind.0);
    }
    walk(cupti, &sizes);
    let name = |domain, callback_id| cupti.callback_name(domain, callback_id).unwrap_or_default();
    println!("runtime.211 {}", name(Domain::RUNTIME, 211));
    println!("driver.307 {}", name(Domain::DRIVER, 307));
    println!("runtime.999999 {}", name(Domain::RUNTIME, 999_999));
    // Without a driver these are refused; with one they work. Either way the call must return.
    println!("register {}", outcome(cupti.register_callbacks::<Handler>()));
    println!("enable {}", outcome(cupti.enable(Kind::CONCURRENT_KERNEL)));
    println!("flush {}", outcome(cupti.flush(false)));
    println!("subscribe {}", outcome(cupti.subscribe::<Handler>()));
    Ok(())
}

fn guarded(path: &str) -> Result<(), Box<dyn Error>> {
    match Cupti::load(&Search { override_path: Some(path.into()), ..Search::default() }) {
        Ok(cupti) => println!("subscribe {}", outcome(cupti.subscribe::<Handler>())),
        Err(error) => println!("no-driver {}", error.no_driver().ok_or_else(|| error.to_string())?),
    }
    Ok(())
}

/// Steps over one record of each kind, then over the same with a byte missing at the end, and with a record
/// of an unknown kind in the middle. Prints the number of records found, the number that the library's own
/// iterator finds, and the number of bytes left over.
fn walk(cupti: &Cupti, sizes: &RecordSizes) {
    let record = |kind: Kind, size: u32| {
        let mut bytes = vec![0; size as usize];
        bytes[..4].copy_from_slice(&kind.0.to_ne_bytes());
        bytes
    };
    let whole: Vec<u8> = sizes.iter().flat_map(|(kind, size)| record(kind, size)).collect();
    let unknown = [record(Kind::RUNTIME, 40), record(Kind(9_999), 64), record(Kind::RUNTIME, 40)].concat();
    for (name, bytes) in [("whole", &whole[..]), ("cut", &whole[..whole.len() - 1]), ("unknown", &unknown)] {
        let Some(buffer) = CompletedBuffer::from_bytes(bytes, 0, 0) else { continue };
        let mut records = buffer.records(sizes);
        let met = records.by_ref().count();
        let left = records.remainder().map_or(0, |broken| broken.bytes);
        println!("walk.{name} {met} {} {left}", count_by_library(cupti, &buffer));
    }
}

fn outcome<T>(result: Result<T, cupti_sys::Error>) -> u32 {
    result.map_or_else(|error| error.code.0, |_| 0)
}
