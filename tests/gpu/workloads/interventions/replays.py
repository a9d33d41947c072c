"""Steps that are CUDA graphs already, and lose time between their replays."""

from __future__ import annotations

import functools
import math

import torch

from fixes import Work
from launches import captured

GROUPS = 16384


@torch.no_grad()
def replay_gap(fixed: bool) -> Work:
    """Between two replays Python computes a learning rate for each of 16,384 groups. Fix: only the factor that they
    share; the device multiplies."""
    torch.manual_seed(0)
    weight = torch.randn(2048, 2048, device="cuda") / 45
    state = torch.randn(2048, 2048, device="cuda")
    bases = [1e-3 * (1 + number % 7) for number in range(GROUPS)]
    base = torch.tensor(bases, device="cuda")
    rates = base.clone()
    last = torch.zeros((), device="cuda")
    number = 0

    @torch.no_grad()
    def compute() -> None:
        x = state
        for _ in range(3):
            x = x @ weight
        last.copy_(x[0, 0] * rates.mean())

    replay = captured(compute)

    @torch.no_grad()
    def step() -> None:
        nonlocal number
        number += 1
        if fixed:
            torch.mul(base, (1 + math.cos(number / 1e4)) / 2, out=rates)
        else:
            found = [one * (1 + math.cos(number / 1e4)) / 2 for one in bases]  # cause: replay_gap
            rates.copy_(torch.tensor(found))  # cause: replay_gap
        replay()

    return Work(step, last.item)


TOKENS = 16


@torch.no_grad()
def replay_readback(fixed: bool) -> Work:
    """Each token of a captured decoder is read, to see whether the text ends. Fix: sixteen tokens are read at once."""
    torch.manual_seed(0)
    weights = [torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64 for _ in range(8)]
    state = torch.randn(64, 4096, device="cuda", dtype=torch.bfloat16)
    token = torch.zeros((), device="cuda", dtype=torch.long)
    tokens = torch.zeros(TOKENS, device="cuda", dtype=torch.long)

    @torch.no_grad()
    def compute() -> None:
        x = state
        for weight in weights:
            x = torch.relu(x @ weight)
        token.copy_(x[0].argmax())
        tokens.copy_(tokens.roll(1))
        tokens[0] = token

    replay = captured(compute)
    found = 0

    def step() -> None:
        nonlocal found
        for _ in range(TOKENS):
            replay()
            if not fixed:
                found = token.item()  # cause: replay_readback
                if found < 0:
                    break
        if fixed:
            found = tokens.tolist()[0]

    return Work(step, lambda: float(found))


LAYERS, PASSES = 40, 6


@functools.cache
def layers():
    """The state of a small model, a graph of all its layers, and a graph of each: a process captures them once."""
    torch.manual_seed(0)
    weights = [torch.rand(256, device="cuda") for _ in range(LAYERS)]
    state, bias = torch.randn(64, 256, device="cuda"), torch.full((256,), 0.5, device="cuda")

    @torch.no_grad()
    def layer(weight: torch.Tensor) -> None:
        torch.addcmul(bias, state, weight, out=state)

    def model() -> None:
        for weight in weights:
            layer(weight)

    return state, captured(model), [captured(functools.partial(layer, weight)) for weight in weights]


def layer_graphs(fixed: bool) -> Work:
    """A small CUDA graph for each of 40 layers. Fix: one graph of all layers."""
    state, whole, parts = layers()

    def step() -> None:
        for _ in range(PASSES):
            if fixed:
                whole()
            else:
                for replay in parts:
                    replay()  # cause: layer_graphs

    return Work(step, lambda: state.abs().mean().item())
