"""Tries checks of the suite on a host without a GPU: `python3 tests/gpu/rehearse.py --only interventions.copies_400`.

The programs run on the CPU (workloads/rehearsal.py), and a stand-in for gpuwhy gives each traced run the same made-up
report. So the programs, their runs, the files and the tables are tried; bottlenecks and figures are meaningless, and
checks of them fail. All options are those of run.sh. It needs the libraries of the programs, PyTorch first of all.

`python3 tests/gpu/rehearse.py --replay target/debug --only docs` uses the command and the library of that folder
instead, with its replay library: the GPU of each program is the recording of an MLP's training, and no PyTorch is
needed.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

# A report with everything that the checks read.
REPORT = {
    "bottleneck": {
        "cause": "copy", "share": 0.5, "evidence": ["A made-up report."], "recommendation": "None.", "ranking": [],
        "basis": None, "plan": [{
            "kind": "copies_overlapped", "action": "use pinned memory", "because": None, "speedup": 2.0, "low": 1.5, "high": 2.5,
            "then": "launch"}],
        "remedies": [{
            "id": "pinned", "text": "pin it", "at": "fixes.py:1 (main)", "results": "same", "certainty": "measured", "speedup": 2.0,
            "low": 1.5, "high": 2.5, "link": None, "outside": True}]},
    "process": {"notes": []},
    "completeness": {"end": "clean", "records": {"kernels": 1000, "copies": 10, "memsets": 0}},
    "host": {"samples": 10, "causes": {"code": 1000}, "lines": [
        {"file": "fixes.py", "line": 1, "function": "main", "cause": "code", "share": 0.3, "step_ns": 1000}]},
    "devices": [{
        "steady_leaves": {"compute": 500, "copy_h2d_pinned": 500, "host_cpu": 400}, "kernels": [],
        "steps": {"source": "period", "seen": 100, "median_ns": 1_000_000, "rows": []},
        "untraced": {"step_ns": 900_000, "share_of_tracing": 0.1, "source": "table"},
        "what_if": {"simulated": True, "scenarios": [
            {"kind": kind, "step_ns": 500_000, "speedup": 2.0, "low": 1.5, "high": 2.5} for kind in (
                "data_ready", "launches_free", "no_syncs", "no_readbacks", "no_allocations", "copies_overlapped")]}}],
}

# Kernels with every advice that a check looks for.
KERNELS = {
    "schema_version": 1, "stall_ns": 1_000_000, "unmeasured": [], "measured": [{
        "name": "kernel", "outcome": "measured", "reason": None, "stall_ns": 1_000_000, "findings": [
            {"rule": rule, "applies": True, "local_gain": 0.5, "step_gain": 0.4,
             "step": {"speedup": 1.6, "low": 1.4, "high": 1.9}}
            for rule in ("at_roof", "fp32_matrix", "layout_conversion", "bank_conflicts", "small_grid")]}]}

GPUWHY = """#!{python}
import sys
if sys.argv[1] == "report":
    print({report!r})
elif sys.argv[1] == "kernels":
    print({kernels!r})
else:
    print("nothing was measured: a rehearsal")
"""


def script(path: pathlib.Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        stand_ins = pathlib.Path(folder)
        options, variables, binaries = sys.argv[1:], {"GPU_SUITE_REHEARSAL": "1"}, folder
        if options[:1] == ["--replay"]:
            binaries = str(pathlib.Path(options[1]).resolve())
            options, variables = options[2:], {"GPU_SUITE_REPLAY": binaries}
        else:
            script(stand_ins / "gpuwhy", GPUWHY.format(
                python=sys.executable, report=json.dumps(REPORT), kernels=json.dumps(KERNELS)))
        script(stand_ins / "nvidia-smi", "#!/bin/sh\necho 'no GPU: a rehearsal, 0'\n")
        script(stand_ins / "nvcc", "#!/bin/sh\nexit 0\n")
        (stand_ins / "libprof.so").touch()
        environment = {
            **os.environ, "PATH": f"{stand_ins}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", **variables}
        return subprocess.run(
            [sys.executable, str(HERE / "suite.py"), "--bin", binaries, *options], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
