//! cupti-sys with the libcupti of real releases, fetched from the Python package index.
//!
//! Needs no GPU: up to CUDA 13.1 libcupti provides version, names and its record iterator without a driver;
//! later ones are only loaded. Each runs in a separate process. Without network the test prints SKIPPED and
//! the reason; `CUPTI_LAYOUT_CHECK=required` makes it fail instead.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A package with a libcupti.
pub struct Package {
    /// Its name in the index.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Path of the library in the package.
    pub file: &'static str,
}

/// Packages of CUDA 12, without a version.
pub const CU12: Package =
    Package { name: "nvidia-cuda-cupti-cu12", version: "", file: "nvidia/cuda_cupti/lib/libcupti.so.12" };
/// Packages of CUDA 13, without a version.
pub const CU13: Package = Package { name: "nvidia-cuda-cupti", version: "", file: "nvidia/cu13/lib/libcupti.so.13" };

/// A released library and its expected properties.
struct Release {
    package: Package,
    /// Return value of `cuptiGetVersion`; `None`: must not be called without a driver.
    api: Option<u32>,
    /// Optional functions that were added later.
    missing: &'static [&'static str],
    /// Record sizes by kind, in bytes.
    sizes: &'static [(u32, u32)],
}

const FILTERS: [&str; 2] = ["cuptiActivityEnableRuntimeApi", "cuptiActivityEnableDriverApi"];
const STRUCT_SIZE: &str = "cuptiActivityGetStructSize";
const GRAPH_EXEC_ID: &str = "cuptiGetGraphExecId";

/// Those that PyTorch 2.7 to 2.15 install (12.6.80, 12.8.90, 13.0.85, 13.2.86), others, and the newest. The sizes were
/// measured on them. Kinds: kernel 10, memcpy 1, memset 2, peer copy 22, driver 4, runtime 5,
/// synchronization 38, event 36, overhead 17, device 8, context 9, graph 51.
const RELEASES: &[Release] = &[
    Release {
        package: Package {
            name: "nvidia-cuda-cupti-cu11",
            version: "11.8.87",
            file: "nvidia/cuda_cupti/lib/libcupti.so.11.8",
        },
        api: Some(18),
        missing: &[FILTERS[0], FILTERS[1], STRUCT_SIZE, GRAPH_EXEC_ID],
        sizes: &[
            (10, 200),
            (1, 88),
            (2, 88),
            (22, 96),
            (4, 40),
            (5, 40),
            (38, 40),
            (36, 24),
            (17, 40),
            (8, 176),
            (9, 16),
            (51, 48),
        ],
    },
    Release {
        package: Package { version: "12.4.127", ..CU12 },
        api: Some(22),
        missing: &[FILTERS[0], FILTERS[1], STRUCT_SIZE],
        sizes: &[
            (10, 208),
            (1, 88),
            (2, 88),
            (22, 96),
            (4, 40),
            (5, 40),
            (38, 40),
            (36, 24),
            (17, 56),
            (8, 184),
            (9, 24),
            (51, 56),
        ],
    },
    Release {
        package: Package { version: "12.6.80", ..CU12 },
        api: Some(24),
        missing: &[STRUCT_SIZE],
        sizes: &[
            (10, 208),
            (1, 88),
            (2, 88),
            (22, 96),
            (4, 40),
            (5, 40),
            (38, 40),
            (36, 24),
            (17, 56),
            (8, 184),
            (9, 32),
            (51, 56),
        ],
    },
    Release {
        package: Package { version: "12.8.90", ..CU12 },
        api: Some(26),
        missing: &[STRUCT_SIZE],
        sizes: &[
            (10, 208),
            (1, 96),
            (2, 88),
            (22, 96),
            (4, 40),
            (5, 40),
            (38, 56),
            (36, 56),
            (17, 56),
            (8, 184),
            (9, 32),
            (51, 56),
        ],
    },
    Release {
        package: Package { version: "12.9.79", ..CU12 },
        api: Some(28),
        missing: &[STRUCT_SIZE],
        sizes: &[
            (10, 208),
            (1, 96),
            (2, 88),
            (22, 96),
            (4, 40),
            (5, 40),
            (38, 56),
            (36, 56),
            (17, 56),
            (8, 184),
            (9, 32),
            (51, 56),
        ],
    },
    Release {
        package: Package { version: "13.0.85", ..CU13 },
        api: Some(130_001),
        missing: &[STRUCT_SIZE],
        sizes: &[
            (10, 216),
            (1, 96),
            (2, 88),
            (22, 96),
            (4, 40),
            (5, 40),
            (38, 56),
            (36, 56),
            (17, 56),
            (8, 184),
            (9, 32),
            (51, 56),
        ],
    },
    Release { package: Package { version: "13.2.86", ..CU13 }, api: None, missing: &[], sizes: &[] },
    Release { package: Package { version: "13.5.25", ..CU13 }, api: None, missing: &[], sizes: &[] },
    Release { package: Package { version: "13.4.92", ..CU13 }, api: None, missing: &[], sizes: &[] },
];

