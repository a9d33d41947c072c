"""Lets programs for a GPU run on a host without one: on the CPU, with the parts of torch.cuda that they use.

For `tests/gpu/rehearse.py`, which tries the suite's programs and checks. Figures measured this way are meaningless, and
a captured graph replays nothing.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import types

import nvrtc
import torch
from torch.overrides import TorchFunctionMode


class OnCpu(TorchFunctionMode):
    """Replaces the device of every call."""

    def __torch_function__(self, function, kinds, arguments=(), options=None):
        options = dict(options or {})
        options.pop("pin_memory", None)
        options = {name: replaced(option) for name, option in options.items()}
        return function(*(replaced(argument) for argument in arguments), **options)


def replaced(argument):
    """Replaces names of the device, and precisions in which a CPU is slow."""
    if isinstance(argument, torch.dtype):
        return torch.float32 if argument in (torch.bfloat16, torch.float16) else argument
    is_device = isinstance(argument, torch.device) or isinstance(argument, str) and argument.startswith("cuda")
    return torch.device("cpu") if is_device and "cuda" in str(argument) else argument


class Stream:
    def __init__(self, *_, **__) -> None:
        pass

    def __getattr__(self, name: str):
        return lambda *_, **__: None


class Graph:
    def replay(self) -> None:
        pass


@contextlib.contextmanager
def nothing(*_, **__):
    yield


class Runtime:
    def __getattr__(self, name: str):
        return lambda *_: 0


def make_small() -> None:
    """Matrix products use one column and one row, so that they take little time: shapes and calls stay the same."""
    for owner, name in ((torch, "mm"), (torch, "matmul"), (torch.Tensor, "__matmul__"), (torch.Tensor, "matmul")):
        setattr(owner, name, small(getattr(owner, name)))
    linear = torch.nn.functional.linear

    def small_linear(x, weight, bias=None):
        return linear(x[..., :1], weight[:, :1], bias)

    torch.nn.functional.linear = small_linear


def small(product):
    def replacement(left, right, *arguments, **options):
        if left.dim() == 2 and right.dim() == 2:
            return product(left[:, :1], right[:1], *arguments, **options)
        return product(left, right, *arguments, **options)

    return replacement


class Module:
    """Kernels from source, which cannot be launched here."""

    def __init__(self, *_) -> None:
        pass

    def launch(self, *_) -> None:
        pass


def install() -> None:
    """Replaces the functions of torch.cuda that the programs use, and leaves an empty trace where gpuwhy would leave
    one."""
    cuda = torch.cuda
    stream = Stream()
    for name, value in {
            "synchronize": lambda *_: None, "empty_cache": lambda: None, "current_stream": lambda *_: stream,
            "Stream": Stream, "Event": Stream, "CUDAGraph": Graph, "graph": nothing, "stream": nothing,
            "cudart": Runtime, "check_error": lambda code: None}.items():
        setattr(cuda, name, value)
    torch.Tensor.cuda = lambda self, *_, **__: self
    torch.Tensor.record_stream = lambda self, _: None
    torch.nn.Module.cuda = lambda self, *_: self
    to = torch.nn.Module.to
    torch.nn.Module.to = lambda self, *arguments, **options: to(self, *(replaced(one) for one in arguments), **options)
    nvrtc.Module = Module
    make_small()
    OnCpu().__enter__()
    if "CUDA_INJECTION64_PATH" in os.environ:
        pathlib.Path(f"gpuwhy-{os.getpid()}.gpuwhy").touch()


install()
rehearsal = types.SimpleNamespace()
