"""Training loops whose device waits for the host, each for another reason, with their own accounting.

Every cause does the same small convolutional step on the device; the difference is the work of the launching thread
between two steps. The script measures that time with its own clock, and its last line is a JSON object:

    steps, step_ns       steps after the start-up, and their mean length
    cause_ns             mean time in a step that the launching thread spent on the cause; null where it is everywhere
    bottleneck           the right bottleneck; empty where the dose decides
    causes               what the launching thread must be seen to do meanwhile (docs/reference/report.md, What the host did)
    function             the innermost function of this file that is responsible; empty where there is none

Causes: loader0, loader1, loader4, loader8 (a slow transform with this many workers), collate, sleep, files, iterator
(the user's own, no DataLoader), queue (a slow producer thread), gil (another thread computes in Python), gc, python,
none.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import torch

BATCH = 16
WARM_UP = 20
IMAGE = torch.randn(3, 64, 64)
# Set when the other threads are to end.
ended = threading.Event()


def compute_for(seconds: float) -> None:
    """Takes processor time in Python, as a transform in Python does."""
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        pass


class Transformed(torch.utils.data.Dataset):
    """Images whose transform takes processor time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.slow_transform()

    def slow_transform(self) -> torch.Tensor:
        compute_for(self.seconds)
        return IMAGE


class Sleeping(Transformed):
    """Images from a slow source: waiting, without processor time."""

    def slow_transform(self) -> torch.Tensor:
        time.sleep(self.seconds)
        return IMAGE


class Files(torch.utils.data.Dataset):
    """Images read from files that the page cache does not keep."""

    def __init__(self, folder: str, files: int = 8, size: int = 1 << 20) -> None:
        self.names = [os.path.join(folder, f"{index}.bin") for index in range(files)]
        for name in self.names:
            with open(name, "wb") as file:
                file.write(os.urandom(size))
                file.flush()
                os.fsync(file.fileno())

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.read_uncached(self.names[index % len(self.names)])

    def read_uncached(self, name: str) -> torch.Tensor:
        descriptor = os.open(name, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            while os.read(descriptor, 1 << 20):
                pass
        finally:
            os.close(descriptor)
        return IMAGE


def slow_collate(images: list[torch.Tensor]) -> torch.Tensor:
    compute_for(0.010)
    return torch.stack(images)


def loader(dataset: torch.utils.data.Dataset, workers: int = 0, **options: object) -> Iterator[torch.Tensor]:
    return iter(torch.utils.data.DataLoader(dataset, batch_size=BATCH, num_workers=workers, **options))


def own_iterator() -> Iterator[torch.Tensor]:
    """A user's own source of batches, which is not in the table of known loaders."""
    while True:
        batch = torch.stack([IMAGE] * BATCH)
        wait_for_sensor()
        yield batch


def wait_for_sensor() -> None:
    time.sleep(0.010)


def from_queue() -> Iterator[torch.Tensor]:
    """Batches from a producer thread that is slower than the device."""
    batches: queue.Queue[torch.Tensor] = queue.Queue(maxsize=2)

    def produce() -> None:
        while not ended.is_set():
            time.sleep(0.010)
            with contextlib.suppress(queue.Full):
                batches.put(torch.stack([IMAGE] * BATCH), timeout=0.1)

    threading.Thread(target=produce).start()
    while True:
        yield take_from_queue(batches)


def take_from_queue(batches: queue.Queue[torch.Tensor]) -> torch.Tensor:
    return batches.get()


def resident() -> Iterator[torch.Tensor]:
    batch = torch.stack([IMAGE] * BATCH)
    while True:
        yield batch


def no_extra() -> None:
    pass


def hog() -> None:
    """Holds the interpreter's lock as long as the interpreter allows."""
    count = 0
    while not ended.is_set():
        count += 1


def needs_the_lock() -> None:
    """Python code that releases the lock in every iteration, so that it must wait for the other thread each time."""
    for _ in range(3):
        os.stat("/")


def garbage(objects: list[object]) -> Callable[[], None]:
    objects.extend([index, [index]] for index in range(300_000))

    def collect() -> None:
        gc.collect()

    return collect


def preprocess_in_python() -> None:
    compute_for(0.010)


@dataclasses.dataclass
class Cause:
    """Batches, the work between two steps, and the expected result."""

    batches: Iterator[torch.Tensor]
    group: str
    causes: tuple[str, ...] = ()
    function: str = ""
    between: Callable[[], None] = no_extra
    everywhere: bool = False  # it also slows code outside the timed part


def cause_of(name: str, folder: str) -> Cause:
    starved = ("loader_wait_busy", "loader_wait_idle", "loader_wait_io", "loader_wait", "loader_receive")
    match name:
        case "loader0":
            return Cause(loader(Transformed(0.001)), "data_loading", ("loader_inline",), "compute_for")
        case "loader1":
            return Cause(loader(Transformed(0.001), 1), "data_loading", starved)
        case "loader4" | "loader8":
            return Cause(loader(Transformed(0.001), int(name[6:])), "", starved)
        case "collate":
            return Cause(loader(Transformed(0), collate_fn=slow_collate), "data_loading", ("loader_inline",), "compute_for")
        case "sleep":
            return Cause(loader(Sleeping(0.001)), "data_loading", ("loader_inline",), "slow_transform")
        case "files":
            return Cause(loader(Files(folder)), "data_loading", ("loader_inline",), "read_uncached")
        case "iterator":
            return Cause(own_iterator(), "host_cpu", ("sleep",), "wait_for_sensor")
        case "queue":
            return Cause(from_queue(), "host_cpu", ("lock",), "take_from_queue")
        case "gil":
            threading.Thread(target=hog).start()
            return Cause(resident(), "host_cpu", ("interpreter_lock",), between=needs_the_lock, everywhere=True)
        case "gc":
            kept: list[object] = []
            return Cause(resident(), "host_cpu", ("garbage_collection",), "collect", garbage(kept))
        case "python":
            return Cause(resident(), "host_cpu", ("code",), "compute_for", preprocess_in_python)
        case "none":
            return Cause(resident(), "gpu_compute")
    raise SystemExit(f"host_causes.py: unknown cause {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cause")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()

    folder = tempfile.TemporaryDirectory(dir=".")
    cause = cause_of(options.cause, folder.name)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 256, 5), torch.nn.ReLU(), *(torch.nn.Conv2d(256, 256, 3) for _ in range(4)),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    steps, caused, began = 0, 0, 0
    while True:
        now = time.perf_counter_ns()
        if steps == WARM_UP:
            began, caused = now, 0
        if steps > WARM_UP and now - began > options.seconds * 1e9:
            break
        batch = next(cause.batches)
        cause.between()
        caused += time.perf_counter_ns() - now
        optimizer.zero_grad(set_to_none=True)
        model(batch.cuda(non_blocking=True)).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()
        steps += 1
    counted = steps - WARM_UP
    print(json.dumps({
        "cause": options.cause, "steps": counted, "step_ns": (now - began) / counted, "cause_ns": None if cause.everywhere else caused / counted,
        "bottleneck": cause.group, "causes": cause.causes, "function": cause.function}), flush=True)
    ended.set()
    folder.cleanup()


if __name__ == "__main__":
    main()
