"""A process on two devices, and a process on one that another process can share.

    two   matrix products on both devices, and copies from the first to the second
    one   matrix products on the first device for --seconds

The last line printed is JSON: the matrix products of each device and the bytes between them.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

PRODUCTS, COPIES, SIZE = (300, 200), 50, 4096


def two() -> dict:
    parts = [torch.randn(SIZE, SIZE, device=f"cuda:{device}", dtype=torch.bfloat16) for device in range(2)]
    there = torch.empty_like(parts[1])
    for number in range(PRODUCTS[0]):
        parts[0] @ parts[0]
        if number < PRODUCTS[1]:
            parts[1] @ parts[1]
        if number < COPIES:
            there.copy_(parts[0], non_blocking=True)
    for device in range(2):
        torch.cuda.synchronize(device)
    return {"products": PRODUCTS, "peer_bytes": COPIES * there.nbytes}


def one(seconds: float) -> dict:
    part = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    products = 0
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        for _ in range(20):
            part @ part
        torch.cuda.synchronize()
        products += 20
    return {"products": [products]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=["two", "one"])
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    print(json.dumps(two() if options.case == "two" else one(options.seconds)))


if __name__ == "__main__":
    main()
