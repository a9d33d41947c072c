"""Shared code of the guards in this folder: the tracked files, the limits, and the reporting of findings.

A guard is a program without arguments that runs in the root of a checkout and exits with 1 when it finds a problem. A
limit in `limits.txt` is a ratchet: the current number is tolerated and may not grow. `GPUWHY_BLESS=1` lowers limits to
the number found, and never raises one.
"""

import os
import re
import subprocess
import sys

BLESS = os.environ.get("GPUWHY_BLESS") == "1"
LIMITS = ".ci/limits.txt"
# Recorded or generated data, text of other projects, and the guards themselves, which contain the forbidden words.
NOT_OURS = ("testing/fuzz/seeds/", "testing/fixtures/", "tests/kineto_reference/data/", "trace/tests/golden/", ".ci/", "LICENSE")

failures = 0


def fail(message):
    global failures
    failures += 1
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)


def finish():
    sys.exit(1 if failures else 0)


def tracked(*endings):
    """Tracked and new files with one of these endings that exist and are ours."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted({n for n in names if n.endswith(endings) and not n.startswith(NOT_OURS) and os.path.isfile(n)})


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def table(path, columns):
    """The lines of a table whose columns are separated by `|`: line number and columns. `#` starts a comment."""
    for number, line in enumerate(read(path).splitlines()):
        if line.strip() and not line.startswith("#"):
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) != columns:
                sys.exit(f"{path}:{number + 1}: expected {columns} columns")
            yield number, cells


def lower(path, number, cells):
    """Rewrites a line of a table."""
    lines = read(path).splitlines()
    lines[number] = " | ".join(cells)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def within(what, found, limit, examples=()):
    """True if `found` is within the limit; otherwise reports it, with some examples."""
    if found > limit:
        fail(f"{what}: {found}, at most {limit} are allowed")
        for example in list(examples)[:20]:
            print(f"  {example}", file=sys.stderr)
    elif found < limit:
        print(f"{what}: {found}, fewer than the limit of {limit}: GPUWHY_BLESS=1 lowers it")


def ratchet(name, examples):
    """Compares the number of `examples` with the limit of this name, 0 by default."""
    examples = list(examples)
    for number, cells in table(LIMITS, 2) if os.path.isfile(LIMITS) else ():
        if cells[0] == name:
            if BLESS and len(examples) < int(cells[1]):
                lower(LIMITS, number, [name, str(len(examples))])
                return
            return within(name, len(examples), int(cells[1]), examples)
    within(name, len(examples), 0, examples)


def without_fences(text):
    """Markdown with the lines of fenced code blocks blanked out."""
    lines, fence = [], None
    for line in text.splitlines():
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and fence is None:
            fence = mark.group(1)
            lines.append("")
        elif fence is not None:
            if line.strip().startswith(fence):
                fence = None
            lines.append("")
        else:
            lines.append(line)
    return lines
