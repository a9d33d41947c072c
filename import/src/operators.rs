//! Records a framework's operators while a trace is read.
//!
//! In a trace of gpuwhy they are PyTorch's NVTX ranges, in one of `torch.profiler` rows of the file. Calls and device
//! work are records in both.

use std::cmp::Reverse;

use gpuwhy_report::run::operators::{OperatorSource, Operators, OperatorsBy, RecordedOperators, type_flags};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{
    CaptureMark, CorrelationId, LaunchConfigId, NameId, Payload, RangeEvent, RangeEventKind, Record, ThreadId,
};
use profiler_core::attribution::template;
use profiler_core::operators::{Sequence, Span};
use rustc_hash::FxHashMap;

/// A row of a file, which may have millions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperatorRow {
    /// Nanoseconds.
    pub(crate) start: u64,
    /// End of a span; the bytes of a change of memory.
    pub(crate) value: u64,
    /// Number of its thread in the file.
    pub(crate) thread: u32,
    /// Number of its sequence number in the file; `u32::MAX` if it has none.
    pub(crate) sequence: u32,
    /// Its kind and number.
    code: u32,
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An operator, by its number.
    Operator,
    /// What is around operators, by its number.
    Around,
    /// A change of allocated memory.
    Memory,
}

impl OperatorRow {
    pub(crate) fn new(thread: u32, start: u64, value: u64, (kind, number): (Kind, u32)) -> Self {
        Self { start, value, thread, sequence: u32::MAX, code: (number << 2) | kind as u32 }
    }

    pub(crate) fn numbered(self, sequence: u32) -> Self {
        Self { sequence, ..self }
    }

    fn kind(self) -> Kind {
        match self.code & 3 {
            0 => Kind::Operator,
            1 => Kind::Around,
            _ => Kind::Memory,
        }
    }

    /// `base`: reference of its times.
    fn waiting(self, base: u64) -> Waiting {
        let (number, end) = (self.code >> 2, self.value.saturating_add(base));
        match self.kind() {
            Kind::Operator => Waiting::Begin(number, end, self.sequence),
            Kind::Around => Waiting::Around(number, end),
            Kind::Memory => Waiting::Memory(self.value.cast_signed()),
        }
    }
}

/// An event of a thread that waits for earlier ones. Ends are `u64::MAX` if another event has them.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// With the number of its sequence number.
    Begin(u32, u64, u32),
    Around(u32, u64),
    End,
    Memory(i64),
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
    /// The capture to read, if it is not the newest.
    wanted: Option<u32>,
    /// The newest capture, and that of the events.
    newest: u32,
    current: u32,
    recorded: RecordedOperators,
    /// Rows of a file, the last one first, with their threads and the reference of their times.
    rows: Vec<OperatorRow>,
    threads: Vec<ThreadId>,
    sequences: Vec<Sequence>,
    base: u64,
    waiting: Vec<(u64, ThreadId, Waiting)>,
    work: Vec<Work>,
    flags: FxHashMap<LaunchConfigId, u8>,
    /// Ranges that were read before.
    known: FxHashMap<(NameId, bool), Waiting>,
    has_operators: bool,
    flushed: u64,
}

impl Recorder {
    /// Of a trace of gpuwhy: of a capture, or the newest.
    pub(crate) fn new(by: OperatorsBy, wanted: Option<u32>) -> Self {
        Self {
            wanted,
            newest: 0,
            current: 0,
            recorded: RecordedOperators::new(by, OperatorSource::Ranges),
            rows: Vec::new(),
            threads: Vec::new(),
            sequences: Vec::new(),
            base: 0,
            waiting: Vec::new(),
            work: Vec::new(),
            flags: FxHashMap::default(),
            known: FxHashMap::default(),
            has_operators: false,
            flushed: 0,
        }
    }

    /// Of a file with these rows in its order, and what is known of them. `base`: reference of their times.
    pub(crate) fn of_rows(
        mut recorded: RecordedOperators,
        mut rows: Vec<OperatorRow>,
        threads: Vec<ThreadId>,
        sequences: Vec<Sequence>,
        base: u64,
    ) -> Self {
        // Of spans that start together the longest is the outer one, else the first in the file.
        rows.sort_by_key(|row| (row.start, row.kind() == Kind::Memory, Reverse(row.value)));
        rows.reverse();
        recorded.has_memory = rows.iter().any(|row| row.kind() == Kind::Memory);
        let has_operators = rows.iter().any(|row| row.kind() == Kind::Operator);
        let new = Self::new(recorded.by, None);
        Self { recorded, rows, threads, sequences, base, has_operators, ..new }
    }

