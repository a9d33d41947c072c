"""Every command in the documents is tried on a GPU, or is listed as not run, with the reason."""

from __future__ import annotations

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import documented
from checks import docs


class Documented(unittest.TestCase):
    def test_every_line_can_be_run_or_has_a_reason(self) -> None:
        made: dict[str, set[str]] = {}
        unknown = []
        for line in documented.documented():
            missing = documented.missing(line, made.setdefault(line.page, set()))
            if missing and line.not_run() is None:
                unknown.append(f"{line.place}: `{line.text}` needs {', '.join(missing)}")
            if line.kind != "sh" and line.not_run() is None and docs.preamble(line) is None:
                unknown.append(f"{line.place}: no program of workloads/documented says what the snippet's names are")
        self.assertEqual(unknown, [], "name it in GIVEN and have checks/docs.py make it, or in NOT_RUN with the reason")

    def test_the_documents_are_read(self) -> None:
        lines = documented.documented()
        self.assertGreater(len(lines), 90)
        texts = [line.text for line in lines]
        for text in ("gpuwhy run -- python train.py", "gpuwhy kernels -- PROGRAM", "python -m gpuwhy train.py --lr 3e-4"):
            self.assertIn(text, texts)
        self.assertEqual([line.kind for line in lines].count("python"), 4)
        self.assertEqual([line.kind for line in lines].count("notebook"), 1)

    def test_lines_are_distinguished_from_comments_and_go_on(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text(
                "```sh\ngpuwhy diff A B   # with ' a comment\ngpuwhy query run.gpuwhy \"SELECT '#'\n  FROM x\"\n```\n"
                "Call `gpuwhy run` or `gpuwhy run -c nvtx -- PROGRAM`.\n\n    gpuwhy top      every process\n")
            found = [(line.number, line.text) for line in documented.lines_of(page)]
        self.assertEqual(found, [
            (2, "gpuwhy diff A B"), (3, "gpuwhy query run.gpuwhy \"SELECT '#'\n  FROM x\""), (6, "gpuwhy run -c nvtx -- PROGRAM"),
            (8, "gpuwhy top")])

    def test_a_new_line_needs_its_files(self) -> None:
        line = documented.Line("docs/x.md", 1, "sh", "gpuwhy report new.gpuwhy TRACE --html out.html")
        self.assertEqual(documented.missing(line, set()), ["new.gpuwhy"])
        self.assertEqual(documented.missing(line, {"new.gpuwhy"}), [])


if __name__ == "__main__":
    unittest.main()
