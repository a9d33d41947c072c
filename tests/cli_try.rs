//! `gpuwhy try` with a fake torch, whose clock advances only by the work that the settings cause: so the times
//! are exact on every machine.
//!
//! Prints `SKIPPED` without a python3.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use gpuwhy_report::history::{Measured, arguments, program};
use gpuwhy_report::run::remedies::Trial;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{GPUWHY, Stage, built, stderr};

/// Modules of the fake torch, with their sources.
const TORCH: &[(&str, &str)] = &[
    (
        "torch/__init__.py",
        "from torch import clock, nn, optim, cuda, utils, autograd
channels_last, bfloat16, half = 'last', 'bf16', [False]
class Tensor:
    is_cuda = True
    def __init__(self, last=False): self.last = last
    def to(self, *arguments, **named): return self
    def cuda(self, *arguments, **named): return self
    def dim(self): return 4
    def contiguous(self, memory_format):
        if not self.last: clock.spend('layout')
        return Tensor(True)
class autocast:
    def __init__(self, device, dtype=None, enabled=True): self.device, self._enabled = device, enabled
    def __enter__(self): self.before, half[0] = half[0], self._enabled
    def __exit__(self, *error): half[0] = self.before
def set_autocast_dtype(device, dtype): pass
def set_autocast_enabled(device, enabled): half[0] = enabled
def set_autocast_cache_enabled(enabled): pass
compiled = []
def compile(forward, *, mode=None, dynamic=None):
    # Code of PyTorch itself is passed over.
    if '/torch/' in forward.__code__.co_filename: return forward
    compiled.append(forward)
    clock.costs['work'] = 0.001 if dynamic else 0.005 if mode else 0.01
    return forward
grad = [True]
def is_grad_enabled(): return grad[0]
class inference_mode:
    def __enter__(self): grad[0] = False
    def __exit__(self, *error): grad[0] = True
def use_deterministic_algorithms(mode): pass
def set_anomaly_enabled(mode, check_nan=True): clock.costs['anomaly'] = 0.03 if mode else 0.0",
    ),
    // A step costs what the settings add up to.
    (
        "torch/clock.py",
        "import time
now, costs = [1000.0], {'work': 0.02, 'optimizer': 0.06}
# What only some programs have.
extra = {'layout': 0.01, 'fast': 0.005}
def spend(name): now[0] += costs.get(name, extra.get(name, 0.0))
time.perf_counter = lambda: now[0]",
    ),
    (
        "torch/nn.py",
        "from torch import clock
class Parameter:
    is_cuda = True
    def is_floating_point(self): return True
class Module:
    _compiled_call_impl = None
    def zero_grad(self, set_to_none=True): clock.spend('fast' if set_to_none else 'layout')
    def _call_impl(self, *arguments, **named): return self.forward(*arguments, **named)
    def _wrapped_call_impl(self, *arguments, **named):
        return (self._compiled_call_impl or self._call_impl)(*arguments, **named)
    __call__ = _wrapped_call_impl
    def __getstate__(self): return {name: value for name, value in self.__dict__.items() if name != '_compiled_call_impl'}
    def parameters(self): return []
    def modules(self): return [self, *getattr(self, 'parts', [])]
class Conv2d(Module):
    def forward(self, input):
        clock.spend('fast' if input.last else 'work')
        return input",
    ),
    (
        "torch/optim/__init__.py",
        "from torch.optim.optimizer import Optimizer
from torch import clock
class AdamW(Optimizer):
    def __init__(self, params, lr=0.1, *, foreach=None, fused=None, differentiable=False):
        assert [type(parameter).__name__ for parameter in params] == ['Parameter']
        clock.costs['optimizer'] = 0.01 if fused else 0.06
class Adamax(Optimizer):
    def __init__(self, params, *, foreach=None): clock.costs['optimizer'] = 0.1 if foreach is False else 0.05",
    ),
    (
        "torch/optim/optimizer.py",
        "from torch import clock
hooks = []
def register_optimizer_step_post_hook(hook): hooks.append(hook)
class Optimizer:
    def zero_grad(self, set_to_none=True): clock.spend('fast' if set_to_none else 'layout')
    def step(self):
        for name in clock.costs: clock.spend(name)
        for hook in hooks: hook(self, (), {})",
    ),
    (
        "torch/cuda.py",
        "from torch import clock\ndef is_available(): return True\ndef empty_cache(): clock.now[0] += 0.02
def synchronize(device=None): clock.now[0] += 0.02",
    ),
    ("torch/autograd.py", "def backward(): pass\ndef grad(): pass"),
    ("torch/utils/__init__.py", "from torch.utils import data, deterministic"),
    ("torch/utils/deterministic.py", "fill_uninitialized_memory = True"),
    (
        "torch/utils/data/__init__.py",
        "from torch.utils.data.dataloader import DataLoader
class IterableDataset: pass
class TensorDataset:
    def __init__(self, *tensors): self.tensors = tensors
    def __getitem__(self, at): return tuple(tensor[at] for tensor in self.tensors)
class Subset:
    def __init__(self, dataset, indices): self.dataset, self.indices = dataset, indices
    def __getitem__(self, at): return self.dataset[self.indices[at]]",
    ),
    ("torch/utils/data/_utils/__init__.py", ""),
    (
        "torch/utils/data/_utils/collate.py",
        "def default_collate(samples): return [list(column) for column in zip(*samples)]",
    ),
    (
        "torch/utils/data/_utils/fetch.py",
        "class _MapDatasetFetcher:
    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        self.dataset, self.auto_collation, self.collate_fn = dataset, auto_collation, collate_fn
    def fetch(self, indices): return self.collate_fn([self.dataset[at] for at in indices])",
    ),
    (
        "torch/utils/data/dataloader.py",
        "class _BaseDataLoaderIter:
    def __init__(self, items): self.items = iter(items)
    def __iter__(self): return self
    def __next__(self): return next(self.items)
class DataLoader:
    def __init__(self, dataset, num_workers=0, pin_memory=False, *, prefetch_factor=None, persistent_workers=False):
        from torch import clock
        self.dataset = dataset
        clock.costs['copy'] = 0.0 if pin_memory else 0.02
    def __iter__(self): return _BaseDataLoaderIter(self.dataset)",
    ),
];

