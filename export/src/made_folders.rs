//! Folders created on the way to a file. Empty ones are removed again if the work fails.

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
    /// Creates folders with this mode, less the umask of the process.
    pub fn new(mode: u32) -> Self {
        Self { mode, made: Vec::new() }
    }

    /// Creates a folder if it does not exist. Fails if that is impossible or the parent folder is missing.
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

    /// Creates a folder and its parents if they do not exist. Fails if one cannot be created.
    pub fn make_all(&mut self, folder: &Path) -> Result<(), ExportError> {
        let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.is_dir()).collect();
        missing.iter().rev().filter(|folder| !folder.as_os_str().is_empty()).try_for_each(|folder| self.make(folder))
    }

    /// Creates `root` with its parents, and the folders from there to `folder`, which is below. Fails as
    /// [`make`](Self::make), and if one below `root` is a symbolic link: what is in a shared folder may be another
    /// user's.
    pub fn make_below(&mut self, root: &Path, folder: &Path) -> Result<(), ExportError> {
        self.make_all(root)?;
        let below: Vec<&Path> = folder.ancestors().take_while(|folder| *folder != root).collect();
        for folder in below.into_iter().rev() {
            self.make(folder)?;
            if fs::symlink_metadata(folder).is_ok_and(|found| found.is_symlink()) {
                return Err(ExportError::foreign(folder, destination::LINK));
            }
        }
        Ok(())
    }

    /// Keeps the folders after the work has succeeded.
    pub fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in self.made.iter().rev() {
            // Another process may have put files there; the folder then stays.
            let _ = fs::remove_dir(folder);
        }
    }
}
