"""Optimizers that launch more kernels, or read the weights more often, than a fused one."""

from __future__ import annotations

import torch
from torch import nn

from fixes import Work


def foreach_adam(fixed: bool) -> Work:
    """Adam over 300 parameters passes over all of them once for each of its operations. Fix: the fused implementation."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(384, 512, device="cuda")) for _ in range(300)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    options = {"fused": True} if fixed else {}
    adam = torch.optim.Adam(parameters, lr=1e-3, **options)

    def step() -> None:
        adam.step()  # cause: foreach_adam

    return Work(step, lambda: parameters[0].abs().mean().item(), sync_every=10)


def loop_adamw(fixed: bool) -> Work:
    """Training in which AdamW treats one parameter after the other. Fix: the fused implementation."""
    torch.manual_seed(0)
    model = nn.Sequential(*(part for _ in range(24) for part in (nn.Linear(256, 256), nn.ReLU()))).to("cuda")
    batch = torch.randn(256, 256, device="cuda")
    options = {"fused": True} if fixed else {"foreach": False}
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, **options)
    last = torch.zeros((), device="cuda")

    def step() -> None:
        loss = model(batch).square().mean()
        loss.backward()
        adam.step()  # cause: loop_adamw
        adam.zero_grad(set_to_none=True)
        last.copy_(loss.detach())

    return Work(step, last.item)
