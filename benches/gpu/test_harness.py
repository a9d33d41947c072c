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
from measured import Cost, Measured, NotMergeable, apart, interval, load, merged

MACHINE = {"gpu": "A", "gpuwhy": "1"}


def measured(*ratios: float, tool: str = "gpuwhy", row: str = "gpt", machine: dict | None = None) -> Measured:
    """Rounds in which a tool takes so many times the bare time, which drifts."""
    made = Measured(machine or MACHINE, "2026-01-01T00:00:00Z")
    for number, ratio in enumerate(ratios):
        made.begin_round(number)
        made.add(number, "training", "bare", {row: 10.0 + number}, [1.0, 100.0])
        made.add(number, "training", tool, {row: (10.0 + number) * ratio}, [2.0, 150.0])
        made.end_round(number, 1.0)
    return made


class Statistics(unittest.TestCase):
    def test_a_ratio_is_that_of_one_round(self) -> None:
        cost = measured(1.1, 1.1, 1.1, 1.2).cost("gpt", "gpuwhy")
        self.assertAlmostEqual(cost.middle, 1.1)
        self.assertEqual(cost.rounds, 4)

    def test_the_bootstrap_depends_on_its_seed_alone(self) -> None:
        ratios = [1.0, 1.01, 1.02, 1.05, 1.2, 1.3, 0.9]
        self.assertEqual(interval(ratios, 3), interval(ratios, 3))
        low, high = interval(ratios)
        self.assertTrue(0.9 <= low < 1.02 < high <= 1.3, (low, high))
        self.assertEqual(interval([1.5] * 5), (1.5, 1.5))

    def test_the_interval_holds_the_median_of_what_was_drawn(self) -> None:
        choose, held = random.Random(1), 0
        for _ in range(100):
            low, high = interval([choose.gauss(1.05, 0.02) for _ in range(12)])
            held += low <= 1.05 <= high
        self.assertGreaterEqual(held, 90)

    def test_no_cost_is_shown_that_may_be_none_or_is_less(self) -> None:
        for low, high, said in ((0.99, 1.02, "no difference (-1.0 to 2.0)"), (1.0, 1.02, "no difference (0.0 to 2.0)"),
                                (0.90, 0.97, "no difference (-10 to -3)"), (1.001, 1.02, "+1.0 % (0.1 to 2.0)"), (1.005, 1.30, "+1.0 % (0 to 30)")):
            self.assertEqual(str(Cost(1.01, (low, high), 10)), said)
        self.assertEqual(str(Cost(1.256, None, 1)), "+26 % (1 round)")

    def test_few_rounds_have_no_interval(self) -> None:
        self.assertEqual(str(measured(1.5, 1.5, 1.5).cost("gpt", "gpuwhy")), "+50 % (3 rounds)")
        self.assertEqual(str(measured(1.5, 1.5, 1.5, 1.5).cost("gpt", "gpuwhy")), "+50 % (50 to 50)")

    def test_an_unfinished_round_does_not_count(self) -> None:
        made = measured(1.1, 1.1, 9.0)
        made.of_round(2)["seconds"] = None
        self.assertEqual(made.cost("gpt", "gpuwhy").rounds, 2)
        self.assertEqual(len(made.complete()), 2)

    def test_a_round_without_its_bare_run_has_no_ratio(self) -> None:
        made = measured(1.1, 1.1)
        del made.rounds[0]["rows"]["gpt"]["bare"]
        self.assertEqual(made.ratios("gpt", "gpuwhy"), [1.1])
        self.assertIsNone(made.cost("gpt", "monitor"))

    def test_nsys_is_compared_with_a_process_that_was_started_as_its_own(self) -> None:
        made = measured(1.0, tool="nsys")
        self.assertEqual(made.ratios("gpt", "nsys"), [])
        made.add(0, "nsys", "own_bare", {"gpt": 5.0}, None)
        self.assertEqual(made.ratios("gpt", "nsys"), [2.0])

    def test_the_later_figures_of_a_decode_step_have_one_bare_figure(self) -> None:
        made = Measured(MACHINE)
        made.begin_round(0)
        made.add(0, "decode", "bare", {"decode_start": 2.0}, None)
        made.add(0, "decode", "gpuwhy", {"decode_start": 3.0, "decode_later": 2.2}, None)
        made.end_round(0, 1.0)
        self.assertEqual(made.ratios("decode_later", "gpuwhy"), [1.1])


