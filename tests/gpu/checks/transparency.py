"""A traced program has the same output and the same end as without gpuwhy.

Output is compared byte for byte; programs are configured to print nothing that differs between two runs. With the
report switched off stderr must be the same as well. `gpuwhy run` is started with its default report, which goes to
stderr.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from harness import Check, Mode, Result, Run, Suite, expect
from programs import programs

EXIT_CODE = 3


def first_difference(expected: str, got: str) -> str:
    """The first lines that differ; empty if there are none."""
    lines = [
        line for line in difflib.unified_diff(expected.splitlines(), got.splitlines(), lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))]
    return " | ".join(lines[:4])[:300]


def without_log_times(stderr: str) -> str:
    """Removes what differs between runs: PyTorch's C++ warnings begin with the time and the thread, `[W1121
    07:50:32.123456 4711 file.cpp:48]`; Python's warning about a fork among threads names the process, `(pid=4711)`."""
    stderr = re.sub(r"\(pid=\d+\)", "(pid)", stderr)
    return re.sub(r"^\[([WEIF])\d{4} [\d:.]+( \d+)?", r"[\1", stderr, flags=re.MULTILINE)


def compare(name: str, bare: Run, traced: Run, with_stderr: bool) -> Iterator[Result]:
    """The results for one traced run compared with the bare one."""
    yield expect(f"{name}.exit", bare.code == traced.code, f"bare {bare.ending()}, traced {traced.ending()}")
    yield expect(f"{name}.stdout", bare.stdout == traced.stdout, first_difference(bare.stdout, traced.stdout))
    if with_stderr:
        expected, got = without_log_times(bare.stderr), without_log_times(traced.stderr)
        yield expect(f"{name}.stderr", expected == got, first_difference(expected, got))


def one_program(name: str) -> Check:
    def check(suite: Suite) -> Iterator[Result]:
        command = programs(suite)[name].quiet()
        bare = suite.bare(name, command)
        variable = suite.run(f"{name}-variable", command, Mode.VARIABLE)
        yield from compare(f"transparency.{name}.variable", bare, variable, with_stderr=True)
        ran = suite.run(f"{name}-command", command, Mode.COMMAND)
        yield from compare(f"transparency.{name}.command", bare, ran, with_stderr=False)
        yield expect(
            f"transparency.{name}.report", "gpuwhy" in ran.stderr and len(ran.traces()) == 1,
            f"{len(ran.stderr.splitlines())} lines on stderr, {len(ran.traces())} trace")

    return Check(f"transparency.{name}", check, exclusive=False)


def exit_codes(suite: Suite) -> Iterator[Result]:
    """A nonzero exit code, from C++ and from Python."""
    for name, command in (
            ("cpp", [str(suite.microbench), "launch", "1000", "--exit-code", str(EXIT_CODE)]),
            ("python", suite.python("train.py", "mlp", "--steps", "5", "--exit-code", str(EXIT_CODE)))):
        for mode in Mode:
            run = suite.run(f"exit-code-{name}-{mode.value}", [*command, "--quiet-times"], mode)
            yield expect(f"transparency.exit_code.{name}.{mode.value}", run.code == EXIT_CODE, run.ending())


def checks() -> list[Check]:
    names = ["launch", "graph", "copy", "sm", "mlp", "resnet", "gpt"]
    return [*(one_program(name) for name in names), Check("transparency.exit_code", exit_codes, exclusive=False)]
