"""Predicted and real gains of fixes: statistics over their rows.

A row is one line of measured.jsonl, as checks/interventions.py or checks/causes.py writes it. Nothing here needs a GPU.

A real gain is a ratio of two rates, and the rate of a program that its CPU limits differs by 10 to 30 % from run to run
on shared hosts. So the tables also have its range, from the slowest run after the fix over the fastest before it to the
opposite, and the error of the step after the fix, which the GPU mostly limits. Only the medians are judged.
"""

from __future__ import annotations

import dataclasses
import statistics
import textwrap
from collections.abc import Iterable, Sequence

# Nominal coverage of the intervals: they contain this part of the real gains.
COVERAGE = 0.90
# Maximum median of the errors of predicted gains.
MEDIAN_ERROR = 0.05
# Speedup from which a fix is worth doing, as in profiler-core/src/whatif/best_case.rs.
WORTH_DOING = 1.15
# Width of text in columns.
COLUMNS = 118
# Minimum number of rows with an interval to judge coverage.
FEWEST = 10


@dataclasses.dataclass(frozen=True)
class Gain:
    """One intervention. Gains are rates after the fix divided by rates before it."""

    name: str
    fix: str
    held_out: bool
    scenario: str | None
    real: float
    real_low: float
    real_high: float
    after_error: float | None
    predicted: float | None
    low: float | None
    high: float | None
    bottleneck: str
    expected: tuple[str, ...]
    first_fix: str | None
    # Of causes only: their kind, whether the answer named the line or the words, and whether the step after the fix was
    # in its interval; None without one.
    kind: str = ""
    line_named: bool = False
    words_named: bool = False
    after_inside: bool | None = None

    @property
    def error(self) -> float | None:
        """Relative error of the prediction: positive if it is too high, as a part of the real gain."""
        return self.predicted / self.real - 1 if self.predicted is not None else None

    @property
    def has_interval(self) -> bool:
        return self.low is not None and self.high is not None

    @property
    def covered(self) -> bool:
        return self.has_interval and self.low <= self.real <= self.high

    @property
    def reached(self) -> bool:
        """True if some of the runs before and after the fix had a gain in the interval."""
        return self.has_interval and self.low <= self.real_high and self.real_low <= self.high

    @property
    def right(self) -> bool:
        return self.bottleneck in self.expected

    @property
    def proves(self) -> bool:
        """True if the fix gained enough to prove that what it removes was a bottleneck on this machine."""
        return self.real >= WORTH_DOING

    @property
    def named(self) -> bool:
        """True if the answer leads to the cause, by its line or by the words of a person."""
        return self.line_named or self.words_named

    @property
    def inside(self) -> bool | None:
        """True if the gain or the step after the fix was in its interval; None without an interval."""
        return self.covered or self.after_inside is True if self.has_interval else None

    @property
    def exceeded(self) -> bool:
        """True if the gain exceeded the best case: the end of the interval, or the bound if there is none."""
        most = self.predicted if self.high is None else self.high
        return most is not None and self.real > most


def gain(row: dict) -> Gain | None:
    """One row as a gain; None if a program printed no rate."""
    before, after = row["bare_before"], row["bare_after"]
    if not before or not after or statistics.median(before) <= 0:
        return None
    step = row.get("predicted_untraced_ns") or row.get("traced_ns")
    after_error = step / row["speedup"] / 1e9 * statistics.median(after) - 1 if step and row["speedup"] else None
    return Gain(
        row["name"], row["fix"], row["held_out"], row["scenario"], statistics.median(after) / statistics.median(before),
        min(after) / max(before), max(after) / max(min(before), 1e-9), after_error, row["speedup"], row["low"], row["high"],
        row["bottleneck"], tuple(row["expected"]),
        row["plan"][0]["kind"] if row["plan"] else None, row.get("cause_kind", ""), row.get("line_named", False),
        row.get("words_named", False), step_inside(row))


def step_inside(row: dict) -> bool | None:
    """True if the step after the fix was in the interval of its prediction; None without one."""
    low, high, after = row.get("after_low_ns"), row.get("after_high_ns"), row.get("after_ns")
    return low <= after <= high if low and high and after else None


