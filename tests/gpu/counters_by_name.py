#!/usr/bin/env python3
"""Metrics by name of twenty kernels, by `gpuwhy kernels --metrics` and by ncu:

    counters_by_name.py GPUWHY OUT.json      measures and compares, on a machine with a GPU and ncu
    counters_by_name.py --table OUT.json     writes the table of docs/design/counters.md

Clocks are not locked and caches not flushed, by either. ncu measures twice: by its replay of kernels, which writes memory
back between passes, and what caches change by its replay of the program, which does not. Percentages differ in points,
other values in percent.
"""

from __future__ import annotations

import csv
import io
import json
import math
import pathlib
import statistics
import subprocess
import sys
import textwrap
from collections.abc import Sequence

from checks.kernels import find_ncu

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = HERE / "workloads" / "twenty_kernels.py"
DOCUMENT = HERE.parent.parent / "docs" / "design" / "counters.md"
MARKERS = ("<!-- by name -->", "<!-- end -->")
SECONDS, LIMIT = 25, 120
DURATION = "gpu__time_duration.sum"
DRAM, L2, L1 = (
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed")
# The value below which a difference of a count means nothing.
METRICS = {
    DURATION: 0.0, "sm__inst_executed.sum": 0.0, "smsp__issue_active.avg.pct_of_peak_sustained_active": 0.0,
    "sm__warps_active.avg.pct_of_peak_sustained_active": 0.0, "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": 0.0,
    DRAM: 0.0, "dram__bytes_read.sum": 4e6, "dram__bytes_write.sum": 4e6, L2: 0.0, "lts__t_bytes.sum": 1e6,
    "lts__t_sector_hit_rate.pct": 0.0, L1: 0.0, "l1tex__t_bytes.sum": 1e6, "l1tex__t_sector_hit_rate.pct": 0.0,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 1e5}
# Metrics that depend on what the caches hold.
CACHED = [
    DURATION, DRAM, "dram__bytes_read.sum", "dram__bytes_write.sum", L2, "lts__t_bytes.sum", "lts__t_sector_hit_rate.pct", L1, "l1tex__t_bytes.sum",
    "l1tex__t_sector_hit_rate.pct", "smsp__issue_active.avg.pct_of_peak_sustained_active", "sm__warps_active.avg.pct_of_peak_sustained_active"]
POINTS = 3.0
# Part of the name of the kernel between two operations.
SEPARATOR = "spin_kernel"
# Share of a unit's peak, in percent, from which its traffic counts as relevant.
RELEVANT = 30.0


def difference(metric: str, ours: float | None, theirs: float | None) -> float | None:
    """In points or percent; None if there is nothing to compare."""
    if ours is None or theirs is None or not math.isfinite(ours) or not math.isfinite(theirs):
        return None
    if ".pct" in metric:
        return ours - theirs
    return None if max(ours, theirs) <= METRICS.get(metric, 0.0) else (ours / theirs - 1) * 100 if theirs else math.inf


def number(cell: str) -> float | None:
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return None


def sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.strip("() ").split(","))


def by_ncu(text: str) -> list[dict]:
    """Kernels of ncu's raw table in their order."""
    rows = list(csv.DictReader(io.StringIO(text[max(text.find('"ID"'), 0):])))
    return [{
        "symbol": row["Kernel Name"], "grid": sizes(row["Grid Size"]), "block": sizes(row["Block Size"]),
        "metrics": {name: value for name, cell in row.items() if name and "__" in name and (value := number(cell or "")) is not None},
    } for row in rows if row.get("ID")]


def units(text: str) -> dict[str, str]:
    rows = list(csv.DictReader(io.StringIO(text[max(text.find('"ID"'), 0):])))
    return {name: unit for name, unit in rows[0].items() if name and "__" in name} if rows else {}


def longest(groups: Sequence[Sequence[dict]]) -> list[dict]:
    """The longest kernel of each operation."""
    return [max(kernels, key=lambda kernel: kernel["metrics"].get(DURATION, 0.0)) for kernels in groups]


def place(kernel: dict) -> tuple:
    return kernel["symbol"], tuple(kernel["grid"]), tuple(kernel["block"])


def joined(
    ours: Sequence[dict], replayed: Sequence[dict], in_program: Sequence[dict], operations: Sequence[str],
) -> tuple[list[dict], dict[str, str]]:
    """A kernel of each operation that both measured, and why other operations have none."""
    measured = {place(kernel): kernel for kernel in ours if kernel["outcome"] == "measured"}
    places = [place(kernel) for kernel in replayed]
    rows, left_out = [], {}
    for operation, kernel, cached in zip(operations, replayed, in_program, strict=True):
        own = measured.get(place(kernel))
        if places.count(place(kernel)) > 1:
            left_out[operation] = "another operation has the same kernel with the same sizes"
        elif own is None:
            left_out[operation] = "gpuwhy did not measure its longest kernel"
        elif cached["grid"] != kernel["grid"]:
            left_out[operation] = "its longest kernel differs between the replays of ncu"
        if operation in left_out:
            continue
        theirs = {**kernel["metrics"], **{name: cached["metrics"].get(name) for name in CACHED}}
        rows.append({
            "operation": operation, "symbol": kernel["symbol"], "grid": kernel["grid"], "block": kernel["block"], "passes": own["passes"],
            "values": {name: [own["metrics"].get(name), theirs.get(name)] for name in METRICS},
            "replayed": {name: kernel["metrics"].get(name) for name in CACHED}})
    return rows, left_out


