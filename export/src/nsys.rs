//! The reports of `nsys stats` and the rules of `nsys analyze`, under their names: SQL over the tables of a
//! trace.
//!
//! Users of nsys have scripts that depend on these tables, so names, columns, order and rounding are those of
//! nsys (2024 and later), even where gpuwhy's own report uses different words. Data that a gpuwhy trace does
//! not contain, such as priorities, stays empty.
//!
//! Each is a [`NamedQuery`]. Its columns have nsys's names, and the unit in a name determines the format of
//! its values: `(ns)` is printed in the requested unit of time, `(MB)` and `(MB/s)` are bytes, `(%)` has one
//! decimal place. Bound values: `:origin`, the start of tracing; `:from` and `:until`, the time filter;
//! `:process`, the process. A query after `-- lacks TEXT` counts the data that the result lacks.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Connection, Statement, ToSql};
use rustc_hash::FxHashMap;

use crate::error::ExportError;
use crate::named::NamedQuery;
use crate::query::{Database, Query, Source, Used, connected, each_row, failed, few_rows, parallel};
use crate::stats::{Cell, Empty, Heading, Printer, TimeFilter, TimeUnit};
use crate::tables::{Label, Table};
use gpuwhy_import::{Progress, TraceFile};

/// A trace whose rows follow those of others, each preceded by its run and rank.
///
/// Values are not summed over traces: medians cannot be, and tables of several traces serve to find the rank
/// that differs. Use a query (`gpuwhy query`) for sums; its tables have the same two columns.
#[derive(Clone, Debug)]
pub struct Subject<'t> {
    /// The trace.
    pub trace: &'t TraceFile,
    /// Run and rank, shown if there are other traces.
    pub label: Label,
    /// Interval that is counted.
    pub filter: TimeFilter,
}

impl<'t> From<&'t TraceFile> for Subject<'t> {
    fn from(trace: &'t TraceFile) -> Self {
        Self { trace, label: Label::default(), filter: TimeFilter::default() }
    }
}

impl Subject<'_> {
    /// A note about the trace, preceded by its path if there are other traces.
    fn said(&self, note: String, several: bool) -> String {
        if several { format!("{}: {note}", self.trace.path().display()) } else { note }
    }
}

/// Description of missing data, and the query that counts it.
type Lack = (&'static str, Query);

/// The condition of a report that counts operations within the time filter.
const WITHIN: &str = "end_ns >= :from AND start_ns <= :until";

/// The query of a report, and the queries that count missing data. Without a time filter, its condition always holds,
/// and the query need not read the times.
fn queries(report: &NamedQuery, is_filtered: bool) -> Result<(Query, Vec<Lack>), ExportError> {
    let lacks = report.lacks.iter().map(|&(what, sql)| Ok((what, Query::new(&report.filled(sql))?)));
    let sql = report.sql();
    let sql = if is_filtered { sql } else { sql.replace(&format!("WHERE {WITHIN}"), "WHERE TRUE") };
    Ok((Query::new(&sql)?, lacks.collect::<Result<_, ExportError>>()?))
}

/// A trace whose data is ready.
#[derive(Debug)]
struct Prepared<'t> {
    subject: Subject<'t>,
    /// Tables that are stored, for the reports that need this.
    stored: Connection,
    /// Tables that are read from the trace.
    streamed: Connection,
    /// Results of reports on these, by name, if they have few rows.
    results: FxHashMap<&'static str, Vec<Vec<Value>>>,
}

impl Prepared<'_> {
    fn is_filtered(&self) -> bool {
        self.subject.filter != TimeFilter::default()
    }
}

/// Traces whose data is ready.
#[derive(Debug)]
pub struct Reports<'t> {
    traces: Vec<Prepared<'t>>,
    /// Describes missing data in the traces, for the user.
    pub notes: Vec<String>,
}

impl<'t> Reports<'t> {
    /// Reads the data that `reports` need. Reports that need not store it are computed on several threads.
    ///
    /// # Errors
    /// If a trace cannot be read, or the temporary database cannot grow.
    pub fn load(
        subjects: Vec<Subject<'t>>,
        reports: &[NamedQuery],
        progress: &mut Progress<'_>,
    ) -> Result<Self, ExportError> {
        let (mut used, mut streamed, mut tables) = (Used::default(), Vec::new(), Vec::<Table>::new());
        for report in reports {
            let (query, lacks) = queries(report, true)?;
            if is_streamed(&query, &lacks) {
                streamed.push(report);
                tables.extend(query.tables());
                continue;
            }
            for query in [&query].into_iter().chain(lacks.iter().map(|(_, query)| query)) {
                query.add_used(&mut used);
            }
        }
        let scans = tables.len() as u64;
        tables.sort_unstable();
        tables.dedup();
        let count = subjects.len() as u64;
        let (mut loaded, mut sources) = (Self { traces: Vec::new(), notes: Vec::new() }, Vec::new());
        for (number, subject) in (0..).zip(subjects) {
            let mut database = Database::new(&used, false, count)?;
            if !used.is_empty() {
                let mut progress = |done, total| progress(total / count * number + done / count, total);
                let notes = database.load(subject.trace, &subject.label, &mut progress)?;
                loaded.notes.extend(notes.into_iter().map(|note| subject.said(note, count > 1)));
            }
            let source = Source::new(vec![(subject.trace.clone(), subject.label.clone())]);
            let streamed = connected(&source, &tables).map_err(|error| failed(&error))?;
            loaded.traces.push(Prepared {
                subject,
                stored: database.loaded()?,
                streamed,
                results: FxHashMap::default(),
            });
            sources.push(source);
        }
        loaded.compute(&streamed, (&sources, &tables, scans), progress)?;
        for (trace, source) in loaded.traces.iter().zip(&sources) {
            for note in source.notes(&tables)?.into_iter().flatten() {
                let note = trace.subject.said(note, count > 1);
                if !loaded.notes.contains(&note) {
                    loaded.notes.push(note);
                }
            }
        }
        Ok(loaded)
    }

