//! Folders that are made on the way to a file. Those that are empty when the work fails go again.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::destination;
use crate::error::ExportError;

#[derive(Debug)]
pub struct MadeFolders {
    mode: u32,
    made: Vec<PathBuf>,
}

impl MadeFolders {
    /// Makes folders of this mode, less the mask of the process.
    pub fn new(mode: u32) -> Self {
        Self { mode, made: Vec::new() }
    }

    /// Makes a folder, unless it is there. Fails when it cannot be made, or the folder around it is missing.
    pub fn make(&mut self, folder: &Path) -> Result<(), ExportError> {
        match DirBuilder::new().mode(self.mode).create(folder) {
            Ok(()) => self.made.push(folder.to_owned()),
            Err(_) if folder.is_dir() => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ExportError::foreign(destination::folder(folder), destination::MISSING));
            }
            Err(error) => return Err(ExportError::io(folder, error)),
        }
        Ok(())
    }

    /// Makes a folder and those around it, unless they are there. Fails when one cannot be made.
    pub fn make_all(&mut self, folder: &Path) -> Result<(), ExportError> {
        let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.is_dir()).collect();
        missing.iter().rev().filter(|folder| !folder.as_os_str().is_empty()).try_for_each(|folder| self.make(folder))
    }

    /// The work is done: they stay.
    pub fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in self.made.iter().rev() {
            // Somebody else may have put something there; then it stays.
            let _ = fs::remove_dir(folder);
        }
    }
}
