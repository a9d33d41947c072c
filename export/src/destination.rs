//! Destination of an export, and its checks.
//!
//! Existing files are only replaced on request, and only if they are regular files: renaming onto a device or
//! a pipe would remove it for all users. Devices and pipes are written in place if the format is a stream. An
//! input trace is never replaced.

use std::fs::{self, File, FileType, Metadata};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::error::ExportError;

/// Standard output, as a file name on the command line.
const STDOUT: [&str; 2] = ["-", "/dev/stdout"];

const EXISTS: &str = "this file exists; choose another name, or replace it with --force";
const INPUT: &str = "this is one of the traces to read, which are never replaced; choose another name";
pub const LINK: &str = "this is a symbolic link; name its target";
const FOLDER: &str = "this is a folder; name a file in it";
const NO_FOLDER: &str = "not a folder; this format is written as a folder";
const NO_STREAM: &str = "this format cannot be written to standard output, a device or a pipe; name a file";
const OTHER: &str = "not a regular file, pipe or character device";
/// Used if the parent folder of a file does not exist.
pub const MISSING: &str = "this folder does not exist; create it first";

/// How a format is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Sequentially: to a file, standard output, a pipe or a character device.
    Stream,
    /// To a file with random access.
    File,
    /// As a folder.
    Folder,
}

/// Destination of an export. No file is created before it is written.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
    kind: DestinationKind,
}

#[derive(Debug)]
enum DestinationKind {
    /// A regular file, or a folder.
    Named {
        replace: bool,
    },
    /// A pipe or a character device, open.
    Stream(File),
    Stdout(File),
}

impl Destination {
    /// Creates a destination at `path`; `-` means standard output. With `replace`, an existing regular file
    /// is replaced once the new one is complete. `inputs` are the files that are read.
    ///
    /// A pipe is opened here, which blocks until it has a reader.
    ///
    /// # Errors
    /// If writing there is impossible or not allowed; the error states the reason.
    pub fn new(path: &Path, shape: Shape, replace: bool, inputs: &[PathBuf]) -> Result<Self, ExportError> {
        let refused = |why| Err(ExportError::foreign(path, why));
        let at = |kind| Ok(Self { path: path.to_owned(), kind });
        if STDOUT.iter().any(|name| path == Path::new(name)) {
            if shape != Shape::Stream {
                return refused(NO_STREAM);
            }
            let stdout = io::stdout().as_fd().try_clone_to_owned().map_err(ExportError::output)?;
            return Ok(Self { path: "standard output".into(), kind: DestinationKind::Stdout(stdout.into()) });
        }
        let Some(found) = found(path)? else {
            let parent = folder(path);
            return if parent.is_dir() {
                at(DestinationKind::Named { replace })
            } else {
                Err(ExportError::foreign(parent, MISSING))
            };
        };
        if shape == Shape::Folder {
            return if found.is_dir() { at(DestinationKind::Named { replace }) } else { refused(NO_FOLDER) };
        }
        if is_stream(found.file_type()) {
            return if shape == Shape::Stream {
                at(DestinationKind::Stream(opened(path)?))
            } else {
                refused(NO_STREAM)
            };
        }
        if inputs.iter().any(|input| is_same(input, &found)) {
            return refused(INPUT);
        }
        admit(path, &found, replace)?;
        at(DestinationKind::Named { replace })
    }

    /// Name for messages: the path, or `standard output`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the destination is a file or folder that is incomplete until the end and must be removed on
    /// failure.
    pub fn is_named(&self) -> bool {
        matches!(self.kind, DestinationKind::Named { .. })
    }

    /// True if it is standard output.
    pub fn is_stdout(&self) -> bool {
        matches!(self.kind, DestinationKind::Stdout(_))
    }

    /// True if an existing file is replaced.
    pub(crate) fn replaces(&self) -> bool {
        matches!(self.kind, DestinationKind::Named { replace: true })
    }

    /// The open stream, if it is one.
    pub(crate) fn into_stream(self) -> Result<File, Self> {
        match self.kind {
            DestinationKind::Stream(file) | DestinationKind::Stdout(file) => Ok(file),
            DestinationKind::Named { .. } => Err(self),
        }
    }
}

/// Fails if `path` exists and may not be replaced.
pub fn check(path: &Path, replace: bool) -> Result<(), ExportError> {
    found(path)?.map_or(Ok(()), |found| admit(path, &found, replace))
}

/// Folder that contains `path`.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn admit(path: &Path, found: &Metadata, replace: bool) -> Result<(), ExportError> {
    let why = match found.file_type() {
        kind if kind.is_dir() => FOLDER,
        kind if !kind.is_file() => OTHER,
        _ if !replace => EXISTS,
        _ => return Ok(()),
    };
    Err(ExportError::foreign(path, why))
}

/// Metadata of `path`, if it exists. Symbolic links are followed only to devices, pipes and folders, such as
/// `/dev/fd/3`; a file to be replaced must be named directly.
fn found(path: &Path) -> Result<Option<Metadata>, ExportError> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(|error| ExportError::io(path, error))?,
    };
    if !found.is_symlink() {
        return Ok(Some(found));
    }
    match fs::metadata(path) {
        Ok(target) if target.is_dir() || is_stream(target.file_type()) => Ok(Some(target)),
        _ => Err(ExportError::foreign(path, LINK)),
    }
}

fn is_stream(kind: FileType) -> bool {
    kind.is_char_device() || kind.is_fifo()
}

fn is_same(input: &Path, found: &Metadata) -> bool {
    fs::metadata(input).is_ok_and(|input| (input.dev(), input.ino()) == (found.dev(), found.ino()))
}

/// Opens a pipe or device; fails if it has been replaced by another kind of file.
fn opened(path: &Path) -> Result<File, ExportError> {
    let failed = |error| ExportError::io(path, error);
    let file = File::options().write(true).open(path).map_err(failed)?;
    let kind = file.metadata().map_err(failed)?.file_type();
    if is_stream(kind) { Ok(file) } else { Err(ExportError::foreign(path, OTHER)) }
}
