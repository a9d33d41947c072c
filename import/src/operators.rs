//! Records a framework's operators while a trace is read.
//!
//! In a trace of gpuwhy they are PyTorch's NVTX ranges, in one of `torch.profiler` rows of the file. Calls and device
//! work are records in both.

use std::cmp::Reverse;
use std::collections::VecDeque;

use gpuwhy_report::run::operators::{
    OperatorNames, OperatorSource, Operators, OperatorsBy, RecordedOperators, type_flags,
};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{
    CaptureMark, CorrelationId, LaunchConfigId, NameId, Payload, RangeEvent, RangeEventKind, Record, ThreadId,
    Timestamp,
};
use profiler_core::attribution::template;
use profiler_core::operators::{OperatorPaths, Span};
use rustc_hash::FxHashMap;

/// A row of a file: a span, or a change of allocated memory. A file may have millions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperatorRow {
    pub(crate) start: Timestamp,
    /// End of a span; the bytes of a change of memory.
    end: u64,
    pub(crate) thread: ThreadId,
    /// Number of its process in the file.
    pub(crate) process: u32,
    /// Twice the number of an operator, or of what is around them and one; [`MEMORY`].
    code: u32,
    /// Place in the file, modulo 2^32: an operator that takes no more time than the one around it comes later.
    place: u32,
}

const MEMORY: u32 = u32::MAX;

impl OperatorRow {
    pub(crate) fn span(thread: ThreadId, (start, end): (Timestamp, Timestamp), span: Span, process: u32) -> Self {
        let code = match span {
            Span::Operator { number, .. } => 2 * number,
            Span::Around(number) => 2 * number + 1,
        };
        Self { start, end: end.nanos(), thread, process, code, place: 0 }
    }

    pub(crate) fn memory(thread: ThreadId, at: Timestamp, bytes: i64, process: u32) -> Self {
        Self { start: at, end: bytes.cast_unsigned(), thread, process, code: MEMORY, place: 0 }
    }

    /// Moves its times.
    fn shifted(self, base: u64) -> Self {
        let end = if self.code == MEMORY { self.end } else { self.end.saturating_add(base) };
        Self { start: Timestamp::from_nanos(self.start.nanos().saturating_add(base)), end, ..self }
    }
}

/// An event of a thread that waits for earlier ones.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    Begin(Span),
    End,
    Row(OperatorRow),
    Call(u64, CorrelationId),
}

/// Device work whose call may not have come yet.
#[derive(Clone, Copy, Debug)]
struct Work {
    correlation: CorrelationId,
    end: u64,
    nanos: u64,
    flags: u8,
}

/// Operators of a process.
#[derive(Debug)]
pub(crate) struct Recorder {
    by: OperatorsBy,
    source: OperatorSource,
    /// The capture to read, if it is not the newest.
    wanted: Option<u32>,
    /// The newest capture, and that of the events.
    newest: u32,
    current: u32,
    names: OperatorNames,
    paths: OperatorPaths,
    /// Rows of a file, in the order of their starts.
    rows: VecDeque<OperatorRow>,
    waiting: Vec<(u64, ThreadId, Waiting)>,
    work: Vec<Work>,
    flags: FxHashMap<LaunchConfigId, u8>,
    /// Spans of ranges that were read before.
    known: FxHashMap<(NameId, bool), Option<Span>>,
    has_memory: bool,
    has_operators: bool,
    device_ns: u64,
    outside_ns: u64,
    flushed: u64,
}

impl Recorder {
    /// Of a trace of gpuwhy: of a capture, or the newest.
    pub(crate) fn new(by: OperatorsBy, wanted: Option<u32>) -> Self {
        Self {
            by,
            source: OperatorSource::Ranges,
            wanted,
            newest: 0,
            current: 0,
            names: OperatorNames::default(),
            paths: OperatorPaths::default(),
            rows: VecDeque::new(),
            waiting: Vec::new(),
            work: Vec::new(),
            flags: FxHashMap::default(),
            known: FxHashMap::default(),
            has_memory: false,
            has_operators: false,
            device_ns: 0,
            outside_ns: 0,
            flushed: 0,
        }
    }

    /// Of a file with these rows in any order, and their names. `base`: reference of their times.
    pub(crate) fn of_rows(by: OperatorsBy, names: OperatorNames, mut rows: Vec<OperatorRow>, base: u64) -> Self {
        rows.iter_mut().zip(0_u32..).for_each(|(row, place)| *row = OperatorRow { place, ..row.shifted(base) });
        // Of spans that start together the longest is the outer one.
        rows.sort_unstable_by_key(|row| (row.start, row.code == MEMORY, Reverse(row.end), row.place));
        let has_memory = rows.iter().any(|row| row.code == MEMORY);
        let has_operators = rows.iter().any(|row| row.code % 2 == 0);
        let source = OperatorSource::TorchProfiler;
        Self { source, names, rows: rows.into(), has_memory, has_operators, ..Self::new(by, None) }
    }

    /// Takes an event of the trace, in its order.
    pub(crate) fn event(&mut self, event: &Event, dictionary: &Dictionary) {
        match event {
            Event::Record(record) if self.is_of_capture() => self.record(record, dictionary),
            Event::Flush(at) => self.flush(at.nanos()),
            Event::Capture(CaptureMark::Begin { number, .. } | CaptureMark::Select { number }) => {
                if self.wanted.is_none() && *number > self.newest {
                    *self = Self { newest: *number, ..Self::new(self.by, None) };
                }
                self.current = *number;
            }
            _ => {}
        }
    }

