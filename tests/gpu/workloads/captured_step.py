"""A training step captured in a CUDA graph and replayed: its backward pass is launched into the capture by another thread."""

import argparse

import torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replays", type=int, default=200)
    options = parser.parse_args()

    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).cuda()
    batch = torch.randn(64, 256, device="cuda")

    def step() -> None:
        model.zero_grad(set_to_none=True)
        model(batch).square().mean().backward()

    # Libraries initialize themselves at their first call, which must not happen during the capture.
    warmup = torch.cuda.Stream()
    warmup.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warmup):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(warmup)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()
    for _ in range(options.replays):
        captured.replay()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
