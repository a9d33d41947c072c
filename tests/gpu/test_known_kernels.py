"""Tables and judgments about known kernels, with made-up figures: python3 -m unittest discover -s tests/gpu"""

from __future__ import annotations

import os
import unittest

from checks import counters, known_kernels
from harness import Status


def measured(name: str, dram: float = 0.8, **changes) -> dict:
    return {
        "name": name, "symbol": f"_Z{name}", "outcome": "measured", "duration_ns": 12_500.0, "nearest_roof": "dram",
        "roofs": {"dram": dram, "issue": 0.1}, **changes}


def sampled(name: str, used: float, roof: str = "dram", own: bool = True) -> dict:
    return {"name": name, "limits": {"roof": roof, "used": used, "standard_error": 0.01, "own": own}}


NCU = {"_Zone": {known_kernels.ROOFS["dram"]: 79.6}}


class KnownKernels(unittest.TestCase):
    def test_one_row_for_each_kernel_with_the_unit_that_samples_name(self) -> None:
        (row,) = known_kernels.rows([measured("one")], [sampled("one", 0.12, "issue")], NCU)
        self.assertEqual((row.roof, row.live, row.measured, row.ncu), ("issue", 12.0, 10.0, None))
        (row,) = known_kernels.rows([measured("one")], [sampled("one", 0.82)], NCU)
        self.assertEqual((row.roof, row.live, row.measured, row.ncu), ("dram", 82.0, 80.0, 79.6))
        self.assertIn("| `one` | 12.5 | dram | 82.0 | 1.0 | 80.0 | 79.6 |", known_kernels.table([row]))

    def test_what_samples_do_not_tell_has_no_live_value(self) -> None:
        for live in ([], [sampled("one", 0.5, own=False)], [{"name": "one", "limits": None}]):
            (row,) = known_kernels.rows([measured("one")], live, {})
            self.assertEqual((row.live, row.roof, row.measured), (None, "dram", 80.0))

    def test_kernels_that_cannot_be_compared_are_left_out(self) -> None:
        twice = [measured("one"), measured("one", 0.4)]
        refused = [measured("two", outcome="refused"), measured("three", roofs={})]
        self.assertEqual(known_kernels.rows([*twice, *refused], [], {}), [])

    def judged(self, live: float, ncu: float, count: int = 6) -> list[Status]:
        kernels = [measured(f"k{number}") for number in range(count)]
        values = {kernel["symbol"]: {known_kernels.ROOFS["dram"]: ncu} for kernel in kernels}
        found = known_kernels.rows(kernels, [sampled(kernel["name"], live) for kernel in kernels], values)
        return [line.status for line in known_kernels.judged("kernels.live", found, "ncu", "")]

    def test_limits(self) -> None:
        self.assertEqual(self.judged(0.829, 80.7), [Status.PASS, Status.PASS])
        self.assertEqual(self.judged(0.831, 80.9), [Status.FAIL, Status.FAIL])
        self.assertEqual(self.judged(0.80, 80.0, count=4), [Status.FAIL, Status.FAIL], "too few for a median")
        self.assertEqual([line.status for line in known_kernels.judged("kernels.live", [], None, "why")], [Status.FAIL, Status.SKIPPED])

    def test_a_cost_is_judged_where_rounds_tell(self) -> None:
        status = lambda *ratios: counters.judged_cost("counters.cost.launch.on", list(ratios)).status
        self.assertEqual(status(0.99, 1.0, 1.004, 1.03, 1.08), Status.PASS)
        self.assertEqual(status(0.97, 1.0, 1.02, 1.03, 1.08), Status.SKIPPED)
        self.assertEqual(status(1.006, 1.01, 1.02, 1.03, 1.08), Status.FAIL)

    def test_memory_of_a_process(self) -> None:
        self.assertGreater(counters.peak_bytes(os.getpid()), 1 << 20)
        self.assertEqual(counters.peak_bytes(2**22 + 1), 0)


if __name__ == "__main__":
    unittest.main()
