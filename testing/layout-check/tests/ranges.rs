//! The sets of kernel metrics with a released library: the chips that have them, and the number of replay
//! passes, each a launch of the same kernel, that they need.

use std::collections::HashMap;
use std::process::Command;

use gpuwhy_report::kernels::sets;

use crate::released::{CU13, Package, fetch, run};

/// A chip, the launches of each group of the full set, and parts of the names of the metrics that it lacks.
const CHIPS: &[(&str, &str, &[&str])] = &[
    ("GA100", "4 4 6 9", &["stalled_gmma", "src_fp16", "src_fp8"]),
    ("AD102", "4 4 6 11", &["stalled_gmma", "src_fp16"]),
    ("GH100", "4 4 7 14", &[]),
    ("GB100", "5 4 6 11", &["stalled_gmma", "stalled_imc_miss", "src_fp16", "src_fp8"]),
];

/// Sections of Nsight Compute, the launches that each takes on a GH100, and the number of its metrics that the
/// chip does not have: those of other chips, and those that launches have without a counter.
const SECTIONS: &[(&str, &str, usize)] = &[
    ("SpeedOfLight", "9", 1),
    ("ComputeWorkloadAnalysis", "10", 38),
    ("MemoryWorkloadAnalysis", "7", 1),
    ("MemoryWorkloadAnalysis_Tables", "7", 0),
    ("SchedulerStats", "1", 0),
    ("WarpStateStats", "8", 0),
    ("InstructionStats", "1", 0),
    ("Occupancy", "1", 1),
    ("WorkloadDistribution", "1", 5),
];

#[test]
fn sets_of_kernel_metrics_on_released_libraries() {
    let package = Package { name: CU13.name, version: "13.0.85", file: CU13.file };
    let library = match fetch(&package) {
        Ok(library) => library,
        Err(reason) => {
            println!("SKIPPED {} {}: {reason}", package.name, package.version);
            let required = std::env::var_os("CUPTI_LAYOUT_CHECK").is_some_and(|value| value == "required");
            return assert!(!required, "not fetched: {reason}");
        }
    };
    let groups: Vec<String> = sets::groups().iter().map(|group| group.join(",")).collect();
    for (chip, passes, lacking) in CHIPS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cupti-layout-check"));
        let text = run(command.arg(&library).args(["--ranges", chip]).args(&groups));
        let text = text.unwrap_or_else(|error| panic!("{chip}: {error}"));
        let found: HashMap<_, _> = text.lines().filter_map(|line| line.split_once(' ')).collect();
        assert_eq!(found["passes"], *passes, "{chip}");
        let missing: Vec<_> = found["missing"].split_whitespace().collect();
        assert_eq!(missing.len(), lacking.len(), "{chip}: {missing:?}");
        assert!(missing.iter().zip(*lacking).all(|(name, part)| name.contains(part)), "{chip}: {missing:?}");
    }
    for (name, passes, lacking) in SECTIONS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cupti-layout-check"));
        let metrics = sets::section(name).unwrap().metrics.join(",");
        let text = run(command.arg(&library).args(["--ranges", "GH100", &metrics])).unwrap();
        let found: HashMap<_, _> = text.lines().filter_map(|line| line.split_once(' ')).collect();
        assert_eq!(found["passes"], *passes, "{name}");
        assert_eq!(found["missing"].split_whitespace().count(), *lacking, "{name}: {}", found["missing"]);
    }
}
