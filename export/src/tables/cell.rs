//! Columns and their values.

use std::ops::Deref;

use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, ValueRef};

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// Signed 64-bit integers.
    Integer,
    /// 64-bit floating point.
    Real,
    /// Boolean; 1 or 0 in SQL.
    Flag,
    /// UTF-8.
    Text,
}

impl ColumnType {
    /// Display name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Real => "real",
            Self::Flag => "flag",
            Self::Text => "text",
        }
    }
}

/// A column. Every column can be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Type of its values.
    pub kind: ColumnType,
    /// Description, with the unit if the name has none.
    pub about: &'static str,
}

/// A value in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Unknown, or not applicable.
    Empty,
    /// For [`ColumnType::Integer`].
    Integer(i64),
    /// For [`ColumnType::Real`].
    Real(f64),
    /// For [`ColumnType::Flag`].
    Flag(bool),
    /// For [`ColumnType::Text`].
    Text(&'a str),
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            Self::Empty => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(number),
            Self::Real(number) => ValueRef::Real(number),
            Self::Flag(flag) => ValueRef::Integer(flag.into()),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

macro_rules! cells {
    ($($from:ty => $cell:ident($value:ident) $as:expr;)*) => {$(
        impl From<$from> for Cell<'_> {
            fn from($value: $from) -> Self {
                Self::$cell($as)
            }
        }
    )*};
}

cells! {
    i64 => Integer(number) number;
    u32 => Integer(number) number.into();
    // Columns are signed. Times and sizes of a run are below 2^63; larger values, from a damaged trace,
    // become the largest one.
    u64 => Integer(number) i64::try_from(number).unwrap_or(i64::MAX);
    f64 => Real(number) number;
    bool => Flag(flag) flag;
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Empty, Into::into)
    }
}

/// The cells of a row under construction.
#[derive(Debug)]
pub struct Cells<'a> {
    cells: Vec<Cell<'a>>,
    wanted: u64,
}

impl<'a> Cells<'a> {
    /// Creates a row; bit `n` of `wanted` is column `n`. Others stay empty.
    pub fn new(columns: usize, wanted: u64) -> Self {
        Self { cells: Vec::with_capacity(columns), wanted }
    }

    /// Adds the next cell.
    #[inline]
    pub fn add(&mut self, value: impl FnOnce() -> Cell<'a>) {
        // Beyond 64 columns, every one is wanted.
        let is_wanted = self.wanted.checked_shr(self.cells.len() as u32).is_none_or(|wanted| wanted & 1 == 1);
        self.cells.push(if is_wanted { value() } else { Cell::Empty });
    }

    /// Removes all cells.
    pub fn clear(&mut self) {
        self.cells.clear();
    }
}

impl<'a> Deref for Cells<'a> {
    type Target = [Cell<'a>];

    fn deref(&self) -> &[Cell<'a>] {
        &self.cells
    }
}
