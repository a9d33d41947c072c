"""The tools: how each records a program and answers, and how the group is read from its answer.

The answer is the text that a user of the tool sees first, with the tool's default options.
"""

from __future__ import annotations

import dataclasses
import glob
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable


class Unavailable(Exception):
    """The tool is not installed here, or failed."""


def output(*command: str | pathlib.Path) -> str:
    """What a command prints.

    Raises Unavailable.
    """
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from error
    if done.returncode:
        raise Unavailable(f"{' '.join(map(str, command))}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def nsys() -> str:
    """nsys on the PATH, or the one that Nsight Compute has."""
    carried = sorted(glob.glob("/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys"))
    found = os.environ.get("GPUWHY_NSYS") or shutil.which("nsys") or (carried[-1] if carried else None)
    if found is None:
        raise Unavailable("nsys is not installed")
    return found


def gpuwhy_record(folder: pathlib.Path, name: str) -> list[str]:
    return ["gpuwhy", "run", "--force", "-o", str(folder / f"{name}.gpuwhy"), "--", sys.executable]


def gpuwhy_answer(folder: pathlib.Path, name: str) -> str:
    return output("gpuwhy", "report", folder / f"{name}.gpuwhy")


def nsys_record(folder: pathlib.Path, name: str) -> list[str]:
    return [nsys(), "profile", "-t", "cuda,nvtx,osrt", "--force-overwrite", "true", "-o", str(folder / name), sys.executable]


def nsys_answer(folder: pathlib.Path, name: str) -> str:
    return output(nsys(), "analyze", "--force-export=true", folder / f"{name}.nsys-rep")


def kineto_record(folder: pathlib.Path, name: str) -> list[str]:
    return [sys.executable]


def kineto_trace(folder: pathlib.Path, name: str) -> pathlib.Path:
    """The newest trace of a program."""
    found = sorted(folder.glob(f"{name}.*.pt.trace.json.gz"))
    if not found:
        raise Unavailable(f"{folder} has no trace of {name}")
    return found[-1]


def tensorboard_answer(folder: pathlib.Path, name: str) -> str:
    """The overview of the plugin: the breakdown of a step, the GPU's summary, its first five operators, and its recommendations.

    The last release of the plugin reads neither CUDA calls nor kernels of operators from traces of PyTorch 2.11, so the
    operators are in the order of their time on the host. Call stacks, which it could show, are in no trace of the tutorial.
    """
    try:
        from torch_tb_profiler.profiler.data import RunProfileData
        from torch_tb_profiler.profiler.run_generator import RunGenerator
    except ImportError as error:
        raise Unavailable("install torch-tb-profiler") from error
    trace = kineto_trace(folder, name)
    with tempfile.TemporaryDirectory() as cache:
        data = RunProfileData.parse(name, "1", str(trace), cache)
        run = RunGenerator(name, "1", data).generate_run_profile()
    step = run.overview["performance"][0]
    operators = sorted(
        run.operation_table_by_name["data"], key=lambda row: (row.get("device_self_duration", 0), row["host_self_duration"]), reverse=True)
    keys = ("device_self_duration", "host_self_duration", "tc_eligible", "tc_self_ratio")
    lines = [f"Average Step Time {step['value']} us"]
    lines += [f"  {part['name']} {part['value']} us, {part['extra']} %" for part in step["children"]]
    lines += ["GPU Summary", *(f"  {row['title']}: {row['value']}" for row in run.gpu_summary or []), "Operators"]
    lines += [f"  {row['name']}, {row['calls']} calls: " + ", ".join(f"{key} {row[key]}" for key in keys if key in row) for row in operators[:5]]
    lines += ["Performance Recommendation", *(re.sub("<[^>]+>", "", f"  {text}") for text in data.recommendations or ["N/A"])]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def hta_answer(folder: pathlib.Path, name: str) -> str:
    """The breakdowns with which HTA's guide begins."""
    try:
        from hta.trace_analysis import TraceAnalysis
    except ImportError as error:
        raise Unavailable("install HolisticTraceAnalysis") from error
    analysis = TraceAnalysis(trace_files={0: str(kineto_trace(folder, name))})
    idle, _ = analysis.get_idle_time_breakdown(visualize=False)
    kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=5)
    parts = {
        "get_temporal_breakdown": analysis.get_temporal_breakdown(visualize=False), "get_idle_time_breakdown": idle,
        "get_gpu_kernel_breakdown": kinds, "get_gpu_kernel_breakdown, kernels": kernels}
    return "".join(f"{title}\n{frame.to_string(index=False, max_colwidth=80)}\n" for title, frame in parts.items())


