//! Merges the rows of all tables into the order in which a live run would have delivered them.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{Record, Timestamp};
use rusqlite::{Connection, Result, Rows};

use super::queries::{RowSource, Statements};
use super::rows::{Fields, RowReader};
use super::schema::Schema;

/// Rows of all tables in one order.
pub(super) struct Merge<'s> {
    cursors: Vec<Cursor<'s>>,
    reader: RowReader<'s>,
}

struct Cursor<'s> {
    source: RowSource,
    rows: Rows<'s>,
    /// Next row, and the time at which it was complete.
    next: Option<(Timestamp, Record)>,
}

impl<'s> Merge<'s> {
    /// Reads the first row of each table.
    pub(super) fn new(
        connection: &'s Connection,
        schema: &Schema,
        statements: &'s mut Statements<'_>,
        start: Timestamp,
        dictionary: &mut Dictionary,
    ) -> Result<Self> {
        let mut reader = RowReader::new(connection, schema, start)?;
        let mut cursors = Vec::new();
        for (source, statement) in &mut statements.0 {
            let mut cursor = Cursor { source: *source, rows: statement.query([])?, next: None };
            cursor.advance(&mut reader, dictionary)?;
            cursors.push(cursor);
        }
        Ok(Self { cursors, reader })
    }

    /// Returns the record that was complete first, and the time.
    pub(super) fn next(&mut self, dictionary: &mut Dictionary) -> Result<Option<(Timestamp, Record)>> {
        let waiting = self.cursors.iter_mut().filter(|cursor| cursor.next.is_some());
        let Some(first) = waiting.min_by_key(|cursor| cursor.next.map(|(at, _)| at)) else { return Ok(None) };
        let next = first.next;
        first.advance(&mut self.reader, dictionary)?;
        Ok(next)
    }
}

impl Cursor<'_> {
    fn advance(&mut self, reader: &mut RowReader<'_>, dictionary: &mut Dictionary) -> Result<()> {
        self.next = match self.rows.next()? {
            Some(row) => Some(reader.record(self.source, &mut Fields::of(row), dictionary)?),
            None => None,
        };
        Ok(())
    }
}
