"""Copies that a program does not need, or that are too many or too large."""

from __future__ import annotations

import tempfile

import torch

from fixes import Work
from waits import training


@torch.no_grad()
def clones(fixed: bool) -> Work:
    """Each of eight operations in place works on a clone, and its result is cloned again, so that nobody changes the
    values of another. Fix: none of the clones."""
    values = torch.full((1 << 25,), 0.5, device="cuda")
    last = torch.zeros((), device="cuda")

    def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
        if fixed:
            return x.mul_(by)
        own = x.clone()  # cause: clones
        own.mul_(by)
        return own.clone()  # cause: clones

    @torch.no_grad()
    def step() -> None:
        x = values
        for number in range(8):
            x = scaled(x, 1.25 if number % 2 else 0.8)
        last.copy_(x[0])

    return Work(step, last.item)


@torch.no_grad()
def sample_copies(fixed: bool) -> Work:
    """Each of 160 samples is copied to the device, where they become a batch. Fix: the batch is made first, and copied
    once."""
    torch.manual_seed(0)
    samples = [torch.randn(2048) for _ in range(160)]
    weight = torch.randn(2048, 2048, device="cuda") / 45
    state = torch.randn(2048, 2048, device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        if fixed:
            batch = torch.stack(samples).to("cuda")
        else:
            batch = torch.stack([sample.to("cuda") for sample in samples])  # cause: sample_copies
        last.copy_((batch @ weight)[0, 0] + (state @ weight)[0, 0])

    return Work(step, last.item)


@torch.no_grad()
def score_map(fixed: bool) -> Work:
    """All scores are copied to the host, where numpy finds the best of each row and counts the good ones. Fix: the
    device does both, and two columns are copied."""
    torch.manual_seed(0)
    state = torch.randn(512, 4096, device="cuda")
    weight = torch.randn(4096, 8192, device="cuda") / 64
    best, good = 0.0, 0

    @torch.no_grad()
    def step() -> None:
        nonlocal best, good
        scores = state @ weight
        if fixed:
            best, good = scores.amax(1).cpu().numpy()[0], (scores > 2.0).sum(1).cpu().numpy()[0]
        else:
            found = scores.cpu().numpy()  # cause: score_map
            best, good = found.max(1)[0], (found > 2.0).sum(1)[0]  # cause: score_map

    return Work(step, lambda: float(best) + float(good))


def checkpoint(fixed: bool) -> Work:
    """The weights are saved after every eighth step. Fix: after every four hundredth."""
    model, batch, sgd = training(4, 2048, 1024)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)
    file, number, every = tempfile.TemporaryFile(dir="."), 0, 400 if fixed else 8

    def step() -> None:
        nonlocal number
        loss = model(batch).square().mean()
        loss.backward()
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        last.copy_(loss.detach())
        number += 1
        if number % every == 0:
            file.seek(0)
            torch.save(model.state_dict(), file)  # cause: checkpoint

    return Work(step, last.item, cycle=8, warm_steps=8, end=file.close)