/// The library's path after download and unpacking, or the reason why it is unavailable. `fetch.py` keeps the packages
/// outside of this repository, for the tests of the Python package too.
pub fn fetch(package: &Package) -> Result<PathBuf, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/fetch.py");
    let said = run(Command::new("python3").args([script, package.name, package.version, package.file]))?;
    Ok(PathBuf::from(said.trim_end()))
}

/// Runs a command that must succeed, and returns its standard output.
pub fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(format!("{:?}: {}: {}", command.get_program(), output.status, words.lines().last().unwrap_or_default()))
}

/// Output of the child program, by key.
fn describe(library: &Path, symbols_only: bool) -> HashMap<String, String> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cupti-layout-check"));
    child.arg(library).args(symbols_only.then_some("--symbols"));
    let text = run(&mut child).unwrap_or_else(|error| panic!("{}: {error}", library.display()));
    text.lines().filter_map(|line| line.split_once(' ')).map(|(key, value)| (key.into(), value.into())).collect()
}

fn check(release: &Release, library: &Path) {
    let what = format!("{} {}", release.package.name, release.package.version);
    let found = describe(library, release.api.is_none());
    let get = |key: &str| found.get(key).map(String::as_str).unwrap_or_else(|| panic!("{what}: no {key}"));
    assert_eq!(Path::new(get("path")), library, "{what}");
    assert_eq!(get("missing").split_whitespace().collect::<Vec<_>>(), release.missing, "{what}");
    // As the profiler loads it: without a driver 13.2 would crash, which `run` reports.
    let guarded = run(Command::new(env!("CARGO_BIN_EXE_cupti-layout-check")).arg(library).arg("--guarded"));
    let guarded = guarded.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(guarded.starts_with("no-driver ") || guarded.starts_with("subscribe "), "{what}: {guarded}");
    let Some(api) = release.api else { return };
    assert_eq!(get("version"), api.to_string(), "{what}");
    for (kind, size) in release.sizes {
        assert_eq!(get(&format!("size.{kind}")), size.to_string(), "{what}: kind {kind}");
    }
    let kinds = found.keys().filter(|key| key.starts_with("size.")).count();
    assert_eq!(get("walk.whole"), format!("{kinds} {kinds} 0"), "{what}");
    let cut: Vec<usize> = get("walk.cut").split(' ').map(|number| number.parse().unwrap()).collect();
    assert_eq!(cut[..2], [kinds - 1, kinds - 1], "{what}");
    assert_ne!(cut[2], 0, "{what}");
    assert_eq!(get("walk.unknown"), "1 1 104", "{what}");
    assert_eq!(get("runtime.211"), "cudaLaunchKernel_v7000", "{what}");
    assert_eq!(get("driver.307"), "cuLaunchKernel", "{what}");
    assert_eq!(get("runtime.999999"), "", "{what}");
    assert_eq!(get("register"), "0", "{what}");
}

#[test]
fn released_libraries_are_read_as_measured() {
    let fetched: Vec<_> = RELEASES.iter().map(|release| (release, fetch(&release.package))).collect();
    for (release, library) in &fetched {
        match library {
            Ok(library) => check(release, library),
            Err(reason) => println!("SKIPPED {} {}: {reason}", release.package.name, release.package.version),
        }
    }
    let missing: Vec<_> = fetched
        .iter()
        .filter_map(|(release, library)| Some((release.package.version, library.as_ref().err()?)))
        .collect();
    let offline = missing.len() == RELEASES.len();
    let required = std::env::var_os("CUPTI_LAYOUT_CHECK").is_some_and(|value| value == "required");
    assert!(missing.is_empty() || (offline && !required), "not fetched: {missing:?}");
}
