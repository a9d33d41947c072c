//! What `gpuwhy try` changes in PyTorch, and what it takes for a step, with the fake torch of `cli_try`.

use serde_json::json;

use crate::cli_try::{FUSED, Place, TRAIN, near, outcomes};
use crate::cli_try_loops::{counted, stage};

#[test]
fn what_comes_before_training_is_no_step_of_it() {
    let Some(place) = Place::new() else { return };
    // Features are computed, or batches read, for longer than a measurement takes.
    let model = "class Model(torch.nn.Module):
    def forward(self): torch.clock.spend('work')
model = Model()
for _ in range(300): model()
";
    let batches = "for _ in DataLoader(range(300)): torch.clock.spend('work')\n";
    for before in [model, batches] {
        let program = TRAIN.replace("optimizer =", &format!("{before}optimizer ="));
        let program = program.replace("    optimizer.step()", "    train(optimizer)");
        let train = "class Loss:
    def backward(self): pass
def train(optimizer):
    Loss().backward()
    optimizer.step()
";
        let document = place.json(&FUSED, &program.replacen("from torch", &format!("{train}from torch"), 1));
        assert_eq!(document["unit"], "optimizer");
        near(&document["remedies"][0]["gain"], 2.0);
    }
}

#[test]
fn images_change_their_layout_once_a_step() {
    let Some(place) = Place::new() else { return };
    let program = "import torch
class Model(torch.nn.Module):
    def __init__(self): self.parts = [torch.nn.Conv2d() for _ in range(4)]
    def forward(self, images):
        # A residual connection: the sum has the layout of its first part.
        for part in self.parts: images = (images, part(images))[0]
model, images = Model(), torch.Tensor()
for _ in range(5000): model(images)";
    let document = place.json(&["--allow", "rounding", "--remedy", "channels_last"], program);
    assert_eq!(outcomes(&document), [("channels_last", "helps")]);
    near(&document["remedies"][0]["gain"], 0.08 / 0.03);
}

#[test]
fn a_switch_for_half_precision_is_turned_on_and_regions_of_a_model_are_kept() {
    let Some(place) = Place::new() else { return };
    let program = "import torch
def work(): torch.clock.spend('fast' if torch.half[0] else 'work')
class Model(torch.nn.Module):
    def forward(self):
        work()
        with torch.autocast('cuda', enabled=False): work()
model = Model()
for _ in range(5000):
    with torch.autocast('cuda', enabled=False): model()";
    let document = place.json(&["--allow", "rounding", "--remedy", "bf16"], program);
    near(&document["remedies"][0]["gain"], 0.04 / 0.025);
}

#[test]
fn a_module_of_the_program_is_compiled_and_a_function_is_not() {
    let Some(place) = Place::new() else { return };
    let program = "import torch
class Colors(torch.nn.Module):
    def forward(self, images): torch.clock.spend('work')
change, images = Colors(), torch.Tensor()
for _ in range(5000): change(images)";
    let compile = ["--allow", "rounding", "--remedy", "compile"];
    near(&place.json(&compile, program)["remedies"][0]["gain"], 2.0);
    let function = format!("{TRAIN}    (lambda images: images)(torch.Tensor())");
    let document = place.json(&compile, &function);
    assert_eq!(outcomes(&document), [("compile", "not_applicable")]);
    assert!(
        document["remedies"][0]["why"]
            .as_str()
            .unwrap()
            .ends_with("put @torch.compile above the one that launches the most kernels")
    );
}

