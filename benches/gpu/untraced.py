"""Accuracy of the predicted step without gpuwhy: the program's rate, untraced and traced, compared with `untraced`.

    python3 benches/gpu/untraced.py --bin target/release --out DIR [--rounds 5] [--no-calibration]

Calibrates this machine first (`gpuwhy doctor --calibrate`, into DIR, not into the user's cache). Then each program runs
untraced and traced, in alternating order. The predicted rate without gpuwhy is the rate of a traced run divided by the
part of a step that its report leaves. The target is 3 % (median over the rounds). The rate of a run varies by several
percent anyway, so the scatter of the untraced rates is printed too. Writes untraced.json and untraced.md into DIR.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"
# Upper limit of the error, as a part of the untraced rate.
TARGET = 0.03
SECONDS = "1.5"
# A typical eager recurrent network: each step is 64 times a matrix product and three tiny kernels.
RECURRENT = """
import time, torch
torch.set_grad_enabled(False)
x, w = (torch.randn(2048, 2048, device="cuda") for _ in range(2))
h = torch.zeros(1024, device="cuda"); b = torch.ones(1024, device="cuda")
def step():
    for _ in range(64):
        torch.mm(x[:512], w)
        torch.tanh_(h.mul_(0.5).add_(b))
for _ in range(20): step()
torch.cuda.synchronize(); begun = time.perf_counter(); steps = 0
while time.perf_counter() - begun < 1.5:
    for _ in range(10): step()
    torch.cuda.synchronize(); steps += 10
print(f"{steps / (time.perf_counter() - begun):.2f} steps/s")
"""


def programs() -> dict[str, list[str]]:
    """Commands that print their steps per second, by their bottleneck."""
    def lesson(script: str, *options: str) -> list[str]:
        return [sys.executable, str(EXAMPLES / script), "--seconds", SECONDS, *options]

    return {
        "launch-bound": lesson("04_launch_bound.py"),
        "graph": lesson("04_launch_bound.py", "--graph"),
        "tiny and long kernels": [sys.executable, "-c", RECURRENT],
        "waits each step": lesson("02_sync_item.py"),
        "pinned copies": lesson("03_pageable_copies.py", "--pinned"),
        "pageable copies": lesson("03_pageable_copies.py"),
        "allocations": lesson("07_allocator.py"),
        "small grids": lesson("08_small_grids.py"),
        "GPU-bound": lesson("06_gpt_training.py"),
    }


def rate(command: list[str], environment: dict[str, str]) -> float:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    found = re.search(r"([\d.]+) steps/s", done.stdout)
    if done.returncode != 0 or not found:
        raise RuntimeError(f"{' '.join(command)[:120]}: exit code {done.returncode}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    return float(found[1])


def one(name: str, command: list[str], gpuwhy: pathlib.Path, environment: dict[str, str], rounds: int) -> dict:
    bare, traced, shares, sources = [], [], [], set()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            trace = pathlib.Path(folder) / f"{number}.gpuwhy"
            runs = [
                lambda: bare.append(rate(command, environment)),
                lambda: traced.append(rate(
                    [str(gpuwhy), "-q", "run", "--output", str(trace), "--report", "off", "--", *command], environment)),
            ]
            for run in runs if number % 2 == 0 else reversed(runs):
                run()
            report = json.loads(subprocess.check_output([gpuwhy, "report", "--json", trace], env=environment))
            untraced = report["devices"][0]["untraced"]
            shares.append(untraced["share_of_tracing"] if untraced else None)
            sources.add(untraced["source"] if untraced else report["devices"][0]["what_if"]["refused"])
    known = [(with_it / (1 - share)) / without - 1
             for without, with_it, share in zip(bare, traced, shares, strict=True) if share is not None]
    return {
        "program": name, "bare": bare, "traced": traced, "share_of_tracing": shares, "source": sorted(map(str, sources)),
        "error": statistics.median(known) if known else None,
    }


def table(rows: list[dict]) -> str:
    lines = ["| program | bare, steps/s (range) | traced | tracing takes, predicted | bare, predicted | off by | prices |",
             "|---|---|---|---|---|---|---|"]
    for row in rows:
        bare, traced = statistics.median(row["bare"]), statistics.median(row["traced"])
        shares = [share for share in row["share_of_tracing"] if share is not None]
        cells = [row["program"], f"{bare:.1f} ({min(row['bare']):.1f} .. {max(row['bare']):.1f})", f"{traced:.1f}"]
        if shares:
            share = statistics.median(shares)
            cells += [f"{share:.1%}", f"{traced / (1 - share):.1f}", f"{row['error']:+.1%}"]
        else:
            cells += ["", "", "no simulation"]
        lines.append(f"| {' | '.join(cells)} | {', '.join(row['source'])} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append")
    parser.add_argument("--no-calibration", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    gpuwhy = (options.bin / "gpuwhy").resolve()
    environment = {**os.environ, "XDG_CACHE_HOME": str(options.out.resolve())}
    if not options.no_calibration:
        print(subprocess.check_output([gpuwhy, "doctor", "--calibrate"], env=environment, text=True), flush=True)
    rows = []
    for name, command in programs().items():
        if options.only and name not in options.only:
            continue
        try:
            rows.append(one(name, command, gpuwhy, environment, options.rounds))
        except (RuntimeError, subprocess.SubprocessError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        (options.out / "untraced.json").write_text(json.dumps(rows, indent=1))
        (options.out / "untraced.md").write_text(table(rows))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    return int(any(row["error"] is None or abs(row["error"]) > TARGET for row in rows) or not rows)


if __name__ == "__main__":
    sys.exit(main())
