"""The remedies and how reports are judged by them: python3 -m unittest discover -s tests/gpu"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import rejudge
import remedy_gains
from cause_table import CAUSES, marked_lines
from checks import remedies
from harness import REPOSITORY, Mode, Run, Status, Suite
from intervention_table import FIXES, INTERVENTIONS
from prepared import Plan, Prepared
from rehearse import REPORT
from remedy_table import GPU_ENTRIES, OUTSIDE, REMEDIES, ROUNDS, TRIED, UNADVISED

# Programs whose fix is at no line that a report could name: a setting for the whole program, or its data.
NO_LINE = {
    "tf32_training", "autocast_convolutions", "odd_vocabulary", "double_chain", "layout_resnet", "single_attention", "anomaly_mode",
    "volume_segmenter", "speech_encoder", "unet_server", "long_documents", "checked_gan"}


def programs() -> dict[str, str]:
    """Program -> module, from the source of fixes.py."""
    tree = ast.parse(FIXES.read_text())
    table = next(node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "PROGRAMS")
    found: dict[str, str] = {}
    for key, value in zip(table.keys, table.values):
        if key is None:
            found.update(dict.fromkeys(ast.literal_eval(value.args[0]), ast.literal_eval(value.args[1])))
        else:
            found[ast.literal_eval(key)] = ast.literal_eval(value)
    return found


class Table(unittest.TestCase):
    def test_each_kind_has_programs_in_both_parts(self) -> None:
        judging = [case for case in REMEDIES.values() if case.held_out]
        self.assertGreaterEqual(sum(not case.is_control for case in judging), 20)
        self.assertGreaterEqual(sum(case.is_control for case in judging), 4)
        for kind in {case.kind for case in REMEDIES.values()}:
            self.assertEqual({case.held_out for case in REMEDIES.values() if case.kind == kind}, {False, True}, kind)

    def test_those_that_judge_come_last(self) -> None:
        marks = [case.held_out for case in REMEDIES.values()]
        self.assertEqual(marks, sorted(marks))

    def test_every_program_is_new_and_exists(self) -> None:
        known = programs()
        self.assertEqual(set(REMEDIES) - set(known), set())
        self.assertEqual(set(REMEDIES) & (set(CAUSES) | set(INTERVENTIONS)), set())
        for name, case in REMEDIES.items():
            self.assertEqual(case.before, ("--program", name))
            self.assertIn(f"def {name}(fixed: bool) -> Work:", (FIXES.parent / f"{known[name]}.py").read_text())

    def test_lines_are_marked_where_a_report_could_name_one(self) -> None:
        marked, known = marked_lines(), programs()
        wanted = {name for name, case in REMEDIES.items() if not case.is_control} - NO_LINE
        self.assertEqual(set(marked) & set(REMEDIES), wanted)
        for name in wanted:
            self.assertEqual({line.split(":")[0] for line in marked[name]}, {f"{known[name]}.py"})

    def test_no_remedy_is_right_and_wrong(self) -> None:
        for name, case in REMEDIES.items():
            self.assertFalse(set(case.right) & case.wrong, name)
            self.assertTrue(case.right or case.wrong, name)
            self.assertTrue(case.is_control or case.rounds >= 5, name)
            self.assertTrue(all(re.fullmatch(r"[a-z0-9_]+", one) for one in (*case.right, *case.wrong)), name)
        self.assertLessEqual({"tf32", "bf16"}, REMEDIES["tf32_small"].wrong)
        self.assertIn("batch_grids", REMEDIES["dependent_layers"].wrong)
        self.assertLessEqual(GPU_ENTRIES, REMEDIES["roof_products"].wrong)

    def test_each_fix_is_said_by_an_entry_of_the_catalogue(self) -> None:
        sources = sorted((REPOSITORY / "report" / "src" / "run" / "remedies" / "catalog").glob("*.rs"))
        if not sources:
            self.skipTest("there is no catalogue")
        known = set(re.findall(r'id: "(\w+)"', "".join(path.read_text() for path in sources)))
        self.assertEqual({name for name, case in REMEDIES.items() if case.right and not known & set(case.right)}, set())

    def test_some_are_tried_from_outside(self) -> None:
        for held_out in (False, True):
            self.assertGreaterEqual(sum(OUTSIDE[name].held_out == held_out for name in TRIED), 8)
        self.assertFalse([name for name in TRIED if name in REMEDIES and REMEDIES[name].is_control])

    def test_what_no_entry_advises_is_only_tried(self) -> None:
        known = programs()
        self.assertFalse(set(UNADVISED) & set(REMEDIES))
        for name, case in UNADVISED.items():
            self.assertEqual((case.before, case.right), (("--program", name), ()))
            self.assertIn(f"def {name}(fixed: bool) -> Work:", (FIXES.parent / f"{known[name]}.py").read_text())
        sources = (REPOSITORY / "report" / "src" / "run" / "remedies" / "catalog").glob("*.rs")
        names = set(re.findall(r'(?:id: |change\(\s*)"(\w+)"', "".join(path.read_text() for path in sources)))
        self.assertEqual({case.outside for case in OUTSIDE.values()} - names, set())


def entry(name: str, speedup: float | None = 2.0, low: float | None = 1.8, high: float | None = 2.2, **more) -> dict:
    return {
        "id": name, "text": f"do {name}", "at": None, "results": "same", "certainty": "measured", "speedup": speedup, "low": low,
        "high": high, "link": None, "outside": False, **more}


def row(name: str, said: list[dict], real: float = 2.0, scatter: float = 0.0) -> dict:
    """A row of a program whose runs before the fix had 10 steps per second."""
    case = REMEDIES[name]
    after = [10 * real * (1 + scatter * (number - 2) / 2) for number in range(5)]
    measured = {
        "bare_before": [] if case.is_control else [10.0] * 5, "bare_after": [] if case.is_control else after, "traced": 9.0,
        "traced_ns": 1.1e8, "predicted_untraced_ns": None, "bottleneck": "gpu_compute"}
    return {"kind": "remedy", **remedy_gains.row(name, case, measured, said)}


def lines_of(found: dict) -> dict[str, Status]:
    name = found["name"]
    return {line.name.rpartition(".")[2]: line.status for line in remedies.judged(f"remedies.{name}", REMEDIES[name], found)}


class Judgment(unittest.TestCase):
    def test_the_right_remedy_is_found_among_the_first_three(self) -> None:
        passed = dict.fromkeys(("gain", "said", "first", "interval"), Status.PASS)
        self.assertEqual(lines_of(row("tf32_training", [entry("tf32")])), passed)
        self.assertEqual(lines_of(row("tf32_training", [entry("bf16"), entry("fuse"), entry("tf32")])), passed)
        fourth = lines_of(row("tf32_training", [entry("bf16"), entry("fuse"), entry("fp8"), entry("tf32")]))
        self.assertEqual(fourth, {"gain": Status.PASS, "said": Status.FAIL, "first": Status.PASS})

    def test_the_order_of_the_right_ones_chooses(self) -> None:
        said = [entry("fused_optimizer", 1.5, 1.4, 1.6), entry("foreach_fused")]
        self.assertEqual(remedy_gains.answer(row("foreach_adam", said)).chosen, "foreach_fused")
        self.assertEqual(remedy_gains.answer(row("loop_adamw", said)).chosen, "fused_optimizer")

    def test_a_wrong_remedy_may_not_be_the_first(self) -> None:
        found = lines_of(row("saved_steps", [entry("tf32"), entry("save_less")]))
        self.assertEqual((found["first"], found["said"]), (Status.FAIL, Status.PASS))
        self.assertEqual(lines_of(row("saved_steps", [entry("save_less"), entry("tf32")]))["first"], Status.PASS)
        self.assertEqual(remedy_gains.answer(row("saved_steps", [entry("tf32")])).misses(), ["right remedy", "said tf32"])

    def test_the_gain_is_inside_the_interval_or_reaches_it(self) -> None:
        self.assertEqual(lines_of(row("tf32_training", [entry("tf32")], real=3.0))["interval"], Status.FAIL)
        self.assertEqual(lines_of(row("tf32_training", [entry("tf32")], real=2.3, scatter=0.1))["interval"], Status.PASS)
        one = remedy_gains.answer(row("tf32_training", [entry("tf32")], real=2.3, scatter=0.1))
        self.assertEqual((one.inside, one.reached), (False, True))
        self.assertNotIn("interval", lines_of(row("tf32_training", [entry("tf32", None, None, None)])))

    def test_a_fix_without_a_gain_is_a_failure_of_the_program(self) -> None:
        self.assertEqual(lines_of(row("tf32_training", [entry("tf32")], real=1.02))["gain"], Status.FAIL)
        self.assertEqual(lines_of(row("odd_vocabulary", [entry("unaligned")], real=1.02))["gain"], Status.PASS)

    def test_no_remedy_is_a_miss_for_a_program_with_a_fix_and_right_for_others(self) -> None:
        self.assertEqual(lines_of(row("new_scalars", [])), {"gain": Status.PASS, "said": Status.FAIL, "first": Status.PASS})
        self.assertEqual(lines_of(row("roof_products", [])), {"silent": Status.PASS})
        self.assertEqual(lines_of(row("roof_products", [entry("at_roof")])), {"silent": Status.PASS})
        self.assertEqual(lines_of(row("tf32_small", [entry("graph"), entry("compile"), entry("tf32")])), {"silent": Status.FAIL})

    def test_the_summary_counts_programs_and_controls(self) -> None:
        found = remedy_gains.answers([
            row("tf32_training", [entry("tf32")]), row("saved_steps", [entry("bf16"), entry("save_less")], real=3.0),
            row("new_scalars", []), row("roof_products", [entry("tf32")])])
        text = remedy_gains.summary(found)
        self.assertIn("3 programs: fix among the first 3 remedies 2 of 3 (67%), as the first 1 of 3 (33%)", text)
        self.assertIn("nonsense as the first 1 of 3 (33%), gain in its interval 1 of 2 (50%)", text)
        self.assertIn("controls without nonsense 0 of 1 (0%)", text)
        self.assertIn("0 programs", remedy_gains.summary([]))


class Page(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_the_tables_are_written_and_replaced(self) -> None:
        tried = {
            "kind": "tried", "name": "tf32_training", "remedy": "tf32", "bare_before": [10.0], "bare_after": [20.0], "tried": 2.1,
            "tried_low": 2.0, "tried_high": 2.2, "why": None}
        rows = [row("tf32_training", [entry("tf32")]), row("saved_steps", [entry("tf32")]), row("rate_limited", []), tried]
        file, page = self.folder / "measured.jsonl", self.folder / "remedies.md"
        for _ in range(2):
            file.write_text("".join(json.dumps(line) + "\n" for line in rows))
            with mock.patch.object(sys, "argv", ["remedy_gains.py", "--docs", str(page), str(file)]), \
                    contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(remedy_gains.main(), 0)
        text = page.read_text()
        self.assertEqual(text.count("| precision | `tf32_training` | TF32 | `tf32_matmul`, `tf32` | `tf32` | 2.00x (1.80..2.20) | 2.00x"), 1)
        self.assertIn("| host | `saved_steps` | every fiftieth step | `save_less` | `tf32` |  | 2.00x (2.00..2.00) |", text)
        self.assertIn("| control | `rate_limited` | none | none | none |  |  |  |  |", text)
        self.assertIn("| `saved_steps` | right remedy, said tf32 |  |", text)
        self.assertIn("| `tf32_training` | `tf32` | 2.00x (2.00..2.00) | 2.10x (2.00..2.20) | +5.0% | yes |", text)

    def test_without_rows_there_is_no_page(self) -> None:
        with mock.patch.object(sys, "argv", ["remedy_gains.py", "--docs", str(self.folder / "x.md"), str(self.folder / "none")]), \
                contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(remedy_gains.main(), 3)
        self.assertFalse((self.folder / "x.md").exists())


PROGRAM = """
import os, pathlib, sys
def main():
    if "CUDA_INJECTION64_PATH" in os.environ:
        pathlib.Path("gpuwhy-1.gpuwhy").write_text("trace")
    print("20.0 steps/s" if "--fixed" in sys.argv else "10.0 steps/s")
