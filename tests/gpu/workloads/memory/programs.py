"""Programs whose use of device memory is known: `python programs.py NAME [--seconds S]`.

Each prints a line of JSON at its marks: what the device says (`used`, `free` and `total` of cuMemGetInfo, `nvml_used`),
what PyTorch says (`allocated`, `reserved`, their peaks, `num_ooms`, `num_alloc_retries`), and what the program itself
knows. At a mark it rests, so that readings ten times a second see the same. Exit status 77: a library that the program
needs is not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator

NOT_INSTALLED = 77
# A rehearsal runs on the CPU, with a thousandth of the memory.
IS_REHEARSAL = bool(os.environ.get("GPU_SUITE_REHEARSAL"))
MEGABYTE, GIGABYTE = (10**3, 10**6) if IS_REHEARSAL else (10**6, 10**9)
WORKLOADS = pathlib.Path(__file__).resolve().parent.parent
# Rest at a mark, and length of a step, seconds.
REST, PACE = 0.35, 0.02
ENVIRONMENT = {
    "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "async_backend": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}}
TORCH_STATISTICS = {
    "allocated": "allocated_bytes.all.current", "reserved": "reserved_bytes.all.current", "peak_allocated": "allocated_bytes.all.peak",
    "peak_reserved": "reserved_bytes.all.peak", "num_ooms": "num_ooms", "num_alloc_retries": "num_alloc_retries"}

# Of the command line; None: as the program specifies.
program, seconds_asked = "", None


class Device:
    """The first device by its driver and NVML, without a framework. It uses the primary context."""

    def __init__(self) -> None:
        self._driver, self._nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
        device, self._context, self._handle = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        bus = ctypes.create_string_buffer(32)
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDeviceGetPCIBusId", bus, len(bus), device)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._ask("nvmlInit_v2")
        self._ask("nvmlDeviceGetHandleByPciBusId_v2", bus, ctypes.byref(self._handle))

    def call(self, name: str, *arguments: object) -> None:
        """Raises OSError with the driver's result."""
        if code := getattr(self._driver, name)(*arguments):
            raise OSError(f"{name} answers {code}")

    def _ask(self, name: str, *arguments: object) -> None:
        if code := getattr(self._nvml, name)(*arguments):
            raise OSError(f"{name} answers {code}")

    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        self.call("cuCtxPushCurrent_v2", self._context)
        yield
        self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def read(self) -> dict[str, int]:
        free, total, memory = ctypes.c_size_t(), ctypes.c_size_t(), (ctypes.c_uint64 * 3)()
        with self.context():
            self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        self._ask("nvmlDeviceGetMemoryInfo", self._handle, memory)
        return {"free": free.value, "total": total.value, "used": total.value - free.value, "nvml_used": memory[2]}

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        with self.context():
            self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value


class NoDevice(Device):
    """In a rehearsal."""

    def __init__(self) -> None:
        pass

    def read(self) -> dict[str, int]:
        return {"free": 0, "total": 0, "used": 0, "nvml_used": 0}

    def allocate(self, size: int) -> int:
        return 0


devices: list[Device] = []


def device() -> Device:
    """Made at the first mark, when the framework has made its context."""
    if not devices:
        devices.append(NoDevice() if IS_REHEARSAL else Device())
    return devices[0]


