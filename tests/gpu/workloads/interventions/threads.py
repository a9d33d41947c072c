"""Several threads of Python, of which only one runs at a time."""

from __future__ import annotations

import collections
import concurrent.futures
import queue
import re
import threading
import time

import torch

from fixes import Work
from launches import captured
from loading import WORKERS, Batches, Device

BRANCHES = 6


@torch.no_grad()
def branch(x: torch.Tensor, weight: torch.Tensor, result: torch.Tensor) -> None:
    """One of the independent parts of a model."""
    for _ in range(20):
        x = torch.tanh(x @ weight)  # cause: pool_launches
    result.copy_(x)


@torch.no_grad()
def pool_launches(fixed: bool) -> Work:
    """Six threads launch the small operations of a branch each, so that each waits for the interpreter. Fix: one thread,
    and a CUDA graph of all branches."""
    torch.manual_seed(0)
    inputs, results = torch.randn(BRANCHES, 64, 256, device="cuda"), torch.zeros(BRANCHES, 64, 256, device="cuda")
    weights = torch.randn(BRANCHES, 256, 256, device="cuda") / 16
    parts = list(zip(inputs, weights, results))

    def all_branches() -> None:
        for part in parts:
            branch(*part)

    if fixed:
        return Work(captured(all_branches), lambda: results.abs().mean().item())
    pool = concurrent.futures.ThreadPoolExecutor(BRANCHES)

    def step() -> None:
        for done in [pool.submit(branch, *part) for part in parts]:
            done.result()

    return Work(step, lambda: results.abs().mean().item(), end=pool.shutdown)


class Statistics:
    """A thread that summarizes what the training has reported, three of every four milliseconds."""

    def __init__(self) -> None:
        self.counts: collections.Counter[int] = collections.Counter()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.summarize, daemon=True)
        self.thread.start()

    def summarize(self) -> None:
        while not self.ended.is_set():
            until = time.perf_counter() + 3e-3
            while time.perf_counter() < until:
                self.counts[sum(range(20)) % 7] += 1  # cause: gil_thread
            time.sleep(1e-3)

    def end(self) -> None:
        self.ended.set()
        self.thread.join()


@torch.no_grad()
def gil_thread(fixed: bool) -> Work:
    """A thread computes statistics in Python while another one launches. Fix: none; another process may compute them."""
    torch.manual_seed(0)
    weights = [torch.randn(512, 512, device="cuda") / 22 for _ in range(40)]
    batch = torch.randn(256, 512, device="cuda")
    last = torch.zeros((), device="cuda")
    statistics = None if fixed else Statistics()

    @torch.no_grad()
    def step() -> None:
        x = batch
        for weight in weights:
            x = torch.tanh(x @ weight)
        last.copy_(x[0, 0])

    return Work(step, last.item, end=statistics.end if statistics else None)


class Words:
    """Batches of texts, cut into words and numbered."""

    def __init__(self) -> None:
        self.pattern = re.compile(r"\w+|[^\w\s]")
        texts = [" ".join(f"word{(7 * text + 3 * place) % 499}," for place in range(60)) for text in range(160)]
        self.numbers: dict[str, int] = {}
        self.texts = texts

    def __call__(self) -> torch.Tensor:
        rows = []
        for text in self.texts:
            rows.append([self.numbers.setdefault(word, len(self.numbers)) for word in self.pattern.findall(text)])  # cause: queue_thread
        return torch.tensor(rows, dtype=torch.float32)


class Producer:
    """A thread that puts batches into a short queue."""

    def __init__(self, make: Words) -> None:
        self.batches: queue.Queue[torch.Tensor] = queue.Queue(maxsize=2)
        self.ended = threading.Event()
        self.make = make
        self.thread = threading.Thread(target=self.produce, daemon=True)
        self.thread.start()

    def produce(self) -> None:
        while not self.ended.is_set():
            batch = self.make()
            while not self.ended.is_set():
                try:
                    self.batches.put(batch, timeout=0.1)
                    break
                except queue.Full:
                    pass

    def end(self) -> None:
        self.ended.set()
        self.thread.join()


def queue_thread(fixed: bool) -> Work:
    """Another thread prepares batches in Python: the launching thread waits for the interpreter, or at the queue between
    both. Fix: eight processes prepare them."""
    device = Device(4)
    make = Words()
    if fixed:
        loader = iter(torch.utils.data.DataLoader(Batches(make), batch_size=None, num_workers=WORKERS))
        return Work(lambda: device.compute(next(loader)), device.last.item, sync_every=10, warm_steps=3 * WORKERS)
    producer = Producer(make)

    def step() -> None:
        batch = producer.batches.get()  # cause: queue_thread
        device.compute(batch)

    return Work(step, device.last.item, sync_every=10, end=producer.end)
