"""Runs HolisticTraceAnalysis over a folder of traces and prints the results as JSON.

usage: analyze.py FOLDER [STEP_RANGE]

Runs every analysis that works on traces without operators; a failure is listed with its error. With STEP_RANGE
("ProfilerStep") also runs those that need steps. Times are in microseconds, by rank.
"""

import contextlib
import io
import json
import logging
import os
import sys
import warnings

# Otherwise HTA rounds every row to whole microseconds.
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

from hta.trace_analysis import TraceAnalysis  # noqa: E402
from hta.trace_diff import DeviceType, LabeledTrace, TraceDiff  # noqa: E402


def by_rank(table):
    return {str(row["rank"]): row for row in table.to_dict("records")}


def critical_path(analysis, rank, annotation):
    graph, is_complete = analysis.critical_path_analysis(rank=rank, annotation=annotation, instance_id=1)
    if not is_complete:
        raise ValueError("no critical path")
    return len(graph.get_critical_path_breakdown())


def difference(analysis):
    both = [LabeledTrace(label=label, t=analysis.t) for label in ("control", "test")]
    return len(TraceDiff.compare_traces(*both, device_type=DeviceType.GPU))


def main():
    folder, annotation = sys.argv[1], (sys.argv[2:] or [None])[0]
    found, failed = {}, {}
    with contextlib.redirect_stdout(io.StringIO()):
        # The last step is dropped by default, because its kernels may be incomplete.
        analysis = TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
        ranks = analysis.t.get_ranks()
        rank = ranks[0]
        analyses = {
            "temporal": lambda: by_rank(analysis.get_temporal_breakdown(visualize=False)),
            "idle": lambda: len(analysis.get_idle_time_breakdown(ranks=ranks, visualize=False)[0]),
            "overlap": lambda: by_rank(analysis.get_comm_comp_overlap(visualize=False)),
            "kernel_types": lambda: len(analysis.get_gpu_kernel_breakdown(visualize=False)[0]),
            "launches": lambda: {str(r): len(t) for r, t in analysis.get_cuda_kernel_launch_stats(ranks, visualize=False).items()},
            "queue_length": lambda: len(analysis.get_queue_length_summary(ranks=ranks)),
            "bandwidth": lambda: len(analysis.get_memory_bw_summary(ranks=ranks)),
        }
        if annotation:
            analyses["steps"] = lambda: len(analysis.get_profiler_steps())
            analyses["difference"] = lambda: difference(analysis)
            analyses["critical_path"] = lambda: critical_path(analysis, rank, annotation)
        for name, analyze in analyses.items():
            try:
                found[name] = analyze()
            except Exception as error:  # noqa: BLE001 - the library raises whatever it meets
                failed[name] = f"{type(error).__name__}: {error}"
    text = json.dumps({"ranks": [int(rank) for rank in ranks], "found": found, "failed": failed}, default=float)
    # Shares of an empty total are NaN, which is not JSON.
    json.dump(json.loads(text, parse_constant=lambda _: None), sys.stdout)


if __name__ == "__main__":
    main()