    /// Number 0 is the run as a whole.
    fn is_of_capture(&self) -> bool {
        self.current == self.wanted.unwrap_or(self.newest)
    }

    fn record(&mut self, record: &Record, dictionary: &Dictionary) {
        match record {
            Record::Range(range) if self.source == OperatorSource::Ranges => self.range(range, dictionary),
            Record::Api(call) => {
                let call_ends = Waiting::Call(call.end.nanos(), call.correlation);
                self.waiting.push((call.start.nanos(), call.thread, call_ends));
            }
            Record::Kernel(row) => {
                let config = dictionary.launch_config(row.config);
                let flags = *self.flags.entry(row.config).or_insert_with(|| type_flags(dictionary.name(config.name)));
                self.work(row.correlation, (row.start.nanos(), row.end.nanos()), flags);
            }
            Record::Copy(row) => self.work(row.correlation, (row.start.nanos(), row.end.nanos()), 0),
            Record::Memset(row) => self.work(row.correlation, (row.start.nanos(), row.end.nanos()), 0),
            _ => {}
        }
    }

    fn work(&mut self, correlation: CorrelationId, (start, end): (u64, u64), flags: u8) {
        let nanos = end.saturating_sub(start);
        self.device_ns = self.device_ns.saturating_add(nanos);
        self.work.push(Work { correlation, end, nanos, flags });
    }

    /// Ranges of the default domain, in which PyTorch writes; those of the program may be between them.
    fn range(&mut self, range: &RangeEvent, dictionary: &Dictionary) {
        if !dictionary.name(range.domain).is_empty() {
            return;
        }
        let what = match range.kind {
            RangeEventKind::Pop => Waiting::End,
            RangeEventKind::Push => {
                // The number in the text became the payload (`gpuwhy_trace::pytorch_range`).
                let has_number = matches!(range.payload, Payload::Unsigned(_));
                let Self { names, known, by, has_operators, .. } = self;
                let span = *known.entry((range.message, has_number)).or_insert_with(|| {
                    let text = dictionary.name(range.message);
                    let (name, shapes) = text.split_once(", sizes = ").unwrap_or((text, ""));
                    if has_number || ["aten::", "torch.", "Tensor."].iter().any(|start| name.starts_with(start)) {
                        return names.operator(name, shapes, "");
                    }
                    let place = template(text);
                    Some(names.around(if *by == OperatorsBy::Module { place.as_deref().unwrap_or(text) } else { "" }))
                });
                *has_operators |= matches!(span, Some(Span::Operator { .. }));
                Waiting::Begin(span.unwrap_or_else(|| names.around("")))
            }
            _ => return,
        };
        self.waiting.push((range.at.nanos(), range.thread, what));
    }

    /// Everything up to `horizon` has come.
    fn flush(&mut self, horizon: u64) {
        while let Some(&row) = self.rows.front().filter(|row| row.start.nanos() <= horizon) {
            self.rows.pop_front();
            self.waiting.push((row.start.nanos(), row.thread, Waiting::Row(row)));
        }
        // Ranges come with the mark, after the calls and the work in them.
        if !self.has_operators {
            self.waiting.retain(|&(at, ..)| at > horizon);
        }
        // Stable: ranges of one thread and time keep their order, and operators precede the calls in them.
        self.waiting.sort_by_key(|&(at, _, what)| (at, matches!(what, Waiting::Call(..))));
        let count = self.waiting.partition_point(|&(at, ..)| at <= horizon);
        for (at, thread, what) in self.waiting.drain(..count) {
            match what {
                Waiting::Begin(span) => self.paths.begin(thread, at, u64::MAX, span),
                Waiting::End => self.paths.end(thread, at),
                Waiting::Row(OperatorRow { code: MEMORY, end, .. }) => {
                    self.paths.memory(thread, at, end.cast_signed());
                }
                Waiting::Row(OperatorRow { code, end, .. }) => {
                    let span = if code % 2 == 0 { self.names.span(code / 2) } else { Span::Around(code / 2) };
                    self.paths.begin(thread, at, end, span);
                }
                Waiting::Call(end, correlation) => self.paths.call(thread, (at, end), correlation),
            }
        }
        // The call of short work may end after it, and thus come with the next mark.
        let (paths, outside, before) = (&mut self.paths, &mut self.outside_ns, self.flushed);
        self.work.retain(|work| {
            let is_placed = paths.work(work.correlation, work.nanos, work.flags);
            let is_late = work.end <= before;
            *outside += if is_late && !is_placed { work.nanos } else { 0 };
            !is_placed && !is_late
        });
        self.flushed = horizon;
    }

    /// The rows; `None` if the trace has no operators.
    pub(crate) fn operators(mut self, dictionary: &Dictionary) -> Option<Operators> {
        self.flush(u64::MAX - 1);
        self.flush(u64::MAX - 1);
        self.paths.finish();
        if !self.has_operators {
            return None;
        }
        let mut devices = dictionary.devices().iter();
        let device = devices.next().filter(|first| {
            devices.all(|other| {
                (other.compute_capability, other.core_clock_khz) == (first.compute_capability, first.core_clock_khz)
            })
        });
        let recorded = RecordedOperators {
            paths: &self.paths,
            names: &self.names,
            source: self.source,
            device_ns: self.device_ns,
            outside_ns: self.outside_ns,
            has_memory: self.has_memory,
            device,
        };
        Some(Operators::of(&recorded, self.by))
    }
}
