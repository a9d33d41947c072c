//! Determines which tables and columns a query uses by letting SQLite compile it against empty tables.
//!
//! SQLite reports each column that is read, including those of a `*`, but not those of `USING` and `NATURAL
//! JOIN`. For queries with one of these, all columns named in the text count as used, too. A superfluous
//! column costs time; a missing one would make the result wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use super::connection::{failed, prepare};
use crate::error::ExportError;
use crate::tables::{Column, ColumnType, Table};

/// Leading columns of every table: the origin of its rows.
const PLACE: [Column; 2] = [
    Column { name: "run", kind: ColumnType::Text, about: "the job, or the trace when it is of none" },
    Column { name: "rank", kind: ColumnType::Integer, about: "of the process in its job; 0 when it is in none" },
];

pub const PLACE_COLUMNS: usize = PLACE.len();

/// All columns of a table in a query.
pub fn columns(table: Table) -> impl Iterator<Item = &'static Column> {
    PLACE.iter().chain(table.columns())
}

/// Tables that are used, and a flag for each of their [`columns`].
pub type Used = BTreeMap<Table, Vec<bool>>;

/// What a query does.
#[derive(Debug)]
pub struct Plan {
    pub used: Used,
    /// Names of the result columns.
    pub columns: Vec<String>,
    /// True if it may read a table repeatedly, as joins and correlated subqueries do.
    pub repeats: bool,
}

/// Compiles `sql`.
pub fn used(sql: &str) -> Result<Plan, ExportError> {
    let connection = Connection::open_in_memory().map_err(|error| failed(&error))?;
    prepare(&connection).map_err(|error| failed(&error))?;
    for &table in Table::ALL {
        let names: Vec<&str> = columns(table).map(|column| column.name).collect();
        let create = format!("CREATE TABLE {} (\"{}\")", table.name(), names.join("\", \""));
        connection.execute_batch(&create).map_err(|error| failed(&error))?;
    }
    let words: BTreeSet<String> =
        sql.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_ascii_lowercase).collect();
    let named = named(&words);
    let joins_by_name = words.contains("natural") || words.contains("using");
    let used = if joins_by_name { named.clone() } else { Used::new() };
    let found = Arc::new(Mutex::new(Found { used, writes: false }));
    let sees = Arc::clone(&found);
    connection.authorizer(Some(move |context: AuthContext<'_>| sees.lock().authorize(&context)));
    let columns = connection.prepare(sql).map(|statement| {
        let names = statement.column_names().into_iter().map(str::to_owned);
        names.collect::<Vec<String>>()
    });
    let found = found.lock();
    if found.writes {
        return Err(ExportError::query(
            "only a SELECT can be asked, and one of them: the tables are made for it and gone after it".to_owned(),
        ));
    }
    match columns {
        Ok(names) if names.is_empty() => Err(ExportError::query("there is no SELECT in it".to_owned())),
        Ok(columns) => {
            let used = found.used.clone();
            drop(found);
            Ok(Plan { used, columns, repeats: repeats(&connection, sql).unwrap_or(true) })
        }
        Err(error) => Err(ExportError::query(error_text(&error) + &hint(&error, &named))),
    }
}

/// True if `sql` may read a table repeatedly: two loops are one in the other, or a subquery runs for each row.
fn repeats(connection: &Connection, sql: &str) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
    let mut rows = statement.raw_query();
    let mut loops = BTreeSet::new();
    while let Some(row) = rows.next()? {
        let (parent, step): (i64, String) = (row.get("parent")?, row.get("detail")?);
        let is_loop = step.starts_with("SCAN ") || step.starts_with("SEARCH ");
        if step.contains("CORRELATED") || step.contains("RECURSIVE") || is_loop && !loops.insert(parent) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Tables and columns whose names occur in a query; all columns if it has a natural join.
fn named(words: &BTreeSet<String>) -> Used {
    let all = words.contains("natural");
    let tables = Table::ALL.iter().filter(|table| words.contains(table.name()));
    tables.map(|&table| (table, columns(table).map(|column| all || words.contains(column.name)).collect())).collect()
}

/// Result of compiling a query.
#[derive(Debug)]
struct Found {
    used: Used,
    /// True if it would do anything but read.
    writes: bool,
}

impl Found {
    fn authorize(&mut self, context: &AuthContext<'_>) -> Authorization {
        match context.action {
            AuthAction::Select | AuthAction::Function { .. } | AuthAction::Recursive => Authorization::Allow,
            AuthAction::Read { table_name, column_name } => {
                // Other names are the query's own subqueries and SQLite's schema, which contains no data of
                // the traces.
                if let Some(&table) = Table::ALL.iter().find(|table| table.name().eq_ignore_ascii_case(table_name)) {
                    let used = self.used.entry(table).or_insert_with(|| vec![false; columns(table).count()]);
                    for (used, column) in used.iter_mut().zip(columns(table)) {
                        *used |= column.name.eq_ignore_ascii_case(column_name);
                    }
                }
                Authorization::Allow
            }
            _ => {
                self.writes = true;
                Authorization::Deny
            }
        }
    }
}

/// SQLite's message and the position of the mistake.
fn error_text(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, offset, .. } if *offset >= 0 => format!("{msg} (at character {offset})"),
        rusqlite::Error::SqlInputError { msg, .. } | rusqlite::Error::SqliteFailure(_, Some(msg)) => msg.clone(),
        error => error.to_string(),
    }
}

