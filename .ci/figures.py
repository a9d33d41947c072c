#!/usr/bin/env python3
"""Refuses published figures of another version, or that are more than 200 commits old.

docs/design/performance.md names the version and commit that were measured; README.md and `gpuwhy run --help` have figures
of the same measurement. The age is that of the commit that published them, because the commit that was measured may have
been rebased. In a shallow clone it is unknown.

    .ci/figures.py [--oldest COMMITS]
"""

import argparse
import re
import subprocess

from guard import fail, finish, read

PUBLISHED = "docs/design/performance.md"
AGAIN = "measure again (benches/gpu/overhead.py, then benches/gpu/publish.py)"


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oldest", type=int, default=200)
    oldest = parser.parse_args().oldest
    line = re.search(r"^\| gpuwhy \| (\S+)(?: \(\w+\))? \|$", read(PUBLISHED), re.MULTILINE)
    if line is None:
        fail(f"{PUBLISHED} does not name the version that was measured: run benches/gpu/publish.py")
        return
    version = re.search(r'^version = "(.*)"$', read("Cargo.toml"), re.MULTILINE)[1]
    if line[1] != version:
        fail(f"the figures in {PUBLISHED} are of version {line[1]}, this is {version}: {AGAIN}")
    if git("rev-parse", "--is-shallow-repository") == "true":
        print("SKIPPED: the age of the figures, in a shallow clone")
        return
    published = git("log", "--format=%H", "-S", line[0], "--", PUBLISHED).split()
    age = int(git("rev-list", "--count", f"{published[0]}..HEAD")) if published else 0
    if age > oldest:
        fail(f"the figures in {PUBLISHED} are {age} commits old, at most {oldest} are allowed: {AGAIN}")


main()
finish()
