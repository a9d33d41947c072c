//! Compiles a C program against the header, links it with the library, and runs it with a recording in place
//! of a GPU.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Folder of cargo's build outputs for tests.
fn built(file: &str) -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let places = [deps.join(file), deps.parent().unwrap().join(file)];
    let found = places.iter().find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{file} was not built: run `cargo test --workspace`")).clone()
}

fn compiled(source: &str, folder: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = built("libgpuwhy_c.so");
    let libraries = library.parent().unwrap();
    let program = folder.join("program");
    let status = Command::new("cc")
        .args(["-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(root.join("include"))
        .arg(root.join(source))
        .arg("-L")
        .arg(libraries)
        .args(["-lgpuwhy_c", "-ldl", "-pthread"])
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .status();
    assert!(status.expect("a C compiler").success());
    program
}

fn run(program: &Path, arguments: &[&str], cupti: &Path) -> Output {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/fixtures/sync_item.cupti.zst");
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GPUWHY_")) {
        command.env_remove(name);
    }
    // Cargo's value would name the folder of an older build first, and the program names the path of its
    // library.
    command.env_remove("LD_LIBRARY_PATH");
    command.args(arguments).current_dir(program.parent().unwrap()).env("GPUWHY_CUPTI_PATH", cupti);
    command.env("GPUWHY_REPLAY", fixture).env_remove("CUDA_INJECTION64_PATH").output().unwrap()
}

#[test]
fn a_c_program_gets_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("tests/program.c", folder.path());
    let output = run(&program, &[], &built("libcupti_replay.so"));
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["bottleneck"]["cause"], "sync");
    let ranges = report["ranges"]["rows"].as_array().unwrap();
    assert!(["part", "step"].iter().all(|name| ranges.iter().any(|row| row["message"] == *name)), "{ranges:#?}");
    assert!(gpuwhy::open(folder.path().join("part.gpuwhy")).unwrap().completeness.kernels > 1000);
}

#[test]
fn the_child_of_a_fork_is_refused_and_waits_for_no_lock() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("tests/program.c", folder.path());
    let output = run(&program, &["--fork"], &built("libcupti_replay.so"));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn without_a_library_it_is_reported_why() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("tests/program.c", folder.path());
    let output = run(&program, &["--without-cupti"], Path::new("/nowhere/libcupti.so.13"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("/nowhere/libcupti.so.13"), "{text}");
}

#[test]
fn without_a_driver_no_function_of_cupti_is_called() {
    if Command::new("python3")
        .args(["-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"])
        .output()
        .unwrap()
        .status
        .success()
    {
        return println!("SKIPPED: there is a driver");
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/layout-check/fetch.py");
    let package = ["nvidia-cuda-cupti", "13.2.86", "nvidia/cu13/lib/libcupti.so.13"];
    let fetched = Command::new("python3").arg(script).args(package).output().unwrap();
    if !fetched.status.success() {
        return println!("SKIPPED: {}", String::from_utf8_lossy(&fetched.stderr));
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("tests/program.c", folder.path());
    let library = String::from_utf8(fetched.stdout).unwrap();
    // A crash would be a signal.
    let output = run(&program, &["--without-cupti"], Path::new(library.trim_end()));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("no NVIDIA driver or GPU: libcuda.so.1"), "{text}");
}

#[test]
fn the_lesson_in_c_shows_what_it_promises_or_says_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("../examples/c/01_first_session.c", folder.path());
    let output = Command::new(program).current_dir(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let helps = ["libcupti", "libcuda"].iter().any(|word| text.contains(word));
    assert!(output.status.success() || output.status.code() == Some(2) && helps, "{output:?}");
}
