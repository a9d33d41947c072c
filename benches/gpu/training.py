"""Trains three models in one process, one after the other, and prints the time per step of each.

    python3 benches/gpu/training.py [--torch-trace FILE]

Importing PyTorch and initializing CUDA takes five seconds, longer than any of these measurements: three processes would
spend most of a round on it. So the time per step is that of each model, while CPU time, memory and the end are those of
the process. The loops are those of tests/gpu/workloads/train.py.
"""

from __future__ import annotations

import argparse
import gc
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "gpu" / "workloads"))

import torch  # noqa: E402
import train  # noqa: E402

# Steps to warm up, and in each repetition, whose median counts: 0.15 to 0.2 s each on an H200. Several short
# repetitions instead of a few long ones, because disturbances come in bursts.
REPETITIONS = 5
LOADS = {"mlp": (20, 45), "resnet": (5, 9), "gpt": (5, 6)}


def train_all() -> None:
    for model, (warmup, steps) in LOADS.items():
        load = argparse.Namespace(
            model=model, steps=steps, repetitions=REPETITIONS, warmup=warmup, batch=None, loader_ms=None)
        times = train.train(load)
        # Flushed, because the time of the line is the time of the result.
        print(json.dumps({"model": model, "ms_per_step": statistics.median(times), "repetitions_ms": times}), flush=True)
        # Release the memory of a model before the next one.
        gc.collect()
        torch.cuda.empty_cache()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-trace", metavar="FILE", help="run under torch.profiler and write its trace here")
    options = parser.parse_args()
    if options.torch_trace is None:
        train_all()
        return 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        train_all()
    profiler.export_chrome_trace(options.torch_trace)
    return 0


if __name__ == "__main__":
    sys.exit(main())
