//! Database connections for queries, with aggregate functions of nsys that SQLite lacks: `median(x)` and `stdev(x)`.
//! Both skip empty values.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};

use crate::error::ExportError;

const FLAGS: FunctionFlags = FunctionFlags::SQLITE_UTF8.union(FunctionFlags::SQLITE_DETERMINISTIC);

/// Adds functions, and makes names in double quotes refer to columns only. By default, SQLite treats a
/// misspelled name as a text and runs the query.
pub fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    add(connection)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false).map(drop)
}

/// Wraps an error about the query itself.
pub fn failed(error: &rusqlite::Error) -> ExportError {
    ExportError::sqlite(Path::new("query"), error)
}

/// Registers the functions.
fn add(connection: &Connection) -> rusqlite::Result<()> {
    connection.create_aggregate_function("median", 1, FLAGS, Median)?;
    connection.create_aggregate_function("stdev", 1, FLAGS, Deviation)
}

/// Middle value, or the average of the two middle values.
struct Median;

impl Aggregate<Vec<f64>, Option<f64>> for Median {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Vec<f64>> {
        Ok(Vec::new())
    }

    fn step(&self, context: &mut Context<'_>, values: &mut Vec<f64>) -> rusqlite::Result<()> {
        values.extend(context.get::<Option<f64>>(0)?);
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, values: Option<Vec<f64>>) -> rusqlite::Result<Option<f64>> {
        let mut values = values.unwrap_or_default();
        if values.is_empty() {
            return Ok(None);
        }
        let (middle, is_even) = (values.len() / 2, values.len().is_multiple_of(2));
        let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
        let lower = if is_even { below.iter().copied().max_by(f64::total_cmp) } else { None };
        Ok(Some(f64::midpoint(lower.unwrap_or(upper), upper)))
    }
}

/// Sample standard deviation, with one degree of freedom less than values; 0 for a single value.
struct Deviation;

/// Running average and sum of squared differences from it (Welford).
#[derive(Default)]
struct Spread {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Aggregate<Spread, Option<f64>> for Deviation {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Spread> {
        Ok(Spread::default())
    }

    fn step(&self, context: &mut Context<'_>, spread: &mut Spread) -> rusqlite::Result<()> {
        if let Some(value) = context.get::<Option<f64>>(0)? {
            let difference = value - spread.mean;
            spread.count += 1.0;
            spread.mean += difference / spread.count;
            spread.squares += difference * (value - spread.mean);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, spread: Option<Spread>) -> rusqlite::Result<Option<f64>> {
        let spread = spread.filter(|spread| spread.count > 0.0);
        Ok(spread.map(|spread| (spread.squares / (spread.count - 1.0).max(1.0)).sqrt()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_a_middle_and_a_spread() {
        let connection = Connection::open_in_memory().unwrap();
        add(&connection).unwrap();
        let asked = |values: &str| -> (Option<f64>, Option<f64>) {
            let sql = format!("SELECT median(x), stdev(x) FROM (SELECT column1 AS x FROM (VALUES {values}))");
            connection.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
        };
        let (median, deviation) = asked("(9), (2), (4), (4), (NULL), (4), (5), (5), (7)");
        assert_eq!(median, Some(4.5));
        assert!((deviation.unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(asked("(7)"), (Some(7.0), Some(0.0)));
        assert_eq!(asked("(NULL)"), (None, None));
    }
}
