"""Loops for training and control, with more launches, checks or waits than they need."""

from __future__ import annotations

import contextlib
import warnings

import torch
from torch import nn
from torch.nn import functional

from fixes import Work


class Residual(nn.Module):
    """A small block with six parameters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


def nesterov_loop(fixed: bool) -> Work:
    """SGD with momentum treats 120 parameters one after the other. Fix: the fused implementation."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Residual(192) for _ in range(20)), nn.Linear(192, 10)).to("cuda")
    rows, labels = torch.randn(512, 192, device="cuda"), torch.randint(0, 10, (512,), device="cuda")
    options = {"fused": True} if fixed else {"foreach": False}
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, nesterov=True, **options)
    last = torch.zeros((), device="cuda")

    def step() -> None:
        sgd.zero_grad()
        loss = functional.cross_entropy(model(rows), labels)
        loss.backward()
        sgd.step()  # cause: nesterov_loop
        last.copy_(loss.detach())

    return Work(step, last.item)


class Policy(nn.Module):
    """Observations to actions, with a memory."""

    def __init__(self, inputs: int, width: int, actions: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("deviation", torch.ones(inputs))
        self.first, self.second = nn.Linear(inputs, width), nn.Linear(width, width)
        self.cell, self.action = nn.GRUCell(width, width), nn.Linear(width, actions)

    def forward(self, seen: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = ((seen - self.mean) / (self.deviation + 1e-6)).clamp(-5.0, 5.0)
        x = functional.elu(self.first(x))
        x = functional.elu(self.second(x))
        memory = self.cell(x, memory)
        return torch.tanh(self.action(memory)), memory


@torch.no_grad()
def policy_steps(fixed: bool) -> Work:
    """A policy and a small world take 16 turns for 32 robots, in many tiny kernels. Fix: a CUDA graph of all turns."""
    torch.manual_seed(0)
    policy = Policy(48, 128, 12).to("cuda").eval()
    seen, memory = torch.randn(32, 48, device="cuda"), torch.zeros(32, 128, device="cuda")
    world = torch.randn(12, 48, device="cuda") / 4

    @torch.no_grad()
    def turns() -> None:
        for _ in range(16):
            action, new = policy(seen, memory)  # cause: policy_steps
            memory.copy_(new)
            seen.copy_(0.9 * seen + action @ world)  # cause: policy_steps

    if not fixed:
        return Work(turns, lambda: seen.mean().item())
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        turns()
        turns()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        turns()
    return Work(graph.replay, lambda: seen.mean().item())


def perceptron(*widths: int) -> nn.Sequential:
    parts = [part for pair in zip(widths, widths[1:]) for part in (nn.Linear(*pair), nn.LeakyReLU(0.2))]
    return nn.Sequential(*parts[:-1]).to("cuda")


def checked_gan(fixed: bool) -> Work:
    """Two networks compete under `detect_anomaly()`, left from the search for a NaN. Fix: without it."""
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", "Anomaly Detection")
    generator, critic = perceptron(64, 512, 512, 512, 784), perceptron(784, 512, 512, 512, 1)
    made, judged = (
        torch.optim.Adam(one.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True) for one in (generator, critic))
    images, noise = torch.rand(256, 784, device="cuda"), torch.randn(256, 64, device="cuda")
    real, invented = torch.ones(256, 1, device="cuda"), torch.zeros(256, 1, device="cuda")
    last = torch.zeros((), device="cuda")

    def step() -> None:
        with contextlib.nullcontext() if fixed else torch.autograd.detect_anomaly():
            fakes = generator(noise)
            judged.zero_grad()
            loss = functional.binary_cross_entropy_with_logits(critic(images), real)
            loss = loss + functional.binary_cross_entropy_with_logits(critic(fakes.detach()), invented)
            loss.backward()
            judged.step()
            made.zero_grad()
            fooled = functional.binary_cross_entropy_with_logits(critic(fakes), real)
            fooled.backward()
            made.step()
        last.copy_(fooled.detach())

    return Work(step, last.item)


def clipped(parameters: list[nn.Parameter], most: float) -> None:
    """Limits the norm of all gradients, with numbers of Python."""
    total = 0.0
    for parameter in parameters:
        total += parameter.grad.norm(2).item() ** 2  # cause: clipped_by_hand
    scale = most / (total**0.5 + 1e-6)
    if scale < 1.0:
        for parameter in parameters:
            parameter.grad.mul_(scale)


def clipped_by_hand(fixed: bool) -> Work:
    """The norm of each gradient is read by the host. Fix: `clip_grad_norm_`."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Residual(384) for _ in range(16))).to("cuda")
    rows, wanted = torch.randn(2048, 384, device="cuda"), torch.randn(2048, 384, device="cuda")
    parameters = list(model.parameters())
    adam = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    last = torch.zeros((), device="cuda")

    def step() -> None:
        loss = functional.smooth_l1_loss(model(rows), wanted)
        loss.backward()
        if fixed:
            nn.utils.clip_grad_norm_(parameters, 0.5)
        else:
            clipped(parameters, 0.5)
        adam.step()
        adam.zero_grad()
        last.copy_(loss.detach())

    return Work(step, last.item)


def micro_batches(fixed: bool) -> Work:
    """Gradients of four parts of a batch are added up, and the memory goes back after each. Fix: it stays."""
    torch.manual_seed(0)
    model = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(1536, 1536), nn.LayerNorm(1536), nn.GELU())))
    model = model.to("cuda", torch.bfloat16)
    parts = torch.randn(4, 8192, 1536, device="cuda", dtype=torch.bfloat16)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    last = torch.zeros((), device="cuda")

    def step() -> None:
        total = torch.zeros((), device="cuda")
        for part in parts:
            loss = model(part).float().pow(2).mean() / len(parts)
            loss.backward()
            total += loss.detach()
            del loss
            if not fixed:
                torch.cuda.empty_cache()  # cause: micro_batches
        adam.step()
        adam.zero_grad()
        last.copy_(total)

    return Work(step, last.item, sync_every=10)
