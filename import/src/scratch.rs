//! Temporary files. They have no name in any folder, so that nothing stays behind however the process ends.

use std::env;
use std::fs::File;
use std::io;
use std::path::Path;

use crate::error::OpenError;

/// An empty temporary file.
///
/// # Errors
/// When the folder for temporary files takes none.
pub fn create() -> Result<File, OpenError> {
    tempfile::tempfile().map_err(failed)
}

/// An error of writing a temporary file. It names the folder, which may be full.
pub fn failed(error: io::Error) -> OpenError {
    let what = format!("a temporary file in {} (TMPDIR)", env::temp_dir().display());
    OpenError::io(Path::new(&what), error)
}
