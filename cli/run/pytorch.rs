//! `gpuwhy run --pytorch`: makes PyTorch emit NVTX ranges, or tell its blocks of memory, without a change to the
//! program.
//!
//! Unpacks a small Python file into a separate folder and puts that at the front of `PYTHONPATH`. gpuwhy
//! becomes the program and cannot remove the folder afterwards, so the Python file does when the program
//! exits normally.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result};

/// Module that Python imports at startup.
const SITECUSTOMIZE: &str = concat!(include_str!("behind.py"), "\n\n", include_str!("sitecustomize.py"));
/// The part behind it that a mode needs, besides [`SITECUSTOMIZE`].
const MEMORY: (&str, &str) = ("memory", concat!("\n\n", include_str!("memory.py")));

/// Maximum number of leftover folders of other runs with the same process id to skip; each could not be
/// removed.
const ATTEMPTS: usize = 100;

/// Unpacks the file for `mode`, and returns the `PYTHONPATH` that imports it. Fails when no folder for
/// temporary files is writable.
pub fn python_path(mode: &str) -> Result<OsString> {
    let folder = create_folder(&env::temp_dir()).context("cannot unpack the Python part of --pytorch")?;
    let file = folder.join("sitecustomize.py");
    let more = if mode == MEMORY.0 { MEMORY.1 } else { "" };
    let call = format!("\nmain({mode:?}, owner={})\n", process::id());
    fs::write(&file, format!("{SITECUSTOMIZE}{more}{call}")).with_context(|| file.display().to_string())?;
    let old = env::var_os("PYTHONPATH").filter(|path| !path.is_empty());
    let folders = std::iter::once(folder).chain(old.iter().flat_map(env::split_paths));
    env::join_paths(folders).context("PYTHONPATH")
}

/// Creates a folder that only this user can write to: Python will run the file in it.
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
