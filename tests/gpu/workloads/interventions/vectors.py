"""Rows of numbers: samples with dropout, and messages between the nodes of a graph."""

from __future__ import annotations

import functools

import torch
from torch import nn
from torch.nn import functional

from fixes import Work


class Gated(nn.Module):
    """A residual block without matrix products: gain, SiLU, dropout, sum and norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.silu(x * self.gain + self.shift)  # cause: dropout_samples
        return self.norm(x + functional.dropout(y, 0.2, self.training))  # cause: dropout_samples


@functools.cache
def sampler(fixed: bool) -> nn.Module:
    """A process compiles once."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Gated(1024) for _ in range(4))).to("cuda").train()
    if not fixed:
        return model
    import torch._inductor.config as inductor

    # Many programs wait beside this one: no pool of processes that compile.
    inductor.compile_threads = 1
    return torch.compile(model, dynamic=False)


@torch.no_grad()
def dropout_samples(fixed: bool) -> Work:
    """The uncertainty of a model is sampled with dropout, in many passes over all rows. Fix: `torch.compile`."""
    model = sampler(fixed)
    rows = torch.randn(32768, 1024, device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        last.copy_(model(rows)[0, 0])

    return Work(step, last.item, sync_every=10)


NODES, EDGES, FEATURES = 100_000, 1_500_000, 64


class Incoming(nn.Module):
    """The sum over the edges to a node, of which some nodes have many."""

    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.linear, self.fixed = nn.Linear(FEATURES, FEATURES), fixed
        self.source = torch.randint(0, NODES, (EDGES,), device="cuda")
        self.target = (torch.rand(EDGES, device="cuda") ** 1.5 * (NODES - 1)).long()
        if fixed:
            order = self.target.argsort()
            rows = functional.pad(torch.bincount(self.target, minlength=NODES).cumsum(0), (1, 0))
            self.adjacency = torch.sparse_csr_tensor(
                rows, self.source[order], torch.ones(EDGES, device="cuda"), (NODES, NODES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fixed:
            total = self.adjacency @ x
        else:
            messages = x[self.source]  # cause: graph_messages
            total = torch.zeros_like(x).index_add_(0, self.target, messages)  # cause: graph_messages
        return torch.relu(self.linear(total * 0.05) + x)


@torch.no_grad()
def graph_messages(fixed: bool) -> Work:
    """Messages along 1.5 million edges are written out and added up. Fix: a sparse product."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Incoming(fixed) for _ in range(2))).to("cuda").eval()
    nodes = torch.randn(NODES, FEATURES, device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        last.copy_(model(nodes)[0, 0])

    return Work(step, last.item, sync_every=10)
