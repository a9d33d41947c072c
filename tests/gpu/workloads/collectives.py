"""Ranks that communicate by NCCL in known numbers and sizes.

    mixed    each function, some of them grouped, --rounds times
    loop     all-reduces of --bytes one after the other, timed by events on the device
    small    all-reduces of 8 bytes to 1 MiB, timed by the host, each size separately
    graph    an all-reduce captured in a CUDA graph, which runs --rounds times

Each rank prints one line of JSON: its process, its number, NCCL's version, and its operations or times. Sizes are
defined as in nccl-tests: the buffer, or for all-gather and reduce-scatter the complete buffer.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import socket
import time

import torch
import torch.distributed as distributed

WARM_UP = 20
SMALL = (8, 1 << 10, 1 << 14, 1 << 17, 1 << 20)


def mixed(rank: int, ranks: int, rounds: int) -> dict:
    """Operations and bytes by function."""
    operations: collections.Counter[str] = collections.Counter()
    sizes: collections.Counter[str] = collections.Counter()

    def did(function: str, size: int) -> None:
        operations[function] += 1
        sizes[function] += size

    for number in range(rounds):
        for elements in (1, 1 << 10, 1 << 20):
            for kind in (torch.float32, torch.bfloat16, torch.int64):
                part = torch.ones(elements, dtype=kind, device="cuda")
                whole = torch.ones(elements * ranks, dtype=kind, device="cuda")
                size = elements * part.element_size()
                distributed.all_reduce(part)
                did("all_reduce", size)
                distributed.all_gather_into_tensor(whole, part)
                did("all_gather", size * ranks)
                distributed.reduce_scatter_tensor(part, whole)
                did("reduce_scatter", size * ranks)
                distributed.broadcast(part, src=0)
                did("broadcast", size)
                there, here = torch.ones_like(part), torch.ones_like(part)
                around = [distributed.P2POp(distributed.isend, there, (rank + 1) % ranks),
                          distributed.P2POp(distributed.irecv, here, (rank - 1) % ranks)]
                for work in distributed.batch_isend_irecv(around):
                    work.wait()
                did("send_receive", size)
        torch.cuda.synchronize()
    return {"operations": operations, "bytes": sizes}


def loop(ranks: int, size: int, rounds: int) -> dict:
    """Bus bandwidth of consecutive all-reduces in bytes per second, as nccl-tests computes it."""
    buffer = torch.ones(size // 4, device="cuda")
    for _ in range(WARM_UP):
        distributed.all_reduce(buffer)
    torch.cuda.synchronize()
    distributed.barrier()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(rounds):
        distributed.all_reduce(buffer)
    end.record()
    end.synchronize()
    seconds = begin.elapsed_time(end) / 1e3 / rounds
    return {"bus_bytes_per_second": size / seconds * 2 * (ranks - 1) / ranks}


def small(rounds: int) -> dict:
    """Host nanoseconds per operation, by size: the median of ten intervals."""
    found = {}
    for size in SMALL:
        buffer = torch.ones(max(1, size // 4), device="cuda")
        intervals = []
        for number in range(11):
            torch.cuda.synchronize()
            began = time.perf_counter_ns()
            for _ in range(rounds):
                distributed.all_reduce(buffer)
            torch.cuda.synchronize()
            if number:
                intervals.append((time.perf_counter_ns() - began) / rounds)
        found[str(size)] = sorted(intervals)[len(intervals) // 2]
    return {"nanoseconds": found}


def graph(rounds: int) -> dict:
    """An operation that is captured once and run many times."""
    buffer = torch.ones(1 << 18, device="cuda")
    distributed.all_reduce(buffer)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        distributed.all_reduce(buffer)
    for _ in range(rounds):
        captured.replay()
    torch.cuda.synchronize()
    return {"replays": rounds}


def run(rank: int, options: argparse.Namespace) -> None:
    # As a launcher would, before CUDA loads gpuwhy.
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(options.ranks))
    torch.cuda.set_device(rank)
    distributed.init_process_group(
        "nccl", init_method=f"tcp://127.0.0.1:{options.port}", rank=rank, world_size=options.ranks)
    if options.case == "mixed":
        found = mixed(rank, options.ranks, options.rounds)
    elif options.case == "loop":
        found = loop(options.ranks, options.bytes, options.rounds)
    elif options.case == "small":
        found = small(options.rounds)
    else:
        found = graph(options.rounds)
    line = {"pid": os.getpid(), "rank": rank, "nccl": list(torch.cuda.nccl.version()), **found}
    # One write: ranks share the pipe.
    os.write(1, (json.dumps(line) + "\n").encode())
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=["mixed", "loop", "small", "graph"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--bytes", type=int, default=1 << 26)
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        options.port = free.getsockname()[1]
    torch.multiprocessing.spawn(run, (options,), nprocs=options.ranks)


if __name__ == "__main__":
    main()