    /// Computes `reports`, whose tables are read from the traces, and keeps results that have few rows.
    fn compute(
        &mut self,
        reports: &[&NamedQuery],
        (sources, tables, scans): (&[Arc<Source>], &[Table], u64),
        progress: &mut Progress<'_>,
    ) -> Result<(), ExportError> {
        let jobs: Vec<_> =
            (0..self.traces.len()).flat_map(|place| reports.iter().map(move |&of| (place, of))).collect();
        let subjects: Vec<(Binding, bool)> =
            self.traces.iter().map(|trace| (Binding::of(&trace.subject), trace.is_filtered())).collect();
        let work = |job: usize| {
            let (place, report) = jobs[job];
            let (binding, is_filtered) = &subjects[place];
            let (query, _) = queries(report, *is_filtered)?;
            let connection = connected(&sources[place], tables).map_err(|error| failed(&error))?;
            few_rows(&connection, query.sql(), |statement| binding.bind(statement))
        };
        let results = parallel(sources, scans, jobs.len(), work, progress)?;
        for ((place, report), rows) in jobs.into_iter().zip(results) {
            self.traces[place].results.extend(rows.map(|rows| (report.name, rows)));
        }
        Ok(())
    }

    /// Prints `report` about the traces, preceded by the columns `Run` and `Rank` if there are several
    /// traces. A report without rows prints nothing; a rule without rows prints its message in the text
    /// form only. Returns descriptions of missing data, for the user.
    ///
    /// # Errors
    /// If the database cannot be read, or the output cannot be written.
    pub fn print(&self, report: &NamedQuery, printer: &mut Printer<impl Write>) -> Result<Vec<String>, ExportError> {
        let several = self.traces.len() > 1;
        let (query, _) = queries(report, true)?;
        let unit = printer.options().unit;
        let (mut columns, units): (Vec<String>, Vec<Unit>) =
            query.columns().iter().map(|name| Unit::of(name, unit)).unzip();
        if several {
            columns.splice(0..0, ["Run", "Rank"].map(str::to_owned));
        }
        let note = report.notes.join("\n");
        let empty = report.none.map_or(Empty::Nothing, Empty::Note);
        let heading = Heading { title: report.about, name: report.name, note, columns, empty };
        let mut without_rows = Vec::new();
        printer.print(&heading, &mut |visit| {
            without_rows.clear();
            let mut left_out = 0;
            for trace in &self.traces {
                let mut any = false;
                left_out += rows(trace, report, &units, several, &mut |cells| {
                    any = true;
                    visit(cells)
                })?;
                without_rows.push(!any && report.none.is_none());
            }
            Ok(left_out)
        })?;
        self.missing(report, &without_rows)
    }

    /// Describes the data that the result lacks, and the traces without rows.
    fn missing(&self, report: &NamedQuery, empty: &[bool]) -> Result<Vec<String>, ExportError> {
        let mut notes = Vec::new();
        let several = self.traces.len() > 1;
        for (place, trace) in self.traces.iter().enumerate() {
            let (subject, is_filtered) = (&trace.subject, trace.is_filtered());
            let (query, lacks) = queries(report, is_filtered)?;
            let connection = if is_streamed(&query, &lacks) { &trace.streamed } else { &trace.stored };
            for (what, counted) in &lacks {
                let count = connection.query_row(counted.sql(), [], |row| row.get::<_, i64>(0));
                match count.map_err(|error| failed(&error))? {
                    0 => {}
                    count => notes.push(subject.said(format!("{count} {what}"), several)),
                }
            }
            if is_filtered && !query.sql().contains(":from") {
                let note = format!("{}: the whole trace is meant, filters do not apply", report.name);
                notes.push(subject.said(note, several));
            }
            if empty.get(place) == Some(&true) {
                let part = if is_filtered { " in the part that the filter leaves" } else { "" };
                let path = subject.trace.path().display();
                notes.push(format!("{}: {path} has no such records{part}", report.name));
            }
        }
        Ok(notes)
    }
}

fn is_streamed(query: &Query, lacks: &[Lack]) -> bool {
    query.is_streamed() && lacks.iter().all(|(_, query)| query.is_streamed())
}