def mark(name: str, rest: float = REST, **known: object) -> dict[str, int]:
    """Prints a mark, and returns what the device says."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        with contextlib.suppress(RuntimeError, NotImplementedError):  # other allocators have no statistics
            statistics = torch.cuda.memory_stats()
            known = {**{ours: statistics.get(theirs, 0) for ours, theirs in TORCH_STATISTICS.items()}, **known}
    read = device().read()
    print(json.dumps({"program": program, "mark": name, "unix_ns": time.time_ns(), **read, **known}), flush=True)
    time.sleep(rest)
    return read


def steps(seconds: float, pace: float = PACE) -> Iterator[int]:
    """Numbers of the steps of a loop, each at least `pace` long, until the time is over."""
    began, step = time.monotonic(), 0
    while time.monotonic() < began + (seconds_asked or seconds):
        end = time.monotonic() + pace
        yield step
        time.sleep(max(0.0, end - time.monotonic()))
        step += 1


def line_of(name: str) -> int:
    """Number of the line of this file that ends with this comment."""
    lines = pathlib.Path(__file__).read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if line.endswith(f"# line: {name}"))


def bytes_of(tensors: Iterable) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def state_bytes(optimizer) -> int:
    """Bytes of the optimizer's tensors on the device."""
    import torch

    values = [value for state in optimizer.state.values() for value in state.values()]
    return bytes_of(value for value in values if isinstance(value, torch.Tensor) and value.is_cuda)


def training(width: int = 1024, layers: int = 4, rows: int = 512):
    """A model, and the function of its training step. After two steps its segments are there."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU()))).to("cuda")
    batch, optimizer = torch.randn(rows, width, device="cuda"), torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> float:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    step(), step()
    return model, step


def segments() -> None:
    """Blocks of PyTorch of three sizes, of which half is freed, then all, then the cache."""
    import torch

    model, step = training()
    mark("model", parameter_bytes=bytes_of(model.parameters()))
    held = [torch.zeros(size // 4, device="cuda") for size, count in ((512, 8000), (5 * MEGABYTE, 40), (64 * MEGABYTE, 8)) for _ in range(count)]
    mark("held", own_bytes=bytes_of(held))
    del held[::2]
    mark("gaps", own_bytes=bytes_of(held))
    held.clear()
    mark("cached")
    torch.cuda.empty_cache()
    mark("released")
    for _ in steps(1.0):
        step()
    mark("end")


def graph_pool() -> None:
    """Two CUDA graphs with one pool, whose segments belong to the graphs."""
    import torch

    model, step = training()
    batch, graphs = torch.randn(4096, 1024, device="cuda"), [torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()]
    mark("before")
    results = []
    for graph in graphs:
        with torch.no_grad(), torch.cuda.graph(graph, pool=graphs[0].pool() if results else None):
            results.append([model(batch * scale) for scale in range(8)])
    own = [segment["total_size"] for segment in torch.cuda.memory_snapshot() if tuple(segment["segment_pool_id"]) != (0, 0)]
    reserved = torch.cuda.memory_reserved()
    mark("captured", graph_pool_bytes=sum(own), other_segments=reserved - sum(own))
    for _ in steps(3.0):
        for graph in graphs:
            graph.replay()
        torch.cuda.synchronize()
    mark("end", graph_pool_bytes=sum(own), other_segments=reserved - sum(own))


def leak() -> None:
    """The losses of a second batch are kept, and so what their graphs hold: 3.1 MB a step."""
    import torch

    _, step = training()
    held_out, weight = torch.randn(1024, 512, device="cuda"), torch.randn(512, 768, device="cuda", requires_grad=True)
    losses = []
    for index in steps(17.0):
        step()
        losses.append(torch.relu(held_out @ weight).mean())  # line: leak
        if index == 50:
            mark("growing", rest=0.0, steps=len(losses))
    mark("end", steps=len(losses), line=line_of("leak"))


def plateau() -> None:
    """A buffer of the last results grows until it is full, which it is after a third of the time."""
    import torch

    _, step = training()
    held_out, weight = torch.randn(1024, 512, device="cuda"), torch.randn(512, 768, device="cuda")
    kept, seconds = [], seconds_asked or 15.0
    for index in steps(seconds):
        step()
        result = torch.relu(held_out @ weight)
        if index < seconds / PACE / 3:
            kept.append(result)
        else:
            kept[index % len(kept)] = result
        if index == int(seconds / PACE / 3):
            mark("full", rest=0.0)
    mark("end", kept_bytes=bytes_of(kept))


def sawtooth() -> None:
    """Results of 50 steps are kept, then dropped, and PyTorch's cache is emptied."""
    import torch

    _, step = training()
    held_out, weight, kept = torch.randn(1024, 512, device="cuda"), torch.randn(512, 768, device="cuda"), []
    for _ in steps(15.0):
        step()
        kept.append(torch.relu(held_out @ weight))
        if len(kept) == 50:
            mark("tooth", rest=0.15)
            kept.clear()
            torch.cuda.empty_cache()
    mark("end")


