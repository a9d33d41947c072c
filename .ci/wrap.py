#!/usr/bin/env python3
"""Wraps comments and paragraphs above 120 columns: wrap.py FILE.. (.rs and .md), or all files without an argument.

Changes only lines that are too long, and the following lines of the paragraph as far as words move down. Code,
tables, headings and fenced blocks stay as they are.
"""

import re
import sys

from guard import read, tracked

WIDTH = 120
COMMENT = re.compile(r"(\s*(?://[/!]?|#) )(.*)")
# Start of a separate element: no words are moved before it.
OWN = re.compile(r"(?:[-*|>#]|\d+\.|```|~~~|SAFETY:|\[[^\]]+\]:|TODO)|$")


def parts(line, rust):
    """Prefix of the first line of a paragraph, prefix of its further lines, and the text; None for code."""
    if rust:
        found = COMMENT.fullmatch(line)
        if not found or "#" in found.group(1):
            return None
        prefix, text = found.groups()
    else:
        prefix, text = "", line
    indentation = re.match(r"\s*(?:(?:[-*]|\d+\.)\s+)?", text).group()
    return prefix, prefix + " " * len(indentation), text


def wrap(lines, rust):
    out, fence, at = [], False, 0
    lines = list(lines)
    while at < len(lines):
        line = lines[at]
        at += 1
        found = parts(line, rust)
        text = found[2].strip() if found else ""
        if text.startswith(("```", "~~~")):
            fence = not fence
        plain = found and not fence and not text.startswith(("|", "#", "[", "```")) and not found[2].startswith("    ")
        if len(line) <= WIDTH or not plain or "://" in line:
            out.append(line)
            continue
        cut = line.rfind(" ", 0, WIDTH + 1)
        # Not inside a link or code.
        while cut > len(found[1]) and (line[:cut].count("`") % 2 or line[:cut].rfind("[") > line[:cut].rfind("]") or line[:cut].rfind("](") > line[:cut].rfind(")")):
            cut = line.rfind(" ", 0, cut)
        if cut <= len(found[1]):
            out.append(line)
            continue
        out.append(line[:cut].rstrip())
        rest = found[1] + line[cut:].strip()
        following = parts(lines[at], rust) if at < len(lines) else None
        if following and following[0] == found[0] and lines[at].startswith(found[1]) and not OWN.match(lines[at][len(found[0]) :].strip()):
            lines[at] = rest + " " + lines[at][len(found[0]) :].strip()
        else:
            lines.insert(at, rest)
    return out


for path in sys.argv[1:] or tracked(".rs", ".md"):
    before = read(path)
    after = "\n".join(wrap(before.splitlines(), path.endswith(".rs"))) + "\n"
    if after != before:
        with open(path, "w", encoding="utf-8") as file:
            file.write(after)
        print(path)
