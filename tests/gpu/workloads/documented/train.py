"""The training of the documents' lines. Its options are accepted and ignored, except `--torch-profiler FILE`.

TRAIN_SECONDS is the length of the training, TRAIN_WIDTH the width of its layers: by default the GPU is the bottleneck,
with 256 the launches are; TRAIN_PAUSE is a pause in each step, seconds. Without a GPU, GPU_SUITE_REPLAY_HOST plays a
recording instead.
"""

import contextlib
import gzip
import os
import sys
import time

HOST = os.environ.get("GPU_SUITE_REPLAY_HOST")


def main(output: str | None) -> None:
    import torch

    try:
        from gpuwhy import range as named
    except ImportError:
        def named(*_, **__):
            return contextlib.nullcontext()

    width = int(os.environ.get("TRAIN_WIDTH", "3072"))
    pause = float(os.environ.get("TRAIN_PAUSE", "0"))
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    model = torch.nn.Sequential(*layers, torch.nn.Softmax(-1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.randn(width, width, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        with named("step"):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if pause:
                time.sleep(pause)

    for _ in range(20):
        step()
    if output:
        with torch.profiler.profile() as profiler:
            for _ in range(20):
                step()
        profiler.export_chrome_trace(output.removesuffix(".gz"))
        with open(output.removesuffix(".gz"), "rb") as plain, gzip.open(output, "wb") as packed:
            packed.write(plain.read())
        return
    torch.cuda.profiler.start()
    done = torch.cuda.Event()
    end = time.monotonic() + float(os.environ.get("TRAIN_SECONDS", "3"))
    while time.monotonic() < end:
        with named("epoch", domain="train"):
            for _ in range(100):
                step()
        # The CPU is one epoch ahead at most.
        while not done.query():
            time.sleep(0.0005)
        done.record()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    wanted = sys.argv[sys.argv.index("--torch-profiler") + 1] if "--torch-profiler" in sys.argv else None
    if HOST and wanted:
        with gzip.open(wanted, "wt") as made:
            made.write('{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, '
                       '"dur": 5, "args": {"device": 0, "context": 1, "stream": 7, "correlation": 1}}]}')
    elif HOST:
        os.execv(HOST, [HOST, "--call", "200:cudaProfilerStart", "--call", "3000:cudaProfilerStop"])
    else:
        main(wanted)
