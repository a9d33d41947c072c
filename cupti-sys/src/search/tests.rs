//! The order of the search, on made-up file systems and processes.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed with its contents.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("cupti-search-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, path: &str) -> PathBuf {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn usable(search: &Search) -> Vec<(PathBuf, FoundBy)> {
    let candidates = discover(search).into_iter();
    candidates.filter(|candidate| candidate.skip.is_none()).map(|c| (c.path, c.found_by)).collect()
}

#[test]
fn a_mapped_library_wins_over_everything_and_says_why() {
    let folder = Folder::new();
    let (mapped, named) = (folder.file("a/libcupti.so.12"), folder.file("b/libcupti.so.13"));
    let mut search = Search { mapped: vec!["/lib/libc.so.6".into(), mapped.clone()], ..Search::default() };
    assert_eq!(usable(&search)[0], (mapped.clone(), FoundBy::Mapped));

    search.override_path = Some(named.clone());
    assert_eq!(usable(&search)[0], (mapped.clone(), FoundBy::MappedDespiteOverride(named)));

    search.override_path = Some(folder.0.join("a/../a/libcupti.so.12"));
    assert_eq!(usable(&search)[0], (mapped, FoundBy::Override));
}

#[test]
fn an_override_wins_when_nothing_is_mapped_whatever_its_name() {
    let folder = Folder::new();
    let named = folder.file("libcupti_replay.so");
    let search = Search { override_path: Some(named.clone()), driver_cuda_version: Some(12_000), ..Search::default() };
    assert_eq!(usable(&search)[0], (named.clone(), FoundBy::Override));
    // A library that replays recordings is not a second CUPTI, even when it is mapped.
    let search = Search { mapped: vec![named.clone()], ..search };
    assert_eq!(usable(&search)[0], (named, FoundBy::Override));
}

#[test]
fn packages_of_the_process_come_before_toolkits_before_the_linker() {
    let folder = Folder::new();
    let torch = folder.file("venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so");
    let cu13 = folder.file("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13");
    let cu12 = folder.file("venv/lib/python3.12/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12");
    let toolkit = folder.file("cuda/extras/CUPTI/lib64/libcupti.so.13");
    let search = Search { mapped: vec![torch], toolkits: vec![folder.0.join("cuda")], ..Search::default() };
    let paths: Vec<_> = usable(&search).into_iter().map(|(path, _)| path).collect();
    let linker = FILE_NAMES.iter().map(PathBuf::from);
    assert_eq!(paths, [cu13, cu12, toolkit].into_iter().chain(linker).collect::<Vec<_>>());
}

#[test]
fn a_python_environment_is_searched_without_anything_mapped() {
    let folder = Folder::new();
    let package = folder.file("lib/python3.11/site-packages/nvidia/cu13/lib/libcupti.so.13");
    let search = Search { environments: vec![folder.0.clone()], ..Search::default() };
    let site = folder.0.join("lib/python3.11/site-packages");
    assert_eq!(usable(&search)[0], (package, FoundBy::Package(site)));
}

#[test]
fn libraries_newer_than_the_driver_are_listed_but_not_tried() {
    let folder = Folder::new();
    let newer = folder.file("cuda/extras/CUPTI/lib64/libcupti.so.13");
    let older = folder.file("cuda/extras/CUPTI/lib64/libcupti.so.12");
    let search =
        Search { driver_cuda_version: Some(12_080), toolkits: vec![folder.0.join("cuda")], ..Search::default() };
    let candidates = discover(&search);
    let skip_of = |path: &PathBuf| candidates.iter().find(|c| &c.path == path).map(|c| c.skip.clone());
    assert_eq!(skip_of(&newer), Some(Some(Skip::NewerThanDriver { library: 13, driver: 12_080 })));
    assert_eq!(skip_of(&older), Some(None));
    assert_eq!(skip_of(&"libcupti.so.13".into()), Some(Some(Skip::NewerThanDriver { library: 13, driver: 12_080 })));
    assert_eq!(usable(&search)[0].0, older);
}

#[test]
fn folders_without_a_library_and_second_names_are_listed_with_the_reason() {
    let folder = Folder::new();
    folder.file("cuda-13.0/extras/CUPTI/lib64/libcupti.so.13");
    std::os::unix::fs::symlink(folder.0.join("cuda-13.0"), folder.0.join("cuda")).unwrap();
    let toolkits = vec![folder.0.join("cuda"), folder.0.join("cuda-13.0")];
    let skips: Vec<_> = discover(&Search { toolkits, ..Search::default() }).into_iter().map(|c| c.skip).collect();
    let none = Some(Skip::NoLibraryInFolder);
    let expected = [None, none.clone(), none.clone(), Some(Skip::Duplicate), none.clone(), none, None, None, None];
    // Missing folders are not duplicates of each other: each keeps its own reason.
    assert_eq!(skips, expected);
}

#[test]
fn toolkit_versions_are_compared_as_numbers() {
    assert!(version_key(Path::new("/usr/local/cuda-12.10")) > version_key(Path::new("/usr/local/cuda-12.8")));
}

#[test]
fn this_process_has_its_c_library_mapped() {
    let search = Search::for_this_process();
    assert!(search.mapped.iter().any(|path| file_name(path).starts_with("libc.so")), "{:?}", search.mapped);
    assert_eq!(search.override_path, None);
}