/// Trains: 0.1 s a step.
pub const TRAIN: &str = "import sys, torch
from torch.utils.data import DataLoader
optimizer = torch.optim.AdamW(parameter for parameter in [torch.nn.Parameter()])
for step, batch in enumerate(DataLoader(range(5000))):
    print(f'step {step} loss {2.5 - step / 10000}', flush=True)
    optimizer.step()
";

/// The fused optimizer changes last digits.
pub const ROUNDING: [&str; 2] = ["--allow", "rounding"];
pub const FUSED: [&str; 4] = ["--allow", "rounding", "--remedy", "fused_optimizer"];

/// A folder with the fake torch, one for temporary files, and one for the history.
pub struct Place(TempDir);

impl Place {
    /// `None` without a python3.
    pub fn new() -> Option<Self> {
        if Command::new("python3").arg("--version").output().is_err() {
            println!("SKIPPED: no python3");
            return None;
        }
        let place = Self(tempfile::tempdir().unwrap());
        for (file, text) in TORCH {
            place.write(&format!("lib/{file}"), text);
        }
        fs::create_dir(place.path().join("tmp")).unwrap();
        Some(place)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// `gpuwhy try OPTIONS -- COMMAND`.
    pub fn command(&self, options: &[&str], command: &[&str]) -> Command {
        let mut gpuwhy = Command::new(GPUWHY);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GPUWHY_") {
                gpuwhy.env_remove(name);
            }
        }
        gpuwhy.arg("try").args(options).arg("--").args(command).current_dir(self.path());
        gpuwhy.env("PYTHONPATH", self.path().join("lib")).env("TMPDIR", self.path().join("tmp"));
        gpuwhy.env("GPUWHY_HISTORY", self.path().join("history.jsonl"));
        gpuwhy.env_remove("OMP_NUM_THREADS").env_remove("CUDA_LAUNCH_BLOCKING");
        gpuwhy
    }

    pub fn tried(&self, options: &[&str], program: &str) -> Output {
        self.write("train.py", program);
        let output = self.command(options, &["python3", "train.py"]).output().unwrap();
        assert_eq!(self.left_behind(), 0, "{}", stderr(&output));
        output
    }

    /// The JSON document about a program.
    pub fn json(&self, options: &[&str], program: &str) -> Value {
        let output = self.tried(&[&["--json", "--pairs", "2"], options].concat(), program);
        document(&output)
    }

    /// Number of files left after the run.
    pub fn left_behind(&self) -> usize {
        fs::read_dir(self.path().join("tmp")).unwrap().count()
    }
}

