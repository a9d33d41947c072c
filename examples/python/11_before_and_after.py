"""Lesson 11: a training loop, before and after optimization.

Before: the training process makes the batches, between two steps, and reads the loss in every step. After: workers make
them ahead in pinned memory, copies do not block, and the loss is read now and then. `gpuwhy diff` of the two traces
shows the changes.

Bottleneck: `data_loading`

    gpuwhy run -o before.gpuwhy -- python 11_before_and_after.py
    gpuwhy run -o after.gpuwhy -- python 11_before_and_after.py --after
    gpuwhy diff before.gpuwhy after.gpuwhy
"""

import argparse
import time

import torch


class Samples(torch.utils.data.Dataset):
    """Samples that take `milliseconds` of CPU time each."""

    def __init__(self, milliseconds: float) -> None:
        self.seconds = milliseconds / 1e3
        self.sample = torch.randn(1024)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        deadline = time.perf_counter() + self.seconds
        while time.perf_counter() < deadline:
            pass
        return self.sample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--steps", type=int, help="stop after so many steps instead")
    parser.add_argument("--after", action="store_true", help="with the advice of the first report: the knob of this lesson")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--sample-ms", type=float, default=0.5, help="processor time for each sample")
    options = parser.parse_args()

    model = torch.nn.Sequential(
        torch.nn.Linear(1024, 8192), torch.nn.ReLU(), torch.nn.Linear(8192, 8192), torch.nn.ReLU(),
        torch.nn.Linear(8192, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(
        Samples(options.sample_ms), batch_size=64, num_workers=options.workers if options.after else 0,
        pin_memory=options.after)

    steps, last, began = 0, 0.0, None
    for batch in loader:
        began = began or time.perf_counter()  # the start of the workers does not count
        loss = model(batch.to("cuda", non_blocking=options.after)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        steps += 1
        if not options.after or steps % 50 == 0:
            last = loss.item()
        if steps == options.steps or (not options.steps and time.perf_counter() - began > options.seconds):
            break
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.1f} steps/s {'after' if options.after else 'before'}, loss {last:g}")


if __name__ == "__main__":
    main()
