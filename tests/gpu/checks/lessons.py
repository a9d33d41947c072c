"""The lessons of `examples/` show what they announce; times of sessions agree with those of do_bench.

Lessons in Rust check themselves and end with 0. Python lessons that announce a bottleneck of the complete run are
checked by `bottlenecks`; this file has the lessons that are run in another way.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections.abc import Iterator

from checks.interventions import rate
from harness import REPOSITORY, Check, Mode, Result, Suite, expect, skipped
from trace_report import Trace, single

EXAMPLES = REPOSITORY / "examples"
# Maximum difference of a time from that of do_bench, as a part of it.
AGREEMENT = 0.02
# Minimum gain from the advice of lesson 11: half of what is typical if eight workers have a core each.
BEFORE_AND_AFTER = 1.5


def rust(path: pathlib.Path) -> Check:
    name = f"lessons.{path.stem}"

    def check(suite: Suite) -> Iterator[Result]:
        program = suite.gpuwhy.parent / "examples" / path.stem
        if not program.exists():
            yield skipped(name, f"{program} does not exist: build with `cargo build --release --workspace --examples`")
            return
        yield kept(suite, name, program)

    return Check(name, check)


def kept(suite: Suite, name: str, program: pathlib.Path) -> Result:
    """Runs a lesson that checks itself."""
    run = suite.run(program.name, [program])
    promised = [line for line in run.stdout.splitlines() if line.startswith("as promised: ")]
    said = run.stderr.strip().splitlines()
    return expect(name, run.code == 0, f"{run.ending()}, {len(promised)} promises kept" if run.code == 0 else (said or [""])[-1])


def c(path: pathlib.Path) -> Check:
    name = f"lessons.c.{path.stem}"

    def check(suite: Suite) -> Iterator[Result]:
        libraries, program = suite.gpuwhy.parent, suite.scratch / path.stem
        build = suite.run(f"{path.stem}.build", [
            "cc", path, "-o", program, f"-I{REPOSITORY / 'capi' / 'include'}", f"-L{libraries}", "-lgpuwhy_c", "-ldl",
            f"-Wl,-rpath,{libraries}"])
        if build.code != 0:
            yield expect(name, False, build.stderr.strip()[-300:])
            return
        yield kept(suite, name, program)

    return Check(name, check)


def capture_range(suite: Suite) -> Iterator[Result]:
    """The Python lesson in which the program chooses what is captured."""
    script = EXAMPLES / "python" / "09_capture_range.py"
    run = suite.run("capture_range", [suite.gpuwhy, "run", "-c", "cudaProfilerApi", "--", sys.executable, script])
    stated = re.search(r"^(\d+) kernels", run.stdout, re.MULTILINE)
    trace = single(suite, run)
    yield expect("lessons.python.capture_range.bottleneck", trace.bottleneck == "gpu_compute", trace.bottleneck_line())
    kernels = trace.records("kernels")
    yield expect("lessons.python.capture_range.kernels", stated is not None and kernels == int(stated[1]),
                 f"{kernels} recorded, {stated[1] if stated else 'none'} stated")


def ranges(suite: Suite) -> Iterator[Result]:
    """The Python lesson with NVTX ranges: each occurs once per step, and the wait is in the range that causes it."""
    run = suite.run("ranges", [sys.executable, EXAMPLES / "python" / "10_ranges.py", "--steps", "200"], Mode.COMMAND)
    rows = {row["message"]: row for row in (single(suite, run).report.get("ranges") or {}).get("rows", [])}
    counts = {name: rows.get(name, {}).get("host", {}).get("count") for name in ("step", "augment", "forward")}
    yield expect("lessons.python.ranges", set(counts.values()) == {200}, str(counts))


def before_and_after(suite: Suite) -> Iterator[Result]:
    """The Python training loop, with and without the advice of the first report."""
    script = EXAMPLES / "python" / "11_before_and_after.py"
    rates: list[float] = []
    traces: list[Trace] = []
    for extra in ([], ["--after"]):
        run = suite.run("before_and_after", [sys.executable, script, *extra], Mode.VARIABLE)
        rates.append(rate(run.stdout))
        traces.append(Trace(suite, max(run.traces(), key=lambda path: path.stat().st_size)))
    before, after = traces
    yield expect("lessons.python.before", before.bottleneck == "data_loading", before.bottleneck_line())
    yield expect("lessons.python.after", rates[1] >= BEFORE_AND_AFTER * rates[0],
                 f"{rates[0]:.1f} and {rates[1]:.1f} steps/s; then {after.bottleneck_line()}")


def times(suite: Suite) -> Iterator[Result]:
    """A GEMM and a copy by do_bench, and by a session around the same launches."""
    library = suite.gpuwhy.parent / "libgpuwhy_c.so"
    run = suite.run("do_bench", suite.python("do_bench.py", str(library)))
    if run.code != 0:
        said = run.stderr.strip().splitlines()
        yield expect("lessons.times", False, (said or [run.ending()])[-1])
        return
    for work, (theirs, ours) in json.loads(run.stdout.splitlines()[-1]).items():
        off = ours / theirs - 1
        yield expect(f"lessons.times.{work}", abs(off) <= AGREEMENT,
                     f"gpuwhy {ours / 1e3:.2f} us, do_bench {theirs / 1e3:.2f} us, {off:+.1%}")


def checks() -> list[Check]:
    return [
        *(rust(path) for path in sorted(EXAMPLES.glob("[0-9]*.rs"))),
        *(c(path) for path in sorted((EXAMPLES / "c").glob("[0-9]*.c"))),
        Check("lessons.python.capture_range", capture_range),
        Check("lessons.python.ranges", ranges),
        Check("lessons.python.before_and_after", before_and_after),
        Check("lessons.times", times),
    ]
