//! The folder of one rank of a run, complete or not there.
//!
//! Tables are written into a folder of another name beside it, which is renamed when all of them are complete: a set
//! that lacks a table, or has half of one, would be read as if the rest had never happened.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::destination::{self, Destination};
use crate::error::ExportError;
use crate::output::unfinished_name;
use crate::tables::Table;

const EXISTS: &str =
    "this run has this rank already, and it is left as it is; name another run or folder, or replace it with --force";
const FOREIGN: &str = "this folder holds something besides tables, so it is not replaced; remove it first";

/// The folder while its tables are written. Vanishes unless it is finished.
#[derive(Debug)]
pub struct RankFolder {
    // Goes before the folders around it.
    temporary: TempDir,
    around: Made,
    place: PathBuf,
    replace: bool,
}

impl RankFolder {
    /// For the folder `rank` of the folder `run`, below `to`.
    pub fn begin(to: &Destination, run: &str, rank: &str) -> Result<Self, ExportError> {
        let mut around = Made::default();
        around.make(to.path())?;
        let run = to.path().join(run);
        around.make(&run)?;
        let place = run.join(rank);
        check(&place, to.replaces())?;
        let temporary = unfinished_name().tempdir_in(&run).map_err(|error| ExportError::io(&run, error))?;
        Ok(Self { temporary, around, place, replace: to.replaces() })
    }

    /// Where the tables are written.
    pub fn temporary(&self) -> &Path {
        self.temporary.path()
    }

    /// Where they will be.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Gives the folder its name.
    pub fn finish(self) -> Result<(), ExportError> {
        check(&self.place, self.replace)?;
        let failed = |error| ExportError::io(&self.place, error);
        // The older one goes with this at the end.
        let beside = self.place.parent().unwrap_or(Path::new("."));
        let older = unfinished_name().tempdir_in(beside).map_err(failed)?;
        let moved = match fs::rename(&self.place, older.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            moved => moved.map(|()| true).map_err(failed)?,
        };
        if let Err(error) = fs::rename(self.temporary.path(), &self.place) {
            if moved {
                fs::rename(older.path(), &self.place).map_err(failed)?;
            }
            return Err(failed(error));
        }
        // It has another name by now.
        let _ = self.temporary.keep();
        self.around.keep();
        Ok(())
    }
}

/// Whether what is at `place` now, if anything, may go: nothing but tables does.
fn check(place: &Path, replace: bool) -> Result<(), ExportError> {
    let entries = match fs::read_dir(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| ExportError::io(place, error))?,
    };
    if !replace {
        return Err(ExportError::foreign(place, EXISTS));
    }
    for entry in entries {
        let entry = entry.map_err(|error| ExportError::io(place, error))?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !Table::ALL.iter().any(|&table| entry.file_name() == *file_name(table)) {
            return Err(ExportError::foreign(place, FOREIGN));
        }
    }
    Ok(())
}

/// The file of a table.
pub fn file_name(table: Table) -> String {
    format!("{}.parquet", table.name())
}

/// Folders that were made on the way. Those that are empty at the end go again.
#[derive(Debug, Default)]
struct Made(Vec<PathBuf>);

impl Made {
    fn make(&mut self, folder: &Path) -> Result<(), ExportError> {
        match fs::create_dir(folder) {
            Ok(()) => self.0.push(folder.to_owned()),
            Err(_) if folder.is_dir() => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ExportError::foreign(destination::folder(folder), destination::MISSING));
            }
            Err(error) => return Err(ExportError::io(folder, error)),
        }
        Ok(())
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            // Somebody else may have put something there; then it stays.
            let _ = fs::remove_dir(folder);
        }
    }
}
