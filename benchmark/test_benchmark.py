"""The benchmark agrees with itself: programs, fixes, truths, stored answers, the sheet and the tables of README.md."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import run
import scoring
import tools
from pairs import HERE, PAIRS, PROGRAMS, patched

GROUPS = set(tools.GPUWHY_GROUPS.values())


class Programs(unittest.TestCase):
    def test_each_program_has_its_truth_and_a_fix_that_applies(self) -> None:
        files = {path.stem for path in PROGRAMS.glob("*.py")} - {"loop"}
        self.assertEqual(files, set(scoring.names()))
        self.assertEqual(files, {path.stem for path in PROGRAMS.glob("*.diff")})
        for name, truth in scoring.truths().items():
            with self.subTest(name):
                source = (PROGRAMS / f"{name}.py").read_text()
                fixed = patched(source, (PROGRAMS / f"{name}.diff").read_text())
                self.assertNotEqual(source, fixed)
                compile(fixed, name, "exec")
                self.assertIn(truth.group, GROUPS)
                self.assertTrue(truth.lines and truth.cause and truth.fix)
                self.assertEqual((len(truth.before), len(truth.after)), (PAIRS, PAIRS))
                self.assertTrue(min(*truth.before, *truth.after) > 0)

    def test_a_diff_of_another_text_does_not_apply(self) -> None:
        diff = (PROGRAMS / "file_log.diff").read_text()
        with self.assertRaises(ValueError):
            patched((PROGRAMS / "file_log.py").read_text().replace("log.flush()", "log.flush(); log.flush()"), diff)


class Sheet(unittest.TestCase):
    def test_each_stored_answer_is_judged_by_a_sentence_that_it_has(self) -> None:
        sheet = scoring.read(HERE / "sheet.json")
        self.assertTrue(sheet["judge"])
        for tool in tools.TOOLS:
            answers = {path.stem: path.read_text() for path in (HERE / "answers" / tool).glob("*.txt")}
            self.assertTrue(answers, tool)
            self.assertTrue((HERE / "answers" / tool / "version").read_text().strip())
            self.assertEqual(set(answers), set(sheet[tool]), tool)
            for name, row in sheet[tool].items():
                with self.subTest(tool=tool, name=name):
                    self.assertIn(row["remedy"], scoring.MARKS)
                    self.assertTrue(row["reason"])
                    self.assertTrue(row["quote"] or row["remedy"] == 0)
                    self.assertIn(scoring.squeezed(row["quote"]), scoring.squeezed(answers[name]))

    def test_the_readme_has_the_scores(self) -> None:
        text = scoring.tables(HERE, list(tools.TOOLS), scoring.names())
        page = (HERE / "README.md").read_text()
        for table in text.split("\n\n"):
            self.assertIn(table.strip(), page, "python3 benchmark/run.py --stored --table")
        totals = [scoring.total([one.remedy for one in scoring.scores(HERE, tool, scoring.names()).values()]) for tool in tools.TOOLS]
        front = scoring.squeezed((HERE.parent / "README.md").read_text())
        said = "gpuwhy leads to the right change in {}, nsys' rules in {}, TensorBoard's plugin in {}, HTA in {};"
        self.assertIn(said.format(*totals), front)


class Scores(unittest.TestCase):
    ANSWER = (
        "Bottleneck: CPU work between launches. The GPU waits.\nWhat to do: Remove the sleep at sleeper.py:21 (step) from\n"
        "            the loop.\n            Gain: about 2.6x (2.1x to 3.8x).\n  - Sleeping at sleeper.py:21 (step).\n"
        "Next: The bottleneck is then kernel launches. A CUDA graph: at least 9x in all.\n")

    def score(self, answer: str, before: float, after: float, quote: str = "Remove the sleep at sleeper.py:21 (step) from the loop.") -> scoring.Score:
        truth = scoring.Truth("a sleep", "no sleep", "host_cpu", (21,), (before,) * PAIRS, (after,) * PAIRS)
        return scoring.score("gpuwhy", "sleeper", truth, answer, {"remedy": 1, "quote": quote}, 1.05)

    def test_an_answer_that_is_right(self) -> None:
        one = self.score(self.ANSWER, 5.0, 2.0)
        self.assertEqual((one.group, one.line, one.remedy, one.inside, one.holds), (1, 1, 1, 1, None))
        self.assertEqual((one.said, one.cost), ("about 2.6x (2.1x to 3.8x)", 1.05))

    def test_an_answer_that_is_wrong(self) -> None:
        self.assertEqual(self.score(self.ANSWER, 5.0, 1.0).inside, 0)
        self.assertEqual(self.score(self.ANSWER.replace(":21", ":20"), 5.0, 2.0, "").line, 0)
        self.assertEqual(self.score(self.ANSWER.replace("CPU work between launches", "data loading", 1), 5.0, 2.0).group, 0)
        self.assertIsNone(self.score("Bottleneck: synchronization.\n", 5.0, 2.0).remedy, "it was judged by a sentence that is not there")

    def test_a_bound_of_a_gain_is_no_interval(self) -> None:
        for words, gain, holds in (
                ("at least 2x", 2.5, 1), ("at least 3x", 2.5, 0), ("at most 3x", 2.5, 1), ("at most 2x", 2.5, 0), ("gains little", 1.1, 1), ("gains little", 2.5, 0)):
            text = "Alone it gains little." if words == "gains little" else f"Gain: {words}."
            one = self.score(self.ANSWER.replace("Gain: about 2.6x (2.1x to 3.8x).", text), gain, 1.0)
            self.assertEqual((one.inside, one.holds), (None, holds), words)

    def test_a_line_as_torch_profiler_writes_it(self) -> None:
        self.assertEqual(self.score(self.ANSWER.replace("sleeper.py:21", "sleeper.py(21): step"), 5.0, 2.0, "").line, 1)
        self.assertEqual(self.score(self.ANSWER.replace("sleeper.py:21", "sleeper.py(20): step"), 5.0, 2.0, "").line, 0)

    def test_forms_of_a_gain(self) -> None:
        for text, low, high in (
                ("Gain: at least 1.54x, often 2.1x (an estimate).", 1.54, float("inf")), ("Gain: more than 9x.", 9, float("inf")),
                ("Gain: at most 129x (a rough bound).", 0, 129), ("Gain: about 4.8x in all (3.3x to 5.1x).", 3.3, 5.1),
                ("Gain alone: about 1.30x (1.19x to 1.35x).", 1.19, 1.35), ("Alone it gains little.", 0, scoring.WORTH_DOING)):
            self.assertEqual((scoring.said_gain(text) or ())[:2], (low, high), text)
        self.assertIsNone(scoring.said_gain("Use fewer launches."))

    def test_groups_of_the_other_tools(self) -> None:
        step = "Average Step Time 100 us\n  Kernel 20 us, 20 %\n  DataLoader 60 us, 60 %\n  CPU Exec 20 us, 20 %\n"
        self.assertEqual(tools.tensorboard_groups(step), {"data_loading"})
        advice = step + "Performance Recommendation\n  Kernels with 90% time are launched by Tensor Cores eligible operators."
        self.assertEqual(tools.tensorboard_groups(advice), {"gpu_compute"})
        hta = "t\nrank idle_time(ns) compute_time(ns) non_compute_time(ns)\n0 9 1 2\nx\n0 7 host_wait 8\n0 7 kernel_wait 1\n"
        self.assertEqual(tools.hta_groups(hta), tools.HOST_WAIT)
        self.assertEqual(tools.hta_groups(hta.replace("0 9 1", "0 1 9")), {"gpu_compute"})

    def test_new_recordings_are_scored_by_their_own_bare_runs(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "answers" / "gpuwhy").mkdir(parents=True)
            (path / "answers" / "gpuwhy" / "file_log.txt").write_text(self.ANSWER)
            (path / "times.json").write_text(json.dumps(
                {"bare": {"file_log": {"before": [4.0] * PAIRS, "after": [1.0] * PAIRS}}, "gpuwhy": {"file_log": 6.0}}))
            found = scoring.scores(path, "gpuwhy", ["file_log", "checkpoint"])
            self.assertEqual(found["file_log"].cost, 1.5)
            failed = found["checkpoint"]
            self.assertEqual((failed.group, failed.line, failed.remedy, failed.reason), (0, 0, 0, scoring.NO_ANSWER))
            self.assertEqual(scoring.scores(path, "nsys", ["file_log"]), {}, "a tool that did not run has no scores")
            (path / "answers" / "hta").mkdir()
            (path / "answers" / "hta" / "file_log.txt").write_text("t\nrank idle_time(ns)\n0 9\n")
            (path / "times.json").write_text(json.dumps({"kineto": {"file_log": {"plain": 4.0, "traced": 10.0}}}))
            self.assertEqual(scoring.scores(path, "hta", ["file_log"])["file_log"].cost, 2.5)


class Runs(unittest.TestCase):
    def test_the_end_of_a_run_ends_its_children(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pipe = pathlib.Path(folder) / "pipe"
            os.mkfifo(pipe)
            one = run.Run(pathlib.Path(folder), "nsys", "file_log", ["sh", "-c", f"sleep 600 > {pipe} & wait"])
            with pipe.open("rb") as end:
                one.end()
                self.assertTrue(select.select([end], [], [], 60)[0], "the child has the pipe open: it runs")
                self.assertEqual(end.read(), b"")

    def test_a_tool_that_is_not_installed_does_not_stop_the_others(self) -> None:
        commands = {"gpuwhy": ["/nonexistent/gpuwhy"], "nsys": ["sh", "-c", 'touch "${2%go}ready"; echo 2.5 ms/step', "sh"]}
        with (tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()),
              contextlib.redirect_stderr(io.StringIO()) as errors,
              unittest.mock.patch.object(run, "commands", lambda kind, *_: commands[kind])):
            run.record(pathlib.Path(folder), ["gpuwhy", "nsys"], ["file_log"], 1.0, None)
            self.assertEqual(scoring.read(pathlib.Path(folder) / "times.json"), {"nsys": {"file_log": 2.5}})
            self.assertIn("gpuwhy: /nonexistent/gpuwhy: No such file or directory", errors.getvalue())

    def test_wrong_arguments_write_nothing(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            missing = pathlib.Path(folder) / "missing"
            for command, words in ((["run.py", "--from", str(missing)], "no recordings"), (["pairs.py", "missing"], "invalid choice")):
                done = subprocess.run([sys.executable, str(HERE / command[0]), *command[1:]], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(words, done.stderr)
            self.assertFalse(missing.exists())


if __name__ == "__main__":
    unittest.main()
