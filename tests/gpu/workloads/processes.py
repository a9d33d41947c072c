"""CUDA programs of more than one process: DataLoader workers and children, forked and spawned.

The forked ones are the difficult ones for a tool that lives in the process: its threads do not exist in the child, its
locks may be held forever, and a DataLoader worker exits by `os._exit`.

    loader          a DataLoader with --workers, --start fork|spawn, --persistent, --pin
    spawn-child     the parent and a spawned child both use the device
    fork-before     a child forked before the first CUDA call uses the device, and so does the parent
    fork-after      a child forked after CUDA was used does no CUDA and leaves by os._exit
    rank            one of the processes that torchrun starts, all on the same device

The first number printed is the number of processes that used the device: there must be as many traces.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import torch


class Numbers(torch.utils.data.Dataset):
    """Vectors in memory with a delay for each, by sleeping rather than computing, so that many workers fit on one core.
    """

    def __init__(self, length: int, milliseconds: float) -> None:
        self.length, self.seconds = length, milliseconds / 1e3

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((256,), float(index))


def work(count: int = 200) -> float:
    """Some kernels, and a value that proves that they ran."""
    values = torch.ones(1024, device="cuda")
    for _ in range(count):
        values = values + 1.0
    return values[0].item()


def loader(options: argparse.Namespace) -> int:
    """Two epochs, so that workers that are not persistent are started twice."""
    torch.cuda.init()
    data = torch.utils.data.DataLoader(
        Numbers(128, options.delay_ms), batch_size=16, num_workers=options.workers, pin_memory=options.pin,
        persistent_workers=options.persistent and options.workers > 0,
        multiprocessing_context=options.start if options.workers else None)
    total = 0.0
    for _ in range(2):
        for batch in data:
            total += batch.cuda(non_blocking=options.pin).sum().item()
    print("sum", total)
    return 1


def spawn_child(_: argparse.Namespace) -> int:
    child = torch.multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    print("parent", work())
    child.join()
    if child.exitcode != 0:
        raise SystemExit(f"the child ended with {child.exitcode}")
    return 2


def fork(body) -> None:
    """Runs `body` in a forked child that exits by os._exit, and waits for it."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            body()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise SystemExit(f"the child ended with status {status:#x}")


def fork_before(_: argparse.Namespace) -> int:
    def child() -> None:
        work()
        # _exit loses what is not yet flushed; the flush period is 100 ms by default.
        time.sleep(0.5)

    fork(child)
    print("parent", work())
    return 2


def fork_after(_: argparse.Namespace) -> int:
    print("parent", work())
    fork(lambda: time.sleep(0.3))
    print("parent", work())
    return 1


def rank(_: argparse.Namespace) -> int:
    work()
    return int(os.environ["WORLD_SIZE"])


def main() -> int:
    cases = {
        "loader": loader, "spawn-child": spawn_child, "fork-before": fork_before, "fork-after": fork_after, "rank": rank}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=cases)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--start", choices=["fork", "spawn"], default="fork")
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--delay-ms", type=float, default=1.0)
    options = parser.parse_args()
    used = cases[options.case](options)
    if os.environ.get("RANK", "0") == "0":
        print("processes", used)
    return 0


if __name__ == "__main__":
    sys.exit(main())
