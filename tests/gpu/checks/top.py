"""`gpuwhy top` during a training: its output, and its overhead for the program and the viewer."""

from __future__ import annotations

import json
from collections.abc import Iterator

from harness import Check, Mode, Result, Suite, expect

SECONDS = 10
# Maximum share of a core for the state for viewers, and for a viewer.
PROGRAM_LIMIT = 0.002
VIEWER_LIMIT = 0.01


def top(suite: Suite) -> Iterator[Result]:
    """One viewer, and eight, at a line per second."""
    program = suite.python("train.py", "gpt", "--steps", "4000")
    command = suite.python("watched.py", "--gpuwhy", str(suite.gpuwhy), "--seconds", str(SECONDS), "--", *map(str, program))
    run = suite.run("top", command, Mode.VARIABLE)
    yield expect("top.exit", run.code == 0, run.ending() if run.code == 0 else run.stderr.strip()[-300:])
    if run.code != 0:
        return
    said = json.loads(run.stdout.strip().splitlines()[-1])
    answer, found = said["answer"], said["by_viewers"]
    device = answer["devices"][0]
    yield expect("top.sums", sum(device["leaves"].values()) == device["window_ns"], f"{device['window_ns']} ns")
    steps = answer["steps"]
    yield expect(
        "top.shows", steps is not None and answer["bottleneck"] != "cannot_tell" and bool(answer["top_kernels"]),
        f"{answer['line']}; {len(answer['lines'])} lines, {len(answer['ranges'])} ranges, {len(device['windows'])} intervals")
    for viewers in ("1", "8"):
        of = found[viewers]
        made = sum(of["state_ns"]) / of["seconds"] / 1e9
        control = of["threads"].get("gpuwhy-control", 0.0) - found["0"]["threads"].get("gpuwhy-control", 0.0)
        median = of["state_ns"][len(of["state_ns"]) // 2] / 1e6 if of["state_ns"] else 0.0
        detail = (
            f"states {made:.3%} of a core, control thread {control:.3%}, {of['states']} states of {median:.2f} ms, pause "
            f"{of['pause_ms']} ms, {of['bytes']} bytes; collector {of['threads'].get('gpuwhy-collect', 0.0):.2%} "
            f"(without a viewer {found['0']['threads'].get('gpuwhy-collect', 0.0):.2%})")
        # The state is made once for all viewers; the control thread writes to each.
        taken = made + (max(control, 0.0) if viewers == "1" else 0.0)
        yield expect(f"top.cost.{viewers}", of["answers"] > 0 and taken <= PROGRAM_LIMIT, detail)
    viewer = found["1"]["viewer"]
    yield expect("top.viewer", viewer <= VIEWER_LIMIT, f"{viewer:.3%} of a core")


def checks() -> list[Check]:
    return [Check("top", top, credit=60.0)]
