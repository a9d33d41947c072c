//! `gpuwhy kernels --source`: stall locations of warps, from the modules stored next to a trace and a
//! disassembler, if available.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gpuwhy_import::cubin::{Modules, Sass};
use gpuwhy_report::kernels::KernelsReport;
use gpuwhy_report::kernels::source::SourceReport;

/// NVIDIA's disassembler.
const DISASSEMBLER: &str = "nvdisasm";
/// Default folder of the toolkit.
const TOOLKIT: &str = "/usr/local/cuda";
/// Python packages that contain the disassembler, below `lib/python3.X/site-packages` of an environment.
const IN_PACKAGES: [&str; 2] = ["triton/backends/nvidia/bin", "nvidia/cu13/bin"];

/// Report of the measured windows of a trace, and true if a disassembler was found.
pub fn read(trace: &Path, report: &KernelsReport) -> (SourceReport, bool) {
    let windows = || report.windows.iter().map(AsRef::as_ref);
    let mut modules = Modules::beside(trace, windows());
    let disassembler = disassembler();
    if let Some(program) = &disassembler {
        let files: Vec<_> = modules.files().map(|(module, path)| (module, path.to_owned())).collect();
        for (module, path) in files {
            if let Some(sass) = disassembled(program, &path) {
                modules.set_sass(module, sass);
            }
        }
    }
    (SourceReport::of(windows(), &modules), disassembler.is_some())
}

fn disassembled(program: &Path, module: &Path) -> Option<Sass> {
    let output = Command::new(program).arg("-c").arg(module).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Some(Sass::of(&String::from_utf8_lossy(&output.stdout))),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            tracing::info!("{}: {} ended with {}: {}", module.display(), program.display(), output.status, why.trim());
            None
        }
        Err(error) => {
            tracing::info!("{}: {error}", program.display());
            None
        }
    }
}

/// Searches PATH, the toolkit, and the packages of the active Python environment.
fn disassembler() -> Option<PathBuf> {
    let in_path = env::var_os("PATH").into_iter().flat_map(|path| env::split_paths(&path).collect::<Vec<_>>());
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let toolkits = toolkits.chain([PathBuf::from(TOOLKIT)]).map(|toolkit| toolkit.join("bin"));
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let packages = environments.flat_map(|environment| {
        let pythons = fs::read_dir(environment.join("lib")).into_iter().flatten().flatten();
        let packages = pythons.map(|python| python.path().join("site-packages"));
        packages.flat_map(|packages| IN_PACKAGES.map(|place| packages.join(place))).collect::<Vec<_>>()
    });
    let mut places = in_path.chain(toolkits).chain(packages).map(|folder| folder.join(DISASSEMBLER));
    places.find(|program| program.is_file())
}