def big_table():
    import torch

    table = torch.empty(10 * GIGABYTE, device="cuda")  # line: big
    rows = torch.ones(GIGABYTE // 10)
    for part in table.split(len(rows))[:5]:
        part.copy_(rows)
    return table


def one_big() -> None:
    """A table of 40 GB is allocated and partly filled, in the middle of a training."""
    model, step = training()
    mark("before", parameter_bytes=bytes_of(model.parameters()))
    for _ in steps(2.5):
        step()
    table = big_table()
    mark("big", own_bytes=bytes_of([table]), line=line_of("big"), function="big_table")
    for _ in steps(2.5):
        step()
    mark("end")


def fill_with_gaps() -> list:
    """Tensors in segments of 8 GB, of which each leaves a gap of 3 GB, until less than 20 GB are free."""
    import torch

    held = []
    while device().read()["free"] > 20 * GIGABYTE and len(held) < 100:
        torch.empty(8 * GIGABYTE, device="cuda", dtype=torch.uint8)
        held.append(torch.empty(5 * GIGABYTE, device="cuda", dtype=torch.uint8))
    return held


def ask_too_much(free: int):
    import torch

    return torch.empty(free + 4 * GIGABYTE, device="cuda", dtype=torch.uint8)  # line: oom


def out_of_memory(goes_on: bool) -> Callable[[], None]:
    """PyTorch holds gaps of 3 GB, and more is asked for than is free. The program catches that, or is killed."""

    def run() -> None:
        import torch

        _, step = training()
        for _ in steps(1.0):
            step()
        held = fill_with_gaps()
        free = mark("full", own_bytes=bytes_of(held))["free"]
        known = {"asked": free + 4 * GIGABYTE, "free_when_asked": free, "line": line_of("oom"), "gaps": 3 * GIGABYTE * len(held),
                 "largest_gap": 3 * GIGABYTE}
        try:
            ask_too_much(free)
        except torch.OutOfMemoryError:
            mark("oom", **known)
            if not goes_on:
                os.kill(os.getpid(), signal.SIGKILL)
        else:
            sys.exit("memory did not run out")
        held.clear()
        torch.cuda.empty_cache()
        mark("released")
        for _ in steps(2.0):
            step()
        mark("end")

    return run


def retry() -> None:
    """The cache is full of free segments of 10 GB, and 30 GB are asked for: PyTorch frees the cache and asks again."""
    import torch

    _, step = training()
    for _ in steps(1.0):
        step()
    held = []
    while device().read()["free"] > 12 * GIGABYTE and len(held) < 100:
        held.append(torch.empty(10 * GIGABYTE, device="cuda", dtype=torch.uint8))
    mark("full")
    held.clear()
    table = torch.empty(30 * GIGABYTE, device="cuda", dtype=torch.uint8)  # line: retry
    mark("retried", own_bytes=bytes_of([table]), line=line_of("retry"))
    for _ in steps(2.0):
        step()
    mark("end")


def llama(batch: int = 8) -> None:
    """A Llama-like model with AdamW: parameters, gradients and optimizer state by exact bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=16000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
        num_key_value_heads=16, pad_token_id=0, eos_token_id=None)).to("cuda")
    optimizer, parameters = torch.optim.AdamW(model.parameters(), lr=1e-4), bytes_of(model.parameters())
    ids = torch.randint(1, 16000, (batch, 256), device="cuda")
    mark("model", parameter_bytes=parameters)
    for index in steps(4.0):
        model(input_ids=ids, labels=ids).loss.backward()
        if index == 1:
            mark("backward", parameter_bytes=parameters, gradient_bytes=bytes_of(p.grad for p in model.parameters() if p.grad is not None))
        optimizer.step()
        if index == 1:
            mark("optimizer", parameter_bytes=parameters, gradient_bytes=bytes_of(p.grad for p in model.parameters() if p.grad is not None),
                 optimizer_bytes=state_bytes(optimizer))
        optimizer.zero_grad()
    mark("end", parameter_bytes=parameters, optimizer_bytes=state_bytes(optimizer), steps=index + 1, batch=batch)


def hf_trainer() -> None:
    """The Trainer of transformers."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    class Texts(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 4096

        def __getitem__(self, index: int) -> dict:
            ids = torch.randint(0, 8192, (256,))
            return {"input_ids": ids, "labels": ids}

    class Marks(TrainerCallback):
        def on_step_end(self, arguments, state, control, model=None, optimizer=None, **_) -> None:
            if state.global_step in (10, arguments.max_steps):
                mark("end" if state.global_step > 10 else "training", parameter_bytes=bytes_of(model.parameters()),
                     optimizer_bytes=state_bytes(optimizer), steps=state.global_step)

    model = GPT2LMHeadModel(GPT2Config(
        n_layer=6, n_embd=512, n_head=8, vocab_size=8192, n_positions=256, bos_token_id=1, eos_token_id=1))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=8, max_steps=150 if seconds_asked is None else 12, report_to=[], logging_steps=1,
            save_strategy="no", disable_tqdm=True, bf16=not IS_REHEARSAL)
        trainer = Trainer(model, arguments, train_dataset=Texts(), callbacks=[Marks()])
        trainer.remove_callback(PrinterCallback)
        trainer.train()


