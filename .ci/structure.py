#!/usr/bin/env python3
"""Checks the structure of the sources: sizes, one module style, no `#[path]`, one test binary in each package."""

import json
import os
import re
import subprocess

from guard import fail, finish, ratchet, read, tracked

FILE_LINES = 500
FUNCTION_LINES = 100
# Counts the allocations of the process, so no other test may run in parallel.
TWO_TEST_BINARIES = {"gpuwhy-report"}


def is_test(path):
    return "tests/" in path or path.startswith(("testing/", "benches/")) or path.endswith("tests.rs") or "/benches/" in path


def functions(text):
    """(line, length in lines, name) of each function, found by its indentation, which rustfmt keeps consistent."""
    begun = {}
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*#\[cfg\(test\)\]", line):
            return
        if found := re.match(r"(\s*)(?:pub(?:\([^)]*\))?\s+)?(?:\w+\s+|extern \"C\"\s+)*fn\s+(\w+)", line):
            begun[found.group(1)] = (number, found.group(2))
        elif line.strip() == "}" and (function := begun.pop(line[:-1], None)):
            yield function[0], number - function[0] + 1, function[1]


def sizes(paths):
    for path in paths:
        text = read(path)
        lines = text.count("\n")
        if lines > FILE_LINES:
            fail(f"{path}: {lines} lines, at most {FILE_LINES} are allowed")
        # Only a file above the limit can have a function above it.
        if lines > FUNCTION_LINES and not is_test(path):
            for line, length, name in functions(text):
                if length > FUNCTION_LINES:
                    yield f"{path}: {name}: {length} lines"


def path_attributes(paths):
    for path in paths:
        if not path.startswith(("testing/model/", "testing/fuzz/")):
            for number, line in enumerate(read(path).splitlines(), 1):
                if re.match(r"\s*#\[path\b", line):
                    yield f"{path}:{number}: a module is where its parent expects it"


def module_style(paths):
    folders = {os.path.dirname(path) for path in paths}
    for path in paths:
        if path[: -len(".rs")] in folders:
            fail(f"{path}: a module with children is {path[:-3]}/mod.rs")


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
ratchet("functions above 100 lines", sizes(sources))
ratchet("path attributes outside testing/model and testing/fuzz", path_attributes(sources))
module_style(sources)
test_binaries()
ratchet("top folders that ARCHITECTURE.md does not name", top_level())
finish()
