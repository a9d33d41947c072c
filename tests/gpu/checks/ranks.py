"""Several GPUs: communication in a known dose, seen by every rank.

Each program runs at two doses. From one to the other a step gets longer by its own clock, and on each rank the leaves
named here must get longer by as much, within 2 % of the step. Buckets have no dose: with a single bucket no reduction
begins before the last gradient is ready, so more of it is exposed than with the usual 25 MB. `gpuwhy merge` must find
the rank that is late.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator

from checks.truth import TOLERANCE
from harness import Check, Mode, Result, Suite, expect, skipped
from trace_report import Trace, Unreadable

# A host that sleeps after it waited for the device lost its run-ahead to the wait first.
HOST = ("sync_drain", "host_cpu", "host_blocked")
DEVICE = ("communication",)
# Program, doses, and the leaves that change on the first rank and on the others.
CASES: dict[str, tuple[tuple[float, float], tuple[str, ...], tuple[str, ...]]] = {
    "late": ((4, 12), HOST, DEVICE),
    "serial": ((64, 512), DEVICE, DEVICE),
    "beside": ((8, 32), DEVICE, DEVICE),
}
# A single bucket, and the usual size, MB.
BUCKETS = (10_000.0, 25.0)

# Additional work of the last rank, its amount, and the causes that are right.
PLANTED: dict[str, tuple[float, tuple[str, ...]]] = {
    "extra": (8, ("compute",)),
    "loader": (8, ("data_loading",)),
}


@dataclasses.dataclass(frozen=True)
class Rank:
    """One rank of one run: its step by its own clock, and its steady time by cause in such a step, nanoseconds."""

    step: float
    leaves: dict[str, float]
    bottleneck: str

    def sum(self, names: tuple[str, ...]) -> float:
        return sum(self.leaves.get(name, 0.0) for name in names)


def ranks_of(suite: Suite, case: str, dose: float) -> list[Rank]:
    """Runs the program and reads every rank's trace.

    Raises Unreadable if a rank left no line or no trace.
    """
    run = suite.run(f"ranks-{case}", suite.python("ranks.py", case, "--dose", f"{dose:g}"), Mode.VARIABLE)
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    files = {path.stem: path for path in run.traces()}
    if run.code != 0 or not lines:
        raise Unreadable(f"{case}: {run.ending()}: {run.stderr.strip()[-300:]}")
    ranks = []
    for line in sorted(lines, key=lambda line: line["rank"]):
        path = files.get(f"gpuwhy-{line['pid']}")
        if path is None:
            raise Unreadable(f"{case}: rank {line['rank']} left no trace, only {sorted(files)}")
        trace = Trace(suite, path)
        leaves = trace.steady_leaves()
        scale = line["step_ns"] / max(1, sum(leaves.values()))
        ranks.append(Rank(line["step_ns"], {name: value * scale for name, value in leaves.items()}, trace.bottleneck))
    return ranks


def one_case(case: str) -> Check:
    (low, high), of_first, of_others = CASES[case]

    def check(suite: Suite) -> Iterator[Result]:
        if (devices := device_count(suite)) < 2:
            yield skipped(f"ranks.{case}", f"needs two GPUs, there are {devices}")
            return
        before, after = ranks_of(suite, case, low), ranks_of(suite, case, high)
        for number, (less, more) in enumerate(zip(before, after)):
            names = of_others if number else of_first
            constructed, reported = more.step - less.step, more.sum(names) - less.sum(names)
            error = (reported - constructed) / max(less.step, more.step)
            yield expect(
                f"ranks.{case}.{number}", abs(error) <= TOLERANCE,
                f"{'+'.join(names)} changed by {reported / 1e3:.1f} us, by its own clock {constructed / 1e3:.1f}: off by "
                f"{error:+.2%} of the step; bottleneck {more.bottleneck}")

    return Check(f"ranks.{case}", check)


def buckets(suite: Suite) -> Iterator[Result]:
    if (devices := device_count(suite)) < 2:
        yield skipped("ranks.buckets", f"needs two GPUs, there are {devices}")
        return
    exposed = [[rank.sum(DEVICE) for rank in ranks_of(suite, "buckets", megabytes)] for megabytes in BUCKETS]
    for number, (one, usual) in enumerate(zip(*exposed)):
        yield expect(
            f"ranks.buckets.{number}", one > usual,
            f"exposed communication: {one / 1e3:.1f} us a step with one bucket, {usual / 1e3:.1f} with {BUCKETS[1]:g} MB")


def straggler(suite: Suite) -> Iterator[Result]:
    """`gpuwhy merge` names the rank that is late on purpose, and the amount."""
    if (devices := device_count(suite)) < 2:
        yield skipped("ranks.straggler", f"needs two GPUs, there are {devices}")
        return
    dose = 8.0
    run = suite.run("ranks-straggler", suite.python("ranks.py", "late", "--dose", f"{dose:g}"), Mode.VARIABLE)
    steps = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    merged = suite.run("ranks-merge", [suite.gpuwhy, "merge", "--json", *run.traces()])
    if merged.code != 0 or not steps:
        raise Unreadable(f"merge: {merged.ending()}: {merged.stderr.strip()[-300:]}")
    found = json.loads(merged.stdout)
    late = found["straggler"] or {}
    yield expect(
        "ranks.straggler.rank", late.get("rank") == 0 and late["share"] > 0.9,
        f"late on purpose: rank 0; found {late or 'none'}; {found['collectives']} collectives; {found['doubts']}")
    # The median, because the first collectives wait for the rank that loads its libraries last.
    behind = found["ranks"][0]["late_ns"]
    yield expect(
        "ranks.straggler.late", abs(behind - dose * 1e6) <= 0.1 * dose * 1e6,
        f"rank 0 begins {behind / 1e6:.3f} ms after rank 1 (median) and sleeps {dose:g} ms before each")
    scatter = found["hosts"][0]["scatter_p95_ns"]
    yield expect(
        "ranks.straggler.ends", scatter is not None and scatter < 50_000,
        f"ends of one collective on two ranks lie within {scatter} ns (95 %)")


def planted(suite: Suite, case: str, dose: float, leaves: tuple[str, ...]) -> Iterator[Result]:
    """`gpuwhy merge` names the rank that does more on purpose, and its additional work."""
    if (devices := device_count(suite)) < 2:
        yield skipped(f"ranks.{case}", f"needs two GPUs, there are {devices}")
        return
    run = suite.run(f"ranks-{case}", suite.python("ranks.py", case, "--dose", f"{dose:g}"), Mode.VARIABLE)
    merged = suite.run(f"ranks-merge-{case}", [suite.gpuwhy, "merge", "--json", *run.traces()])
    if run.code != 0 or merged.code != 0:
        raise Unreadable(f"{case}: {run.ending()}, merge: {merged.ending()}: {merged.stderr.strip()[-300:]}")
    found = json.loads(merged.stdout)
    late = found["straggler"] or {}
    yield expect(
        f"ranks.{case}.rank", late.get("rank") == 1 and late["share"] > 0.9,
        f"late on purpose: rank 1; found {late or 'none'}; {found['collectives']} collectives by {found['matched_by']}; "
        f"{found['doubts']}")
    yield expect(
        f"ranks.{case}.cause", late.get("excess_leaf") in leaves,
        f"expected one of {leaves}; found {late.get('excess_leaf')}, kernel {late.get('kernel')}, line {late.get('line')}")
    path = found["critical_path"] or {"total_ns": 0, "leaves": {}}
    yield expect(
        f"ranks.{case}.path", path["total_ns"] > 0 and sum(path["leaves"].values()) == path["total_ns"],
        f"the critical path of {path['total_ns'] / 1e6:.1f} ms is the sum of its causes")


# As in workloads/ranks.py: steps 120 to 122 add 2, 3 and 4 times; each step reduces once.
AT_STEP_KERNELS = (2 + 3 + 4) + 3


def at_step(suite: Suite) -> Iterator[Result]:
    """`gpuwhy start --all --at-step` captures the same steps of all ranks, and nothing else."""
    if (devices := device_count(suite)) < 2:
        yield skipped("ranks.at_step", f"needs two GPUs, there are {devices}")
        return
    program = suite.python("ranks.py", "at_step", "--dose", "20", "--gpuwhy", str(suite.gpuwhy))
    extra = {"GPUWHY_CAPTURE_RANGE": "command", "GPUWHY_NVTX_CAPTURE": "step", "NVTX_INJECTION64_PATH": str(suite.library)}
    run = suite.run("ranks-at-step", program, Mode.VARIABLE, extra)
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    reported = next((line for line in lines if "code" in line), None)
    if reported is None:
        raise Unreadable(f"at_step: {run.ending()}: {run.stderr.strip()[-300:]}")
    yield expect(
        "ranks.at_step.reported", reported["code"] == 0 and reported["stdout"].count("begins at step 120") == 2,
        f"{reported['stdout'].strip()}; {reported['stderr'].strip()[-300:]}")
    captures = {path.stem: Trace(suite, path).report["captures"] for path in run.traces()}
    kernels = [[capture["kernels"] for capture in of_rank] for of_rank in captures.values()]
    yield expect(
        "ranks.at_step.kernels", kernels == [[AT_STEP_KERNELS]] * 2,
        f"kernels of each rank's captures: {kernels}, launched in steps 120 to 122: {AT_STEP_KERNELS}")


def hang(suite: Suite) -> Iterator[Result]:
    """`gpuwhy hang` names the rank that skipped a collective, and its location."""
    if (devices := device_count(suite)) < 2:
        yield skipped("ranks.hang", f"needs two GPUs, there are {devices}")
        return
    program = suite.python("ranks.py", "skip", "--dose", "30", "--gpuwhy", str(suite.gpuwhy))
    run = suite.run("ranks-hang", program, Mode.VARIABLE, {"NCCL_PROFILER_PLUGIN": "libprof.so"})
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise Unreadable(f"hang: {run.ending()}: {run.stderr.strip()[-300:]}")
    asked = lines[-1]
    findings = json.loads(asked["stdout"])["findings"] if asked["code"] == 1 else []
    first = findings[0] if findings else {"kind": "none", "culprits": []}
    named = [culprit["rank"] for culprit in first["culprits"]]
    yield expect(
        "ranks.hang.rank", first["kind"] == "never_came" and named == [1],
        f"rank 1 left out an all-reduce; found {first}; {asked['stderr'].strip()[-300:]}")
    where = [culprit["line"] or "" for culprit in first["culprits"]]
    yield expect("ranks.hang.line", any("never_come" in line for line in where), f"it is in never_come; told: {where}")


def device_count(suite: Suite) -> int:
    return len(suite.run("ranks-devices", ["nvidia-smi", "-L"]).stdout.strip().splitlines())


def checks() -> list[Check]:
    return [*(one_case(case) for case in CASES), Check("ranks.buckets", buckets), Check("ranks.straggler", straggler),
            *(Check(f"ranks.{case}", functools.partial(planted, case=case, dose=dose, leaves=leaves))
              for case, (dose, leaves) in PLANTED.items()), Check("ranks.at_step", at_step),
            Check("ranks.hang", hang)]
