"""Reads traces."""

import gpuwhy
import statements

# `expect` raises if the trace is not as expected, as the snippet states.
statements.run({"gpuwhy": gpuwhy}, (AssertionError,))
