"""Orders of torch, CUDA and gpuwhy, and the resulting records: `python orders.py ORDER`; prints JSON.

    import_torch    import torch, then a session, then the first use of CUDA
    available       torch.cuda.is_available() before the session
    late            CUDA used before the session
    prepared        gpuwhy.prepare(), CUDA used, then the session
    torch_profiler  a session, torch.profiler in it and after it, with CUPTI shared
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import gpuwhy

LAUNCHES = 200


def work(torch, x) -> None:
    for _ in range(LAUNCHES):
        x.add_(1)
    torch.cuda.synchronize()


def main(order: str) -> dict:
    prepare_seconds = None
    if order in ("prepared", "torch_profiler"):
        began = time.perf_counter()
        gpuwhy.prepare(cupti_sharing="yield" if order == "torch_profiler" else None)
        prepare_seconds = time.perf_counter() - began
    import torch

    if order == "available":
        torch.cuda.is_available()
    x = torch.zeros(1024, device="cuda") if order in ("late", "prepared") else None
    if x is not None:
        work(torch, x)
    said = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with gpuwhy.profile(f"{order}.gpuwhy", quiet=True) as p:
            if x is None:
                x = torch.zeros(1024, device="cuda")
            work(torch, x)
    report = p.report
    if order == "torch_profiler":
        with torch.profiler.profile() as other:
            work(torch, x)
        said["torch_kernels"] = sum(event.count for event in other.key_averages() if event.device_type.name == "CUDA")
        try:
            with gpuwhy.profile(quiet=True) as again:
                work(torch, x)
            said["kernels_after"] = again.report.completeness["records"]["kernels"]
        except gpuwhy.NotMeasured as error:
            said["refused_after"] = str(error)
    calls = {row["name"]: row["calls"] for row in report.api}
    return {
        **said, "state": p.state.value, "late_warnings": sum(issubclass(w.category, gpuwhy.LateStart) for w in caught),
        "kernels": report.completeness["records"]["kernels"],
        "launch_calls": sum(count for name, count in calls.items() if "LaunchKernel" in name),
        "without_launch": report.completeness["activities_without_launch"], "lost": report.metrics()["gpuwhy/lost_records"],
        "bottleneck": report.bottleneck.cause, "prepare_seconds": prepare_seconds,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
