"""Kernels that are chosen or compiled while the program runs, because a shape or a constant changes.

Compilers keep what they built, also for later processes, so each process takes values that no other has had.
"""

from __future__ import annotations

import functools
import itertools
import os
import random

import torch
import triton
import triton.language as tl
from torch import nn

from fixes import Work

chance = random.Random(os.urandom(8))


def odd_length() -> int:
    """One to four million, and odd: Triton builds a kernel of its own for multiples of 16."""
    return 2 * chance.randrange(1 << 19, 1 << 21) + 1


LONGEST = 1 << 22
# Largest side of an image, and sizes of which hardly one comes twice in a process.
SIDE = 192
sizes = itertools.cycle(chance.sample([(height, width) for height in range(64, SIDE) for width in range(64, SIDE)], 8192))


@torch.no_grad()
def cudnn_shapes(fixed: bool) -> Work:
    """`cudnn.benchmark` tries all algorithms for each new size of the images, which comes every eighth step. Fix:
    images are padded to one size."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    # Alike, so that a new size is tried once.
    layers = [nn.Conv2d(64, 64, 3, padding=1).to("cuda", torch.float16) for _ in range(4)]
    images = torch.randn(8, 64, SIDE, SIDE, device="cuda", dtype=torch.float16)
    batch = images
    last = torch.zeros((), device="cuda")
    number = 0

    @torch.no_grad()
    def step() -> None:
        nonlocal batch, number
        if number % 8 == 0:
            height, width = next(sizes)
            batch = images[:, :, :height, :width].contiguous()
            if fixed:
                batch = nn.functional.pad(batch, (0, SIDE - width, 0, SIDE - height))
        number += 1
        x = batch
        for layer in layers:
            x = torch.relu(layer(x))  # cause: cudnn_shapes
        last.copy_(x[0, 0, 0, 0])

    return Work(step, last.item, cycle=8, warm_steps=8)


@triton.jit
def halve_constant(result, values, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < LENGTH
    tl.store(result + places, tl.load(values + places, mask=inside, other=0.0) * 0.5, mask=inside)


@triton.jit
def halve(result, values, length, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < length
    tl.store(result + places, tl.load(values + places, mask=inside, other=0.0) * 0.5, mask=inside)


@torch.no_grad()
def triton_constants(fixed: bool) -> Work:
    """The length of a batch is a constant of a kernel of Triton, which is compiled for each new length, every sixteenth
    step. Fix: the length is an argument."""
    torch.manual_seed(0)
    weight = torch.randn(2048, 2048, device="cuda") / 45
    state = torch.randn(2048, 2048, device="cuda")
    values = torch.full((LONGEST,), 0.5, device="cuda")
    result = torch.zeros(LONGEST, device="cuda")
    last = torch.zeros((), device="cuda")
    grid, block = (LONGEST // 1024,), 1024
    length, number = LONGEST - 1, 0

    @torch.no_grad()
    def step() -> None:
        nonlocal length, number
        if number % 16 == 0:
            length = odd_length()
        number += 1
        if fixed:
            halve[grid](result, values, length, BLOCK=block)
        else:
            halve_constant[grid](result, values, LENGTH=length, BLOCK=block)  # cause: triton_constants
        last.copy_((state @ weight)[0, 0] + result[0])

    return Work(step, last.item, cycle=16, warm_steps=16)


def activated(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.gelu(x * 1.5 + 0.5) * x


@functools.cache
def compiled(dynamic: bool):
    import torch._dynamo.config as dynamo
    import torch._inductor.config as inductor

    # Eight is the default, after which PyTorch compiles no more.
    dynamo.recompile_limit = dynamo.accumulated_recompile_limit = 4096
    # Many programs wait beside this one: no pool of processes that compile.
    inductor.compile_threads = 1
    return torch.compile(activated, dynamic=dynamic)


@torch.no_grad()
def compile_shapes(fixed: bool) -> Work:
    """torch.compile with `dynamic=False` compiles for each new length, every 64th step. Fix: `dynamic=True`."""
    torch.manual_seed(0)
    weight = torch.randn(2048, 2048, device="cuda") / 45
    state = torch.randn(2048, 2048, device="cuda")
    values = torch.full((LONGEST,), 0.5, device="cuda")
    last = torch.zeros((), device="cuda")
    apply = compiled(fixed)
    batch, number = values, 0

    @torch.no_grad()
    def step() -> None:
        nonlocal batch, number
        if number % 64 == 0:
            batch = values[:odd_length()]
        number += 1
        result = apply(batch)  # cause: compile_shapes
        last.copy_((state @ weight)[0, 0] + result[0])

    return Work(step, last.item, cycle=64)
