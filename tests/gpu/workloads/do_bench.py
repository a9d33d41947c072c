"""Times a GEMM and a copy by CUDA events and by triton.testing.do_bench, each while a session of gpuprof (libgpuprof_c.so) times
the very same launches by a range around each: clocks that drift between two series cannot tell the instruments apart.

Prints a line of JSON: for each work and other instrument, its nanoseconds and those of gpuprof. do_bench clears the L2 cache
before each launch, outside of the range.
"""

import argparse
import ctypes
import json
import statistics
from collections.abc import Callable

# Medians of a report are exact up to 32 values.
LAUNCHES = 31
# Of do_bench, which launches 7 more to warm up and to estimate; the session does not tell those apart.
COUNTED = 22


class Session:
    """gpuprof.h, by way of ctypes."""

    def __init__(self, library: str) -> None:
        self.library = ctypes.CDLL(library)
        for name in ("gpuprof_report_json", "gpuprof_last_error"):
            getattr(self.library, name).restype = ctypes.c_size_t
            getattr(self.library, name).argtypes = (ctypes.c_char_p, ctypes.c_size_t)

    def text(self, function: str) -> str:
        call = getattr(self.library, function)
        text = ctypes.create_string_buffer(call(None, 0) + 1)
        call(text, len(text))
        return text.value.decode()

    def check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(self.text("gpuprof_last_error"))

    def start(self) -> None:
        self.check(self.library.gpuprof_start(None))

    def ranged(self, work: Callable[[], object]) -> Callable[[], None]:
        """The same work within a range."""

        def call() -> None:
            self.check(self.library.gpuprof_range_push(b"work"))
            work()
            self.check(self.library.gpuprof_range_pop())

        return call

    def stop(self) -> None:
        self.check(self.library.gpuprof_stop())

    def median(self) -> float:
        """Of the device time of the ranges of the session that was stopped last, nanoseconds."""
        rows = json.loads(self.text("gpuprof_report_json"))["ranges"]["rows"]
        return next(row["projected"]["median_ns"] for row in rows if row["message"] == "work")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="libgpuprof_c.so")
    options = parser.parse_args()
    # PyTorch brings a libcupti, and is imported before the session looks for one; CUDA starts with the first tensor.
    import torch
    import triton.testing

    session = Session(options.library)
    session.start()
    left, right, product = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    source, target = (torch.empty(1 << 28, device="cuda") for _ in range(2))
    work = {"gemm": lambda: torch.mm(left, right, out=product), "copy": lambda: target.copy_(source)}
    for launch in work.values():
        for _ in range(20):
            launch()
    torch.cuda.synchronize()
    session.stop()

    found: dict[str, dict[str, list[float]]] = {}
    for name, launch in work.items():
        ranged = session.ranged(launch)
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(LAUNCHES)]
        session.start()
        for begin, end in pairs:
            begin.record()
            ranged()
            end.record()
        torch.cuda.synchronize()
        session.stop()
        by_events = statistics.median(begin.elapsed_time(end) for begin, end in pairs)
        found[name] = {"events": [by_events * 1e6, session.median()]}
        session.start()
        by_do_bench = triton.testing.do_bench(ranged, warmup=1, rep=COUNTED * by_events, return_mode="median")
        session.stop()
        found[name]["do_bench"] = [by_do_bench * 1e6, session.median()]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
