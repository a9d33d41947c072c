//! Passes of loops as the steps of `gpuwhy try`. The clock of the programs advances only by their work.
//!
//! Prints `SKIPPED` without a Python of 3.12 or later, by name on the PATH or below the root of pyenv.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::cli_try::Place;
use crate::support::{built, stderr};

/// What all programs begin with: CUDA, and a clock. A background job of a shell ignores Ctrl-C, by which runs end.
pub const START: &str =
    "import asyncio, ctypes, os, signal, sys, threading, time; signal.signal(2, signal.default_int_handler)
def cuda(): ctypes.CDLL(os.path.abspath('libcuda.so.1'))
now = vars(__import__('builtins')).setdefault('now', [1000.0])
time.perf_counter = lambda: now[0]
def work(seconds=0.02): now[0] += seconds / 2 if os.environ.get('OMP_NUM_THREADS') else seconds
";

/// A Python with sys.monitoring, and a folder with a library that is named as the driver's.
pub fn stage() -> Option<(Place, PathBuf)> {
    let place = Place::new()?;
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".pyenv")));
    let versions = root.and_then(|root| fs::read_dir(root.join("versions")).ok());
    let of_pyenv = versions.into_iter().flatten().flatten().map(|entry| entry.path().join("bin/python3"));
    let named = ["python3", "python3.14", "python3.13", "python3.12"].map(PathBuf::from);
    let has_monitoring = |python: &PathBuf| {
        let status = Command::new(python).args(["-c", "import sys; sys.monitoring"]).output();
        status.is_ok_and(|output| output.status.success())
    };
    let Some(python) = named.into_iter().chain(of_pyenv).find(has_monitoring) else {
        println!("SKIPPED: no Python 3.12 or later");
        return None;
    };
    fs::copy(built("libcupti_replay.so"), place.path().join("libcuda.so.1")).unwrap();
    Some((place, python))
}

/// Runs a program with the Python side of `gpuwhy try`, and returns its result: null if it wrote none. Expected errors
/// are in the settings.
pub fn counted((place, python): &(Place, PathBuf), settings: &Value, program: &str) -> Value {
    let mut all = json!({"remedies": [], "unit": null, "loop": null, "steps": 20, "seconds": 0.2, "warm_steps": 5, "warm_s": 0.1,
        "limit_s": 60.0, "end": "limit"});
    all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let parts =
        ["run/behind", "trial/python/steps", "trial/python/loops", "trial/python/edits", "trial/python/changes"]
            .map(|part| fs::read_to_string(format!("{}/cli/{part}.py", env!("CARGO_MANIFEST_DIR"))).unwrap());
    let folder = place.path().join("hook");
    fs::create_dir_all(&folder).unwrap();
    for left in ["claim", "result.json"] {
        let _ = fs::remove_file(folder.join(left));
    }
    let call = format!("\nmain({})\n", Value::from(all.to_string()));
    // The clock of the start-up is that of the program.
    let clock = "import builtins, time\nbuiltins.now = [1000.0]\ntime.perf_counter = lambda: builtins.now[0]\n";
    fs::write(folder.join("sitecustomize.py"), clock.to_owned() + &parts.join("\n\n") + &call).unwrap();
    fs::write(place.path().join("loops.py"), format!("{START}{program}")).unwrap();
    let mut command = Command::new(python);
    command.arg("loops.py").current_dir(place.path()).env_remove("OMP_NUM_THREADS");
    let path = format!("{}:{}", folder.display(), place.path().join("lib").display());
    let output = command.env("PYTHONPATH", path).output().unwrap();
    let result = fs::read(folder.join("result.json")).unwrap_or_default();
    let result: Value = serde_json::from_slice(&result).unwrap_or_default();
    let is_ended = matches!(result["how"].as_str(), Some("measured" | "limit"));
    assert!(output.status.success() || is_ended, "{}", stderr(&output));
    let errors = settings.get("errors").cloned().unwrap_or_else(|| json!({}));
    assert!(result.is_null() || result["errors"] == errors, "{result}");
    result
}

