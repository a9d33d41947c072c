//! cupti-sys with the libcupti of real releases, fetched from the Python package index.
//!
//! Needs no GPU: up to CUDA 13.1 libcupti provides version, names and its record iterator without a driver;
//! later ones are only loaded. Each runs in a separate process. Without network the test prints SKIPPED and
//! the reason; `CUPTI_LAYOUT_CHECK=required` makes it fail instead. Packages stay in the target folder.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

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
const ALL_SYNC: &str = "cuptiActivityEnableAllSyncRecords";
const STRUCT_SIZE: &str = "cuptiActivityGetStructSize";
const GRAPH_EXEC_ID: &str = "cuptiGetGraphExecId";

/// Sizes measured on these releases. Kinds: kernel 10, memcpy 1, memset 2, peer copy 22, driver 4, runtime 5,
/// synchronization 38, event 36, overhead 17, device 8, context 9, graph 51.
const RELEASES: &[Release] = &[
    Release {
        package: Package {
            name: "nvidia-cuda-cupti-cu11",
            version: "11.8.87",
            file: "nvidia/cuda_cupti/lib/libcupti.so.11.8",
        },
        api: Some(18),
        missing: &[FILTERS[0], FILTERS[1], ALL_SYNC, STRUCT_SIZE, GRAPH_EXEC_ID],
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
        package: Package {
            name: "nvidia-cuda-cupti-cu12",
            version: "12.4.127",
            file: "nvidia/cuda_cupti/lib/libcupti.so.12",
        },
        api: Some(22),
        missing: &[FILTERS[0], FILTERS[1], ALL_SYNC, STRUCT_SIZE],
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
        package: Package {
            name: "nvidia-cuda-cupti-cu12",
            version: "12.9.79",
            file: "nvidia/cuda_cupti/lib/libcupti.so.12",
        },
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
        package: Package { name: "nvidia-cuda-cupti", version: "13.0.85", file: "nvidia/cu13/lib/libcupti.so.13" },
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
    Release {
        package: Package { name: "nvidia-cuda-cupti", version: "13.4.92", file: "nvidia/cu13/lib/libcupti.so.13" },
        api: None,
        missing: &[],
        sizes: &[],
    },
];

/// Platform tags of these packages; pip requires each to be named.
const PLATFORMS: &[&str] = &[
    "manylinux1_x86_64",
    "manylinux2014_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux_2_25_x86_64",
    "manylinux_2_27_x86_64",
];

/// The library's path after download and unpacking, or the reason why it is unavailable.
pub fn fetch(package: &Package) -> Result<PathBuf, String> {
    // Tests that run at the same time need the same packages.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("cupti").join(format!("{}-{}", package.name, package.version));
    let library = folder.join(package.file);
    if library.exists() {
        return Ok(library);
    }
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]);
    pip.args(["--retries", "1", "--timeout", "20", "-d"]).arg(&folder);
    pip.args(PLATFORMS.iter().flat_map(|platform| ["--platform", platform]));
    run(pip.arg(format!("{}=={}", package.name, package.version)))?;
    let listing = fs::read_dir(&folder).map_err(|error| error.to_string())?;
    let wheel =
        listing.filter_map(|entry| Some(entry.ok()?.path())).find(|path| path.extension().is_some_and(|e| e == "whl"));
    let wheel = wheel.ok_or("pip left no wheel")?;
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(&folder))?;
    library.exists().then_some(library).ok_or_else(|| format!("the package holds no {}", package.file))
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
