//! Apache Parquet: a file for each table, for DuckDB, Polars, Spark, DataFusion and pandas.
//!
//! Paths are `run=NAME/rank=N/TABLE.parquet`, the Hive layout: these tools read a folder of runs together and
//! turn the path components into columns. Every table has a file even without rows, so that a glob pattern
//! always matches.

mod file;
mod folder;

use crate::destination::Destination;
use crate::error::ExportError;
use crate::options::ExportOutcome;
use crate::tables::{Cell, Label, Sink, Table, produce};
use gpuwhy_import::{Progress, TraceFile};

pub use self::file::{GROUP_ROWS, Layout, TableFile, Texts, Typed, Values};
use self::folder::RankFolder;

/// Writes the tables of `trace` below the folder `to`.
pub fn write(
    trace: &TraceFile,
    to: &Destination,
    label: &Label,
    progress: &mut Progress<'_>,
) -> Result<ExportOutcome, ExportError> {
    let folder = RankFolder::begin(to, &format!("run={}", escaped(&label.run)), &format!("rank={}", label.rank))?;
    let stored = Table::ALL.iter().filter(|table| !table.is_of_queries());
    let files = stored.map(|&table| create(&folder, table)).collect::<Result<_, _>>()?;
    let mut files = Files { files, texts: Texts::default(), written: 0 };
    let notes = produce(trace, &mut files, progress)?;
    for file in files.files {
        file.finish()?;
    }
    folder.finish()?;
    Ok(ExportOutcome { written: files.written, notes, ..ExportOutcome::default() })
}

/// Creates the file of `table`.
fn create(folder: &RankFolder, table: Table) -> Result<TableFile, ExportError> {
    let (file, path) = folder.file(table)?;
    TableFile::create(file, path, Layout::of(table))
}

/// Percent-encodes a text as Hive readers expect.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            escaped.push(byte.into());
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// All files of a trace.
struct Files {
    /// Files in the order of [`Table::ALL`], whose last tables are never stored.
    files: Vec<TableFile>,
    texts: Texts,
    written: u64,
}

impl Sink for Files {
    fn wants(&self, table: Table) -> bool {
        !table.is_of_queries()
    }

    fn row(&mut self, table: Table, cells: &[Cell<'_>]) -> Result<(), ExportError> {
        self.written += 1;
        self.files[table as usize].row(cells, &mut self.texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_any_name_is_one_folder() {
        assert_eq!(escaped("a/b=c d..%"), "a%2Fb%3Dc%20d..%25");
    }
}
