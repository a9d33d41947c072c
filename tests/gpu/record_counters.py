"""Turns the samples of a trace into a file for the replay library (GPUWHY_REPLAY_COUNTERS).

    GPUWHY_GPU_METRICS=on GPUWHY_RAW_RECORDING=gpt.cupti CUDA_INJECTION64_PATH=.../libprof.so program
    python3 tests/gpu/record_counters.py --bin target/release gpuwhy-4711.gpuwhy > gpt.counters.txt

The recording and the trace come from one run, so that samples and kernels belong together.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import pathlib
import subprocess
import sys

# Names of the trace -> names of CUPTI (cupti-sys/src/counters/sets.rs).
METRICS = {
    "core_clock": "gpc__cycles_elapsed.avg.per_second",
    "sm_active": "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "issue": "sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed",
    "tensor": "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
    "dram": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "l1": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "warps_active": "sm__warps_active_realtime.avg.pct_of_peak_sustained_elapsed",
    "dram_read": "dram__bytes_read.sum.per_second",
    "dram_write": "dram__bytes_write.sum.per_second",
}


def rows(gpuwhy: pathlib.Path, trace: pathlib.Path, sql: str) -> list[list[str]]:
    done = subprocess.run([gpuwhy, "query", "--format", "csv", trace, sql], capture_output=True, text=True, check=True)
    return list(csv.reader(io.StringIO(done.stdout)))[1:]


def convert(chip: str, start: int, found: list[list[str]]) -> str:
    """The file's text. Rows are start, end, metric and value, ordered by start."""
    names = [name for name in METRICS if any(row[2] == name for row in found)]
    samples: dict[tuple[int, int], dict[str, str]] = {}
    for begin, end, metric, value in found:
        if metric in METRICS:
            samples.setdefault((int(begin), int(end)), {})[metric] = value
    interval = min(end - begin for begin, end in samples)
    lines = [f"chip {chip}", f"interval {interval}", "metrics " + " ".join(METRICS[name] for name in names)]
    for (begin, end), values in sorted(samples.items()):
        if begin >= start:
            lines.append(f"sample {begin - start} {end - start} " + " ".join(values.get(name) or "nan" for name in names))
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("target/release"), help="folder with gpuwhy")
    parser.add_argument("trace", type=pathlib.Path)
    options = parser.parse_args()
    gpuwhy = options.bin / "gpuwhy"
    report = json.loads(subprocess.run([gpuwhy, "report", "--json", options.trace], capture_output=True, text=True, check=True).stdout)
    limits = [device["compute_limits"] for device in report["devices"] if device.get("compute_limits")]
    found = rows(gpuwhy, options.trace, "select start_ns, end_ns, metric, value from gpu_metrics where device = 0 order by 1")
    if not limits or not any(row[2] in METRICS for row in found):
        print(f"{options.trace}: no samples of hardware counters; record with GPUWHY_GPU_METRICS=on", file=sys.stderr)
        return 1
    start = int(rows(gpuwhy, options.trace, "select start_ns from processes")[0][0])
    sys.stdout.write(convert(limits[0]["chip"], start, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
