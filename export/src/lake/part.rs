//! Data written to a lake together: one file for each table that has rows.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use super::place::Lake;
use super::{RANK, order};
use crate::error::ExportError;
use crate::made_folders::MadeFolders;
use crate::output::unfinished_name;
use crate::parquet::{GROUP_ROWS, Layout, TableFile, Texts};
use crate::tables::{Cell, Table};

const EXISTS: &str = "this part of the lake exists already, and it is left as it is";

/// Files being written. They get their names when all are complete and are removed on failure: if a table of
/// a part were missing, a query would read it as if it had no rows.
pub struct PendingFiles {
    lake: Lake,
    date: String,
    run: String,
    name: String,
    group_rows: usize,
    /// Files in the order of [`Table::ALL`].
    files: Vec<Option<(TableFile, TempPath)>>,
    texts: Texts,
    written: u64,
    /// Removed after the files in them; declared last for that reason.
    folders: MadeFolders,
}

impl PendingFiles {
    /// Creates a part of the run that started on `date`. `name` is the file name without extension.
    pub fn new(lake: &Lake, date: &str, run: &str, name: String) -> Self {
        Self {
            lake: lake.clone(),
            date: date.to_owned(),
            run: run.to_owned(),
            name,
            group_rows: GROUP_ROWS,
            files: Table::ALL.iter().map(|_| None).collect(),
            texts: Texts::default(),
            written: 0,
            // Readable as the process's umask allows: a lake contains no paths, and command lines only on
            // request.
            folders: MadeFolders::new(0o777),
        }
    }

    /// Sets the number of rows per row group.
    #[must_use]
    pub(super) fn grouped(mut self, rows: usize) -> Self {
        self.group_rows = rows;
        self
    }

    /// Adds a row: the rank, and the columns of the table.
    ///
    /// # Errors
    /// If a file cannot be created or written.
    pub fn row(&mut self, table: Table, rank: u32, cells: &[Cell<'_>]) -> Result<(), ExportError> {
        if self.files[table as usize].is_none() {
            self.files[table as usize] = Some(self.create(table)?);
        }
        self.written += 1;
        let Some((file, _)) = &mut self.files[table as usize] else { return Ok(()) };
        file.row([Cell::Integer(rank.into())].iter().chain(cells), &mut self.texts)
    }

    /// Number of rows added.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn path(&self, table: Table) -> PathBuf {
        self.lake.partition(table, &self.date, &self.run).join(format!("{}.parquet", self.name))
    }

    fn create(&mut self, table: Table) -> Result<(TableFile, TempPath), ExportError> {
        let path = self.path(table);
        let folder = path.parent().unwrap_or_else(|| self.lake.root()).to_owned();
        let failed = |error| ExportError::io(&folder, error);
        self.folders.make_below(self.lake.root(), &folder)?;
        if path.exists() {
            return Err(ExportError::foreign(&path, EXISTS));
        }
        let made = unfinished_name().permissions(Permissions::from_mode(0o666)).tempfile_in(&folder).map_err(failed)?;
        let (file, temporary): (File, TempPath) = made.into_parts();
        let layout = Layout::of(table).behind(&RANK).sorted(self.group_rows, order(table));
        Ok((TableFile::create(file, path, layout)?, temporary))
    }

    /// Completes and names the files, and returns their paths. The file of the processes is named last,
    /// because a rank counts as present in the lake once it has a row there.
    ///
    /// # Errors
    /// If a file cannot be written. No file is named in that case.
    pub fn finish(mut self) -> Result<Vec<PathBuf>, ExportError> {
        let mut complete = Vec::new();
        let files = std::mem::take(&mut self.files);
        for (&table, file) in Table::ALL.iter().zip(files) {
            let path = self.path(table);
            let Some((file, temporary)) = file else { continue };
            file.finish()?;
            complete.push((table == Table::Processes, temporary, path));
        }
        complete.sort_by_key(|&(is_last, ..)| is_last);
        let mut named: Vec<PathBuf> = Vec::new();
        for (_, temporary, path) in complete {
            if let Err(error) = name(temporary, &path) {
                for path in named {
                    // The file was created a moment ago; if it cannot be removed, the error below is reported
                    // nevertheless.
                    let _ = fs::remove_file(path);
                }
                return Err(error);
            }
            named.push(path);
        }
        self.folders.keep();
        Ok(named)
    }
}

/// Moves a temporary file to its final path, which must not exist.
fn name(temporary: TempPath, path: &Path) -> Result<(), ExportError> {
    if path.exists() {
        return Err(ExportError::foreign(path, EXISTS));
    }
    temporary.persist(path).map_err(|error| ExportError::io(path, error.error))
}

/// Host name as used in file names.
pub(super) fn plain(host: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let host: String = host.chars().take(64).map(plain).collect();
    if host.is_empty() { "unknown".to_owned() } else { host }
}
