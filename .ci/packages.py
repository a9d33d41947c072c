#!/usr/bin/env python3
"""Checks the dependencies: every package against packages.txt, and the contents of libprof.so against libprof.txt.

libprof.so is loaded into other people's programs, so each crate in it needs a decision. GPUWHY_BLESS=1 rewrites
libprof.txt.
"""

import json
import subprocess

from guard import BLESS, fail, finish, read, table

LIBPROF = ".ci/libprof.txt"


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, capture_output=True, text=True).stdout


def arrows():
    allowed = {row[0]: [set(cell.split()) - {"-"} for cell in row[1:]] for _, row in table(".ci/packages.txt", 4)}
    packages = json.loads(cargo("metadata", "--no-deps", "--format-version", "1"))["packages"]
    ours = {package["name"] for package in packages}
    for package in packages:
        name = package["name"]
        if name not in allowed:
            fail(f"package {name} is not in .ci/packages.txt")
            continue
        inside, outside, tests = allowed[name]
        for dependency in package["dependencies"]:
            other, kind = dependency["name"], dependency["kind"]
            # A test may use the dependencies of its package.
            may = (inside if other in ours else outside) | (tests if kind else set())
            if other not in may:
                fail(f"{name} must not depend on {other}" + (f" ({kind})" if kind else ""))


def libprof():
    lines = cargo("tree", "-p", "gpuwhy-inject", "-e", "normal", "--prefix", "none", "--target", "x86_64-unknown-linux-gnu")
    found = sorted({line.split()[0] for line in lines.splitlines() if line.strip()} - {"gpuwhy-inject"})
    if BLESS:
        with open(LIBPROF, "w", encoding="utf-8") as file:
            file.write("\n".join(found) + "\n")
    expected = read(LIBPROF).split()
    for name in sorted(set(found) ^ set(expected)):
        fail(f"libprof.so {'now contains' if name in found else 'no longer contains'} {name}: see {LIBPROF}")


arrows()
libprof()
finish()
