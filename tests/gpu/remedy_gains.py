"""Remedies that a report recommends, against the changes that were measured; makes their table.

    python3 tests/gpu/remedy_gains.py [--docs tests/gpu/remedies.md] gpu-suite-out/measured.jsonl [MORE FILES...]

If a program is in several files, the last one counts. --docs writes the page, or only its tables if it is there. Nothing
here needs a GPU. Exit status: 0, or 3 if no program was measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import statistics
import sys
import textwrap
from collections.abc import Iterable, Sequence

import gains
from gains import COLUMNS, Gain, table, times
from gains_table import put
from harness import read_lines
from remedy_table import REMEDIES, SHOWN, Remedy

# Relative difference between a gain by `gpuwhy try` and one by hand that counts as the same.
SAME = 0.10

PAGE = """# Remedies and their gains

`tests/gpu/remedy_gains.py --docs tests/gpu/remedies.md` writes these tables. Each program has one fix, and the report
of the program before it should say just this fix among its first three remedies. *Predicted* is the gain of that
remedy with its interval, *real* the gain of the change by hand with its range over turns. Programs of the kind
*control* have nothing to fix.

<!-- remedies -->
<!-- /remedies -->

## Tried from outside

The gain that `gpuwhy try` measures beside that of the same change by hand.

<!-- tried -->
<!-- /tried -->
"""

# Reasons of misses that are known, by program.
MISSES: dict[str, str] = {
    "autocast_convolutions": "the CPU limits the program on this host: bf16 gains nothing",
    "decoder_attention": "launches limit the step in this run, so the graph comes first",
    "dropout_samples": "compiled code is slower here: 0.75x; why is not known",
    "parsed_records": "beside the workers 16 threads cast each batch on the CPU in 6 ms; with one thread the gain is 4.8x",
    "pooled_sentences": "the change removes the launches of the selection, too",
    "rare_reads": "launches take 15 % of its step",
    "separate_experts": "nothing recorded shows that the products do not need each other",
    "single_samples": "nothing recorded shows that the samples do not need each other",
    "timed_phases": "the waits gain less than 15 % on this host",
}


def first_of(remedies: Sequence[dict]) -> list[dict]:
    """What a reader of the report sees."""
    return list(remedies[:SHOWN])


def chosen(right: Sequence[str], remedies: Sequence[dict]) -> dict | None:
    """The remedy that says the fix, by the order of `right`; None if the reader does not see it."""
    seen = {one["id"]: one for one in reversed(first_of(remedies))}
    return next((seen[name] for name in right if name in seen), None)


def row(name: str, case: Remedy, measured: dict, remedies: Sequence[dict]) -> dict:
    """The line of measured.jsonl: what was measured, with the remedies and the prediction of the right one."""
    found = chosen(case.right, remedies) or {}
    kept = ("id", "text", "at", "results", "certainty", "speedup", "low", "high", "outside")
    return {
        "plan": [], **measured, "name": name, "fix": case.fix, "held_out": case.held_out, "group": case.kind,
        "expected": list(case.right), "wrong": sorted(case.wrong),
        "remedies": [{key: one.get(key) for key in kept} for one in first_of(remedies)], "scenario": found.get("id"),
        "speedup": found.get("speedup"), "low": found.get("low"), "high": found.get("high") or (float("inf") if found.get("low") else None)}


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a report said about one program. `gain` is None without a fix."""

    name: str
    fix: str
    kind: str
    held_out: bool
    right: tuple[str, ...]
    wrong: frozenset[str]
    said: tuple[str, ...]
    chosen: str | None
    gain: Gain | None
    line_named: bool | None

    @property
    def is_control(self) -> bool:
        return not self.right

    @property
    def is_found(self) -> bool:
        """True if a reader sees the fix."""
        return self.chosen is not None

    @property
    def nonsense(self) -> tuple[str, ...]:
        """What must not be said: of a program with a fix as the first remedy, of others anywhere."""
        return tuple(name for name in (self.said if self.is_control else self.said[:1]) if name in self.wrong)

    @property
    def inside(self) -> bool | None:
        """True if the gain, or the step after the fix, is in the interval; None without one."""
        return self.gain.inside if self.gain else None

    @property
    def reached(self) -> bool | None:
        """True if it is with the scatter of the turns; None without an interval."""
        if self.gain is None or not self.gain.has_interval:
            return None
        return self.inside or self.gain.reached

    def misses(self) -> list[str]:
        """What the report missed, in words."""
        found = {
            "right remedy": not self.is_control and not self.is_found, f"said {', '.join(self.nonsense)}": bool(self.nonsense),
            "gain": self.reached is False}
        return [what for what, is_missed in found.items() if is_missed]


def answer(found: dict) -> Answer:
    gain = gains.gain(found)
    return Answer(
        found["name"], found["fix"], found["group"], found["held_out"], tuple(found["expected"]), frozenset(found["wrong"]),
        tuple(one["id"] for one in found["remedies"]), found["scenario"], gain, found.get("at_named"))


def answers(rows: Iterable[dict]) -> list[Answer]:
    """The answers of all programs; if one was measured again, the last."""
    return list({found["name"]: answer(found) for found in rows}.values())


def part(number: int, of: int) -> str:
    return f"{number} of {of} ({number / of:.0%})" if of else "none"


