"""Launches that are too many or too small, and fixes that reduce them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fixes import Work


def captured(step: Callable[[], object]) -> Callable[[], object]:
    """The step as a CUDA graph. Libraries initialize themselves in the first calls, which must not be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@torch.no_grad()
def rnn_tiny(fixed: bool) -> Work:
    """64 time steps of a recurrent network: a kernel of some 50 us and three tiny ones each. The device is busy all the
    time, so a CUDA graph saves little: the pauses between kernels."""
    torch.manual_seed(0)
    width = 1024
    weight = torch.randn(width, width, device="cuda") / width**0.5
    bias = torch.randn(width, device="cuda")
    state = torch.randn(width, width, device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = state
        for _ in range(64):
            gate = torch.sigmoid(x[0])
            gate = gate * 0.1
            gate = gate + bias
            x = torch.addmm(gate, x, weight, alpha=0.5)
        state.copy_(x)
        state.div_(state.norm() / width)

    return Work(captured(step) if fixed else step, lambda: state.norm().item(), sync_every=10)


class Layer(torch.nn.Module):
    """A decoder layer with a key-value cache of fixed length."""

    def __init__(self, batch: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)
        cache = torch.zeros(2, batch, heads, length, width // heads)
        self.register_buffer("cache", cache)

    def forward(self, x: torch.Tensor, position: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, _, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, 1, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        self.cache[0].index_copy_(2, position, k)
        self.cache[1].index_copy_(2, position, v)
        attended = torch.nn.functional.scaled_dot_product_attention(q, self.cache[0], self.cache[1], attn_mask=mask)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, 1, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x))))


def decode(fixed: bool) -> Work:
    """Tokens one by one for a small batch, with caches of fixed length. Fix: a CUDA graph."""
    torch.manual_seed(0)
    batch, width, length, vocabulary = 4, 512, 256, 8192
    layers = torch.nn.ModuleList(Layer(batch, width, 8, length) for _ in range(8)).to("cuda", torch.bfloat16)
    table = torch.randn(vocabulary, width, device="cuda", dtype=torch.bfloat16)
    tokens = torch.zeros(batch, 1, device="cuda", dtype=torch.long)
    position = torch.zeros(1, device="cuda", dtype=torch.long)
    places = torch.arange(length, device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = torch.nn.functional.embedding(tokens, table)
        mask = (places <= position).view(1, 1, 1, length)
        for layer in layers:
            x = layer(x, position, mask)
        tokens.copy_((x @ table.T).argmax(-1))
        position.add_(1).remainder_(length)

    return Work(captured(step) if fixed else step, lambda: float(position.item()))


def optimizer(fixed: bool) -> Work:
    """Adam with some eight launches for each of 120 small parameters. Fix: the fused implementation."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(256, 256, device="cuda")) for _ in range(120)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    options = {"fused": True} if fixed else {"foreach": False}
    adam = torch.optim.Adam(parameters, lr=1e-3, **options)
    return Work(adam.step, lambda: parameters[0].abs().mean().item())


@torch.no_grad()
def batch_rows(fixed: bool) -> Work:
    """A loop of Python over the 64 rows of a batch. Fix: one matrix product."""
    torch.manual_seed(0)
    weight = torch.randn(1024, 1024, device="cuda") / 32
    batch = torch.randn(64, 1024, device="cuda")
    outputs = torch.zeros_like(batch)

    @torch.no_grad()
    def step() -> None:
        if fixed:
            torch.mm(batch, weight, out=outputs)
        else:
            for row, output in zip(batch, outputs):
                output.copy_(row @ weight)

    return Work(step, lambda: outputs.abs().mean().item())
