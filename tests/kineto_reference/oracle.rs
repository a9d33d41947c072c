//! Independent reader of the reference traces, different on purpose: the complete document at once, times by
//! string arithmetic, unions over sorted lists. Its results must equal those of the engine.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use gpuwhy::{Report, import_kineto};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Start and end, nanoseconds.
pub type Span = (i64, i64);

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "traceEvents")]
    rows: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct RawRow {
    ph: String,
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    ts: Option<Box<RawValue>>,
    dur: Option<Box<RawValue>>,
    args: Option<Box<RawValue>>,
}

/// Kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Kernel,
    Copy,
    Memset,
    Call,
    Step,
    DataLoader,
}

/// A row that the tests use.
pub struct Row {
    pub kind: Kind,
    pub name: String,
    pub span: Span,
    /// Start and duration as a program that reads doubles gets them, microseconds.
    pub doubles: (f64, f64),
    pub stream: i64,
    pub correlation: Option<u64>,
    text: Box<RawValue>,
}

impl Row {
    pub fn on_device(&self) -> bool {
        matches!(self.kind, Kind::Kernel | Kind::Copy | Kind::Memset)
    }

    /// True if HTA counts the row as computation.
    pub fn computes(&self) -> bool {
        self.kind == Kind::Kernel && !self.name.starts_with("nccl")
    }
}

/// A trace.
pub struct Trace {
    pub rows: Vec<Row>,
}

impl Trace {
    /// Reads a reference trace, or prints that it is missing.
    pub fn load(name: &str) -> Option<Self> {
        let path = path(name);
        let Ok(file) = File::open(&path) else {
            println!("SKIPPED: no {} (GPUWHY_REFERENCE_TRACES names the folder)", path.display());
            return None;
        };
        let mut text = String::new();
        GzDecoder::new(BufReader::new(file)).read_to_string(&mut text).unwrap();
        let document: Document = serde_json::from_str(&text).unwrap();
        Some(Self { rows: document.rows.into_iter().filter_map(row).collect() })
    }

    pub fn device_rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.on_device())
    }

    pub fn spans(&self, kind: Kind) -> Vec<Span> {
        let mut spans: Vec<_> = self.rows.iter().filter(|row| row.kind == kind).map(|row| row.span).collect();
        spans.sort_unstable();
        spans
    }

    /// Start of the launching call, by correlation id.
    pub fn launches(&self) -> HashMap<u64, i64> {
        let calls = self.rows.iter().filter(|row| row.kind == Kind::Call);
        calls.filter_map(|row| Some((row.correlation?, row.span.0))).collect()
    }

    pub fn launch_of(&self, row: &Row, launches: &HashMap<u64, i64>) -> Option<i64> {
        launches.get(&row.correlation?).copied()
    }

    /// Calls before the start of the last step, and the work that they launched: HTA omits the rest.
    pub fn without_last_step(self) -> Self {
        let last = self.spans(Kind::Step).last().unwrap().0;
        let launches = self.launches();
        let keep = |row: &Row| match row.kind {
            Kind::Call | Kind::Step | Kind::DataLoader => row.span.0 < last,
            _ => row.correlation.and_then(|id| launches.get(&id)).is_some_and(|&start| start < last),
        };
        Self { rows: self.rows.into_iter().filter(keep).collect() }
    }

    /// The engine's result for these rows, which are passed as they are in the file.
    pub fn import(&self) -> Report {
        let rows: Vec<&str> = self.rows.iter().map(|row| row.text.get()).collect();
        import_kineto(format!("[{}]", rows.join(",")).as_bytes()).unwrap()
    }
}

/// Path of a reference trace.
pub fn path(name: &str) -> PathBuf {
    let folder = std::env::var_os("GPUWHY_REFERENCE_TRACES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/kineto"), PathBuf::from);
    folder.join(format!("{name}.json.gz"))
}

fn row(text: Box<RawValue>) -> Option<Row> {
    let raw: RawRow = serde_json::from_str(text.get()).unwrap();
    if raw.ph != "X" {
        return None;
    }
    let kind = match raw.cat.as_str() {
        "kernel" | "Kernel" => Kind::Kernel,
        "gpu_memcpy" | "Memcpy" => Kind::Copy,
        "gpu_memset" | "Memset" => Kind::Memset,
        "cuda_runtime" | "Runtime" | "cuda_driver" => Kind::Call,
        "gpu_user_annotation" => return None,
        _ if raw.name.starts_with("ProfilerStep#") => Kind::Step,
        _ if raw.name.starts_with("enumerate(DataLoader)#") => Kind::DataLoader,
        _ => return None,
    };
    let (ts, dur) = (raw.ts.unwrap(), raw.dur.unwrap());
    let args: Value = raw.args.map_or(Value::Null, |args| serde_json::from_str(args.get()).unwrap());
    let start = nanos(ts.get());
    Some(Row {
        kind,
        name: raw.name,
        span: (start, start + nanos(dur.get())),
        doubles: (ts.get().parse().unwrap(), dur.get().parse().unwrap()),
        stream: args["stream"].as_i64().unwrap_or(-1),
        correlation: args["correlation"].as_u64(),
        text,
    })
}

fn nanos(micros: &str) -> i64 {
    let (whole, fraction) = micros.split_once('.').unwrap_or((micros, ""));
    format!("{whole}{fraction:0<3.3}").parse().unwrap()
}

/// Sorted and disjoint spans that cover the same time.
pub fn merged(spans: impl IntoIterator<Item = Span>) -> Vec<Span> {
    let mut spans: Vec<_> = spans.into_iter().collect();
    spans.sort_unstable();
    let mut out: Vec<Span> = Vec::new();
    for (start, end) in spans {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

/// Total time that spans cover.
pub fn union(spans: impl IntoIterator<Item = Span>) -> i64 {
    merged(spans).iter().map(|(start, end)| end - start).sum()
}

/// Time covered by `spans` but not by `taken`.
pub fn without(spans: &[Span], taken: &[Span]) -> Vec<Span> {
    let taken = merged(taken.iter().copied());
    let mut out = Vec::new();
    for (mut start, end) in merged(spans.iter().copied()) {
        let first = taken.partition_point(|&(_, taken_end)| taken_end <= start);
        for &(taken_start, taken_end) in taken[first..].iter().take_while(|&&(begin, _)| begin < end) {
            if start < taken_start {
                out.push((start, taken_start));
            }
            start = start.max(taken_end);
        }
        if start < end {
            out.push((start, end));
        }
    }
    out
}

/// The parts of `spans` within `window`.
pub fn clipped(spans: &[Span], window: Span) -> Vec<Span> {
    let clip = |&(start, end): &Span| (start.max(window.0), end.min(window.1));
    spans.iter().map(clip).filter(|(start, end)| start < end).collect()
}
