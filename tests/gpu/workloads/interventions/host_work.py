"""Work of the launching thread between two steps that the device waits for."""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
import time

import numpy
import torch

from fixes import Work
from loading import Device
from waits import training


def decayed(number: int) -> float:
    """The learning rate of a step."""
    return 1e-3 * (1 + math.cos(min(number, 10_000) * math.pi / 10_000)) / 2


def averaged(average: float, latest: float) -> float:
    return 0.99 * average + 0.01 * latest


def request_quota(seconds: float) -> None:
    """Waits until the server for metrics accepts the next request."""
    if seconds:
        time.sleep(seconds)  # cause: backoff


def backoff(fixed: bool) -> Work:
    """One of several functions that a training loop calls waits for a server after each backward pass, whose launches
    come from autograd's thread. Fix: no wait, as when a queue takes the metrics."""
    model, batch, sgd = training(6, 2048, 2048)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)
    number, rate = 0, 1.0

    def step() -> None:
        nonlocal number, rate
        loss = model(batch).square().mean()
        loss.backward()
        number += 1
        rate = averaged(rate, decayed(number))
        request_quota(0.0 if fixed else 4e-3)
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        last.copy_(loss.detach())

    return Work(step, last.item)


class Snapshot:
    """The state of a sampler, 4 MiB, in a file from which a killed run goes on."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile(dir=".", buffering=0)
        self.state = bytes(4 << 20)

    def write(self) -> None:
        self.file.seek(0)
        self.file.write(self.state)  # cause: flushed_log
        os.fsync(self.file.fileno())  # cause: flushed_log


def flushed_log(fixed: bool) -> Work:
    """A snapshot is written and forced to the disk in each step. Fix: every hundredth step."""
    device = Device(2)
    batch = torch.full((8, 3, 64, 64), 0.5)
    snapshot, number = Snapshot(), 0

    def step() -> None:
        nonlocal number
        device.compute(batch)
        number += 1
        if not fixed or number % 100 == 0:
            snapshot.write()

    return Work(step, device.last.item, end=snapshot.file.close)


def standardized_by_row(rows: numpy.ndarray) -> numpy.ndarray:
    """Each row with mean 0 and deviation 1."""
    result = numpy.empty_like(rows)
    for place, row in enumerate(rows):
        result[place] = (row - row.mean()) / (row.std() + 1e-6)  # cause: numpy_rows
    return result


def standardized(rows: numpy.ndarray) -> numpy.ndarray:
    """The same for all rows at once."""
    return (rows - rows.mean(1, keepdims=True)) / (rows.std(1, keepdims=True) + 1e-6)


def numpy_rows(fixed: bool) -> Work:
    """A loop of Python over the rows of an array of numpy. Fix: all rows at once."""
    device = Device(4)
    rows = numpy.random.default_rng(0).random((256, 512), dtype=numpy.float32)
    standardize = standardized if fixed else standardized_by_row

    def step() -> None:
        device.compute(torch.from_numpy(standardize(rows)))

    return Work(step, device.last.item)


# What a line of the log contains about the host.
STATISTICS = ("/proc/loadavg", "/proc/uptime")


def shell_stats(fixed: bool) -> Work:
    """Load and uptime come from commands in each step. Fix: the files that these commands read."""
    device = Device(2)
    batch = torch.full((8, 3, 64, 64), 0.5)
    said = ""

    def step() -> None:
        nonlocal said
        device.compute(batch)
        for name in STATISTICS:
            if fixed:
                with open(name) as file:
                    said = file.read()
            else:
                said = subprocess.run(["cat", name], capture_output=True, text=True, check=True).stdout  # cause: shell_stats

    return Work(step, lambda: device.last.item() + 0 * len(said))
