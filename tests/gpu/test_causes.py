"""The causes and what a good answer to them names: python3 -m unittest discover -s tests/gpu"""

from __future__ import annotations

import collections
import contextlib
import io
import json
import pathlib
import re
import sys
import tempfile
import time
import unittest

import gains
from cause_table import BUILT, CAUSES, MARK, READS, ROUNDS, marked_lines, names_line, names_words
from checks import causes
from harness import Mode, Run, Status, Suite
from intervention_table import FIXES, INTERVENTIONS, SCENARIOS
from prepared import Plan, Prepared
from rehearse import REPORT
from remedy_table import REMEDIES
from trace_report import Trace, first_screen, largest

# Causes that no line of the program itself makes.
OUTSIDE = {"shared_products", "shared_filter"}


class Table(unittest.TestCase):
    def test_each_kind_has_programs_in_both_halves(self) -> None:
        self.assertGreaterEqual(len(CAUSES), 24)
        self.assertEqual(2 * sum(case.held_out for case in CAUSES.values()), len(CAUSES))
        kinds = collections.defaultdict(list)
        for case in CAUSES.values():
            kinds[case.kind].append(case.held_out)
        for kind, held_out in kinds.items():
            self.assertIn(len(held_out), (2, 3, 4), kind)
            self.assertLessEqual(abs(2 * sum(held_out) - len(held_out)), 1, kind)
        self.assertEqual(len(kinds), 10)
        predicted = [case.held_out for case in CAUSES.values() if case.scenario]
        self.assertLessEqual(abs(2 * sum(predicted) - len(predicted)), 1)

    def test_each_program_has_a_marked_line_or_words(self) -> None:
        marked = marked_lines()
        self.assertEqual(set(marked) - set(REMEDIES), set(CAUSES) - OUTSIDE)
        for name, case in CAUSES.items():
            self.assertTrue(name in marked or case.names, name)
            re.compile(case.names)
            self.assertEqual(case.before, ("--program", name))
            self.assertGreaterEqual(case.rounds, 5)
            self.assertTrue(case.removes is None or case.removes in SCENARIOS, name)

    def test_marks_are_at_statements_of_the_module_of_the_program(self) -> None:
        modules = dict(re.findall(r'"(\w+)": "(\w+)"', FIXES.read_text()))
        for names, module in re.findall(r"dict.fromkeys\(\s*\(([^)]+)\), \"(\w+)\"\)", FIXES.read_text()):
            modules.update(dict.fromkeys(re.findall(r"\w+", names), module))
        for name, lines in marked_lines().items():
            self.assertEqual({line.split(":")[0] for line in lines}, {f"{modules[name]}.py"}, name)
            for line in lines:
                text = (FIXES.parent / line.split(":")[0]).read_text().splitlines()[int(line.split(":")[1]) - 1]
                self.assertNotEqual(MARK.sub("", text).strip(), "", line)

    def test_no_program_is_also_an_intervention(self) -> None:
        self.assertEqual(set(CAUSES) & set(INTERVENTIONS), set())


class Names(unittest.TestCase):
    def test_a_line_is_not_the_beginning_of_another(self) -> None:
        self.assertTrue(names_line("Sleeping at interventions/host_work.py:36 (request_quota)", ["host_work.py:36"]))
        self.assertTrue(names_line("at host_work.py:36.", ["host_work.py:4", "host_work.py:36"]))
        self.assertFalse(names_line("at host_work.py:361 (main)", ["host_work.py:36"]))
        self.assertFalse(names_line("at my_host_work.py:36 (main)", ["host_work.py:36"]))
        self.assertFalse(names_line("at host_work.py:36 (main)", []))

    def test_words_are_in_one_sentence_and_general_advice_is_none(self) -> None:
        self.assertTrue(names_words("A kernel is compiled for each new length of a batch.", BUILT))
        self.assertTrue(names_words("PyTorch recompiles in every step", BUILT))
        self.assertFalse(names_words("launch fewer, larger kernels (torch.compile)", BUILT))
        self.assertFalse(names_words("A kernel waits.\nShapes change.", BUILT))
        self.assertTrue(names_words("Remove the reads of single values (.item()).", READS))
        self.assertFalse(names_words("All threads are ready.", READS))
        self.assertFalse(names_words("anything", ""))