def summary(found: Sequence[Answer]) -> str:
    """How often reports said the fix, nonsense, and the right gain."""
    fixed, controls = [one for one in found if not one.is_control], [one for one in found if one.is_control]
    predicted = [one for one in fixed if one.reached is not None]
    errors = [abs(one.gain.error) for one in fixed if one.gain and one.gain.error is not None]
    error = f"{statistics.median(errors):.0%}" if errors else "unknown"
    return (
        f"{len(fixed)} programs: fix among the first {SHOWN} remedies {part(sum(one.is_found for one in fixed), len(fixed))}, "
        f"as the first {part(sum(one.said[:1] == (one.chosen,) for one in fixed), len(fixed))}, "
        f"nonsense as the first {part(sum(bool(one.nonsense) for one in fixed), len(fixed))}, gain in its interval "
        f"{part(sum(one.inside is True for one in predicted), len(predicted))}, with the scatter of the turns "
        f"{part(sum(one.reached is True for one in predicted), len(predicted))}, median error of gains {error}; "
        f"controls without nonsense {part(sum(not one.nonsense for one in controls), len(controls))}")


def halves(found: Sequence[Answer]) -> dict[str, list[Answer]]:
    """Programs that the catalogue may be changed for, and those that were held out."""
    return {
        "calibration": [one for one in found if not one.held_out], "held out": [one for one in found if one.held_out]}


def names(ids: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in ids)


def cells(one: Answer) -> list[str]:
    gain = one.gain
    predicted = times(gain.predicted) + (f" ({gain.low:.2f}..{gain.high:.2f})" if gain.has_interval else "") if gain else ""
    if predicted.endswith("..inf)"):
        predicted = f"at least {times(gain.predicted)}"
    real = f"{times(gain.real)} ({gain.real_low:.2f}..{gain.real_high:.2f})" if gain else ""
    inside = "" if one.reached is None else "yes" if one.inside else "some turns" if one.reached else "no"
    line = {True: "yes", False: "no", None: ""}[one.line_named]
    expected = names(one.right) if one.right else "none"
    return [one.kind, f"`{one.name}`", one.fix, expected, names(one.said) or "none", predicted, real, inside, line]


def remedies_table(rows: Iterable[dict]) -> str:
    """Both halves, each with its summary, and the misses with room for their reasons."""
    found = answers(rows)
    header = ["kind", "program", "fix", "expected", "first remedies", "predicted", "real", "inside", "line"]
    parts = []
    for half, members in halves(found).items():
        if members:
            lines = [cells(one) for one in sorted(members, key=lambda one: (one.is_control, one.kind, one.name))]
            parts.append(f"{textwrap.fill(f'**{half.capitalize()}:** {summary(members)}.', COLUMNS)}\n\n{table(header, lines)}")
    missed = [[f"`{one.name}`", ", ".join(one.misses()), MISSES.get(one.name, "")] for one in found if one.misses()]
    return "\n".join([*parts, *([table(["program", "missed", "reason"], missed)] if missed else [])])


def hand_gains(found: dict) -> list[float]:
    """Gains of the pairs of runs by hand."""
    return [after / before for before, after in zip(found["bare_before"], found["bare_after"])]


def by_hand(found: dict) -> float:
    """The gain of the change by hand: the median of its pairs, as `gpuwhy try` has it."""
    return statistics.median(hand_gains(found))


def hand_interval(found: dict) -> tuple[float, float]:
    """The range of the pairs by hand; that of five contains the median in 94 % of cases, as that of `gpuwhy try`."""
    return min(hand_gains(found)), max(hand_gains(found))


def overlap(found: dict) -> bool | None:
    """True if the intervals of both gains have a part in common; None without one from outside."""
    if not (found["tried_low"] and found["tried_high"]):
        return None
    low, high = hand_interval(found)
    return low <= found["tried_high"] and found["tried_low"] <= high


def difference(found: dict) -> float | None:
    """Relative difference of the gain from outside to that by hand; None without one from outside."""
    return found["tried"] / by_hand(found) - 1 if found["tried"] else None


def tried_table(rows: Iterable[dict]) -> str:
    """Gains of the same change from outside and by hand."""
    lines = []
    for found in {one["name"]: one for one in rows}.values():
        apart, outside = difference(found), times(found["tried"])
        if outside and found["tried_low"] and found["tried_high"]:
            outside += f" ({found['tried_low']:.2f}..{found['tried_high']:.2f})"
        low, high = hand_interval(found)
        hand = f"{times(by_hand(found))} ({low:.2f}..{high:.2f})"
        lines.append([
            f"`{found['name']}`", f"`{found['remedy']}`", hand, outside or found["why"], "" if apart is None else f"{apart:+.1%}",
            {True: "yes", False: "no", None: ""}[overlap(found)]])
    return table(["program", "remedy", "by hand", "by `gpuwhy try`", "difference", "overlap"], lines)


def tables(lines: Sequence[dict]) -> dict[str, str]:
    """The tables of the page, those with rows."""
    rows = [line for line in lines if line["kind"] == "remedy"]
    tried = [line for line in lines if line["kind"] == "tried"]
    return {**({"remedies": remedies_table(rows)} if rows else {}), **({"tried": tried_table(tried)} if tried else {})}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--docs", type=pathlib.Path, metavar="FILE", help="the page that gets the tables")
    options = parser.parse_args()
    lines = [line for path in options.files for line in read_lines(path)]
    found = tables(lines)
    print(*found.values(), sep="\n")
    if options.docs and found:
        if not options.docs.exists():
            options.docs.write_text(PAGE)
        put(options.docs, found)
    rows = [line for line in lines if line["kind"] == "remedy" and line["name"] in REMEDIES]
    for half, members in halves(answers(rows)).items():
        print(f"{half}: {summary(members)}.")
    return 0 if found else 3


if __name__ == "__main__":
    sys.exit(main())
