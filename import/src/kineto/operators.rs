//! Rows of operators, of allocations in them, and of modules and functions around them.

use gpuwhy_report::run::operators::{OperatorSource, OperatorsBy, RecordedOperators};
use gpuwhy_trace::record::ThreadId;
use profiler_core::operators::Sequence;
use rustc_hash::FxHashMap;
use serde_json::value::RawValue;

use super::builder::{thread, times};
use super::lenient::Lenient;
use super::processes::LabelId;
use super::python::own_function;
use super::row::{Category, KinetoRow, OperatorArguments};
use super::time;
use crate::operators::{Kind, OperatorRow, Recorder};

/// Name of the rows of allocations.
const MEMORY: &str = "[memory]";
/// `c10::DeviceType::CUDA`.
const CUDA: i64 = 1;

/// Rows of a file, in its order; times relative to [`Builder::base_ns`](super::builder::Builder::base_ns).
#[derive(Debug)]
pub(super) struct OperatorRows {
    recorded: RecordedOperators,
    rows: Vec<OperatorRow>,
    /// Threads, each with its process.
    threads: Vec<(LabelId, ThreadId)>,
    known: FxHashMap<(LabelId, ThreadId), u32>,
    sequences: Vec<SequenceNumber>,
    /// Threads where arrows from forward to backward operators begin, by their numbers.
    arrows: FxHashMap<(LabelId, i64), u32>,
    /// Arrows that end in an operator, with its thread and start.
    arrow_ends: Vec<((LabelId, i64), (u32, u64))>,
}

/// Sequence number of an operator in a file.
#[derive(Clone, Copy, Debug)]
struct SequenceNumber {
    number: u64,
    /// Process of the operator, and PyTorch's number of the thread that counted: 0 if that is the operator's own.
    counted_by: (LabelId, i64),
}

impl OperatorRows {
    pub(super) fn new(by: OperatorsBy) -> Self {
        let recorded = RecordedOperators::new(by, OperatorSource::TorchProfiler);
        Self {
            recorded,
            rows: Vec::new(),
            threads: Vec::new(),
            known: FxHashMap::default(),
            sequences: Vec::new(),
            arrows: FxHashMap::default(),
            arrow_ends: Vec::new(),
        }
    }

    /// Takes a row about operators. Those without usable times are left to the caller, which counts them.
    pub(super) fn take(&mut self, row: &KinetoRow, process: LabelId) {
        let Ok(thread) = thread(row) else { return };
        let thread = *self.known.entry((process, thread)).or_insert_with(|| {
            self.threads.push((process, thread));
            self.threads.len() as u32 - 1
        });
        let by = self.recorded.by;
        let is_by_place = matches!(by, OperatorsBy::Module | OperatorsBy::Line);
        if row.category == Category::Arrow {
            let at = row.start.as_ref().and_then(|raw| time::nanoseconds(raw.get()));
            let at = at.and_then(|at| u64::try_from(at).ok());
            if let (true, Some(arrow), Some(at)) = (is_by_place, row.id.integer(), at) {
                let arrow = (process, arrow);
                if row.begins {
                    self.arrows.insert(arrow, thread);
                } else {
                    self.arrow_ends.push((arrow, (thread, at)));
                }
            }
            return;
        }
        let arguments = || {
            let raw = row.of_operator.as_ref()?;
            serde_json::from_str::<Lenient<OperatorArguments>>(raw.get()).ok()?.0
        };
        if row.category == Category::Instant {
            let start = row.start.as_ref().and_then(|raw| time::nanoseconds(raw.get()));
            if let (MEMORY, Some(at), Some(arguments)) =
                (&*row.name, start.and_then(|start| u64::try_from(start).ok()), arguments())
                && arguments.device_type.integer() == Some(CUDA)
                && let Some(bytes) = arguments.bytes.integer()
            {
                self.rows.push(OperatorRow::new(thread, at, bytes.cast_unsigned(), (Kind::Memory, 0)));
            }
            return;
        }
        let Ok((start, end)) = times(row) else { return };
        let (start, end) = (start.nanos(), end.nanos());
        let mut of_row = u32::MAX;
        let what = match (row.category, by) {
            (Category::Range, _) => {
                let arguments = arguments().unwrap_or_default();
                let [shapes, values] = [&arguments.shapes, &arguments.values].map(|value| {
                    let text = value.as_deref().map(RawValue::get).filter(|text| text.starts_with('['));
                    text.unwrap_or_default()
                });
                let operator = self.recorded.operator(&row.name, shapes, values);
                let sequence = arguments.sequence.integer().and_then(|number| u64::try_from(number).ok());
                if let (Some(_), Some(number), true) = (operator, sequence, is_by_place) {
                    of_row = self.sequences.len() as u32;
                    let counted_by = (process, arguments.forward_thread.integer().unwrap_or_default());
                    self.sequences.push(SequenceNumber { number, counted_by });
                }
                operator.map(|number| (Kind::Operator, number))
            }
            (_, OperatorsBy::Module) => {
                let module = row.name.strip_prefix("nn.Module: ");
                module.map(|module| (Kind::Around, self.recorded.place(module)))
            }
            (_, OperatorsBy::Line) => {
                own_function(&row.name).map(|function| (Kind::Around, self.recorded.place(&function)))
            }
            _ => None,
        };
        self.rows.extend(what.map(|what| OperatorRow::new(thread, start, end, what).numbered(of_row)));
    }

    /// Keeps only rows of this process.
    pub(super) fn keep(&mut self, process: LabelId) {
        self.rows.retain(|row| self.threads[row.thread as usize].0 == process);
    }

    pub(super) fn threads(&mut self) -> impl Iterator<Item = (LabelId, &mut ThreadId)> {
        self.threads.iter_mut().map(|(process, thread)| (*process, thread))
    }

    /// `base`: reference of the times.
    pub(super) fn recorder(self, base: u64) -> Recorder {
        let forward_threads = self.forward_threads();
        let sequences = self.sequences.iter().map(|&SequenceNumber { number, counted_by }| {
            if counted_by.1 == 0 {
                return Sequence::Forward(number);
            }
            let thread = forward_threads.get(&counted_by).copied().flatten();
            Sequence::Backward(thread.map(|thread| self.threads[thread as usize].1), number)
        });
        let sequences = sequences.collect();
        let threads = self.threads.into_iter().map(|(_, thread)| thread).collect();
        Recorder::of_rows(self.recorded, self.rows, threads, sequences, base)
    }

    /// The threads that PyTorch numbers in backward operators: an arrow to one of them begins there. `None` if its
    /// arrows begin in several.
    fn forward_threads(&self) -> FxHashMap<(LabelId, i64), Option<u32>> {
        let numbered = self.rows.iter().filter_map(|row| {
            let &SequenceNumber { counted_by, .. } = self.sequences.get(row.sequence as usize)?;
            (counted_by.1 != 0).then_some(((row.thread, row.start), counted_by))
        });
        let numbered: FxHashMap<_, _> = numbered.collect();
        let mut threads = FxHashMap::default();
        for (arrow, end) in &self.arrow_ends {
            if let (Some(&from), Some(&number)) = (self.arrows.get(arrow), numbered.get(end)) {
                let known = threads.entry(number).or_insert(Some(from));
                *known = known.filter(|&known| known == from);
            }
        }
        threads
    }
}
