//! Finds the files that belong to gpuwhy: `libprof.so`, and the files of the demo.
//!
//! Searches relative to the running executable, so an unpacked archive works anywhere and a cargo target
//! folder works without installing. A path in an environment variable has precedence and is the only one
//! tried: silently using another library than the requested one would be worse than an error.
//!
//! A wheel puts the command into the scripts folder and the library into the module (`pip install`,
//! `--prefix`, `--user`, `--target`, uv, pipx). Then both have the same version; a mismatch is reported with
//! both paths.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSection as _, ReadCache};
use tracing::info;

use crate::message;

/// The library that the CUDA driver loads.
pub const LIBRARY: &str = "libprof.so";

/// ELF section with the version of the library (`inject/src/entry.rs`).
const VERSION_SECTION: &str = ".gpuwhy_version";

/// Variable that names the library for the CUDA driver to load.
pub const INJECTION: &str = "CUDA_INJECTION64_PATH";
/// Variable that names the library that receives NVTX ranges.
pub const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";

/// Variable that names [`LIBRARY`] in another location.
pub const LIBRARY_VARIABLE: &str = "GPUWHY_LIB";

/// Folder of the library within the Python module.
const MODULE: &str = "gpuwhy/_lib";
/// Package folders: Debian uses a different name.
const PACKAGES: [&str; 2] = ["site-packages", "dist-packages"];

/// Error: a file is not in any of the expected places.
#[derive(Debug)]
pub struct NotFound {
    /// Name of the file.
    pub file: String,
    /// Paths that were tried, in this order.
    pub looked: Vec<PathBuf>,
    /// The variable that named the file, if one did.
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
                write!(
                    f,
                    "In a source checkout `cargo build -p gpuwhy-inject` builds it; `pip install gpuwhy` brings it."
                )
            }
            None => write!(f, "\nPut it next to gpuwhy."),
        }
    }
}

impl std::error::Error for NotFound {}

/// Absolute path of `libprof.so`. Warns if its version differs from that of this command.
pub fn library() -> Result<PathBuf, NotFound> {
    let found = match std::env::var_os(LIBRARY_VARIABLE).filter(|value| !value.is_empty()) {
        Some(path) => named(LIBRARY, path.as_ref(), LIBRARY_VARIABLE),
        None => next_to_executable(LIBRARY),
    }?;
    let command = std::env::current_exe().unwrap_or_else(|_| "gpuwhy".into());
    if let Some(text) = other_version(&command, &found) {
        message::say(&text);
    }
    Ok(found)
}

/// Warning about the version of `library`, if it differs. `None` for a library without a version, from before
/// 0.2.0.
fn other_version(command: &Path, library: &Path) -> Option<String> {
    let file = ReadCache::new(File::open(library).ok()?);
    let elf = ElfFile64::<LittleEndian, _>::parse(&file).ok()?;
    let version = String::from_utf8_lossy(elf.section_by_name(VERSION_SECTION)?.data().ok()?);
    let version = version.trim_end_matches('\0');
    let own = env!("CARGO_PKG_VERSION");
    (version != own).then(|| {
        let (command, library) = (command.display(), library.display());
        format!(
            "versions differ: {command} is {own}, and {library} is {version}. Install both from one package, or name the \
             right library in {LIBRARY_VARIABLE}."
        )
    })
}

/// Absolute path of a file that is delivered with gpuwhy.
pub fn next_to_executable(file: &str) -> Result<PathBuf, NotFound> {
    let places = executable_folder().map(|folder| places(&folder)).unwrap_or_default();
    first_file(file, &places)
}

/// Folder of the running executable, with all symbolic links resolved.
pub fn executable_folder() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.canonicalize().ok()?.parent()?.to_owned())
}

/// Candidates for the source checkout of this program: the folder that cargo sets when it runs the program,
/// and the executable's folder with two of its parents, up from `target/release/`. The build path is not
/// embedded, because it would reveal information about the builder.
pub fn possible_checkouts() -> Vec<PathBuf> {
    let run_by_cargo = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let folder = executable_folder().unwrap_or_default();
    run_by_cargo.into_iter().chain(folder.ancestors().take(3).map(Path::to_owned)).collect()
}

/// Possible folders for the files of an executable in `folder`.
///
/// `deps` comes first because cargo writes the libraries of dependencies there. It links them one level up
/// only when their package was requested by name, so the one above may be older.
fn places(folder: &Path) -> Vec<PathBuf> {
    let mut places = vec![folder.join("deps"), folder.to_owned()];
    if let Some(prefix) = folder.parent() {
        places.extend([prefix.join("lib"), prefix.join("lib64"), prefix.join("lib/gpuwhy")]);
        places.extend(wheel_places(prefix));
    }
    places
}

