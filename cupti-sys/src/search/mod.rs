//! Candidate locations of libcupti, and the order in which they are tried.
//!
//! Two copies of libcupti in one process compete for one slot in the driver. So a copy that is already mapped
//! wins over everything, even over an override that names another file; `found_by` then reports this. After
//! it come the override, the Python packages of this process, an installed toolkit, and the dynamic linker's
//! own search.
//!
//! Nothing is loaded here, so that a diagnostic command can list the candidates.

use crate::driver::driver_cuda_version;
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// File names of libcupti, newest first. Python packages have no unversioned name.
pub const FILE_NAMES: &[&str] = &["libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8"];

/// Folders of the Python packages below `site-packages`: since CUDA 13, and before.
const PACKAGE_FOLDERS: &[&str] = &["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"];
/// Folders of an installed toolkit.
const TOOLKIT_FOLDERS: &[&str] = &["extras/CUPTI/lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];

/// Known properties of the process before the search for libcupti.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// A file that the user names.
    pub override_path: Option<PathBuf>,
    /// The newest CUDA that the driver supports, as returned by [`driver_cuda_version`]: a libcupti with a
    /// greater major version cannot work with it. `None`: any version is tried.
    pub driver_cuda_version: Option<u32>,
    /// Files that the dynamic linker has mapped into this process.
    pub mapped: Vec<PathBuf>,
    /// Python environments (`$VIRTUAL_ENV`, `$CONDA_PREFIX`).
    pub environments: Vec<PathBuf>,
    /// Toolkits, the preferred first (`$CUDA_HOME`, `$CUDA_PATH`, `/usr/local/cuda*`).
    pub toolkits: Vec<PathBuf>,
}

impl Search {
    /// Describes this process: its mapped libraries, environment and toolkits, without an override.
    pub fn for_this_process() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let mut installed: Vec<PathBuf> = entries(Path::new("/usr/local"), "cuda");
        // `cuda`, the administrator's choice, first; then `cuda-13.0` before `cuda-12.8`.
        installed.sort_by_key(|path| (path.ends_with("cuda"), version_key(path)));
        installed.reverse();
        Self {
            override_path: None,
            driver_cuda_version: driver_cuda_version(),
            mapped: mapped_libraries(),
            environments: ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).collect(),
            toolkits: ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable).chain(installed).collect(),
        }
    }
}

/// Files of libcupti that are loaded into this process, in load order. Each is an independent CUPTI.
pub fn loaded_copies() -> Vec<PathBuf> {
    mapped_libraries().into_iter().filter(|path| is_libcupti(path)).collect()
}

/// Why a libcupti was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// The program had already mapped it.
    Mapped,
    /// The program had already mapped it, and the user named another file, which is not used.
    MappedDespiteOverride(PathBuf),
    /// The user named it.
    Override,
    /// In the Python packages below this folder.
    Package(PathBuf),
    /// Next to or below a mapped CUDA runtime.
    BesideRuntime(PathBuf),
    /// In this toolkit.
    Toolkit(PathBuf),
    /// By the dynamic linker's search.
    Linker,
}

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mapped => f.write_str("already loaded by the program"),
            Self::MappedDespiteOverride(path) => write!(
                f,
                "already loaded by the program; {} is not used, because two copies in one process fight",
                path.display()
            ),
            Self::Override => f.write_str("named by the user"),
            Self::Package(folder) => write!(f, "Python package in {}", folder.display()),
            Self::BesideRuntime(runtime) => write!(f, "found from the loaded {}", runtime.display()),
            Self::Toolkit(folder) => write!(f, "toolkit {}", folder.display()),
            Self::Linker => f.write_str("found by the dynamic linker"),
        }
    }
}

/// Why a candidate is not tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skip {
    /// CUPTI of this major version cannot initialize with this driver.
    NewerThanDriver {
        /// Major version of the library.
        library: u32,
        /// The CUDA version that the driver supports, `1000 * major + 10 * minor`.
        driver: u32,
    },
    /// The folder holds none of [`FILE_NAMES`], or does not exist.
    NoLibraryInFolder,
    /// Already tried under another name.
    Duplicate,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewerThanDriver { library, driver } => {
                write!(f, "for CUDA {library}, but the driver supports only {}.{}", driver / 1000, driver % 1000 / 10)
            }
            Self::NoLibraryInFolder => write!(f, "holds none of {}", FILE_NAMES.join(", ")),
            Self::Duplicate => f.write_str("the same file as above"),
        }
    }
}

/// One candidate location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// A file, a bare name for the dynamic linker, or a folder without a libcupti.
    pub path: PathBuf,
    /// Why it is a candidate.
    pub found_by: FoundBy,
    /// Why it is not tried; `None` if it is.
    pub skip: Option<Skip>,
}

