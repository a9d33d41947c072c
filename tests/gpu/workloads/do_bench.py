"""Times a GEMM and a copy by CUDA events, by triton.testing.do_bench and by sessions of gpuprof (libgpuprof_c.so), in one
process, and prints a line of JSON: nanoseconds by method for each.

The session must begin before CUDA does, so CUPTI listens during the other two as well; it costs the host, not the device,
and each launch here keeps the device busy for far longer than launching takes.
"""

import argparse
import ctypes
import json
import statistics

# Medians of a report are exact up to 32 values.
LAUNCHES = 31


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

    def stop(self) -> dict:
        self.check(self.library.gpuprof_stop())
        return json.loads(self.text("gpuprof_report_json"))


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

    found: dict[str, dict[str, float]] = {}
    for name, launch in work.items():
        found[name] = {"do_bench": triton.testing.do_bench(launch, return_mode="median") * 1e6}
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(LAUNCHES)]
        for begin, end in pairs:
            begin.record()
            launch()
            end.record()
        torch.cuda.synchronize()
        found[name]["events"] = statistics.median(begin.elapsed_time(end) for begin, end in pairs) * 1e6
        session.start()
        for _ in range(LAUNCHES):
            launch()
        torch.cuda.synchronize()
        device = session.stop()["devices"][0]
        rows = [row for table in ("kernels", "copies") for row in device[table] if row["count"] == LAUNCHES]
        found[name]["gpuprof"] = sum(row["median_ns"] for row in rows)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
