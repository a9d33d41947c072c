//! Reads the columns of a Parquet file, one row group at a time.

use std::fs::File;
use std::path::Path;

use parquet::basic::Type as Physical;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{FileReader as _, SerializedFileReader};

use crate::error::ExportError;
use crate::parquet::{Typed, Values};
use crate::tables::Cell;

/// Names of a file's columns.
///
/// # Errors
/// If the file cannot be read.
pub fn columns(path: &Path) -> std::result::Result<Vec<String>, ExportError> {
    let file = File::open(path).map_err(|error| ExportError::io(path, error))?;
    let reader = SerializedFileReader::new(file).map_err(|error| ExportError::parquet(path, &error))?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    Ok(schema.columns().iter().map(|column| column.name().to_owned()).collect())
}

/// Passes the named columns to `row`, row by row. A column that the file lacks is empty in every row: files
/// of older versions have fewer columns.
///
/// # Errors
/// If the file cannot be read or has columns of other types, or if `row` fails.
pub fn visit(
    path: &Path,
    names: &[&str],
    row: &mut dyn FnMut(&[Cell<'_>]) -> std::result::Result<(), ExportError>,
) -> std::result::Result<(), ExportError> {
    let failed = |error| ExportError::parquet(path, &error);
    let file = File::open(path).map_err(|error| ExportError::io(path, error))?;
    let reader = SerializedFileReader::new(file).map_err(failed)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let places: Vec<Option<usize>> =
        names.iter().map(|name| schema.columns().iter().position(|column| column.name() == *name)).collect();
    for number in 0..reader.num_row_groups() {
        let group = reader.get_row_group(number).map_err(failed)?;
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        let mut columns = Vec::with_capacity(names.len());
        for place in &places {
            columns.push(match place {
                None => None,
                Some(place) => Some(group.get_column_reader(*place).and_then(|of| read(of, rows)).map_err(failed)?),
            });
        }
        let texts = columns.iter().map(|column| texts(column.as_ref()));
        let texts: Vec<Vec<&str>> = texts.collect::<Result<_>>().map_err(failed)?;
        let mut cells = Vec::with_capacity(names.len());
        let mut next = vec![0; columns.len()];
        for number in 0..rows {
            cells.clear();
            for ((column, texts), next) in columns.iter().zip(&texts).zip(&mut next) {
                cells.push(match column {
                    Some(column) if column.present[number] > 0 => {
                        let place = *next;
                        *next += 1;
                        match &column.values {
                            Typed::Integers(values) => Cell::Integer(values[place]),
                            Typed::Reals(values) => Cell::Real(values[place]),
                            Typed::Flags(values) => Cell::Flag(values[place]),
                            Typed::Texts(_) => Cell::Text(texts[place]),
                        }
                    }
                    _ => Cell::Empty,
                });
            }
            row(&cells)?;
        }
    }
    Ok(())
}

/// All values of a column in a row group of `rows` rows.
fn read(reader: ColumnReader, rows: usize) -> Result<Values> {
    let mut present = Vec::with_capacity(rows);
    let values = match reader {
        ColumnReader::Int64ColumnReader(of) => Typed::Integers(all(of, rows, &mut present)?),
        ColumnReader::DoubleColumnReader(of) => Typed::Reals(all(of, rows, &mut present)?),
        ColumnReader::BoolColumnReader(of) => Typed::Flags(all(of, rows, &mut present)?),
        ColumnReader::ByteArrayColumnReader(of) => Typed::Texts(all(of, rows, &mut present)?),
        // Types that other writers may use; gpuwhy does not.
        _ => {
            let what = format!(
                "a column is none of {:?}",
                [Physical::INT64, Physical::DOUBLE, Physical::BOOLEAN, Physical::BYTE_ARRAY]
            );
            return Err(ParquetError::General(what));
        }
    };
    if present.len() != rows || present.iter().filter(|&&present| present > 0).count() != values.len() {
        return Err(ParquetError::General("a column has another number of rows than its row group".to_owned()));
    }
    Ok(Values { present, values })
}

fn all<T: DataType>(mut reader: ColumnReaderImpl<T>, rows: usize, present: &mut Vec<i16>) -> Result<Vec<T::T>> {
    let mut values = Vec::with_capacity(rows);
    while present.len() < rows {
        let before = present.len();
        let (_, read, _) = reader.read_records(rows - before, Some(present), None, &mut values)?;
        // A column without empty rows may have no definition levels.
        if present.len() == before {
            match read {
                0 => break,
                read => present.resize(before + read, 1),
            }
        }
    }
    Ok(values)
}

fn texts(column: Option<&Values>) -> Result<Vec<&str>> {
    let Some(Values { values: Typed::Texts(values), .. }) = column else { return Ok(Vec::new()) };
    values.iter().map(|value| value.as_utf8()).collect()
}
