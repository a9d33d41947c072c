//! One Parquet file, written a row group at a time.
//!
//! Rows are collected by column until a row group is full, so memory is limited to one row group per table.
//! Texts, kinds and ids use dictionary encoding; times, which rarely repeat but increase, use delta encoding.
//! If an order is requested, the rows of each row group are sorted by it.

use std::cmp::Ordering;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;

use ::parquet::basic::{Compression, ConvertedType, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::types::{ColumnPath, Type, TypePtr};
use rustc_hash::FxHashMap;

use crate::error::ExportError;
use crate::tables::{Cell, Column, ColumnType, Table};

/// Rows per row group: DuckDB's default, whose threads process one row group each.
pub const GROUP_ROWS: usize = 122_880;
/// Maximum number of values per row group, regardless of rows: limits buffered data to some 300 MB.
const GROUP_VALUES: usize = 16 << 20;

/// Schema and row group layout of a file.
#[derive(Clone, Debug)]
pub struct Layout {
    name: &'static str,
    columns: Vec<&'static Column>,
    group_rows: usize,
    /// Columns by which the rows of each row group are sorted.
    order: Vec<usize>,
}

impl Layout {
    /// Columns of a table, with the default row group size and unsorted rows.
    pub fn of(table: Table) -> Self {
        Self {
            name: table.name(),
            columns: table.columns().iter().collect(),
            group_rows: GROUP_ROWS,
            order: Vec::new(),
        }
    }

    pub fn behind(mut self, front: &'static [Column]) -> Self {
        self.columns.splice(0..0, front);
        self
    }

    /// Uses row groups of `rows` rows, fewer if a row has many columns, each sorted by the named columns.
    pub fn sorted(mut self, rows: usize, order: &[&str]) -> Self {
        self.group_rows = rows.min(GROUP_VALUES / self.columns.len().max(1));
        let places = order.iter().map(|name| self.columns.iter().position(|column| column.name == *name));
        self.order = places.flatten().collect();
        self
    }
}

/// A file being written.
pub struct TableFile {
    path: PathBuf,
    writer: SerializedFileWriter<BufWriter<File>>,
    columns: Vec<Values>,
    rows: usize,
    layout: Layout,
}

/// Applies the same code to the values of a column of any type.
macro_rules! each {
    ($typed:expr, $values:ident => $work:expr) => {
        match $typed {
            Typed::Integers($values) => $work,
            Typed::Reals($values) => $work,
            Typed::Flags($values) => $work,
            Typed::Texts($values) => $work,
        }
    };
}

/// Values of a column that are not empty, and for each row whether it has a value (1) or not (0).
pub struct Values {
    pub present: Vec<i16>,
    pub values: Typed,
}

pub enum Typed {
    Integers(Vec<i64>),
    Reals(Vec<f64>),
    Flags(Vec<bool>),
    Texts(Vec<ByteArray>),
}

impl TableFile {
    /// Starts writing to `file`. Errors contain its final `path`.
    pub fn create(file: File, path: PathBuf, layout: Layout) -> Result<Self, ExportError> {
        let failed = |error| ExportError::parquet(&path, &error);
        let schema = schema(&layout).map_err(failed)?;
        let writer = SerializedFileWriter::new(BufWriter::new(file), schema, properties(&layout)).map_err(failed)?;
        let columns = layout.columns.iter().map(|column| Values::of(column)).collect();
        Ok(Self { path, writer, columns, rows: 0, layout })
    }

    pub fn row<'c>(
        &mut self,
        cells: impl IntoIterator<Item = &'c Cell<'c>>,
        texts: &mut Texts,
    ) -> Result<(), ExportError> {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.push(cell, texts);
        }
        self.rows += 1;
        if self.rows < self.layout.group_rows { Ok(()) } else { self.group() }
    }

    /// Completes the file.
    pub fn finish(mut self) -> Result<(), ExportError> {
        if self.rows > 0 {
            self.group()?;
        }
        let Self { path, writer, .. } = self;
        let written = writer.into_inner().and_then(|file| file.into_inner().map_err(|error| error.into_error().into()));
        written.map(drop).map_err(|error| ExportError::parquet(&path, &error))
    }

    fn group(&mut self) -> Result<(), ExportError> {
        self.rows = 0;
        self.write_group().map_err(|error| ExportError::parquet(&self.path, &error))
    }

    fn write_group(&mut self) -> Result<()> {
        let order: Vec<usize> = self.layout.order.clone();
        if !order.is_empty() {
            let rows = permutation(&self.columns, &order);
            self.columns.iter_mut().for_each(|column| column.permute(&rows));
        }
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let writer = group.next_column()?;
            column.write(writer.ok_or_else(|| ParquetError::General("a column has no writer".to_owned()))?)?;
        }
        group.close().map(|_| ())
    }
}

impl Typed {
    pub fn len(&self) -> usize {
        each!(self, values => values.len())
    }
}

impl Values {
    fn of(column: &Column) -> Self {
        let values = match column.kind {
            ColumnType::Integer => Typed::Integers(Vec::new()),
            ColumnType::Real => Typed::Reals(Vec::new()),
            ColumnType::Flag => Typed::Flags(Vec::new()),
            ColumnType::Text => Typed::Texts(Vec::new()),
        };
        Self { present: Vec::new(), values }
    }