# Words of the bottleneck's line -> group.
GPUWHY_GROUPS = {
    "kernel launches": "launch", "GPU computation": "gpu_compute", "CPU work between launches": "host_cpu", "data loading": "data_loading",
    "memory copies": "copy", "synchronization": "sync", "memory allocation": "allocator", "building kernels": "kernel_build"}


def gpuwhy_groups(answer: str) -> set[str]:
    found = re.search(r"^Bottleneck: ([^.]+)\.", answer, re.M)
    return {GPUWHY_GROUPS[found[1]]} if found and found[1] in GPUWHY_GROUPS else set()


# Rule that found something -> groups that it is about. The rules about gaps and utilization name no cause.
NSYS_GROUPS = {
    "cuda-async-memcpy": {"copy"}, "cuda_memcpy_async": {"copy"}, "cuda_memcpy_sync": {"copy", "sync"}, "cuda_memset_sync": {"sync"},
    "cuda_api_sync": {"sync"}, "gpu_gaps": set(), "gpu_time_util": set()}


def nsys_groups(answer: str) -> set[str]:
    """Groups of all rules that found something: nsys does not order them."""
    parts = re.split(r"\[([\w.-]+)\.py\]|\*\* .*\(([\w.-]+)\):", answer)
    found: set[str] = set()
    rule = ""
    for part in parts:
        if part in NSYS_GROUPS:
            rule = part
        elif part and rule and re.search(r"^\s*Duration|^ *-+  ", part, re.M):
            found |= NSYS_GROUPS[rule]
    return found


# Part of a step -> groups that it may stand for, generously.
TENSORBOARD_GROUPS = {
    "Kernel": {"gpu_compute"}, "Memcpy": {"copy"}, "Memset": {"copy"}, "Runtime": {"launch", "sync"}, "DataLoader": {"data_loading"},
    "CPU Exec": {"launch"}, "Other": set(), "Communication": set()}


def tensorboard_groups(answer: str) -> set[str]:
    """What is recommended, else the largest part of a step."""
    recommended = {"DataLoader": "data_loading", "Tensor Cores eligible": "gpu_compute"}
    _, _, advice = answer.partition("Performance Recommendation")
    if found := {group for words, group in recommended.items() if words in advice}:
        return found
    parts = re.findall(r"^  ([\w ]+?) (\d+) us, ", answer, re.M)
    return TENSORBOARD_GROUPS[max(parts, key=lambda part: int(part[1]))[0]] if parts else set()


# "The CPU has not enqueued enough kernels": what it did instead is not told.
HOST_WAIT = {"launch", "host_cpu", "data_loading", "sync"}


def hta_groups(answer: str) -> set[str]:
    """The largest of computing, other work and idle time; for idle time its largest kind."""
    lines = answer.splitlines()
    times = dict(zip(lines[1].split(), lines[2].split()))
    busiest = max(("idle_time", "compute_time", "non_compute_time"), key=lambda name: float(times.get(f"{name}(ns)", times.get(f"{name}(us)", 0))))
    if busiest != "idle_time":
        return {"gpu_compute"} if busiest == "compute_time" else {"copy"}
    idle = {kind: sum(float(time) for time in re.findall(rf"\b{kind} +([\d.]+)", answer)) for kind in ("host_wait", "kernel_wait", "other")}
    return {"host_wait": HOST_WAIT, "kernel_wait": {"launch"}, "other": set()}[max(idle, key=lambda kind: idle[kind])]


@dataclasses.dataclass(frozen=True)
class Tool:
    """`recorder`: the folder of its recordings. `groups`: what its answer names, all of it."""

    title: str
    recorder: str
    record: Callable[[pathlib.Path, str], list[str]]
    answer: Callable[[pathlib.Path, str], str]
    groups: Callable[[str], set[str]]
    version: Callable[[], str]


TOOLS = {
    "gpuwhy": Tool(
        "gpuwhy report", "gpuwhy", gpuwhy_record, gpuwhy_answer, gpuwhy_groups, lambda: output("gpuwhy", "--version").split(" ", 1)[1].strip()),
    "nsys": Tool(
        "nsys analyze", "nsys", nsys_record, nsys_answer, nsys_groups, lambda: output(nsys(), "--version").split()[-1]),
    "tensorboard": Tool(
        "TensorBoard's plugin", "kineto", kineto_record, tensorboard_answer, tensorboard_groups,
        lambda: f"torch-tb-profiler {importlib.metadata.version('torch-tb-profiler')}"),
    "hta": Tool(
        "HTA", "kineto", kineto_record, hta_answer, hta_groups,
        lambda: f"HolisticTraceAnalysis {importlib.metadata.version('HolisticTraceAnalysis')}"),
}
