"""A GPU that another process uses, too: kernels of two processes take turns."""

from __future__ import annotations

import atexit
import functools
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import torch

from fixes import Work

# Variables that load a tool into a process: the other one belongs to somebody else.
TOOLS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NCCL_PROFILER_PLUGIN")


class OtherProcess:
    """A process that computes from `work` to `rest` (other_process.py)."""

    def __init__(self, part: float) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in TOOLS and not name.startswith("GPUWHY_")}
        script = pathlib.Path(__file__).resolve().parent / "other_process.py"
        self.process = subprocess.Popen(
            [sys.executable, str(script), f"{part:g}"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.wait("ready")
        atexit.register(self.close)

    def wait(self, expected: str) -> None:
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        if said != expected:
            raise RuntimeError(f"the other process said {said!r}, not {expected!r}")

    def send(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        self.wait(word)

    def work(self) -> None:
        self.send("work")

    def rest(self) -> None:
        self.send("rest")

    def close(self) -> None:
        """It ends when its input does."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@functools.cache
def other_process(part: float) -> OtherProcess:
    return OtherProcess(part)


def beside(step: Callable[[], object], result: Callable[[], float], part: float, fixed: bool) -> Work:
    """The step, with another process on the GPU for a part of the time, unless fixed."""
    if fixed:
        return Work(step, result)
    other = other_process(part)
    other.work()
    return Work(step, result, end=other.rest)


@torch.no_grad()
def shared_products(fixed: bool) -> Work:
    """Another process computes on the same GPU without a pause. Fix: the GPU is not shared."""
    torch.manual_seed(0)
    weights = [torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64 for _ in range(8)]
    batch = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = batch
        for weight in weights:
            x = torch.relu(x @ weight)
        last.copy_(x[0, 0])

    return beside(step, last.item, 1.0, fixed)


@torch.no_grad()
def shared_filter(fixed: bool) -> Work:
    """Another process computes on the same GPU for two thirds of the time. Fix: the GPU is not shared."""
    values = torch.full((1 << 25,), 0.5, device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = values
        for _ in range(6):
            x = torch.tanh(x * 1.5) + 0.1 * x
        last.copy_(x[0])

    return beside(step, last.item, 2 / 3, fixed)