    fn push(&mut self, cell: &Cell<'_>, texts: &mut Texts) {
        match (&mut self.values, cell) {
            (Typed::Integers(values), Cell::Integer(number)) => values.push(*number),
            (Typed::Reals(values), Cell::Real(number)) => values.push(*number),
            (Typed::Flags(values), Cell::Flag(flag)) => values.push(*flag),
            (Typed::Texts(values), Cell::Text(text)) => values.push(texts.shared(text)),
            (_, cell) => {
                debug_assert_eq!(*cell, Cell::Empty, "a cell of another kind than its column");
                self.present.push(0);
                return;
            }
        }
        self.present.push(1);
    }

    /// Index of each row's value among the values that exist.
    fn places(&self) -> Vec<Option<usize>> {
        let mut place = 0;
        let present = self.present.iter().map(|&present| {
            let own = (present > 0).then_some(place);
            place += usize::from(present > 0);
            own
        });
        present.collect()
    }

    /// Compares two values by index; missing values come first.
    fn compared(&self, a: Option<usize>, b: Option<usize>) -> Ordering {
        let (Some(left), Some(right)) = (a, b) else { return a.is_some().cmp(&b.is_some()) };
        match &self.values {
            Typed::Integers(values) => values[left].cmp(&values[right]),
            Typed::Reals(values) => values[left].total_cmp(&values[right]),
            Typed::Flags(values) => values[left].cmp(&values[right]),
            Typed::Texts(values) => values[left].data().cmp(values[right].data()),
        }
    }

    /// Reorders the rows.
    fn permute(&mut self, rows: &[usize]) {
        let places = self.places();
        let order = || rows.iter().filter_map(|&row| places[row]);
        each!(&mut self.values, values => *values = picked(values, order()));
        self.present = rows.iter().map(|&row| i16::from(places[row].is_some())).collect();
    }

    fn write(&mut self, mut writer: SerializedColumnWriter<'_>) -> Result<()> {
        let present = Some(self.present.as_slice());
        match &mut self.values {
            Typed::Integers(values) => writer.typed::<Int64Type>().write_batch(values, present, None)?,
            Typed::Reals(values) => writer.typed::<DoubleType>().write_batch(values, present, None)?,
            Typed::Flags(values) => writer.typed::<BoolType>().write_batch(values, present, None)?,
            Typed::Texts(values) => writer.typed::<ByteArrayType>().write_batch(values, present, None)?,
        };
        each!(&mut self.values, values => values.clear());
        self.present.clear();
        writer.close()
    }
}

fn picked<T: Clone>(values: &[T], places: impl Iterator<Item = usize>) -> Vec<T> {
    places.map(|place| values[place].clone()).collect()
}

/// Order of the rows when sorted by these columns.
fn permutation(columns: &[Values], order: &[usize]) -> Vec<usize> {
    let keys: Vec<(&Values, Vec<Option<usize>>)> =
        order.iter().map(|&column| (&columns[column], columns[column].places())).collect();
    let mut rows: Vec<usize> = (0..columns.first().map_or(0, |column| column.present.len())).collect();
    rows.sort_by(|&a, &b| {
        let compared = keys.iter().map(|(values, places)| values.compared(places[a], places[b]));
        compared.fold(Ordering::Equal, Ordering::then)
    });
    rows
}

fn schema(layout: &Layout) -> Result<TypePtr> {
    let field = |column: &&Column| {
        let physical = match column.kind {
            ColumnType::Integer => Physical::INT64,
            ColumnType::Real => Physical::DOUBLE,
            ColumnType::Flag => Physical::BOOLEAN,
            ColumnType::Text => Physical::BYTE_ARRAY,
        };
        let field = Type::primitive_type_builder(column.name, physical).with_repetition(Repetition::OPTIONAL);
        let field = match column.kind {
            ColumnType::Text => {
                field.with_logical_type(Some(LogicalType::String)).with_converted_type(ConvertedType::UTF8)
            }
            _ => field,
        };
        field.build().map(Arc::new)
    };
    let fields = layout.columns.iter().map(field).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Type::group_type_builder(layout.name).with_fields(fields).build()?))
}

fn properties(layout: &Layout) -> WriterPropertiesPtr {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(concat!("gpuwhy ", env!("CARGO_PKG_VERSION")).to_owned());
    // Delta encoding only applies to integers; some times are reals.
    let is_time = |column: &&&Column| column.kind == ColumnType::Integer && column.name.ends_with("_ns");
    for column in layout.columns.iter().filter(is_time) {
        let path = ColumnPath::from(column.name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Arc::new(properties.build())
}

/// Texts to be written, each stored once: rows repeat the names in the trace's dictionary.
#[derive(Debug, Default)]
pub struct Texts(FxHashMap<Box<str>, ByteArray>);

impl Texts {
    /// Returns the single shared value of a text.
    pub fn shared(&mut self, text: &str) -> ByteArray {
        if let Some(shared) = self.0.get(text) {
            return shared.clone();
        }
        let shared = ByteArray::from(text.as_bytes().to_vec());
        self.0.insert(text.into(), shared.clone());
        shared
    }
}
