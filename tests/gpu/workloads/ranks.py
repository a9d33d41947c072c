"""Ranks that reduce together, with one cost in a known dose.

    late     the first rank sleeps for --dose milliseconds before each all-reduce: the others wait in theirs
    serial   an all-reduce of --dose MiB, and computation that begins when it is over
    beside   the same with computation that does not wait for it and takes longer
    buckets  DistributedDataParallel with buckets of --dose MB

Each rank prints one line of JSON: its process, its number, and the time of a step by its own clock.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import time

import torch
import torch.distributed as distributed

WARM_UP = 20


def work(options: argparse.Namespace, rank: int):
    """The step of a rank."""
    matrix = torch.randn(4096, 4096, device="cuda")
    if options.case == "buckets":
        layers = [torch.nn.Linear(2048, 2048) for _ in range(24)]
        model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Sequential(*layers).cuda(), device_ids=[rank], bucket_cap_mb=options.dose)
        batch = torch.randn(512, 2048, device="cuda")
        return lambda: model(batch).square().mean().backward()
    mebibytes = 1 if options.case == "late" else options.dose
    gradients = torch.ones(int(mebibytes * (1 << 18)), device="cuda")

    def compute() -> None:
        for _ in range(4):
            matrix @ matrix

    def step() -> None:
        if options.case == "late" and rank == 0:
            time.sleep(options.dose / 1e3)
        reduction = distributed.all_reduce(gradients, async_op=True)
        if options.case == "beside":
            compute()
            reduction.wait()
        else:
            reduction.wait()
            compute()

    return step


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=["late", "serial", "beside", "buckets"])
    parser.add_argument("--dose", type=float, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        options.port = free.getsockname()[1]
    torch.multiprocessing.spawn(run, (options,), nprocs=options.ranks)


if __name__ == "__main__":
    main()
