"""Every kernel, copy and memset is recorded: equal to independent counts, by kind and by kernel name.

For programs that keep the device busy the total kernel time agrees with nsys as well, within 1 %: the same kernels ran,
and tracing did not make them longer. For the others that time depends on clocks that rise and fall with the load.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

import oracles
from harness import Check, Mode, Result, Suite, expect, skipped
from oracles import Counts, NoCount
from programs import Program, programs
from trace_report import Trace, single

# Largest relative difference of total kernel time from nsys. Repeated runs of the same program differ by about 0.5 %.
TIME_TOLERANCE = 0.01


def describe(difference: collections.Counter[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in difference.most_common(3))


def compare(name: str, trace: Trace, oracle: Counts) -> Iterator[Result]:
    """Counts by kind and by name against one oracle."""
    ours = {kind: trace.records(kind) for kind in oracle.records}
    yield expect(f"{name}.records", ours == oracle.records, f"gpuwhy {ours}, {name.rsplit('.', 1)[-1]} {oracle.records}")
    if oracle.names is None:
        return
    left, right = oracles.by_base_name(trace.kernel_counts()), oracles.by_base_name(oracle.names)
    surplus, missing = left - right, right - left
    settled = oracles.settle_mangled(surplus, missing)
    detail = f"{len(left)} names" if not (+surplus or +missing) else (
        f"only gpuwhy: {describe(+surplus)}; only there: {describe(+missing)}")
    detail += f"; {settled} launches are under a mangled name on one side" if settled else ""
    yield expect(f"{name}.names", not (+surplus or +missing), detail)


def compare_time(name: str, trace: Trace, nsys: Counts) -> Result:
    if not nsys.nanoseconds:
        return skipped(name, "nsys saw no kernels")
    ratio = trace.kernel_nanoseconds() / nsys.nanoseconds
    return expect(
        name, abs(ratio - 1) <= TIME_TOLERANCE,
        f"gpuwhy {trace.kernel_nanoseconds() / 1e6:.2f} ms, nsys {nsys.nanoseconds / 1e6:.2f} ms, ratio {ratio:.4f}")


def check_program(suite: Suite, program: Program) -> Iterator[Result]:
    prefix = f"counts.{program.name}"
    # By nodes of graphs, as the oracles count.
    run = suite.run(f"{program.name}-counts", program.quiet(), Mode.VARIABLE, extra={"GPUWHY_CUDA_GRAPH_TRACE": "node"})
    yield expect(f"{prefix}.exit", run.code == 0, run.ending())
    trace = single(suite, run)
    intact = trace.end == "clean" and trace.exit_code == 0
    yield expect(f"{prefix}.end", intact, f"{trace.end}, report exit code {trace.exit_code}")
    losses = trace.losses()
    yield expect(f"{prefix}.nothing_lost", not losses, str(losses) if losses else f"{trace.path.stat().st_size / 1e6:.1f} MB")

    if not program.is_torch:
        yield from compare(f"{prefix}.program", trace, oracles.printed(run.stdout))
    for oracle, count in (("nsys", oracles.by_nsys), ("torch", oracles.by_torch)):
        if oracle == "torch" and not program.is_torch:
            continue
        try:
            counts = count(suite, program.name, program.quiet())
        except NoCount as reason:
            yield skipped(f"{prefix}.{oracle}", str(reason))
            continue
        yield from compare(f"{prefix}.{oracle}", trace, counts)
        if oracle == "nsys" and program.is_gpu_bound:
            yield compare_time(f"{prefix}.nsys.kernel_time", trace, counts)


def one_program(name: str) -> Check:
    return Check(f"counts.{name}", lambda suite: check_program(suite, programs(suite)[name]))


def threads(suite: Suite) -> Iterator[Result]:
    """8 threads, 8 streams, kernels, copies and graphs at full speed: the hardest case for the collector."""
    run = suite.run("threads", [suite.microbench, "threads", "3"], Mode.VARIABLE, extra={"GPUWHY_CUDA_GRAPH_TRACE": "node"})
    yield expect("counts.threads.exit", run.code == 0, run.ending())
    trace = single(suite, run)
    yield from compare("counts.threads.program", trace, oracles.printed(run.stdout))
    losses = trace.losses()
    yield expect("counts.threads.nothing_lost", not losses, str(losses) if losses else f"{trace.records('kernels')} kernels")


def checks() -> list[Check]:
    names = ["launch", "graph", "copy", "sm", "mlp", "resnet", "gpt"]
    return [*(one_program(name) for name in names), Check("counts.threads", threads)]