def jax_mlp() -> None:
    """XLA takes three quarters of the device at its first operation."""
    import jax
    import jax.numpy as jnp

    weights = [jax.random.normal(jax.random.PRNGKey(0), (1024, 1024)) / 32 for _ in range(8)]
    batch = jnp.ones((512, 1024))

    def loss(weights, x):
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return (x * x).mean()

    step = jax.jit(lambda weights: [weight - 0.1 * gradient for weight, gradient in zip(weights, jax.grad(loss)(weights, batch))])

    def told() -> dict:
        return {f"xla_{name}": value for name, value in (jax.devices()[0].memory_stats() or {}).items()}

    weights = jax.block_until_ready(step(weights))
    mark("first", parameter_bytes=sum(weight.nbytes for weight in weights), **told())
    for _ in steps(4.0, pace=0.005):
        weights = jax.block_until_ready(step(weights))
    mark("end", parameter_bytes=sum(weight.nbytes for weight in weights), **told())


def cupy_pool() -> None:
    """CuPy's pool, whose half is free at the end, then released."""
    import cupy

    pool = cupy.get_default_memory_pool()

    def told() -> dict:
        return {"pool_used_bytes": pool.used_bytes(), "pool_bytes": pool.total_bytes()}

    kept = [cupy.ones((250, MEGABYTE), dtype=cupy.float32) for _ in range(8)]
    mark("held", own_bytes=sum(array.nbytes for array in kept), **told())
    for _ in steps(3.0):
        float((cupy.sin(kept[0][0]) * 2 + 1).sum())
    del kept[::2]
    mark("half", own_bytes=sum(array.nbytes for array in kept), **told())
    pool.free_all_blocks()
    mark("end", **told())


def two_processes(other: str) -> Callable[[], None]:
    """A training beside another process, which holds 2 GB, or grows. The other one is not recorded."""

    def run() -> None:
        _, step = training()
        before = mark("alone")["used"]
        environment = {name: value for name, value in os.environ.items() if name != "CUDA_INJECTION64_PATH"}
        with subprocess.Popen([sys.executable, __file__, other], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
            child.stdout.readline()
            mark("beside", other_bytes=device().read()["used"] - before)
            for _ in steps(15.0 if other == "other_grows" else 4.0):
                step()
            mark("end", other_bytes=device().read()["used"] - before)
            child.communicate()

    return run


def other(grows: bool) -> Callable[[], None]:
    """The other process, until its input ends."""

    def run() -> None:
        import select

        device().allocate(2 * GIGABYTE)
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0.1)[0]:
            if grows:
                device().allocate(20 * MEGABYTE)

    return run


