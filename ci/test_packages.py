"""Tests what python/package.py and python/wheel.py check, and the lines of the documents that install a release."""

import contextlib
import io
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
import package  # noqa: E402
import wheel  # noqa: E402

NOBODY = 65534


def install_as_nobody(root, deb, answers):
    try:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        # Users have no sbin on the PATH.
        os.environ.update(PATH="/usr/bin:/bin", HOME=str(root))
        package.make_system(root)
        package.dpkg(root, "--install", str(deb))
        installed = (root / "usr/share/sample/file").read_text()
        package.dpkg(root, "--purge", "sample")
        left = (root / "usr/share/sample/file").exists()
        try:
            package.dpkg(root, "--install", str(root / "missing.deb"))
        except AssertionError as error:
            answers.put((installed, left, str(error)))
    except BaseException as error:
        answers.put(repr(error))


class Scratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.folder.chmod(0o755)


@unittest.skipIf(shutil.which("dpkg-deb") is None, "SKIPPED: there is no dpkg-deb")
class Debian(Scratch):
    def test_any_user_can_try_a_package_and_sees_errors_of_dpkg(self):
        tree = self.folder / "sample"
        for name, text in {
            "usr/share/sample/file": "text",
            "DEBIAN/control": "Package: sample\nVersion: 1\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: x\n",
        }.items():
            (tree / name).parent.mkdir(parents=True)
            (tree / name).write_text(text)
        deb = self.folder / "sample.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, deb], stdout=subprocess.DEVNULL, check=True)
        root = self.folder / "root"
        root.mkdir()
        root.chmod(0o777)
        fork = multiprocessing.get_context("fork")
        answers = fork.Queue()
        process = fork.Process(target=install_as_nobody, args=(root, deb, answers))
        process.start()
        answer = answers.get(timeout=60)
        process.join()
        self.assertIsInstance(answer, tuple, answer)
        self.assertEqual(answer[:2], ("text", False))
        self.assertIn("missing.deb", answer[2].split("\n", 1)[1])


class Wheel(Scratch):
    def audited(self, tags, tag):
        """The faults of the tag of a wheel, by a program that answers like auditwheel."""
        file = self.folder / f"gpuwhy-0.2.0-py3-none-{tags}.whl"
        answer = self.folder / "answer.json"
        answer.write_text(json.dumps({"wheel": file.name, "overall_tag": tag, "sym_tag": tag}))
        program = self.folder / "auditwheel"
        program.write_text(f"#!/bin/sh\n[ $# = 3 ] && [ $2 = --json ] && cat {answer}\n")
        program.chmod(0o755)
        with contextlib.redirect_stdout(io.StringIO()):
            return wheel.audited(program, file)

    def test_the_tag_must_be_that_of_auditwheel(self):
        both = "manylinux_2_17_x86_64.manylinux2014_x86_64"
        self.assertEqual(self.audited(both, "manylinux_2_17_x86_64"), [])
        self.assertEqual(self.audited(both, "manylinux_2_35_x86_64"), ["auditwheel finds the tag manylinux_2_35_x86_64"])
        self.assertEqual(self.audited(both, "linux_x86_64"), ["auditwheel finds the tag linux_x86_64"])


class Documented(Scratch):
    def test_each_way_to_install_a_release_works_by_itself(self):
        page = (ROOT / "docs" / "guide" / "install.md").read_text()
        section = page.split("## Tarball and Debian package\n")[1].split("\n## ")[0]
        blocks = re.findall(r"```sh\n(.*?)```", section, re.S)
        self.assertEqual(len(blocks), 2)
        release = self.folder / "release"
        (release / "gpuwhy-0.2.0" / "bin").mkdir(parents=True)
        (release / "gpuwhy-0.2.0" / "bin" / "gpuwhy").touch()
        script = """cd release; tar -czf gpuwhy-0.2.0-linux-x86_64.tar.gz gpuwhy-0.2.0; touch gpuwhy_0.2.0_amd64.deb
            sha256sum *.tar.gz *.deb > SHA256SUMS"""
        subprocess.run(["bash", "-ec", script], cwd=self.folder, check=True)
        programs = self.folder / "programs"
        programs.mkdir()
        for name, body in {"curl": f'for word; do case $word in */*) cp "{release}/${{word##*/}}" .;; esac; done',
                           "sudo": '[ "$1 $2" = "dpkg -i" ] && mkdir -p "$HOME/.local/bin" && cp "$3" "$HOME/.local/bin/gpuwhy"'}.items():
            (programs / name).write_text(f"#!/bin/sh\n{body}\n")
            (programs / name).chmod(0o755)
        for number, block in enumerate(blocks):
            with self.subTest(block=block):
                home = self.folder / f"home{number}"
                home.mkdir()
                finished = subprocess.run(["bash", "-ec", block], cwd=home, capture_output=True, text=True,
                                          env={"HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}"})
                self.assertEqual(finished.returncode, 0, finished.stderr)
                self.assertTrue((home / ".local" / "bin" / "gpuwhy").is_file())


if __name__ == "__main__":
    unittest.main()
