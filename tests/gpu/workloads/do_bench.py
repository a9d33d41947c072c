"""Times a GEMM and a copy by CUDA events and by triton.testing.do_bench, and by gpuwhy (libgpuwhy_c.so).

Prints a line of JSON: for each work and comparison, the nanoseconds of the other instrument and those of gpuwhy.

  events    a benchmark of gpuwhy, and events that its repetitions record around the very same launches
  do_bench  do_bench and a benchmark of gpuwhy take turns; both clear the L2 cache before each launch, and the middle one of
            the rounds counts
  session   do_bench, and a session of gpuwhy that times the very same launches by a range around each

The factors are zero: that takes less power than other numbers (H. He, "Strangely, Matrix Multiplications on GPUs Run Faster
When Given Predictable Data", 2024), so the clock of the device need not differ between two series with other pauses.
"""

import argparse
import ctypes
import json
import statistics
from collections.abc import Callable

# A benchmark calls its work so often to warm up, and so often to measure.
WARM_UP, REPETITIONS = 25, 100
ROUNDS = 3
# Launches of do_bench within a session, beside 7 or so to warm up and to estimate, which the session does not tell apart:
# medians of a report are exact up to 32 values.
COUNTED = 22

Work = Callable[[], object]
LAUNCH = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Gpuwhy:
    """gpuwhy.h, by way of ctypes."""

    def __init__(self, library: str) -> None:
        self.library = ctypes.CDLL(library)
        for name in ("gpuwhy_report_json", "gpuwhy_bench_json", "gpuwhy_last_error"):
            getattr(self.library, name).restype = ctypes.c_size_t
            getattr(self.library, name).argtypes = (ctypes.c_char_p, ctypes.c_size_t)
        self.library.gpuwhy_bench.argtypes = (
            ctypes.c_char_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint64, ctypes.c_double, LAUNCH, ctypes.c_void_p)

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

    def bench(self, launch: Work, flush: bool) -> float:
        """The median of a benchmark, nanoseconds."""

        @LAUNCH
        def call(_: object) -> None:
            launch()

        self.check(self.library.gpuwhy_bench(b"work", REPETITIONS, flush, 0, 0.0, call, None))
        found = json.loads(self.text("gpuwhy_bench_json"))
        assert found["repetitions"] == REPETITIONS, found
        return found["median_ns"]

    def ranged(self, launch: Work) -> Work:
        """The same work within a range."""

        def call() -> None:
            self.check(self.library.gpuwhy_range_push(b"work"))
            launch()
            self.check(self.library.gpuwhy_range_pop())

        return call

    def ranges(self) -> float:
        """The median device time of the ranges of the session that was stopped last, nanoseconds."""
        rows = json.loads(self.text("gpuwhy_report_json"))["ranges"]["rows"]
        return next(row["projected"]["median_ns"] for row in rows if row["message"] == "work")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="libgpuwhy_c.so")
    options = parser.parse_args()
    # PyTorch brings a libcupti, and is imported before the session looks for one; CUDA starts with the first tensor.
    import torch
    import triton.testing

    gpuwhy = Gpuwhy(options.library)
    gpuwhy.check(gpuwhy.library.gpuwhy_prepare())
    left, right, product = (torch.zeros(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    source, target = (torch.empty(1 << 28, device="cuda") for _ in range(2))

    def events(launch: Work) -> list[float]:
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(WARM_UP + REPETITIONS)]
        left_over = iter(pairs)

        def call() -> None:
            begin, end = next(left_over)
            begin.record()
            launch()
            end.record()

        ours = gpuwhy.bench(call, flush=False)
        return [statistics.median(begin.elapsed_time(end) for begin, end in pairs[WARM_UP:]) * 1e6, ours]

    def do_bench(launch: Work) -> list[float]:
        rounds = [
            (triton.testing.do_bench(launch, return_mode="median") * 1e6, gpuwhy.bench(launch, flush=True))
            for _ in range(ROUNDS)]
        return [statistics.median(times) for times in zip(*rounds)]

    def session(launch: Work, milliseconds: float) -> list[float]:
        gpuwhy.start()
        theirs = triton.testing.do_bench(
            gpuwhy.ranged(launch), warmup=1, rep=COUNTED * milliseconds, return_mode="median")
        gpuwhy.stop()
        return [theirs * 1e6, gpuwhy.ranges()]

    found: dict[str, dict[str, list[float]]] = {}
    works: dict[str, Work] = {
        "gemm": lambda: torch.mm(left, right, out=product), "copy": lambda: target.copy_(source)}
    for name, launch in works.items():
        by_events = events(launch)
        found[name] = {
            "events": by_events, "do_bench": do_bench(launch), "session": session(launch, by_events[0] / 1e6)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