def fork_loader() -> None:
    """Worker processes are forked after the context was made."""
    import torch

    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 10**6

        def __getitem__(self, index: int):
            return torch.full((4096,), float(index))

    model, step = training()
    loader = iter(torch.utils.data.DataLoader(Rows(), batch_size=512, num_workers=4, pin_memory=True, multiprocessing_context="fork"))
    mark("workers")
    for _ in steps(4.0):
        next(loader).to("cuda", non_blocking=True)
        step()
    mark("end", parameter_bytes=bytes_of(model.parameters()))


LOCAL = rb"""
extern "C" __global__ void deep(float* out, int shift) {
    float big[4096];
    for (int i = 0; i < 4096; i++) big[(i * 17 + shift) & 4095] = i + threadIdx.x;
    out[blockIdx.x * blockDim.x + threadIdx.x] = big[shift & 4095] + big[(shift * 31 + threadIdx.x) & 4095];
}
"""


def local_memory() -> None:
    """A kernel with 16 KiB of local memory for each thread, which the driver takes at the first launch."""
    import torch

    sys.path.insert(0, str(WORKLOADS))
    import nvrtc

    _, step = training()
    out, path = torch.zeros(256 * 1024, device="cuda"), f"{tempfile.gettempdir()}/deep.cu"
    module = nvrtc.Module(LOCAL, path)
    before = mark("before")["used"]
    module.launch("deep", (1024, 1, 1), (256, 1, 1), out, ctypes.c_int(3))
    torch.cuda.synchronize()
    mark("launched", local_bytes=device().read()["used"] - before, bytes_per_thread=4096 * 4)
    for _ in steps(2.0):
        step()
    mark("end", local_bytes=device().read()["used"] - before)


