"""Overhead of sampling native stacks: a measurement, not a limit.

Five traced processes with GPUWHY_NATIVE_STACKS=auto and five with `off` alternate with a bare one. They run the same
number of steps, so that their output can be compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from checks.interventions import rate
from harness import Check, Mode, Result, Suite, expect
from intervention_table import FIXES
from prepared import Group, Plan, Prepared, finish_all

ROUNDS = 5
SIZE = 2
CREDIT = 60.0
VARIABLE = "GPUWHY_NATIVE_STACKS"
SETTINGS = ("auto", "off")

# Name -> arguments: launch-bound and host-bound, a second or two each.
PROGRAMS = {
    "launch": ("--program", "decode", "--steps", "500"),
    "host": ("--program", "tokenize_json", "--steps", "80"),
}


def plans(suite: Suite, name: str) -> dict[str, Plan]:
    traced = {
        f"{setting}-{number}": Plan(FIXES, PROGRAMS[name], "torch", Mode.VARIABLE, {VARIABLE: setting})
        for number in range(ROUNDS) for setting in SETTINGS}
    return {"bare": Plan(FIXES, PROGRAMS[name], "torch", rehearse="--steps 3"), **traced}


def result(text: str) -> str:
    """Results that a program computed."""
    return "\n".join(line for line in text.splitlines() if "steps/s" not in line)


def ratios(first: list[float], second: list[float]) -> str:
    """Slowdown of the first compared with the second, by round."""
    found = sorted(b / a for a, b in zip(first, second))
    return f"{statistics.median(found):.3f} ({found[0]:.3f} to {found[-1]:.3f})"


def compare(suite: Suite, name: str, programs: dict[str, Prepared]) -> Iterator[Result]:
    rates: dict[str, list[float]] = {"bare": [], **{setting: [] for setting in SETTINGS}}
    outputs: list[str] = []
    codes: list[int | None] = []
    try:
        for number in range(ROUNDS):
            order = SETTINGS if number % 2 == 0 else SETTINGS[::-1]
            for setting, program in (("bare", "bare"), *((setting, f"{setting}-{number}") for setting in order)):
                text = programs[program].turn()
                rates[setting].append(rate(text))
                outputs.append(result(text))
                if program != "bare":
                    codes.append(programs[program].finish().code)
    finally:
        codes += [run.code for run in finish_all(programs.values())]
    suite.record("native_cost", {"name": name, **rates})
    same = len(set(outputs)) == 1 and set(codes) == {0} and all(value > 0 for values in rates.values() for value in values)
    yield expect(
        f"native-cost.{name}", same,
        f"time with native stacks over without, by round: {ratios(rates['auto'], rates['off'])}; over bare: with "
        f"{ratios(rates['auto'], rates['bare'])}, without {ratios(rates['off'], rates['bare'])}; "
        f"exit codes {sorted(set(codes), key=str)}, {len(set(outputs))} different outputs")


GROUP = Group("native-cost", plans, list(PROGRAMS), SIZE)


def checks() -> list[Check]:
    return [GROUP.check(name, compare, CREDIT) for name in PROGRAMS]
