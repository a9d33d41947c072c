"""Judgments of memory: python3 -m unittest discover -s tests/gpu"""

from __future__ import annotations

import unittest
from collections.abc import Iterable

from checks import memory_truth
from checks.memory_truth import MIB, blocks, owned, peak, slope, told
from harness import Result, Status

MS = 1_000_000


def mark(name: str, used: int, **more: int) -> dict:
    return {"program": "p", "mark": name, "nvml_used": used, "unix_ns": 0, "num_ooms": 0, "num_alloc_retries": 0, **more}


def report(**device: object) -> dict:
    return {"devices": [{"steps": {"median_ns": 20 * MS}}], "memory": {"devices": [
        {"peak_used_bytes": 1000 * MIB, "growth_per_step": None, "growth_judged": True, "failed": 0, "retried": 0, **device}]}}


def failures(results: Iterable[Result]) -> list[str]:
    return [result.name.split(".", 3)[-1] for result in results if result.status is Status.FAIL]


class Told(unittest.TestCase):
    def test_the_peak_is_that_of_the_highest_mark(self) -> None:
        marks = [mark("one", 900 * MIB), mark("two", 1000 * MIB), mark("three", 700 * MIB)]
        for found, status in ((1020 * MIB, Status.PASS), (980 * MIB, Status.PASS), (1021 * MIB, Status.FAIL), (900 * MIB, Status.FAIL), (None, Status.FAIL)):
            self.assertIs(peak("segments", marks, report(peak_used_bytes=found)).status, status, found)

    def test_a_report_without_memory_fails(self) -> None:
        self.assertEqual(failures(told("segments", [mark("one", MIB)], {"devices": [], "memory": None})), ["peak", "calls"])

    def test_growth_is_of_leaks_only(self) -> None:
        marks = [mark("growing", 900 * MIB, steps=50, unix_ns=0), mark("end", 1000 * MIB, steps=100, unix_ns=1000 * MS)]
        right = {"bytes": 2 * MIB, "low": 1.9 * MIB, "high": 2.1 * MIB}
        self.assertEqual(slope(marks, report()), 2 * MIB)
        self.assertEqual(failures(told("leak", marks, report(growth_per_step=right))), [])
        self.assertEqual(failures(told("leak", marks, report(growth_per_step={**right, "high": 1.95 * MIB}))), ["growth"])
        self.assertEqual(failures(told("leak", marks, report())), ["growth"])
        self.assertEqual(failures(told("plateau", marks, report(growth_per_step=right))), ["growth"])

    def test_a_step_of_the_report_may_be_several(self) -> None:
        marks = [mark("growing", 0, steps=0), mark("end", 100 * MIB, steps=50, unix_ns=1000 * MS)]
        found = report()
        found["devices"][0]["steps"]["median_ns"] = 40 * MS
        self.assertEqual(slope(marks, found), 4 * MIB)
        found["devices"][0]["steps"] = None
        self.assertIsNone(slope(marks, found))

    def test_failures_and_retries_are_those_of_pytorch(self) -> None:
        gave_up = [mark("oom", 1000 * MIB, num_ooms=1, num_alloc_retries=1)]
        again = [mark("retried", 1000 * MIB, num_ooms=0, num_alloc_retries=1)]
        self.assertEqual(failures(told("oom_caught", gave_up, report(failed=2, retried=0))), [])
        self.assertEqual(failures(told("oom_caught", gave_up, report(failed=1, retried=0))), ["calls"])
        self.assertEqual(failures(told("retry", again, report(failed=1, retried=1))), [])
        self.assertEqual(failures(told("retry", again, report(failed=1, retried=0))), ["calls"])
        self.assertEqual(failures(told("retry", again, report(failed=None, retried=None))), ["calls"])

    def test_what_a_jump_is_near_to(self) -> None:
        marks = [mark("big", 1000 * MIB, own_bytes=900 * MIB, line=7, function="big_table")]
        jump = {"bytes": 902 * MIB, "calls": {"cudaMalloc": 1}, "near": {"function": "big_table", "file": "/x/programs.py", "line": 7}}
        self.assertEqual(failures(told("one_big", marks, report(jump=jump))), [])
        self.assertEqual(failures(told("one_big", marks, report(jump={**jump, "near": None}))), ["near"])
        self.assertEqual(failures(told("one_big", marks, report(jump=None))), ["jump", "near"])


