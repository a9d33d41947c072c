//! A file for what is needed for a while only.
//!
//! It has no name in any folder, so that nothing stays behind however the process ends, also when it is killed.

use std::env;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use crate::error::ExportError;

/// Vanishes when it is dropped.
#[derive(Debug)]
pub struct Scratch {
    file: File,
    path: PathBuf,
}

impl Scratch {
    /// An empty one in the folder for temporary files.
    pub fn new() -> Result<Self, ExportError> {
        let file = tempfile::tempfile().map_err(failed)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        Ok(Self { file, path })
    }

    /// Where to write.
    pub fn writer(&self) -> Result<File, ExportError> {
        self.file.try_clone().map_err(failed)
    }

    /// How this process opens it, from its beginning, for as long as `self` lives.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many bytes it holds.
    pub fn bytes(&self) -> Result<u64, ExportError> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(failed)
    }
}

/// An error of writing one, with the name of the folder, since that is what may be full.
pub fn failed(error: io::Error) -> ExportError {
    let what = format!("a temporary file in {} (TMPDIR)", env::temp_dir().display());
    ExportError::io(Path::new(&what), error)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn it_is_read_from_the_beginning_and_has_no_name() {
        let scratch = Scratch::new().unwrap();
        scratch.writer().unwrap().write_all(b"translated").unwrap();
        assert_eq!(std::fs::read(scratch.path()).unwrap(), b"translated");
        assert_eq!(std::fs::read(scratch.path()).unwrap(), b"translated");
        assert_eq!(scratch.bytes().unwrap(), 10);
        let link = std::fs::read_link(scratch.path()).unwrap();
        assert!(link.to_string_lossy().ends_with("(deleted)"), "{}", link.display());
    }
}
