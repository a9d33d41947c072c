//! Temporary files. They have no name in any folder, so no file remains however the process ends.

use std::env;
use std::fs::File;
use std::io;
use std::path::Path;

use crate::error::OpenError;

/// A translated process of a database.
pub(crate) struct Translated {
    pub(crate) trace: File,
    /// Records that were not used as they are.
    pub(crate) notes: Vec<String>,
    /// Sentence about the other processes of the file, if there are any.
    pub(crate) other_processes: Option<String>,
    /// True if the file has no table of CUDA's calls or of GPU work.
    pub(crate) lacks_cuda: bool,
}

/// Creates an empty temporary file.
///
/// # Errors
/// Fails if the folder for temporary files does not allow it.
pub fn create() -> Result<File, OpenError> {
    tempfile::tempfile().map_err(failed)
}

/// Error of writing a temporary file. It names the folder, which may be full.
pub fn failed(error: io::Error) -> OpenError {
    let what = format!("a temporary file in {} (TMPDIR)", env::temp_dir().display());
    OpenError::io(Path::new(&what), error)
}