#[test]
fn each_change_finds_what_it_is_for_and_nothing_else() {
    let Some(stage) = stage() else { return };
    let model = "import torch
time.perf_counter = lambda: torch.clock.now[0]
class Model(torch.nn.Module):
    def forward(self, x): torch.clock.spend('work' if torch.is_grad_enabled() else 'fast')
model, x = Model(), torch.Tensor()
";
    let optimizer = "import torch
time.perf_counter = lambda: torch.clock.now[0]
optimizer = torch.optim.Adamax([torch.nn.Parameter()], foreach=FOREACH)
torch.clock.costs['work'] = 0.0
";
    // The remedy, a program for it with the seconds of a step, and what to replace for one that has nothing to change.
    let cases = [
        ("compile_graphs", model, "for _ in range(9): model(x)", 0.005, ("is_cuda = True", "is_cuda = False")),
        (
            "no_grad",
            model,
            "for _ in range(9): model(x)",
            0.005,
            ("time.perf", "def learn(loss): loss.backward()\ntime.perf"),
        ),
        ("no_grad", model, "for _ in range(9): model(x)", 0.005, ("time.perf", "import learning\ntime.perf")),
        // A method beside the one that calls the model, and a function within it.
        (
            "no_grad",
            model,
            "class Task:\n    def prepare(self): model(x)\n    def train(self): (lambda loss: None)(x)
for _ in range(9): Task().prepare()",
            0.005,
            ("loss: None", "loss: loss.backward()"),
        ),
        (
            "timer_sync",
            model,
            "for _ in range(9): torch.cuda.synchronize(); model(x)",
            0.02,
            ("torch.cuda.synchronize();", ""),
        ),
        (
            "compile_dynamic",
            model,
            "model.forward = torch.compile(model.forward)\nfor _ in range(9): model(x)",
            0.001,
            ("forward)\n", "forward, dynamic=False)\n"),
        ),
        ("foreach_optimizer", optimizer, "for _ in range(9): optimizer.step()", 0.05, ("FOREACH", "None")),
        (
            "zero_grad",
            optimizer,
            "for _ in range(9): optimizer.step(); optimizer.zero_grad(False)",
            0.105,
            ("(False)", "()"),
        ),
        (
            "zero_grad",
            optimizer,
            "for _ in range(9): optimizer.step(); torch.nn.Module().zero_grad(set_to_none=False)",
            0.105,
            ("=False)", "=True)"),
        ),
    ];
    let learning = "import torch\nclass Field:\n    @staticmethod\n    def force(f, x): return torch.func.vjp(f, x)";
    std::fs::write(stage.0.path().join("learning.py"), learning).unwrap();
    for (remedy, start, steps, seconds, (found, other)) in cases {
        let program = format!("{start}{steps}").replace("foreach=FOREACH", "foreach=False");
        let run = |program: &str| counted(&stage, &json!({"remedies": [remedy]}), program);
        let result = run(&program);
        assert!(result["applied"][remedy].is_number(), "{remedy}: {result}");
        let times: Vec<f64> = serde_json::from_value(result["times"].clone()).unwrap();
        assert!((times[8] - times[7] - seconds).abs() < 1e-9, "{remedy}: {times:?}");
        let without = match found {
            "is_cuda = True" => program.replace("x = Model(), torch.Tensor()", "x = Model(), None"),
            "FOREACH" => format!("{start}{steps}").replace(found, other),
            _ => program.replace(found, other),
        };
        assert_eq!(run(&without)["applied"], json!({}), "{remedy}");
    }
}

#[test]
fn settings_and_batches_of_tensors_are_changed_as_they_were() {
    let Some(stage) = stage() else { return };
    let program = "import torch
from torch.utils import data
from torch.utils.data._utils import collate, fetch
torch.use_deterministic_algorithms(True)
assert not torch.utils.deterministic.fill_uninitialized_memory
class Rows(list):
    def __getitem__(self, at):
        if not isinstance(at, list): return list.__getitem__(self, at)
        assert all(type(one) is int for one in at)
        return Rows(self[one] for one in at)
class Index:
    # As a tensor of a sampler.
    def __init__(self, value): self.value = value
    def __index__(self): return self.value
tensors = data.TensorDataset(Rows(range(10)), Rows('abcdefghij'))
def fetched(dataset, collate_fn=collate.default_collate):
    return fetch._MapDatasetFetcher(dataset, True, collate_fn, False).fetch([Index(3), 1])
assert fetched(tensors) == [[3, 1], ['d', 'b']]
assert fetched(data.Subset(data.Subset(tensors, [9, 8, 7, 6, 5]), [4, 3, 2, 1])) == [[8, 6], ['i', 'g']]
assert fetched(tensors, list) == [(3, 'd'), (1, 'b')]
assert fetched([(1, 2)] * 9) == [[1, 1], [2, 2]]
torch.optim.AdamW([torch.nn.Parameter()]).step()";
    let result = counted(&stage, &json!({"remedies": ["deterministic", "tensor_batches"]}), program);
    assert_eq!(result["applied"], json!({"deterministic": 1, "tensor_batches": 2}));
}

