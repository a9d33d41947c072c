"""The parts of the suite that can be checked without a GPU: python3 -m unittest discover -s tests/gpu

Results are made up, and programs are small scripts. The programs themselves: `rehearse.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator

import gains
import suite
from cause_table import CAUSES
from checks import auto, counters, inside, interventions, monitor, native_cost, real, untraced, weight
from gains_table import main as print_tables
from harness import Mode, Result, Run, Status, Suite, ends_within, read_lines
from intervention_table import FIXES, INTERVENTIONS, SCENARIOS
from prepared import Failed, Group, Missing, Plan, Prepared, finish_all
from record_counters import convert
from rehearse import KERNELS, REPORT
from trace_report import Trace

HERE = pathlib.Path(__file__).resolve().parent


def row(name: str, real_gain: float, predicted: float | None = None, low: float | None = None, high: float | None = None,
        held_out: bool = False, bottleneck: str = "copy") -> dict:
    """One intervention whose runs before the fix had 10 steps per second."""
    return {
        "kind": "intervention", "name": name, "fix": "a fix", "held_out": held_out, "scenario": "copies_overlapped",
        "bare_before": [9.8, 10.0, 10.2], "bare_after": [9.8 * real_gain, 10 * real_gain, 10.2 * real_gain], "traced_ns": 1.01e8,
        "predicted_untraced_ns": 1e8, "speedup": predicted, "low": low,
        "high": high, "bottleneck": bottleneck, "expected": ["copy"], "plan": []}


class Gains(unittest.TestCase):
    def test_the_gain_is_that_of_the_medians(self) -> None:
        found = gains.gain(row("one", 2.0, 2.2, 1.9, 2.1))
        self.assertAlmostEqual(found.real, 2.0)
        self.assertAlmostEqual(found.error, 0.1)
        self.assertAlmostEqual(found.after_error, 2.0 / 2.2 - 1)
        self.assertTrue(found.covered)
        self.assertFalse(found.exceeded)

    def test_what_is_above_the_interval_is_reported(self) -> None:
        summary = gains.summarize(gains.gains([row("one", 2.0, 1.5, 1.4, 1.6), row("two", 1.0, 1.5, 1.4, 1.6)]))
        self.assertEqual((summary.intervals, summary.covered, summary.exceeded), (2, 0, ("one",)))
        self.assertIn("more than predicted at most: one", summary.text())
        bound = gains.summarize(gains.gains([row("one", 2.0, 1.5), row("two", 1.2, 1.5)]))
        self.assertEqual((bound.intervals, bound.exceeded), (0, ("one",)))

    def test_a_row_without_prediction_is_no_error(self) -> None:
        summary = gains.summarize(gains.gains([row("one", 2.0), row("two", 2.0, bottleneck="launch")]))
        self.assertEqual((summary.rows, summary.predicted, summary.coverage, summary.right_bottlenecks), (2, 0, None, 1))
        self.assertIsNone(gains.is_calibrated(summary))

    def test_a_program_without_a_rate_is_left_out(self) -> None:
        self.assertEqual(gains.gains([{**row("one", 2.0), "bare_after": []}, {**row("two", 2.0), "bare_before": [0.0]}]), [])

    def test_the_last_measurement_of_a_program_counts(self) -> None:
        self.assertAlmostEqual(gains.gains([row("one", 2.0), row("one", 3.0)])[0].real, 3.0)

    def test_nine_of_ten_in_their_interval_and_five_per_cent(self) -> None:
        good = [row(f"{number}", 2.0, 2.08, 1.9, 2.2) for number in range(9)]
        outside = row("outside", 2.0, 2.5, 2.4, 2.6)
        self.assertTrue(gains.is_calibrated(gains.summarize(gains.gains([*good, outside]))))
        also = {**outside, "name": "also outside"}
        self.assertFalse(gains.is_calibrated(gains.summarize(gains.gains([*good, outside, also]))))
        wrong = [row(f"{number}", 2.0, 2.12, 1.9, 2.2) for number in range(10)]
        self.assertFalse(gains.is_calibrated(gains.summarize(gains.gains(wrong))))
        self.assertIsNone(gains.is_calibrated(gains.summarize(gains.gains(good))))

    def test_some_turns_reach_an_interval_that_the_median_does_not(self) -> None:
        summary = gains.summarize(gains.gains([row("one", 2.0, 2.08, 2.05, 2.2), row("two", 2.0, 2.5, 2.4, 2.6)]))
        self.assertEqual((summary.covered, summary.reached), (0, 1))

    def test_the_halves_are_distinguished(self) -> None:
        text = gains.gains_table(gains.gains([row("one", 2.0, 2.0, 1.9, 2.1), row("two", 3.0, 2.0, 1.9, 2.1, held_out=True)]))
        first, second = text.split("**Held out:**")
        self.assertIn("`one`", first)
        self.assertIn("| 2.00x (1.90..2.10) | 2.00x (1.92..2.08) | yes | +0.0% |", first)
        self.assertIn("| 2.00x (1.90..2.10) | 3.00x (2.88..3.12) | no | +50.0% |", second)

    def test_the_table_of_untraced_steps(self) -> None:
        measured = {"name": "one", "bare_ns": 1e6, "traced_ns": 1.1e6, "predicted_untraced_ns": 1.02e6}
        text = gains.untraced_table([measured, {**measured, "name": "none", "predicted_untraced_ns": None}])
        self.assertIn("1 programs, median error 2.0%", text)
        self.assertIn("| `one` | 1,000.0 | +10.0% | +2.0% |", text)
        self.assertNotIn("none", text)


class Weight(unittest.TestCase):
    def run_of(self, stdout: str) -> Run:
        return Run([], pathlib.Path(), 0, stdout, "", 1.0)

    def test_loading_and_hooking_are_apart(self) -> None:
        self.assertEqual(weight.started(self.run_of("load_ns=1500000 hook_ns=500000 answer=1\n")), (1.5, 0.5))
        with self.assertRaises(RuntimeError):
            weight.started(self.run_of("load_ns=1500000 hook_ns=500000 answer=0\n"))


class Ends(unittest.TestCase):
    def test_the_end_of_a_process_is_seen(self) -> None:
        with subprocess.Popen(["sleep", "60"]) as process:
            self.assertFalse(ends_within(process, 0.0))
            process.kill()
            self.assertTrue(ends_within(process, 60.0))
        self.assertTrue(ends_within(process, 0.0), "it was waited for")


class Table(unittest.TestCase):
    def test_there_are_thirty_and_half_of_them_are_held_out(self) -> None:
        self.assertGreaterEqual(len(INTERVENTIONS), 30)
        self.assertEqual(2 * sum(case.held_out for case in INTERVENTIONS.values()), len(INTERVENTIONS))
        predicted = [case for case in INTERVENTIONS.values() if case.scenario]
        self.assertLessEqual(abs(2 * sum(case.held_out for case in predicted) - len(predicted)), 1)

    def test_every_program_exists(self) -> None:
        spec = importlib.util.spec_from_file_location("fixes", FIXES)
        fixes = importlib.util.module_from_spec(spec)
        sys.modules["fixes"] = fixes
        self.addCleanup(sys.modules.pop, "fixes")
        spec.loader.exec_module(fixes)
        named = {case.before[1] for case in INTERVENTIONS.values() if case.script == FIXES}
        named |= {arguments[1] for script, arguments in untraced.PROGRAMS.values() if script == FIXES}
        named |= {arguments[1] for arguments in native_cost.PROGRAMS.values()} | set(inside.CASES) | set(CAUSES)
        self.assertEqual(named - set(fixes.PROGRAMS), set())
        for program, module in fixes.PROGRAMS.items():
            self.assertIn(f"def {program}(fixed: bool) -> Work:", (FIXES.parent / f"{module}.py").read_text(), program)
        for case in INTERVENTIONS.values():
            self.assertTrue(case.script.exists(), case.script)

    def test_no_check_is_there_twice(self) -> None:
        names = [check.name for check in suite.everything(time.monotonic(), argparse.Namespace())]
        self.assertEqual([name for name in set(names) if names.count(name) > 1], [])

    def test_every_scenario_is_used(self) -> None:
        self.assertEqual({case.removes for case in [*INTERVENTIONS.values(), *CAUSES.values()]} - {None}, set(SCENARIOS))


PROGRAM = """
import pathlib, sys, time
turns = 0
def main():
    global turns
    turns += 1
    if "--fail" in sys.argv:
        raise ValueError("a made-up failure")
    if "CUDA_INJECTION64_PATH" in __import__("os").environ:
        pathlib.Path("gpuwhy-1.gpuwhy").touch()
    rate = {"--fixed": 20.0, "--rehearsed": 1.0}.get(sys.argv[-1], 10.0)
    print(f"{rate * turns:.1f} steps/s")