    /// Takes an event of the trace, in its order.
    pub(crate) fn event(&mut self, event: &Event, dictionary: &Dictionary) {
        match event {
            Event::Record(record) if self.is_of_capture() => self.record(record, dictionary),
            Event::Flush(at) => self.flush(at.nanos()),
            Event::Capture(CaptureMark::Begin { number, .. } | CaptureMark::Select { number }) => {
                if self.wanted.is_none() && *number > self.newest {
                    *self = Self { newest: *number, ..Self::new(self.recorded.by, None) };
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
            Record::Range(range) if self.recorded.source == OperatorSource::Ranges => self.range(range, dictionary),
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
        self.recorded.device_ns = self.recorded.device_ns.saturating_add(nanos);
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
                let Self { recorded, known, has_operators, .. } = self;
                let what = *known.entry((range.message, has_number)).or_insert_with(|| {
                    let text = dictionary.name(range.message);
                    let (name, shapes) = text.split_once(", sizes = ").unwrap_or((text, ""));
                    if has_number || ["aten::", "torch.", "Tensor."].iter().any(|start| name.starts_with(start)) {
                        let operator = recorded.operator(name, shapes, "");
                        return operator
                            .map_or(Waiting::Around(0, u64::MAX), |number| Waiting::Begin(number, u64::MAX, u32::MAX));
                    }
                    let place = match recorded.by {
                        OperatorsBy::Module => recorded.place(template(text).as_deref().unwrap_or(text)),
                        _ => 0,
                    };
                    Waiting::Around(place, u64::MAX)
                });
                *has_operators |= matches!(what, Waiting::Begin(..));
                what
            }
            _ => return,
        };
        self.waiting.push((range.at.nanos(), range.thread, what));
    }

    /// Everything up to `horizon` has come.
    fn flush(&mut self, horizon: u64) {
        let base = self.base;
        while let Some(row) = self.rows.pop_if(|row| row.start.saturating_add(base) <= horizon) {
            let thread = self.threads[row.thread as usize];
            self.waiting.push((row.start.saturating_add(base), thread, row.waiting(base)));
        }
        if self.rows.capacity() / 2 > self.rows.len() {
            self.rows.shrink_to_fit();
        }
        // Ranges come with the mark, after the calls and the work in them.
        if !self.has_operators {
            self.waiting.retain(|&(at, ..)| at > horizon);
        }
        // Stable: ranges of one thread and time keep their order, and operators precede the calls in them.
        self.waiting.sort_by_key(|&(at, _, what)| (at, matches!(what, Waiting::Call(..))));
        let count = self.waiting.partition_point(|&(at, ..)| at <= horizon);
        let recorded = &mut self.recorded;
        for (at, thread, what) in self.waiting.drain(..count) {
            match what {
                Waiting::Begin(number, end, sequence) => {
                    if let Some(&sequence) = self.sequences.get(sequence as usize) {
                        recorded.paths.sequence(thread, sequence);
                    }
                    let (span, flops) = recorded.call(number);
                    recorded.paths.begin(thread, (at, end), span, flops);
                }
                Waiting::Around(place, end) => recorded.paths.begin(thread, (at, end), Span::Around(place), None),
                Waiting::End => recorded.paths.end(thread, at),
                Waiting::Memory(bytes) => recorded.paths.memory(thread, at, bytes),
                Waiting::Call(end, correlation) => recorded.paths.call(thread, (at, end), correlation),
            }
        }
        // The call of short work may end after it, and thus come with the next mark.
        let before = self.flushed;
        self.work.retain(|work| {
            let is_placed = recorded.paths.work(work.correlation, work.nanos, work.flags);
            let is_late = work.end <= before;
            let outside_ns = if is_late && !is_placed { work.nanos } else { 0 };
            recorded.outside_ns = recorded.outside_ns.saturating_add(outside_ns);
            !is_placed && !is_late
        });
        self.flushed = horizon;
    }

    /// The rows; `None` if the trace has no operators.
    pub(crate) fn operators(mut self, dictionary: &Dictionary) -> Option<Operators> {
        self.flush(u64::MAX - 1);
        self.flush(u64::MAX - 1);
        if !self.has_operators {
            return None;
        }
        let mut devices = dictionary.devices().iter();
        let device = devices.next().filter(|first| {
            devices.all(|other| {
                (other.compute_capability, other.core_clock_khz) == (first.compute_capability, first.core_clock_khz)
            })
        });
        Some(self.recorded.rows(device))
    }
}
