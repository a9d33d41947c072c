//! Traces generated for tests, and a parser for pages.

use std::fs;
use std::path::PathBuf;

use gpuwhy_import::{TraceFile, unwatched};
use gpuwhy_page::{Options, PageResult, write_report};
use gpuwhy_page_reader::{self as read, PageEvent};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, ContextId, CorrelationId, DeviceId, Kernel, LaunchConfig, Loss, Record, StreamId,
    ThreadId, Timestamp,
};
use serde_json::Value;
use tempfile::TempDir;

/// A folder with one trace.
pub struct Stage {
    _folder: TempDir,
    pub trace: PathBuf,
}

/// A page and its decoded blocks.
pub struct Page {
    pub text: String,
    pub outcome: PageResult,
}

impl Stage {
    pub fn of(bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace.gpuwhy");
        fs::write(&trace, bytes).unwrap();
        Self { _folder: folder, trace }
    }

    pub fn file(&self) -> TraceFile {
        TraceFile::open(&self.trace).unwrap()
    }

    pub fn page(&self, options: &Options) -> Page {
        let mut out = Vec::new();
        let outcome = write_report(&self.file(), options, &mut out, &mut unwatched).unwrap();
        Page { text: String::from_utf8(out).unwrap(), outcome }
    }
}

impl Page {
    /// The bytes of a block.
    pub fn block(&self, name: &str) -> Vec<u8> {
        read::block(&self.text, name).unwrap()
    }

    /// The events of a lane in time order.
    pub fn events(&self, lane: &Value) -> Vec<PageEvent> {
        let columns = lane["columns"].as_array().unwrap().len();
        let mut all = Vec::new();
        for chunk in lane["chunks"].as_array().unwrap() {
            let count = chunk["count"].as_u64().unwrap() as usize;
            let events = read::events(&self.block(&chunk["block"].to_string()), count, columns);
            assert_eq!(events[0].begin, chunk["first"].as_u64().unwrap());
            all.extend(events);
        }
        all.sort();
        all
    }

    pub fn manifest(&self) -> Value {
        serde_json::from_slice(&self.block("doc")).unwrap()
    }
}

/// A time `micros` microseconds after the start of the traces.
pub fn at(micros: u64) -> Timestamp {
    Timestamp::from_nanos(1_700_000_000_000_000_000 + micros * 1000)
}

/// A trace with `count` launches of a kernel called `kernel`, by a program called `command`.
pub fn launches(count: u32, kernel: &str, command: &str) -> Vec<u8> {
    launches_with(count, kernel, command, |micros| micros)
}

/// Like [`launches`], with a clock that shows `clock` microseconds after the given number of real ones.
pub fn launches_with(count: u32, kernel: &str, command: &str, clock: impl Fn(u64) -> u64) -> Vec<u8> {
    let at = |micros: u64| at(clock(micros));
    let mut dictionary = Dictionary::new();
    let name = dictionary.intern_name(kernel);
    let config = dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() });
    let name = dictionary.intern_name("cudaLaunchKernel_v7000");
    let function = dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name });
    let session =
        ProcessInfo { process_id: 4711, command: vec![command.into()], start: at(0), ..ProcessInfo::default() };
    let mut writer = TraceWriter::new(Vec::new(), &session).unwrap();
    for number in 0..count {
        let begin = u64::from(number) * 10;
        let correlation = CorrelationId(number + 1);
        let (thread, start) = (ThreadId(9), at(begin));
        let call = ApiCall { start, end: at(begin + 3), thread, correlation, function, return_value: 0 };
        let kernel = Kernel {
            start: at(begin + 5),
            end: at(begin + 9),
            device: DeviceId(0),
            context: ContextId(1),
            stream: StreamId(7),
            correlation,
            config,
            ..Kernel::default()
        };
        writer.event(&event::Event::Record(Record::Api(call)), &dictionary).unwrap();
        writer.event(&event::Event::Record(Record::Kernel(kernel)), &dictionary).unwrap();
        if number % 100 == 99 {
            writer.event(&event::Event::Flush(at(begin + 10)), &dictionary).unwrap();
        }
    }
    let end = at(u64::from(count) * 10);
    writer.finish(End::Clean, end, &Loss::default(), &dictionary).unwrap()
}

/// Default options of the command.
pub fn options() -> Options {
    Options::default()
}