/// Header of the chosen loop, and its passes.
fn chosen(result: &Value) -> (&str, u64) {
    assert_eq!(result["unit"], "loop", "{result}");
    assert_eq!(result["times"].as_array().unwrap().len() as u64, result["counts"]["loop"].as_u64().unwrap());
    (result["loop"]["header"].as_str().unwrap(), result["counts"]["loop"].as_u64().unwrap())
}

#[test]
fn every_kind_of_loop_is_counted_and_the_outermost_is_chosen() {
    let Some(stage) = stage() else { return };
    let cases = [
        ("cuda()\nfor step in range(40): work()", ("for step in range(40): work()", 40)),
        // Jumps to two places lead back. The last pass falls through.
        (
            "cuda()\nstep = 0\nwhile step < 40:\n    step += 1\n    if step % 2:\n        work()\n        continue\n    work()",
            ("while step < 40:", 39),
        ),
        (
            "def main(n):\n    while True:\n        while n % 3:\n            n -= 1\n            work()\n        n -= 1\n        \
             if n < 0: return\n        work()\ncuda(); main(90)",
            ("while True:", 30),
        ),
        (
            "def main():\n    for epoch in range(8):\n        for batch in range(10):\n            \
             parts = [work(0.001) for part in range(3)]\ncuda(); main()",
            ("for epoch in range(8):", 8),
        ),
        // One that runs in some steps only has fewer passes.
        (
            "def log(step):\n    for name in range(2): work(0.001)\ncuda()\nfor step in range(60):\n    work()\n    if step % 10 == 0: log(step)",
            ("for step in range(60):", 60),
        ),
        // Three are too few.
        ("cuda()\nfor epoch in range(3):\n    for batch in range(9): work()", ("for batch in range(9): work()", 27)),
        ("cuda()\nlosses = [work() for _ in range(30)]", ("losses = [work() for _ in range(30)]", 30)),
        (
            "cuda()\ntotal = sum(1 for _ in range(30) if not work())",
            ("total = sum(1 for _ in range(30) if not work())", 30),
        ),
        (
            "def read(n):\n    for item in range(n):\n        yield item\ncuda()\nfor item in read(30): work()",
            ("for item in read(30): work()", 30),
        ),
        (
            "async def batches():\n    n = 0\n    while n < 30:\n        await asyncio.sleep(0)\n        n += 1\n        yield n\n\
             async def main():\n    async for batch in batches():\n        work()\n        if batch == 29: break\n\
             cuda(); asyncio.run(main())",
            ("async for batch in batches():", 28),
        ),
        // Only the outermost call of a function that calls itself.
        (
            "def walk(deep, n):\n    for child in range(n):\n        work()\n        if deep and child: walk(deep - 1, 2)\n\
             cuda(); walk(2, 30)",
            ("for child in range(n):", 30),
        ),
        (
            "def serve():\n    for request in range(30): work(); sum(range(9000))\nthread = threading.Thread(target=serve)\n\
             cuda(); thread.start()\nwhile thread.is_alive(): time.sleep(0.0005)",
            ("for request in range(30): work(); sum(range(9000))", 30),
        ),
        // Neither the preparation nor a first pass that compiles.
        (
            "for word in range(50000): pass\nfor step in range(40):\n    if step == 0: cuda(); work(9)\n    work()",
            ("for step in range(40):", 40),
        ),
        (
            "cuda()\nlayers = [layer for layer in range(6)]\nfor step in range(40): work(9 if step == 0 else 0.02)",
            ("for step in range(40): work(9 if step == 0 else 0.02)", 40),
        ),
        // Errors that are caught lead back, too.
        (
            "cuda()\nfor step in range(40):\n    try:\n        if step % 2: raise ValueError\n    except ValueError:\n        work()\n        \
             continue\n    finally:\n        work()",
            ("for step in range(40):", 40),
        ),
    ];
    for (program, wanted) in cases {
        let result = counted(&stage, &json!({}), program);
        assert_eq!(chosen(&result), wanted, "{program}");
        assert_eq!(result["how"], "exit");
        // Found again, wherever its line is now.
        let again = json!({"unit": "loop", "loop": result["loop"]});
        let moved = counted(&stage, &again, &format!("# A comment.\n{program}"));
        assert_eq!(chosen(&moved), wanted, "{program}");
        assert_eq!(moved["loop"]["line"].as_u64(), result["loop"]["line"].as_u64().map(|line| line + 1));
    }
}

