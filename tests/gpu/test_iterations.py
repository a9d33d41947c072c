"""Comparison of iterations with those of a server: python3 -m unittest discover -s tests/gpu"""

from __future__ import annotations

import dataclasses
import pathlib
import unittest

from checks import serving
from harness import Run, Status
from iterations import NO_REQUESTS, SLACK_NS, compare, partners

MS = 1_000_000


def iteration(start: int, end: int, kind: str = "decode", sequences: int = 4, tokens: int = 4) -> dict:
    return {"kind": kind, "sequences": sequences, "tokens": tokens, "start_ns": start * MS, "end_ns": end * MS}


def report(no_work_ns: int = 0) -> dict:
    return {"serving": {"kinds": []}, "devices": [{"leaves": {"no_work": no_work_ns}}]}


class Partners(unittest.TestCase):
    def test_an_iteration_has_one_end(self) -> None:
        truth = [iteration(0, 2), iteration(2, 4), iteration(4, 6)]
        ends = [1 * MS, 3 * MS, 3 * MS + 5, 5 * MS]
        self.assertEqual(partners(ends, truth), [truth[0], truth[1], None, truth[2]])

    def test_iterations_that_overlap_are_taken_in_order(self) -> None:
        truth = [iteration(0, 3), iteration(1, 5), iteration(3, 7)]
        self.assertEqual(partners([2 * MS, 4 * MS, 6 * MS], truth), truth)

    def test_clocks_may_differ_a_little(self) -> None:
        truth = [iteration(1, 2)]
        for end, fits in ((2 * MS + SLACK_NS, True), (2 * MS + SLACK_NS + 1, False), (MS - SLACK_NS - 1, False)):
            self.assertEqual(partners([end], truth), truth if fits else [None])

    def test_one_that_was_not_found_is_skipped(self) -> None:
        truth = [iteration(0, 2), iteration(2, 4), iteration(4, 6)]
        self.assertEqual(partners([1 * MS, 5 * MS], truth), [truth[0], truth[2]])


class Compare(unittest.TestCase):
    def test_all_is_right(self) -> None:
        truth = [iteration(0, 2, "prefill", 1, 10), {"kind": NO_REQUESTS, "start_ns": 2 * MS, "end_ns": 4 * MS}, iteration(4, 6)]
        steps = [iteration(0, 1, "prefill or mixed", 1, 10), iteration(1, 5)]
        found = compare(report(2 * MS), steps, truth)
        self.assertEqual((found.boundaries, found.right_kinds, found.exact, found.counted), (1.0, 1.0, 2, 2))
        self.assertEqual((found.kinds, found.wrong), ({"prefill or mixed": 1, "decode": 1}, []))
        self.assertAlmostEqual(found.waiting, 1 / 3)
        self.assertAlmostEqual(found.no_requests, 1 / 3)

    def test_what_is_wrong_is_seen(self) -> None:
        truth = [iteration(0, 2, "mixed", 4, 90), iteration(2, 4), iteration(4, 6), iteration(6, 8)]
        steps = [iteration(0, 1), iteration(1, 3), iteration(3, 5, sequences=8)]
        found = compare(report(), steps, truth)
        self.assertEqual((found.boundaries, found.same_kind, found.matched, found.exact), (0.75, 2, 3, 1))
        self.assertAlmostEqual(found.right_kinds, 2 / 3)
        self.assertEqual(found.wrong, [(steps[0], truth[0]), (steps[2], truth[2])])

    def test_an_iteration_without_tokens_is_not_counted(self) -> None:
        found = compare(report(), [iteration(0, 1, sequences=4, tokens=0)], [iteration(0, 2)])
        self.assertEqual((found.matched, found.counted, found.exact), (1, 0, 0))

    def test_a_report_without_iterations_has_found_none(self) -> None:
        found = compare({"serving": None}, [], [iteration(0, 2)])
        self.assertEqual((found.boundaries, found.right_kinds, found.there, found.found), (0.0, 0.0, 1, 0))


class Judged(unittest.TestCase):
    TRUTH = [iteration(2 * n, 2 * n + 2) for n in range(200)]
    RIGHT = compare(report(), TRUTH, TRUTH)

    def statuses(self, name: str = "full", **changes: object) -> list[Status]:
        return [result.status for result in serving.judged(name, dataclasses.replace(self.RIGHT, **changes))]

    def test_each_promise_can_fail(self) -> None:
        self.assertEqual(self.statuses(), [Status.PASS] * 4)
        for place, changes in enumerate(({"found": 202}, {"same_kind": 197}, {"exact": 199}, {"no_requests": 0.03})):
            expected = [Status.FAIL if number == place else Status.PASS for number in range(4)]
            self.assertEqual(self.statuses(**changes), expected, changes)

    def test_without_ids_of_the_host_tokens_are_not_judged(self) -> None:
        self.assertEqual(self.statuses("ids_on_gpu", exact=0)[2], Status.SKIPPED)

    def test_a_report_without_tokens_has_no_exact_ones(self) -> None:
        self.assertEqual(self.statuses(exact=0, counted=0)[2], Status.FAIL)

    def test_the_rate_is_that_of_the_server(self) -> None:
        run = Run([], pathlib.Path(), 0, "912.5 tokens/s in 5.00 s; 3 decode", "", 5.0)
        self.assertEqual(serving.tokens_per_second(run), 912.5)
        self.assertEqual(serving.tokens_per_second(dataclasses.replace(run, stdout="error")), 0.0)


if __name__ == "__main__":
    unittest.main()
