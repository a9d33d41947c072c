"""A suite whose time is up ends the running programs and keeps its results: python3 -m unittest discover -s tests/gpu
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import time
import unittest

import suite as program
from harness import Check, Status, Suite, TimeUp, expect
from prepared import Plan, Prepared


class Minutes(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.suite = Suite(self.folder, self.folder, None, None)
        self.addCleanup(self.suite._log.close)

    def statuses(self) -> list[tuple[str, str]]:
        return [(line["name"], line["status"]) for line in json.loads((self.folder / "results.json").read_text())]

    def test_what_runs_is_ended_and_nothing_more_is_started(self) -> None:
        self.suite.deadline = time.monotonic() + 0.5
        with self.assertRaises(TimeUp):
            self.suite.run("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"])
        with self.assertRaises(TimeUp):
            self.suite.run("late", [sys.executable, "-c", "pass"])
        self.assertIn("ran into the time limit", (self.folder / "log.txt").read_text())

    def test_a_limit_of_the_program_itself_is_not_the_end_of_time(self) -> None:
        self.suite.deadline = time.monotonic() + 60
        self.assertIsNone(self.suite.run("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"], limit=0.3).code)

    def test_lines_before_the_end_are_kept_and_the_rest_is_said(self) -> None:
        def cut(suite: Suite):
            yield expect("first.early", True)
            suite.run("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"])
            yield expect("first.never", True)

        # The credit of the first one exceeds the remaining time; it is started all the same.
        checks = [
            Check("first", cut, credit=100.0), Check("second", cut),
            Check("table", lambda suite: iter([expect("table", True)]), credit=-1e9)]
        shortest, program.SHORTEST_CHECK = program.SHORTEST_CHECK, 0.2
        self.addCleanup(setattr, program, "SHORTEST_CHECK", shortest)
        self.suite.deadline = time.monotonic() + 0.6
        with contextlib.redirect_stdout(io.StringIO()):
            results = program.perform_all(self.suite, checks, self.suite.deadline, 1)
        found = [(result.name, result.status) for result in results]
        self.assertEqual(found, [
            ("first.early", Status.PASS), ("first", Status.SKIPPED), ("second", Status.SKIPPED), ("table", Status.PASS)])
        self.assertEqual([name for name, _ in self.statuses()], [name for name, _ in found])
        self.assertIn("the time was up while it ran", results[1].detail)
        self.assertEqual(results[2].detail, "the time budget is spent")
        self.assertEqual([line["name"] for line in self.suite.recorded("seconds")], ["first", "table"])

    def test_without_minutes_a_check_needs_its_credit(self) -> None:
        check = Check("long", lambda suite: iter([expect("long", True)]), credit=100.0)
        with contextlib.redirect_stdout(io.StringIO()):
            (line,) = program.perform_all(self.suite, [check], time.monotonic() + 50, 1)
        self.assertEqual((line.status, line.detail), (Status.SKIPPED, "the time budget is spent"))

    def test_programs_that_wait_are_ended(self) -> None:
        script = self.folder / "program.py"
        script.write_text("import time\ndef main():\n    time.sleep(60)\n")
        waiting, running = (Prepared(self.suite, name, Plan(script, (), "json")) for name in ("waiting", "running"))
        for one in (waiting, running):
            one.wait_ready(time.monotonic() + 30)
        self.suite.deadline = time.monotonic() + 0.5
        with self.assertRaises(TimeUp):
            running.turn()
        program.end_programs(self.suite)
        for one in (waiting, running):
            self.assertIsNotNone(one.process.poll())
            with self.assertRaises(ProcessLookupError):
                os.killpg(one.process.pid, 0)


if __name__ == "__main__":
    unittest.main()
