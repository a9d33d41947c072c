"""Checks and timers that make the host wait, left over from the search for an error."""

from __future__ import annotations

import time

import torch
from torch import nn

from fixes import Work
from waits import bookkeeping, training


class Timer:
    """Sums up the time of phases, as many training loops do."""

    def __init__(self, waits: bool) -> None:
        self.waits, self.began, self.seconds = waits, 0.0, {}

    def now(self) -> float:
        if self.waits:
            torch.cuda.synchronize()  # cause: timed_phases
        return time.perf_counter()

    def start(self) -> None:
        self.began = self.now()

    def stop(self, phase: str) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + self.now() - self.began


def timed_phases(fixed: bool) -> Work:
    """The phases of a training step are timed, with a wait for the device at each end. Fix: no waits."""
    model, batch, sgd = training(12, 1024, 2048)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)
    timer = Timer(not fixed)

    def step() -> None:
        timer.start()
        loss = model(batch).square().mean()
        timer.stop("forward")
        timer.start()
        loss.backward()
        timer.stop("backward")
        timer.start()
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        timer.stop("optimizer")
        last.copy_(loss.detach())
        bookkeeping(200)

    return Work(step, last.item)


def anomaly_mode(fixed: bool) -> Work:
    """Autograd checks each gradient for NaN. Fix: it does not."""
    torch.autograd.set_detect_anomaly(not fixed)
    model, batch, sgd = training(16, 1024, 1024)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        loss = model(batch).square().mean()
        loss.backward()
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        last.copy_(loss.detach())

    return Work(step, last.item)


class Asserted(nn.Module):
    """Layers whose results are checked for NaN: each at once, or all at the end."""

    def __init__(self, together: bool) -> None:
        super().__init__()
        self.together, self.layers = together, nn.ModuleList(nn.Linear(1024, 1024) for _ in range(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = []
        for layer in self.layers:
            x = torch.relu(layer(x))
            is_bad = torch.isnan(x).any()
            if self.together:
                found.append(is_bad)
            else:
                assert not is_bad  # cause: asserted_layers
        assert not found or not torch.stack(found).any()
        return x


@torch.no_grad()
def asserted_layers(fixed: bool) -> Work:
    """The result of each layer is checked for NaN by the host. Fix: one check of all results."""
    torch.manual_seed(0)
    model = Asserted(fixed).to("cuda", torch.bfloat16)
    batch = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        last.copy_(model(batch).abs().mean())

    return Work(step, last.item)


@torch.no_grad()
def new_scalars(fixed: bool) -> Work:
    """A number becomes a tensor on the device in each of 24 layers. Fix: it is made once."""
    torch.manual_seed(0)
    weights = [torch.randn(512, 512, device="cuda") / 23 for _ in range(24)]
    state = torch.randn(512, 512, device="cuda")
    once = torch.tensor(1.5, device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = state
        for weight in weights:
            scale = once if fixed else torch.tensor(1.5, device="cuda")  # cause: new_scalars
            x = torch.tanh(x @ weight) * scale
        last.copy_(x.abs().mean())

    return Work(step, last.item)


def quiet_clip(fixed: bool) -> Work:
    """Gradients are clipped without a check that the host waits for. No fix."""
    model, batch, sgd = training(12, 2048, 4096)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        loss = model(batch).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        last.copy_(loss.detach())

    return Work(step, last.item)
