"""What the checks of `gpuwhy try` read from its answers: python3 -m unittest discover -s tests/gpu"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from collections.abc import Callable
from unittest import mock

from checks import tries
from harness import Result, Run, Status


class Stub:
    """A suite whose programs print these answers in turn."""

    gpuwhy = microbench = pathlib.Path("gpuwhy")

    def __init__(self, *answers: tuple[int, str], scratch: str = "") -> None:
        self.answers, self.commands, self.scratch = list(answers), [], pathlib.Path(scratch)

    def folder(self, name: str) -> pathlib.Path:
        return self.scratch

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
    def test_an_answer_has_the_direction_that_is_certain(self) -> None:
        def passes(name: str, unit: str, outcome: str, gain: float | None, low: float, high: float) -> bool:
            stub = Stub(answer(unit, outcome=outcome, gain=gain, low=low, high=high))
            direction, found = results(tries.changed(name), stub)
            self.assertEqual(found.status, Status.PASS, found)
            return direction.status is Status.PASS

        for name, wanted in (("hf_trainer", (True, False, False)), ("lightning", (True, True, True)), ("server", (False, False, True))):
            unit = tries.PROGRAMS[name].units[0]
            rows = (("slower", 0.6, 0.5, 0.7), ("no_difference", 0.85, 0.7, 0.94), ("no_difference", 1.0, 0.9, 1.1))
            self.assertEqual(tuple(passes(name, unit, *row) for row in rows), wanted, name)
            for row in (("helps", 1.2, 1.1, 1.3), ("fails", 0.6, 0.5, 0.7), ("no_difference", 1.1, 1.06, 1.2), ("slower", None, 0.5, 0.7)):
                self.assertFalse(passes(name, unit, *row), f"{name}: {row}")
        # Whole runs have a start-up, too.
        with mock.patch.dict(tries.PROGRAMS, cupy=dataclasses.replace(tries.PROGRAMS["cupy"], units=("run", "loop"))):
            self.assertTrue(passes("cupy", "run", "no_difference", 0.98, 0.9, 1.04))
            self.assertFalse(passes("cupy", "loop", "no_difference", 0.98, 0.9, 1.04))

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

    def test_a_diff_is_measured_in_copies_and_the_files_stay(self) -> None:
        hand = [(0, f"{value} steps/s\n") for value in (10, 20, 21, 10, 10, 22)]
        row = answer("optimizer", outcome="helps", gain=2.0, low=1.9, high=2.1)
        for is_written, passes in ((False, [True, True]), (True, [False, True])):
            with tempfile.TemporaryDirectory() as scratch:
                stub = Stub(*hand, row, scratch=scratch)
                folder = pathlib.Path(scratch)

                def run(name: str, command: list[str], **more: object) -> Run:
                    if "--patch" in command[-1] and is_written:
                        (folder / "own" / "outside.py").write_text("")
                    return Stub.run(stub, name, command, **more)

                with mock.patch.object(stub, "run", run), mock.patch("shutil.which", lambda name: f"/bin/{name}"):
                    found = results(tries.patched("adamax_loop"), stub)
                self.assertEqual([one.status is Status.PASS for one in found], passes, found)
                if shutil.which("git"):
                    subprocess.run(["git", "apply", "--check", str(folder / "fix.diff")], cwd=folder / "before", check=True)
                self.assertIn("foreach=None)", (folder / "after" / "outside.py").read_text())
                self.assertIn(f"cd {folder}/own && exec gpuwhy try", stub.commands[-1][-1])
        with mock.patch("shutil.which", lambda name: None):
            [found] = results(tries.patched("adamax_loop"), Stub())
        self.assertEqual(found.status, Status.SKIPPED)


if __name__ == "__main__":
    unittest.main()