def judged(row: dict) -> dict[str, float]:
    """Differences of a row by metric, in points or percent. Time follows the clock, which moves: it is not judged."""
    found = {name: difference(name, *values) for name, values in row["values"].items() if name != DURATION}
    return {name: value for name, value in found.items() if value is not None}


def table(document: dict) -> str:
    lines = ["| kernel | us | device memory, % | L2, % | L1, % | L2 hits, % | values | largest difference |", "|---|---|---|---|---|---|---|---|"]
    for row in document["rows"]:
        shown = lambda value: "" if value is None else f"{value:.1f}"
        pair = lambda name: " / ".join(map(shown, [*row["values"][name], *(row["replayed"][of] for of in row["replayed"] if of == name)]))
        differences = judged(row)
        worst = max(differences, key=lambda name: abs(differences[name]), default=None)
        said = f"{differences[worst]:+.1f} {'points' if '.pct' in worst else '%'}, `{worst}`" if worst else ""
        microseconds = (row["values"][DURATION][0] or 0.0) / 1000
        cells = [row["operation"], f"{microseconds:.0f}", *map(pair, (DRAM, L2, L1, "lts__t_sector_hit_rate.pct")), str(len(differences)), said]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def replayed_alone(row: dict) -> dict:
    """The row with ncu's replay of kernels as the only reference."""
    return {"values": {name: [own, row["replayed"].get(name, theirs)] for name, (own, theirs) in row["values"].items()}}


def summary(document: dict) -> str:
    rows = document["rows"]
    everything = [abs(value) for row in rows for value in judged(row).values()]
    alone = [abs(value) for row in rows for value in judged(replayed_alone(row)).values()]
    small = len(rows) * (len(METRICS) - 1) - len(everything)
    within = [row for row in rows if all(abs(value) <= POINTS for value in judged(row).values())]
    traffic = [row for row in rows if any(max(filter(None, row["values"][name]), default=0.0) >= RELEVANT for name in (DRAM, L2, L1))]
    return (f"{len(rows)} kernels, {len(everything)} values: median difference {statistics.median(everything):.2f}, "
            f"{sum(value <= POINTS for value in everything)} within {POINTS:g} points or percent; {len(within)} kernels with all values within, "
            f"{len(traffic)} with {RELEVANT:g} % or more of the peak of device memory, L2 or L1. With the replay of kernels as the only reference: "
            f"{len(alone)} values, median {statistics.median(alone):.2f}, {sum(value <= POINTS for value in alone)} within. Left out: {small} values, "
            "not counted by one of the two or too small for percent (4 MB of device memory, 1 MB or 100,000 sectors of caches)"
            + "".join(f"; {operation} ({why})" for operation, why in document.get("left_out", {}).items()))


def groups(theirs: Sequence[dict]) -> list[list[dict]]:
    """The kernels of each operation: a waiting kernel follows each of them."""
    found: list[list[dict]] = [[]]
    for kernel in theirs:
        if SEPARATOR in kernel["symbol"]:
            found.append([])
        else:
            found[-1].append(kernel)
    return found[:-1]


def profiled(ncu: str, mode: str, names: Sequence[str]) -> tuple[list[str], str]:
    """Operations, and ncu's raw table of their kernels."""
    options = ["--replay-mode", mode, "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw",
               "--print-units", "base", "--print-kernel-base", "mangled", "--metrics", ",".join(names)]
    run = subprocess.run([ncu, *options, sys.executable, "-u", str(PROGRAM), "1", "profile"], capture_output=True, text=True, timeout=LIMIT)
    return list(dict.fromkeys(line for line in run.stdout.splitlines() if ": " in line and line[0] not in '="')), run.stdout


def document(measured: Sequence[dict], operations: Sequence[str], replayed: str, in_program: str, **others: object) -> dict:
    tables = [longest(groups(by_ncu(text))) for text in (replayed, in_program)]
    rows, left_out = joined(measured, *tables, operations)
    return {"rows": rows, "left_out": left_out, "units": units(replayed), **others}


def main(gpuwhy: str, out: str) -> None:
    ncu = find_ncu()
    if ncu is None:
        sys.exit("no ncu: name one by GPUWHY_NCU")
    command = [gpuwhy, "kernels", "--top", "40", "--metrics", ",".join(METRICS), "--json", "--", sys.executable, str(PROGRAM), str(SECONDS)]
    ours = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    lines = [line for line in ours.stdout.splitlines() if line.startswith("{")]
    operations, replayed = profiled(ncu, "kernel", list(METRICS))
    _, in_program = profiled(ncu, "application", CACHED)
    found = document(json.loads(lines[-1])["measured"] if lines else [], operations, replayed, in_program, said=ours.stderr[-2000:])
    pathlib.Path(out).write_text(json.dumps(found, indent=1))
    print(summary(found) if found["rows"] else f"nothing to compare: {ours.stderr[-500:]} {replayed[-500:]}")


def publish(path: str) -> None:
    document = json.loads(pathlib.Path(path).read_text())
    before, rest = DOCUMENT.read_text().split(MARKERS[0])
    after = rest.split(MARKERS[1], 1)[1]
    said = textwrap.fill(f"{summary(document)}.", 120)
    DOCUMENT.write_text(f"{before}{MARKERS[0]}\n{said}\n\n{table(document)}\n{MARKERS[1]}{after}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--table"]:
        publish(sys.argv[2])
    else:
        main(*sys.argv[1:3])
