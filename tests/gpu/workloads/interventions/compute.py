"""Kernels that could be faster: the host is not the cause."""

from __future__ import annotations

import functools

import torch
from torch import nn

from fixes import Work


@torch.no_grad()
def bf16(fixed: bool) -> Work:
    """Matrix products in single precision. Fix: in bf16, on the tensor cores."""
    torch.manual_seed(0)
    precision = torch.bfloat16 if fixed else torch.float32
    weights = [torch.randn(4096, 4096, device="cuda", dtype=precision) / 64 for _ in range(4)]
    batch = torch.randn(2048, 4096, device="cuda", dtype=precision)
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = batch
        for weight in weights:
            x = torch.relu(x @ weight)
        last.copy_(x.mean())

    return Work(step, last.item)


@torch.no_grad()
def channels_last(fixed: bool) -> Work:
    """Convolutions in half precision with channels first. Fix: channels last, for which the tensor cores are made."""
    torch.manual_seed(0)
    layers = [part for _ in range(6) for part in (nn.Conv2d(256, 256, 3, padding=1), nn.BatchNorm2d(256), nn.ReLU())]
    layout = torch.channels_last if fixed else torch.contiguous_format
    model = nn.Sequential(*layers).to("cuda", torch.float16).eval().to(memory_format=layout)
    batch = torch.randn(64, 256, 56, 56, device="cuda", dtype=torch.float16).to(memory_format=layout)
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        last.copy_(model(batch).float().mean())

    return Work(step, last.item)


def chain(x: torch.Tensor) -> torch.Tensor:
    """Ten operations, each of which reads and writes all values."""
    y = x * 1.1 + 0.1
    y = torch.sigmoid(y) * y
    y = y - 0.5 * x
    return torch.tanh(y).clamp(-0.9, 0.9) + x


@functools.cache
def compiled():
    return torch.compile(chain, dynamic=False)


@torch.no_grad()
def elementwise(fixed: bool) -> Work:
    """A chain of operations on large tensors, one by one. Fix: torch.compile fuses them into one kernel."""
    torch.manual_seed(0)
    values = torch.randn(1 << 25, device="cuda")
    last = torch.zeros((), device="cuda")
    apply = compiled() if fixed else chain

    @torch.no_grad()
    def step() -> None:
        last.copy_(apply(values)[0])

    return Work(step, last.item)


@torch.no_grad()
def attention(fixed: bool) -> Work:
    """Attention that writes all scores to memory. Fix: scaled_dot_product_attention."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(4, 16, 2048, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        if fixed:
            x = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            x = torch.softmax(q @ k.transpose(-2, -1) / 8, dim=-1) @ v
        last.copy_(x[0, 0, 0, 0])

    return Work(step, last.item)
