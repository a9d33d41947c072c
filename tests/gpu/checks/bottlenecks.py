"""Programs whose bottleneck is known by construction get the bottleneck that they were built for.

The Python examples state theirs in their first lines (`Bottleneck: ...`), and are checked here; those that are about a
part of a run state none, and belong to `lessons`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from harness import REPOSITORY, Check, Mode, Result, Suite, expect
from trace_report import single

EXAMPLES = REPOSITORY / "examples" / "python"

# train.py arguments -> bottleneck.
TRAINING: dict[str, tuple[list[str], str]] = {
    "gpt": (["gpt", "--steps", "50"], "gpu_compute"),
    "mlp": (["mlp", "--steps", "250"], "launch"),
    "resnet": (["resnet", "--steps", "50"], "gpu_compute"),
    "resnet_slow_loader": (["resnet", "--steps", "10", "--loader-ms", "4"], "data_loading"),
}


def judge(suite: Suite, name: str, command: list[str], expected: str) -> Iterator[Result]:
    run = suite.run(name, command, Mode.VARIABLE)
    yield expect(f"bottlenecks.{name}.exit", run.code == 0, run.ending())
    trace = single(suite, run)
    yield expect(f"bottlenecks.{name}", trace.bottleneck == expected, f"expected {expected}, got {trace.bottleneck_line()}")


def training(name: str) -> Check:
    arguments, expected = TRAINING[name]
    return Check(f"bottlenecks.{name}", lambda suite: judge(suite, name, suite.python("train.py", *arguments), expected))


def promised_bottleneck(text: str) -> str | None:
    """The cause named by an example's docstring."""
    match = re.search(r"^Bottleneck: `(\w+)`", text, re.MULTILINE)
    return match[1] if match else None


def example(file_name: str) -> Check:
    name = f"example_{file_name.removesuffix('.py')}"

    def check(suite: Suite) -> Iterator[Result]:
        path = EXAMPLES / file_name
        expected = promised_bottleneck(path.read_text())
        assert expected is not None, "chosen because it names one"
        yield from judge(suite, name, [sys.executable, str(path), "--seconds", "3"], expected)

    return Check(f"bottlenecks.{name}", check)


def checks() -> list[Check]:
    examples = sorted(path.name for path in EXAMPLES.glob("[0-9]*.py") if promised_bottleneck(path.read_text()))
    return [*(training(name) for name in TRAINING), *(example(name) for name in examples)]
