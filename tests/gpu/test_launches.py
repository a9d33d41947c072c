"""The arithmetic of the overhead of a launch (checks/launches.py), on made-up printed lines."""

from __future__ import annotations

import unittest

from checks import launches
from prepared import Failed


def line(begin: float, ns: float) -> str:
    return f"repetition begin_s={begin:.6f} end_s={begin + 0.5:.6f} ns={ns:.1f} thread_ns={ns - 1:.1f} instructions=5000.0\n"


class Launches(unittest.TestCase):
    def test_repetitions_are_read(self) -> None:
        found = launches.repetitions("microbench launch kernels=1\n" + line(3.0, 2000.0) + line(3.5, 2100.0) + "time 1\n")
        self.assertEqual(found[1], launches.Repetition(3.5, 4.0, 2100.0, 2099.0, 5000.0))
        with self.assertRaises(Failed):
            launches.repetitions("microbench launch kernels=1\n")

    def test_variants_are_compared_within_rounds(self) -> None:
        self.assertEqual(launches.over({"a": [2.2, 4.0, 3.0], "b": [2.0, 4.0, 2.0]}, "a", "b"), (1.1, 1.0, 1.5))

    def test_each_round_begins_with_another_variant(self) -> None:
        names = ["bare", "light", "floor"]
        self.assertEqual([launches.in_turn(names, number)[0] for number in range(4)], [*names, "bare"])

    def test_the_beginning_of_an_interval_is_left_out(self) -> None:
        printed = "".join(line(10.0 + 0.5 * index, 2000.0 if index < 10 else 2200.0) for index in range(20))
        found = launches.repetitions(printed)
        self.assertEqual(launches.by_interval(found, [10.0, 15.0, 20.0]), [2000.0, 2200.0])
        with self.assertRaises(Failed):
            launches.by_interval(found, [10.0, 15.0, 16.0])


if __name__ == "__main__":
    unittest.main()
