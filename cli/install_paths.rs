//! Finds the files that belong to gpuwhy: `libprof.so`, and what the demo needs.
//!
//! They are looked for relative to the running executable, so an unpacked archive works wherever it lies and
//! a cargo target folder works without installing. A place in an environment variable wins, and is the only
//! one tried: silently taking another library than the one asked for would be worse than an error.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use tracing::info;

/// The library that the CUDA driver loads.
pub const LIBRARY: &str = "libprof.so";

/// The variable that names [`LIBRARY`] when it lies somewhere else.
pub const LIBRARY_VARIABLE: &str = "GPUWHY_LIB";

/// A file was not in any of the places where it can be.
#[derive(Debug)]
pub struct NotFound {
    /// Its name.
    pub file: String,
    /// Where it was looked for, in this order.
    pub looked: Vec<PathBuf>,
    /// The variable that named it, when one did.
    pub variable: Option<&'static str>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, looked, variable } = self;
        match variable {
            Some(variable) => write!(f, "{file} not found: {variable} names")?,
            None => write!(f, "{file} not found. Looked for")?,
        }
        for path in looked {
            write!(f, "\n  {}", path.display())?;
        }
        match variable {
            Some(_) => write!(f, "\nwhich is not a file. Correct the variable or unset it."),
            None if file == LIBRARY => {
                write!(f, "\nPut it next to gpuwhy or name it in {LIBRARY_VARIABLE}. ")?;
                write!(f, "In a source checkout `cargo build -p gpuwhy-inject` builds it.")
            }
            None => write!(f, "\nPut it next to gpuwhy."),
        }
    }
}

impl std::error::Error for NotFound {}

/// The absolute path of `libprof.so`.
pub fn library() -> Result<PathBuf, NotFound> {
    match std::env::var_os(LIBRARY_VARIABLE).filter(|value| !value.is_empty()) {
        Some(path) => named(LIBRARY, path.as_ref(), LIBRARY_VARIABLE),
        None => beside_executable(LIBRARY),
    }
}

/// The absolute path of a file that is delivered with gpuwhy.
pub fn beside_executable(file: &str) -> Result<PathBuf, NotFound> {
    let places = executable_folder().map(|folder| places(&folder)).unwrap_or_default();
    first_file(file, &places)
}

/// The folder of the running executable, behind all symbolic links.
pub fn executable_folder() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.canonicalize().ok()?.parent()?.to_owned())
}

/// Where files of an executable in `folder` can be.
///
/// `deps` comes first because cargo writes the libraries of dependencies there and links them one level up
/// only when their package was asked for by name: the one above may be older.
fn places(folder: &Path) -> Vec<PathBuf> {
    let mut places = vec![folder.join("deps"), folder.to_owned()];
    if let Some(prefix) = folder.parent() {
        places.extend([prefix.join("lib"), prefix.join("lib64"), prefix.join("lib/gpuwhy")]);
    }
    places
}

fn first_file(file: &str, places: &[PathBuf]) -> Result<PathBuf, NotFound> {
    let looked: Vec<PathBuf> = places.iter().map(|place| place.join(file)).collect();
    match looked.iter().find(|path| path.is_file()) {
        Some(path) => {
            info!(?path, "found {file}");
            Ok(path.clone())
        }
        None => Err(NotFound { file: file.to_owned(), looked, variable: None }),
    }
}

/// `path` made absolute, because the program that inherits it may change its working directory.
fn named(file: &str, path: &OsStr, variable: &'static str) -> Result<PathBuf, NotFound> {
    let path = Path::new(path);
    match path.canonicalize() {
        Ok(absolute) if absolute.is_file() => {
            info!(path = ?absolute, "{variable} names {file}");
            Ok(absolute)
        }
        _ => Err(NotFound { file: file.to_owned(), looked: vec![path.to_owned()], variable: Some(variable) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_library_is_found_in_the_lib_folder_of_the_prefix() {
        let prefix = tempfile::tempdir().unwrap();
        let (bin, lib) = (prefix.path().join("bin"), prefix.path().join("lib"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();

        let missing = first_file(LIBRARY, &places(&bin)).unwrap_err();
        assert!(missing.looked.contains(&bin.join(LIBRARY)));
        assert!(missing.to_string().contains(LIBRARY_VARIABLE));

        std::fs::write(lib.join(LIBRARY), "").unwrap();
        assert_eq!(first_file(LIBRARY, &places(&bin)).unwrap(), lib.join(LIBRARY));
    }

    #[test]
    fn the_library_that_cargo_has_just_built_wins_over_an_older_link() {
        let target = tempfile::tempdir().unwrap();
        let deps = target.path().join("deps");
        std::fs::create_dir(&deps).unwrap();
        std::fs::write(target.path().join(LIBRARY), "older").unwrap();
        std::fs::write(deps.join(LIBRARY), "newer").unwrap();
        assert_eq!(first_file(LIBRARY, &places(target.path())).unwrap(), deps.join(LIBRARY));
    }

    #[test]
    fn a_variable_that_names_no_file_is_an_error_and_not_a_hint() {
        let error = named(LIBRARY, OsStr::new("/nowhere/libprof.so"), LIBRARY_VARIABLE).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/nowhere/libprof.so") && text.contains(LIBRARY_VARIABLE), "{text}");
    }
}
