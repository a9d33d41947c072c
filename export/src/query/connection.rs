//! Database connections for queries, with aggregate functions of nsys that SQLite lacks: `median(x)` and `stdev(x)`,
//! and `spread(x)` for the reports. All skip empty values.

use std::cmp::Ordering;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::Value;
use rusqlite::{Connection, Error};

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
pub fn failed(error: &Error) -> ExportError {
    ExportError::sqlite(Path::new("query"), error)
}

/// Registers the functions.
fn add(connection: &Connection) -> rusqlite::Result<()> {
    connection.create_aggregate_function("median", 1, FLAGS, Median)?;
    connection.create_aggregate_function("stdev", 1, FLAGS, Deviation)?;
    connection.create_aggregate_function("spread", 1, FLAGS, Spread)?;
    connection.create_scalar_function("of_spread", 2, FLAGS, |context| {
        let Some(spread) = context.get::<Option<Vec<u8>>>(0)? else { return Ok(Value::Null) };
        let (part, count) = (context.get::<usize>(1)?, PARTS_OF_SPREAD);
        let bytes = spread.get(part * 8..part * 8 + 8).and_then(|bytes| bytes.try_into().ok());
        let bytes: [u8; 8] = bytes.ok_or_else(|| Error::UserFunctionError(format!("part {part} of {count}").into()))?;
        Ok(if part < 3 { Value::Integer(i64::from_le_bytes(bytes)) } else { Value::Real(f64::from_le_bytes(bytes)) })
    })
}

/// Middle value, or the average of the two middle values.
struct Median;

/// Values for a median. Most are whole numbers below 2^32, which take half of the memory.
#[derive(Default)]
struct Values {
    short: Vec<u32>,
    others: Vec<f64>,
}

impl Values {
    fn push(&mut self, value: f64) {
        let short = value as u32;
        if f64::from(short).to_bits() == value.to_bits() { self.short.push(short) } else { self.others.push(value) }
    }

    fn median(mut self) -> Option<f64> {
        if !self.others.is_empty() {
            self.others.extend(self.short.iter().map(|&value| f64::from(value)));
            return middle(&mut self.others, f64::total_cmp).map(|(lower, upper)| f64::midpoint(lower, upper));
        }
        middle(&mut self.short, u32::cmp).map(|(lower, upper)| f64::midpoint(lower.into(), upper.into()))
    }
}

/// The two middle values, or twice the middle one.
fn middle<T: Copy>(values: &mut [T], order: fn(&T, &T) -> Ordering) -> Option<(T, T)> {
    let (place, is_even) = (values.len() / 2, values.len().is_multiple_of(2));
    if values.is_empty() {
        return None;
    }
    let (below, &mut upper, _) = values.select_nth_unstable_by(place, order);
    let lower = if is_even { below.iter().copied().max_by(order) } else { None };
    Some((lower.unwrap_or(upper), upper))
}

impl Aggregate<Values, Option<f64>> for Median {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Values> {
        Ok(Values::default())
    }

    fn step(&self, context: &mut Context<'_>, values: &mut Values) -> rusqlite::Result<()> {
        if let Some(value) = context.get::<Option<f64>>(0)? {
            values.push(value);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, values: Option<Values>) -> rusqlite::Result<Option<f64>> {
        Ok(values.and_then(Values::median))
    }
}

/// Sample standard deviation, with one degree of freedom less than values; 0 for a single value.
struct Deviation;

/// Running average and sum of squared differences from it (Welford).
#[derive(Default)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn push(&mut self, value: f64) {
        let difference = value - self.mean;
        self.count += 1.0;
        self.mean += difference / self.count;
        self.squares += difference * (value - self.mean);
    }

    fn deviation(&self) -> Option<f64> {
        (self.count > 0.0).then(|| (self.squares / (self.count - 1.0).max(1.0)).sqrt())
    }
}

impl Aggregate<Moments, Option<f64>> for Deviation {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Moments> {
        Ok(Moments::default())
    }

    fn step(&self, context: &mut Context<'_>, moments: &mut Moments) -> rusqlite::Result<()> {
        if let Some(value) = context.get::<Option<f64>>(0)? {
            moments.push(value);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, moments: Option<Moments>) -> rusqlite::Result<Option<f64>> {
        Ok(moments.and_then(|moments| moments.deviation()))
    }
}

/// All statistics of whole numbers at once, because a report has six of the same column: a call of each for each row
/// takes most of the time of the query. The parts are 8 bytes each, which `of_spread(spread(x), NUMBER)` reads: sum,
/// minimum, maximum; mean, median, standard deviation. They equal `SUM`, `MIN`, `MAX`, `AVG`, `median` and `stdev`.
struct Spread;

const PARTS_OF_SPREAD: usize = 6;

#[derive(Default)]
struct Whole {
    sum: i64,
    least: i64,
    most: i64,
    count: u64,
    values: Values,
    moments: Moments,
}

impl Aggregate<Whole, Option<Vec<u8>>> for Spread {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Whole> {
        Ok(Whole { least: i64::MAX, most: i64::MIN, ..Whole::default() })
    }

    fn step(&self, context: &mut Context<'_>, whole: &mut Whole) -> rusqlite::Result<()> {
        if let Some(value) = context.get::<Option<i64>>(0)? {
            let overflow = || Error::UserFunctionError("integer overflow".into());
            whole.sum = whole.sum.checked_add(value).ok_or_else(overflow)?;
            whole.least = whole.least.min(value);
            whole.most = whole.most.max(value);
            whole.count += 1;
            whole.values.push(value as f64);
            whole.moments.push(value as f64);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, whole: Option<Whole>) -> rusqlite::Result<Option<Vec<u8>>> {
        let Some(whole) = whole.filter(|whole| whole.count > 0) else { return Ok(None) };
        let numbers = [whole.sum, whole.least, whole.most].map(i64::to_le_bytes);
        let deviation = whole.moments.deviation().unwrap_or_default();
        let mean = whole.sum as f64 / whole.count as f64;
        let others = [mean, whole.values.median().unwrap_or_default(), deviation].map(f64::to_le_bytes);
        Ok(Some([numbers, others].concat().concat()))
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
        assert_eq!(asked("(0.5), (1), (4294967296), (-1), (2)").0, Some(1.0));
    }

    #[test]
    fn a_spread_has_the_statistics_of_sql() {
        let connection = Connection::open_in_memory().unwrap();
        add(&connection).unwrap();
        let same = "SUM(x) IS of_spread(spread(x), 0) AND MIN(x) IS of_spread(spread(x), 1) AND \
            MAX(x) IS of_spread(spread(x), 2) AND AVG(x) IS of_spread(spread(x), 3) AND \
            median(x) IS of_spread(spread(x), 4) AND stdev(x) IS of_spread(spread(x), 5)";
        for values in ["(9), (2), (4), (NULL), (-7), (1790000000000000001)", "(7)", "(NULL)"] {
            let sql = format!("SELECT {same} FROM (SELECT column1 AS x FROM (VALUES {values}))");
            assert!(connection.query_row(&sql, [], |row| row.get::<_, bool>(0)).unwrap(), "{values}");
        }
    }
}
