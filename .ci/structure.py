#!/usr/bin/env python3
"""Checks the structure of the sources: file sizes, no `#[path]`, one test binary in each package, a name for each folder."""

import json
import os
import re
import subprocess

from guard import fail, finish, ratchet, read, tracked

FILE_LINES = 800
# Counts the allocations of the process, so no other test may run in parallel.
TWO_TEST_BINARIES = {"gpuwhy-report"}


def sizes(paths):
    for path in paths:
        lines = read(path).count("\n")
        if lines > FILE_LINES:
            fail(f"{path}: {lines} lines, at most {FILE_LINES} are allowed")


def path_attributes(paths):
    for path in paths:
        if not path.startswith(("testing/model/", "testing/fuzz/")):
            for number, line in enumerate(read(path).splitlines(), 1):
                if re.match(r"\s*#\[path\b", line):
                    yield f"{path}:{number}: a module is where its parent expects it"


def test_binaries():
    metadata = subprocess.run(["cargo", "metadata", "--no-deps", "--format-version", "1"], check=True, capture_output=True, text=True)
    for package in json.loads(metadata.stdout)["packages"]:
        binaries = [target["name"] for target in package["targets"] if "test" in target["kind"]]
        if len(binaries) > 1 + (package["name"] in TWO_TEST_BINARIES):
            fail(f"{package['name']}: {len(binaries)} test binaries: {' '.join(binaries)}; one links faster")


def top_level():
    """Checks that ARCHITECTURE.md explains every top-level folder."""
    known = read("ARCHITECTURE.md") if os.path.isfile("ARCHITECTURE.md") else ""
    tops = {path.split("/")[0] for path in tracked("") if "/" in path}
    for name in sorted(tops):
        if not name.startswith(".") and not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", known):
            yield f"{name}/"


sources = tracked(".rs")
sizes(sources)
ratchet("path attributes outside testing/model and testing/fuzz", path_attributes(sources))
test_binaries()
ratchet("top folders that ARCHITECTURE.md does not name", top_level())
finish()
