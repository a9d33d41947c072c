//! Every record as a line of JSON, for `jq` and for custom programs.
//!
//! A line is a row of a table, with the names of `gpuwhy query`. The first line describes the process, the last one the
//! missing data.

use std::io::{self, Write as _};

use gpuwhy_report::text_format::printable_json;
use gpuwhy_trace::process_info::ProcessInfo;
use serde_json::{Value, json};

use crate::destination::Destination;
use crate::error::ExportError;
use crate::json::quoted;
use crate::options::ExportOutcome;
use crate::output::Output;
use crate::tables::{Cell, Sink, Table, recorded};
use gpuwhy_import::{Progress, TraceFile};

/// Version of the lines: 2 has the names of the tables.
const FORMAT: u32 = 2;

/// Writes `trace` as lines of JSON.
pub fn write(trace: &TraceFile, to: Destination, progress: &mut Progress<'_>) -> Result<ExportOutcome, ExportError> {
    let mut lines = Lines { output: Output::create(to)?, written: 0 };
    lines.line("session", session(trace.session()))?;
    let (_, notes) = recorded(trace, &mut lines, progress)?;
    lines.line("end", [("missing", json!(notes).to_string())])?;
    lines.output.finish()?;
    Ok(ExportOutcome { written: lines.written, notes, ..ExportOutcome::default() })
}

/// Receives the rows of a trace.
struct Lines {
    output: Output,
    written: u64,
}

impl Lines {
    fn line<'n>(&mut self, table: &str, row: impl IntoIterator<Item = (&'n str, String)>) -> Result<(), ExportError> {
        let write = || -> io::Result<()> {
            write!(self.output, "{{\"table\": \"{table}\"")?;
            for (name, value) in row {
                write!(self.output, ", \"{name}\": {value}")?;
            }
            writeln!(self.output, "}}")
        };
        write().map_err(|error| self.output.failed(error))
    }
}

impl Sink for Lines {
    fn wants(&self, table: Table) -> bool {
        table.is_recorded()
    }

    fn row(&mut self, table: Table, cells: &[Cell<'_>]) -> Result<(), ExportError> {
        self.written += 1;
        self.line(table.name(), table.columns().iter().map(|column| column.name).zip(cells.iter().map(value)))
    }
}

fn value(cell: &Cell<'_>) -> String {
    match *cell {
        Cell::Empty => "null".to_owned(),
        Cell::Integer(number) => number.to_string(),
        // `null` if it is infinite or not a number.
        Cell::Real(number) => Value::from(number).to_string(),
        Cell::Flag(flag) => flag.to_string(),
        Cell::Text(text) => quoted(text),
    }
}

fn session(session: &ProcessInfo) -> [(&'static str, String); 8] {
    let variables: serde_json::Map<String, Value> =
        session.rank_variables.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let json = |value: Value| printable_json(&value.to_string()).into_owned();
    [
        ("format", FORMAT.to_string()),
        ("process_id", session.process_id.to_string()),
        ("command", json(session.command.as_slice().into())),
        ("host", quoted(&session.host)),
        ("start_ns", session.start.nanos().to_string()),
        ("driver_version", quoted(&session.driver_version)),
        ("cupti_version", session.cupti_version.to_string()),
        ("rank_variables", json(variables.into())),
    ]
}
