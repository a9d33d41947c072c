//! `gpuwhy run --pytorch`: has PyTorch make NVTX ranges without a change to the program.
//!
//! A small Python file is unpacked into a folder of its own, which is put at the front of `PYTHONPATH`.
//! gpuwhy becomes the program and cannot remove it afterwards, so the Python file does when the program ends
//! by itself.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result};

/// What Python imports at its start.
const SITECUSTOMIZE: &str = include_str!("sitecustomize.py");

/// Folders of other runs with the same process id that are stepped over; each is one that could not be removed.
const ATTEMPTS: usize = 100;

/// Unpacks the file for one of its modes, and gives the `PYTHONPATH` that has it imported. Fails when no folder for
/// temporary files can be written to.
pub fn python_path(mode: &str) -> Result<OsString> {
    let folder = create_folder(&env::temp_dir()).context("cannot unpack the Python part of --pytorch")?;
    let file = folder.join("sitecustomize.py");
    let call = format!("\nmain({mode:?}, owner={})\n", process::id());
    fs::write(&file, format!("{SITECUSTOMIZE}{call}")).with_context(|| file.display().to_string())?;
    let old = env::var_os("PYTHONPATH").filter(|path| !path.is_empty());
    let folders = std::iter::once(folder).chain(old.iter().flat_map(env::split_paths));
    env::join_paths(folders).context("PYTHONPATH")
}

/// A new folder that is nobody else's to write to: Python will run what is in it.
fn create_folder(place: &Path) -> io::Result<PathBuf> {
    let place = std::path::absolute(place)?;
    let names = (0..ATTEMPTS).map(|attempt| place.join(format!("gpuwhy-python-{}-{attempt}", process::id())));
    let mut last = io::ErrorKind::AlreadyExists.into();
    for folder in names {
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display()))),
        }
    }
    Err(last)
}
