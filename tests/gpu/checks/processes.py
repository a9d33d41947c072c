"""Programs of several processes: each process that used the device leaves one readable trace, the others none.

Output and exit code are those of the bare run, so a warning from a forked worker would be detected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from checks.transparency import compare
from harness import Check, Mode, Result, Suite, expect
from trace_report import Trace

CASES: dict[str, list[str]] = {
    "workers_0": ["loader", "--workers", "0"],
    "workers_2": ["loader", "--workers", "2"],
    "workers_4_pinned": ["loader", "--workers", "4", "--pin"],
    "workers_persistent": ["loader", "--workers", "2", "--persistent"],
    "workers_spawned": ["loader", "--workers", "2", "--start", "spawn"],
    "spawned_child": ["spawn-child"],
    "forked_before_cuda": ["fork-before"],
    "forked_after_cuda": ["fork-after"],
}


def one_case(name: str, arguments: list[str]) -> Check:
    def check(suite: Suite) -> Iterator[Result]:
        prefix = f"processes.{name}"
        command = suite.python("processes.py", *arguments)
        bare = suite.bare(name, command)
        traced = suite.run(f"{name}-variable", command, Mode.VARIABLE)
        yield from compare(prefix, bare, traced, with_stderr=True)
        match = re.search(r"^processes (\d+)$", traced.stdout, re.MULTILINE)
        expected = int(match[1]) if match else -1
        files = traced.traces()
        others = [path.name for path in traced.folder.iterdir() if path not in files and path.name not in ("stdout", "stderr")]
        yield expect(
            f"{prefix}.files", len(files) == expected and not others,
            f"{len(files)} traces from {expected} processes that used the device, other files: {others}")
        traces = [Trace(suite, file) for file in files]
        yield expect(
            f"{prefix}.readable", bool(traces) and all(trace.records("kernels") > 0 for trace in traces),
            ", ".join(f"{trace.records('kernels')} kernels ({trace.end})" for trace in traces))

    return Check(f"processes.{name}", check, exclusive=False)


def torchrun(suite: Suite) -> Iterator[Result]:
    """Two ranks on one device: each has a trace that states its rank and its parent, and their launcher has none."""
    python, *program = suite.python("processes.py", "rank")
    command = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *program]
    bare = suite.bare("torchrun", command)
    traced = suite.run("torchrun-variable", command, Mode.VARIABLE)
    # torchrun's own lines contain times.
    yield from compare("processes.torchrun", bare, traced, with_stderr=False)
    found = [Trace(suite, file).report["process"] for file in traced.traces()]
    ranks = sorted(process["rank_variables"].get("RANK", "none") for process in found)
    parents = {process["parent_pid"] for process in found}
    yield expect(
        "processes.torchrun.ranks", ranks == ["0", "1"] and len(parents) == 1,
        f"traces of ranks {ranks}, started by {len(parents)} processes")


def checks() -> list[Check]:
    cases = [one_case(name, arguments) for name, arguments in CASES.items()]
    return [*cases, Check("processes.torchrun", torchrun, exclusive=False)]
