"""Comparison of metrics by name, with made-up tables: python3 -m unittest discover -s tests/gpu"""

from __future__ import annotations

import unittest

import counters_by_name as by_name

RAW = '''==PROF== Disconnected
"ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum","lts__t_sector_hit_rate.pct","dram__bytes_read.sum"
"","","","","ns","%","byte"
"0","_Zcopy","(512, 1, 1)","(8, 1, 1)","5,000","40.5","1,000,000,000"
"1","_Ztail","(32, 1, 1)","(1, 1, 1)","100","1.5","64"
"2","_Zspin_kernelx","(1, 1, 1)","(1, 1, 1)","9,000","0","0"
'''


def measured(**changes) -> dict:
    metrics = {"gpu__time_duration.sum": 5200.0, "lts__t_sector_hit_rate.pct": 42.0, "dram__bytes_read.sum": 1.02e9}
    return {"symbol": "_Zcopy", "grid": [8, 1, 1], "block": [512, 1, 1], "outcome": "measured", "passes": 3, "metrics": metrics, **changes}


class ByName(unittest.TestCase):
    def document(self, **changes) -> dict:
        return by_name.document([measured(**changes)], ["elementwise: copy"], RAW, RAW.replace("40.5", "41.0"))

    def rows(self, **changes) -> list[dict]:
        return self.document(**changes)["rows"]

    def test_the_longest_kernel_of_an_operation_is_compared(self) -> None:
        (row,) = self.rows()
        self.assertEqual(row["values"]["lts__t_sector_hit_rate.pct"], [42.0, 41.0])
        self.assertEqual(row["replayed"]["lts__t_sector_hit_rate.pct"], 40.5)
        differences = by_name.judged(row)
        self.assertAlmostEqual(differences["lts__t_sector_hit_rate.pct"], 1.0)
        self.assertAlmostEqual(differences["dram__bytes_read.sum"], 2.0)
        self.assertNotIn("gpu__time_duration.sum", differences)
        self.assertIn("1 kernels, 2 values: median difference 1.50, 2 within", by_name.summary({"rows": [row]}))
        self.assertIn("2 values, median 1.75, 2 within. Left out: 12 values", by_name.summary({"rows": [row]}))
        self.assertIn("| 42.0 / 41.0 / 40.5 | 2 | +2.0 %, `dram__bytes_read.sum` |", by_name.table({"rows": [row]}))

    def test_another_shape_or_no_measurement_is_not_compared(self) -> None:
        for changes in ({"grid": [9, 1, 1]}, {"block": [256, 1, 1]}, {"outcome": "not_launched"}, {"symbol": "_Ztail"}):
            document = self.document(**changes)
            self.assertEqual((document["rows"], list(document["left_out"])), ([], ["elementwise: copy"]))

    def test_two_operations_with_the_same_kernel_are_not_compared(self) -> None:
        twice = RAW + RAW.split("\n", 3)[3]
        document = by_name.document([measured()], ["one", "two"], twice, twice)
        self.assertEqual((document["rows"], list(document["left_out"])), ([], ["one", "two"]))
        self.assertIn("same kernel", document["left_out"]["one"])

    def test_values_that_mean_nothing(self) -> None:
        self.assertIsNone(by_name.difference("dram__bytes_read.sum", 2e6, 1e6))
        self.assertIsNone(by_name.difference("lts__t_sector_hit_rate.pct", None, 1.0))
        self.assertIsNone(by_name.difference("sm__inst_executed.sum", 0.0, 0.0))
        self.assertEqual(by_name.difference("sm__inst_executed.sum", 1.0, 0.0), float("inf"))

    def test_units_are_read_from_the_second_line(self) -> None:
        self.assertEqual(by_name.units(RAW)["dram__bytes_read.sum"], "byte")


if __name__ == "__main__":
    unittest.main()
