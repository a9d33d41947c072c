//! The counter interfaces compared with released packages: the layout of every struct with their headers, and
//! the sets of metrics that their libraries can collect in one pass.
//!
//! The C++ compiler reads sizes and offsets (a header of 12.6 is not C), with a substitute for `cuda.h`: the
//! packages do not have it, and only two handles of it are used. Without a compiler the layouts are SKIPPED.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cupti_sys::counters::abi::{Layout, layouts};

use crate::released::{CU12, CU13, Package, fetch, run};

/// The part of CUDA's header that the headers need.
const CUDA: &str = "#pragma once\ntypedef struct CUctx_st *CUcontext;\ntypedef int CUdevice;\n";
const HEADERS: [&str; 5] = [
    "cupti_target.h",
    "cupti_profiler_target.h",
    "cupti_profiler_host.h",
    "cupti_pmsampling.h",
    "cupti_range_profiler.h",
];

/// A package, and the sets that a chip can sample with it.
struct Released {
    package: Package,
    /// Sizes in bytes of structs that were shorter.
    shorter: &'static [(&'static str, usize)],
    /// Chips and quantities with PCI Express; `None` if the library does not sample the chip.
    sets: &'static [(&'static str, Option<&'static str>)],
}

const ALL: &str =
    "Clock MultiprocessorsActive Issue Tensor Dram L2 L1 WarpsActive DramRead DramWrite PcieRead PcieWrite";

const RELEASED: &[Released] = &[
    Released {
        package: Package { name: CU12.name, version: "12.6.80", file: CU12.file },
        shorter: &[("CUpti_PmSampling_SetConfig_Params", 60)],
        sets: &[
            ("GV100", None),
            ("TU102", Some("Clock MultiprocessorsActive Issue L1 WarpsActive PcieRead PcieWrite")),
            ("GH100", Some("Clock MultiprocessorsActive Issue Tensor Dram L1 WarpsActive PcieRead PcieWrite")),
        ],
    },
    Released {
        package: Package { name: CU12.name, version: "12.9.79", file: CU12.file },
        shorter: &[],
        sets: &[("GA100", Some(ALL)), ("GH100", Some(ALL))],
    },
    Released {
        package: Package { name: CU13.name, version: "13.0.85", file: CU13.file },
        shorter: &[],
        sets: &[
            ("GV100", None),
            (
                "TU102",
                Some("Clock MultiprocessorsActive Issue L2 L1 WarpsActive DramRead DramWrite PcieRead PcieWrite"),
            ),
            ("GA100", Some(ALL)),
            ("GA102", Some(ALL)),
            ("AD102", Some(ALL)),
            ("GH100", Some(ALL)),
            ("GB100", Some("Clock MultiprocessorsActive Issue Tensor Dram L2 L1 WarpsActive DramRead DramWrite")),
            (
                "GB202",
                Some("Clock MultiprocessorsActive Issue Tensor Dram L2 L1 DramRead DramWrite PcieRead PcieWrite"),
            ),
        ],
    },
];

/// A C++ program that prints sizes and offsets from the headers, one name and number per line.
fn program(layouts: &[Layout]) -> String {
    let includes: String = HEADERS.iter().map(|header| format!("#include <{header}>\n")).collect();
    let prints: String = layouts
        .iter()
        .flat_map(|layout| {
            let last = layout.fields.iter().map(|(name, _)| *name).next_back().unwrap_or_default();
            let name = layout.name;
            let end = format!(
                "  printf(\"{name} %zu\\n\", offsetof({name}, {last}) + sizeof((({name} *)0)->{last}));\n  \
                 printf(\"{name}.sizeof %zu\\n\", sizeof({name}));\n"
            );
            let offsets = layout
                .fields
                .iter()
                .map(move |(field, _)| format!("  printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));\n"));
            std::iter::once(end).chain(offsets)
        })
        .collect();
    format!("#include <stddef.h>\n#include <stdio.h>\n{includes}int main(void) {{\n{prints}  return 0;\n}}\n")
}

/// Sizes and offsets that the compiler reads from the headers next to a library.
fn measured(library: &Path, layouts: &[Layout]) -> Result<HashMap<String, usize>, String> {
    let package = library.ancestors().nth(2).ok_or("a library is in a folder of its package")?;
    let version = library.ancestors().nth(4).and_then(Path::file_name).unwrap_or_default();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layouts").join(version);
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    fs::write(folder.join("cuda.h"), CUDA).map_err(|error| error.to_string())?;
    fs::write(folder.join("layouts.cc"), program(layouts)).map_err(|error| error.to_string())?;
    let built = folder.join("layouts");
    run(Command::new("c++")
        .arg("-I")
        .arg(&folder)
        .arg("-I")
        .arg(package.join("include"))
        .arg("-o")
        .arg(&built)
        .arg(folder.join("layouts.cc")))?;
    let text = run(&mut Command::new(built))?;
    Ok(text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(key, n)| (key.to_owned(), n.parse().unwrap()))
        .collect())
}

