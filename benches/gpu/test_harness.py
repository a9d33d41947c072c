"""Tests of the harness that need no GPU: python3 -m unittest discover -s benches/gpu

The measurements themselves need the programs; these tests cover faults that would silently distort them.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import tempfile
import time
import unittest

import overhead
import performance
import publish
from measured import Cost, Measured, NotMergeable, apart, interval, load, merged, ratio

MACHINE = {"gpu": "A", "gpuwhy": "1"}


def measured(*ratios: float, turns: int = 10, tool: str = "gpuwhy", row: str = "gpt", machine: dict | None = None) -> Measured:
    """A generation for each ratio, in which a tool takes so many times the bare time, which drifts."""
    made = Measured(machine or MACHINE, "2026-01-01T00:00:00Z")
    for number, factor in enumerate(ratios):
        made.begin_generation(number)
        for turn in range(turns):
            made.add(row, {"bare": {row: 10.0 + turn}, tool: {row: (10.0 + turn) * factor}})
        made.end_generation(number, 1.0)
    return made


class Statistics(unittest.TestCase):
    def test_a_ratio_is_that_of_one_round_and_a_cost_the_median_of_the_generations(self) -> None:
        cost = measured(1.1, 1.2, 1.6).cost("gpt", "gpuwhy")
        self.assertAlmostEqual(cost.middle, 1.2)
        self.assertEqual((cost.turns, tuple(round(end, 6) for end in cost.interval)), (30, (1.1, 1.6)))

    def test_the_bootstrap_depends_on_its_seed_alone(self) -> None:
        choose = random.Random(1)
        generations = [[(choose.gauss(1.05, 0.02), 1.0) for _ in range(10)] for _ in range(3)]
        self.assertEqual(interval(generations, seed=3), interval(generations, seed=3))
        low, high = interval(generations)
        self.assertTrue(1.02 < low < high < 1.08, (low, high))
        self.assertEqual(interval([[(1.5, 1.0)] * 10] * 3), (1.5, 1.5))

    def test_what_differs_between_processes_is_in_the_interval(self) -> None:
        low, high = interval([[(1.0, 1.0)] * 100, [(1.2, 1.0)] * 100, [(1.1, 1.0)] * 100])
        self.assertEqual((low, high), (1.0, 1.2))

    def test_the_interval_holds_the_median_of_what_was_drawn(self) -> None:
        choose, held = random.Random(1), 0
        for _ in range(40):
            generations = [[(choose.gauss(process, 0.02), 1.0) for _ in range(10)] for process in (choose.gauss(1.05, 0.01) for _ in range(6))]
            low, high = interval(generations)
            held += low <= 1.05 <= high
        self.assertGreaterEqual(held, 36)

    def test_percentiles_are_of_a_turn_and_of_all_turns(self) -> None:
        turns = [([2.0, 2.0, 9.0], [1.0, 1.0, 1.0]), ([4.0, 4.0, 4.0], [1.0, 1.0, 3.0]), ([3.0, 3.0, 3.0], [1.0, 1.0, 1.0])]
        self.assertEqual(ratio(turns, "p50"), 3.0)
        self.assertEqual(ratio(turns, "p99"), 3.0)
        made = Measured(MACHINE)
        made.begin_generation(0)
        made.add("serving", {"bare": {"serving_8": [1.0, 2.0, 9.0]}, "auto": {"serving_8": [1.0, 4.0, 9.0]}})
        made.end_generation(0, 1.0)
        self.assertEqual(made.rows(), ["serving_8_p50", "serving_8_p99"])
        self.assertEqual([made.bare("serving_8_p50"), made.bare("serving_8_p99")], [2.0, 9.0])
        self.assertEqual(made.cost("serving_8_p50", "auto").middle, 2.0)

    def test_no_cost_is_shown_that_may_be_none_or_is_less(self) -> None:
        for low, high, said in ((0.99, 1.02, "no difference (-1.0 to 2.0 %)"), (1.0, 1.02, "no difference (0.0 to 2.0 %)"),
                                (0.90, 0.97, "no difference (-10 to -3 %)"), (0.92, 1.21, "unclear (-8 to 21 %)"), (1.001, 1.02, "+1.0 % (0.1 to 2.0)"),
                                (1.005, 1.30, "+1.0 % (0 to 30)")):
            self.assertEqual(str(Cost(1.01, (low, high), 10)), said)
        self.assertEqual(str(Cost(1.256, None, 1)), "+26 % (1 turn)")

    def test_few_generations_or_turns_have_no_interval(self) -> None:
        self.assertEqual(str(measured(1.5, 1.5).cost("gpt", "gpuwhy")), "+50 % (20 turns)")
        self.assertEqual(str(measured(1.5, 1.5, 1.5, turns=2).cost("gpt", "gpuwhy")), "+50 % (6 turns)")
        self.assertEqual(str(measured(1.5, 1.5, 1.5).cost("gpt", "gpuwhy")), "+50 % (50 to 50)")

    def test_an_unfinished_generation_does_not_count(self) -> None:
        made = measured(1.1, 1.1, 9.0)
        made.generations[2]["seconds"] = None
        self.assertEqual(made.cost("gpt", "gpuwhy").turns, 20)
        self.assertEqual(made.why_not(), "2 finished generations, 3 are needed")
        self.assertEqual(measured(1.1, 1.1, 1.1, turns=6).why_not(), "fewer than 7 turns in a generation: gpt")
        self.assertIsNone(measured(1.1, 1.1, 1.1).why_not())

    def test_a_round_without_its_bare_turn_has_no_ratio(self) -> None:
        made = measured(1.1, turns=3)
        del made.generations[0]["rows"]["gpt"][0]["bare"]
        self.assertEqual(made.cost("gpt", "gpuwhy").turns, 2)
        self.assertIsNone(made.cost("gpt", "monitor"))

    def test_the_default_s_decode_step_after_recording_is_a_row_of_its_own(self) -> None:
        made = Measured(MACHINE)
        made.begin_generation(0)
        made.add("decode", {"bare": {"decode": 2.0}, "gpuwhy": {"decode": 3.0},
                            "later": {"decode": 2.2}})
        made.end_generation(0, 1.0)
        self.assertEqual([made.cost(row, "gpuwhy").middle for row in ("decode_start", "decode_later")], [1.5, 1.1])
        self.assertEqual((made.rows(), made.tools()), (["decode_start", "decode_later"], ["gpuwhy"]))


class Runs(unittest.TestCase):
    def test_two_runs_agree_where_their_intervals_overlap(self) -> None:
        one, same, other = measured(1.10, 1.11, 1.13), measured(1.12, 1.14, 1.15), measured(1.30, 1.32, 1.35)
        self.assertEqual(apart([one, same]), ([], 1))
        self.assertIn("for all 1 pairs", performance.agreement([one, same]))
        self.assertEqual(apart([one, other]), (["gpt, gpuwhy: +11 % (10 to 13) and +32 % (30 to 35)"], 1))
        self.assertIn("0 of 1 pairs", performance.agreement([one, other]))
        self.assertEqual(merged([one, other]).cost("gpt", "gpuwhy").turns, 60)

    def test_machines_are_not_mixed(self) -> None:
        with self.assertRaisesRegex(NotMergeable, "gpu A and B"):
            merged([measured(1.0), measured(1.0, machine={"gpu": "B", "gpuwhy": "1"})])

    def test_a_file_is_read_as_it_was_written(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "A.json"
            made = measured(1.1, 1.2)
            made.save(file)
            self.assertEqual(load(file), made)
            file.write_text(json.dumps({"measurements": []}))
            with self.assertRaisesRegex(NotMergeable, "not a file of measurements"):
                load(file)


class Turns(unittest.TestCase):
    def fork(self, work, **variables: str) -> overhead.Process:
        process = overhead.Process.forked(work, variables, [])
        self.addCleanup(lambda: (process.close(), process.wait(time.monotonic())))
        return process

    def test_a_tool_comes_with_the_bare_turn_of_its_round(self) -> None:
        for number in range(12):
            self.assertTrue(overhead.has_turn("bare", "gpt", number) and overhead.has_turn("again", "gpt", number))
        self.assertEqual([number for number in range(9) if overhead.has_turn("torch", "gpt", number)], [0, 4, 8])
        self.assertEqual([number for number in range(5) if overhead.has_turn("again", "serving", number)], [0, 2, 4])

    def test_a_fork_has_the_variables_and_answers_each_request(self) -> None:
        def work(requests: int, answers: int) -> None:
            while line := os.read(requests, 100):
                os.write(answers, (json.dumps({line.decode().strip(): os.environ["COST_TEST"]}) + "\n").encode())

        process = self.fork(work, COST_TEST="yes")
        self.assertEqual([process.turn("one"), process.turn("two")], [{"one": "yes"}, {"two": "yes"}])
        self.assertNotIn("COST_TEST", os.environ)

    def test_a_fork_that_fails_or_ends_or_hangs_has_no_figures(self) -> None:
        with self.assertRaisesRegex(overhead.Failed, "nothing here"):
            self.fork(lambda _, answers: os.write(answers, b'{"error": "nothing here"}\n')).hear(time.monotonic() + 20)
        with self.assertRaisesRegex(overhead.Failed, "it ended"):
            self.fork(lambda *_: None).hear(time.monotonic() + 20)
        with self.assertRaisesRegex(overhead.Failed, "no answer in time"):
            self.fork(lambda requests, _: os.read(requests, 1)).hear(time.monotonic())

    def test_a_process_can_be_called_a_server(self) -> None:
        def work(_: int, answers: int) -> None:
            overhead.be_called("server.py")
            words = pathlib.Path("/proc/self/cmdline").read_text().split("\0")[:2]
            os.write(answers, (json.dumps({"words": words}) + "\n").encode())

        self.assertEqual(self.fork(work).hear(time.monotonic() + 20), {"words": ["python3", "server.py"]})


class Publishing(unittest.TestCase):
    def test_a_price_is_the_median_of_the_generations(self) -> None:
        made = measured(1.2, 1.3, 1.5)
        self.assertEqual(publish.prices(made, "gpuwhy", ("gpt", "mlp")), "GPT: +30 % (20 to 50)")
        self.assertEqual(publish.prices(made, "full", ("gpt",)), "not measured yet")

    def test_the_sentence_says_no_cost_that_was_not_measured(self) -> None:
        said = publish.sentence(measured(0.99, 1.01, 1.0))
        self.assertIn("adds less than 1.0 % (GPT) and an unknown time (ResNet-50)", said)

    def test_a_target_is_met_by_the_whole_interval(self) -> None:
        target = performance.Target("GPT", "gpt", "gpuwhy", 1.010)
        for ratios, word in (((1.001, 1.002, 1.003), "met"), ((1.001, 1.02, 1.01), "open"), ((1.1, 1.1, 1.1), "**missed**")):
            self.assertIn(f"| {word}", performance.judged(target, measured(*ratios)))
        self.assertIn("not measured", performance.judged(target, measured(1.0, tool="monitor")))

    def test_the_readme_has_the_place(self) -> None:
        readme = (publish.REPOSITORY / "README.md").read_text()
        self.assertIn("\nnew\n<!-- end -->", publish.replace_marked(readme, "costs", "new\n"))


if __name__ == "__main__":
    unittest.main()
