//! One Parquet file, written a row group at a time.
//!
//! Rows are collected by column until there are enough for a row group, so memory is that of one row group a table.
//! Texts, kinds and ids are encoded by dictionary; times, which hardly repeat but grow, by their differences.

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

use super::folder::{RankFolder, file_name};
use super::texts::Texts;
use crate::error::ExportError;
use crate::tables::{Cell, Column, Kind, Table};

/// Rows of a row group: that of DuckDB, whose threads take a row group each.
const GROUP_ROWS: usize = 122_880;

/// A file that is being written.
pub struct TableFile {
    path: PathBuf,
    writer: SerializedFileWriter<BufWriter<File>>,
    columns: Vec<Values>,
    rows: usize,
}

/// The values of a column that wait, and for each row whether it has one (1) or not (0).
struct Values {
    present: Vec<i16>,
    values: Typed,
}

enum Typed {
    Integers(Vec<i64>),
    Reals(Vec<f64>),
    Flags(Vec<bool>),
    Texts(Vec<ByteArray>),
}

impl TableFile {
    /// Begins the file of `table`. Errors name the place that it will have.
    pub fn create(folder: &RankFolder, table: Table) -> Result<Self, ExportError> {
        let name = file_name(table);
        let path = folder.place().join(&name);
        let file = File::create_new(folder.temporary().join(name)).map_err(|error| ExportError::io(&path, error))?;
        let failed = |error| ExportError::parquet(&path, &error);
        let schema = schema(table).map_err(failed)?;
        let writer = SerializedFileWriter::new(BufWriter::new(file), schema, properties(table)).map_err(failed)?;
        let columns = table.columns().iter().map(Values::of).collect();
        Ok(Self { path, writer, columns, rows: 0 })
    }

    /// Takes a row.
    pub fn row(&mut self, cells: &[Cell<'_>], texts: &mut Texts) -> Result<(), ExportError> {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.push(cell, texts);
        }
        self.rows += 1;
        if self.rows < GROUP_ROWS { Ok(()) } else { self.group() }
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
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let writer = group.next_column()?;
            column.write(writer.ok_or_else(|| ParquetError::General("a column has no writer".to_owned()))?)?;
        }
        group.close().map(|_| ())
    }
}

impl Values {
    fn of(column: &Column) -> Self {
        let values = match column.kind {
            Kind::Integer => Typed::Integers(Vec::new()),
            Kind::Real => Typed::Reals(Vec::new()),
            Kind::Flag => Typed::Flags(Vec::new()),
            Kind::Text => Typed::Texts(Vec::new()),
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

    fn write(&mut self, mut writer: SerializedColumnWriter<'_>) -> Result<()> {
        let present = Some(self.present.as_slice());
        match &mut self.values {
            Typed::Integers(values) => {
                writer.typed::<Int64Type>().write_batch(values, present, None)?;
                values.clear();
            }
            Typed::Reals(values) => {
                writer.typed::<DoubleType>().write_batch(values, present, None)?;
                values.clear();
            }
            Typed::Flags(values) => {
                writer.typed::<BoolType>().write_batch(values, present, None)?;
                values.clear();
            }
            Typed::Texts(values) => {
                writer.typed::<ByteArrayType>().write_batch(values, present, None)?;
                values.clear();
            }
        }
        self.present.clear();
        writer.close()
    }
}

fn schema(table: Table) -> Result<TypePtr> {
    let field = |column: &Column| {
        let physical = match column.kind {
            Kind::Integer => Physical::INT64,
            Kind::Real => Physical::DOUBLE,
            Kind::Flag => Physical::BOOLEAN,
            Kind::Text => Physical::BYTE_ARRAY,
        };
        let field = Type::primitive_type_builder(column.name, physical).with_repetition(Repetition::OPTIONAL);
        let field = match column.kind {
            Kind::Text => field.with_logical_type(Some(LogicalType::String)).with_converted_type(ConvertedType::UTF8),
            _ => field,
        };
        field.build().map(Arc::new)
    };
    let fields = table.columns().iter().map(field).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Type::group_type_builder(table.name()).with_fields(fields).build()?))
}

fn properties(table: Table) -> WriterPropertiesPtr {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(concat!("gpuwhy ", env!("CARGO_PKG_VERSION")).to_owned());
    for column in table.columns().iter().filter(|column| column.name.ends_with("_ns")) {
        let path = ColumnPath::from(column.name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Arc::new(properties.build())
}
