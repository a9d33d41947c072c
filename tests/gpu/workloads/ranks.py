"""Ranks that reduce together, with one cost in a known dose.

    late     the first rank sleeps for --dose milliseconds before each all-reduce: the others wait in theirs
    serial   an all-reduce of --dose MiB, and computation that begins when it is over
    beside   the same with computation that does not wait for it and takes longer
    buckets  DistributedDataParallel with buckets of --dose MB
    extra    the last rank multiplies --dose matrices more than the others before each all-reduce
    loader   the last rank takes its batches from a data loader that needs --dose milliseconds for each
    at_step  --dose milliseconds a step, in a range `step`; step k adds k % 7 + 1 times. `gpuwhy start --all --at-step` is run
             (--gpuwhy) once the ranks count steps
    skip     the last rank leaves out an all-reduce and sleeps; after --dose seconds `gpuwhy hang` is run (--gpuwhy)

Each rank prints one line of JSON: its process, its number, and the time of a step by its own clock.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import time

import torch
import torch.distributed as distributed

WARM_UP = 20
# The step in which a rank leaves out its all-reduce.
SKIPPED = 60


class SlowBatches(torch.utils.data.Dataset):
    """Batches that take a known time to make."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((1,), float(index))


# For the case at_step: the first captured step, and the number of captured steps.
AT_STEP, STEPS_CAPTURED = 120, 3


def added(number: int) -> int:
    """Kernels of step `number` in addition to its all-reduce: adjacent steps differ."""
    return number % 7 + 1


def never_come() -> None:
    """Location of the rank that leaves out an all-reduce."""
    time.sleep(3600)


def work(options: argparse.Namespace, rank: int):
    """The step of a rank."""
    matrix = torch.randn(4096, 4096, device="cuda")
    if options.case == "buckets":
        layers = [torch.nn.Linear(2048, 2048) for _ in range(24)]
        model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Sequential(*layers).cuda(), device_ids=[rank], bucket_cap_mb=options.dose)
        batch = torch.randn(512, 2048, device="cuda")
        return lambda: model(batch).square().mean().backward()
    mebibytes = options.dose if options.case in ("serial", "beside") else 1
    is_last = rank == options.ranks - 1
    batches = iter(torch.utils.data.DataLoader(SlowBatches(options.dose / 1e3), batch_size=1))
    number = 0
    gradients = torch.ones(int(mebibytes * (1 << 18)), device="cuda")

    def compute() -> None:
        for _ in range(4):
            matrix @ matrix

    def numbered_step() -> None:
        nonlocal number
        with torch.cuda.nvtx.range("step"):
            for _ in range(added(number)):
                gradients.add_(1)
            distributed.all_reduce(gradients)
        number += 1
        time.sleep(options.dose / 1e3)

    def step() -> None:
        nonlocal number
        number += 1
        if options.case == "late" and rank == 0:
            time.sleep(options.dose / 1e3)
        if options.case == "extra" and is_last:
            for _ in range(int(options.dose)):
                matrix @ matrix
        if options.case == "loader" and is_last:
            next(batches)
        if options.case == "skip" and is_last and number == SKIPPED:
            torch.cuda.synchronize()
            never_come()
        reduction = distributed.all_reduce(gradients, async_op=True)
        if options.case == "beside":
            compute()
            reduction.wait()
        else:
            reduction.wait()
            compute()

    return numbered_step if options.case == "at_step" else step


def run(rank: int, options: argparse.Namespace) -> None:
    # As a launcher would, before CUDA loads gpuwhy.
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(options.ranks))
    torch.cuda.set_device(rank)
    distributed.init_process_group(
        "nccl", init_method=f"tcp://127.0.0.1:{options.port}", rank=rank, world_size=options.ranks)
    step = work(options, rank)
    began = 0.0
    for number in range(WARM_UP + options.steps):
        if number == WARM_UP:
            began = time.perf_counter()
        step()
        torch.cuda.synchronize()
    nanos = (time.perf_counter() - began) / options.steps * 1e9
    # One write: ranks share the pipe.
    os.write(1, (json.dumps({"pid": os.getpid(), "rank": rank, "step_ns": nanos}) + "\n").encode())
    distributed.destroy_process_group()


def start_at_step(options: argparse.Namespace) -> subprocess.CompletedProcess[str]:
    """Requests a capture of some steps from all ranks, as soon as each of them counts its steps."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status = subprocess.run([options.gpuwhy, "top", "--json"], capture_output=True, text=True, check=False)
        counting = [line for line in map(json.loads, status.stdout.splitlines()) if line.get("steps_begun") is not None]
        if len(counting) >= options.ranks:
            break
        time.sleep(0.1)
    command = [options.gpuwhy, "start", "--all", "--at-step", str(AT_STEP), "--steps", str(STEPS_CAPTURED)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=["late", "serial", "beside", "buckets", "extra", "loader", "at_step", "skip"])
    parser.add_argument("--gpuwhy", default="gpuwhy")
    parser.add_argument("--dose", type=float, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        options.port = free.getsockname()[1]
    if options.case == "at_step":
        ranks = torch.multiprocessing.spawn(run, (options,), nprocs=options.ranks, join=False)
        reported = start_at_step(options)
        print(json.dumps({"code": reported.returncode, "stdout": reported.stdout, "stderr": reported.stderr}), flush=True)
        while not ranks.join():
            pass
        return
    if options.case != "skip":
        torch.multiprocessing.spawn(run, (options,), nprocs=options.ranks)
        return
    ranks = torch.multiprocessing.spawn(run, (options,), nprocs=options.ranks, join=False)
    time.sleep(options.dose)
    asked = subprocess.run([options.gpuwhy, "hang", "--json"], capture_output=True, text=True, check=False)
    print(json.dumps({"code": asked.returncode, "stdout": asked.stdout, "stderr": asked.stderr}))
    for process in ranks.processes:
        process.kill()


if __name__ == "__main__":
    main()
