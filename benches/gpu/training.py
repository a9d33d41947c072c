"""Trains three models in one process, one after the other, and prints the time of a step of each.

    python3 benches/gpu/training.py [--torch-trace FILE]

Importing PyTorch and setting CUDA up takes five seconds, longer than any of these measurements: three processes would
spend most of a round on it. So the time of a step is each model's own, while processor time, memory and the end belong
to the process. The loops are those of tests/gpu/workloads/train.py.
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

# Steps to warm up, and of one of the repetitions, whose median counts: 0.15 to 0.2 s each on an H200. Several short
# ones rather than few long ones, because what disturbs comes in bursts.
REPETITIONS = 5
LOADS = {"mlp": (20, 45), "resnet": (5, 9), "gpt": (5, 6)}


def train_all() -> None:
    for model, (warmup, steps) in LOADS.items():
        load = argparse.Namespace(
            model=model, steps=steps, repetitions=REPETITIONS, warmup=warmup, batch=None, loader_ms=None)
        times = train.train(load)
        # Flushed, because the line's time is when the program had its answer.
        print(json.dumps({"model": model, "ms_per_step": statistics.median(times), "repetitions_ms": times}), flush=True)
        # What one model held is not the next one's memory.
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