/// The structs of a package: some were shorter by their last field.
fn layouts_of(released: &Released) -> Vec<Layout> {
    let mut all: Vec<_> = layouts().collect();
    for (name, size) in released.shorter {
        let layout = all.iter_mut().find(|layout| layout.name == *name).expect("a struct of ours");
        layout.fields = &layout.fields[..layout.fields.len() - 1];
        layout.size = *size;
    }
    all
}

fn compare(released: &Released, library: &Path) {
    let version = released.package.version;
    // For data that sampling fills in, CUPTI requires the value of `sizeof`.
    let by_sizeof = ["CUpti_PCSamplingData", "CUpti_PCSamplingPCData"];
    let ours = layouts_of(released);
    let theirs = measured(library, &ours).unwrap_or_else(|error| panic!("{version}: {error}"));
    for layout in ours {
        let name = layout.name;
        for (field, offset) in layout.fields {
            assert_eq!(theirs[&format!("{name}.{field}")], *offset, "{version}: {name}.{field}");
        }
        let whole = theirs[&format!("{name}.sizeof")];
        if !layout.grows {
            assert_eq!(whole, layout.size.next_multiple_of(8), "{version}: {name} has further fields");
        }
        let end = if by_sizeof.contains(&name) { whole } else { theirs[name] };
        assert_eq!(end, layout.size, "{version}: size of {name}");
    }
}

/// Sets that the library offers without a GPU, by chip.
fn sets(library: &Path) -> HashMap<String, String> {
    let text = run(Command::new(env!("CARGO_BIN_EXE_cupti-layout-check")).arg(library).arg("--counters"))
        .unwrap_or_else(|error| panic!("{}: {error}", library.display()));
    text.lines().filter_map(|line| line.split_once(' ')).map(|(key, value)| (key.into(), value.into())).collect()
}

fn check(released: &Released, library: &Path) {
    let version = released.package.version;
    let found = sets(library);
    assert_eq!(found["missing"], "", "{version}");
    for (chip, expected) in released.sets {
        let set = &found[&format!("set.{chip}.pcie")];
        match expected {
            Some(expected) => assert_eq!(set, expected, "{version}: {chip}"),
            None => assert!(set.contains("NOT_SUPPORTED"), "{version}: {chip}: {set}"),
        }
        // The set of monitor mode: the engine in addition to all others, in one pass.
        let with_engine = set.replace("MultiprocessorsActive", "MultiprocessorsActive EngineActive");
        assert_eq!(found[&format!("set.{chip}.engine")], with_engine, "{version}: {chip}");
    }
    // GH100 has NVLink; without any link the same set remains.
    let gh100 = |links: &str| found[&format!("set.GH100.{links}")].clone();
    assert_eq!(gh100("nvlink"), format!("{} NvlinkRead NvlinkWrite", gh100("pcie")), "{version}");
    assert_eq!(gh100("pcie"), format!("{} PcieRead PcieWrite", gh100("chip")), "{version}");
    assert!(found["metrics"].ends_with(" true"), "{version}: {}", found["metrics"]);
    assert_eq!([&found["duration"], &found["unknown"]], ["gpu nanosecond", "true"], "{version}");
    assert_eq!(found["suffixes.refused"], "0", "{version}");
}

#[test]
fn counter_interfaces_of_released_libraries() {
    let has_compiler = Command::new("c++").arg("--version").output().is_ok_and(|output| output.status.success());
    let mut fetched: Vec<(&Released, PathBuf)> = Vec::new();
    let mut missing = Vec::new();
    for released in RELEASED {
        match fetch(&released.package) {
            Ok(library) => fetched.push((released, library)),
            Err(reason) => {
                println!("SKIPPED {} {}: {reason}", released.package.name, released.package.version);
                missing.push(released.package.version);
            }
        }
    }
    for (released, library) in &fetched {
        check(released, library);
        if has_compiler {
            compare(released, library);
        } else {
            println!("SKIPPED layouts of {}: no C++ compiler `c++`", released.package.version);
        }
    }
    let required = std::env::var_os("CUPTI_LAYOUT_CHECK").is_some_and(|value| value == "required");
    assert!(missing.is_empty() || (fetched.is_empty() && !required), "not fetched: {missing:?}");
}
