"""Lesson 4: kernels so small that launching them takes longer than running them.

Each operation takes Python and the framework several microseconds on the host, but the device only two. A CUDA graph
launches all of them with one call; it needs constant shapes and addresses, which this program has.

Bottleneck: `launch`

    CUDA_INJECTION64_PATH=libprof.so python 04_launch_bound.py          # one launch for each operation
    CUDA_INJECTION64_PATH=libprof.so python 04_launch_bound.py --graph  # one launch for each step
"""

import argparse
import time

import torch


# Steps before the clock starts: the first ones load libraries and choose algorithms.
WARM_UP = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--steps", type=int, help="stop after so many steps instead")
    parser.add_argument("--graph", action="store_true", help="replay a captured step: the knob of this lesson")
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()

    width = options.width
    layers = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()) for _ in range(options.layers)]
    model = torch.nn.Sequential(*layers).cuda().requires_grad_(False)
    batch = torch.randn(options.batch, width, device="cuda")

    def eager() -> None:
        model(batch)

    step = eager
    if options.graph:
        # Libraries initialize at their first call, which must not happen during the capture.
        warmup = torch.cuda.Stream()
        warmup.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warmup):
            model(batch)
        torch.cuda.current_stream().wait_stream(warmup)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            model(batch)
        step = captured.replay

    steps, began = 0, time.perf_counter()
    while steps != options.steps and (options.steps or time.perf_counter() - began < options.seconds):
        step()
        steps += 1
        if steps == WARM_UP:
            torch.cuda.synchronize()
            began = time.perf_counter()
        if steps % 20 == 0:
            torch.cuda.synchronize()  # as a training loop does when it logs
    torch.cuda.synchronize()
    rate = max(0, steps - WARM_UP) / (time.perf_counter() - began)
    how = "graph replay" if options.graph else "eager launches"
    print(f"{rate:.0f} steps/s with {how}")


if __name__ == "__main__":
    main()