/// The JSON document; the exit code is 0 if something was tried.
pub fn document(output: &Output) -> Value {
    let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(output)));
    let is_tried = |(_, outcome): &(&str, &str)| !["not_applicable", "not_measured", "no_time"].contains(outcome);
    let code = i32::from(!outcomes(&document).iter().any(is_tried));
    assert_eq!(output.status.code(), Some(code), "{document}\n{}", stderr(output));
    document
}

/// Names and outcomes of the remedies.
pub fn outcomes(document: &Value) -> Vec<(&str, &str)> {
    let rows = document["remedies"].as_array().unwrap();
    rows.iter().map(|row| (row["id"].as_str().unwrap(), row["outcome"].as_str().unwrap())).collect()
}

pub fn near(value: &Value, wanted: f64) {
    assert!((value.as_f64().unwrap() - wanted).abs() < 1e-6, "{value}, wanted {wanted}");
}

#[test]
fn what_helps_is_kept_and_the_gains_are_those_of_the_settings() {
    let Some(place) = Place::new() else { return };
    let remedies = ["--remedy", "fused_optimizer", "--remedy", "empty_cache", "--remedy", "pinned", "--remedy", "gc"];
    let document = place.json(&[&ROUNDING, &remedies[..]].concat(), TRAIN);
    assert_eq!(document["unit"], "optimizer");
    near(&document["unchanged"]["s"], 0.1);
    assert_eq!(document["unchanged"]["steps"], 60);
    let wanted =
        [("fused_optimizer", "helps"), ("empty_cache", "not_applicable"), ("pinned", "helps"), ("gc", "no_difference")];
    assert_eq!(outcomes(&document), wanted);
    let rows = &document["remedies"];
    near(&rows[0]["gain"], 2.0);
    // Of two pairs.
    near(&rows[0]["low"], 2.0 / 1.1);
    near(&rows[2]["gain"], 5.0 / 3.0);
    near(&rows[2]["in_all"], 10.0 / 3.0);
    assert_eq!(rows[0]["output"], "equal");

    // The next time, the last measurement is the prediction.
    let output = place.tried(&["--pairs", "2", "--allow", "rounding", "--remedy", "fused_optimizer"], TRAIN);
    let text = String::from_utf8(output.stdout).unwrap();
    let wanted = "\
unchanged                         100.0 ms a step (2 runs of 60 steps)
1 fused_optimizer                 50.0 ms   2.00x (1.82 to 2.20)   measured before 2.00x
To keep: ";
    let keeps = text.strip_prefix(wanted).unwrap_or_else(|| panic!("{text}"));
    // Python 3.10 does not know where the call is in its line.
    let line = ":3: optimizer = torch.optim.AdamW((parameter for parameter in [torch.nn.Parameter()]), fused=True)\n";
    assert!(keeps.ends_with(line) || keeps == "fused=True for the optimizer\n", "{keeps}");
    let said =
        "gpuwhy: trying 1 remedy: at most 6 runs of the command, for at most 10 min; its standard input is empty\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), said);
    let history = fs::read_to_string(place.path().join("history.jsonl")).unwrap();
    assert_eq!(history.lines().count(), 3, "{history}");
    let line: Value = serde_json::from_str(history.lines().last().unwrap()).unwrap();
    let known = (&line["program"], &line["remedy"], &line["on_top_of"], &line["pairs"]);
    assert_eq!(known, (&"python train.py".into(), &"fused_optimizer".into(), &json!([]), &2.into()));
}

