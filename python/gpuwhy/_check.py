"""Limits, checked by `gpuwhy check`: the shell, continuous integration and Python use the same checks."""

from __future__ import annotations

import os
from typing import Any, Iterable, Mapping, Tuple, Union, cast

from . import _command

Pairs = Union[Mapping[str, float], Tuple[str, float], Iterable[Tuple[str, float]]]

Triples = Union[Tuple[str, str, float], Iterable[Tuple[str, str, float]]]

# By type of value: a number, a switch, a share (0 to 1), a time in seconds, names, or pairs of a name and one of these.
_NUMBERS = ("kernels_at_most", "launches_at_most", "memory_at_most", "step_within", "baseline", "case", "capture")
_SWITCHES = ("no_sync", "no_pageable_copy", "no_allocation", "no_memory_growth", "no_spills", "bless")
_SHARES = ("busy_at_least",)
_TIMES = ("step_at_most",)
_NAMES = ("bottleneck", "not_bottleneck")
_PAIRS = {
    "kernel_at_most": "time",
    "kernel_within": "number",
    "module_at_most": "time",
    "kind_at_most": "time",
    "module_within": "number",
    "share_at_most": "share",
}
# A kernel name, a unit such as `dram`, and a share: triples.
_UNITS = ("kernel_uses",)

LIMITS = (*_NUMBERS, *_SWITCHES, *_SHARES, *_TIMES, *_NAMES, *_PAIRS, *_UNITS)


def options(limits: Mapping[str, Any]) -> list[str]:
    """The options of `gpuwhy check` for keyword arguments. Times are seconds, shares 0 to 1.

    Raises TypeError for a limit that does not exist.
    """
    found: list[str] = []
    for name, value in limits.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if name in _SWITCHES:
            found.append(option)
        elif name in _NUMBERS:
            found += [option, str(value)]
        elif name in _SHARES:
            found += [option, _number("share", value)]
        elif name in _TIMES:
            found += [option, _number("time", value)]
        elif name in _NAMES:
            found += [option, value if isinstance(value, str) else ",".join(value)]
        elif name in _PAIRS:
            for key, limit in _pairs(value):
                found += [option, f"{key}={_number(_PAIRS[name], limit)}"]
        elif name in _UNITS:
            for kernel, unit, least in _triples(value):
                found += [option, f"{kernel}={unit}:{_number('share', least)}"]
        else:
            raise TypeError(f"there is no limit {name!r}; there are {', '.join(LIMITS)}")
    return found


def _number(kind: str, value: float) -> str:
    if kind == "time":
        return f"{value * 1e9:.3f}ns"
    return f"{value * 100:.6g}" if kind == "share" else f"{value:.6g}"


def _pairs(value: Pairs) -> list[tuple[str, float]]:
    if isinstance(value, Mapping):
        return list(cast("Mapping[str, float]", value).items())
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return [(value[0], cast(Any, value[1]))]
    return list(cast("Iterable[tuple[str, float]]", value))


def _triples(value: Triples) -> list[tuple[str, str, float]]:
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[0], str):
        return [cast(Any, value)]
    return list(cast("Iterable[tuple[str, str, float]]", value))


def result(trace: str | os.PathLike[str], limits: Mapping[str, Any]) -> Mapping[str, Any]:
    """Output of `gpuwhy check --json`.

    Raises CommandFailed when the trace or the baseline cannot be read.
    """
    # 3: the report is incomplete, which the output states.
    arguments: list[str | os.PathLike[str]] = ["check", "--json", *options(limits), "--", trace]
    found: Mapping[str, Any] = _command.as_json(arguments, (0, 1, 3))
    return found


def failures(answer: Mapping[str, Any]) -> list[str]:
    """Limits that do not hold, with the values found."""
    found = [str(rule["failure"]) for rule in answer["rules"] if not rule["passed"]]
    return [str(answer["incomplete"]), *found] if answer["incomplete"] else found


def judge(trace: str | os.PathLike[str], limits: Mapping[str, Any]) -> None:
    """Raises AssertionError with the values found if a limit does not hold."""
    answer = result(trace, limits)
    found = failures(answer)
    if found:
        seen = f"bottleneck: {answer['bottleneck']} ({answer['bottleneck_share']:.0%}); trace: {os.fspath(trace)}"
        raise AssertionError("\n".join([*found, seen]))
