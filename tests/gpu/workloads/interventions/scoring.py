"""Inference in a file of its own: `no_grad` is tried only where no code of the program may compute gradients."""

from __future__ import annotations

import torch
from torch import nn

from fixes import Work


def scored_batches(fixed: bool) -> Work:
    """A model of many small layers is called with gradients on. Fix: inference mode."""
    torch.manual_seed(0)
    model = nn.Sequential(*(part for _ in range(200) for part in (nn.Linear(64, 64), nn.Tanh()))).to("cuda").eval()
    batch = torch.randn(32, 64, device="cuda")
    last = torch.zeros((), device="cuda")

    def scores() -> torch.Tensor:
        return model(batch)  # cause: scored_batches

    def step() -> None:
        if not fixed:
            found = scores()
        else:
            with torch.inference_mode():
                found = scores()
        last.copy_(found.detach().mean())

    return Work(step, last.item)
