//! Translates files of other profilers into temporary traces of gpuwhy.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufWriter, Read};
use std::path::Path;
use std::rc::Rc;

use tempfile::{NamedTempFile, TempPath};

use crate::error::OpenError;
use crate::input::Input;
use crate::kineto::Imported;
use crate::progress::Progress;
use crate::scratch::{self, Translated};

/// Message if a process cannot be chosen.
pub(crate) const NOT_SEVERAL: &str =
    "a process can be chosen in files of Nsight Systems and torch.profiler; this file has only one";

/// Returns a database that SQLite can open by name: the file itself, or a copy if it is packed or came from a
/// pipe.
pub(crate) fn database(
    input: &Input,
    mut bytes: Box<dyn BufRead + '_>,
    interrupted: &Rc<Cell<bool>>,
) -> Result<Option<TempPath>, OpenError> {
    if input.is_named_database() {
        return Ok(None);
    }
    copied(&mut bytes).map(Some).map_err(|error| input.failed(error, interrupted))
}

/// Copies all of `source` to a temporary file with a name.
fn copied(source: &mut dyn Read) -> io::Result<TempPath> {
    let (mut file, path) = NamedTempFile::with_prefix("gpuwhy-input-")?.into_parts();
    io::copy(source, &mut file)?;
    Ok(path)
}

/// Translates a process of the database that [`database`] returned.
#[cfg(feature = "nsys")]
pub(crate) fn nsys(
    input: &Input,
    copy: Option<TempPath>,
    pid: Option<u32>,
    progress: &mut Progress<'_>,
) -> Result<Translated, OpenError> {
    use crate::nsys::{Database, translate};

    let database = Database::open(copy.as_deref().unwrap_or(input.path()), input.path())?;
    // SQLite has the file open, so the name is no longer needed. No file remains, however the process ends.
    drop(copy);
    translate(&database, pid, progress)
}

/// See the error.
#[cfg(not(feature = "nsys"))]
pub(crate) fn nsys(
    input: &Input,
    _: Option<TempPath>,
    _: Option<u32>,
    _: &mut Progress<'_>,
) -> Result<Translated, OpenError> {
    let why = "an SQLite file, which this build cannot read: the crate's feature `export` is off";
    Err(OpenError::refused(input.path(), why))
}

/// What to do about a report of a file without CUDA data.
pub(crate) fn without_cuda() -> String {
    #[cfg(feature = "nsys")]
    return format!("This is {}.", crate::nsys::WITHOUT_CUDA);
    #[cfg(not(feature = "nsys"))]
    String::new()
}

/// Translates a JSON text of Kineto, without its operators. `imported` is the result of reading it.
pub(crate) fn kineto(path: &Path, imported: Imported, ask: &mut Progress<'_>) -> Result<File, OpenError> {
    let trace = scratch::create()?;
    let out = BufWriter::new(trace.try_clone().map_err(scratch::failed)?);
    imported.translate(out, &mut || ask(1, 1)).map_err(|error| OpenError::kineto(path, error))?;
    Ok(trace)
}
