"""Kernels measured while the program runs, compared with Nsight Compute: the same counters of the same kernels, the
limit that each was written to have, and a program whose own output does not change.
"""

from __future__ import annotations

import csv
import glob
import io
import json
import os
import pathlib
import shutil
import statistics
import time
from collections.abc import Iterator

from harness import Check, Result, Suite, expect, skipped

ROUNDS = 300
LIMIT = 240.0
# Kernel -> rules; one of them must apply.
LIMITS = {
    "k_copy": {"at_roof"}, "k_fma": {"at_roof", "fp32_matrix"}, "k_bank": {"bank_conflicts"}, "k_stride": {"uncoalesced_loads"},
    "k_tail": {"tail"}, "k_few": {"small_grid"}, "k_spill": {"spills"}, "k_diverge": {"divergence"},
}
# Metric -> maximum difference from ncu: a part of the value, or percentage points. Time differs by the clock, which ncu
# locks unless configured otherwise; counts of work do not depend on it.
COMPARED = {
    "gpu__time_duration.sum": 0.05, "sm__inst_executed.sum": 0.01, "dram__bytes_read.sum": 0.03,
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 3.0, "smsp__issue_active.avg.pct_of_peak_sustained_active": 3.0,
    "sm__warps_active.avg.pct_of_peak_sustained_active": 3.0, "lts__t_bytes.sum": 0.05,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 0.01, "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 0.01,
    "smsp__thread_inst_executed_per_inst_executed.ratio": 0.02,
}
# Median of all differences of counts, as parts of the values.
MEDIAN = 0.01
# Bytes and seconds below which a relative difference is meaningless.
SMALL = {"dram__bytes_read.sum": 1e6, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 1e4}


def find_ncu() -> str | None:
    places = [os.environ.get("GPUWHY_NCU"), shutil.which("ncu"), "/usr/local/cuda/bin/ncu"]
    places += sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu"), reverse=True)
    return next((place for place in places if place and pathlib.Path(place).exists()), None)


def by_ncu(suite: Suite, ncu: str, program: pathlib.Path) -> dict[str, dict[str, float]]:
    """Kernel -> metric -> value, of one launch of each."""
    command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--cache-control", "none",
               "--launch-skip", "16", "--launch-count", "8", "--metrics", ",".join(COMPARED), program, "6"]
    run = suite.run("kernels-ncu", command, limit=LIMIT)
    text = run.stdout[run.stdout.find('"ID"'):]
    rows = list(csv.DictReader(io.StringIO(text)))[1:]
    number = lambda text: float(text.replace(",", "")) if text else float("nan")
    return {row["Kernel Name"].split("(")[0]: {name: number(row.get(name, "")) for name in COMPARED} for row in rows}


def difference(metric: str, ours: float, theirs: float) -> float | None:
    """Difference in the unit of the metric's limit; None if there is nothing to compare."""
    if max(abs(ours), abs(theirs)) < SMALL.get(metric, 0.0):
        return None
    if COMPARED[metric] >= 1.0:
        return abs(ours - theirs)
    return abs(ours - theirs) / abs(theirs) if theirs else None


def kernels(suite: Suite) -> Iterator[Result]:
    """Eight kernels with a known limit."""
    program = suite.scratch / "kernels"
    try:
        build = suite.compile(suite.workloads / "kernels.cu", program)
    except FileNotFoundError as error:
        yield skipped("kernels", str(error))
        return
    yield expect("kernels.build", build.code == 0, build.stderr.strip()[-300:])
    bare = suite.bare("kernels", [program, str(ROUNDS)])
    traces = suite.folder("kernels-traces")
    command = [suite.gpuwhy, "kernels", "--top", "8", "--output", traces, "--json", "--", program, str(ROUNDS)]
    run = suite.run("kernels", command, limit=LIMIT)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    yield expect("kernels.output", run.code == 0 and bare.stdout.strip() in run.stdout and bool(lines), run.stderr.strip()[:400])
    if not lines:
        return
    report = json.loads(lines[-1])
    measured = {kernel["name"]: kernel for kernel in report["measured"]}
    outcomes = {name: kernel["outcome"] for name, kernel in measured.items()}
    complete = set(outcomes) == set(LIMITS) and set(outcomes.values()) == {"measured"}
    yield expect("kernels.measured", complete, f"{outcomes}; held up for {report['stall_ns'] / 1e9:.2f} s")
    yield expect("kernels.time", run.seconds < bare.seconds + 15, f"{run.seconds:.1f} s, without {bare.seconds:.1f} s")
    for name, rules in LIMITS.items():
        found = [finding["rule"] for finding in measured.get(name, {}).get("findings", []) if finding["applies"]]
        yield expect(f"kernels.rule.{name}", bool(rules & set(found)), ", ".join(found) or "nothing")
    for name, kernel in measured.items():
        recorded, counted = kernel["total_ns"] / max(kernel["launches"], 1), kernel["duration_ns"] or 0
        yield expect(f"kernels.record.{name}", abs(counted / recorded - 1) < 0.1, f"counted {counted:.0f} ns, recorded {recorded:.0f} ns")
    ncu = find_ncu()
    if ncu is None:
        yield skipped("kernels.ncu", "no ncu: name one by GPUWHY_NCU")
        return
    theirs = by_ncu(suite, ncu, program)
    parts = []
    for name in LIMITS:
        for metric, limit in COMPARED.items():
            ours = measured.get(name, {}).get("metrics", {}).get(metric)
            other = theirs.get(name, {}).get(metric)
            if ours is None or other is None:
                yield expect(f"kernels.ncu.{name}", False, f"no {metric}: ours {ours}, ncu {other}")
                continue
            found = difference(metric, ours, other)
            if found is None:
                continue
            if limit < 1.0:
                parts.append(found)
            if found > limit:
                yield expect(f"kernels.ncu.{name}", False, f"{metric}: {ours:.6g}, ncu {other:.6g}")
    median = statistics.median(parts) if parts else 1.0
    suite.record("kernels", {"median": median, "stall_ns": report["stall_ns"], "seconds": run.seconds, "bare": bare.seconds})
    yield expect("kernels.ncu", median <= MEDIAN, f"median difference of {len(parts)} values {median:.2%}")


def refused(suite: Suite) -> Iterator[Result]:
    """Another tool has the counters: one message, and a run as without measuring."""
    program = suite.scratch / "kernels"
    ncu = find_ncu()
    if not program.exists() or ncu is None:
        yield skipped("kernels-busy", "it needs the program of the check `kernels`, and ncu")
        return
    began = time.monotonic()
    holder, folder = suite.start("kernels-holder", [suite.gpuwhy, "run", "--gpu-metrics", "on", "--report", "off", "--", program, "4000"])
    try:
        run = suite.run("kernels-busy", [suite.gpuwhy, "kernels", "--json", "--", program, str(ROUNDS)], limit=LIMIT)
    finally:
        suite.finish(holder, folder, began, limit=LIMIT)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    outcomes = {kernel["outcome"] for kernel in json.loads(lines[-1])["measured"]} if lines else set()
    yield expect("kernels-busy", run.code == 0 and outcomes == {"busy"}, f"exit code {run.code}, {outcomes}")


def checks() -> list[Check]:
    return [Check("kernels", kernels, credit=120.0), Check("kernels-busy", refused, credit=60.0)]
