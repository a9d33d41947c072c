"""Collects garbage without pause."""

import gc
import os

from telling import say

kept = [[number] for number in range(200_000)]
gc.disable()
say([])
os.read(0, 1)
while True:
    gc.collect()
