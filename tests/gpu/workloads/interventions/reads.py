"""Values that the host reads from the device although the device could use them itself."""

from __future__ import annotations

import torch

from fixes import Work
from waits import training


@torch.no_grad()
def kept_tokens(fixed: bool) -> Work:
    """Each layer selects the tokens of a mask: the host has to know how many there are. Fix: all tokens are computed,
    and those of the mask are kept."""
    torch.manual_seed(0)
    weights = [torch.randn(1024, 1024, device="cuda") / 32 for _ in range(24)]
    state = torch.randn(512, 1024, device="cuda")
    keep = torch.rand(512, device="cuda") < 0.9
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = state.clone()
        for weight in weights:
            if fixed:
                x = torch.where(keep[:, None], torch.tanh(x @ weight), x)
            else:
                x[keep] = torch.tanh(x[keep] @ weight)  # cause: kept_tokens
        last.copy_(x.abs().mean())

    return Work(step, last.item)


@torch.no_grad()
def found_boxes(fixed: bool) -> Work:
    """A detector lists its best scores on each of twelve levels, some thirty: the host has to know how many. Fix:
    `nonzero_static` with a number that is always enough."""
    torch.manual_seed(0)
    weights = [torch.randn(1024, 256, device="cuda") / 32 for _ in range(12)]
    features = torch.randn(4096, 1024, device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        total = torch.zeros((), device="cuda")
        for weight in weights:
            scores = features @ weight
            good = scores > 0.8 * scores.amax()
            if fixed:
                places = torch.nonzero_static(good, size=256, fill_value=0)
            else:
                places = torch.nonzero(good)  # cause: found_boxes
            total += scores[places[:, 0], places[:, 1]].amax()
        last.copy_(total)

    return Work(step, last.item)


@torch.no_grad()
def early_exit(fixed: bool) -> Work:
    """After each layer the host asks whether the values still change. Fix: the device keeps the old values where they do
    not."""
    torch.manual_seed(0)
    weights = [torch.randn(1024, 1024, device="cuda") / 32 for _ in range(24)]
    state = torch.randn(1024, 1024, device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = state
        for weight in weights:
            y = torch.tanh(x @ weight)
            change = (y - x).abs().mean()
            if fixed:
                x = torch.where(change < 1e-6, x, y)
            elif change.item() < 1e-6:  # cause: early_exit
                break
            else:
                x = y
        last.copy_(x.abs().mean())

    return Work(step, last.item)


def finite_gradients(fixed: bool) -> Work:
    """Each gradient is checked for values that are not finite, by the host. Fix: one norm of all gradients, read after
    every fiftieth step."""
    model, batch, sgd = training(16, 1024, 2048)
    parameters = list(model.parameters())
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)
    number = 0

    def step() -> None:
        nonlocal number
        loss = model(batch).square().mean()
        loss.backward()
        number += 1
        if fixed:
            norm = torch.nn.utils.get_total_norm([one.grad for one in parameters])
            finite = number % 50 != 0 or bool(torch.isfinite(norm))
        else:
            finite = all(bool(torch.isfinite(one.grad).all()) for one in parameters)  # cause: finite_gradients
        if finite:
            sgd.step()
        sgd.zero_grad(set_to_none=True)
        last.copy_(loss.detach())

    return Work(step, last.item)