#[test]
fn what_changes_python_needs_no_pytorch() {
    let Some(stage) = stage() else { return };
    // A failure is none of the program's, whether the module is imported already or not.
    counted(
        &stage,
        &json!({}),
        "import sitecustomize
for name in ('os', 'colorsys'): sitecustomize.behind(name, lambda module: 1 / 0)
import colorsys",
    );
    let write = |file: &str, text: &str| {
        let path = stage.0.path().join("lib").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("jax/__init__.py", "");
    write("jaxlib/__init__.py", "");
    write("jax_plugins/xla_cuda/plugin.so", "\0xla_gpu_triton_gemm_any\0");
    let program = "import gc, jax
cuda()
for step in range(9): work()
assert not gc.isenabled()
assert os.environ['XLA_FLAGS'] == '--xla_gpu_triton_gemm_any=true'";
    // The library of this jax does not know the flag of xla_overlap.
    let remedies = json!({"remedies": ["gc", "xla_overlap", "xla_triton"], "unit": "loop",
        "loop": {"file": "loops.py", "function": "<module>", "header": "for step in range(9): work()", "nth": 0, "line": 0}});
    let result = counted(&stage, &remedies, program);
    assert_eq!(result["applied"], json!({"gc": 1, "xla_triton": 1}), "{result}");
    let other = program.replace("import gc, jax", "import gc");
    let result = counted(&stage, &remedies, &other);
    assert_eq!(result["applied"], json!({"gc": 1}), "{result}");
}

#[test]
fn what_is_changed_is_known_where_python_counts_no_steps() {
    let Some(stage) = stage() else { return };
    let program = "import gc, torch
kept = []
cuda()
while gc.isenabled() and len(kept) < 3_000_000: kept.append([kept])
assert not gc.isenabled() and gc.get_freeze_count() > 0
# What exists when the program itself collects stays, too.
kept, before = [[number] for number in range(9000)], gc.get_freeze_count()
gc.collect()
assert gc.get_freeze_count() > before + 1000
torch.optim.AdamW([torch.nn.Parameter()])";
    for unit in ["run", "recorded", "work", "range"] {
        let settings = json!({"remedies": ["gc", "fused_optimizer"], "unit": unit, "warm_s": 1e9});
        let applied = counted(&stage, &settings, program)["applied"].clone();
        assert!(applied["gc"].is_number() && applied["fused_optimizer"] == 1, "{unit}: {applied}");
    }
    // Without the GPU there is nothing to measure.
    let idle = "import gc, torch\nkept = [[number] for number in range(9000)]\nassert gc.isenabled()
torch.optim.AdamW([torch.nn.Parameter()])";
    let settings = json!({"remedies": ["gc", "fused_optimizer"], "unit": "run"});
    assert_eq!(counted(&stage, &settings, idle), serde_json::Value::Null);
}

#[test]
fn a_module_that_trains_is_a_graph_while_its_inputs_keep_their_shapes() {
    let Some(stage) = stage() else { return };
    let program = "import torch
from torch import nn
class Tensor(torch.Tensor):
    dtype, requires_grad = 'float', False
    def __init__(self, size): self.shape, self.value = size, 0
    def detach(self): return self
    clone = detach
    def requires_grad_(self, wanted): return self
    def copy_(self, other): self.value = 0
class Model(nn.Module):
    training, steps = True, 0
    def __init__(self): self.weight, self.statistic = nn.Parameter(), Tensor(1)
    def parameters(self): return [self.weight]
    def buffers(self): return [self.statistic]
    def forward(self, x): self.statistic.value += 1; return 'eager'
def graphed(module, samples, allow_unused_input):
    module(*samples)
    if FAILS: raise RuntimeError('no capture')
    module.forward = lambda x: 'graph'
class no_grad(torch.inference_mode): pass
nn.Parameter.requires_grad, torch.no_grad, torch.cuda.make_graphed_callables = True, no_grad, graphed
torch.cuda.get_rng_state, torch.cuda.set_rng_state = lambda: None, lambda state: None
model = Model()
model.training = False
assert model(Tensor(4)) == 'eager'
model.training, model.statistic.value = True, 0
found = [model(Tensor(size)) for size in (4, 4, 5, 4)]
assert model(x=Tensor(4)) == 'eager'
assert model.statistic.value == (5 if FAILS else 2), model.statistic.value
import copy
copied = copy.deepcopy(model)
copied.training = False
assert copied(Tensor(4)) == 'eager' and copied.statistic.value == model.statistic.value + 1
assert found == (['eager'] * 4 if FAILS else ['graph', 'graph', 'eager', 'graph']), found";
    let remedies = json!({"remedies": ["graphed_module"], "unit": "module"});
    let result = counted(&stage, &remedies, &program.replace("FAILS", "False"));
    assert_eq!(result["applied"], json!({"graphed_module": 1}));
    // What cannot be captured goes on as it was.
    let mut remedies = remedies;
    remedies["errors"] = json!({"graphed_module": "RuntimeError: no capture"});
    assert_eq!(counted(&stage, &remedies, &program.replace("FAILS", "True"))["applied"], json!({}));
}

#[test]
fn a_module_is_compiled_once_and_its_copies_have_their_own_weights() {
    let Some(stage) = stage() else { return };
    let program = "import copy, torch
time.perf_counter = lambda: torch.clock.now[0]
class Model(torch.nn.Module):
    bias = 0
    def forward(self, x): torch.clock.spend('work'); return self.bias
model, x = Model(), torch.Tensor()
for _ in range(9): model(x)
assert len(torch.compiled) == (1 if WITH else 0), torch.compiled
copied = copy.deepcopy(model)
copied.bias = 1
assert (model(x), copied(x)) == (0, 1)";
    let seconds = |remedies: &[&str]| {
        let program = program.replace("WITH", if remedies.is_empty() { "False" } else { "True" });
        let result = counted(&stage, &json!({"remedies": remedies}), &program);
        for remedy in remedies {
            assert!(result["applied"][remedy].is_number(), "{remedies:?}: {result}");
        }
        let times: Vec<f64> = serde_json::from_value(result["times"].clone()).unwrap();
        times[8] - times[7]
    };
    let cases =
        [(&[][..], 0.02), (&["compile"], 0.01), (&["compile_graphs"], 0.005), (&["compile", "compile_graphs"], 0.005)];
    for (remedies, wanted) in cases {
        assert!((seconds(remedies) - wanted).abs() < 1e-9, "{remedies:?}");
    }
    assert!((seconds(&["compile", "compile_dynamic"]) - 0.001).abs() < 1e-9);
}

#[test]
fn only_convolutions_of_batches_change_their_layout() {
    let Some(stage) = stage() else { return };
    let program = "import torch
class Image(torch.Tensor):
    def dim(self): return DIM
    def contiguous(self, memory_format): assert DIM == 4; return super().contiguous(memory_format)
part = torch.nn.Conv2d()
for _ in range(9):
    if DIM: part(Image())
torch.optim.AdamW([torch.nn.Parameter()]).step()";
    let applied = |dim: &str| {
        let result = counted(&stage, &json!({"remedies": ["channels_last"]}), &program.replace("DIM", dim));
        result["applied"]["channels_last"].clone()
    };
    assert!(applied("4").is_number());
    for dim in ["0", "3"] {
        assert!(applied(dim).is_null(), "{dim}");
    }
}

#[test]
fn convolutions_of_a_compiled_function_change_their_layout() {
    let Some(stage) = stage() else { return };
    // While Dynamo reads a function, nothing of it happens.
    let compiler = "
within = [False]
class compiler: is_compiling = lambda: within[0]
def compile(function=None, **options):
    if function is None: return lambda function: compile(function, **options)
    def run(*arguments, **named):
        within[0] = True
        try: return function(*arguments, **named)
        finally: within[0] = False
    return run
";
    let torch = stage.0.path().join("lib/torch/__init__.py");
    let before = std::fs::read_to_string(&torch).unwrap();
    std::fs::write(&torch, before + compiler).unwrap();
    let program = "import torch
class Weight(torch.Tensor):
    @property
    def data(self): return self
    @data.setter
    def data(self, value): self.last = value.last
part, images, seen = torch.nn.Conv2d(), torch.Tensor(), []
part.weight = Weight()
DECORATOR
def step(images):
    seen.append(images.last)
    part(images)
for _ in range(9): step(images)
assert (part.weight.last, seen) == (WITH, [WITH] * 9), (part.weight.last, seen)
torch.optim.AdamW([torch.nn.Parameter()]).step()";
    let run = |program: &str, decorator: &str, remedies: &[&str]| {
        let program = program.replace("DECORATOR", decorator);
        let program = program.replace("WITH", if remedies.is_empty() { "False" } else { "True" });
        counted(&stage, &json!({"remedies": remedies}), &program)["applied"]["channels_last"].clone()
    };
    for decorator in ["@torch.compile", "@torch.compile(mode='default')"] {
        assert!(run(program, decorator, &["channels_last"]).is_number(), "{decorator}");
        assert!(run(program, decorator, &[]).is_null(), "{decorator}");
    }
    // Without convolutions there is nothing to change.
    let without = program.replace("torch.nn.Conv2d()", "torch.nn.Module()").replace("    part(images)\n", "");
    let without = without.replace("assert (part.weight.last, seen) == (WITH, [WITH] * 9)", "assert len(seen) == 9");
    assert!(run(&without, "@torch.compile", &["channels_last"]).is_null());
}

#[test]
fn a_forked_child_that_trains_is_the_one_that_is_measured() {
    let Some(stage) = stage() else { return };
    let program = "import multiprocessing, torch
def train():
    optimizer = torch.optim.AdamW([torch.nn.Parameter()])
    for step in range(40): optimizer.step()
def prepare():
    for _ in range(9): torch.nn.Conv2d()(torch.Tensor())
fork = multiprocessing.get_context('fork')
for target in (prepare, train):
    child = fork.Process(target=target)
    child.start(); child.join()
";
    let remedies = json!({"remedies": ["fused_optimizer"]});
    let result = counted(&stage, &remedies, program);
    assert_eq!((&result["unit"], &result["counts"]["optimizer"]), (&json!("optimizer"), &json!(40)), "{result}");
    assert_eq!(result["applied"], json!({"fused_optimizer": 1}));
    // Not beside a parent that makes steps.
    let step = "torch.optim.AdamW([torch.nn.Parameter()]).step()";
    let result = counted(&stage, &remedies, &program.replace("fork =", &format!("{step}\nfork =")));
    assert_eq!(result["counts"]["optimizer"], 1, "{result}");
    // What the children of such a one load is known, too.
    let helper = stage.0.path().join("helper.py");
    std::fs::write(&helper, "").unwrap();
    let program = program
        .replace("fork =", &format!("{step}\nfork ="))
        .replace("def train():", "def train():\n    import helper");
    counted(&stage, &json!({"changed": {helper.to_str().unwrap(): [[1, 1]]}}), &program);
    let written = std::fs::read_dir(stage.0.path().join("hook")).unwrap().flatten().map(|entry| entry.path());
    let mut lists =
        written.filter(|path| path.file_stem().unwrap() == "used").map(|path| std::fs::read_to_string(path).unwrap());
    assert!(lists.any(|list| list.contains("helper.py")));
}