def gains(rows: Iterable[dict]) -> list[Gain]:
    """The gains of all interventions; if one was measured again, the last."""
    found = {row["name"]: gain(row) for row in rows}
    return [value for value in found.values() if value is not None]


@dataclasses.dataclass(frozen=True)
class Summary:
    """Summary of several gains."""

    rows: int
    predicted: int
    intervals: int
    covered: int
    reached: int
    exceeded: tuple[str, ...]
    median_error: float | None
    median_after_error: float | None
    right_bottlenecks: int

    @property
    def coverage(self) -> float | None:
        return self.covered / self.intervals if self.intervals else None

    def text(self) -> str:
        coverage = "no intervals" if self.coverage is None else (
            f"{self.covered} of {self.intervals} medians in their interval, {self.reached} with the scatter of the turns")
        error = "no predictions" if self.median_error is None else f"median error of gains {self.median_error:.1%}"
        if self.median_after_error is not None:
            error += f", of steps after the fix {self.median_after_error:.1%}"
        over = f", more than predicted at most: {', '.join(self.exceeded)}" if self.exceeded else ""
        return (f"{self.rows} interventions, {self.right_bottlenecks} right bottlenecks, {self.predicted} predictions: {coverage}, "
                f"{error}{over}")


def summarize(found: Sequence[Gain]) -> Summary:
    errors = [abs(one.error) for one in found if one.error is not None]
    after = [abs(one.after_error) for one in found if one.after_error is not None]
    intervals = [one for one in found if one.has_interval]
    return Summary(
        len(found), len(errors), len(intervals), sum(one.covered for one in intervals),
        sum(one.reached for one in intervals), tuple(one.name for one in found if one.exceeded),
        statistics.median(errors) if errors else None, statistics.median(after) if after else None,
        sum(one.right for one in found))


@dataclasses.dataclass(frozen=True)
class Judgment:
    """How often the report led to the cause and to the gain: numbers of programs, and medians of relative errors."""

    rows: int
    right: int
    proven: int
    right_proven: int
    named: int
    lines: int
    intervals: int
    inside: int
    median_error: float | None
    median_after_error: float | None

    def text(self) -> str:
        if not self.rows:
            return "no programs"

        def part(number: int, of: int) -> str:
            return f"{number} of {of} ({number / of:.0%})" if of else "none"

        return (f"{self.rows} programs: right bottleneck {part(self.right, self.rows)}, where the fix gained "
                f"15 % {part(self.right_proven, self.proven)}, line or cause named "
                f"{part(self.named, self.rows)}, the line {part(self.lines, self.rows)}, gain or step after the fix in its interval "
                f"{part(self.inside, self.intervals)}, median error of gains {percent(self.median_error) or 'unknown'}, of steps after "
                f"the fix {percent(self.median_after_error) or 'unknown'}")


def judge(found: Sequence[Gain]) -> Judgment:
    summary = summarize(found)
    proven = [one for one in found if one.proves]
    return Judgment(
        len(found), summary.right_bottlenecks, len(proven), sum(one.right for one in proven), sum(one.named for one in found), sum(one.line_named for one in found),
        summary.intervals, sum(one.inside is True for one in found), summary.median_error, summary.median_after_error)


def halves(found: Sequence[Gain]) -> dict[str, list[Gain]]:
    """Gains of programs that constants may be tuned with, and of those that were held out."""
    return {
        "calibration": [one for one in found if not one.held_out], "held out": [one for one in found if one.held_out]}


def is_calibrated(summary: Summary) -> bool | None:
    """True if intervals and predictions are within their limits; None if there are too few to judge."""
    if summary.intervals < FEWEST or summary.median_error is None:
        return None
    return summary.covered >= COVERAGE * summary.intervals and summary.median_error <= MEDIAN_ERROR


def percent(value: float | None, signed: bool = False) -> str:
    return "" if value is None else f"{value:+.1%}" if signed else f"{value:.1%}"


def times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def judged_bottleneck(one: Gain) -> str:
    return one.bottleneck if one.right else f"{one.bottleneck} (expected {' or '.join(one.expected)})"


