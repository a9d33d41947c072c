"""Many equal calls, of which some could be one, and some depend on each other."""

from __future__ import annotations

import torch
from torch import nn

from fixes import Work


@torch.no_grad()
def separate_experts(fixed: bool) -> Work:
    """64 experts with their own weights and rows, one after the other. Fix: `bmm` over all experts."""
    torch.manual_seed(0)
    rows = torch.randn(64, 32, 512, device="cuda")
    ups, downs = (torch.randn(64, 512, 512, device="cuda") / 23 for _ in range(2))
    pairs = list(zip(rows, ups, downs))
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        if fixed:
            found = torch.bmm(torch.relu(torch.bmm(rows, ups)), downs)
        else:
            found = torch.stack([torch.relu(own @ up) @ down for own, up, down in pairs])  # cause: separate_experts
        last.copy_(found[0, 0, 0])

    return Work(step, last.item)


@torch.no_grad()
def dependent_layers(fixed: bool) -> Work:
    """64 small layers, each of which needs the result of the one before: they cannot become one product. No fix."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(64))).to("cuda")
    rows = torch.randn(32, 512, device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        last.copy_(model(rows).abs().mean())

    return Work(step, last.item)


@torch.no_grad()
def single_samples(fixed: bool) -> Work:
    """A model is called for each of 32 independent images. Fix: one call for all."""
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())]
    model = nn.Sequential(*layers).to("cuda").eval()
    images = torch.randn(32, 64, 32, 32, device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        if fixed:
            found = model(images)
        else:
            found = torch.cat([model(image[None]) for image in images])  # cause: single_samples
        last.copy_(found[-1].abs().mean())

    return Work(step, last.item, sync_every=10)


class Cells(nn.Module):
    """A recurrent layer that is called for each time step."""

    def __init__(self, layer: nn.LSTM) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(layer.input_size, layer.hidden_size)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(self.cell, name).data.copy_(getattr(layer, f"{name}_l0"))

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        state, outputs = None, []
        for x in sequence:
            state = self.cell(x, state)  # cause: lstm_cells
            outputs.append(state[0])
        return torch.stack(outputs)


@torch.no_grad()
def lstm_cells(fixed: bool) -> Work:
    """A recurrent network calls its cell for each of 64 time steps. Fix: `nn.LSTM` over the sequence."""
    torch.manual_seed(0)
    layer = nn.LSTM(512, 512)
    model = (layer if fixed else Cells(layer)).to("cuda")
    sequence = torch.randn(64, 64, 512, device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        found = model(sequence)
        last.copy_((found[0] if fixed else found)[-1].abs().mean())

    return Work(step, last.item, sync_every=10)
