"""Waits for the device that a program does not need."""

from __future__ import annotations

import os
import time

import torch

from fixes import Work


def bookkeeping(microseconds: float) -> None:
    """Work of a training loop between two steps: schedules, running averages, the next indices."""
    deadline = time.perf_counter() + microseconds / 1e6
    while time.perf_counter() < deadline:
        pass


@torch.no_grad()
def item_each_layer(fixed: bool) -> Work:
    """The largest activation is read after each of 24 layers. Fix: it is computed and not read."""
    torch.manual_seed(0)
    weights = [torch.randn(1024, 1024, device="cuda") / 32 for _ in range(24)]
    batch = torch.randn(1024, 1024, device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = batch
        for weight in weights:
            x = x @ weight
            largest = x.abs().max()
            if not fixed:
                largest.item()
        last.copy_(largest)

    return Work(step, last.item)


@torch.no_grad()
def sync_each_op(fixed: bool) -> Work:
    """torch.cuda.synchronize() after each operation, often left over from debugging. Fix: none."""
    torch.manual_seed(0)
    weight = torch.randn(1024, 1024, device="cuda") / 32
    batch = torch.randn(1024, 1024, device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = batch
        for _ in range(16):
            x = x @ weight
            if not fixed:
                torch.cuda.synchronize()
            x = torch.nn.functional.layer_norm(x, (1024,))
            if not fixed:
                torch.cuda.synchronize()
        last.copy_(x.square().mean())

    return Work(step, last.item)


def training(layers: int, width: int, batch: int) -> tuple[torch.nn.Module, torch.Tensor, torch.optim.Optimizer]:
    """A perceptron in bf16, a batch and an optimizer with few launches."""
    torch.manual_seed(0)
    parts = [part for _ in range(layers) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*parts).to("cuda", torch.bfloat16)
    data = torch.randn(batch, width, device="cuda", dtype=torch.bfloat16)
    return model, data, torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)


def print_loss(fixed: bool) -> Work:
    """The loss is printed in each step, followed by other host work. Fix: the loss stays on the device."""
    model, batch, sgd = training(6, 2048, 4096)
    nowhere = open(os.devnull, "w")
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        loss = model(batch).square().mean()
        loss.backward()
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        last.copy_(loss.detach())
        if not fixed:
            print(f"loss {last.item():.4f}", file=nowhere)
        bookkeeping(500)

    return Work(step, last.item)


def clip_nonfinite(fixed: bool) -> Work:
    """Gradients are clipped with a check that the host waits for, followed by other host work. Fix: no check."""
    model, batch, sgd = training(8, 2048, 4096)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        loss = model(batch).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=not fixed)
        bookkeeping(700)
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        last.copy_(loss.detach())

    return Work(step, last.item)
