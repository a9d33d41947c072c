"""Small PyTorch training loops with a fixed number of operations.

The same command line issues the same kernels in every run: sizes, seeds and step counts are fixed, cuDNN chooses its
algorithms by rule and not by timing, and nothing is printed with `--quiet-times` that differs from run to run. So two
runs under two tools must agree to the last kernel.

    mlp      30 layers of 64: launch-bound, about 280 kernels a step
    resnet   ResNet-50, batch 32: GPU-bound; with --loader-ms and --workers 0 its data loader is the bottleneck
    gpt      12 layers of width 1024 in bf16: GPU-bound

It does not train anything worth keeping, and it is not a benchmark of the models.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time

import torch


class SyntheticImages(torch.utils.data.Dataset):
    """Images in memory, whose loading costs `milliseconds` of processor time each, as decoding would."""

    def __init__(self, length: int, milliseconds: float) -> None:
        self.length = length
        self.seconds = milliseconds / 1e3
        self.image = torch.randn(3, 224, 224, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        deadline = time.perf_counter() + self.seconds
        while time.perf_counter() < deadline:
            pass
        return self.image


def build(options: argparse.Namespace) -> tuple[torch.nn.Module, torch.Tensor]:
    """The model and one batch, both on the device."""
    if options.model == "mlp":
        layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()) for _ in range(30)]
        return torch.nn.Sequential(*layers).cuda(), torch.randn(options.batch or 32, 64, device="cuda")
    if options.model == "resnet":
        import torchvision

        return torchvision.models.resnet50().cuda(), torch.randn(options.batch or 32, 3, 224, 224, device="cuda")
    layer = torch.nn.TransformerEncoderLayer(
        1024, 16, 4096, batch_first=True, norm_first=True, device="cuda", dtype=torch.bfloat16)
    encoder = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    return encoder, torch.randn(options.batch or 8, 1024, 1024, device="cuda", dtype=torch.bfloat16)


def batches(options: argparse.Namespace, resident: torch.Tensor):
    """Endless batches on the device: the resident one, or new ones from a DataLoader if --loader-ms is given."""
    if options.loader_ms is None:
        while True:
            yield resident
    size = resident.shape[0]
    loader = torch.utils.data.DataLoader(
        SyntheticImages(size * (options.warmup + options.steps * options.repetitions), options.loader_ms), size,
        num_workers=options.workers, pin_memory=options.pin)
    for batch in loader:
        yield batch.cuda(non_blocking=options.pin)


def train(options: argparse.Namespace) -> list[float]:
    """Milliseconds per step of each repetition."""
    torch.manual_seed(0)
    module, resident = build(options)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)
    source = batches(options, resident)

    def steps(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            module(next(source)).float().pow(2).mean().backward()
            optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / count * 1e3

    steps(options.warmup)
    times = [steps(options.steps) for _ in range(options.repetitions)]
    source.close()
    return times


def traced_by_torch(options: argparse.Namespace) -> list[float]:
    """Trains under torch.profiler, which is the independent count of the operations."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        times = train(options)
    profiler.export_chrome_trace(options.torch_trace)
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["mlp", "resnet", "gpt"])
    parser.add_argument("--steps", type=int, default=40, help="steps of one repetition")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=10, help="steps before the first repetition")
    parser.add_argument("--batch", type=int, help="samples in a batch (mlp and resnet 32, gpt 8)")
    parser.add_argument("--loader-ms", type=float, help="resnet: fresh batches, this many milliseconds of loading an image")
    parser.add_argument("--workers", type=int, default=0, help="DataLoader workers")
    parser.add_argument("--pin", action="store_true", help="pinned batches, copied asynchronously")
    parser.add_argument("--torch-trace", metavar="FILE", help="run under torch.profiler and write its trace here")
    parser.add_argument("--quiet-times", action="store_true", help="print nothing that differs between two runs")
    parser.add_argument("--exit-code", type=int, default=0)
    options = parser.parse_args()
    if options.loader_ms is not None and options.model != "resnet":
        parser.error("--loader-ms needs the model that takes images: resnet")

    times = traced_by_torch(options) if options.torch_trace else train(options)
    print("train", options.model, "steps", options.warmup + options.steps * options.repetitions)
    if not options.quiet_times:
        print(json.dumps({"ms_per_step": statistics.median(times), "repetitions_ms": times, "pid": os.getpid()}))
    return options.exit_code


if __name__ == "__main__":
    sys.exit(main())
