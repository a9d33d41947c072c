"""Runs a program of the benchmark: its start-up, then its step again and again; prints the time of a step.

A program is a module with a function `build`, which returns the function that does a step.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from collections.abc import Callable

WARM_SECONDS = 0.4
# Steps between two waits for the GPU: the clock must not run ahead of it.
SYNC_EVERY = 20
# Steps that torch.profiler records.
ACTIVE_STEPS = 3


def repeat(step: Callable[[], object], seconds: float) -> float:
    """Runs steps for this long. Returns milliseconds a step."""
    import torch

    torch.cuda.synchronize()
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        step()
        done += 1
        if done % SYNC_EVERY == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / done * 1e3


def profiled(step: Callable[[], object], folder: str, name: str) -> float:
    """Steps under torch.profiler as PyTorch's tutorial on TensorBoard records them. Returns milliseconds a recorded step."""
    import torch
    from torch.profiler import profile, schedule, tensorboard_trace_handler

    with profile(
            schedule=schedule(wait=1, warmup=1, active=ACTIVE_STEPS, repeat=1), record_shapes=True, profile_memory=True, with_stack=True,
            on_trace_ready=tensorboard_trace_handler(folder, name, use_gzip=True)) as profiler:
        for _ in range(2):
            step()
            torch.cuda.synchronize()
            profiler.step()
        began = time.perf_counter()
        for _ in range(ACTIVE_STEPS - 1):
            step()
            profiler.step()
        step()
        torch.cuda.synchronize()
        taken = time.perf_counter() - began
        profiler.step()  # writes the trace
    return taken / ACTIVE_STEPS * 1e3


def run(build: Callable[[], Callable[[], object]]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0, help="time of the measured loop (default 3)")
    parser.add_argument("--go", type=pathlib.Path, metavar="FILE", help="write FILE.ready when loaded, and wait for FILE")
    parser.add_argument("--kineto", nargs=2, metavar=("FOLDER", "NAME"), help="record three more steps with torch.profiler")
    options = parser.parse_args()
    if options.go is not None:
        options.go.with_suffix(".ready").touch()
        while not options.go.exists():
            time.sleep(0.02)
    step = build()
    repeat(step, WARM_SECONDS)
    plain = round(repeat(step, options.seconds), 4)
    print(json.dumps({"plain": plain, "traced": round(profiled(step, *options.kineto), 4)}) if options.kineto else f"{plain} ms/step", flush=True)