def row(name: str, real: float, predicted: float | None = None, low: float | None = None, high: float | None = None, **more) -> dict:
    """One cause whose runs before the fix had 10 steps per second, and a step of 100 ms."""
    found = {
        "kind": "cause", "name": name, "fix": "a fix", "held_out": False, "scenario": "no_host_work", "bare_before": [10.0] * 5,
        "bare_after": [10 * real] * 5, "traced_ns": 1e8, "predicted_untraced_ns": 1e8, "speedup": predicted, "low": low, "high": high,
        "bottleneck": "host_cpu", "expected": ["host_cpu"], "plan": [], "cause_kind": "host", "line_named": False, "words_named": False,
        "answer": "Sleeping | at x.py:1\nNone."}
    found.update(more)
    return {**found, **causes.after_the_fix(found)}


class Judgment(unittest.TestCase):
    def test_rows_are_summed_up(self) -> None:
        rows = [
            row("one", 2.0, 2.1, 1.9, 2.2, line_named=True), row("two", 2.0, 4.0, 3.0, 5.0, words_named=True),
            row("three", 1.14, bottleneck="copy")]
        judged = gains.judge(gains.gains(rows))
        self.assertEqual((judged.rows, judged.right, judged.named, judged.lines, judged.intervals, judged.inside), (3, 2, 2, 1, 2, 1))
        self.assertAlmostEqual(judged.median_error, (0.05 + 1.0) / 2)
        self.assertIn("right bottleneck 2 of 3 (67%), where the fix gained 15 % 2 of 2 (100%), line or cause named 2 of 3 (67%), the line 1 of 3 (33%)", judged.text())
        self.assertIn("in its interval 1 of 2 (50%)", judged.text())
        self.assertEqual(gains.judge([]).text(), "no programs")

    def test_the_step_after_the_fix_may_be_right_where_the_gain_is_not(self) -> None:
        # The program was twice as fast when it was traced: both of its steps, before and after the fix, were shorter.
        found = row("one", 2.0, 4.0, 3.6, 4.4, predicted_untraced_ns=2e8)
        self.assertEqual((found["after_ns"], found["predicted_after_ns"]), (5e7, 5e7))
        one = gains.gain(found)
        self.assertEqual((one.covered, one.after_inside, one.inside), (False, True, True))
        self.assertIsNone(gains.gain(row("two", 2.0, 2.0)).inside)

    def test_the_table_has_both_halves_and_room_for_reasons(self) -> None:
        text = gains.causes_table([row("one", 2.0, 2.1, 1.9, 2.2, line_named=True), row("two", 2.0, 4.0, 3.0, 5.0, held_out=True)])
        first, second = text.split("**Held out:**")
        self.assertIn("| host | `one` | a fix | host_cpu | yes | no | 2.10x (1.90..2.20) | 2.00x (2.00..2.00) | yes | -4.8% |", first)
        self.assertIn("| `two` | line and cause, gain |  |", second)


PROGRAM = """
import os, pathlib, sys
def main():
    if "CUDA_INJECTION64_PATH" in os.environ:
        pathlib.Path("gpuwhy-1.gpuwhy").write_text("small")
        pathlib.Path("gpuwhy-2.gpuwhy").write_text("the larger one")
    print("20.0 steps/s" if "--fixed" in sys.argv else "10.0 steps/s")
"""