def expert() -> None:
    """The program records PyTorch's memory history itself, and has its own snapshot at the end."""
    import torch

    torch.cuda.memory._record_memory_history(max_entries=2000, stacks="python")
    _, step = training()
    kept = [torch.zeros(16 * MEGABYTE // 4, device="cuda") for _ in range(16)]
    mark("held", own_bytes=bytes_of(kept))
    for _ in range(3):
        step()
    snapshot = torch.cuda.memory._snapshot()
    mark("snapshot", entries=sum(map(len, snapshot["device_traces"])), segments=len(snapshot["segments"]),
         reserved_by_snapshot=sum(segment["total_size"] for segment in snapshot["segments"]),
         frames=sum(bool(entry.get("frames")) for trace in snapshot["device_traces"] for entry in trace))
    torch.cuda.memory._record_memory_history(None)
    for _ in steps(2.0):
        step()
    mark("end")


class Properties(ctypes.Structure):
    """CUmemAllocationProp: pinned memory of one device."""

    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location_type", ctypes.c_int), ("location_id", ctypes.c_int),
                ("windows", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location_type", ctypes.c_int), ("location_id", ctypes.c_int), ("flags", ctypes.c_int)]


class Mapped:
    """An allocator by cuMemCreate and cuMemMap, as vLLM's cumem: pages of 2 MiB."""

    PAGE = 2 << 20

    def __init__(self) -> None:
        self.handles: dict[int, tuple[int, int]] = {}

    def bytes(self) -> int:
        return sum(size for _, size in self.handles.values())

    def take(self, asked: int, index: int = 0, _stream: object = None) -> int:
        size, handle, address = math.ceil(asked / self.PAGE) * self.PAGE, ctypes.c_uint64(), ctypes.c_uint64()
        call, length = device().call, ctypes.c_size_t(size)
        call("cuMemCreate", ctypes.byref(handle), length, ctypes.byref(Properties(1, 0, 1, index)), ctypes.c_uint64(0))
        call("cuMemAddressReserve", ctypes.byref(address), length, ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
        call("cuMemMap", address, length, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        call("cuMemSetAccess", address, length, ctypes.byref(Access(1, index, 3)), ctypes.c_size_t(1))
        self.handles[address.value] = (handle.value, size)
        return address.value

    def give(self, address: int, _size: int = 0, _index: int = 0, _stream: object = None) -> None:
        handle, size = self.handles.pop(address)
        call, start, length = device().call, ctypes.c_uint64(address), ctypes.c_size_t(size)
        call("cuMemUnmap", start, length)
        call("cuMemRelease", ctypes.c_uint64(handle))
        call("cuMemAddressFree", start, length)


def own_allocator() -> None:
    """PyTorch takes its tensors from an allocator of the program, by cuMemCreate."""
    import torch

    mapped = Mapped()
    take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)(mapped.take)
    give = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)(mapped.give)
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in (take, give)]
    torch.cuda.memory.change_current_allocator(torch.cuda.memory._CUDAAllocator(torch._C._cuda_customAllocator(*addresses)))
    kept = [torch.ones(250 * MEGABYTE, device="cuda") for _ in range(8)]
    mark("held", own_bytes=mapped.bytes())
    for _ in steps(3.0):
        kept[0] += kept[1]
        torch.cuda.synchronize()
    del kept[::2]
    mark("half", own_bytes=mapped.bytes())
    kept.clear()
    mark("end", own_bytes=mapped.bytes())


def rmm_like() -> None:
    """One allocation of 60 GB, from which the program itself hands out parts, as RMM's pool."""
    import cupy

    array = cupy.ones(4 * MEGABYTE, dtype=cupy.float32)
    mark("before")
    base, offset = cupy.cuda.Memory(60 * GIGABYTE), 0  # line: rmm

    def part(size: int):
        nonlocal offset
        size = math.ceil(max(size, 1) / 512) * 512
        offset = 0 if offset + size > base.size else offset
        offset += size
        return cupy.cuda.MemoryPointer(base, offset - size)

    cupy.cuda.set_allocator(part)
    mark("pool", own_bytes=base.size, cupy_bytes=base.size + cupy.get_default_memory_pool().total_bytes(), line=line_of("rmm"))
    for _ in steps(3.0):
        float((cupy.sin(array) * 2 + 1).sum())
    mark("end", own_bytes=base.size)


PROGRAMS: dict[str, Callable[[], None]] = {
    "segments": segments, "expandable": segments, "async_backend": segments, "graph_pool": graph_pool, "leak": leak, "plateau": plateau,
    "sawtooth": sawtooth, "one_big": one_big, "oom_caught": out_of_memory(True), "oom_killed": out_of_memory(False), "retry": retry,
    "llama": llama, "hf_trainer": hf_trainer, "jax_mlp": jax_mlp, "cupy_pool": cupy_pool, "two_idle": two_processes("other_idle"),
    "two_grows": two_processes("other_grows"), "other_idle": other(False), "other_grows": other(True), "fork_loader": fork_loader,
    "local_memory": local_memory, "expert": expert, "own_allocator": own_allocator, "rmm_like": rmm_like}


def main() -> None:
    global program, seconds_asked
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--seconds", type=float, help="length of the program's loop")
    options = parser.parse_args()
    program, seconds_asked = options.name, options.seconds
    warnings.filterwarnings("ignore")
    # Before PyTorch is loaded.
    os.environ.update({"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **ENVIRONMENT.get(program, {})})
    try:
        if IS_REHEARSAL:
            sys.path.insert(0, str(WORKLOADS))
            importlib.import_module("rehearsal")
        PROGRAMS[program]()
    except ImportError as error:
        print(f"not installed: {error}", file=sys.stderr)
        sys.exit(NOT_INSTALLED)


if __name__ == "__main__":
    main()