#[test]
fn a_report_says_the_measured_gain_of_its_program() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces/busy_cores.gpuwhy");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    let report = |options: &[&str]| {
        let mut command = Command::new(GPUWHY);
        let output = command.arg("report").args(options).arg(&trace).env("GPUWHY_HISTORY", &file).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let document = || serde_json::from_str::<Value>(&report(&["--json"])).unwrap();
    let plain = document();
    let remedies = plain["bottleneck"]["remedies"].as_array().unwrap();
    assert_eq!(remedies[0]["measured"], Value::Null);
    let (first, last) = (remedies[0]["id"].as_str().unwrap(), remedies[remedies.len() - 1]["id"].as_str().unwrap());
    let words: Vec<String> = serde_json::from_value(plain["process"]["command"].clone()).unwrap();
    let host = plain["process"]["host"].as_str().unwrap().to_owned();
    let (program, arguments) = (program(&words), arguments(&words));
    let line = Measured { host, program, arguments, at_ns: 1_795_703_260_651_223_400, ..Measured::default() };
    // The change that makes a remedy may have a name of its own.
    let change = |id: &str| Trial::named(id).map_or(id, |trial| trial.id).to_owned();
    let large = Measured { remedy: change(last), gain: 9.5, low: 9.0, high: 9.9, ..line.clone() };
    let none = Measured { remedy: change(first), gain: 1.0, low: 0.99, high: 1.01, ..line };
    fs::write(&file, large.line() + &none.line()).unwrap();
    let measured = &document()["bottleneck"]["remedies"][0];
    assert_eq!((&measured["id"], &measured["measured"]["gain"]), (&last.into(), &9.5.into()));
    let unwrapped = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = unwrapped(report(&[]));
    assert!(text.contains("Measured 9.50x (9.00x to 9.90x) by gpuwhy try on 2026-11-26."), "{text}");
    let full = unwrapped(report(&["--full"]));
    assert!(full.contains(&format!("Not advised, as they make no difference: {first} measured 1.00x")), "{full}");
}

#[test]
fn a_step_is_a_call_of_the_model_or_a_batch_where_no_optimizer_runs() {
    let Some(place) = Place::new() else { return };
    let model = "import torch
class Part(torch.nn.Module):
    def forward(self): torch.clock.spend('work')
class Model(torch.nn.Module):
    def __init__(self): self.parts = [Part(), Part()]
    def forward(self):
        for part in self.parts: part()
model = Model()
for _ in range(5000):
    torch.cuda.empty_cache()
    model()";
    let document = place.json(&["--remedy", "empty_cache"], model);
    assert_eq!((&document["unit"], outcomes(&document)), (&"module".into(), vec![("empty_cache", "helps")]));
    near(&document["remedies"][0]["gain"], 1.5);
    let loader = "import torch
for _ in torch.utils.data.DataLoader(range(5000)): torch.clock.spend('work'); torch.clock.spend('copy')";
    let document = place.json(&["--remedy", "pinned"], loader);
    assert_eq!((&document["unit"], outcomes(&document)), (&"loader".into(), vec![("pinned", "helps")]));
    near(&document["remedies"][0]["gain"], 2.0);
}

