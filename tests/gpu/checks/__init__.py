"""The checks, a file for each promise."""
