//! NVTX as NVIDIA releases it: a C program with the header of version 3, and the library of version 2, both
//! from the Python package index.
//!
//! Without network, a C compiler or python3 the tests print SKIPPED and the reason. Packages stay in the
//! target folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Stage, stderr};
use gpuwhy_trace::record::{Payload, RangeEventKind};

/// Version 3, a header only.
const HEADER: (&str, &str) = ("nvidia-nvtx==13.0.85", "nvidia/cu13/include");
/// Version 2, a library that programs link.
const LIBRARY: (&str, &str) = ("nvidia-nvtx-cu12==12.4.127", "nvidia/nvtx/lib/libnvToolsExt.so.1");

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nvtx_released/program.c");

/// A file or folder of a package, downloaded if missing.
fn fetch((package, inside): (&str, &str)) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(package);
    let wanted = folder.join(inside);
    if !wanted.exists() {
        let _ = fs::remove_dir_all(&folder);
        let pip = ["-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"];
        let limits = ["--retries", "1", "--timeout", "20", "--platform", "manylinux2014_x86_64", "--target"];
        run(Command::new("python3").args(pip).args(limits).arg(&folder).arg(package))?;
    }
    wanted.exists().then_some(wanted).ok_or_else(|| format!("{package} holds no {inside}"))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    let last = || stderr(&output).lines().last().unwrap_or_default().to_owned();
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{:?}: {}: {}", command.get_program(), output.status, last()))
    }
}

fn compiled(stage: &Stage) -> Result<PathBuf, String> {
    let header = fetch(HEADER)?;
    Command::new("cc").arg("--version").output().map_err(|error| format!("cc: {error}"))?;
    let program = stage.path("program");
    let built =
        run(Command::new("cc").arg("-I").arg(header).arg("-o").arg(&program).args([PROGRAM, "-ldl", "-lpthread"]));
    built.unwrap_or_else(|error| panic!("{error}"));
    Ok(program)
}

#[test]
fn a_c_program_with_the_header_of_version_3() {
    let stage = Stage::new();
    let program = match compiled(&stage) {
        Ok(program) => program,
        Err(reason) => return println!("SKIPPED: {reason}"),
    };
    let output = stage.program("multi_stream", &program).output().unwrap();
    assert!(output.status.success(), "{:?}: {}", output.status, stderr(&output));
    let (ranges, names) = crate::support::trace::ranges(&stage.path("trace.gpuwhy"));

    let count = |kind, message| {
        ranges.iter().filter(|range| range.kind == kind && names.name(range.message) == message).count()
    };
    assert_eq!(["step", "größe"].map(|text| count(RangeEventKind::Push, text)), [800; 2]);
    assert_eq!(count(RangeEventKind::Pop, ""), 1600);
    assert_eq!((count(RangeEventKind::Start, "whole"), count(RangeEventKind::End, "")), (1, 1));
    let mark = ranges.iter().find(|range| range.kind == RangeEventKind::Mark).unwrap();
    assert_eq!(
        [mark.domain, mark.message, mark.category].map(|id| names.name(id)),
        ["library", "registered", "category"]
    );
    assert_eq!((mark.color, mark.payload), (0xff33_6699, Payload::Float(0.25)));
    assert_eq!(ranges.len(), 2 * 1600 + 3);
    let mut threads: Vec<_> = ranges.iter().map(|range| range.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    assert_eq!(threads.len(), 9, "eight and the first");
}

#[test]
fn the_library_of_version_2() {
    let library = match fetch(LIBRARY) {
        Ok(library) => library,
        Err(reason) => return println!("SKIPPED: {reason}"),
    };
    let stage = Stage::new();
    let script = "import ctypes, os, sys
nvtx = ctypes.CDLL(sys.argv[1])
print([nvtx.nvtxRangePushA(b'outer'), nvtx.nvtxRangePushA(b'inner'), nvtx.nvtxRangePop(), nvtx.nvtxRangePop()])
ctypes.CDLL(os.environ['CUDA_INJECTION64_PATH']).InitializeInjection()
ctypes.CDLL(os.environ['GPUWHY_CUPTI_PATH']).gpuwhy_replay_play(ctypes.c_uint64(2**64 - 1))
nvtx.nvtxMarkA(b'done')";
    let output = stage.program("multi_stream", "python3").args(["-c", script]).arg(library).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "[0, 1, 1, 0]", "{}", stderr(&output));
    let (ranges, names) = crate::support::trace::ranges(&stage.path("trace.gpuwhy"));
    let texts: Vec<_> = ranges.iter().map(|range| (range.kind, names.name(range.message))).collect();
    use RangeEventKind::{Mark, Pop, Push};
    assert_eq!(texts, [(Push, "outer"), (Push, "inner"), (Pop, ""), (Pop, ""), (Mark, "done")]);
}

#[test]
fn a_child_that_uses_cuda_first_has_its_own_ranges_only() {
    let library = match fetch(LIBRARY) {
        Ok(library) => library,
        Err(reason) => return println!("SKIPPED: {reason}"),
    };
    let stage = Stage::new();
    // A program that forks its workers before it uses CUDA, with an open range.
    let script = "import ctypes, os, sys
nvtx = ctypes.CDLL(sys.argv[1])
nvtx.nvtxRangePushA(b'parent')
child = os.fork()
if child:
    print(os.waitpid(child, 0)[1], nvtx.nvtxRangePop())
    sys.exit()
depths = [nvtx.nvtxRangePushA(b'child'), nvtx.nvtxRangePop(), nvtx.nvtxRangePop()]
ctypes.CDLL(os.environ['CUDA_INJECTION64_PATH']).InitializeInjection()
ctypes.CDLL(os.environ['GPUWHY_CUPTI_PATH']).gpuwhy_replay_play(ctypes.c_uint64(2**64 - 1))
nvtx.nvtxMarkA(b'done')
sys.exit(depths != [0, 0, -1])";
    let output = stage.program("multi_stream", "python3").args(["-c", script]).arg(library).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0 0", "{}", stderr(&output));
    assert_eq!(fs::read_dir(stage.folder.path()).unwrap().count(), 1);
    let (ranges, names) = crate::support::trace::ranges(&stage.path("trace.gpuwhy"));
    let texts: Vec<_> = ranges.iter().map(|range| names.name(range.message)).collect();
    assert_eq!(texts, ["child", "", "done"]);
}
