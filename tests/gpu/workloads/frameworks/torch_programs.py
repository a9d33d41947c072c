"""Programs of PyTorch and Triton: eager, compiled, captured in graphs, distributed, with threads and worker processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import torch
from torch import nn

from programs import loop, say


def model(width: int = 512, layers: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(layers))).cuda()


def train(module: nn.Module, steps: int = 300, width: int = 512, batch: int = 64) -> None:
    """Steps of SGD on one batch; prints the loss of the last."""
    generator = torch.Generator(device="cuda").manual_seed(1)
    x = torch.randn(batch, width, device="cuda", generator=generator)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    last = torch.zeros((), device="cuda")

    def step(_: int) -> None:
        nonlocal last
        last = (module(x) - 1).square().mean()
        optimizer.zero_grad(set_to_none=True)
        last.backward()
        optimizer.step()

    loop(steps, step, torch.cuda.synchronize)
    say(last.item())


def eager() -> None:
    train(model())


def compiled(mode: str) -> Callable[[], None]:
    """torch.compile in one of its modes."""

    def program() -> None:
        train(torch.compile(model(), mode=mode))

    return program


def resnet_graphs() -> None:
    """Training of torchvision's ResNet-50, compiled with CUDA graphs, with batches from two workers."""
    import torchvision

    torch.manual_seed(0)
    module = torchvision.models.resnet50(num_classes=10).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-4, momentum=0.9)
    compiled_module = torch.compile(module, mode="reduce-overhead")
    loader = torch.utils.data.DataLoader(Pictures(), batch_size=32, num_workers=2, pin_memory=True)
    batches = iter(loader)
    labels = torch.arange(32, device="cuda") % 10
    last = torch.zeros((), device="cuda")

    def step(_: int) -> None:
        pictures = next(batches).to("cuda", non_blocking=True, memory_format=torch.channels_last)
        torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(compiled_module(pictures), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        last.copy_(loss.detach())

    loop(60, step, torch.cuda.synchronize, warm=8)
    say(round(last.item(), 1))


class Pictures(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3, 224, 224), float(index % 13) / 13)


def captured() -> None:
    """Graphs captured by hand: one that contains a copy, captured again and again, replayed with new input and work in
    between."""
    module, static = model(), torch.zeros(64, 512, device="cuda")
    kept = torch.zeros((), device="cuda")
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            module(static)
    torch.cuda.synchronize()
    total = 0.0
    graphs = []

    def step(index: int) -> None:
        nonlocal total
        if index % 20 == 0:
            graph = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(graph):
                result = module(static).abs().mean()
                kept.copy_(result)
            graphs.append(graph)
        static.fill_(index % 7)
        graphs[-1].replay()
        static.add_(1)
        graphs[index % len(graphs)].replay()
        if index % 50 == 0:
            total += kept.item()

    loop(600, step, torch.cuda.synchronize)
    say(total)


def distributed(sharded: bool) -> Callable[[], None]:
    """DistributedDataParallel or FSDP, as torchrun starts it; a process group of one by default."""

    def program() -> None:
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard
        from torch.nn.parallel import DistributedDataParallel

        for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}.items():
            os.environ.setdefault(name, value)
        os.environ.setdefault("MASTER_PORT", str(20_000 + os.getpid() % 20_000))
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
        module = model()
        if sharded:
            fully_shard(module)
        else:
            module = DistributedDataParallel(module)
        train(module)
        dist.destroy_process_group()

    return program


class Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 2048

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((512,), float(index % 13))


def loaders() -> None:
    """A DataLoader whose workers are forked after CUDA started, and pinned memory."""
    module = model()
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=32, num_workers=3, pin_memory=True)
    total = torch.zeros((), device="cuda")
    batches = iter(loader)

    def step(_: int) -> None:
        nonlocal batches
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)
            batch = next(batches)
        with torch.no_grad():
            total.add_(module(batch.to("cuda", non_blocking=True)).abs().mean())

    loop(150, step, torch.cuda.synchronize)
    say(total.item())


def threads() -> None:
    """Eight threads, each with its own stream."""
    sums = [0.0] * 8

    def work(index: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            values = torch.ones(256, 256, device="cuda")
            for _ in range(200):
                values = torch.tanh(values @ values * 1e-3) + 1
            sums[index] = values.sum().item()

    def step(_: int) -> None:
        workers = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    loop(8, step, torch.cuda.synchronize, warm=1)
    say(sum(sums))


def triton() -> None:
    """A user-defined kernel, written in Triton and tuned at its first call."""
    import importlib

    kernels = importlib.import_module("triton_kernels")
    x = torch.arange(1 << 20, device="cuda", dtype=torch.float32).reshape(1024, 1024) / (1 << 20)
    result = x

    def step(_: int) -> None:
        nonlocal result
        result = kernels.softmax(x + result)

    loop(600, step, torch.cuda.synchronize)
    say(result[:, -1].sum().item())


PROGRAMS = {
    "eager": eager, "compile": compiled("default"), "compile_graphs": compiled("reduce-overhead"),
    "resnet_graphs": resnet_graphs, "compile_autotune": compiled("max-autotune-no-cudagraphs"), "captured": captured, "ddp": distributed(sharded=False),
    "fsdp": distributed(sharded=True), "loaders": loaders, "threads": threads, "triton": triton}