/// Passes the first rows of a report, as many as were asked for, to `visit`; returns the number of further rows.
fn rows(
    trace: &Prepared<'_>,
    report: &NamedQuery,
    units: &[Unit],
    several: bool,
    visit: &mut dyn FnMut(&[Cell]) -> Result<(), ExportError>,
) -> Result<u64, ExportError> {
    let (subject, limit) = (&trace.subject, report.most_rows());
    let (mut count, mut cells) = (0, Vec::new());
    let mut take = |row: &[Value]| {
        count += 1;
        if limit.is_none_or(|limit| count <= limit) {
            cells.clear();
            if several {
                cells.extend([Cell::Text(subject.label.run.clone()), Cell::Number(subject.label.rank.into())]);
            }
            cells.extend(units.iter().zip(row).map(|(unit, value)| unit.cell(value)));
            visit(&cells)?;
        }
        Ok(ControlFlow::Continue(()))
    };
    if let Some(rows) = trace.results.get(report.name) {
        rows.iter().try_for_each(|row| take(row).map(drop))?;
    } else {
        let (query, lacks) = queries(report, trace.is_filtered())?;
        let connection = if is_streamed(&query, &lacks) { &trace.streamed } else { &trace.stored };
        each_row(connection, query.sql(), |statement| Binding::of(subject).bind(statement), &mut take)?;
    }
    Ok(limit.map_or(0, |limit| count.saturating_sub(limit)))
}

/// Values of the parameters of a report.
struct Binding {
    origin: i64,
    process: u32,
    from: i64,
    until: i64,
}

impl Binding {
    fn of(subject: &Subject<'_>) -> Self {
        let session = subject.trace.session();
        let (from, until) = subject.filter.bounds(session.start);
        let origin = i64::try_from(session.start.nanos()).unwrap_or(i64::MAX);
        Self { origin, process: session.process_id, from, until }
    }

    fn bind(&self, statement: &mut Statement<'_>) -> rusqlite::Result<()> {
        let values: [(&str, &dyn ToSql); 4] =
            [(":origin", &self.origin), (":process", &self.process), (":from", &self.from), (":until", &self.until)];
        for (name, value) in values {
            if let Some(place) = statement.parameter_index(name)? {
                statement.raw_bind_parameter(place, value)?;
            }
        }
        Ok(())
    }
}

/// Unit of a column's values.
#[derive(Clone, Copy, Debug)]
enum Unit {
    /// Integers unchanged, other numbers with one decimal place.
    None,
    /// Nanoseconds, shown in this unit.
    Time(TimeUnit),
    /// Bytes, shown in millions.
    Bytes,
}

impl Unit {
    /// Display name of a column, and the unit derived from its name.
    fn of(name: &str, time: TimeUnit) -> (String, Self) {
        match name.strip_suffix("(ns)") {
            Some(stem) => (format!("{stem}({})", time.suffix()), Self::Time(time)),
            None if name.ends_with("(MB)") || name.ends_with("(MB/s)") => (name.to_owned(), Self::Bytes),
            None => (name.to_owned(), Self::None),
        }
    }

    fn cell(self, value: &Value) -> Cell {
        match (self, value) {
            (_, Value::Null) => Cell::Empty,
            (Self::Time(unit), Value::Integer(nanos)) => unit.whole(*nanos),
            (Self::Time(unit), Value::Real(nanos)) => unit.fraction(*nanos),
            (Self::Bytes, Value::Integer(bytes)) => Cell::Decimal(*bytes as f64 / 1e6, 3),
            (Self::Bytes, Value::Real(bytes)) => Cell::Decimal(*bytes / 1e6, 3),
            (Self::None, Value::Integer(number)) => TimeUnit::Nanoseconds.whole(*number),
            (Self::None, Value::Real(number)) => Cell::Decimal(*number, 1),
            (_, Value::Text(text)) => Cell::Text(text.clone()),
            (_, Value::Blob(text)) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::named::QueryKind;

    #[test]
    fn every_report_is_a_query_of_the_tables() {
        for report in NamedQuery::all(QueryKind::Report).into_iter().chain(NamedQuery::all(QueryKind::Rule)) {
            let name = report.name;
            let (query, lacks) = queries(&report, true).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!query.columns().is_empty() && lacks.iter().all(|(_, query)| query.columns().len() == 1), "{name}");
            assert!(report.none.is_some() == (report.kind == QueryKind::Rule), "{name}: what a rule says of nothing");
        }
    }

    #[test]
    fn units_are_in_the_names() {
        let (name, unit) = Unit::of("Avg (ns)", TimeUnit::Microseconds);
        assert_eq!((name.as_str(), unit.cell(&Value::Real(1500.0))), ("Avg (us)", Cell::Decimal(1.5, 4)));
        let (name, unit) = Unit::of("Bytes (MB)", TimeUnit::Microseconds);
        assert_eq!((name.as_str(), unit.cell(&Value::Integer(1500))), ("Bytes (MB)", Cell::Decimal(0.0015, 3)));
    }
}