class Turns(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.script = self.folder / "program.py"
        self.script.write_text(PROGRAM)
        self.suite = Suite(self.folder, self.folder, None, None)
        self.addCleanup(self.suite._log.close)

    def report(self, file: str, line: int) -> None:
        """The report that the stand-in for gpuwhy prints has this line of the host."""
        host = {"samples": 1, "lines": [{"file": file, "line": line, "function": "step", "cause": "sleep", "within": None}]}
        text = json.dumps({**REPORT, "host": host})
        stand_in = self.folder / "gpuwhy"
        screen = f"Bottleneck: CPU work. Sleeping at {file.rsplit('/', 1)[-1]}:{line} (step).\nGPU 0, each step: none"
        stand_in.write_text(f"#!{sys.executable}\nimport sys\nprint({text!r} if '--json' in sys.argv else {screen!r})\n")
        stand_in.chmod(0o755)

    def judged(self, name: str) -> list:
        plan, fixed = Plan(self.script, (), "json"), Plan(self.script, ("--fixed",), "json")
        programs = {
            role: Prepared(self.suite, role, one)
            for role, one in {"before": plan, "after": fixed, "traced": Plan(self.script, (), "json", Mode.VARIABLE)}.items()}
        for program in programs.values():
            program.wait_ready(time.monotonic() + 30)
        return list(causes.judge(self.suite, name, programs))

    def test_a_cause_is_judged_by_its_line(self) -> None:
        line = marked_lines()["backoff"][0]
        self.report(f"/somewhere/{line.split(':')[0]}", int(line.split(":")[1]))
        lines = self.judged("backoff")
        # The made-up report has another bottleneck.
        self.assertEqual([(one.name, one.status) for one in lines], [
            ("causes.backoff.gain", Status.PASS), ("causes.backoff.bottleneck", Status.FAIL), ("causes.backoff.named", Status.PASS)])
        found = self.suite.recorded("cause")[0]
        self.assertEqual((found["line_named"], found["words_named"], len(found["bare_before"])), (True, False, ROUNDS))
        self.assertEqual((found["after_ns"], found["predicted_after_ns"]), (5e7, None))
        self.assertFalse((self.folder / "traces").exists())
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual([one.status for one in causes.summary(self.suite)], [Status.PASS])
        self.assertIn("`backoff`", (self.folder / "causes.md").read_text())

    def test_another_line_is_a_miss_and_the_largest_trace_is_kept(self) -> None:
        self.report("host_work.py", 1)
        self.suite.keep_traces = True
        self.assertEqual(self.judged("backoff")[-1].status, Status.FAIL)
        self.assertEqual((self.folder / "traces" / "backoff.gpuwhy").read_text(), "the larger one")

    def test_the_largest_trace_of_a_run_is_read(self) -> None:
        self.report("x.py", 1)
        (self.folder / "gpuwhy-1.gpuwhy").write_text("one")
        (self.folder / "gpuwhy-22.gpuwhy").write_text("another")
        self.assertEqual(largest(self.suite, Run([], self.folder, 0, "", "", 1.0)).path.name, "gpuwhy-22.gpuwhy")

    def test_the_bare_programs_start_up_for_less_time(self) -> None:
        plans = causes.plans(self.suite, "clones")
        self.assertEqual(plans["before"].arguments[-4:], ("--seconds", "0.3", "--warm", "0.1"))
        self.assertEqual(plans["traced"].arguments, ("--program", "clones", "--seconds", "1.3"))


class Answer(unittest.TestCase):
    def test_the_first_line_of_the_host_may_be_absent(self) -> None:
        found = Trace.__new__(Trace)
        found.report = {**REPORT, "host": {"lines": [
            {"file": "a.py", "line": 3, "function": "f", "cause": "sleep", "within": {"file": "b.py", "function": "g"}},
            {"file": "c.py", "line": 5, "function": "h", "cause": "code", "within": None}]}}
        self.assertEqual(found.first_line()["file"], "a.py")
        found.report = {**REPORT, "host": None}
        self.assertIsNone(found.first_line())

    def test_the_answer_is_what_a_reader_sees_first(self) -> None:
        text = (
            "gpuwhy: process 1 (python3 prefetch.py), 2 s\nBottleneck: data loading. The GPU waits\n  for data at "
            "prefetch.py:3 (threads).\nFix 1: Have each batch ready.\nGPU 0 (NVIDIA H200), each step: computing 3 %\n")
        answer = first_screen(text)
        self.assertTrue(answer.startswith("Bottleneck: data") and answer.endswith("ready."), answer)
        self.assertTrue(names_words(answer, "batch"))
        self.assertFalse(names_words(answer, "prefetch|threads"), "names of files and functions are no words")


if __name__ == "__main__":
    unittest.main()
