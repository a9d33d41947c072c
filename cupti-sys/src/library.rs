//! Loads one libcupti for the life of the process.
//!
//! The library is never closed: CUPTI leaves hooks in the driver, and some versions crash after `dlclose`. So a
//! loaded [`Cupti`] is `'static`. Loading calls no CUPTI function.
//!
//! No library is returned before the driver is loaded: if CUPTI 13.2 cannot initialize, it overflows the stack in its
//! first call, while other versions return errors.

pub use crate::cupti::Cupti;
use crate::driver::require_driver;
pub use crate::driver::{driver_cuda_version, driver_cuda_version_by_loading, kernel_driver_version};
pub use crate::search::{FoundBy, Location, Search, Skip, discover};

use crate::symbols::Symbols;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::error::Error as _;
use std::ffi::{CStr, OsStr, c_void};
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Why a candidate is not the libcupti of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Not tried.
    Skipped(Skip),
    /// The dynamic linker's error message.
    NotLoaded(String),
    /// It lacks functions that every CUPTI since 11.8 has.
    MissingFunctions(Vec<&'static str>),
    /// It must not be called, because there is no driver: why it cannot be used.
    NoDriver(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped(skip) => skip.fmt(f),
            Self::NotLoaded(reason) => f.write_str(reason),
            Self::MissingFunctions(names) => {
                write!(f, "is no CUPTI of CUDA 11.8 or later: it lacks {}", names.join(", "))
            }
            Self::NoDriver(why) => write!(f, "needs the NVIDIA driver: {why}"),
        }
    }
}

/// No libcupti could be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// All candidates in search order, and what was wrong with each.
    pub tried: Vec<(Location, Failure)>,
}

impl LoadError {
    /// Why the driver cannot be used, if a library was found that only needs a driver.
    pub fn no_driver(&self) -> Option<&str> {
        self.tried.iter().find_map(|(_, failure)| match failure {
            Failure::NoDriver(why) => Some(why.as_str()),
            _ => None,
        })
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = self.no_driver() {
            return write!(
                f,
                "no NVIDIA driver or GPU: {why}; install the driver, or in a container start it with --gpus all"
            );
        }
        f.write_str(
            "no usable libcupti found; install the nvidia-cuda-cupti package or a CUDA toolkit no newer than the driver. Tried:",
        )?;
        for (candidate, failure) in &self.tried {
            write!(f, "\n  {} ({}): {failure}", candidate.path.display(), candidate.found_by)?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}

impl Cupti {
    /// Loads the first usable candidate of [`discover`], and keeps it loaded. Loads the driver's library too, as CUPTI
    /// does in its first call.
    ///
    /// A candidate that loads but lacks functions stays mapped too, because unloading may crash.
    ///
    /// # Errors
    /// If no candidate is usable; lists each candidate and its failure. If there is no driver.
    pub fn load(search: &Search) -> Result<&'static Self, LoadError> {
        first(search, |library| if is_replay(library) { Ok(()) } else { require_driver() })
    }

    /// Same as [`load`](Self::load), without a driver: for tests of versions that are known to return from their calls
    /// then. **CUPTI 13.2 crashes the process.**
    ///
    /// # Errors
    /// If no candidate is usable; lists each candidate and its failure.
    pub fn load_without_driver(search: &Search) -> Result<&'static Self, LoadError> {
        first(search, |_| Ok(()))
    }
}

/// Loads the first candidate that `may_be_called`.
fn first(search: &Search, may_be_called: impl Fn(&Library) -> Result<(), String>) -> Result<&'static Cupti, LoadError> {
    let mut tried = Vec::new();
    for candidate in discover(search) {
        let opened =
            open(&candidate).and_then(|cupti| may_be_called(&cupti.library).map(|()| cupti).map_err(Failure::NoDriver));
        match opened {
            Ok(cupti) => return Ok(Box::leak(Box::new(cupti))),
            // The others need it too.
            Err(failure @ Failure::NoDriver(_)) => {
                tried.push((candidate, failure));
                break;
            }
            Err(failure) => tried.push((candidate, failure)),
        }
    }
    Err(LoadError { tried })
}