#[test]
fn no_loop_is_chosen_without_cuda_or_in_a_part_of_the_time() {
    let Some(stage) = stage() else { return };
    for program in [
        "for step in range(40): work()",
        "cuda()\nfor step in range(40): work()\nwork(9)",
        "cuda()\nfor step in range(4): work()",
        "cuda()\nimport statistics\nstatistics.quantiles(range(1000), n=200)\nwork()",
    ] {
        assert_eq!(counted(&stage, &json!({}), program), Value::Null, "{program}");
    }
}

#[test]
fn of_two_equal_headers_the_right_one_is_found_again() {
    let Some(stage) = stage() else { return };
    let program = "def main():\n    for step in range(9):\n        pass\n    cuda()\n    for step in range(9):\n        work()\nmain()";
    let result = counted(&stage, &json!({}), program);
    assert_eq!((chosen(&result), &result["loop"]["nth"]), (("for step in range(9):", 9), &1.into()));
    let again = counted(&stage, &json!({"unit": "loop", "loop": result["loop"]}), program);
    assert_eq!(again["loop"], result["loop"]);
    assert_eq!(again["moved"], false);
}

#[test]
fn a_loop_that_a_patch_moves_or_replaces_is_chosen_anew() {
    let Some(stage) = stage() else { return };
    let program = "cuda()\ndef main():\n    for step in range(40):\n        for part in range(2): work()\nmain()";
    let result = counted(&stage, &json!({}), program);
    let settings = json!({"unit": "loop", "loop": result["loop"], "patched": true});
    for (old, new, wanted) in [
        ("step in range(40)", "step in list(range(30))", ("for step in list(range(30)):", 30)),
        ("main", "train", ("for step in range(40):", 40)),
    ] {
        let found = counted(&stage, &settings, &program.replace(old, new));
        assert_eq!((chosen(&found), &found["moved"]), (wanted, &json!(true)), "{found}");
    }
    let found = counted(&stage, &settings, &program.replace("cuda()", "cuda()\nfor look in range(9): work(0.001)"));
    assert_eq!((chosen(&found), &found["moved"]), (("for step in range(40):", 40), &json!(false)));
    let limited = json!({"unit": "loop", "loop": result["loop"], "patched": true, "limit_s": 0.9});
    let found = counted(&stage, &limited, &program.replace("main", "train"));
    assert_eq!((&found["how"], chosen(&found).0), (&json!("limit"), "for step in range(40):"));
}

#[test]
fn a_loop_is_known_by_its_place_in_the_copy_and_a_file_that_is_not_there_has_none() {
    let Some(stage) = stage() else { return };
    let folder = stage.0.path().join("deep/in/a/folder");
    fs::create_dir_all(&folder).unwrap();
    fs::write(stage.0.path().join("deep/loop.py"), "def run(work):\n    for step in range(40): work()").unwrap();
    let program = "cuda()\nsys.path.append('deep')\nimport loop\nloop.run(work)";
    let result = counted(&stage, &json!({"root": stage.0.path().join("deep")}), program);
    assert_eq!(result["loop"]["file"], "loop.py", "{result}");
    assert_eq!(counted(&stage, &json!({"root": null}), program)["loop"]["file"], "deep/loop.py");
    let elsewhere = counted(&stage, &json!({"root": folder}), program);
    assert_eq!(elsewhere["loop"]["file"], stage.0.path().join("deep/loop.py").to_str().unwrap());
    let cell = "cuda()\nexec(compile('for step in range(40): work()', f'/tmp/ipykernel_{os.getpid()}/1.py', 'exec'))";
    assert_eq!(counted(&stage, &json!({}), cell), Value::Null);
    let text = "cuda()\nexec('for step in range(40): work()')";
    assert_eq!(chosen(&counted(&stage, &json!({}), text)).1, 40);
}