class Runs(unittest.TestCase):
    def test_two_runs_agree_where_their_intervals_overlap(self) -> None:
        one, same = measured(1.10, 1.11, 1.12, 1.13), measured(1.12, 1.13, 1.14, 1.15)
        other = measured(1.30, 1.31, 1.33, 1.35)
        self.assertEqual(apart([one, same]), [])
        self.assertIn("Of all 1 pairs", performance.agreement([one, same]))
        self.assertEqual(apart([one, other]), ["gpt, gpuwhy: +12 % (10 to 13) and +32 % (30 to 35)"])
        self.assertIn("0 of 1 pairs", performance.agreement([one, other]))
        self.assertEqual(merged([one, other]).cost("gpt", "gpuwhy").rounds, 8)

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


class Rounds(unittest.TestCase):
    def test_each_tool_comes_with_its_base(self) -> None:
        seen = {tool: sum(overhead.runs_in(tool, number) for number in range(12)) for tool in ("bare", "gpuwhy", "torch", "nsys")}
        self.assertEqual(seen, {"bare": 12, "gpuwhy": 12, "torch": 4, "nsys": 3})
        for number in range(12):
            self.assertEqual(overhead.runs_in("nsys", number), overhead.runs_in("own_bare", number))

    def test_a_fork_has_the_variables_and_its_result_is_returned(self) -> None:
        result, used, ending = overhead.forked(lambda: {"said": os.environ["COST_TEST"]}, {"COST_TEST": "yes"}, 20.0)
        self.assertEqual((result, "COST_TEST" in os.environ, len(used), ending), ({"said": "yes"}, False, 2, ""))

    def test_a_fork_that_fails_or_hangs_has_no_figures(self) -> None:
        with self.assertRaisesRegex(overhead.Failed, "ValueError: nothing here"):
            overhead.forked(lambda: (_ for _ in ()).throw(ValueError("nothing here")), {}, 20.0)
        with self.assertRaisesRegex(overhead.Failed, "no figures, status 9"):
            overhead.forked(lambda: time.sleep(60), {}, 0.3)

    def test_a_process_can_be_called_a_server(self) -> None:
        def named() -> dict:
            overhead.be_called("server.py")
            return {"words": pathlib.Path("/proc/self/cmdline").read_text().split("\0")[:2]}

        self.assertEqual(overhead.forked(named, {}, 20.0)[0], {"words": ["python3", "server.py"]})


class Publishing(unittest.TestCase):
    def test_a_price_is_the_median_of_the_rounds(self) -> None:
        made = measured(1.2, 1.5, 1.3, 1.4)
        self.assertEqual(publish.prices(made, "gpuwhy", ("gpt", "mlp")), "GPT +35 % (20 to 50)")
        self.assertEqual(publish.prices(made, "full", ("gpt",)), "not measured yet")

    def test_the_sentence_says_no_cost_that_was_not_measured(self) -> None:
        said = publish.sentence(measured(0.99, 1.01, 1.0, 1.0))
        self.assertIn("adds nothing that can be told (less than 1.0 %) to a training that keeps the GPU busy and an unknown time", said)

    def test_a_target_is_met_by_the_whole_interval(self) -> None:
        target = performance.Target("GPT", "gpt", "gpuwhy", 1.010)
        for ratios, word in (((1.001, 1.002, 1.003, 1.004), "met"), ((1.001, 1.02, 1.001, 1.02), "open"),
                             ((1.1, 1.1, 1.1, 1.1), "**missed**")):
            self.assertIn(f"| {word}", performance.judged(target, measured(*ratios)))
        self.assertIn("not measured", performance.judged(target, measured(1.0, tool="monitor")))

    def test_the_readme_has_the_place(self) -> None:
        readme = (publish.REPOSITORY / "README.md").read_text()
        self.assertIn("\nnew\n<!-- end -->", publish.replace_marked(readme, "costs", "new\n"))


if __name__ == "__main__":
    unittest.main()
