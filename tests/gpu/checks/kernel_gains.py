"""The gain of a better kernel, as `gpuwhy kernels` simulates it, compared with the same program with the better kernel.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from typing import Any

from harness import Check, Result, Suite, expect, skipped

STEPS = "1500"
ROUNDS = 3
LIMIT = 120.0
# Difference between two runs of one program.
SCATTER = 0.02


def step_time(suite: Suite, program: str, width: str, where: str) -> float:
    """Microseconds of a step without gpuwhy: the median of several runs."""
    times = []
    for number in range(ROUNDS):
        run = suite.bare(f"gains-{width}-{where}-{number}", [program, width, where, STEPS])
        match = re.search(r"us_per_step=([\d.]+)", run.stdout)
        times.append(float(match[1]) if match else 0.0)
    return statistics.median(times)


def measured(suite: Suite, program: str, width: str, where: str) -> dict[str, Any]:
    """The copy kernel as `gpuwhy kernels` shows it; empty if it was not measured."""
    command = [suite.gpuwhy, "kernels", "--kernel", "^k_stream", "--json", "--", program, width, where, STEPS]
    run = suite.run(f"gains-kernels-{width}-{where}", command, limit=LIMIT)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    kernels = json.loads(lines[-1])["measured"] if lines else []
    return kernels[0] if kernels and kernels[0]["outcome"] == "measured" else {}


def at(used: float, wanted: float, speedup: float) -> float:
    """The gain at `wanted` of the bandwidth, derived from the one at 0.9: the savings are proportional to the removed
    part."""
    saved = (1 - 1 / speedup) * (1 - used / wanted) / (1 - used / 0.9)
    return 1 / (1 - saved)


def gains(suite: Suite) -> Iterator[Result]:
    """A copy that uses half of the bandwidth, and one that uses most of it: alone in the step, and concurrent with a
    longer kernel."""
    program = suite.scratch / "better_kernel"
    try:
        build = suite.compile(suite.workloads / "better_kernel.cu", program)
    except FileNotFoundError as error:
        yield skipped("kernel-gains", str(error))
        return
    yield expect("kernel-gains.build", build.code == 0, build.stderr.strip()[-300:])
    if build.code != 0:
        return
    for where in ("alone", "beside"):
        narrow, wide = (step_time(suite, str(program), width, where) for width in ("narrow", "wide"))
        kernel, better = (measured(suite, str(program), width, where) for width in ("narrow", "wide"))
        gain = kernel.get("step_at_90")
        name = f"kernel-gains.{where}"
        if not (narrow and wide and gain and better):
            yield expect(name, False, f"step {narrow} and {wide} us; gain {gain}; outcome {kernel.get('outcome')} {better.get('outcome')}")
            continue
        used, wanted = kernel["roofs"]["dram"], better["roofs"]["dram"]
        real = narrow / wide
        low, about, high = (at(used, wanted, gain[key]) for key in ("low", "speedup", "high"))
        suite.record("kernel_gains", {"where": where, "real": real, "low": low, "about": about, "high": high, "used": used, "wanted": wanted})
        yield expect(
            name, low * (1 - SCATTER) <= real <= high * (1 + SCATTER),
            f"{used:.0%} of memory to {wanted:.0%}: {about:.3f}x predicted ({low:.3f} to {high:.3f}), {real:.3f}x measured; "
            f"bottleneck then {kernel.get('bottleneck_at_90')}")


def checks() -> list[Check]:
    return [Check("kernel-gains", gains, credit=90.0)]
