"""Reads traces."""

import gpuwhy
import statements

# `expect` raises where the trace is not as wanted, which the snippet says.
statements.run({"gpuwhy": gpuwhy}, (AssertionError,))
