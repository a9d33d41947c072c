"""What the checks of `gpuwhy try` read from its answers: python3 -m unittest discover -s tests/gpu"""

from __future__ import annotations

import json
import pathlib
import tempfile
import unittest
from collections.abc import Callable

from checks import tries
from harness import Result, Run, Status


class Stub:
    """A suite whose programs print these answers in turn."""

    gpuwhy = microbench = pathlib.Path("gpuwhy")

    def __init__(self, *answers: tuple[int, str]) -> None:
        self.answers, self.commands = list(answers), []

    def python(self, *words: str) -> list[str]:
        return ["python3", *words]

    def run(self, name: str, command: list[str], **more: object) -> Run:
        self.commands.append(command)
        code, text = self.answers.pop(0)
        return Run(command, pathlib.Path(tempfile.gettempdir()), code, text, "the last line\n", 1.0)

    def record(self, kind: str, fields: dict) -> None:
        pass


def results(check: object, stub: Stub) -> list[Result]:
    function: Callable = check.function  # type: ignore[attr-defined]
    return list(function(stub))


def answer(unit: str, **row: object) -> tuple[int, str]:
    return 0, json.dumps({"unit": unit, "remedies": [row]})


class Tries(unittest.TestCase):
    def test_a_blocked_program_must_not_be_faster(self) -> None:
        for outcome, passes in (("slower", True), ("no_difference", True), ("helps", False), ("fails", False)):
            row = {"outcome": outcome, "gain": 0.9, "low": 0.8, "high": 1.0}
            found = results(tries.changed("hf_trainer"), Stub(answer("optimizer", **row)))
            self.assertEqual([one.status is Status.PASS for one in found], [passes, True], found)
        no_gain = results(tries.changed("hf_trainer"), Stub(answer("run", outcome="no_difference", gain=None)))
        self.assertEqual([one.status for one in no_gain], [Status.FAIL] * 2)

    def test_no_answer_is_a_failure_and_no_library_is_none(self) -> None:
        self.assertEqual([one.status for one in results(tries.changed("jax"), Stub((1, "")))], [Status.FAIL] * 2)
        self.assertEqual([one.status for one in results(tries.changed("jax"), Stub((77, "")))], [Status.SKIPPED])

    def test_two_measurements_of_a_cost_overlap(self) -> None:
        def mode(low: float, high: float) -> tuple[int, str]:
            return 0, json.dumps({"modes": [{"mode": "light", "cost": (low + high) / 2, "low": low, "high": high}]})

        for second, passes in ((mode(0.015, 0.03), True), (mode(0.025, 0.03), False), ((1, ""), False)):
            [found] = results(tries.cost("gpt"), Stub(mode(0.01, 0.02), second))
            self.assertEqual(found.status is Status.PASS, passes, found)

    def test_a_fix_is_measured_as_by_hand(self) -> None:
        def rates(*values: float) -> list[tuple[int, str]]:
            return [(0, f"{value} steps/s\n") for value in values]

        # Without, with, with, without, without, with.
        hand = rates(10, 20, 21, 10, 10, 22)
        for low, high, passes in ((1.9, 2.05, True), (1.5, 1.8, False)):
            stub = Stub(*hand, answer("loop", outcome="helps", gain=(low + high) / 2, low=low, high=high))
            [found] = results(tries.against("pageable_1"), stub)
            self.assertEqual(found.status is Status.PASS, passes, found)
        self.assertEqual(stub.commands[0][-1] == "--fixed", False)
        self.assertIn("--against", stub.commands[-1])
        [found] = results(tries.against("pageable_1"), Stub(*hand, answer("run", outcome="helps", gain=2, low=2, high=2)))
        self.assertEqual(found.status, Status.SKIPPED)


if __name__ == "__main__":
    unittest.main()
