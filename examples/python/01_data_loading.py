"""Lesson 1: the device waits for the next batch.

Decoding an image costs the DataLoader a few milliseconds of CPU time. Without workers, the training process itself does
it between two steps, while the device is idle.

Bottleneck: `data_loading`

    CUDA_INJECTION64_PATH=libprof.so python 01_data_loading.py              # the device is idle most of the time
    CUDA_INJECTION64_PATH=libprof.so python 01_data_loading.py --workers 8  # the same work, hidden by training
    CUDA_INJECTION64_PATH=libprof.so python 01_data_loading.py --ready      # no work: the gain from hiding all of it

With `--layers 12` the device works about twenty milliseconds for each batch, as in a realistic model.
"""

import argparse
import itertools
import time

import torch


# Steps before the clock starts: the first ones load libraries and choose algorithms.
WARM_UP = 3


class Images(torch.utils.data.Dataset):
    """Images whose decoding is simulated by computing for `milliseconds`."""

    def __init__(self, milliseconds: float) -> None:
        self.seconds = milliseconds / 1e3
        self.image = torch.randn(3, 128, 128)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        deadline = time.perf_counter() + self.seconds
        while time.perf_counter() < deadline:
            pass
        return self.image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--steps", type=int, help="stop after so many steps instead")
    parser.add_argument("--workers", type=int, default=0, help="DataLoader workers: the knob of this lesson")
    parser.add_argument("--ready", action="store_true", help="use the first batch again and again")
    parser.add_argument("--layers", type=int, default=0, help="further convolutions: more for the device to do")
    parser.add_argument("--decode-ms", type=float, default=1.0, help="processor time for each image")
    options = parser.parse_args()

    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 7, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(64, 256, 3, stride=2), torch.nn.ReLU(),
        *(layer for _ in range(options.layers) for layer in (torch.nn.Conv2d(256, 256, 3, padding=1), torch.nn.ReLU())),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(Images(options.decode_ms), batch_size=64, num_workers=options.workers)

    batches = itertools.repeat(next(iter(loader))) if options.ready else loader
    steps, began = 0, time.perf_counter()
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        model(batch.cuda()).square().mean().backward()
        optimizer.step()
        steps += 1
        if steps == WARM_UP:
            torch.cuda.synchronize()
            began = time.perf_counter()
        if steps == options.steps or (not options.steps and time.perf_counter() - began > options.seconds):
            break
    torch.cuda.synchronize()
    rate = (steps - WARM_UP) / (time.perf_counter() - began) if steps > WARM_UP else 0.0
    print(f"{rate:.1f} steps/s with {'data ready' if options.ready else f'{options.workers} workers'}")


if __name__ == "__main__":
    main()
