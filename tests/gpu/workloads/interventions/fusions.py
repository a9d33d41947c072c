"""Functions that are made of many elementwise kernels, although one kernel could do the same."""

from __future__ import annotations

import functools
import math

import torch
from torch import nn
from torch.nn import functional

from fixes import Work


def gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU as its paper writes it."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))  # cause: gelu_by_hand
    return 0.5 * x * (1.0 + torch.tanh(inner))  # cause: gelu_by_hand


class Layer(nn.Module):
    """The part of a transformer behind its attention."""

    def __init__(self, width: int, fixed: bool) -> None:
        super().__init__()
        self.up, self.down, self.fixed = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), fixed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(x)
        return self.down(functional.gelu(y, approximate="tanh") if self.fixed else gelu(y))


@torch.no_grad()
def gelu_by_hand(fixed: bool) -> Work:
    """GELU in eight kernels between two matrix products. Fix: `F.gelu`."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer(1024, fixed) for _ in range(3))).to("cuda", torch.bfloat16)
    tokens = torch.randn(8192, 1024, device="cuda", dtype=torch.bfloat16)
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        last.copy_(model(tokens)[0, 0])

    return Work(step, last.item)


class RootMeanSquare(nn.Module):
    """A norm as many language models write it, and a layer behind it."""

    def __init__(self, width: int, fixed: bool) -> None:
        super().__init__()
        self.weight, self.layer, self.fixed = nn.Parameter(torch.ones(width)), nn.Linear(width, width), fixed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fixed:
            return self.layer(functional.rms_norm(x, (x.shape[-1],), self.weight, 1e-6))
        y = x.to(torch.float32)  # cause: rmsnorm_by_hand
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)  # cause: rmsnorm_by_hand
        return self.layer(self.weight * y.to(x.dtype))  # cause: rmsnorm_by_hand


@torch.no_grad()
def rmsnorm_by_hand(fixed: bool) -> Work:
    """RMSNorm in eight kernels in front of each matrix product. Fix: `F.rms_norm`."""
    torch.manual_seed(0)
    model = nn.Sequential(*(RootMeanSquare(2048, fixed) for _ in range(4))).to("cuda", torch.bfloat16)
    tokens = torch.randn(16384, 2048, device="cuda", dtype=torch.bfloat16)
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        last.copy_(model(tokens)[0, 0])

    return Work(step, last.item)


class Colors(nn.Module):
    """Brightness, contrast, saturation and normalization of images."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = (images * 1.1 + 0.05).clamp(0.0, 1.0)  # cause: color_chain
        x = ((x - 0.5) * 1.2 + 0.5).clamp(0.0, 1.0)  # cause: color_chain
        x = x * x * (3.0 - 2.0 * x)  # cause: color_chain
        return (x - 0.45) / 0.22  # cause: color_chain


@functools.cache
def compiled_colors() -> nn.Module:
    """A process compiles once."""
    import torch._inductor.config as inductor

    # Many programs wait beside this one: no pool of processes that compile.
    inductor.compile_threads = 1
    return torch.compile(Colors(), dynamic=False)


@torch.no_grad()
def color_chain(fixed: bool) -> Work:
    """Images are changed by a dozen operations, each of which reads and writes all of them. Fix: `torch.compile`."""
    torch.manual_seed(0)
    images = torch.rand(16, 3, 1024, 1024, device="cuda")
    change = compiled_colors() if fixed else Colors()
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        last.copy_(change(images)[0, 0, 0, 0])

    return Work(step, last.item)