"""


class Turns(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.script = self.folder / "program.py"
        self.script.write_text(PROGRAM)
        stand_in = self.folder / "gpuwhy"
        kernels = f"print({json.dumps(KERNELS)!r} if sys.argv[1] == 'kernels' else {json.dumps(REPORT)!r})"
        stand_in.write_text(f"#!{sys.executable}\nimport sys\n{kernels}\n")
        stand_in.chmod(0o755)
        self.suite = Suite(self.folder, self.folder, None, None)
        self.addCleanup(self.suite._log.close)

    def prepared(self, *arguments: str, **more) -> Prepared:
        program = Prepared(self.suite, "program", Plan(self.script, arguments, "json", **more))
        self.addCleanup(program.finish)
        return program

    def test_a_program_runs_when_it_is_reported_and_not_before(self) -> None:
        program = self.prepared()
        program.wait_ready(time.monotonic() + 30)
        self.assertEqual((program.folder / "stdout").read_text(), "")
        self.assertEqual(program.turn(), "10.0 steps/s\n")
        self.assertEqual(program.turn(), "20.0 steps/s\n")
        self.assertEqual(program.finish().code, 0)

    def test_a_rehearsal_comes_before_the_first_turn(self) -> None:
        program = self.prepared(rehearse="--rehearsed")
        program.wait_ready(time.monotonic() + 30)
        self.assertEqual((program.folder / "stdout").read_text(), "1.0 steps/s\n")
        self.assertEqual(program.turn(), "20.0 steps/s\n")

    def test_a_library_that_is_not_installed(self) -> None:
        program = Prepared(self.suite, "missing", Plan(self.script, (), "no_such_library"))
        with self.assertRaisesRegex(Missing, "no_such_library"):
            program.wait_ready(time.monotonic() + 30)
        self.assertEqual(program.finish().code, 77)

    def test_a_program_that_fails_says_why(self) -> None:
        program = self.prepared("--fail")
        program.wait_ready(time.monotonic() + 30)
        with self.assertRaisesRegex(Failed, "a made-up failure"):
            program.turn()
        self.assertEqual(program.finish().code, 1)

    def test_a_program_that_does_not_answer_is_ended(self) -> None:
        self.script.write_text("import time\ndef main(): time.sleep(60)\n")
        program = self.prepared()
        program.wait_ready(time.monotonic() + 30)
        with self.assertRaisesRegex(Failed, "did not answer"):
            program.turn(limit=0.5)

    def test_a_group_starts_those_that_are_selected_and_no_others(self) -> None:
        self.suite.selected = ["made.two", "made.three", "made.four"]
        plan = Plan(self.script, (), "json")
        group = Group("made", lambda suite, name: {"one": plan}, ["one", "two", "three", "four"], 2)
        programs = group.take(self.suite, "two")
        self.assertEqual(set(group._started), {"two", "three"})
        finish_all([*programs.values(), *group.take(self.suite, "three").values()])

    def test_one_that_fails_does_not_stop_its_group(self) -> None:
        self.suite.selected = ["made.bad", "made.good"]
        plans = {"bad": Plan(self.script, ("--fail",), "json", rehearse=""), "good": Plan(self.script, (), "json")}
        group = Group("made", lambda suite, name: {"one": plans[name]}, ["bad", "good"], 2)
        with self.assertRaises(Failed):
            group.take(self.suite, "bad")
        self.assertEqual(group.take(self.suite, "good")["one"].turn(), "10.0 steps/s\n")
        finish_all(group.take(self.suite, "good").values())

    def started(self, **plans: Plan) -> dict[str, Prepared]:
        programs = {role: Prepared(self.suite, role, plan) for role, plan in plans.items()}
        for program in programs.values():
            program.wait_ready(time.monotonic() + 30)
        return programs

    def test_an_intervention_takes_turns_and_writes_its_line(self) -> None:
        plan = Plan(self.script, (), "json")
        programs = self.started(
            before=plan, after=Plan(self.script, ("--fixed",), "json"), traced=Plan(self.script, (), "json", Mode.VARIABLE))
        lines = list(interventions.judge(self.suite, "pinned_copies", programs))
        self.assertEqual([line.status for line in lines], [Status.PASS, Status.PASS], lines)
        self.assertIn("20.0 to 40.0 steps/s, 2.00x; copies_overlapped 2.00x (1.50 to 2.50: inside), off by +0.0%", lines[0].detail)
        self.assertIn("plan: copies_overlapped 2.00x", lines[0].detail)
        line = self.suite.recorded("intervention")[0]
        self.assertEqual((line["bare_before"], line["bare_after"], line["traced"]), ([10, 20, 30], [20, 40, 60], 10.0))
        self.assertEqual((line["low"], line["high"], line["predicted_untraced_ns"]), (1.5, 2.5, 90e6))
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual([one.status for one in interventions.calibration(self.suite)], [Status.SKIPPED])

    def test_a_wrong_bottleneck_fails_and_a_missing_scenario_does_not(self) -> None:
        plan = Plan(self.script, (), "json")
        programs = self.started(
            before=plan, after=Plan(self.script, ("--fixed",), "json"), traced=Plan(self.script, (), "json", Mode.VARIABLE))
        lines = list(interventions.judge(self.suite, "scalars", programs))
        self.assertIn("no prediction (copies_joined is not in the report)", lines[0].detail)
        self.assertEqual([line.status for line in lines], [Status.PASS, Status.PASS])
        self.assertEqual(interventions.prediction({"speedup": None, "scenario": None}, 2.0), "no prediction")

    def inside_lines(self, name: str, fixed: str = "--fixed"):
        plan = Plan(self.script, (), "json")
        programs = self.started(before=plan, after=Plan(self.script, (fixed,), "json"), traced=Plan(self.script, (), "json", Mode.VARIABLE))
        with contextlib.redirect_stdout(io.StringIO()):
            return [*inside.judge(self.suite, name, programs), *inside.write_table(self.suite)]

    def test_a_fix_inside_a_kernel_is_judged_by_its_advice_and_its_gain(self) -> None:
        lines = self.inside_lines("attention")
        self.assertEqual([line.name for line in lines], [f"inside.attention.{part}" for part in ("ends", "bottleneck", "advice", "gain")] + ["inside.table"])
        # The made-up report has another bottleneck, and four programs did not run.
        self.assertEqual([line.status.value for line in lines], ["PASS", "FAIL", "PASS", "PASS", "FAIL"])
        self.assertIn("fused attention: 2.00x (0.67 to 6.00 by turns); at_roof: at most 1.60x (1.40 to 1.90)", lines[3].detail)
        text = (self.folder / "inside.md").read_text()
        self.assertIn("| `attention` | fused attention | copy | `at_roof`, 1 kernels | 1.60x | 1.40 to 1.90 | 2.00x | 0.67 to 6.00 |  |", text)

    def test_a_step_of_more_work_counts_for_more(self) -> None:
        self.inside_lines("small_batch", "--plain")
        self.assertAlmostEqual(gains.gain(self.suite.recorded("inside")[0]).real, 4.0)

    def test_without_the_right_to_count_nothing_is_judged(self) -> None:
        busy = {**KERNELS, "measured": [{**KERNELS["measured"][0], "outcome": "busy", "reason": "another tool", "findings": []}]}
        text = (self.folder / "gpuwhy").read_text().replace(json.dumps(KERNELS), json.dumps(busy))
        (self.folder / "gpuwhy").write_text(text)
        lines = self.inside_lines("bf16")
        self.assertEqual([line.status.value for line in lines], ["PASS", "SKIPPED", "SKIPPED"])
        self.assertIn("another tool", lines[1].detail)

    def test_a_missing_library_skips_a_check_and_a_failed_program_fails_it(self) -> None:
        def judge(suite: Suite, name: str, programs: dict[str, Prepared]) -> Iterator[Result]:
            raise {"old": Missing, "broken": Failed}[name]("no such module")
            yield

        group = Group("made", lambda suite, name: {}, ["old", "broken"], 2)
        self.suite.selected = ["made.old", "made.broken"]
        lines = [line for name in group.names for line in group.check(name, judge, 1.0).function(self.suite)]
        self.assertEqual([(line.name, line.status, line.detail) for line in lines], [
            ("made.old", Status.SKIPPED, "no such module"), ("made.broken", Status.FAIL, "no such module")])

    def test_an_untraced_step_is_compared_with_the_bare_one(self) -> None:
        traced = {f"traced-{number}": Plan(self.script, (), "json", Mode.VARIABLE) for number in range(untraced.ROUNDS)}
        bare = self.started(bare=Plan(self.script, (), "json"), **traced)
        (line,) = untraced.compare(self.suite, "launch", bare)
        # Bare runs print 10 to 50 steps/s, traced ones 10 each, of which a tenth is tracing.
        self.assertEqual(line.status, Status.FAIL)
        self.assertIn("bare 33333.3 us, traced 100000.0 us (+200.0%), predicted without tracing 90000.0 us (+170.0%) by 5", line.detail)

    def test_native_stacks_are_compared_by_round(self) -> None:
        self.assertEqual(native_cost.ratios([10.0, 10.0, 5.0], [10.0, 11.0, 10.0]), "1.100 (1.000 to 2.000)")
        self.assertEqual(native_cost.result("12 steps/s\nresult 3\n"), "result 3")
        plans = {role: Plan(self.script, (), "json", Mode.VARIABLE) for role in native_cost.plans(self.suite, "launch")}
        plans["bare"] = Plan(self.script, (), "json")
        (line,) = native_cost.compare(self.suite, "launch", self.started(**plans))
        self.assertEqual(line.status, Status.PASS, line.detail)
        self.assertIn("time with native stacks over without, by round: 1.000 (1.000 to 1.000)", line.detail)

    def test_shares_of_groups_sum_what_leaves_mean(self) -> None:
        devices = [{"steady_leaves": {"compute": 30, "dispatch": 10, "launch_api": 5}}, {"steady_leaves": {"host_blocked": 5}}]
        shares = monitor.group_shares({"devices": devices})
        self.assertEqual([shares[cause] for cause in ("gpu_compute", "launch", "host_cpu", "sync")], [0.6, 0.3, 0.1, 0.0])
        self.assertEqual(monitor.group_shares({"devices": []})["copy"], 0.0)

    def test_mode_auto_is_judged_by_what_program_and_report_say(self) -> None:
        text = ("begins 100.000\npart compute begun 100.500 steps 12 first_ms 9.5000 last_ms 9.2500\n"
                "part loading begun 145.600 steps 3 first_ms 90.0000 last_ms 91.0000\npart broken begun x\n")
        parts = auto.parts_of(Run([], self.folder, 0, text, "", 1.0))
        self.assertEqual(parts["compute"], {"begun": 100.5, "steps": 12.0, "first": 9.5, "last": 9.25})
        self.assertEqual(list(parts), ["compute", "loading"])
        changes = [{"at_unix_ns": int(at * 1e9), "cause": cause} for at, cause in (
            (104.5, "gpu_compute"), (160.1, "data_loading"), (190.0, "gpu_compute"))]
        burst = {"capture": 1, "begin_unix_ns": int(150.5e9), "end_unix_ns": int(151e9), "trigger": "drift",
                 "bottleneck": "data_loading", "share": 0.8, "kernels": 7}
        report = {"bursts": {"changes": changes, "rows": [burst]}}
        self.assertAlmostEqual(auto.reported_after(report, 100.5, "gpu_compute"), 4.0, places=3)
        self.assertAlmostEqual(auto.reported_after(report, 145.6, "data_loading"), 14.5, places=3)
        self.assertAlmostEqual(auto.reported_after(report, 145.6, "gpu_compute"), 44.4, places=3)
        self.assertIsNone(auto.reported_after(report, 145.6, "launch"))
        self.assertIsNone(auto.reported_after(report, 170.0, "data_loading"))
        self.assertEqual(auto.most_bursts(165, 30), 7)
        self.assertIn("| 1 | 50.0 | drift | 0.50 | data_loading | 0.80 | 7 |", auto.table(report, parts))

    def test_costs_of_counters_are_read_from_what_programs_and_tables_say(self) -> None:
        def said(text: str) -> Run:
            return Run([], self.folder, 0, text, "", 1.0)

        self.assertEqual(counters.time_of(said("time_per_operation_ns=2210.5 best_ns=2200.0\n")), 2210.5)
        self.assertEqual(counters.time_of(said('{"ms_per_step": 31.25, "pid": 1}\n')), 31.25)
        self.assertEqual(counters.time_of(said("nothing\n")), 0.0)
        self.assertEqual(counters.rows("metric,count\nsm_active,12\n\"a, b\",3\n"), [["sm_active", "12"], ["a, b", "3"]])
        self.assertIsNone(counters.thread_seconds(os.getpid()))

    def test_samples_of_a_trace_become_a_file_for_the_replay_library(self) -> None:
        rows = [["90", "100", "issue", "1"], ["100", "110", "issue", "2.5"], ["100", "110", "core_clock", "1e9"], ["110", "120", "issue", ""],
                ["100", "100", "power", "650"]]
        self.assertEqual(convert("GH100", 100, rows).splitlines(), [
            "chip GH100", "interval 10",
            "metrics gpc__cycles_elapsed.avg.per_second sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed",
            "sample 0 10 1e9 2.5", "sample 10 20 nan nan"])

    def test_the_tables_come_from_the_file_and_go_between_their_markers(self) -> None:
        steps = {"bare_ns": 1e6, "traced_ns": 1e6, "predicted_untraced_ns": 1e6}
        self.suite.record("intervention", {**row("one", 2.0, 2.0, 1.9, 2.1), **steps})
        self.suite.record("native_cost", {"name": "host", "bare": [10.0], "auto": [8.0], "off": [9.0]})
        self.assertEqual(len(read_lines(self.folder / "measured.jsonl")), 2)
        page = self.folder / "page.md"
        page.write_text("".join(f"<!-- {name} -->\nold {name}\n<!-- /{name} -->\n" for name in ("gains", "untraced", "real", "native")))
        arguments, sys.argv = sys.argv, ["gains_table.py", "--docs", str(page), str(self.folder / "measured.jsonl")]
        self.addCleanup(setattr, sys, "argv", arguments)
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(print_tables(), 3)
        text = page.read_text()
        self.assertNotIn("old gains", text)
        self.assertIn("| `one` | a fix |", text)
        self.assertIn("| `one*` | 1,000.0 |", text)
        self.assertIn("| `host` | 10.0 | 9.0 | 8.0 | 1.125 | 1.250 |", text)
        self.assertIn("<!-- real -->\nold real\n<!-- /real -->", text)


def trace(**changes) -> Trace:
    """A report like the made-up one, except for its bottleneck or its host."""
    found = Trace.__new__(Trace)
    found.report = {**REPORT, **changes}
    return found


def finding(rule: str, gain: float, speedup: float | None = None, applies: bool = True) -> dict:
    step = None if speedup is None else {"speedup": speedup, "low": speedup - 0.1, "high": speedup + 0.2}
    return {"rule": rule, "applies": applies, "local_gain": gain, "step_gain": gain / 2, "step": step}


class Advice(unittest.TestCase):
    def test_kernels_of_one_stream_save_their_times(self) -> None:
        kernels = [
            {"name": "one", "findings": [finding("at_roof", 0.9, 1.25), finding("tail", 0.99, 9.0)]},
            {"name": "two", "findings": [finding("at_roof", 0.9, 2.0)]},
            {"name": "three", "findings": [finding("at_roof", 0.9, 9.0, applies=False)]}]
        said = inside.advice(kernels, ("at_roof", "small_grid"))
        self.assertEqual((said.rules, said.kernels), (("at_roof",), ("one", "two")))
        self.assertAlmostEqual(said.speedup, 1 / (1 - 0.2 - 0.5))
        self.assertAlmostEqual(said.low, 1 / (1 - (1 - 1 / 1.15) - (1 - 1 / 1.9)))
        self.assertLess(said.speedup, said.high)

    def test_of_one_kernel_the_rule_that_brings_most_counts(self) -> None:
        said = inside.advice([{"name": "one", "findings": [finding("a", 0.2, 1.2), finding("b", 0.5, 1.5)]}], ("a", "b"))
        self.assertEqual((said.rules, said.speedup), (("b",), 1.5))

    def test_without_a_simulation_the_share_of_the_run_counts(self) -> None:
        kernels = [{"name": "one", "findings": [finding("a", 0.4)]}, {"name": "two", "findings": [finding("a", 0.5, 2.0)]}]
        said = inside.advice(kernels, ("a",))
        self.assertEqual((round(said.speedup, 3), said.low, said.high), (round(1 / (1 - 0.2 - 0.5), 3), None, None))

    def test_no_advice_and_advice_without_a_gain(self) -> None:
        self.assertIsNone(inside.advice([{"name": "one", "findings": [finding("a", 0.0)]}], ("a",)))
        self.assertIsNone(inside.advice([], ("a",)))

    def test_a_gain_within_what_was_called_the_most_is_right(self) -> None:
        case = inside.Inside("a fix", ("a",))

        def status(real: float, **more) -> Status:
            made = {**row("one", real, 1.6, 1.4, 1.9), "scenario": "a", "outcomes": ["measured"], **more}
            return inside.judged("inside.one", case, made).status

        self.assertEqual((status(1.5), status(1.93), status(2.0)), (Status.PASS, Status.PASS, Status.FAIL))
        self.assertEqual(status(1.05), Status.FAIL, "the fix brings less than it claims")
        self.assertEqual(status(1.7, low=None, high=None), Status.FAIL)
        self.assertEqual(status(3.0, speedup=None, low=None, high=None), Status.PASS, "the line about the advice fails then")
        self.assertEqual(status(2.0, outcomes=["measured", "not_launched"]), Status.SKIPPED, "not the bound of all kernels")
        case = dataclasses.replace(case, alone=False)
        self.assertEqual((status(2.0), status(1.05)), (Status.PASS, Status.FAIL), "other kernels change, too")

    def test_copies_stand_beside_the_programs(self) -> None:
        copy = {"where": "alone", "real": 1.42, "low": 1.2, "about": 1.4, "high": 1.7, "used": 0.5, "wanted": 0.86}
        text = inside.table([{**row("bf16", 1.5, 1.6, 1.4, 1.9, bottleneck="gpu_compute"), "kernels": 2, "outcomes": ["measured"]}], [copy])
        self.assertIn("| `bf16` | a fix | gpu_compute | `copies_overlapped`, 2 kernels | 1.60x | 1.40 to 1.90 | 1.50x | 1.44 to 1.56 | yes |", text)
        self.assertIn("| copy, alone | 50% to 86% of device memory |  | nearest roof | 1.40x | 1.20 to 1.70 | 1.42x |  | yes |", text)


class Calibration(unittest.TestCase):
    def calibrate(self, text: str):
        with tempfile.TemporaryDirectory() as folder:
            stand_in = pathlib.Path(folder) / "gpuwhy"
            stand_in.write_text(f"#!{sys.executable}\nimport sys\n{text}\n")
            stand_in.chmod(0o755)
            made = Suite(stand_in.parent, stand_in.parent, None, None)
            self.addCleanup(made._log.close)
            return suite.calibrate(made)

    def test_it_passes_fails_or_does_not_exist(self) -> None:
        self.assertEqual(self.calibrate("print('Kept in a file.')").status, Status.PASS)
        self.assertEqual(self.calibrate("sys.exit('there is no GPU')").status, Status.FAIL)
        old = self.calibrate("print(\"error: unexpected argument '--calibrate' found\", file=sys.stderr); sys.exit(2)")
        self.assertEqual(old.status, Status.SKIPPED)


class Real(unittest.TestCase):
    def bottleneck(self, **changes) -> dict:
        return {"bottleneck": {**REPORT["bottleneck"], **changes}}

    def test_a_report_that_is_in_order(self) -> None:
        self.assertEqual(real.problems(trace()), [])

    def test_advice_that_denies_a_gain(self) -> None:
        denied = trace(**self.bottleneck(recommendation="No change on the CPU gains 15 %."))
        self.assertEqual(real.problems(denied), ['it says "No change on the CPU gains 15 %" beside data_ready 1.50x'])
        device = {**REPORT["devices"][0], "what_if": {"scenarios": [{"kind": "grids_filled", "speedup": 3.0}]}}
        self.assertEqual(real.problems(trace(devices=[device], **self.bottleneck(recommendation=denied.advice))), [])

    def test_no_bottleneck_with_steps(self) -> None:
        self.assertIn("no bottleneck though there are 100 steps", real.problems(trace(**self.bottleneck(cause="cannot_tell")))[0])

    def test_host_time_without_a_line(self) -> None:
        host = self.bottleneck(cause="host_cpu")
        self.assertEqual(real.problems(trace(**host)), [])
        unnamed = {**REPORT["host"], "lines": [{**REPORT["host"]["lines"][0], "share": 0.1}]}
        self.assertEqual(real.problems(trace(host=unnamed, **host)), ["only 35% of the host's time has a line"])

    def test_the_table_holds_what_a_person_needs(self) -> None:
        text = real.real_table([{"name": "hub.generate", "problems": [], **real.described(trace())}])
        self.assertIn("| `hub.generate` | copy 50% | A made-up report. | None. |", text)
        self.assertIn("| use pinned memory: 2.00x (1.50 to 2.50), then launch |", text)


if __name__ == "__main__":
    unittest.main()
