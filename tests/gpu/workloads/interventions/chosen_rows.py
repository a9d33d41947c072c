"""Rows that are chosen, repeated or sorted in a way that costs more than it must."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from fixes import Work


def index_gradient(fixed: bool) -> Work:
    """Few rows are chosen many times by indexing, whose gradient adds up each row one by one. Fix: `F.embedding`."""
    torch.manual_seed(0)
    table = nn.Parameter(torch.randn(32, 256, device="cuda"))
    rows = torch.randint(0, 32, (1 << 17,), device="cuda")
    weight = torch.rand(1 << 17, 1, device="cuda")
    sgd = torch.optim.SGD([table], lr=1e-3, fused=True)
    last = torch.zeros((), device="cuda")

    def step() -> None:
        x = functional.embedding(rows, table) if fixed else table[rows]  # cause: index_gradient
        loss = (x * weight).square().mean()
        loss.backward()
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        last.copy_(loss.detach())

    return Work(step, last.item, sync_every=10)


@torch.no_grad()
def sorted_scores(fixed: bool) -> Work:
    """All scores are sorted for the fifty best. Fix: `topk`."""
    torch.manual_seed(0)
    state = torch.randn(64, 512, device="cuda")
    weight = torch.randn(512, 65536, device="cuda") / 23
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        scores = state @ weight
        if fixed:
            best = torch.topk(scores, 50).values
        else:
            best = torch.sort(scores, descending=True).values[:, :50]  # cause: sorted_scores
        last.copy_(best.mean())

    return Work(step, last.item)


@torch.no_grad()
def unsized_repeat(fixed: bool) -> Work:
    """Each of 24 levels repeats its nodes, and the host has to know how many there are then. Fix: `output_size`."""
    torch.manual_seed(0)
    counts = [torch.randint(1, 4, (2048,), device="cuda") for _ in range(24)]
    sizes = [int(one.sum()) if fixed else None for one in counts]
    weight = torch.randn(256, 256, device="cuda") / 16
    nodes = torch.randn(2048, 256, device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = nodes
        for count, size in zip(counts, sizes):
            children = torch.repeat_interleave(x, count, dim=0, output_size=size)  # cause: unsized_repeat
            x = torch.tanh(children @ weight)[:2048]
        last.copy_(x.abs().mean())

    return Work(step, last.item)