/// True for the replay library of tests and of the demo, which plays recordings and needs no driver.
fn is_replay(library: &Library) -> bool {
    // SAFETY: the symbol is only looked up.
    unsafe { library.get::<*const c_void>("gpuwhy_replay_play") }.is_ok()
}

/// True if the path exists but is not a regular file: opening a pipe, the dynamic linker would wait for a
/// writer. A bare name is not checked; the linker searches its own folders for it.
pub fn is_no_file(path: &Path) -> bool {
    path.components().count() > 1 && path.metadata().is_ok_and(|found| !found.is_file())
}

fn open(candidate: &Location) -> Result<Cupti, Failure> {
    if let Some(skip) = &candidate.skip {
        return Err(Failure::Skipped(skip.clone()));
    }
    if is_no_file(&candidate.path) {
        return Err(Failure::NotLoaded("exists and is no regular file".to_owned()));
    }
    // A library that the program has mapped is only looked up: if it was unmapped meanwhile, a fresh copy
    // would be another library.
    let only_mapped = matches!(candidate.found_by, FoundBy::Mapped | FoundBy::MappedDespiteOverride(_));
    let flags = RTLD_NOW | RTLD_LOCAL | if only_mapped { libc::RTLD_NOLOAD } else { 0 };
    // SAFETY: the candidate is a libcupti by name or by the user's choice; its initializers run once in the
    // process.
    let library = unsafe { Library::open(Some(&candidate.path), flags) }.map_err(|error| {
        // The linker's own message is one level down.
        Failure::NotLoaded(error.source().map_or_else(|| error.to_string(), ToString::to_string))
    })?;
    let library = ManuallyDrop::new(library);
    let symbols = Symbols::resolve(&library).map_err(Failure::MissingFunctions)?;
    let path = file_of(symbols.get_version as *const c_void).unwrap_or_else(|| candidate.path.clone());
    Ok(Cupti { symbols, path, found_by: candidate.found_by.clone(), library, flushing: Mutex::new(()) })
}

/// The file that a function was loaded from: the result of the linker's search for a bare name.
fn file_of(function: *const c_void) -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` accepts any address; the result goes to a live local.
    let found = unsafe { libc::dladdr(function, info.as_mut_ptr()) } != 0;
    // SAFETY: all zeroes is a valid value of this struct of pointers, and `dladdr` only stores valid
    // pointers.
    let name = unsafe { info.assume_init() }.dli_fname;
    if !found || name.is_null() {
        return None;
    }
    // SAFETY: a name in the linker's list, which lives as long as the library, which is never unloaded.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_every_place_and_its_reason() {
        let search = Search {
            override_path: Some("/nowhere/libcupti.so.13".into()),
            driver_cuda_version: Some(12_040),
            ..Search::default()
        };
        // Bare names are not tried here: this host may have a libcupti.
        let tried = discover(&search).into_iter().filter_map(|candidate| {
            let bare = candidate.skip.is_none() && candidate.found_by == FoundBy::Linker;
            let failure = if bare { Failure::NotLoaded("not tried".to_owned()) } else { open(&candidate).err()? };
            Some((candidate, failure))
        });
        let text = LoadError { tried: tried.collect() }.to_string();
        assert!(
            text.contains("\n  /nowhere/libcupti.so.13 (named by the user): /nowhere/libcupti.so.13: cannot open"),
            "{text}"
        );
        let skipped = "libcupti.so.13 (found by the dynamic linker): for CUDA 13, but the driver supports only 12.4";
        assert!(text.contains(skipped), "{text}");
        assert!(text.contains("libcupti.so.11.8"), "{text}");
    }

    #[test]
    fn a_library_without_cupti_functions_is_refused_by_name() {
        let libc = Location { path: "libc.so.6".into(), found_by: FoundBy::Override, skip: None };
        let Err(Failure::MissingFunctions(names)) = open(&libc) else { panic!("libc is no libcupti") };
        assert!(names.contains(&"cuptiGetVersion"));
    }
}
