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
use crate::stats::{
    Cell, Heading, Printer, RowSink as _, StatsColumn, StatsOptions, Subject, TableFormat, TimeFilter, TimeUnit, Widths,
};
use gpuwhy_import::Progress;

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

    /// Writes `report` about the traces, preceded by the columns `Run` and `Rank` if there are several
    /// traces. A report without rows writes no output; a rule without rows writes its message in the text
    /// form only. Returns descriptions of missing data, for the user.
    ///
    /// # Errors
    /// If the database cannot be read, or `output` cannot be written.
    pub fn write(
        &self,
        report: &NamedQuery,
        options: &StatsOptions,
        output: &mut dyn Write,
    ) -> Result<Vec<String>, ExportError> {
        let several = self.traces.len() > 1;
        let (query, lacks) = queries(report)?;
        let (mut names, units): (Vec<String>, Vec<Unit>) =
            query.columns().iter().map(|name| Unit::of(name, options.unit)).unzip();
        if several {
            names.splice(0..0, ["Run", "Rank"].map(str::to_owned));
        }
        let columns = names.into_iter().map(|name| StatsColumn { name, is_text: false }).collect();
        let note = Some(report.notes.join("\n")).filter(|note| !note.is_empty());
        let mut heading = Heading { title: report.about, name: report.name, note, columns };

        let mut widths = Widths::new(options.width);
        if options.format == TableFormat::Table {
            widths.begin(&heading).map_err(ExportError::output)?;
            let (mut any, mut left_out) = (false, 0);
            for trace in &self.traces {
                left_out += rows(trace, &query, &units, report.most_rows(), several, &mut |cells| {
                    any = true;
                    for (column, cell) in heading.columns.iter_mut().zip(cells) {
                        column.is_text |= matches!(cell, Cell::Text(_));
                    }
                    widths.row(cells).map_err(ExportError::output)
                })?;
            }
            if let Some(note) = heading.note.as_mut().filter(|_| left_out > 0) {
                note.push_str(&format!("\n{left_out} more are not shown (rows=-1 shows all)."));
            }
            if let (false, Some(none)) = (any, report.none) {
                let heading = Heading { note: Some(none.to_owned()), columns: Vec::new(), ..heading };
                Printer::new(output, options, Widths::default()).begin(&heading).map_err(ExportError::output)?;
                return self.missing(report, &query, &lacks, &[]);
            }
        }

        let mut printer = Printer::new(output, options, widths);
        let (mut has_begun, mut empty) = (false, Vec::new());
        for trace in &self.traces {
            let mut any = false;
            rows(trace, &query, &units, report.most_rows(), several, &mut |cells| {
                any = true;
                if !std::mem::replace(&mut has_begun, true) {
                    printer.begin(&heading).map_err(ExportError::output)?;
                }
                printer.row(cells).map_err(ExportError::output)
            })?;
            empty.push(!any && report.none.is_none());
        }
        if has_begun {
            printer.end().map_err(ExportError::output)?;
        }
        self.missing(report, &query, &lacks, &empty)
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
