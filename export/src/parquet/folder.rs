//! Folder of one rank of a run, which appears only when it is complete.
//!
//! Tables are written to a temporary folder next to it, which is renamed when all of them are complete: a
//! missing or partial table would be read as if the rest had never happened.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::destination::Destination;
use crate::error::ExportError;
use crate::made_folders::MadeFolders;
use crate::output::{OWN_FILE, OWN_FOLDER, unfinished_name};
use crate::tables::Table;

const EXISTS: &str =
    "this run has this rank already, and it is left as it is; name another run or folder, or replace it with --force";
const FOREIGN: &str = "this folder contains files other than tables, so it is not replaced; remove it first";

/// The folder while its tables are written. Removed if dropped before it is finished.
#[derive(Debug)]
pub struct RankFolder {
    // Declared first, so that it is removed before the folders around it.
    temporary: TempDir,
    around: MadeFolders,
    place: PathBuf,
    replace: bool,
}

impl RankFolder {
    /// Starts the folder `rank` of the folder `run`, below `to`.
    pub fn begin(to: &Destination, run: &str, rank: &str) -> Result<Self, ExportError> {
        let mut around = MadeFolders::new(OWN_FOLDER);
        around.make(to.path())?;
        let run = to.path().join(run);
        around.make_below(to.path(), &run)?;
        let place = run.join(rank);
        check(&place, to.replaces())?;
        let mode = Permissions::from_mode(OWN_FOLDER);
        let temporary =
            unfinished_name().permissions(mode).tempdir_in(&run).map_err(|error| ExportError::io(&run, error))?;
        Ok(Self { temporary, around, place, replace: to.replaces() })
    }

    /// Creates the file of a table. Returns it with its final path.
    pub fn file(&self, table: Table) -> Result<(File, PathBuf), ExportError> {
        let name = file_name(table);
        let path = self.place.join(&name);
        let mut options = File::options();
        options.write(true).create_new(true).mode(OWN_FILE);
        let file = options.open(self.temporary.path().join(name)).map_err(|error| ExportError::io(&path, error))?;
        Ok((file, path))
    }

    /// Moves the folder to its final path.
    pub fn finish(self) -> Result<(), ExportError> {
        check(&self.place, self.replace)?;
        let failed = |error| ExportError::io(&self.place, error);
        // The replaced folder is moved to this temporary path and removed at the end.
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
        // It has been renamed by now.
        let _ = self.temporary.keep();
        self.around.keep();
        Ok(())
    }
}

/// Fails if `place` exists and may not be replaced: only a folder that contains nothing but tables may be.
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

fn file_name(table: Table) -> String {
    format!("{}.parquet", table.name())
}
