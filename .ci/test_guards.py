"""Tests that every guard finds its kind of fault, and passes without it.

Each test makes a checkout of a few files in a temporary folder, plants one fault, and runs the guard in it.
"""

import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
LIMITS = "# none\n"


class Checkout(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        subprocess.run(["git", "init", "-q"], cwd=self.folder.name, check=True)
        self.write(".ci/limits.txt", LIMITS)

    def write(self, path, text):
        path = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, path):
        with open(os.path.join(self.folder.name, path), encoding="utf-8") as file:
            return file.read()

    def guard(self, name, *arguments, bless=False):
        environment = {**os.environ, "GPUWHY_BLESS": "1" if bless else "", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, os.path.join(HERE, name), *arguments]
        return subprocess.run(command, cwd=self.folder.name, capture_output=True, text=True, env=environment)

    def content(self, name, *arguments):
        result = self.guard(name, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)

    def finds(self, text, name, *arguments):
        result = self.guard(name, *arguments)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn(text, result.stderr)


class Circles(Checkout):
    def test_three_modules_in_a_circle(self):
        self.write("a/src/lib.rs", "mod b;\nmod c;\nmod d;\n")
        self.write("a/src/b.rs", "use crate::c::C;\npub struct B(C);\n")
        self.write("a/src/c.rs", "use crate::d::D;\npub struct C(D);\n")
        self.write("a/src/d.rs", "pub struct D;\n")
        self.content("circles.py", "a/src")
        self.write("a/src/d.rs", "pub struct D(Box<crate::b::B>);\n")
        self.finds("a circle of 3 modules", "circles.py", "a/src")

    def test_two_folders_that_import_each_other(self):
        self.write("a/src/lib.rs", "mod b;\nmod c;\n")
        self.write("a/src/b/mod.rs", "mod d;\nuse crate::c::C;\npub struct B(C);\n")
        self.write("a/src/b/d.rs", "pub struct D;\n")
        self.write("a/src/c.rs", "pub struct C;\n")
        self.content("circles.py", "a/src")
        self.write("a/src/c.rs", "pub struct C(crate::b::d::D);\n")
        self.finds("1 pairs of folders", "circles.py", "a/src")
        self.content("circles.py", "a/src=1")


class Figures(Checkout):
    def commit(self, *options):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        for command in (["add", "."], [*who, "commit", "-q", "-m", "a", *options]):
            subprocess.run(["git", *command], cwd=self.folder.name, check=True)

    def publish(self, version):
        self.write("docs/design/performance.md", f"| gpu | A |\n| gpuwhy | {version} (34b6404aead5) |\n")
        self.commit()

    def setUp(self):
        super().setUp()
        self.write("Cargo.toml", '[workspace.package]\nversion = "0.2.0"\n')

    def test_another_version(self):
        self.publish("0.2.0")
        self.content("figures.py")
        self.publish("0.1.0")
        self.finds("of version 0.1.0, this is 0.2.0", "figures.py")

    def test_old_figures(self):
        self.publish("0.2.0")
        self.commit("--allow-empty")
        self.commit("--allow-empty")
        self.content("figures.py", "--oldest", "2")
        # Other changes of the page do not make them younger.
        self.write("docs/design/performance.md", "# Performance\n" + self.read("docs/design/performance.md"))
        self.commit()
        self.finds("3 commits old", "figures.py", "--oldest", "2")
        self.content("figures.py")

    def test_figures_of_no_version(self):
        self.write("docs/design/performance.md", "# Performance\n")
        self.commit()
        self.finds("does not name the version", "figures.py")


class Packages(Checkout):
    def package(self, name, dependencies=""):
        self.write(f"{name}/Cargo.toml", f'[package]\nname = "{name}"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n{dependencies}')
        self.write(f"{name}/src/lib.rs", "")

    def setUp(self):
        super().setUp()
        self.write("Cargo.toml", '[workspace]\nmembers = ["gpuwhy-inject", "core", "cli"]\nresolver = "2"\n')
        self.package("gpuwhy-inject", 'core = { path = "../core" }\n')
        self.package("core")
        self.package("cli")
        self.write(".ci/packages.txt", "gpuwhy-inject | core cli | - | -\ncore | - | - | -\ncli | - | - | -\n")
        self.write(".ci/libprof.txt", "core\n")
        self.content("packages.py")

    def test_a_dependency_that_is_not_listed(self):
        self.package("core", 'cli = { path = "../cli" }\n')
        self.finds("core must not depend on cli", "packages.py")

    def test_a_crate_more_in_libprof(self):
        self.package("gpuwhy-inject", 'core = { path = "../core" }\ncli = { path = "../cli" }\n')
        self.finds("libprof.so now contains cli", "packages.py")

    def test_a_package_that_is_not_listed(self):
        self.write(".ci/packages.txt", "gpuwhy-inject | core | - | -\ncore | - | - | -\n")
        self.finds("package cli is not in", "packages.py")


class Text(Checkout):
    def setUp(self):
        super().setUp()
        self.write("docs/a.md", "# A heading, with `code`\n\n[b](b.md#the-second) [self](#a-heading-with-code) `docs/b.md`\n")
        self.write("docs/b.md", "## The second\n\n| " + "wide table " * 20 + "|\n\n```\n" + "x" * 200 + "\n[no](link.md)\n```\n")
        self.content("text.py")

    def test_a_link_to_no_file(self):
        self.write("docs/b.md", "## The second\n[gone](gone.md)\n")
        self.finds("gone.md: no such file", "text.py")

    def test_a_link_to_no_heading(self):
        self.write("docs/b.md", "## Another\n")
        self.finds("b.md#the-second: no such heading", "text.py")

    def test_a_path_that_does_not_exist(self):
        self.write("docs/b.md", "## The second\n`docs/gone.rs`\n")
        self.finds("`docs/gone.rs` does not exist", "text.py")

    def test_a_line_that_is_too_long(self):
        for path, begin in [("c.rs", "    /// "), ("c.md", "")]:
            self.write(path, begin + "word " * 25 + "\n\nother\n")
            self.finds(f"{path}:1: {len(begin) + 125} columns", "text.py")


class Structure(Checkout):
    def setUp(self):
        super().setUp()
        self.write("Cargo.toml", '[package]\nname = "a"\nversion = "0.1.0"\nedition = "2021"\n')
        self.write("src/lib.rs", "")
        self.write("tests/main.rs", "fn long() {\n" + "    x();\n" * 150 + "}\n")
        self.write("ARCHITECTURE.md", "`src`, `tests/`\n")
        self.content("structure.py")

    def test_a_long_file(self):
        self.write("src/lib.rs", "//\n" * 801)
        self.finds("src/lib.rs: 801 lines", "structure.py")

    def test_a_path_attribute(self):
        self.write("src/lib.rs", '#[path = "../other.rs"]\nmod other;\n')
        self.finds("src/lib.rs:1:", "structure.py")

    def test_two_test_binaries(self):
        self.write("tests/second.rs", "\n")
        self.finds("2 test binaries", "structure.py")

    def test_a_folder_that_nobody_explains(self):
        self.write("attic/a.txt", "\n")
        self.finds("attic/", "structure.py")


if __name__ == "__main__":
    unittest.main()
