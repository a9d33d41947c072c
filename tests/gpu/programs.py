"""The programs of the suite: each ends after a few seconds and issues the same operations in every run."""

from __future__ import annotations

import dataclasses

from harness import Suite


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    command: list[str]
    is_torch: bool
    is_gpu_bound: bool  # its kernels run back to back, so that their total time does not depend on the host

    def quiet(self) -> list[str]:
        """The command line whose stdout is the same in every run."""
        return [*self.command, "--quiet-times"]


def programs(suite: Suite) -> dict[str, Program]:
    """All of them, by name."""
    bench = str(suite.microbench)
    found = [
        Program("launch", [bench, "launch", "100000", "--reps", "3"], False, False),
        Program("graph", [bench, "graph", "1000", "100", "--reps", "3"], False, False),
        Program("copy", [bench, "copy", "100000", "--reps", "3"], False, False),
        Program("sm", [bench, "sm", "20000", "--reps", "3"], False, True),
        Program("mlp", suite.python("train.py", "mlp", "--steps", "100"), True, False),
        Program("resnet", suite.python("train.py", "resnet", "--steps", "25"), True, True),
        Program("gpt", suite.python("train.py", "gpt", "--steps", "25"), True, True),
    ]
    return {program.name: program for program in found}