#[test]
fn a_run_with_too_few_steps_is_no_measurement() {
    let Some(place) = Place::new() else { return };
    // With the variable, a step takes longer than a run may: the first ones end it.
    let slow =
        "    if os.environ.get('NVIDIA_TF32_OVERRIDE') == '1': torch.clock.now[0] += 10000\n    optimizer.step()\n";
    let program = TRAIN.replace("import sys", "import os, sys").replace("    optimizer.step()\n", slow);
    for (change, name, steps) in
        [(["--remedy", "tf32"], "tf32", 4), (["--env", "NVIDIA_TF32_OVERRIDE=1"], "env NVIDIA_TF32_OVERRIDE", 2)]
    {
        let document = place.json(&change, &program);
        assert_eq!(outcomes(&document), [(name, "not_measured")]);
        let row = &document["remedies"][0];
        assert_eq!(row["why"], format!("a run with it made {steps} such steps, too few to measure"));
        assert!(row["gain"].is_null() && row["changed_s"].is_null(), "{row}");
    }
    let said = String::from_utf8(place.tried(&["--pairs=2", "--remedy", "tf32"], &program).stdout).unwrap();
    assert!(said.contains("nothing can be said: a run with it made 4 such steps"), "{said}");
    assert!(said.ends_with("No gain could be measured.\n") && !place.path().join("history.jsonl").exists(), "{said}");
}

#[test]
fn the_first_run_is_made_again_where_it_only_shows_what_a_step_is() {
    let Some(place) = Place::new() else { return };
    let loader = TRAIN.replace("    optimizer.step()\n", "    torch.clock.spend('work')\n");
    for (program, unit, count) in [(TRAIN, "optimizer", 4), (loader.as_str(), "loader", 5)] {
        let program = format!("open('{unit}', 'a').write('run\\n')\n{program}");
        let output = place.tried(&["--json", "--pairs=2", "--remedy", "tf32", "--allow", "all"], &program);
        assert_eq!(document(&output)["unit"], unit);
        let runs = fs::read_to_string(place.path().join(unit)).unwrap();
        assert_eq!(runs.lines().count(), count, "{unit}");
        assert!(stderr(&output).contains("trying 1 remedy: at most 6 runs of the command"), "{}", stderr(&output));
    }
}

#[test]
fn pairs_end_when_the_gain_is_known() {
    let Some(place) = Place::new() else { return };
    let remedies = ["--json", "--allow", "all", "--remedy", "fused_optimizer", "--remedy", "empty_cache"];
    let program =
        TRAIN.replace("    optimizer.step()", "    optimizer.step()\n    if step == 0: torch.cuda.empty_cache()");
    let output = place.tried(&remedies, &program);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcomes(&document), [("fused_optimizer", "helps"), ("empty_cache", "no_difference")]);
    assert_eq!((&document["remedies"][0]["pairs"], &document["remedies"][1]["pairs"]), (&5.into(), &3.into()));
}

#[test]
fn a_program_that_ends_early_is_measured_over_its_steps() {
    let Some(place) = Place::new() else { return };
    let short = TRAIN.replace("range(5000)", "range(30)");
    let document = place.json(&FUSED, &short);
    assert_eq!(document["unchanged"]["steps"], 19);
    near(&document["remedies"][0]["gain"], 2.0);
    let output = place.tried(&FUSED, &TRAIN.replace("range(5000)", "range(2)"));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("made 2 steps, too few"), "{}", stderr(&output));
    // Without any step, the whole run counts.
    let document = place.json(&FUSED, "import torch");
    assert_eq!((&document["unit"], &document["unchanged"]["steps"]), (&"run".into(), &1.into()));
}

#[test]
fn other_numbers_are_said_and_not_kept() {
    let Some(place) = Place::new() else { return };
    let program = TRAIN.replace("{2.5 - step / 10000}", "{2.5 + torch.clock.costs[\"optimizer\"]} at {id(sys.argv)}");
    let document = place.json(&FUSED, &program);
    assert_eq!(outcomes(&document), [("fused_optimizer", "changes_results")]);
    let row = &document["remedies"][0];
    assert_eq!((&row["output_changed"], &row["gain"]), (&"loss 2.51".into(), &Value::Null));
    assert!(!place.path().join("history.jsonl").exists());
    let document = place.json(&["--remedy", "fused_optimizer", "--allow", "all"], &program);
    assert_eq!(outcomes(&document), [("fused_optimizer", "helps")]);
    assert_eq!(document["remedies"][0]["output_unchanged"], "loss 2.56");
}

