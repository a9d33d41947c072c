"""Times the same launches of a GEMM and of a copy by triton.testing.do_bench and by a session of gpuwhy
(libgpuwhy_c.so).

Prints a line of JSON: for each workload, the nanoseconds of do_bench and those of the ranges around its launches.

The factors are zero: that takes less power than other numbers (H. He, "Strangely, Matrix Multiplications on GPUs Run
Faster When Given Predictable Data", 2024), so the clock of the device changes less.
"""

import argparse
import ctypes
import json
from collections.abc import Callable

# Launches of do_bench within a session, in addition to 7 or so for warm-up and estimation, which the session does not
# distinguish: medians of a report are exact up to 32 values.
COUNTED = 22

Work = Callable[[], object]


class Gpuwhy:
    """gpuwhy.h through ctypes."""

    def __init__(self, library: str) -> None:
        self.library = ctypes.CDLL(library)
        for name in ("gpuwhy_report_json", "gpuwhy_last_error"):
            getattr(self.library, name).restype = ctypes.c_size_t
            getattr(self.library, name).argtypes = (ctypes.c_char_p, ctypes.c_size_t)

    def text(self, function: str) -> str:
        call = getattr(self.library, function)
        text = ctypes.create_string_buffer(call(None, 0) + 1)
        call(text, len(text))
        return text.value.decode()

    def check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(self.text("gpuwhy_last_error"))

    def start(self) -> None:
        self.check(self.library.gpuwhy_start(None))

    def stop(self) -> None:
        self.check(self.library.gpuwhy_stop())

    def ranged(self, launch: Work) -> Work:
        """The same work within a range."""

        def call() -> None:
            self.check(self.library.gpuwhy_range_push(b"work"))
            launch()
            self.check(self.library.gpuwhy_range_pop())

        return call

    def ranges(self) -> float:
        """Median device time of the ranges of the last stopped session, nanoseconds."""
        rows = json.loads(self.text("gpuwhy_report_json"))["ranges"]["rows"]
        return next(row["projected"]["median_ns"] for row in rows if row["message"] == "work")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="libgpuwhy_c.so")
    options = parser.parse_args()
    # PyTorch brings a libcupti, and is imported before the session searches for one; CUDA starts with the first tensor.
    import torch
    import triton.testing

    gpuwhy = Gpuwhy(options.library)
    gpuwhy.check(gpuwhy.library.gpuwhy_prepare())
    left, right, product = (torch.zeros(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    source, target = (torch.empty(1 << 28, device="cuda") for _ in range(2))

    def times(launch: Work) -> list[float]:
        milliseconds = triton.testing.do_bench(launch, return_mode="median")
        gpuwhy.start()
        theirs = triton.testing.do_bench(
            gpuwhy.ranged(launch), warmup=1, rep=COUNTED * milliseconds, return_mode="median")
        gpuwhy.stop()
        return [theirs * 1e6, gpuwhy.ranges()]

    works: dict[str, Work] = {
        "gemm": lambda: torch.mm(left, right, out=product), "copy": lambda: target.copy_(source)}
    print(json.dumps({name: times(launch) for name, launch in works.items()}))


if __name__ == "__main__":
    main()
