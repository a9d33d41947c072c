"""Tests of the harness that need no GPU: python3 -m unittest discover -s benches/gpu

The measurements themselves need the programs; these tests cover faults that would silently distort them.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import overhead
import publish
from measured import Measured, NotMergeable, floor_of, paired_ratios

HERE = pathlib.Path(__file__).resolve().parent
# Starts an orphan process, prints its figure and ends, while the orphan continues for 0.3 s of CPU time.
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(1)
        while time.process_time() < 0.3: pass
    os._exit(0)
os.wait()
print("figure=1", flush=True)
print("a word of the tool", flush=True)
"""


def row(number: int, tool: str, time: float) -> dict:
    return {"benchmark": "launch", "unit": "ns/kernel", "tool": tool, "round": number, "time": time}


class MeasuredProcess(unittest.TestCase):
    def test_a_daemon_is_in_the_account(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "used.json"
            command = [sys.executable, HERE / "measure_process.py", file, "figure=", sys.executable, "-c", DAEMON]
            run = subprocess.run(command, capture_output=True, text=True, check=True)
            used = json.loads(file.read_text())
        self.assertEqual(run.stdout, "figure=1\na word of the tool\n")
        self.assertGreaterEqual(used["cpu_s"], 0.3)
        self.assertEqual((used["code"], used["orphans"] >= 1, used["killed"]), (0, True, 0))
        self.assertIsNotNone(used["after_last_line_s"])


class Rounds(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        earlier = Measured({"gpu": "A"}, rounds=[{"round": 0, "seconds": 100.0, "tools": ["none", "gpuwhy", "nsys"]}])
        earlier.measurements = [row(0, "none", 100.0), row(0, "gpuwhy", 110.0), row(1, "gpuwhy", 500.0)]
        earlier.save(self.folder)

    def test_an_unfinished_round_is_measured_again(self) -> None:
        measured = Measured({"gpu": "A"})
        measured.merge(self.folder / "overhead.json")
        self.assertEqual(measured.next_round(), 1)
        self.assertEqual(paired_ratios(measured.measurements, "gpuwhy"), [1.1])

    def test_machines_are_not_mixed(self) -> None:
        with self.assertRaisesRegex(NotMergeable, "gpu A and B"):
            Measured({"gpu": "B"}).merge(self.folder / "overhead.json")

    def test_a_round_is_expected_to_take_what_one_of_its_tools_took(self) -> None:
        measured = Measured({"gpu": "A"})
        measured.merge(self.folder / "overhead.json")
        self.assertEqual(overhead.expected_seconds(measured, ["none", "gpuwhy"]), 100.0)
        self.assertEqual(overhead.expected_seconds(measured, ["none", "torch"]), 0.0)
        measured.rounds.append({"round": 1, "seconds": 60.0, "tools": ["none", "gpuwhy"]})
        self.assertEqual(overhead.expected_seconds(measured, ["gpuwhy", "none"]), 60.0)


    def test_of_several_runs_the_middle_one_counts_and_a_failed_one_is_not_hidden(self) -> None:
        runs = [[row(0, "gpuwhy", time)] for time in (6.0, 4.0, 5.0)]
        self.assertEqual(overhead.middle(runs), runs[2])
        failed = [{**row(0, "gpuwhy", 0.0), "time": None}]
        self.assertEqual(overhead.middle([runs[0], failed, runs[1]]), failed)


class Publishing(unittest.TestCase):
    def test_a_price_is_the_median_of_the_rounds(self) -> None:
        measured = Measured({"gpu": "A"}, measurements=[
            entry for number, cost in enumerate([1.2, 1.5, 1.3]) for entry in (row(number, "none", 10), row(number, "gpuwhy", 10 * cost))])
        self.assertEqual(publish.prices(measured, "gpuwhy", ("launch", "gpt")), "empty kernels +30 % (+20 to +50)")
        self.assertEqual(publish.prices(measured, "gpuwhy-full", ("launch",)), "not measured yet")
        del measured.measurements[2:]
        self.assertEqual(publish.prices(measured, "gpuwhy", ("launch",)), "empty kernels +20 % (one round)")

    def test_a_tool_that_records_nodes_is_compared_with_cupti_that_does(self) -> None:
        for tool, floor in (("gpuwhy", "floor-nodes"), ("gpuwhy-monitor", "floor"), ("nsys", "floor"), ("nsys-node", "floor-nodes")):
            self.assertEqual(floor_of(tool, [row(0, "floor", 10), row(0, "floor-nodes", 12)]), floor)
            self.assertEqual(floor_of(tool, [row(0, "floor", 10)]), "floor")

    def test_the_readme_has_the_place(self) -> None:
        readme = (publish.REPOSITORY / "README.md").read_text()
        self.assertIn("\nnew\n<!-- end -->", publish.replace_marked(readme, "costs", "new\n"))


if __name__ == "__main__":
    unittest.main()
