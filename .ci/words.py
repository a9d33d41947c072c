#!/usr/bin/env python3
"""Counts words that this project avoids: words.txt lists them, with the current number of each and a replacement.

A word is found in prose, in messages and as a part of an identifier: `hole` in `host_hole`, `HoleKind` and "a hole", not in
"whole". The number of a word may not grow. File names are checked too.
"""

import collections
import os
import re

from guard import BLESS, fail, finish, lower, read, table, tracked, within

WORDS = ".ci/words.txt"
ENDINGS = (".rs", ".md", ".toml", ".py", ".sh", ".h", ".c", ".cpp", ".cu", ".yml", ".txt")
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def main():
    rows = list(table(WORDS, 4))
    exceptions = {(row[0], row[2]) for _, row in rows if row[1] == "except"}
    files = tracked(*ENDINGS)
    texts = []
    for path in files:
        text = CAMEL.sub(" ", read(path)).lower()
        texts.append((path, text, collections.Counter(re.findall("[a-z]+", text))))
    for number, row in rows:
        if row[1] == "except":
            continue
        forms = row[0].split()
        counts = {path: sum(count(form, *rest) for form in forms) for path, *rest in texts if (forms[0], path) not in exceptions}
        total = sum(counts.values())
        if BLESS and total < int(row[1]):
            lower(WORDS, number, [row[0], str(total), *row[2:]])
        else:
            examples = [f"{path}: {found}" for path, found in counts.items() if found]
            within(f'"{forms[0]}" (write: {row[2]})', total, int(row[1]), examples)
    for path in files:
        folder, name = os.path.split(path)
        if {os.path.splitext(name)[0], os.path.basename(folder)} & VAGUE:
            fail(f"{path}: a name that says nothing about the contents")


def count(form, text, words):
    """`word` as a whole word or a part of an identifier; `word*` with any ending; `word_` and `_word` as a part of a longer name."""
    if form.endswith("*"):
        return text.count(form[:-1])
    return text.count(form) if "_" in form else words[form]


main()
finish()