class Owned(unittest.TestCase):
    def judged(self, *rows: tuple[str, int], name: str = "leak", near: dict | None = None) -> list[str]:
        shares = [{"owner": owner, "peak_bytes": size * MIB, "near": near} for owner, size in rows]
        return failures(owned(name, [mark("end", 1000 * MIB, reserved=600 * MIB, line=7)], report(owners=shares)))

    def test_owners_sum_to_the_device_and_are_those_of_the_program(self) -> None:
        self.assertEqual(self.judged(("pytorch", 601), ("context", 390), ("unnamed", 9)), [])
        self.assertEqual(self.judged(("pytorch", 601), ("context", 389), ("unnamed", 9)), ["sum"])
        self.assertEqual(self.judged(("pytorch", 603), ("context", 397)), ["pytorch"])
        self.assertEqual(self.judged(("pytorch", 600), ("context", 389), ("unnamed", 11)), ["unnamed"])

    def test_the_line_of_the_largest_allocation(self) -> None:
        near, rows = {"function": "big_table", "file": "/x/programs.py", "line": 7}, (("pytorch", 600), ("context", 400))
        self.assertEqual(self.judged(*rows, name="one_big", near=near), [])
        self.assertEqual(self.judged(*rows, name="one_big", near={**near, "line": 8}), ["line"])
        self.assertEqual(self.judged(*rows, name="one_big"), ["line"])

    def test_a_report_without_owners_fails(self) -> None:
        self.assertEqual([line.status for line in owned("leak", [mark("end", MIB)], report())], [Status.FAIL])


class Blocks(unittest.TestCase):
    SITE = {"function": "leak", "file": "/x/programs.py", "line": 7}

    def judged(self, name: str, marks: list[dict], rows: tuple[tuple[str, int], ...] = (), **more: object) -> list[str]:
        peak = {"rows": [{"class": kind, "site": None, "bytes": size, "count": 1} for kind, size in rows]}
        return failures(blocks(name, marks, report(blocks={"peak": peak, "growth": None, "out_of_memory": [], **more})))

    def test_classes_are_sums_of_rows(self) -> None:
        marks = [mark("end", MIB, parameter_bytes=1000, optimizer_bytes=2000)]
        self.assertEqual(self.judged("llama", marks, (("parameters", 500), ("parameters", 530), ("optimizer_state", 1900))), [])
        self.assertEqual(self.judged("llama", marks, (("parameters", 1051), ("other", 1900))), ["parameters", "optimizer_state"])

    def test_the_line_of_a_leak_and_no_other(self) -> None:
        marks = [mark("growing", MIB, steps=10, allocated=1000), mark("end", MIB, steps=20, allocated=31000, line=7)]
        grows = {"bytes": 3000.0, "low": 2990.0, "high": 3010.0, "site": self.SITE}
        self.assertEqual(self.judged("leak", marks, growth=grows), [])
        self.assertEqual(self.judged("leak", marks, growth={**grows, "high": 2999.0}), ["growth"])
        self.assertEqual(self.judged("leak", marks, growth={**grows, "site": {**self.SITE, "line": 8}}), ["growth"])
        self.assertEqual(self.judged("leak", marks), ["growth"])
        self.assertEqual(self.judged("plateau", marks, growth=grows), ["growth"])

    def test_when_memory_runs_out(self) -> None:
        marks = [mark("oom", MIB, asked=900 * MIB, free_when_asked=800 * MIB, largest_gap=300 * MIB, line=7)]
        end = {"asked_bytes": 900 * MIB, "free_bytes": 800 * MIB, "largest_gap_bytes": 301 * MIB, "site": self.SITE}
        self.assertEqual(self.judged("oom_caught", marks, out_of_memory=[end]), [])
        self.assertEqual(self.judged("oom_caught", marks), ["out_of_memory"])
        self.assertEqual(self.judged("oom_caught", marks, out_of_memory=[end, end]), ["out_of_memory"])
        wrong = {**end, "free_bytes": 0, "largest_gap_bytes": None, "site": None}
        self.assertEqual(self.judged("oom_caught", marks, out_of_memory=[wrong]), ["free", "gap", "line"])
        self.assertEqual(self.judged("llama", [mark("end", MIB)], out_of_memory=[end]), ["out_of_memory"])

    def test_an_expert_keeps_its_history(self) -> None:
        self.assertEqual(self.judged("expert", [mark("end", MIB)]), ["silent"])
        self.assertEqual(failures(blocks("expert", [mark("end", MIB)], report(blocks=None))), [])
        self.assertEqual(failures(blocks("llama", [mark("end", MIB)], report(blocks=None))), ["peak"])


class Checks(unittest.TestCase):
    def test_every_program_exists(self) -> None:
        source = memory_truth.SCRIPT.read_text()
        for name in memory_truth.PROGRAMS:
            self.assertIn(f'"{name}": ', source)


if __name__ == "__main__":
    unittest.main()
