#!/usr/bin/env python3
"""Checks the text of documents: link targets and paths exist, and comments and paragraphs have at most 120 columns."""

import os
import re

from guard import finish, ratchet, read, tracked, without_fences

WIDTH = 120
LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s+(\S+)", re.M)
HTML = re.compile(r"(?:href|src)=\"([^\"]+)\"")


def anchors(text):
    """Anchors that GitHub and mdBook generate from the headings."""
    found = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    for line in without_fences(text):
        if heading := re.match(r"#{1,6}\s+(.*?)\s*#*$", line):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
            slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            number, name = 0, slug
            while name in found:
                number += 1
                name = f"{slug}-{number}"
            found.add(name)
    return found


def broken_links(documents):
    for path in documents:
        text = "\n".join(without_fences(read(path)))
        text = re.sub(r"`[^`\n]*`", "", text)
        targets = [a or b for a, b in LINK.findall(text)] + HTML.findall(text)
        for target in targets:
            if re.match(r"[a-z][a-z+.-]*:", target):
                continue
            name, _, anchor = target.partition("#")
            file = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
            if not os.path.exists(file):
                yield f"{path}: {target}: no such file"
            elif anchor and file.endswith(".md") and anchor.lower() not in anchors(read(file)):
                yield f"{path}: {target}: no such heading"


def stale_paths(documents):
    """Paths in backquotes that start with a folder of this project but do not exist."""
    tops = {name for name in os.listdir(".") if os.path.isdir(name) and name != "target"}
    for path in documents:
        for name in re.findall(r"`([\w.-]+/[\w./-]+)`", "\n".join(without_fences(read(path)))):
            here = os.path.join(os.path.dirname(path), name)
            if name.split("/")[0] in tops and not os.path.exists(name.rstrip("/.")) and not os.path.exists(here):
                yield f"{path}: `{name}` does not exist"


def wide_lines(paths):
    """Lines that are too long, except tables, links and code: rustfmt wraps code, and cannot wrap strings in it."""
    for path in paths:
        markdown = path.endswith(".md")
        for number, line in enumerate(without_fences(read(path)) if markdown else read(path).splitlines(), 1):
            if len(line) <= WIDTH or "](" in line or "://" in line:
                continue
            if not re.match(r"\s*\||\[[^\]]+\]:" if markdown else r"(?!\s*//)|\s*//[/!]? \|", line):
                yield f"{path}:{number}: {len(line)} columns"


documents = tracked(".md")
ratchet("broken links", broken_links(documents))
# Entries of past versions stay as they are.
ratchet("stale paths in documents", stale_paths([path for path in documents if path != "CHANGELOG.md"]))
ratchet("comments above 120 columns in .rs", wide_lines(tracked(".rs")))
ratchet("lines above 120 columns in .md", wide_lines(documents))
finish()
