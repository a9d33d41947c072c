"""Independent programs of public libraries: each is traced once, and a person judges its report.

`real.md` in the suite's folder has the bottleneck, evidence, advice, plan and lines of each. A check fails only if the
report contradicts itself or leaves the question open: no bottleneck although there are steps, advice that contradicts a
gain next to it, host time without a name, another exit code, a crash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import gains
from harness import HERE, Check, Mode, Result, Suite, expect
from prepared import Group, Plan, Prepared, finish_all
from trace_report import Trace, Unreadable

SCRIPT = HERE / "workloads" / "frameworks" / "programs.py"
# Programs that are started together, two processes each; some compile before they are ready.
SIZE = 7
CREDIT = 60.0
TURN_LIMIT = 120.0
# Part of the host's time on the launch path that must have a line if that time is the bottleneck.
NAMED = 0.80
# Advice must not deny a gain above this.
GAIN = 1.05
# Number of steps from which there must be a bottleneck.
ENOUGH_STEPS = 20
DENIAL = re.compile(r"no change on the CPU gains 15 %", re.IGNORECASE)
# Scenarios about device work: all others change something on the host.
ON_DEVICE = ("grids_filled", "communication_hidden")

# Name -> libraries to load first, and the factor on the usual number of steps for some seconds.
PROGRAMS: dict[str, tuple[str, int]] = {
    "torch.resnet_graphs": ("torch,torchvision", 3),
    "hub.generate": ("torch,transformers", 2),
    "hub.generate_wide": ("torch,transformers", 2),
    "hub.generate_static": ("torch,transformers", 2),
    "hub.trainer": ("torch,transformers", 4),
    "hub.trainer_gpt2": ("torch,transformers", 4),
    "hub.lightning": ("torch,lightning", 2),
    "hub.timm": ("torch,timm", 4),
    "hub.geometric": ("torch,torch_geometric", 6),
    "jax.optax": ("jax", 3),
    "jax.shapes": ("jax", 3),
    "array.cupy": ("cupy", 10),
    "array.numba": ("numba.cuda", 10),
    "torch.loaders": ("torch", 6),
}


def plans(suite: Suite, name: str) -> dict[str, Plan]:
    """The bare program runs before its measured run, so that caches of compilers are full and its exit code is known.
    """
    libraries, repeat = PROGRAMS[name]
    return {
        "bare": Plan(SCRIPT, (name,), libraries, rehearse=""),
        "traced": Plan(SCRIPT, (name, "--repeat", str(repeat)), libraries, Mode.VARIABLE)}


def named_part(trace: Trace) -> float | None:
    """The part of the host's time on the launch path that has a line; None without such time."""
    leaves = trace.steady_leaves()
    total = sum(leaves.values())
    host = sum(leaves.get(leaf, 0) for leaf in ("host_cpu", "host_blocked", "data_loading"))
    if not host:
        return None
    lines = (trace.report.get("host") or {}).get("lines", [])
    return min(1.0, sum(line["share"] for line in lines) * total / host)


def host_gain(trace: Trace) -> tuple[str, float]:
    """The largest gain in the report from a change on the host: its lower end if there is an interval."""
    found = {
        kind: one["low"] if isinstance(one.get("low"), (int, float)) else one["speedup"]
        for kind, one in trace.scenarios().items() if kind not in ON_DEVICE}
    return max(found.items(), key=lambda item: item[1], default=("", 1.0))


def problems(trace: Trace) -> list[str]:
    """Faults of a report, in words."""
    found = []
    if trace.bottleneck == "cannot_tell" and trace.steps_seen() >= ENOUGH_STEPS:
        found.append(f"no bottleneck though there are {trace.steps_seen()} steps: {'; '.join(trace.evidence)}")
    kind, most = host_gain(trace)
    denial = DENIAL.search(" ".join([trace.advice, *trace.evidence]))
    if denial and most > GAIN:
        found.append(f"it says \"{denial[0]}\" beside {kind} {most:.2f}x")
    named = named_part(trace)
    if trace.bottleneck == "host_cpu" and named is not None and named < NAMED:
        found.append(f"only {named:.0%} of the host's time has a line")
    return found


def described(trace: Trace) -> dict:
    """Information that a person needs to judge a report."""
    lines = (trace.report.get("host") or {}).get("lines", [])
    return {
        "bottleneck": trace.bottleneck, "share": trace.report["bottleneck"].get("share"), "evidence": trace.evidence,
        "advice": trace.advice, "plan": trace.plan(), "named": named_part(trace), "steps": trace.steps_seen(),
        "step_ns": trace.step_ns(), "untraced": trace.untraced(),
        "scenarios": {kind: one["speedup"] for kind, one in trace.scenarios().items()},
        "lines": [f"{line['function']} ({line['file'].rsplit('/', 1)[-1]}:{line['line']}) {line['share']:.0%}" for line in lines[:4]]}


def cell(value: object) -> str:
    """Text escaped for a Markdown table."""
    return str(value).replace("|", "\\|").replace("\n", " ")


def plan_text(plan: list[dict]) -> str:
    """A plan of fixes in a few words."""
    return "<br>".join(
        f"{one['action']}: {one['speedup']:.2f}x ({one['low']:.2f} to {one['high']:.2f})"
        + (f", then {one['then']}" if one["then"] else "") + (f"; {one['because']}" if one["because"] else "") for one in plan)


def real_table(rows: list[dict]) -> str:
    """All programs, for a person to judge."""
    lines = []
    for row in rows:
        share = f" {row['share']:.0%}" if isinstance(row["share"], float) else ""
        gains_said = ", ".join(f"{kind} {one:.2f}x" for kind, one in row["scenarios"].items() if one > GAIN)
        lines.append([cell(one) for one in (
            f"`{row['name']}`", f"{row['bottleneck']}{share}", "<br>".join(row["evidence"]), row["advice"], plan_text(row["plan"]),
            gains_said, "<br>".join(row["lines"]), "; ".join(row["problems"]) or "none")])
    return gains.table(["program", "bottleneck", "evidence", "advice", "plan", "gains above 1.05x", "lines", "problems"], lines)


def judge(suite: Suite, name: str, programs: dict[str, Prepared]) -> Iterator[Result]:
    prefix = f"real.{name}"
    try:
        bare = programs["bare"].finish()
        programs["traced"].turn(TURN_LIMIT)
    finally:
        runs = finish_all(programs.values())
    traced = runs[-1]
    yield expect(f"{prefix}.ends", (bare.code, traced.code) == (0, 0), f"{bare.ending()} bare, {traced.ending()} traced")
    if not traced.traces():
        raise Unreadable(f"no trace in {traced.folder}")
    # Processes that compile may use the device too.
    trace = Trace(suite, max(traced.traces(), key=lambda path: path.stat().st_size))
    found = problems(trace)
    suite.record("real", {"name": name, "problems": found, **described(trace)})
    (suite.out / "real.md").write_text(real_table(suite.recorded("real")))
    yield expect(f"{prefix}.report", not found, "; ".join([*found, trace.bottleneck_line()]))


GROUP = Group("real", plans, list(PROGRAMS), SIZE)


def checks() -> list[Check]:
    return [GROUP.check(name, judge, CREDIT) for name in PROGRAMS]
