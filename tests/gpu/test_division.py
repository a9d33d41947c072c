"""The division of computation by short samples, with made-up samples: python3 -m unittest discover -s tests/gpu"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import unittest

from checks import division
from checks.division import METRICS, Sample
from harness import Status, Suite
from rehearse import REPORT
from trace_report import Trace


def sample(start: int, end: int, **values: float) -> Sample:
    every = {"core_clock": 2e9, "sm_active": 100.0, **dict.fromkeys(division.UNITS, 0.0), **values}
    return Sample(start, end, tuple(every[name] for name in METRICS))


class Shares(unittest.TestCase):
    def test_kernels_that_overlap_are_one_interval(self) -> None:
        self.assertEqual(division.merged([(0, 10), (5, 8), (9, 20), (30, 40), (40, 41)]), [(0, 20), (30, 41)])

    def test_the_busy_part_of_each_sample(self) -> None:
        samples = [sample(0, 100), sample(100, 200), sample(200, 300), sample(300, 400)]
        self.assertEqual(division.busy_parts(samples, [(50, 60), (90, 250), (399, 500)]), [0.2, 1.0, 0.5, 0.01])

    def test_the_unit_that_is_used_most_has_its_part(self) -> None:
        parts = division.divided(sample(0, 1, tensor=60, dram=20, sm_active=90, core_clock=1.5e9), 1.0, 2e9)
        self.assertEqual({name: round(value, 3) for name, value in parts.items()}, {
            "tensor": 0.45, "memory": 0, "issue": 0, "waiting": 0.3, "idle": 0.1, "lowered_clock": 0.15})

    def test_device_memory_has_its_own_clock_and_idle_time_of_a_sample_is_left_out(self) -> None:
        parts = division.divided(sample(0, 1, dram=40, issue=10, sm_active=45, core_clock=1e9), 0.5, 2e9)
        self.assertEqual({name: round(value, 3) for name, value in parts.items()}, {
            "tensor": 0, "memory": 0.8, "issue": 0, "waiting": 0.1, "idle": 0.1, "lowered_clock": 0})

    def test_values_above_the_peak_still_sum_to_one(self) -> None:
        for values in ({"l2": 140}, {"issue": -3}, {"tensor": 100, "sm_active": 20}, {"l1": 70, "core_clock": 3e9}):
            parts = division.divided(sample(0, 1, **values), 0.8, 2e9)
            self.assertAlmostEqual(sum(parts.values()), 1.0, msg=values)
            self.assertGreaterEqual(min(parts.values()), 0.0, values)

    def test_start_up_and_idle_samples_do_not_count(self) -> None:
        samples = [sample(0, 100, issue=90), *(sample(100 * n, 100 * n + 100, tensor=50) for n in range(1, 4)), sample(400, 500)]
        shares = division.by_samples(samples, [(0, 400)], 0.0)
        self.assertEqual((shares["tensor"], shares["waiting"], shares["issue"]), (0.5, 0.5, 0.0))
        self.assertEqual(division.by_samples(samples, [], 0.0), {})

    def test_what_a_report_tells_apart(self) -> None:
        shares, unresolved = division.by_report({"steady_ns": {"tensor": 40, "latency": 30, "occupancy": 10, "unresolved": 20}})
        self.assertEqual((shares["tensor"], shares["waiting"], round(unresolved, 3)), (0.5, 0.5, 0.2))
        self.assertEqual(division.by_report({"steady_ns": {"unresolved": 5}}), ({}, 1.0))


# Output for `gpuwhy query`: samples of 0.1 ms in which tensor cores are used for 50 %, and kernels all the time.
GPUWHY = """
import sys
if "gpu_metrics" in sys.argv[-1]:
    print("start_ns,end_ns" + ",m" * {metrics})
    for n in range({samples}):
        print(f"{{n * {length}}},{{(n + 1) * {length}}},2e9,100,50,10,10,10,10")
else:
    print("start_ns,end_ns")
    print("0,1000000000000")
"""


class Judged(unittest.TestCase):
    def lines(self, steady: dict[str, int], samples: int = 3_000, length: int = 100_000, fast: dict[str, int] | None = None):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            stand_in = path / "gpuwhy"
            stand_in.write_text(f"#!{sys.executable}\n" + GPUWHY.format(metrics=len(METRICS), samples=samples, length=length))
            stand_in.chmod(0o755)
            suite = Suite(path, path, None, None)
            self.addCleanup(suite._log.close)
            traces = []
            for times in (steady, fast or {"tensor": 50, "latency": 50}):
                limits = {"steady_ns": times, "highest_clock_hz": 2_000_000_000}
                trace = Trace.__new__(Trace)
                trace.report = {**REPORT, "devices": [{**REPORT["devices"][0], "compute_limits": limits}]}
                trace.path = path / "a.gpuwhy"
                traces.append(trace)
            lines = list(division.judged(suite, "division.gpt", "gpt", *traces))
            return lines, list(division.write_table(suite)), (path / "division.md").read_text() if (path / "division.md").exists() else ""

    def test_the_same_division_passes_and_is_in_the_table(self) -> None:
        lines, tables, text = self.lines({"tensor": 47, "latency": 48, "memory": 5, "unresolved": 10})
        self.assertEqual([line.status for line in lines], [Status.PASS, Status.PASS], lines)
        self.assertIn("3000 samples of 100 us", lines[0].detail)
        self.assertIn("median difference of the parts 1.0 points, largest 5.0 (memory), limit 3.0; unresolved 9.1% and 0.0%", lines[1].detail)
        self.assertIn("| `gpt` | 1 kHz and kernel records | 47.0 | 5.0 | 0.0 | 48.0 | 0.0 | 0.0 | 9.1 |", text)
        self.assertIn("| `gpt` | 10 kHz and kernel records | 50.0 | 0.0 | 0.0 | 50.0 | 0.0 | 0.0 | 0.0 |", text)
        self.assertIn("| `gpt` | 10 kHz samples alone | 50.0 | 0.0 | 0.0 | 50.0 | 0.0 | 0.0 |  |", text)
        self.assertEqual(tables[0].status, Status.FAIL, "two programs did not run")

    def test_another_division_and_long_samples_fail(self) -> None:
        lines, *_ = self.lines({"memory": 60, "issue": 20, "idle_multiprocessors": 15, "lowered_clock": 5}, length=1_000_000)
        self.assertEqual([line.status for line in lines], [Status.FAIL, Status.FAIL])
        lines, *_ = self.lines({"tensor": 50, "latency": 50}, fast={"memory": 80, "issue": 20})
        self.assertEqual(lines[-1].status, Status.FAIL, "the limits differ")
        lines, *_ = self.lines({"unresolved": 60})
        self.assertEqual(lines[-1].status, Status.FAIL)
        self.assertIn("nothing is told apart", lines[-1].detail)

    def test_no_samples_are_reported(self) -> None:
        lines, *_ = self.lines({"tensor": 50, "latency": 50}, samples=0)
        self.assertEqual([line.status for line in lines], [Status.FAIL, Status.FAIL])

    def test_a_refusal_has_its_sentence(self) -> None:
        trace = Trace.__new__(Trace)
        trace.report = {**REPORT, "completeness": {"counters": [{"sentence": None}, {"sentence": "another tool has the counters"}]}}
        self.assertEqual(division.refusal(trace), "another tool has the counters")
        self.assertIsNone(division.limits_of(trace))


if __name__ == "__main__":
    unittest.main()
