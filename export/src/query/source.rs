//! Rows of traces, read while a query runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpuwhy_import::{OpenError, Pass, TraceFile};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::plan::PLACE_COLUMNS;
use crate::error::ExportError;
use crate::tables::{Cell, Label, RecordedRows, Sink, Table};

/// Events between two looks at what other threads want.
const EVENTS: u32 = 1 << 14;

/// The traces of a query.
#[derive(Debug)]
pub struct Source {
    traces: Vec<(TraceFile, Label)>,
    /// Bytes that were read, by all scans together.
    read: AtomicU64,
    stopped: AtomicBool,
    /// Descriptions of missing data, by trace and table, of those read to their end.
    notes: Mutex<FxHashMap<(usize, Table), Vec<String>>>,
}

impl Source {
    pub fn new(traces: Vec<(TraceFile, Label)>) -> Arc<Self> {
        Arc::new(Self { traces, read: AtomicU64::new(0), stopped: AtomicBool::new(false), notes: Mutex::default() })
    }

    /// Bytes that were read, and that one scan reads.
    pub fn progress(&self) -> (u64, u64) {
        (self.read.load(Ordering::Relaxed), self.traces.iter().map(|(trace, _)| trace.size()).sum())
    }

    /// Ends all scans with an error, which is returned.
    pub fn stop(&self) -> ExportError {
        self.stopped.store(true, Ordering::Relaxed);
        self.traces.first().map_or_else(
            || ExportError::query("interrupted".to_owned()),
            |(trace, _)| OpenError::interrupted(trace.path()).into(),
        )
    }

    /// Descriptions of missing data in each trace, as far as the rows of `tables` are concerned. Reads on where a
    /// query ended early.
    pub fn notes(self: &Arc<Self>, tables: &[Table]) -> Result<Vec<Vec<String>>, ExportError> {
        let mut all = Vec::new();
        for place in 0..self.traces.len() {
            let mut of_trace: Vec<String> = Vec::new();
            for &table in tables {
                if !self.notes.lock().contains_key(&(place, table)) {
                    let mut scan = Scan { place, ..Scan::new(self, table, 0) };
                    while scan.place == place && scan.next()? {}
                }
                for note in self.notes.lock().get(&(place, table)).into_iter().flatten() {
                    if !of_trace.contains(note) {
                        of_trace.push(note.clone());
                    }
                }
            }
            all.push(of_trace);
        }
        Ok(all)
    }
}

/// A value that refers to the [texts](Texts) of its scan.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Value {
    #[default]
    Empty,
    Integer(i64),
    Real(f64),
    Text(u32),
}

/// Texts, each once.
#[derive(Debug, Default)]
pub struct Texts {
    numbers: FxHashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let (number, text) = (self.texts.len() as u32, Arc::from(text));
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    pub fn get(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", |text| text)
    }

    pub fn cell(&self, value: Value) -> Cell<'_> {
        match value {
            Value::Empty => Cell::Empty,
            Value::Integer(number) => Cell::Integer(number),
            Value::Real(number) => Cell::Real(number),
            Value::Text(number) => Cell::Text(self.get(number)),
        }
    }
}

/// Reads the rows of one table, trace after trace.
pub struct Scan {
    source: Arc<Source>,
    /// Index of the trace that is read.
    place: usize,
    pass: Option<(Pass, RecordedRows)>,
    position: u64,
    rows: Rows,
    /// Index of the current row's first value.
    at: usize,
}

impl Scan {
    /// Reads the columns `wanted`, one bit each. The first ones are those of the place.
    pub fn new(source: &Arc<Source>, table: Table, wanted: u64) -> Self {
        let rows =
            Rows { table, wanted, run: Value::Empty, rank: 0, values: Vec::new(), texts: Texts::default(), count: 0 };
        Self { source: Arc::clone(source), place: 0, pass: None, position: 0, rows, at: 0 }
    }

    pub fn texts(&self) -> &Texts {
        &self.rows.texts
    }

    /// The values of the current row, in the order of the columns.
    pub fn row(&self) -> &[Value] {
        &self.rows.values[self.at..self.at + self.width()]
    }

    /// Number of values in a row.
    pub fn width(&self) -> usize {
        self.rows.wanted.count_ones() as usize
    }

    /// Goes to the next row; false at the end.
    pub fn next(&mut self) -> Result<bool, ExportError> {
        self.rows.count = self.rows.count.saturating_sub(1);
        if self.rows.count > 0 {
            self.at += self.width();
            return Ok(true);
        }
        self.at = 0;
        self.rows.values.clear();
        let mut events = 0_u32;
        while self.rows.count == 0 {
            let Some((pass, rows)) = &mut self.pass else {
                if !self.open()? {
                    return Ok(false);
                }
                continue;
            };
            events = events.wrapping_add(1);
            if events.is_multiple_of(EVENTS) && self.source.stopped.load(Ordering::Relaxed) {
                return Err(self.source.stop());
            }
            let position = pass.position();
            match pass.next_event() {
                Some((event, scope)) => rows.take(&event, &scope, &mut self.rows)?,
                None => self.close()?,
            }
            if position != self.position {
                self.source.read.fetch_add(position - self.position, Ordering::Relaxed);
                self.position = position;
                if self.source.stopped.load(Ordering::Relaxed) {
                    return Err(self.source.stop());
                }
            }
        }
        Ok(true)
    }

    /// Starts with the next trace; false without one.
    fn open(&mut self) -> Result<bool, ExportError> {
        let Some((trace, label)) = self.source.traces.get(self.place) else { return Ok(false) };
        let mut pass = trace.read()?;
        pass.records(1 << (self.rows.table as u32));
        self.rows.run = Value::Text(self.rows.texts.number(&label.run));
        self.rows.rank = label.rank.into();
        self.pass = Some((pass, RecordedRows::new(&self.rows)));
        self.position = 0;
        Ok(true)
    }

    /// Ends with this trace.
    fn close(&mut self) -> Result<(), ExportError> {
        if let Some((pass, rows)) = self.pass.take() {
            let notes = rows.finish(&pass.finish(), &mut self.rows)?;
            self.source.notes.lock().entry((self.place, self.rows.table)).or_insert(notes);
        }
        self.place += 1;
        Ok(())
    }
}

/// The rows of an event.
struct Rows {
    table: Table,
    wanted: u64,
    run: Value,
    rank: i64,
    values: Vec<Value>,
    texts: Texts,
    /// Rows that were not passed yet, with the current one.
    count: usize,
}

impl Sink for Rows {
    fn wants(&self, table: Table) -> bool {
        table == self.table
    }

    fn columns(&self, _: Table) -> u64 {
        self.wanted >> PLACE_COLUMNS
    }

    fn row(&mut self, _: Table, cells: &[Cell<'_>]) -> Result<(), ExportError> {
        self.count += 1;
        let mut rest = self.wanted;
        while rest != 0 {
            let column = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let value = match column.checked_sub(PLACE_COLUMNS) {
                None if column == 0 => self.run,
                None => Value::Integer(self.rank),
                Some(place) => match cells[place] {
                    Cell::Empty => Value::Empty,
                    Cell::Integer(number) => Value::Integer(number),
                    Cell::Real(number) => Value::Real(number),
                    Cell::Flag(flag) => Value::Integer(flag.into()),
                    Cell::Text(text) => Value::Text(self.texts.number(text)),
                },
            };
            self.values.push(value);
        }
        Ok(())
    }
}