#[test]
fn a_remedy_with_which_the_program_fails_is_no_end() {
    let Some(place) = Place::new() else { return };
    let program = format!("import os\nif os.environ.get('OMP_NUM_THREADS'): raise ValueError('no threads')\n{TRAIN}");
    let document = place.json(&["--allow", "all", "--remedy", "worker_threads", "--remedy", "pinned"], &program);
    assert_eq!(outcomes(&document), [("worker_threads", "fails"), ("pinned", "helps")]);
    assert_eq!(document["remedies"][0]["why"], "ValueError: no threads");
}

#[test]
fn other_programs_are_measured_as_a_whole_by_variables_only() {
    let Some(place) = Place::new() else { return };
    let document =
        place.json(&["--allow", "all", "--remedy", "worker_threads", "--remedy", "pinned"], "print('ready')");
    assert_eq!(document["unit"], "run");
    let found = outcomes(&document);
    assert_eq!(found[1], ("pinned", "not_applicable"));
    // How long an empty program takes is chance.
    assert!(["helps", "no_difference", "slower"].contains(&found[0].1), "{found:?}");
    assert_eq!(document["remedies"][0]["output"], "equal");
}

#[test]
fn processes_of_the_program_are_not_counted_and_its_own_modules_run() {
    let Some(place) = Place::new() else { return };
    place.write("lib/sitecustomize.py", "mark = 5");
    let program = format!(
        "import subprocess, sitecustomize\nassert sitecustomize.mark == 5\n{}",
        TRAIN.replace(
            "    optimizer.step()\n",
            "    optimizer.step()\n    if step == 3: subprocess.run([sys.executable, '-c', CHILD], check=True)\n"
        )
    )
    .replace(
        "CHILD",
        &format!("{:?}", "import torch\nfor _ in range(200): torch.optim.AdamW([torch.nn.Parameter()]).step()"),
    );
    let document = place.json(&FUSED, &program);
    assert_eq!(document["unchanged"]["steps"], 60);
    near(&document["remedies"][0]["gain"], 2.0);
}

