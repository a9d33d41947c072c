"""A process that keeps a GPU busy on command: other_process.py PART.

It prints `ready`. A line `work` on its input starts matrix products for this part of the time, `rest` ends them; each
is printed once it is done. The end of the input ends the process.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import torch

# Length of a period of work and rest, seconds.
PERIOD = 15e-3


def products(part: float, working: threading.Event) -> None:
    """Computes while `working` is set, one period after the other."""
    # A rehearsal has no GPU.
    device = "cuda" if torch.cuda.is_available() else "cpu"
    side = 8192 if device == "cuda" else 64
    left, right, result = (torch.full((side, side), 0.01, device=device, dtype=torch.bfloat16) for _ in range(3))

    def product() -> None:
        torch.mm(left, right, out=result)
        if device == "cuda":
            torch.cuda.synchronize()

    product()
    print("ready", flush=True)
    while True:
        working.wait()
        until = time.perf_counter() + PERIOD * part
        while time.perf_counter() < until:
            product()
        time.sleep(PERIOD * (1 - part))


def main() -> None:
    working = threading.Event()
    threading.Thread(target=products, args=(float(sys.argv[1]), working), daemon=True).start()
    for line in sys.stdin:
        if line.strip() == "work":
            working.set()
        else:
            working.clear()
            time.sleep(2 * PERIOD)  # the last products end
        print(line.strip(), flush=True)
    os._exit(0)  # the thread is in the middle of a product


if __name__ == "__main__":
    main()
