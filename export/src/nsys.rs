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

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Statement, ToSql};

use crate::error::ExportError;
use crate::named::NamedQuery;
use crate::query::{Database, Query, Used, failed};
use crate::stats::{Cell, Empty, Heading, Printer, TimeFilter, TimeUnit};
use crate::tables::Label;
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

/// The query of a report, and the queries that count missing data.
fn queries(report: &NamedQuery) -> Result<(Query, Vec<Lack>), ExportError> {
    let lacks = report.lacks.iter().map(|&(what, sql)| Ok((what, Query::new(&report.filled(sql))?)));
    Ok((report.query()?, lacks.collect::<Result<_, ExportError>>()?))
}

/// Traces whose tables are loaded.
#[derive(Debug)]
pub struct Reports<'t> {
    traces: Vec<(Subject<'t>, Connection)>,
    /// Describes missing data in the traces, for the user.
    pub notes: Vec<String>,
}

impl<'t> Reports<'t> {
    /// Reads the data that `reports` need.
    ///
    /// # Errors
    /// If a trace cannot be read, or the temporary database cannot grow.
    pub fn load(
        subjects: Vec<Subject<'t>>,
        reports: &[NamedQuery],
        progress: &mut Progress<'_>,
    ) -> Result<Self, ExportError> {
        let mut used = Used::default();
        for report in reports {
            let (query, lacks) = queries(report)?;
            for query in [&query].into_iter().chain(lacks.iter().map(|(_, query)| query)) {
                query.add_used(&mut used);
            }
        }
        let count = subjects.len() as u64;
        let mut loaded = Self { traces: Vec::new(), notes: Vec::new() };
        for (number, subject) in (0..).zip(subjects) {
            let mut database = Database::new(&used, false, count)?;
            let mut progress = |done, total| progress(total / count * number + done / count, total);
            let notes = database.load(subject.trace, &subject.label, &mut progress)?;
            loaded.notes.extend(notes.into_iter().map(|note| subject.said(note, count > 1)));
            loaded.traces.push((subject, database.loaded()?));
        }
        Ok(loaded)
    }

    /// Prints `report` about the traces, preceded by the columns `Run` and `Rank` if there are several
    /// traces. A report without rows prints nothing; a rule without rows prints its message in the text
    /// form only. Returns descriptions of missing data, for the user.
    ///
    /// # Errors
    /// If the database cannot be read, or the output cannot be written.
    pub fn print(&self, report: &NamedQuery, printer: &mut Printer<impl Write>) -> Result<Vec<String>, ExportError> {
        let several = self.traces.len() > 1;
        let (query, lacks) = queries(report)?;
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
                left_out += rows(trace, &query, &units, report.most_rows(), several, &mut |cells| {
                    any = true;
                    visit(cells)
                })?;
                without_rows.push(!any && report.none.is_none());
            }
            Ok(left_out)
        })?;
        self.missing(report, &query, &lacks, &without_rows)
    }

    /// Describes the data that the result lacks, and the traces without rows.
    fn missing(
        &self,
        report: &NamedQuery,
        query: &Query,
        lacks: &[(&'static str, Query)],
        empty: &[bool],
    ) -> Result<Vec<String>, ExportError> {
        let mut notes = Vec::new();
        let several = self.traces.len() > 1;
        for (place, (subject, connection)) in self.traces.iter().enumerate() {
            for (what, counted) in lacks {
                let count = connection.query_row(counted.sql(), [], |row| row.get::<_, i64>(0));
                match count.map_err(|error| failed(&error))? {
                    0 => {}
                    count => notes.push(subject.said(format!("{count} {what}"), several)),
                }
            }
            let is_filtered = subject.filter != TimeFilter::default();
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

/// Passes the first `limit` rows to `visit`; returns the number of further rows.
fn rows(
    (subject, connection): &(Subject<'_>, Connection),
    query: &Query,
    units: &[Unit],
    limit: Option<u64>,
    several: bool,
    visit: &mut dyn FnMut(&[Cell]) -> Result<(), ExportError>,
) -> Result<u64, ExportError> {
    let sql = |error| failed(&error);
    let mut statement = connection.prepare(query.sql()).map_err(sql)?;
    bind(&mut statement, subject).map_err(sql)?;
    let mut rows = statement.raw_query();
    let mut count = 0;
    let mut cells = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        count += 1;
        if limit.is_some_and(|limit| count > limit) {
            continue;
        }
        cells.clear();
        if several {
            cells.extend([Cell::Text(subject.label.run.clone()), Cell::Number(subject.label.rank.into())]);
        }
        for (place, unit) in units.iter().enumerate() {
            cells.push(unit.cell(row.get_ref(place).map_err(sql)?));
        }
        visit(&cells)?;
    }
    Ok(limit.map_or(0, |limit| count.saturating_sub(limit)))
}

fn bind(statement: &mut Statement<'_>, subject: &Subject<'_>) -> rusqlite::Result<()> {
    let session = subject.trace.session();
    let (from, until) = subject.filter.bounds(session.start);
    let origin = i64::try_from(session.start.nanos()).unwrap_or(i64::MAX);
    let values: [(&str, &dyn ToSql); 4] =
        [(":origin", &origin), (":process", &session.process_id), (":from", &from), (":until", &until)];
    for (name, value) in values {
        if let Some(place) = statement.parameter_index(name)? {
            statement.raw_bind_parameter(place, value)?;
        }
    }
    Ok(())
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

    fn cell(self, value: ValueRef<'_>) -> Cell {
        match (self, value) {
            (_, ValueRef::Null) => Cell::Empty,
            (Self::Time(unit), ValueRef::Integer(nanos)) => unit.whole(nanos),
            (Self::Time(unit), ValueRef::Real(nanos)) => unit.fraction(nanos),
            (Self::Bytes, ValueRef::Integer(bytes)) => Cell::Decimal(bytes as f64 / 1e6, 3),
            (Self::Bytes, ValueRef::Real(bytes)) => Cell::Decimal(bytes / 1e6, 3),
            (Self::None, ValueRef::Integer(number)) => TimeUnit::Nanoseconds.whole(number),
            (Self::None, ValueRef::Real(number)) => Cell::Decimal(number, 1),
            (_, ValueRef::Text(text) | ValueRef::Blob(text)) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
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
            let (query, lacks) = queries(&report).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!query.columns().is_empty() && lacks.iter().all(|(_, query)| query.columns().len() == 1), "{name}");
            assert!(report.none.is_some() == (report.kind == QueryKind::Rule), "{name}: what a rule says of nothing");
        }
    }

    #[test]
    fn units_are_in_the_names() {
        let (name, unit) = Unit::of("Avg (ns)", TimeUnit::Microseconds);
        assert_eq!((name.as_str(), unit.cell(ValueRef::Real(1500.0))), ("Avg (us)", Cell::Decimal(1.5, 4)));
        let (name, unit) = Unit::of("Bytes (MB)", TimeUnit::Microseconds);
        assert_eq!((name.as_str(), unit.cell(ValueRef::Integer(1500))), ("Bytes (MB)", Cell::Decimal(0.0015, 3)));
    }
}