#[test]
fn a_loop_that_only_waits_for_a_thread_that_works_is_none_of_steps() {
    let Some(stage) = stage() else { return };
    // The clocks of the CPU: of this thread, and of all.
    let program = "time.thread_time, time.process_time = lambda: 0.0, lambda: OTHERS
cuda()
for look in range(90): CALL; work()";
    let run = |others: &str, call: &str| {
        counted(&stage, &json!({}), &program.replace("OTHERS", others).replace("CALL", call))
    };
    let others = "thread = threading.Thread(); thread.start(); thread.join";
    for call in ["time.sleep(0)", &format!("{others}()"), &format!("{others}(0.1)"), &format!("{others}(timeout=0.1)")]
    {
        assert_eq!(run("now[0]", call), Value::Null, "{call}");
    }
    let text = ["sum([])", "', '.join([str(look)])", "''.join(sys.argv)", "os.path.join('a', 'b')", "b''.join([])"];
    for (others, call) in text.map(|call| ("now[0]", call)).into_iter().chain([("1.0", "time.sleep(0)")]) {
        assert_eq!(chosen(&run(others, call)).1, 90, "{others} {call}");
    }
}

#[test]
fn a_loop_that_waits_and_works_is_one_of_steps() {
    let Some(stage) = stage() else { return };
    let start = "import functools
launch = ctypes.pythonapi.Py_IsInitialized
def step(*_): launch(); work()
class Own:
    input = property(lambda own: 0, step)
    __enter__ = __setitem__ = __getattr__ = __lt__ = step
    def __exit__(self, *error): pass
own, nothing = Own(), lambda: None
cuda()
";
    for pass in [
        "for stage in (nothing, step): stage()",
        "for stage in (step, nothing): stage()",
        "job = (nothing, step)[look % 2]; job()",
        "with own: pass",
        "own.input = look",
        "own[look] = look",
        "own.other",
        "own < look",
        "functools.partial(step)()",
        "[*map(step, [look])]",
    ] {
        let program = format!("{start}look = 0\nwhile look < 40:\n    look += 1\n    time.sleep(0)\n    {pass}");
        let result = counted(&stage, &json!({}), &program);
        assert_eq!(chosen(&result), ("while look < 40:", 39), "{pass}");
    }
}

#[test]
fn no_local_of_the_program_lives_longer() {
    let Some(stage) = stage() else { return };
    // Before Python 3.13 the locals of a frame that are read stay there until its function returns.
    let program = "import torch, weakref
class Batch(torch.Tensor): pass
batches = weakref.WeakSet()
def main():
    from torch.optim import AdamW
    batch = Batch(); batches.add(batch)
    optimizer = AdamW([torch.nn.Parameter()])
    for step in range(40):
        batch = Batch(); batches.add(batch)
        work(); time.sleep(0)
        assert len(batches) == 1
cuda()
main()";
    let result = counted(&stage, &json!({"remedies": ["fused_optimizer"]}), program);
    assert_eq!(chosen(&result).1, 40);
    assert_eq!(result["edits"]["fused_optimizer"][0]["insert"], ", fused=True", "{result}");
}

