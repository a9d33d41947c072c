"""Training steps under torch.compile, with a loop around them that is slower than they are."""

from __future__ import annotations

import functools
import json
import re
import threading

import torch
from torch import nn

from fixes import Work


@functools.cache
def trained(mode: str):
    """A compiled model, a batch and an optimizer: a process compiles once."""
    import torch._inductor.config as inductor

    # Many programs wait beside this one: no pool of processes that compile.
    inductor.compile_threads = 1
    torch.manual_seed(0)
    model = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(512, 512), nn.GELU()))).to("cuda")
    batch = torch.randn(256, 512, device="cuda")
    return torch.compile(model, mode=mode), batch, torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)


def training(mode: str, last: torch.Tensor):
    """The training step of a loop that does more."""
    model, batch, sgd = trained(mode)

    def step() -> None:
        torch.compiler.cudagraph_mark_step_begin()
        loss = model(batch).square().mean()
        loss.backward()
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        last.copy_(loss.detach())

    return step


# A line of the log of a job.
RECORD = re.compile(r"rank=(\d+) step=(\d+) loss=([\d.]+) seconds=([\d.]+)")


def summarized(lines: list[str]) -> str:
    """Mean loss and longest step of the lines, as JSON."""
    found = [RECORD.match(line).groups() for line in lines]  # cause: compiled_records
    losses, seconds = [float(row[2]) for row in found], [float(row[3]) for row in found]  # cause: compiled_records
    return json.dumps({"loss": sum(losses) / len(losses), "longest": max(seconds)})


def compiled_records(fixed: bool) -> Work:
    """The log of all ranks is read with regular expressions after each step of a compiled model. Fix: after each
    hundredth."""
    last = torch.zeros((), device="cuda")
    train = training("default", last)
    lines = [f"rank={number % 8} step={number // 8} loss={2 + number % 5}.25 seconds=0.{number % 9}5" for number in range(3000)]
    number, said = 0, ""

    def step() -> None:
        nonlocal number, said
        train()
        number += 1
        if not fixed or number % 100 == 0:
            said = summarized(lines)

    return Work(step, lambda: last.item() + 0 * len(said))


def compiled_poll(fixed: bool) -> Work:
    """Between two steps of a model compiled with `reduce-overhead` the loop waits some milliseconds for a request to
    stop. Fix: it only asks whether there is one."""
    last = torch.zeros((), device="cuda")
    train = training("reduce-overhead", last)
    stop = threading.Event()

    def step() -> None:
        train()
        if not fixed:
            stop.wait(3e-3)  # cause: compiled_poll
        if stop.is_set():
            raise SystemExit("stopped on request")

    return Work(step, last.item)