/// Possible folders of the library in a wheel whose command is in `bin` of `prefix`.
fn wheel_places(prefix: &Path) -> Vec<PathBuf> {
    // `pip install --target` puts the module next to `bin`.
    let mut places = vec![prefix.join(MODULE)];
    for lib in ["lib", "lib64"].map(|lib| prefix.join(lib)) {
        let entries = fs::read_dir(&lib).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut pythons: Vec<_> = entries.filter(|path| is_python(path)).collect();
        pythons.sort();
        places.extend(pythons.iter().flat_map(|python| PACKAGES.map(|folder| python.join(folder).join(MODULE))));
    }
    places
}

/// True for a folder of a Python version, such as `python3.12` or `pypy3.11`.
fn is_python(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    name.starts_with("python3") || name.starts_with("pypy3")
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

/// `path` made absolute, because the program that inherits it may change its working directory. Fails unless
/// it is a file.
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

/// Value of [`INJECTION`] or [`NVTX_INJECTION`], unless it is unset, empty, or any path to `library`.
pub fn other_library(variable: &str, library: &Path) -> Option<OsString> {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty())?;
    let same = Path::new(&value).canonicalize().is_ok_and(|path| Some(path) == library.canonicalize().ok());
    (!same).then_some(value)
}

#[cfg(test)]
mod tests {
    use object::{Architecture, BinaryFormat, Endianness, SectionKind, write};

    use super::*;

    #[test]
    fn an_installed_library_is_found_in_the_lib_folder_of_the_prefix() {
        let prefix = tempfile::tempdir().unwrap();
        let (bin, lib) = (prefix.path().join("bin"), prefix.path().join("lib"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&lib).unwrap();

        let missing = first_file(LIBRARY, &places(&bin)).unwrap_err();
        assert!(missing.looked.contains(&bin.join(LIBRARY)));
        assert!(missing.to_string().contains(LIBRARY_VARIABLE));

        fs::write(lib.join(LIBRARY), "").unwrap();
        assert_eq!(first_file(LIBRARY, &places(&bin)).unwrap(), lib.join(LIBRARY));
    }

    #[test]
    fn the_library_that_cargo_has_just_built_wins_over_an_older_link() {
        let target = tempfile::tempdir().unwrap();
        let deps = target.path().join("deps");
        fs::create_dir(&deps).unwrap();
        fs::write(target.path().join(LIBRARY), "older").unwrap();
        fs::write(deps.join(LIBRARY), "newer").unwrap();
        assert_eq!(first_file(LIBRARY, &places(target.path())).unwrap(), deps.join(LIBRARY));
    }

    #[test]
    fn the_library_of_a_wheel_is_found_wherever_pip_puts_it() {
        for module in
            ["gpuwhy/_lib", "lib/python3.12/site-packages/gpuwhy/_lib", "lib64/python3.9/site-packages/gpuwhy/_lib"]
        {
            let prefix = tempfile::tempdir().unwrap();
            let (bin, module) = (prefix.path().join("bin"), prefix.path().join(module));
            fs::create_dir_all(&bin).unwrap();
            fs::create_dir_all(&module).unwrap();
            fs::write(module.join(LIBRARY), "").unwrap();
            assert_eq!(first_file(LIBRARY, &places(&bin)).unwrap(), module.join(LIBRARY));
        }
    }

    /// An ELF file with this version in its version section.
    fn library_of(version: &str) -> Vec<u8> {
        let mut file = write::Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let section = file.add_section(Vec::new(), VERSION_SECTION.into(), SectionKind::ReadOnlyData);
        file.set_section_data(section, version.as_bytes(), 1);
        file.write().unwrap()
    }

    #[test]
    fn a_library_of_another_version_is_named_with_both_paths() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join(LIBRARY);
        for (version, differs) in [("0.1.9\0", true), (concat!(env!("CARGO_PKG_VERSION"), "\0"), false)] {
            fs::write(&library, library_of(version)).unwrap();
            let text = other_version(Path::new("/opt/bin/gpuwhy"), &library);
            assert_eq!(text.is_some(), differs, "{text:?}");
            if let Some(text) = text {
                assert!(text.contains("/opt/bin/gpuwhy") && text.contains(&library.display().to_string()), "{text}");
                assert!(text.contains("0.1.9"), "{text}");
            }
        }
        fs::write(&library, "no library").unwrap();
        assert_eq!(other_version(Path::new("gpuwhy"), &library), None);
    }

    #[test]
    fn a_variable_that_names_no_file_is_an_error_and_not_a_hint() {
        let error = named(LIBRARY, OsStr::new("/nowhere/libprof.so"), LIBRARY_VARIABLE).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/nowhere/libprof.so") && text.contains(LIBRARY_VARIABLE), "{text}");
    }
}