"""
ANSWER = {"remedies": [{"id": "tf32_matmul", "gain": 2.05, "low": 1.9, "high": 2.2, "outcome": "helps"}]}


class Runs(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.script = self.folder / "program.py"
        self.script.write_text(PROGRAM)
        self.suite = Suite(self.folder, self.folder, None, None)
        self.addCleanup(self.suite._log.close)

    def gpuwhy(self, said: list[dict], answer: dict | None = None) -> None:
        """A stand-in that prints a report with these remedies, or this answer of `try`."""
        report = {**REPORT, "bottleneck": {**REPORT["bottleneck"], "remedies": said}}
        stand_in = self.folder / "gpuwhy"
        stand_in.write_text(
            f"#!{sys.executable}\nimport sys\nprint({json.dumps(answer)!r} if sys.argv[1] == 'try' else {json.dumps(report)!r})\n")
        stand_in.chmod(0o755)

    def prepared(self, name: str) -> dict[str, Prepared]:
        plans = {
            role: Plan(self.script, ("--fixed",) if role == "after" else (), "json", Mode.VARIABLE if role == "traced" else Mode.BARE)
            for role in remedies.plans(self.suite, name)}
        found = {role: Prepared(self.suite, role, plan) for role, plan in plans.items()}
        for program in found.values():
            program.wait_ready(time.monotonic() + 30)
        return found

    def test_a_program_is_run_judged_and_judged_again(self) -> None:
        at = marked_lines()["new_scalars"][0]
        self.gpuwhy([entry("scalar_tensor", at=f"{at} (step)")])
        self.suite.keep_traces = True
        lines = list(remedies.judge(self.suite, "new_scalars", self.prepared("new_scalars")))
        self.assertEqual([line.status for line in lines], [Status.PASS] * 4, lines)
        found = self.suite.recorded("remedy")[0]
        self.assertEqual((len(found["bare_before"]), found["at_named"], found["scenario"]), (ROUNDS, True, "scalar_tensor"))
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual([line.status for line in remedies.summary(self.suite)], [Status.PASS])
        self.assertIn("`new_scalars`", (self.folder / "remedies.md").read_text())

        # The present build says something else about the kept trace.
        self.gpuwhy([entry("tf32")])
        again = rejudge.judged(found, self.folder / "traces", self.suite)
        self.assertEqual((again["bare_after"], again["scenario"], again["at_named"]), (found["bare_after"], None, None))

    def test_a_control_is_only_traced(self) -> None:
        self.assertEqual(set(remedies.plans(self.suite, "rate_limited")), {"traced"})
        self.gpuwhy([entry("sleep")])
        lines = list(remedies.judge(self.suite, "rate_limited", self.prepared("rate_limited")))
        self.assertEqual([(line.name, line.status) for line in lines], [("remedies.rate_limited.silent", Status.PASS)])
        self.assertEqual(self.suite.recorded("remedy")[0]["bare_before"], [])

    def test_the_gain_from_outside_is_compared_with_that_by_hand(self) -> None:
        self.gpuwhy([], ANSWER)
        self.suite.selected = ["remedies.try.tf32_training"]
        plans = {
            "before": Plan(self.script, (), "json"), "after": Plan(self.script, ("--fixed",), "json")}
        with mock.patch.object(remedies, "TRIES", remedies.Tries()), \
                mock.patch.object(remedies.HAND, "plans", lambda suite, name: plans), mock.patch.object(remedies.HAND, "_started", {}):
            lines = list(remedies.from_outside("tf32_training").function(self.suite))
        self.assertEqual([line.status for line in lines], [Status.PASS], lines)
        found = self.suite.recorded("tried")[0]
        self.assertEqual((found["tried"], found["bare_before"], found["bare_after"]), (2.05, [10.0] * 5, [20.0] * 5))
        self.assertAlmostEqual(remedy_gains.difference(found), 0.025)
        self.assertIn("2.00x (2.00 to 2.00) by hand, from outside 2.05x", lines[0].detail)

    def test_gains_by_hand_are_those_of_pairs(self) -> None:
        found = {"bare_before": [10.0, 20.0, 10.0], "bare_after": [20.0, 42.0, 19.0], "tried": 2.2, "tried_low": 2.05, "tried_high": 2.3}
        self.assertEqual((remedy_gains.by_hand(found), remedy_gains.hand_interval(found)), (2.0, (1.9, 2.1)))
        self.assertTrue(remedy_gains.overlap(found))
        self.assertFalse(remedy_gains.overlap({**found, "tried_low": 2.15}))
        self.assertIsNone(remedy_gains.overlap({**found, "tried_low": None}))

    def test_programs_run_one_after_the_other_while_none_loads(self) -> None:
        # Each says when it starts to load, has its turn, and ends.
        script = """if True:
            import sys, time, types
            sys.path.insert(0, sys.argv[1])
            torch = sys.modules["torch"] = types.ModuleType("torch")
            torch.cuda = types.SimpleNamespace(synchronize=lambda: None)
            import fixes
            def say(what): print(what, flush=True); open(sys.argv[3], "a").write(what + "\\n")
            with fixes.turn(sys.argv[2], False) as ready:
                say("load")
                ready()
                say("begin")
                time.sleep(0.01)
                say("end")
        """
        turn, said = self.folder / "turn", self.folder / "said"
        words = [sys.executable, "-c", script, str(FIXES.parent), str(turn), str(said)]
        running = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(4)]
        self.assertEqual([process.wait() for process in running], [0] * 4)
        lines = said.read_text().split()
        self.assertEqual(turn.stat().st_size, 4)
        loaded = 0
        while lines:
            count = lines.index("begin")
            loaded += count
            self.assertEqual(lines[:3 * count], ["load"] * count + ["begin", "end"] * count)
            lines = lines[3 * count:]
        self.assertEqual(loaded, 4)

    def test_an_answer_without_a_gain_says_why(self) -> None:
        self.assertEqual(remedies.tried(json.dumps(ANSWER), "tf32_matmul")["tried"], 2.05)
        self.assertEqual(remedies.tried("no JSON", "tf32")["why"], "no answer")
        self.assertEqual(remedies.tried(json.dumps(ANSWER), "gc")["why"], "not tried")
        nothing = {"remedies": [{"id": "gc", "gain": None, "outcome": "not_applicable", "why": "no collector"}]}
        self.assertEqual(remedies.tried(json.dumps(nothing), "gc"), {
            "tried": None, "tried_low": None, "tried_high": None, "why": "not_applicable: no collector"})

    def test_the_command_names_the_remedy_and_the_program_waits_for_its_turn(self) -> None:
        words = remedies.command(self.suite, "foreach_adam", pathlib.Path("/turn"))
        self.assertEqual(words[words.index("--remedy") + 1], "fused_optimizer")
        self.assertLess(words.index("--budget"), words.index("--"))
        self.assertEqual(words[-2:], ["--turn", "/turn"])


class Report(unittest.TestCase):
    def test_a_report_of_an_earlier_version_has_no_remedies(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            suite = Suite(pathlib.Path(folder), pathlib.Path(folder), None, None)
            self.addCleanup(suite._log.close)
            old = {**REPORT, "bottleneck": {key: value for key, value in REPORT["bottleneck"].items() if key != "remedies"}}
            run = Run([], pathlib.Path(folder), 0, json.dumps(old), "", 1.0)
            with mock.patch.object(suite, "run", lambda *_: run):
                self.assertEqual(remedies.Trace(suite, pathlib.Path("x.gpuwhy")).remedies(), [])


if __name__ == "__main__":
    unittest.main()