#[test]
fn a_run_ends_as_it_is_told() {
    let Some(stage) = stage() else { return };
    let nested = "cuda()\nfor epoch in range(5000):\n    for batch in range(10): work()";
    let measured = counted(&stage, &json!({"end": "measured"}), nested);
    assert_eq!((&measured["how"], chosen(&measured).0), (&"measured".into(), "for epoch in range(5000):"));
    assert!(chosen(&measured).1 < 500, "{measured}");
    let limited = counted(&stage, &json!({"limit_s": 12.0}), nested);
    assert_eq!((&limited["how"], chosen(&limited).0), (&"limit".into(), "for epoch in range(5000):"));
    assert!((55..65).contains(&chosen(&limited).1), "{limited}");
    // The start-up is found at the end, too.
    assert_eq!(limited["from"], 20);
    // A start-up of 9 seconds is a part of the 12.
    let started = counted(&stage, &json!({"limit_s": 12.0}), &format!("work(9.0)\n{nested}"));
    assert!((12..20).contains(&chosen(&started).1), "{started}");
    let never = counted(&stage, &json!({"limit_s": 1.0, "end": "never"}), &nested.replace("5000", "50"));
    assert_eq!((&never["how"], chosen(&never)), (&"exit".into(), ("for epoch in range(50):", 50)));
    // The interrupt reaches the main thread.
    let thread = "def serve():\n    while True: work(); sum(range(9000))\nthreading.Thread(target=serve, daemon=True).start()\n\
                  cuda()\nwhile True: time.sleep(0.0005)";
    let served = counted(&stage, &json!({"end": "measured"}), thread);
    assert_eq!(chosen(&served).0, "while True: work(); sum(range(9000))");
}

#[test]
fn children_of_the_program_are_not_measured() {
    let Some(stage) = stage() else { return };
    let forked = "cuda()\nchild = os.fork()\nfor step in range(40 if child else 90): work()\nif child: os.wait()";
    assert_eq!(chosen(&counted(&stage, &json!({}), forked)).1, 40);
    let spawned = "import multiprocessing
def load(n):
    for item in range(n): work()
if __name__ == '__main__':
    child = multiprocessing.get_context('spawn').Process(target=load, args=(90,))
    child.start(); child.join()
    cuda()
    for step in range(40): work()";
    assert_eq!(chosen(&counted(&stage, &json!({}), spawned)).1, 40);
}

#[test]
fn a_tool_that_watches_jumps_too_sees_all_of_them() {
    let Some(stage) = stage() else { return };
    let program = "cuda()
seen, monitoring = [], sys.monitoring
assert [monitoring.get_tool(tool) for tool in range(6)].count('gpuwhy') == 1
monitoring.use_tool_id(monitoring.COVERAGE_ID, 'coverage')
monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.JUMP, lambda code, *_: seen.append(code.co_name))
monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.JUMP)
def main():
    for step in range(40): work()
main()
assert seen.count('main') == 40, seen";
    assert_eq!(chosen(&counted(&stage, &json!({}), program)).1, 40);
}

#[test]
fn lines_that_a_patch_changes_come_last_and_its_files_are_known() {
    let Some(stage) = stage() else { return };
    let program = "import helper\ncuda()\nfor epoch in range(8):\n    for batch in range(10): helper.step(work)";
    let file = stage.0.path().join("loops.py");
    let helper = stage.0.path().join("helper.py");
    fs::write(&helper, "def step(work): work()").unwrap();
    let first = START.lines().count() + 3;
    let unused = stage.0.path().join("other.py");
    let changed = json!({file.to_str().unwrap(): [[first, first]], helper.to_str().unwrap(): [[1, 1]], unused.to_str().unwrap(): [[1, 2]]});
    let result = counted(&stage, &json!({"changed": changed}), program);
    assert_eq!(chosen(&result), ("for batch in range(10): helper.step(work)", 80));
    let used = |result: &Value| {
        let mut used: Vec<String> = serde_json::from_value(result["used"].clone()).unwrap();
        used.sort_unstable();
        used
    };
    assert_eq!(used(&result), [helper.to_str().unwrap(), file.to_str().unwrap()]);
    // Files that the program executes itself.
    for execute in ["exec(open('other.py').read())", "import runpy; runpy.run_path('other.py')"] {
        fs::write(&unused, "pass").unwrap();
        let result = counted(&stage, &json!({"changed": changed}), &format!("{execute}\n{program}"));
        let all = [helper.to_str().unwrap(), file.to_str().unwrap(), unused.to_str().unwrap()];
        assert_eq!(used(&result), all, "{execute}");
    }
}

