"""Matrix products, convolutions and elementwise kernels in a precision that costs more than the result needs."""

from __future__ import annotations

import numpy
import torch
from torch import nn
from torch.nn import functional

from fixes import Work


def perceptron(layers: int, width: int, rows: int) -> tuple[nn.Module, torch.Tensor, torch.optim.Optimizer]:
    """A perceptron in single precision, a batch and an optimizer with few launches."""
    torch.manual_seed(0)
    model = nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU()))).to("cuda")
    return model, torch.randn(rows, width, device="cuda"), torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)


def descent(model: nn.Module, batch: torch.Tensor, sgd: torch.optim.Optimizer, last: torch.Tensor) -> None:
    """A training step."""
    loss = model(batch).square().mean()
    loss.backward()
    sgd.step()
    sgd.zero_grad(set_to_none=True)
    last.copy_(loss.detach())


def tf32_training(fixed: bool) -> Work:
    """Training with matrix products in full single precision. Fix: TF32, on the tensor cores."""
    if fixed:
        torch.set_float32_matmul_precision("high")
    model, batch, sgd = perceptron(3, 4096, 1024)
    last = torch.zeros((), device="cuda")
    return Work(lambda: descent(model, batch, sgd, last), last.item, sync_every=10)


def tf32_small(fixed: bool) -> Work:
    """The same with small layers and a batch of 8: launches take the time, and no precision helps. No fix."""
    model, batch, sgd = perceptron(24, 256, 8)
    last = torch.zeros((), device="cuda")
    return Work(lambda: descent(model, batch, sgd, last), last.item)


def autocast_convolutions(fixed: bool) -> Work:
    """Convolutions in full single precision, channels first. Fix: autocast to bf16."""
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    layers = [part for _ in range(6) for part in (nn.Conv2d(128, 128, 3, padding=1), nn.ReLU())]
    model = nn.Sequential(*layers).to("cuda")
    images = torch.randn(32, 128, 28, 28, device="cuda")
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    last = torch.zeros((), device="cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=fixed):
            loss = model(images).float().square().mean()
        loss.backward()
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        last.copy_(loss.detach())

    return Work(step, last.item, sync_every=10)


# Words of GPT-2, and the next multiple of 64.
VOCABULARY, PADDED = 50257, 50304


def odd_vocabulary(fixed: bool) -> Work:
    """The last layer of a language model has 50,257 outputs, so its rows are aligned to two bytes. Fix: 50,304."""
    torch.manual_seed(0)
    head = nn.Linear(1024, PADDED if fixed else VOCABULARY, bias=False, device="cuda", dtype=torch.bfloat16)
    states = torch.randn(2048, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    words = torch.randint(0, VOCABULARY, (2048,), device="cuda")
    sgd = torch.optim.SGD(head.parameters(), lr=1e-3, fused=True)
    last = torch.zeros((), device="cuda")

    def step() -> None:
        loss = functional.cross_entropy(head(states), words)
        loss.backward()
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        states.grad = None
        last.copy_(loss.detach())

    return Work(step, last.item, sync_every=10)


def autocast_casts(fixed: bool) -> Work:
    """A server under autocast converts its weights from single precision to bf16 for each request. Fix: weights in bf16.
    """
    torch.manual_seed(0)
    model = nn.Sequential(*(part for _ in range(16) for part in (nn.Linear(4096, 4096), nn.ReLU()))).to("cuda").eval()
    batch = torch.randn(256, 4096, device="cuda")
    if fixed:
        model, batch = model.to(torch.bfloat16), batch.to(torch.bfloat16)
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=not fixed):
            result = model(batch)  # cause: autocast_casts
        last.copy_(result.float().abs().mean())

    return Work(step, last.item)


@torch.no_grad()
def double_chain(fixed: bool) -> Work:
    """Values that come from numpy stay in double precision. Fix: single precision."""
    values = torch.from_numpy(numpy.linspace(0.1, 0.9, 1 << 25)).to("cuda")
    if fixed:
        values = values.float()
    last = torch.zeros((), device="cuda", dtype=torch.float64)

    @torch.no_grad()
    def step() -> None:
        x = values
        for _ in range(4):
            x = x * 0.5
            x = x + values
            x = x.clamp(0.0, 1.0)
        last.copy_(x[1])

    return Work(step, last.item)


@torch.no_grad()
def mixed_buffers(fixed: bool) -> Work:
    """Activations in bf16 are changed by buffers in single precision. Fix: the buffers become bf16 once."""
    torch.manual_seed(0)
    x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
    scale, shift = (torch.rand(8192, 4096, device="cuda") for _ in range(2))
    if fixed:
        scale, shift = scale.to(torch.bfloat16), shift.to(torch.bfloat16)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step() -> None:
        for _ in range(8):
            x.mul_(scale)  # cause: mixed_buffers
            x.add_(shift)  # cause: mixed_buffers
        last.copy_(x[0, 0])

    return Work(step, last.item)


@torch.no_grad()
def roof_products(fixed: bool) -> Work:
    """Large matrix products in bf16, which use the tensor cores as well as they can. No fix."""
    torch.manual_seed(0)
    weight = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) / 90
    state = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step() -> None:
        x = state
        for _ in range(4):
            x = x @ weight
        last.copy_(x[0, 0])

    return Work(step, last.item, sync_every=5)