/// Lists all candidates, in the order in which they are tried, without loading anything.
pub fn discover(search: &Search) -> Vec<Location> {
    let mut list = List { driver: search.driver_cuda_version, candidates: Vec::new() };
    let mapped = search.mapped.iter().find(|path| is_libcupti(path));
    match (mapped, &search.override_path) {
        (Some(mapped), Some(named)) if !same_file(mapped, named) => {
            list.file(mapped.clone(), FoundBy::MappedDespiteOverride(named.clone()), None);
        }
        (Some(mapped), named) => {
            let found_by = if named.is_some() { FoundBy::Override } else { FoundBy::Mapped };
            list.file(mapped.clone(), found_by, None);
        }
        // The user is responsible for the version.
        (None, Some(named)) => list.file(named.clone(), FoundBy::Override, None),
        (None, None) => {}
    }
    for site in site_packages(search) {
        for folder in PACKAGE_FOLDERS {
            list.folder(&site.join(folder), &FoundBy::Package(site.clone()));
        }
    }
    for runtime in search.mapped.iter().filter(|path| file_name(path).starts_with("libcudart.so")) {
        if let Some(folder) = runtime.parent() {
            list.folder(folder, &FoundBy::BesideRuntime(runtime.clone()));
            list.folder(&folder.join("../extras/CUPTI/lib64"), &FoundBy::BesideRuntime(runtime.clone()));
        }
    }
    for environment in &search.environments {
        list.folder(&environment.join("lib"), &FoundBy::Package(environment.clone()));
    }
    for toolkit in &search.toolkits {
        for folder in TOOLKIT_FOLDERS {
            list.folder(&toolkit.join(folder), &FoundBy::Toolkit(toolkit.clone()));
        }
    }
    for name in FILE_NAMES {
        list.file(name.into(), FoundBy::Linker, list.too_new(name));
    }
    list.candidates
}

struct List {
    driver: Option<u32>,
    candidates: Vec<Location>,
}

impl List {
    fn file(&mut self, path: PathBuf, found_by: FoundBy, skip: Option<Skip>) {
        let seen = || self.candidates.iter().any(|other| same_file(&other.path, &path));
        let skip = skip.or_else(|| seen().then_some(Skip::Duplicate));
        self.candidates.push(Location { path, found_by, skip });
    }

    fn folder(&mut self, folder: &Path, found_by: &FoundBy) {
        let present: Vec<_> = FILE_NAMES.iter().filter(|name| folder.join(name).exists()).collect();
        for name in &present {
            self.file(folder.join(name), found_by.clone(), self.too_new(name));
        }
        if present.is_empty() {
            self.file(folder.to_owned(), found_by.clone(), Some(Skip::NoLibraryInFolder));
        }
    }

    fn too_new(&self, name: &str) -> Option<Skip> {
        let library = name.strip_prefix("libcupti.so.")?.split('.').next()?.parse().ok()?;
        let driver = self.driver?;
        (library > driver / 1000).then_some(Skip::NewerThanDriver { library, driver })
    }
}

/// Folders that hold Python packages: those that mapped libraries came from, then those of the environments.
fn site_packages(search: &Search) -> Vec<PathBuf> {
    let of_mapped = search.mapped.iter().filter_map(|path| {
        let is_site = |part: &Component<'_>| matches!(part.as_os_str().as_bytes(), b"site-packages" | b"dist-packages");
        let end = path.components().position(|part| is_site(&part))?;
        Some(path.components().take(end + 1).collect::<PathBuf>())
    });
    let of_environments = search.environments.iter().flat_map(|environment| {
        entries(&environment.join("lib"), "python3").into_iter().map(|python| python.join("site-packages"))
    });
    let mut sites: Vec<PathBuf> = Vec::new();
    for site in of_mapped.chain(of_environments) {
        if !sites.contains(&site) {
            sites.push(site);
        }
    }
    sites
}

/// Paths in `folder` whose name starts with `prefix`, sorted; empty if the folder cannot be read.
fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(listing) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = listing
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| file_name(path).starts_with(prefix))
        .collect();
    paths.sort();
    paths
}

/// Numbers in a file name, so that `cuda-12.10` comes after `cuda-12.8`.
fn version_key(path: &Path) -> Vec<u32> {
    file_name(path).split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

fn is_libcupti(path: &Path) -> bool {
    file_name(path).starts_with("libcupti.so")
}

fn same_file(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Files of all loaded objects, in load order, as the dynamic linker names them.
fn mapped_libraries() -> Vec<PathBuf> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _size: usize, paths: *mut c_void) -> c_int {
        // SAFETY: the linker passes a live description whose name is NUL-terminated or NULL. `paths` is the
        // vector below, which is not used elsewhere meanwhile. Pushing may abort on lack of memory but does
        // not unwind.
        unsafe {
            let name = (*info).dlpi_name;
            if !name.is_null() && *name != 0 {
                let path = OsStr::from_bytes(CStr::from_ptr(name).to_bytes());
                (*paths.cast::<Vec<PathBuf>>()).push(path.into());
            }
        }
        0
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    // SAFETY: `note` matches the expected type and gets the vector that outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut paths).cast()) };
    paths
}

#[cfg(test)]
mod tests;
