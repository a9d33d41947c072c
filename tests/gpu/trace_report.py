"""Contents of a trace, read through `gpuwhy report FILE --json`: the only place that knows the report's fields."""

from __future__ import annotations

import collections
import json
import pathlib
import re

from harness import Run, Suite

# Exit codes of `gpuwhy report`: everything was read, or the file is damaged and its readable part was reported.
READABLE = (0, 1)

# Counters of `completeness` that must be 0 in a run without losses.
LOSSES = (
    "dropped_by_cupti", "dropped_by_gpuwhy", "unknown_kinds", "broken_buffers", "undelivered_buffers",
    "bad_timestamps", "launches_without_activity", "activities_without_launch", "shared_ids")


class Unreadable(Exception):
    """The report command refused the file; the message is its own."""


class Trace:
    """The report of one trace file."""

    def __init__(self, suite: Suite, path: pathlib.Path, *options: str) -> None:
        run = suite.run(f"report-{path.stem}", [suite.gpuwhy, "report", path, "--json", *options])
        if run.code not in READABLE:
            raise Unreadable(f"gpuwhy report {path.name}: {run.ending()}: {run.stderr.strip()}")
        self._suite, self._options = suite, options
        self.exit_code = run.code
        self.path = path
        report = json.loads(run.stdout)
        self.report = report[0] if isinstance(report, list) else report

    @property
    def completeness(self) -> dict:
        return self.report["completeness"]

    @property
    def end(self) -> str:
        """`clean`, `abrupt` or `timed_out`."""
        return self.completeness["end"]

    def records(self, kind: str) -> int:
        """Number of records of a kind: `kernels`, `copies` or `memsets`.

        Raises Unreadable if the report does not contain it: a missing count is not a count of 0.
        """
        counts = self.completeness["records"]
        if kind not in counts:
            raise Unreadable(f"the report of {self.path.name} has no completeness.records.{kind}, only {sorted(counts)}")
        return counts[kind]

    def kernel_counts(self) -> collections.Counter[str]:
        """Launches by kernel name, over all devices."""
        counts: collections.Counter[str] = collections.Counter()
        for device in self.report["devices"]:
            for kernel in device["kernels"]:
                counts[kernel["name"]] += kernel["count"]
        return counts

    def kernel_nanoseconds(self) -> int:
        """Sum of all kernel durations."""
        return sum(kernel["total_ns"] for device in self.report["devices"] for kernel in device["kernels"])

    def losses(self) -> dict[str, int]:
        """The loss counters that are not 0. One that is missing in the report counts as a loss."""
        counters = self.completeness
        found = {name: counters.get(name, -1) for name in LOSSES}
        return {name: value for name, value in found.items() if value != 0}

    def steady_leaves(self) -> dict[str, int]:
        """Nanoseconds by cause after start-up, over all devices."""
        sums: collections.Counter[str] = collections.Counter()
        for device in self.report["devices"]:
            sums.update(device["steady_leaves"])
        return dict(sums)

    @property
    def bottleneck(self) -> str:
        return self.report["bottleneck"]["cause"]

    @property
    def evidence(self) -> list[str]:
        return self.report["bottleneck"].get("evidence") or []

    @property
    def advice(self) -> str:
        return self.report["bottleneck"].get("recommendation") or ""

    def scenarios(self) -> dict[str, dict]:
        """The simulated scenarios with a gain, by name: `speedup`, and `low` and `high` if the report has an interval.
        """
        found = {}
        for device in self.report["devices"]:
            for scenario in (device.get("what_if") or {}).get("scenarios", []):
                if isinstance(scenario.get("speedup"), (int, float)):
                    found[scenario["kind"]] = scenario
        return found

    def plan(self) -> list[dict]:
        """The plan of fixes, the first one first: `kind` (a scenario), `action`, `speedup`, `low`, `high`, `then`, `because`."""
        return self.report["bottleneck"].get("plan") or []

    def remedies(self) -> list[dict]:
        """Changes that the report recommends, the best first: `id`, `text`, `at`, `results`, `certainty`, `speedup`, `low`,
        `high`, `link`, `outside`. Empty in reports of earlier versions."""
        return self.report["bottleneck"].get("remedies") or []

    def prediction(self, kind: str | None) -> dict:
        """What the report promises for a fix of this kind: its first step of the plan, or the scenario; {} without one."""
        first = [step for step in self.plan() if step["kind"] == kind][:1]
        return first[0] if first and first[0] == self.plan()[0] else self.scenarios().get(kind or "", {})

    def step_ns(self) -> int | None:
        """The median step as recorded; None without steps."""
        medians = [device["steps"]["median_ns"] for device in self.report["devices"] if device.get("steps")]
        return medians[0] if medians else None

    def steps_seen(self) -> int:
        return max((device["steps"]["seen"] for device in self.report["devices"] if device.get("steps")), default=0)

    def untraced(self) -> dict | None:
        """The report's values for the program without tracing: `step_ns` (median), `share_of_tracing` of the traced
        step, and `source` of the overheads per call; None if there are none."""
        found = [device["untraced"] for device in self.report["devices"] if device.get("untraced")]
        return found[0] if found else None

    def predicted_step(self, own_ns: float) -> float | None:
        """The program's own step without tracing, nanoseconds; None if the report predicts none. `own_ns` is that step
        in this run, by the program's clock: the step of the report may be one of several that form it, or several of
        them."""
        untraced = self.untraced()
        return own_ns * (1 - untraced["share_of_tracing"]) if untraced else None

    def first_line(self) -> dict | None:
        """The line on which the host spent most time while the device waited; None without host samples there."""
        lines = (self.report.get("host") or {}).get("lines") or []
        return lines[0] if lines else None

    def answer(self) -> str:
        """What a reader of the default report learns about cause and fix."""
        run = self._suite.run(f"screen-{self.path.stem}", [self._suite.gpuwhy, "report", self.path, *self._options])
        return first_screen(run.stdout)

    def bottleneck_line(self) -> str:
        """The bottleneck with its share and its first piece of evidence."""
        bottleneck = self.report["bottleneck"]
        evidence = bottleneck.get("evidence") or [""]
        share = bottleneck.get("share")
        return f"{bottleneck['cause']}" + (f" {share:.0%}" if isinstance(share, float) else "") + f" ({evidence[0]})"


def first_screen(text: str) -> str:
    """Bottleneck, evidence, advice and fixes of a printed report, on one line."""
    words = " ".join(text.split())
    begin = max(words.find("Bottleneck: "), 0)
    return re.split(r" GPU \d+(?: \([^)]*\))?, ", words[begin:])[0]


def largest(suite: Suite, run: Run) -> Trace:
    """The largest trace of a run: processes that it starts, as compilers do, may use the device too.

    Raises Unreadable if there is none.
    """
    files = run.traces()
    if not files:
        raise Unreadable(f"no trace in {run.folder}; {run.ending()}")
    return Trace(suite, max(files, key=lambda path: path.stat().st_size))


def single(suite: Suite, run: Run) -> Trace:
    """The trace of a run that must have left exactly one.

    Raises Unreadable if there is another number of files, or if the file cannot be read.
    """
    files = run.traces()
    if len(files) != 1:
        raise Unreadable(f"expected one trace in {run.folder}, found {[file.name for file in files]}; {run.ending()}")
    return Trace(suite, files[0])
