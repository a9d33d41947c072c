//! `gpuwhy run --pytorch` with a fake torch that only logs its calls: the hook waits for the import of the
//! program, other sitecustomize modules run, and a failure affects only the ranges.
//!
//! Prints `SKIPPED` without a python3.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Modules of the fake torch, with their sources.
const TORCH: &[(&str, &str)] = &[
    ("torch/__init__.py", "from torch import autograd, cuda, overrides\nprint('torch')"),
    ("torch/autograd/__init__.py", ""),
    (
        "torch/autograd/profiler.py",
        "class ProfilerState: NVTX = 'NVTX'
class _ExperimentalConfig: pass
def ProfilerConfig(*arguments): return arguments[:2]
def _enable_profiler(config, activities): print('enable', *config)
def _disable_profiler(): print('disable')",
    ),
    ("torch/cuda/__init__.py", "from torch.cuda import nvtx\ndef _lazy_call(call): print('later')"),
    (
        "torch/cuda/nvtx.py",
        "def range_push(name): print('push', name) if name else None
def range_pop(): pass",
    ),
    (
        "torch/overrides.py",
        "class TorchFunctionMode:
    def __enter__(self):
        TorchFunctionMode.active = self",
    ),
];

/// A folder with the fake torch, a folder for temporary files, and an empty libprof.so.
struct Place(TempDir);

impl Place {
    /// `None` without a python3.
    fn new() -> Option<Self> {
        if Command::new("python3").arg("--version").output().is_err() {
            println!("SKIPPED: no python3");
            return None;
        }
        let place = Self(tempfile::tempdir().unwrap());
        for (file, text) in TORCH {
            place.write(&format!("lib/{file}"), text);
        }
        place.write("libprof.so", "");
        fs::create_dir(place.path().join("tmp")).unwrap();
        Some(place)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn run(&self, mode: &str, program: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuwhy"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GPUWHY_") {
                command.env_remove(name);
            }
        }
        let python = ["run", "--pytorch", mode, "--force", "--", "python3", "-c", program];
        let command = command.args(python).env("GPUWHY_LIB", self.path().join("libprof.so"));
        command.env("PYTHONPATH", self.path().join("lib")).env("TMPDIR", self.path().join("tmp")).output().unwrap()
    }

    /// Number of files left after the run.
    fn left_behind(&self) -> usize {
        fs::read_dir(self.path().join("tmp")).unwrap().count()
    }
}

/// What was said on stderr, without the line that nothing used CUDA.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().filter(|line| !line.starts_with("gpuwhy: no report")).collect()
}

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn operators_are_switched_on_behind_the_import_and_off_at_the_end() {
    let Some(place) = Place::new() else { return };
    for (mode, shapes) in [("autograd-nvtx", "False"), ("autograd-shapes-nvtx", "True")] {
        let output = place.run(mode, "print('first'); import torch; print('then'); import torch");
        let enable = format!("enable NVTX {shapes}");
        assert_eq!(lines(&output), ["first", "torch", &enable, "then", "disable"]);
        assert_eq!(said(&output), "");
        assert_eq!(place.left_behind(), 0);
    }
}

#[test]
fn a_torch_of_another_version_is_asked_when_it_uses_cuda() {
    let Some(place) = Place::new() else { return };
    place.write("lib/torch/autograd/profiler.py", "");
    assert_eq!(lines(&place.run("autograd-nvtx", "import torch")), ["torch", "later"]);
}

#[test]
fn functions_get_ranges_under_the_names_that_users_know() {
    let Some(place) = Place::new() else { return };
    let program = "import torch, json
mode = torch.overrides.TorchFunctionMode.active
def call(name, module=None):
    def function(*arguments, **named): return (arguments, named)
    function.__qualname__, function.__module__ = name, module
    return mode.__torch_function__(function, (), (1,), {'x': 2})
print(call('_VariableFunctionsClass.add'), call('TensorBase.mul_')[0])
call('linear', 'torch.nn.functional'); call('getset.__get__')
def broken(): raise KeyError('theirs')
try: mode.__torch_function__(broken, ())
except KeyError: print('their error')";
    let expected = [
        "torch",
        "push torch.add",
        "push Tensor.mul_",
        "((1,), {'x': 2}) (1,)",
        "push torch.nn.functional.linear",
        "push __main__.broken",
        "their error",
    ];
    assert_eq!(lines(&place.run("functions-nvtx", program)), expected);
}

#[test]
fn another_sitecustomize_runs_and_the_program_sees_its_own_path() {
    let Some(place) = Place::new() else { return };
    place.write("lib/sitecustomize.py", "print('theirs'); mark = 5");
    let program = "import sys, sitecustomize
print(sitecustomize.mark, [folder for folder in sys.path if 'gpuwhy-python' in folder])";
    assert_eq!(lines(&place.run("autograd-nvtx", program)), ["theirs", "5 []"]);
    assert_eq!(place.left_behind(), 0);
}

#[test]
fn children_are_served_and_do_not_remove_what_others_need() {
    let Some(place) = Place::new() else { return };
    let program = "import subprocess, sys
for _ in range(2):
    print(subprocess.run([sys.executable, '-c', 'import torch'], capture_output=True, text=True).stdout.split())";
    let child = "['torch', 'enable', 'NVTX', 'False', 'disable']";
    assert_eq!(lines(&place.run("autograd-nvtx", program)), [child, child]);
    assert_eq!(place.left_behind(), 0);
}

#[test]
fn what_fails_is_said_and_leaves_the_program_alone() {
    let Some(place) = Place::new() else { return };
    place.write("lib/torch/cuda/nvtx.py", "def range_push(name): raise RuntimeError('NVTX functions not installed')");
    let output = place.run("functions-nvtx", "import torch; print('goes on')");
    assert_eq!(lines(&output), ["torch", "goes on"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("no ranges of PyTorch") && stderr.contains("not installed"), "{stderr}");
    // An import that fails is the program's problem.
    place.write("lib/torch/__init__.py", "raise ImportError('broken torch')");
    let output = place.run("autograd-nvtx", "try:\n    import torch\nexcept ImportError as error:\n    print(error)");
    assert_eq!(lines(&output), ["broken torch"]);
    assert_eq!(said(&output), "");
}
