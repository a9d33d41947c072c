"""Made-up runs with PC sampling: python3 -m unittest discover -s tests/gpu"""

from __future__ import annotations

import pathlib
import tempfile
import unittest

from checks import kernel_source
from harness import Run, Status, Suite

MEASURED = (["measured"], 50_000)


def ran(code: int | None = 0, stdout: str = "16000 rounds\n", seconds: float = 4.5) -> Run:
    return Run([], pathlib.Path(), code, stdout, "", seconds)


class Repeated(unittest.TestCase):
    def failed(self, runs: list[Run], found: list[tuple[list[str], int]] | None = None) -> dict[str, str]:
        """Results that fail, with their details."""
        found = [MEASURED] * len(runs) if found is None else found
        lines = list(kernel_source.judged_runs("repeated", ran(seconds=4.0), runs, found))
        self.assertEqual(len(lines), 4)
        return {line.name: line.detail for line in lines if line.status is not Status.PASS}

    def test_runs_that_are_in_order(self) -> None:
        self.assertEqual(self.failed([ran()] * 8), {})

    def test_runs_that_did_not_end_are_counted(self) -> None:
        said = self.failed([ran(), ran(None, "", 16.1), ran(None, "", 16.1), ran(-11, "")], [MEASURED, *[(["0 traces"], 0)] * 3])
        self.assertEqual(said["repeated.ends"], "2 of 4 did not end; 1 x exit code 0, 2 x ran into the time limit, 1 x killed by SIGSEGV")
        self.assertIn("4.50 to 16.10 s", said["repeated.time"])
        self.assertIn("3 of 4", said["repeated.output"])
        self.assertEqual(said["repeated.samples"], "50000 (measured), 0 (0 traces), 0 (0 traces), 0 (0 traces)")

    def test_a_slow_run_another_output_and_a_run_without_samples(self) -> None:
        self.assertEqual(list(self.failed([ran(), ran(seconds=16.5)])), ["repeated.time"])
        self.assertEqual(list(self.failed([ran(), ran(stdout="")])), ["repeated.output"])
        for found in ((["disturbed"], 0), (["measured"], 10), (["measured", "refused"], 50_000)):
            self.assertEqual(list(self.failed([ran()] * 2, [MEASURED, found])), ["repeated.samples"], found)

    def test_a_run_without_a_trace_has_no_samples(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            suite = Suite(pathlib.Path(folder), pathlib.Path(folder), None, None)
            self.addCleanup(suite._log.close)
            empty = Run([], pathlib.Path(folder), None, "", "", 1.0)
            self.assertEqual(kernel_source.samples_of(suite, empty), (["0 traces"], 0))


class Marks(unittest.TestCase):
    def test_every_mark_is_found(self) -> None:
        workloads = pathlib.Path(__file__).resolve().parent / "workloads"
        for name, kernel, text in (("gather_kernels.cuh", "k_gather", "from[at % count]"), ("gather_triton.py", "k_triton", "total += values")):
            ((found, line),) = kernel_source.marked(workloads / name).items()
            self.assertEqual(found, kernel)
            self.assertIn(text, (workloads / name).read_text().splitlines()[line - 1])


if __name__ == "__main__":
    unittest.main()