#[test]
fn modules_of_pytorch_tell_a_loop_that_polls() {
    let Some(stage) = stage() else { return };
    let model = "import torch
time.perf_counter = lambda: now[0]
class Model(torch.nn.Module):
    def forward(self): work()
model, requests = Model(), iter(range(200))
cuda()
";
    let polls = "for look in range(200):\n    if look % 4 == 0: model()";
    assert_eq!(counted(&stage, &json!({}), &format!("{model}{polls}"))["unit"], "module");
    let result = counted(&stage, &json!({}), &format!("{model}for batch in range(50): model(); model()"));
    assert_eq!(chosen(&result), ("for batch in range(50): model(); model()", 50));
    // Calls that prepare functions tell nothing of the loop behind them.
    let result =
        counted(&stage, &json!({}), &format!("{model}for part in range(6): model()\nfor batch in range(50): work()"));
    assert_eq!(chosen(&result), ("for batch in range(50): work()", 50));
}

#[test]
fn a_program_without_pytorch_is_measured_by_its_loop() {
    let Some((place, python)) = stage() else { return };
    let program = format!("{START}cuda()\nfor step in range(5000):\n    print(f'step {{step}}')\n    work(0.1)\n");
    fs::write(place.path().join("loops.py"), program).unwrap();
    let options = ["--allow", "all", "--pairs", "2", "--remedy", "worker_threads"];
    let output = place.command(&options, &[python.to_str().unwrap(), "loops.py"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.starts_with(
            "unchanged                         100.0 ms a pass of the loop at loops.py:7 (2 runs of 60 steps)\n"
        ),
        "{text}{}",
        stderr(&output)
    );
    assert!(text.contains("1 worker_threads                  50.0 ms   2.00x (1.82 to 2.20)"), "{text}");
}

/// A driver whose GPU has done its work at `done[0]`.
const DRIVER: &str = "class Driver:
    def cuDeviceGetCount(self, count): count._obj.value = 2
    def cuDevicePrimaryCtxGetState(self, device, flags, active): active._obj.value = device == 0
    def cuDevicePrimaryCtxRetain(self, context, device): assert device == 0
    def cuCtxPushCurrent_v2(self, context): pass
    def cuCtxSynchronize(self): now[0] = max(now[0], done[0])
    def cuCtxPopCurrent_v2(self, context): pass
    def cuDevicePrimaryCtxRelease_v2(self, device): pass
cuda()
ctypes.CDLL, done = lambda name, mode: Driver(), [0.0]
";

#[test]
fn what_follows_the_steps_is_no_work_of_the_gpu() {
    let Some((place, python)) = stage() else { return };
    let tried = |steps: u32| {
        let evaluates = "Driver().cuCtxSynchronize()\nwork(0.9)";
        let step = "    work(0.1)\n    done[0] = max(done[0], now[0]) + 0.01";
        let program = format!("{START}{DRIVER}for step in range({steps}):\n{step}\n{evaluates}\n");
        fs::write(place.path().join("loops.py"), program).unwrap();
        let options = ["--env", "OMP_NUM_THREADS=1", "--pairs", "2"];
        let output = place.command(&options, &[python.to_str().unwrap(), "loops.py"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!text.contains("the GPU works long after"), "{text}{}", stderr(&output));
        text
    };
    let text = tried(150);
    assert!(text.contains("100.0 ms a pass") && !text.contains("if the GPU keeps up"), "{text}");
    let text = tried(15);
    assert!(text.contains("a pass") && text.contains("if the GPU keeps up"), "{text}");
}

#[test]
fn a_step_ends_when_the_gpu_has_done_its_work() {
    let Some(stage) = stage() else { return };
    let program = &format!(
        "{DRIVER}for step in range(2000):
    work(0.001)
    done[0] = max(done[0], now[0]) + 0.02
"
    );
    let first = counted(&stage, &json!({"waits": true}), program);
    assert_eq!((&first["unit"], &first["waits"]), (&json!("loop"), &json!([])), "no wait while the loop is not known");
    // At the end of the program the GPU is 38 s behind.
    let times: Vec<f64> = serde_json::from_value(first["times"].clone()).unwrap();
    assert!(
        (first["ended"].as_f64().unwrap() - times[1999] - 38.0).abs() < 0.1 && first["synced"] == true,
        "{}",
        first["ended"]
    );
    assert!((first["waited"].as_f64().unwrap() - 38.0).abs() < 0.1, "{}", first["waited"]);
    // What follows the steps is no wait, nor is the program's own.
    let goes_on = program.replace("+ 0.02", "+ 0.001") + "Driver().cuCtxSynchronize(); work(1)";
    let result = counted(&stage, &json!({"waits": true}), &goes_on);
    assert_eq!(result["waited"], 0.0, "{result}");
    // Another thread has no context by itself.
    let own = "active._obj.value = 0\n    def cuCtxSetCurrent(self, context): self.set = context.value
    def cuCtxGetCurrent(self, context): context._obj.value = 7 if threading.main_thread() is threading.current_thread() else self.set";
    for (context, synced) in [(own, true), ("active._obj.value = 0", false)] {
        let program = program.replace("active._obj.value = device == 0", context);
        let result = counted(&stage, &json!({"waits": true}), &program);
        assert_eq!((&result["synced"], result["ended"].is_number()), (&json!(synced), synced), "{context}");
    }
    // The question whether PyTorch records a graph would make a context where it has none.
    let unused = "class torch:
    __file__ = '/torch/__init__.py'
    class cuda: is_initialized, is_current_stream_capturing = lambda: False, lambda: 1 / 0
sys.modules['torch'] = torch
";
    assert_eq!(counted(&stage, &json!({"waits": true}), &format!("{unused}{program}"))["synced"], true);
    let unwaited = counted(&stage, &json!({"waits": false}), program);
    assert_eq!((&unwaited["synced"], &unwaited["ended"]), (&Value::Null, &Value::Null));
    // A GPU that does not finish does not keep the program from its exit.
    let endless = program.replace("max(now[0], done[0])", "time.sleep(1e6)");
    let result = counted(&stage, &json!({"waits": true, "limit_s": 0.0, "end": "never"}), &endless);
    assert_eq!((&result["how"], &result["ended"], &result["waited"]), (&json!("exit"), &Value::Null, &Value::Null));
    // What the program registered for its exit is no part of it, though threads that it has started are.
    let left = format!("import atexit\natexit.register(work, 900)\n{program}");
    let thread = left.replace("for step", "def serve():\n  for step") + "threading.Thread(target=serve).start()\n";
    for program in [left, thread] {
        let result = counted(&stage, &json!({"waits": true}), &program);
        assert!((result["ended"].as_f64().unwrap() - first["ended"].as_f64().unwrap()).abs() < 0.1, "{result}");
    }
    let again = |waits: bool| {
        let settings = json!({"waits": waits, "unit": "loop", "loop": first["loop"], "steps": 60, "end": "measured"});
        let result = counted(&stage, &settings, program);
        assert_eq!(result["how"], "measured");
        let times: Vec<f64> = serde_json::from_value(result["times"].clone()).unwrap();
        let waits: Vec<(usize, f64)> = serde_json::from_value(result["waits"].clone()).unwrap();
        (times, waits)
    };
    assert_eq!(again(false).1, []);
    let (times, waits) = again(true);
    let [(begin, _), .., (end, waited)] = waits[..] else { panic!("{waits:?}") };
    let per_step = (times[end] - times[begin]) / (end - begin) as f64;
    assert!(
        end == times.len() - 1 && (per_step - 0.02).abs() < 1e-3 && waited > 0.5 * (times[end] - times[begin]),
        "{waits:?}"
    );
}
