"""Programs whose fix `gpuwhy try` can make from outside, beside those of other kinds."""

from __future__ import annotations

import ctypes
import os

import numpy
import torch
from torch import nn

from fixes import Work


def layers(count: int, width: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(part for _ in range(count) for part in (nn.Linear(width, width), nn.Tanh()))).to("cuda")


def small_layers(fixed: bool) -> Work:
    """Inference of 60 small layers waits for launches. Fix: CUDA graphs by torch.compile."""
    model, batch = layers(60, 256).eval(), torch.randn(64, 256, device="cuda")
    run = torch.compile(model, mode="reduce-overhead") if fixed else model
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        last.copy_(run(batch).mean())  # cause: small_layers

    return Work(step, last.item, warm_steps=8)


def trained_layers(fixed: bool) -> Work:
    """Training of 60 small layers waits for launches. Fix: the module as a CUDA graph."""
    model, batch = layers(60, 256), torch.randn(64, 256, device="cuda")
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    run = torch.cuda.make_graphed_callables(model, (torch.randn_like(batch),)) if fixed else model
    last = torch.zeros((), device="cuda")

    def step() -> None:
        loss = run(batch).square().mean()  # cause: trained_layers
        loss.backward()  # cause: trained_layers
        sgd.step()
        sgd.zero_grad(set_to_none=False)
        last.copy_(loss.detach())

    return Work(step, last.item, warm_steps=8)


def filled_memory(fixed: bool) -> Work:
    """With deterministic algorithms, PyTorch fills the memory of each new tensor. Fix: it does not."""
    torch.use_deterministic_algorithms(True)  # cause: filled_memory
    if fixed:
        torch.utils.deterministic.fill_uninitialized_memory = False
    values = torch.ones(64 << 20, device="cuda")
    last = torch.zeros((), device="cuda")

    def step() -> None:
        for _ in range(8):
            room = torch.empty_like(values)
            room[:1] = values[:1]
            last.copy_(room[0])

    return Work(step, last.item)


def rows_one_by_one(fixed: bool) -> Work:
    """A DataLoader takes and joins the rows of tensors one by one. Fix: a batch by one index."""
    rows, labels = torch.randn(65536, 64), torch.arange(65536)
    order = torch.utils.data.SequentialSampler(range(65536))
    weights, last = torch.randn(64, 64, device="cuda"), torch.zeros((), device="cuda")

    def batches():
        data = torch.utils.data.TensorDataset(rows, labels)
        while True:
            if fixed:
                taken = torch.utils.data.BatchSampler(order, 512, drop_last=True)
                yield from torch.utils.data.DataLoader(data, batch_size=None, sampler=taken)
            else:
                yield from torch.utils.data.DataLoader(data, 512, drop_last=True)  # cause: rows_one_by_one

    found = batches()

    def step() -> None:
        values, _ = next(found)  # cause: rows_one_by_one
        last.copy_((values.to("cuda") @ weights).mean())

    return Work(step, last.item, cycle=128)


def generated_text(fixed: bool) -> Work:
    """The cache of keys and values of a transformers model grows by concatenation. Fix: a static cache."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=1024, n_embd=512, n_layer=8, n_head=8)).to("cuda", torch.bfloat16).eval()
    words = torch.randint(0, 1024, (8, 256), device="cuda")
    options = {"cache_implementation": "static"} if fixed else {}
    last = torch.zeros((), device="cuda")

    def step() -> None:
        made = model.generate(words, max_new_tokens=64, min_new_tokens=64, do_sample=False, pad_token_id=0, **options)  # cause: generated_text
        last.copy_(made[0, -1])

    return Work(step, last.item, sync_every=1, warm_steps=2)


def stream_chains(fixed: bool) -> Work:
    """Chains of kernels on 24 streams share 8 queues. Fix: 32 queues."""
    if fixed:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
    streams = [torch.cuda.Stream() for _ in range(24)]
    last = torch.zeros((), device="cuda")

    def step() -> None:
        for stream in streams:
            with torch.cuda.stream(stream):
                for _ in range(4):
                    torch.cuda._sleep(200_000)  # cause: stream_chains

    return Work(step, last.item, sync_every=1)


def fresh_buffers(fixed: bool) -> Work:
    """Each step fills new memory of the CPU, which the C library has returned to the system. Fix: it keeps it."""
    if fixed:
        library = ctypes.CDLL(None)
        for option, value in ((-3, 32 << 20), (-1, (1 << 31) - 1)):
            assert library.mallopt(option, value), option
    buffer, last = torch.empty(6 << 20, device="cuda"), torch.zeros((), device="cuda")

    def step() -> None:
        values = numpy.full(6 << 20, 1.5, dtype=numpy.float32)  # cause: fresh_buffers
        buffer[: 1 << 10].copy_(torch.from_numpy(values[: 1 << 10]))
        last.copy_(buffer[0])

    return Work(step, last.item)


def pinned_waits(fixed: bool) -> Work:
    """Copies from pinned memory wait, one after the other. Fix: they do not."""
    parts = [torch.randn(1 << 16).pin_memory() for _ in range(64)]
    weights, last = torch.randn(256, 256, device="cuda"), torch.zeros((), device="cuda")

    def step() -> None:
        for part in parts:
            copied = part.to("cuda", non_blocking=fixed)  # cause: pinned_waits
            torch.mm(copied.view(256, 256), weights)
        last.copy_(copied[0])

    return Work(step, last.item)


def adamax_loop(fixed: bool) -> Work:
    """Adamax, which has no fused form, treats one parameter after the other. Fix: all of them in a few kernels."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(64, 64, device="cuda")) for _ in range(200)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    adamax = torch.optim.Adamax(parameters, lr=1e-4, foreach=None if fixed else False)

    def step() -> None:
        adamax.step()  # cause: adamax_loop

    return Work(step, lambda: parameters[0].abs().mean().item(), sync_every=10)


def kept_gradients(fixed: bool) -> Work:
    """Gradients are filled with zeros, to which the next backward pass adds. Fix: they are freed."""
    parameters = [nn.Parameter(torch.randn(32 << 20, device="cuda")) for _ in range(8)]
    sgd = torch.optim.SGD(parameters, lr=1e-6, fused=True)
    last = torch.zeros((), device="cuda")

    def step() -> None:
        loss = torch.stack([parameter.mean() for parameter in parameters]).sum()
        loss.backward()
        sgd.step()
        sgd.zero_grad(set_to_none=fixed)
        last.copy_(loss.detach())

    return Work(step, last.item)


def waves(x: torch.Tensor) -> torch.Tensor:
    for _ in range(6):
        x = torch.sin(x) * 1.01 + 0.1
    return x


def four_lengths(fixed: bool) -> Work:
    """A function may be compiled once, gets batches of four lengths, and so runs uncompiled. Fix: `dynamic=True`."""
    import torch._dynamo

    for name in ("cache_size_limit", "recompile_limit"):
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, 1)
    values, run = torch.rand(64 << 20, device="cuda"), torch.compile(waves, dynamic=True if fixed else None)
    last, number = torch.zeros((), device="cuda"), 0

    @torch.no_grad()
    def step() -> None:
        nonlocal number
        number += 1
        last.copy_(run(values[: (64 - 4 * (number % 4)) << 20])[0])

    return Work(step, last.item, cycle=4, warm_steps=8)
