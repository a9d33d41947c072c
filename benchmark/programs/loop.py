"""Runs a program of the benchmark: its start-up, then its step again and again; prints the time of a step.

A program is a module with a function `build`, which returns the function that does a step.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from collections.abc import Callable

WARM_SECONDS = 0.4
# Steps between two waits for the GPU: the clock must not run ahead of it.
SYNC_EVERY = 20


def repeat(step: Callable[[], object], seconds: float, after_step: Callable[[], object] = lambda: None) -> float:
    """Runs steps for this long. Returns milliseconds a step."""
    import torch

    torch.cuda.synchronize()
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        step()
        after_step()
        done += 1
        if done % SYNC_EVERY == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / done * 1e3


def profiled(step: Callable[[], object], seconds: float, folder: str, name: str) -> float:
    """The same under torch.profiler, as the guide of the TensorBoard plugin has it; without the time to write the file."""
    from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

    with profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True,
            schedule=schedule(wait=0, warmup=2, active=1 << 30),  # with one, each step has its mark
            on_trace_ready=tensorboard_trace_handler(folder, name, use_gzip=True)) as profiler:
        for _ in range(2):
            step()
            profiler.step()
        return repeat(step, seconds, profiler.step)


def run(build: Callable[[], Callable[[], object]]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0, help="time of the measured loop (default 3)")
    parser.add_argument("--go", type=pathlib.Path, metavar="FILE", help="write FILE.ready when loaded, and wait for FILE")
    parser.add_argument("--kineto", nargs=2, metavar=("FOLDER", "NAME"), help="write a trace of torch.profiler")
    options = parser.parse_args()
    if options.go is not None:
        options.go.with_suffix(".ready").touch()
        while not options.go.exists():
            time.sleep(0.02)
    step = build()
    repeat(step, WARM_SECONDS)
    print(f"{profiled(step, options.seconds, *options.kineto) if options.kineto else repeat(step, options.seconds):.4f} ms/step", flush=True)