#[test]
fn commands_that_cannot_be_tried_are_refused_with_a_reason() {
    let Some(place) = Place::new() else { return };
    let run = |options: &[&str], command: &[&str]| {
        let output = place.command(options, command).output().unwrap();
        assert_eq!(place.left_behind(), 0);
        assert!(output.stdout.is_empty());
        (output.status.code(), stderr(&output))
    };
    place.write("plain.txt", "no program");
    let remedy = ["--remedy", "pinned"];
    let cases: [(&[&str], &[&str], i32, &str); 9] = [
        (&remedy, &["no-such-command"], 127, "was not found"),
        (&remedy, &["./plain.txt"], 126, "cannot start ./plain.txt"),
        (&remedy, &["sh", "-c", "echo no data >&2; exit 3"], 3, "exit code 3 (its standard input is empty):\nno data"),
        (&remedy, &["sh", "-c", "kill -9 $$"], 137, "prints nothing on stderr"),
        (&remedy, &["/usr/bin/torchrun", "train.py"], 2, "torchrun starts several processes"),
        (&remedy, &["python3", "-m", "torch.distributed.run", "x"], 2, "starts several processes"),
        (&["--remedy", "pined"], &["true"], 2, "did you mean pinned?"),
        (&["--from", "plain.txt"], &["true"], 2, "plain.txt"),
        (&["--steps", "1"], &["true"], 2, "--steps"),
    ];
    for (options, command, code, words) in cases {
        let (found, said) = run(options, command);
        assert!(found == Some(code) && said.contains(words), "{command:?}: {found:?} {said}");
    }
    let list = Command::new(GPUWHY).args(["try", "--list"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.lines().count() > 20 && list.contains("NVIDIA_TF32_OVERRIDE=1"), "{list}");
}

#[test]
fn remedies_come_from_a_trace_or_from_a_recorded_run() {
    let Some(place) = Place::new() else { return };
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces/busy_cores.gpuwhy");
    let output = place.command(&["--from", traces.to_str().unwrap()], &["true"]).output().unwrap();
    let is_answer = |output: &Output| {
        String::from_utf8_lossy(&output.stdout).starts_with("Not tried: ") || stderr(output).contains("trying ")
    };
    assert!(is_answer(&output), "{output:?}");

    // A recorded session takes the place of a program with CUDA.
    let stage = Stage::new();
    let host = stage.host("mlp");
    let mut command = place.command(&[], &[host.get_program().to_str().unwrap()]);
    let output = with_recording(&mut command, &host).output().unwrap();
    let said = stderr(&output);
    assert!(said.starts_with("gpuwhy: running the command once to record its report") && is_answer(&output), "{said}");
    assert_eq!(place.left_behind(), 0);
    let output = place.command(&[], &["true"]).env("GPUWHY_LIB", built("libprof.so")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("it did not use CUDA"), "{}", stderr(&output));
}

/// Makes the recorded session of `host` that of the programs of `gpuwhy try`.
pub fn with_recording<'a>(command: &'a mut Command, host: &Command) -> &'a mut Command {
    for (name, value) in host.get_envs() {
        let own = ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "GPUWHY_OUTPUT"].iter().any(|own| name == *own);
        if let Some(value) = value.filter(|_| !own) {
            command.env(name, value);
        }
    }
    command.env("GPUWHY_LIB", built("libprof.so"))
}

/// Waits until `file` exists, and returns its contents.
pub fn written(file: &Path) -> String {
    loop {
        match fs::read_to_string(file) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
}

pub fn is_alive(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !status.is_empty() && !status.contains(") Z ")
}

fn ended(mut child: Child) -> Option<i32> {
    child.wait().unwrap().code()
}

#[test]
fn a_signal_ends_the_program_with_its_children_and_leaves_nothing() {
    let Some(place) = Place::new() else { return };
    let script = "sleep 1000 & echo $! > child; sleep 1000";
    let mut command = place.command(&["--allow", "all", "--remedy", "worker_threads"], &["sh", "-c", script]);
    let gpuwhy = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let child = written(&place.path().join("child"));
    assert!(is_alive(&child));
    let killed = Command::new("sh").args(["-c", &format!("kill -TERM {}", gpuwhy.id())]).status().unwrap();
    assert!(killed.success());
    assert_eq!(ended(gpuwhy), Some(143));
    assert_eq!(place.left_behind(), 0);
    while is_alive(&child) {
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_program_that_ignores_signals_is_killed_when_the_time_is_up() {
    let Some(place) = Place::new() else { return };
    let script = "trap '' INT TERM; sleep 1000 & echo $! > child; while :; do sleep 1; done";
    let output = place
        .command(&["--allow", "all", "--remedy", "worker_threads", "--budget", "5s"], &["sh", "-c", script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("took longer than the time for everything"), "{}", stderr(&output));
    let child = written(&place.path().join("child"));
    while is_alive(&child) {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(place.left_behind(), 0);
}

#[test]
fn a_program_that_catches_the_interrupt_is_ended_all_the_same() {
    let Some(place) = Place::new() else { return };
    let program = format!("import time\ntry:\n{}except KeyboardInterrupt:\n    time.sleep(1000)\n", indented(TRAIN));
    let output = place.tried(&["--json", "--remedy", "empty_cache"], &program);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcomes(&document), [("empty_cache", "not_applicable")]);
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}