/// Lists the existing names if the mistake is an unknown table or column.
fn hint(error: &rusqlite::Error, used: &Used) -> String {
    let text = error.to_string();
    let list = |names: Vec<&str>| names.join(", ");
    if text.contains("no such table") {
        let names = list(Table::ALL.iter().map(|table| table.name()).collect());
        return format!("; tables: {names}. `gpuwhy query --tables` lists their columns");
    }
    if !text.contains("no such column") {
        return String::new();
    }
    let of_table = used.keys().map(|&table| {
        let names = list(columns(table).map(|column| column.name).collect());
        format!("; columns of {}: {names}", table.name())
    });
    of_table.collect()
}

/// Lists every table with its columns, as text.
#[must_use]
pub fn described() -> String {
    let mut text = String::new();
    for (name, columns, about) in std::iter::once(("every table", &PLACE[..], "In front of the columns below"))
        .chain(Table::ALL.iter().map(|table| (table.name(), table.columns(), table.about())))
    {
        text.push_str(&format!("{name}: {about}\n"));
        for column in columns {
            text.push_str(&format!("  {:<32}{:<9}{}\n", column.name, column.kind.name(), column.about));
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(sql: &str) -> Vec<String> {
        let used = used(sql).unwrap().used;
        let names = used.iter().flat_map(|(&table, used)| {
            let columns = columns(table).zip(used).filter(|(_, used)| **used);
            let mut names: Vec<String> =
                columns.map(|(column, _)| format!("{}.{}", table.name(), column.name)).collect();
            names.push(table.name().to_owned());
            names
        });
        names.collect()
    }

    #[test]
    fn only_what_a_query_reads_is_used() {
        assert_eq!(names("SELECT 1"), Vec::<String>::new());
        assert_eq!(names("SELECT count(*) FROM kernels"), ["kernels"]);
        assert_eq!(
            names("SELECT RANK, sum(bytes) FROM Copies GROUP BY rank"),
            ["copies.rank", "copies.bytes", "copies"]
        );
        let joined = "WITH k AS (SELECT * FROM kernels) SELECT k.name FROM k JOIN api USING (run, rank, correlation)";
        assert!(names(joined).contains(&"api.correlation".to_owned()), "{:?}", names(joined));
        assert!(!names(joined).contains(&"api.thread".to_owned()), "{:?}", names(joined));
        let natural = names("SELECT count(*) FROM steps NATURAL JOIN step_leaves");
        assert!(natural.contains(&"step_leaves.step".to_owned()), "{natural:?}");
    }

    #[test]
    fn joins_and_correlated_subqueries_read_a_table_repeatedly() {
        for sql in [
            "SELECT name, count(*) FROM kernels WHERE device = 0 GROUP BY name ORDER BY 2 DESC LIMIT 3",
            "WITH w AS (SELECT start_ns FROM kernels UNION ALL SELECT start_ns FROM copies) SELECT max(start_ns) FROM w",
            "SELECT count(*) FROM kernels WHERE correlation NOT IN (SELECT correlation FROM api)",
            "SELECT start_ns - LAG(start_ns) OVER (ORDER BY start_ns) FROM kernels",
            "SELECT (SELECT max(end_ns) FROM api) - (SELECT min(start_ns) FROM api)",
        ] {
            assert!(!used(sql).unwrap().repeats, "{sql}");
        }
        for sql in [
            "SELECT count(*) FROM kernels JOIN api USING (run, rank, correlation)",
            "SELECT count(*) FROM kernels, api WHERE kernels.correlation = api.correlation",
            "SELECT count(*) FROM kernels AS k, (SELECT max(start_ns) AS last FROM kernels) WHERE start_ns = last",
            "SELECT (SELECT max(start_ns) FROM api WHERE api.start_ns < k.start_ns) FROM kernels AS k",
            "SELECT 1 FROM kernels AS k WHERE EXISTS (SELECT 1 FROM api WHERE api.correlation = k.correlation)",
        ] {
            assert!(used(sql).unwrap().repeats, "{sql}");
        }
    }

    #[test]
    fn mistakes_name_what_there_is() {
        let error = |sql: &str| used(sql).unwrap_err().to_string();
        assert!(error("SELECT * FROM kernel").contains("no such table: kernel"));
        assert!(error("SELECT * FROM kernel").contains("kernels, copies"));
        let column = error("SELECT dur FROM kernels");
        assert!(column.contains("no such column: dur") && column.contains("duration_ns"), "{column}");
        for quoted in ["SELECT sum(\"duration\") FROM kernels", "SELECT count(*) FROM kernels WHERE \"nmae\" = 'x'"] {
            assert!(error(quoted).contains("no such column") && error(quoted).contains("duration_ns"), "{quoted}");
        }
        assert!(used("SELECT sum(\"duration_ns\") FROM \"kernels\"").is_ok());
        let syntax = error("SELEC name FROM kernels");
        assert!(syntax.contains("syntax error") && !syntax.contains("columns of"), "{syntax}");
        assert!(error("").contains("no SELECT"));
        for sql in
            ["DROP TABLE kernels", "ATTACH 'x' AS y", "PRAGMA page_count", "INSERT INTO kernels(name) VALUES (1)"]
        {
            assert!(error(sql).contains("only a SELECT"), "{sql}: {}", error(sql));
        }
        assert!(used("SELECT 1; SELECT 2").is_err());
    }
}
