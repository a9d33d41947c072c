"""Advice about the inside of kernels, compared with the effect of following it: each program runs before and after its
fix.

Real gains are measured as in checks/interventions.py: without gpuwhy, alternately, medians. In between, the program
before its fix runs once under libprof.so, which measures its kernels. The check judges the output of `gpuwhy kernels`
for that trace: it must give the advice that names the fix, and the real gain must not exceed the best case. That bound
is about the kernels with the advice, so it is judged if all kernels were measured and the fix changes no others.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import statistics
from collections.abc import Iterator, Sequence

import gains
from checks.interventions import turns
from harness import Check, Mode, Result, Suite, expect, skipped
from intervention_table import FIXES
from prepared import Failed, Group, Plan, Prepared, finish_all
from trace_report import single

# Length of a run of the bare programs, and of the traced one: each kernel is measured over 29 of its launches, one
# after the other, and steps take up to 0.11 s. In 2.5 s two programs of five were not done (H100).
SECONDS, TRACED_SECONDS = 0.6, 10.0
# Difference between two runs of one program.
SCATTER = 0.02
# Kernels that are measured in each program.
KERNELS = 8
CREDIT = 35.0
# Outcomes for hosts where measuring is forbidden, or another tool is measuring.
DENIED = {"busy", "refused"}


@dataclasses.dataclass(frozen=True)
class Inside:
    """A program of workloads/interventions. `rules`: one of them must give the advice. `work`: number of steps before
    the fix that do the work of one step after it. `least`: the gain that the fix claims. `alone`: True if the fix
    changes only the kernels that the advice is about."""

    fix: str
    rules: tuple[str, ...]
    work: float = 1.0
    least: float | None = 1.10
    alone: bool = True


CASES: dict[str, Inside] = {
    "bf16": Inside("fp32 to bf16", ("fp32_matrix",)),
    # It replaces the matrix products, too.
    "attention": Inside("fused attention", ("at_roof",), alone=False),
    # The number of conversions depends on the version of cuDNN, and the convolutions become other kernels.
    "channels_last": Inside("channels last", ("layout_conversion",), least=None, alone=False),
    "bank_conflicts": Inside("padded rows in shared memory", ("bank_conflicts",)),
    "small_batch": Inside("four sequences at once", ("small_grid",), work=4.0),
}


def plans(suite: Suite, name: str) -> dict[str, Plan]:
    """As for other interventions, the bare programs run once before their first measured run."""
    before = ("--program", name)
    measuring = {"GPUWHY_KERNELS": str(KERNELS)}

    def plan(arguments: Sequence[str], seconds: float, **more) -> Plan:
        return Plan(FIXES, (*arguments, "--seconds", f"{seconds:g}"), "torch", **more)

    return {
        "before": plan(before, SECONDS, rehearse="--seconds 0.05"),
        "after": plan((*before, "--fixed"), SECONDS, rehearse="--seconds 0.05"),
        "traced": plan(before, TRACED_SECONDS, mode=Mode.VARIABLE, variables=measuring)}


@dataclasses.dataclass(frozen=True)
class Advice:
    """Result of `gpuwhy kernels` for a fix: the number of kernels concerned, and the maximum speedup of a step. Without
    a simulation there is no interval."""

    rules: tuple[str, ...]
    kernels: tuple[str, ...]
    speedup: float
    low: float | None
    high: float | None


def saved(speedup: float) -> float:
    """Part of a step that the speedup removes."""
    return 1 - 1 / speedup if speedup > 1 else 0.0


def together(parts: Sequence[float]) -> float:
    """Speedup of a step if these parts are removed: kernels of one stream run one after the other."""
    return 1 / (1 - min(sum(parts), 0.99))


def advice(measured: Sequence[dict], rules: Sequence[str]) -> Advice | None:
    """Combined result of the findings of these rules: for each kernel the one with the largest gain. None if none
    applies."""
    found: list[tuple[str, dict]] = []
    for kernel in measured:
        own = [one for one in kernel["findings"] if one["applies"] and one["rule"] in rules and one["local_gain"]]
        if own:
            found.append((kernel["name"], max(own, key=lambda one: one["local_gain"])))
    if not found:
        return None
    names = tuple(dict.fromkeys(one["rule"] for _, one in found))
    kernels = tuple(name for name, _ in found)
    steps = [one["step"] for _, one in found]
    if all(step and step["low"] is not None for step in steps):
        speedup, low, high = (together([saved(step[key]) for step in steps]) for key in ("speedup", "low", "high"))
        return Advice(names, kernels, speedup, low, high)
    parts = [saved(one["step"]["speedup"]) if one["step"] else one["step_gain"] or 0.0 for _, one in found]
    return Advice(names, kernels, together(parts), None, None)


def measured_kernels(suite: Suite, trace: pathlib.Path) -> list[dict]:
    """Output of `gpuwhy kernels` for the kernels of a trace."""
    run = suite.run(f"inside-kernels-{trace.stem}", [suite.gpuwhy, "kernels", "--json", trace])
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if run.code != 0 or not lines:
        raise Failed(f"gpuwhy kernels {trace.name}: {run.ending()}: {run.stderr.strip()[-200:]}")
    return json.loads(lines[-1])["measured"]


def judge(suite: Suite, name: str, programs: dict[str, Prepared]) -> Iterator[Result]:
    case, prefix = CASES[name], f"inside.{name}"
    try:
        rates = turns(programs)
    finally:
        finish_all(programs.values())
    traced = programs["traced"].finish()
    yield expect(f"{prefix}.ends", traced.code == 0, f"traced: {traced.ending()}")
    if not all(value > 0 for values in rates.values() for value in values):
        yield expect(f"{prefix}.gain", False, f"a program printed no rate: {rate_text(rates)}")
        return
    trace = single(suite, traced)
    measured = measured_kernels(suite, trace.path)
    outcomes = sorted({kernel["outcome"] for kernel in measured})
    if measured and set(outcomes) <= DENIED:
        yield skipped(prefix, f"counters are not to be had here: {measured[0]['reason']}")
        return
    said = advice(measured, case.rules)
    row = {
        "name": name, "fix": case.fix, "held_out": True, "expected": ["gpu_compute"], "bottleneck": trace.bottleneck, "plan": [],
        "bare_before": rates["before"], "bare_after": [case.work * value for value in rates["after"]],
        "traced_ns": 1e9 / rates["traced"][0], "scenario": ", ".join(said.rules) if said else None,
        "kernels": len(said.kernels) if said else 0, "speedup": said.speedup if said else None, "low": said.low if said else None,
        "high": said.high if said else None, "outcomes": outcomes, "stall_ns": sum(kernel["stall_ns"] for kernel in measured)}
    suite.record("inside", row)
    yield expect(f"{prefix}.bottleneck", trace.bottleneck == "gpu_compute", f"expected gpu_compute, got {trace.bottleneck_line()}")
    rules = {kernel["name"]: [one["rule"] for one in kernel["findings"] if one["applies"]] for kernel in measured}
    yield expect(
        f"{prefix}.advice", said is not None,
        f"{', '.join(said.rules)} for {len(said.kernels)} kernels" if said else f"none of {case.rules} in {rules}; outcomes {outcomes}")
    yield judged(prefix, case, row)


def judged(prefix: str, case: Inside, row: dict) -> Result:
    """True if the fix has the gain that it claims, and no more than the best case."""
    one = gains.gain(row)
    assert one is not None, "all rates were above 0"
    most = one.predicted if one.high is None else one.high
    held = most is None or not case.alone or one.real <= most * (1 + SCATTER)
    brings = case.least is None or one.real >= case.least
    detail = f"{case.fix}: {one.real:.2f}x ({one.real_low:.2f} to {one.real_high:.2f} by turns); {at_most(one)}"
    if case.alone and row["outcomes"] != ["measured"]:
        return skipped(f"{prefix}.gain", f"{detail}, of the kernels that were measured: {row['outcomes']}")
    return expect(f"{prefix}.gain", held and brings, detail if case.alone else f"{detail} by these kernels alone")


def is_bound(row: dict) -> bool:
    """True if the best case covers everything that the fix changes."""
    return CASES[row["name"]].alone and row["outcomes"] == ["measured"]


def at_most(one: gains.Gain) -> str:
    """The prediction, in words."""
    if one.predicted is None:
        return "no prediction"
    return f"{one.scenario}: at most {gains.times(one.predicted)}{f' ({one.low:.2f} to {one.high:.2f})' if one.has_interval else ', by subtraction'}"


def rate_text(rates: dict[str, list[float]]) -> str:
    return ", ".join(f"{role} {statistics.median(values) if values else 0:.1f}" for role, values in rates.items())


def table(rows: Sequence[dict], copies: Sequence[dict]) -> str:
    """Predicted gains compared with real ones, including the copy kernels of kernel-gains."""
    lines = []
    for row in rows:
        one = gains.gain(row)
        if one is None:
            continue
        most = one.predicted if one.high is None else one.high
        held = "" if most is None or not is_bound(row) else "yes" if one.real <= most * (1 + SCATTER) else "no"
        lines.append([
            f"`{one.name}`", one.fix, one.bottleneck, f"`{one.scenario}`, {row['kernels']} kernels" if one.scenario else "none",
            gains.times(one.predicted), f"{one.low:.2f} to {one.high:.2f}" if one.has_interval else "", gains.times(one.real),
            f"{one.real_low:.2f} to {one.real_high:.2f}", held])
    for row in copies:
        held = "yes" if row["low"] * (1 - SCATTER) <= row["real"] <= row["high"] * (1 + SCATTER) else "no"
        lines.append([
            f"copy, {row['where']}", f"{row['used']:.0%} to {row['wanted']:.0%} of device memory", "", "nearest roof",
            gains.times(row["about"]), f"{row['low']:.2f} to {row['high']:.2f}", gains.times(row["real"]), "", held])
    header = ["program", "fix", "bottleneck", "advice", "step, at most", "interval", "real", "turns", "held"]
    return gains.table(header, lines)


def write_table(suite: Suite) -> Iterator[Result]:
    """Writes the table of all measured programs to inside.md."""
    rows = list({row["name"]: row for row in suite.recorded("inside")}.values())
    if not rows:
        yield skipped("inside.table", "nothing was measured")
        return
    text = table(rows, suite.recorded("kernel_gains"))
    (suite.out / "inside.md").write_text(text)
    print(text, flush=True)
    yield expect("inside.table", len(rows) == len(CASES), f"{len(rows)} of {len(CASES)} programs, in inside.md")


GROUP = Group("inside", plans, list(CASES), len(CASES))


def checks() -> list[Check]:
    # The last one measures nothing: it needs no device time.
    return [*(GROUP.check(name, judge, CREDIT) for name in CASES), Check("inside.table", write_table, credit=-1e9)]
