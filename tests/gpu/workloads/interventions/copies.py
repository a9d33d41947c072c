"""Copies that are too slow, too many, or not needed."""

from __future__ import annotations

import torch

from fixes import Work


def feed(kib: int, products: int, pinned: bool, own_stream: bool) -> Work:
    """A batch of some size is copied while the previous one is computed, if memory and stream allow."""
    torch.manual_seed(0)
    host = [torch.full((kib // 4, 1024), 0.5, pin_memory=pinned) for _ in range(2)]
    weight = torch.randn(1024, 1024, device="cuda") / 32
    last = torch.zeros((), device="cuda")
    copies = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
    turn = 0

    def fetch() -> torch.Tensor:
        nonlocal turn
        turn += 1
        with torch.cuda.stream(copies):
            return host[turn % 2].to("cuda", non_blocking=own_stream)

    batch = fetch()

    @torch.no_grad()
    def step() -> None:
        nonlocal batch
        torch.cuda.current_stream().wait_stream(copies)
        batch.record_stream(torch.cuda.current_stream())
        x = batch
        for _ in range(products):
            x = x @ weight
        last.copy_(x[0, 0])
        batch = fetch()

    return Work(step, last.item, sync_every=8)


def non_blocking(fixed: bool) -> Work:
    """`non_blocking=True` on a separate stream, from pageable memory: the call blocks all the same. Fix: pinned memory.
    """
    return feed(16 << 10, 4, pinned=fixed, own_stream=True)


def pageable_1(fixed: bool) -> Work:
    """Batches of 1 MiB from pageable memory. Fix: pinned memory and a separate stream."""
    return feed(1 << 10, 4, pinned=fixed, own_stream=fixed)


def pageable_128(fixed: bool) -> Work:
    """Batches of 128 MiB from pageable memory. Fix: pinned memory and a separate stream."""
    return feed(128 << 10, 4, pinned=fixed, own_stream=fixed)


@torch.no_grad()
def logits(fixed: bool) -> Work:
    """All logits are copied to the host, which finds the largest. Fix: find it on the device, and copy only that."""
    torch.manual_seed(0)
    width, vocabulary = 4096, 32768
    weights = [torch.randn(width, width, device="cuda") / 64 for _ in range(4)]
    head = torch.randn(width, vocabulary, device="cuda") / 64
    batch = torch.randn(64, width, device="cuda")
    scores, tokens = torch.zeros(64, vocabulary), torch.zeros(64, dtype=torch.long)

    @torch.no_grad()
    def step() -> None:
        x = batch
        for weight in weights:
            x = x @ weight
        x = x @ head
        if fixed:
            tokens.copy_(x.argmax(-1))
        else:
            scores.copy_(x)
            tokens[0] = scores[0].argmax()

    return Work(step, lambda: float(tokens[0]))


@torch.no_grad()
def copies_400(fixed: bool) -> Work:
    """400 copies of 4 kB to the device in each step. Fix: one copy of all."""
    torch.manual_seed(0)
    host = torch.randn(400, 1024, pin_memory=True)
    device = torch.zeros(400, 1024, device="cuda")
    weight = torch.randn(1024, 1024, device="cuda") / 32
    last = torch.zeros((), device="cuda")
    pairs = list(zip(device, host))

    @torch.no_grad()
    def step() -> None:
        if fixed:
            device.copy_(host, non_blocking=True)
        else:
            for there, here in pairs:
                there.copy_(here, non_blocking=True)
        last.copy_((device @ weight)[0, 0])

    return Work(step, last.item)


@torch.no_grad()
def scalars(fixed: bool) -> Work:
    """100 metrics are copied to the host one by one in each step. Fix: all in one copy."""
    torch.manual_seed(0)
    weight = torch.randn(2048, 2048, device="cuda") / 45
    state = torch.randn(2048, 2048, device="cuda")
    last = 0.0

    @torch.no_grad()
    def step() -> None:
        nonlocal last
        metrics = (state @ weight).square().mean(0)[:100]
        last = (metrics.cpu() if fixed else torch.stack([metric.cpu() for metric in metrics]))[-1].item()

    return Work(step, lambda: last)


@torch.no_grad()
def numpy_round_trip(fixed: bool) -> Work:
    """Values are copied to the host to be clipped by numpy, and back. Fix: clip them on the device."""
    import numpy

    torch.manual_seed(0)
    weight = torch.randn(2048, 2048, device="cuda") / 45
    state = torch.randn(2048, 2048, device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = state
        for _ in range(4):
            x = x @ weight
        if fixed:
            x = x.clamp(-1, 1)
        else:
            x = torch.from_numpy(numpy.clip(x.cpu().numpy(), -1, 1)).to("cuda")
        last.copy_(x.abs().mean())

    return Work(step, last.item)