def gains_table(found: Sequence[Gain]) -> str:
    """Predicted and real gains, the two halves separately, each with its summary."""
    parts = []
    for half, members in halves(found).items():
        rows = []
        for one in sorted(members, key=lambda one: (one.predicted is None, one.name)):
            interval = f" ({one.low:.2f}..{one.high:.2f})" if one.has_interval else ""
            inside = ("yes" if one.covered else "some turns" if one.reached else "no") if one.has_interval else ""
            rows.append([
                f"`{one.name}`", one.fix, judged_bottleneck(one), f"`{one.scenario}`" if one.scenario else "none",
                times(one.predicted) + interval, f"{times(one.real)} ({one.real_low:.2f}..{one.real_high:.2f})", inside,
                percent(one.after_error, signed=True),
                f"`{one.first_fix}`" if one.first_fix else ""])
        header = ["program", "fix", "bottleneck", "scenario", "predicted", "real", "inside", "step after, error", "first fix"]
        together = textwrap.fill(f"**{half.capitalize()}:** {summarize(members).text()}.", COLUMNS)
        parts.append(f"{together}\n\n{table(header, rows)}")
    return "\n".join(parts)


def causes_table(rows: Sequence[dict]) -> str:
    """How often reports led to the cause, the two halves separately, and the misses with room for their reasons."""
    found = gains(rows)
    parts = []
    for half, members in halves(found).items():
        lines = []
        for one in sorted(members, key=lambda one: (one.kind, one.name)):
            predicted = times(one.predicted) + (f" ({one.low:.2f}..{one.high:.2f})" if one.has_interval else "")
            lines.append([
                one.kind, f"`{one.name}`", one.fix, judged_bottleneck(one), "yes" if one.line_named else "no",
                "yes" if one.words_named else "no", predicted, f"{times(one.real)} ({one.real_low:.2f}..{one.real_high:.2f})",
                {True: "yes", False: "no", None: ""}[one.inside], percent(one.after_error, signed=True)])
        header = ["kind", "program", "fix", "bottleneck", "line", "words", "predicted", "real", "inside", "step after, error"]
        parts.append(f"{textwrap.fill(f'**{half.capitalize()}:** {judge(members).text()}.', COLUMNS)}\n\n{table(header, lines)}")
    missed = [[f"`{one.name}`", ", ".join(misses(one)), MISSES.get(one.name, "")] for one in found if misses(one)]
    return "\n".join([*parts, table(["program", "missed", "reason"], missed)])


# Reasons of misses that are known, by program.
MISSES = {
    "early_exit": "on this host the fix gains nothing: launches take more time than reads",
    "finite_gradients": "the fix also launches fewer kernels",
    "found_boxes": "nonzero_static keeps the kernels of the selection, torch.where does not; launches take more time than reads",
    "kept_tokens": "launches take more time than reads; the first fix is the right one",
    "load_then_train": "both phases take turns, and on this host the launches of the second one take more time",
    "replay_readback": "the fix gains less than 15 %, so the GPU is the bottleneck",
    "train_then_export": "the prediction is for steps of the first phase; the rate also counts the copies of the second one",
}


def misses(one: Gain) -> list[str]:
    """What the report missed, in words."""
    found = {"bottleneck": not one.right, "line and cause": not one.named, "gain": one.inside is False}
    return [what for what, is_missed in found.items() if is_missed]


def untraced_table(rows: Sequence[dict]) -> str:
    """Predicted and measured times of a step without tracing, in microseconds. Rows of both kinds of checks."""
    found = {}
    for row in rows:
        if row.get("predicted_untraced_ns") and row.get("bare_ns"):
            found[row["name"]] = row
    lines = []
    for name, row in sorted(found.items()):
        bare, traced, predicted = row["bare_ns"], row["traced_ns"], row["predicted_untraced_ns"]
        lines.append([
            f"`{name}`", f"{bare / 1e3:,.1f}", percent(traced / bare - 1, signed=True),
            percent(predicted / bare - 1, signed=True)])
    errors = [abs(row["predicted_untraced_ns"] / row["bare_ns"] - 1) for row in found.values()]
    head = f"{len(errors)} programs, median error {statistics.median(errors):.1%}, largest {max(errors):.1%}.\n\n" if errors else ""
    return head + table(["program (* before its fix)", "bare step, us", "traced", "predicted without tracing"], lines)
