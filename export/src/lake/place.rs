//! Paths of the files of a lake.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::ExportError;
use crate::lake::read::visit;
use crate::parquet::escaped;
use crate::tables::{Cell, Table};

const NO_LAKE: &str = "this folder is no lake: it has no TABLE/date=.../run=.../*.parquet. `gpuwhy lake add` makes one";
const REMOTE: &str = "gpuwhy reads no object store itself; choose --engine duckdb, which does";
const NO_FILE: &str = "a part of a lake is a file, and this is none; remove it";
const NO_FOLDER: &str = "this is no folder";
const NOT_NAMED: &str = "the name of a folder of a lake is not UTF-8";

/// A folder of tables.
#[derive(Clone, Debug)]
pub struct Lake {
    root: PathBuf,
}

/// A file of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartFile {
    /// Day on which the run started, `YYYY-MM-DD`, UTC.
    pub date: String,
    pub run: String,
    pub path: PathBuf,
}

impl Lake {
    /// The lake in the folder `root`, which may not exist yet.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Opens the lake in the folder `root`.
    ///
    /// # Errors
    /// If there is no lake.
    pub fn open(root: &Path) -> Result<Self, ExportError> {
        let lake = Self::new(root);
        if lake.is_remote() {
            return Ok(lake);
        }
        fs::metadata(root).map_err(|error| ExportError::io(root, error))?;
        if lake.is_there() { Ok(lake) } else { Err(ExportError::foreign(root, NO_LAKE)) }
    }

    /// True if the folder contains files of a lake.
    pub fn is_there(&self) -> bool {
        Table::ALL.iter().any(|&table| self.files(table).is_ok_and(|files| !files.is_empty()))
    }

    /// True if the lake is in an object store, which engines can read but gpuwhy cannot.
    pub fn is_remote(&self) -> bool {
        self.root.to_str().is_some_and(|root| root.contains("://"))
    }

    /// True if a table has files; always true in an object store.
    ///
    /// # Errors
    /// If a folder cannot be read.
    pub fn has(&self, table: Table) -> Result<bool, ExportError> {
        Ok(self.is_remote() || !self.files(table)?.is_empty())
    }

    /// Root folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of a table.
    pub fn table(&self, table: Table) -> PathBuf {
        self.root.join(table.name())
    }

    /// Folder of a run in a table.
    pub fn partition(&self, table: Table, date: &str, run: &str) -> PathBuf {
        self.table(table).join(format!("date={date}")).join(format!("run={}", escaped(run)))
    }

    /// Files of a table, ordered by date, run and name.
    ///
    /// # Errors
    /// If a folder cannot be read.
    pub fn files(&self, table: Table) -> Result<Vec<PartFile>, ExportError> {
        if self.is_remote() {
            return Err(ExportError::foreign(&self.root, REMOTE));
        }
        let mut files = Vec::new();
        for (date, folder) in keyed(&self.table(table), "date=")? {
            for (run, folder) in keyed(&folder, "run=")? {
                for entry in entries(&folder)? {
                    let (name, path) = (entry.file_name(), entry.path());
                    let name = name.to_string_lossy();
                    // Hidden files are unfinished; engines ignore them too.
                    if !name.ends_with(".parquet") || name.starts_with(['.', '_']) {
                        continue;
                    }
                    // Opening a pipe would block until another process writes to it.
                    if !entry.file_type().is_ok_and(|kind| kind.is_file()) && !path.is_file() {
                        return Err(ExportError::foreign(&path, NO_FILE));
                    }
                    files.push(PartFile { date: date.clone(), run: run.clone(), path });
                }
            }
        }
        files.sort();
        Ok(files)
    }

    /// Ranks of the run that are already in the lake.
    ///
    /// # Errors
    /// If its files cannot be read.
    pub fn ranks(&self, run: &str) -> Result<BTreeSet<i64>, ExportError> {
        let mut ranks = BTreeSet::new();
        for file in self.files(Table::Processes)?.iter().filter(|file| file.run == run) {
            visit(&file.path, &["rank"], &mut |cells| {
                if let [Cell::Integer(rank)] = cells {
                    ranks.insert(*rank);
                }
                Ok(())
            })?;
        }
        Ok(ranks)
    }
}

/// Subfolders named `KEY=VALUE`, by value; none if the folder does not exist.
fn keyed(folder: &Path, key: &str) -> Result<Vec<(String, PathBuf)>, ExportError> {
    let mut found = Vec::new();
    for path in entries(folder)?.into_iter().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default();
        let Some(name) = name.to_str() else { return Err(ExportError::foreign(&path, NOT_NAMED)) };
        if let Some(value) = name.strip_prefix(key) {
            found.push((unescaped(value), path));
        }
    }
    Ok(found)
}

fn entries(folder: &Path) -> Result<Vec<DirEntry>, ExportError> {
    let failed = |error| ExportError::io(folder, error);
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(ExportError::foreign(folder, NO_FOLDER)),
        entries => entries.map_err(failed)?.map(|entry| entry.map_err(failed)).collect(),
    }
}

/// The inverse of `escaped`.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let code = behind.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.filter(|_| first == b'%').and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Day of a time in nanoseconds since the Unix epoch, `YYYY-MM-DD`, UTC. By Howard Hinnant's
/// `civil_from_days` (<https://howardhinnant.github.io/date_algorithms.html>).
pub fn date(nanos: u64) -> String {
    let days = nanos / (86_400 * 1_000_000_000) + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // Years start in March here, so that the leap day is the last day of the year.
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + u64::from(month <= 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        const DAY: u64 = 86_400 * 1_000_000_000;
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(DAY - 1), "1970-01-01");
        assert_eq!(date(11_016 * DAY), "2000-02-29");
        assert_eq!(date(11_017 * DAY), "2000-03-01");
        assert_eq!(date(1_790_000_000_000_000_000), "2026-09-21");
        assert_eq!(date(19_722 * DAY), "2023-12-31");
    }

    #[test]
    fn names_of_runs_come_back() {
        for run in ["a/b=c d..%", "%zz", "ü", "plain-1", "50%"] {
            assert_eq!(unescaped(&escaped(run)), run);
        }
    }
}
