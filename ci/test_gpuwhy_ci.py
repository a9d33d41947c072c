"""Tests gpuwhy_ci.py on a sample repository: its program plays recorded sessions through the real libprof.so.

The commits differ in the recording that they play. A server of this test stands in for GitHub and GitLab. The binaries
are those of GPUWHY_TEST_BINARIES, else of target/debug; without them the tests are skipped.
"""

import http.server
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "ci" / "gpuwhy_ci.py"
sys.path.insert(0, str(SCRIPT.parent))
import gpuwhy_ci  # noqa: E402

BINARIES = pathlib.Path(os.environ.get("GPUWHY_TEST_BINARIES") or ROOT / "target" / "debug")
# Cargo leaves libraries that tests need in `deps`.
PROFILER, REPLAY = (
    next((path for path in (BINARIES / "deps" / name, BINARIES / name) if path.is_file()), BINARIES / name)
    for name in ("libprof.so", "libcupti_replay.so"))
NEEDED = [BINARIES / "gpuwhy", PROFILER, BINARIES / "gpuwhy-replay-host", REPLAY]
MISSING = [path.name for path in NEEDED if not path.is_file()]
# A loop whose data is loaded by other processes, and the same loop with data loaded by itself.
FAST, SLOW = "resnet_workers4", "resnet_workers0"
WITHOUT_TOKENS = 'test -z "$GITHUB_TOKEN$GITLAB_TOKEN"'
BOT = {"id": 5, "login": "github-actions[bot]", "type": "Bot"}


class Forge(http.server.BaseHTTPRequestHandler):
    """Comments of one pull request of GitHub, and of one merge request of GitLab."""

    def answer(self, found, code=200):
        body = json.dumps(found).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]

    def do_GET(self):
        self.server.seen.append(f"GET {self.path}")
        if self.path.endswith("/user"):
            # A job's token of GitHub may not ask.
            me = self.server.me
            return self.answer(me or {"message": "Resource not accessible by integration"}, 200 if me else 403)
        page = int(re.search(r"&page=(\d+)", self.path)[1])
        self.answer(self.server.comments if page == 1 else [])

    def do_POST(self):
        if self.server.read_only:
            return self.answer({"message": "Resource not accessible by integration"}, 403)
        self.server.seen.append(f"POST {self.path}")
        self.server.comments.append({"id": 10 + len(self.server.comments), "body": self.body(), "user": self.server.me or BOT})
        self.answer(self.server.comments[-1], 201)

    def do_PATCH(self):
        self.server.seen.append(f"{self.command} {self.path}")
        [one] = [one for one in self.server.comments if self.path.endswith(f"/{one['id']}")]
        body = self.body()
        if one.get("locked"):
            return self.answer({"message": "Forbidden"}, 403)
        one["body"] = body
        self.answer(one)

    do_PUT = do_PATCH

    def log_message(self, *_):
        pass


def serve(test):
    test.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forge)
    test.server.comments, test.server.seen = [{"id": 1, "body": "Nice.", "user": None}], []
    test.server.read_only, test.server.me = False, None
    threading.Thread(target=test.server.serve_forever, daemon=True).start()
    test.addCleanup(test.server.server_close)
    test.addCleanup(test.server.shutdown)


@unittest.skipIf(MISSING, f"SKIPPED: not built in {BINARIES}: {', '.join(MISSING)}")
class SampleRepository(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.repository = self.folder / "sample"
        self.repository.mkdir()
        serve(self)
        self.git("init", "--quiet", "--initial-branch=main")
        (self.repository / "train.sh").write_text(
            f'GPUWHY_REPLAY={ROOT}/testing/fixtures/$(cat program.txt).cupti.zst exec {BINARIES}/gpuwhy-replay-host\n')

    def git(self, *arguments):
        who = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
        finished = subprocess.run(["git", *who, *arguments], cwd=self.repository, capture_output=True, text=True)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        return finished.stdout.strip()

    def commit(self, program):
        (self.repository / "program.txt").write_text(program)
        (self.repository / "number.txt").write_text(str(len(os.listdir(self.repository / ".git" / "objects"))))
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", program)
        return self.git("rev-parse", "HEAD")

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("GPUWHY_", "GITHUB_", "INPUT_", "CI_", "GITLAB_"))}
        return {**kept, "GPUWHY_LIB": str(PROFILER), "GPUWHY_CUPTI_PATH": str(REPLAY), "GPUWHY_EXIT_TIMEOUT": "60s",
                "GPUWHY_BUFFER_MEMORY": "4G", "GPUWHY_CONTROL": "off", "XDG_CACHE_HOME": str(self.folder), **more}

    def ci(self, *arguments, **more):
        command = [sys.executable, str(SCRIPT), "--gpuwhy", str(BINARIES / "gpuwhy"), *arguments]
        finished = subprocess.run(command, cwd=self.repository, env=self.environment(**more), capture_output=True, text=True)
        return finished.returncode, finished.stdout + finished.stderr

    def github(self, base):
        """The environment of a job of GitHub for a pull request that is based on this commit."""
        event = self.folder / "event.json"
        event.write_text(json.dumps({"pull_request": {"number": 7, "base": {"sha": base}}}))
        return {"GITHUB_EVENT_PATH": str(event), "GITHUB_REPOSITORY": "team/sample", "GITHUB_TOKEN": "secret",
                "GITHUB_API_URL": f"http://127.0.0.1:{self.server.server_port}",
                "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"), "GITHUB_OUTPUT": str(self.folder / "output.txt")}

    def test_a_slower_pull_request_fails_with_one_comment_that_says_why(self):
        base, _ = self.commit(FAST), self.commit(SLOW)
        github = self.github(base)
        recording = ["--setup", WITHOUT_TOKENS, "--command", f"{WITHOUT_TOKENS} && sh train.sh", "--runs", "5", "--limits", "--kernels-at-most 1000000"]
        code, log = self.ci(*recording, **self.without_token(github))
        self.assertEqual(code, 1, log)
        self.assertIn("slower=5 FAILED: a step takes", log)
        self.assertIn("limits passed", log)
        self.assertEqual(len(self.server.comments), 1)
        code, log = self.ci("--comment", **github)
        self.assertEqual((code, log), (0, "gpuwhy_ci: comment created\n"))
        output = self.repository / "gpuwhy-ci"
        self.assertEqual([len(list((output / side).glob("*.gpuwhy"))) for side in ("base", "head")], [5, 5])
        comment = self.server.comments[-1]["body"]
        for part in ("### gpuwhy: slower", "waiting for data", "p = 0.008", "| in each step | A | B |", "data loading",
                     "at most 1000000 kernels"):
            self.assertIn(part, comment)
        summary = (self.folder / "summary.md").read_text()
        self.assertIn(summary.strip(), comment)
        self.assertIn("result=failed\n", (self.folder / "output.txt").read_text())
        self.assertEqual(self.git("worktree", "list").count("\n"), 0, "the other commit's folder is gone")
        # A folder with results is not overwritten; the same traces the other way round pass and update the comment.
        code, log = self.ci(*recording, **self.without_token(github))
        self.assertEqual((code, "exists and is not empty" in log), (2, True), log)
        sides = ["--base-traces", str(output / "head"), "--head-traces", str(output / "base"), "--output", "second"]
        code, log = self.ci(*sides, **self.without_token(github))
        self.assertEqual(code, 0, log)
        code, log = self.ci("--comment", "--output", "second", **github)
        self.assertEqual((code, log), (0, "gpuwhy_ci: comment updated\n"))
        self.assertEqual(len(self.server.comments), 2)
        self.assertIn("### gpuwhy: faster", self.server.comments[-1]["body"])
        self.assertIn("PATCH /repos/team/sample/issues/comments/11", self.server.seen)
        self.documented_interval(output)
        # A fork's token may only read: the result is the same.
        self.server.read_only = True
        code, log = self.ci("--comment", "--output", "second", "--title", "other", **github)
        self.assertEqual((code, "no comment: HTTP Error 403" in log), (0, True), log)

    def without_token(self, environment):
        return {name: value for name, value in environment.items() if not name.endswith("_TOKEN")}

    def test_a_token_where_a_command_is_recorded_is_named(self):
        base, _ = self.commit(FAST), self.commit(FAST)
        code, log = self.ci("--command", f"{WITHOUT_TOKENS} && sh train.sh", "--runs", "1", **self.github(base))
        self.assertEqual(code, 0, log)
        self.assertIn("can read GITHUB_TOKEN from this process: set it only for --comment", log)
        self.assertEqual(self.server.seen, [])

    def documented_interval(self, output):
        """The document names the fewest runs that give an interval."""
        page = (ROOT / "docs" / "guide" / "ci.md").read_text()
        [pair] = re.findall(r"interval needs (\d) runs of each, or (\d) and (\d)", page)
        each, few, many = map(int, pair)
        for base, head, has_one in [(each, each, True), (each - 1, each - 1, False), (few, many, True), (few, many - 1, False)]:
            sides = []
            for side, count in (("base", base), ("head", head)):
                sides.append(tempfile.mkdtemp(dir=self.folder))
                for trace in sorted((output / side).glob("*.gpuwhy"))[:count]:
                    (pathlib.Path(sides[-1]) / trace.name).symlink_to(trace)
            finished = subprocess.run([BINARIES / "gpuwhy", "diff", "--json", *sides], capture_output=True, text=True, check=True)
            [device] = json.loads(finished.stdout)["devices"]
            self.assertEqual(device["runs"]["confidence"] > 0, has_one, (base, head))

    def test_the_same_program_passes_with_a_note_on_gitlab(self):
        base, _ = self.commit(FAST), self.commit(FAST)
        gitlab = {"CI_API_V4_URL": f"http://127.0.0.1:{self.server.server_port}/api/v4", "CI_PROJECT_ID": "3",
                  "CI_MERGE_REQUEST_IID": "9", "GITLAB_TOKEN": "secret", "CI_MERGE_REQUEST_DIFF_BASE_SHA": base}
        self.server.me = {"id": 8, "username": "project_3_bot"}
        code, log = self.ci("--command", f"{WITHOUT_TOKENS} && sh train.sh", "--runs", "1", "--fail-on", "counts,slower=5",
                            **self.without_token(gitlab))
        self.assertEqual(code, 0, log)
        code, comment = self.ci("--comment", **gitlab)
        self.assertEqual((code, comment), (0, "gpuwhy_ci: comment created\n"))
        self.assertIn("counts passed: no more in a step", log)
        self.assertIn("gpuwhy_ci: passed", log)
        self.assertIn("POST /api/v4/projects/3/merge_requests/9/notes", self.server.seen)
        self.assertIn("### gpuwhy: no change", self.server.comments[-1]["body"])

    def test_bisection_finds_the_commit_and_skips_what_does_not_build(self):
        good = self.commit(FAST)
        self.commit("broken")
        self.commit(FAST)
        bad = self.commit(SLOW)
        self.commit(SLOW)
        self.git("bisect", "start", "main", good)
        script = [sys.executable, str(SCRIPT), "--gpuwhy", str(BINARIES / "gpuwhy"), "--bisect", "--command", "sh train.sh",
                  "--setup", f"test -f {ROOT}/testing/fixtures/$(cat program.txt).cupti.zst", "--runs", "1",
                  "--base", good, "--fail-on", "slower=40", "--output", "../steps"]
        finished = subprocess.run(["git", "bisect", "run", *script], cwd=self.repository, env=self.environment(),
                                  capture_output=True, text=True)
        self.assertIn(f"{bad} is the first bad commit", finished.stdout, finished.stderr)
        # Traces of an earlier bisection: not each commit is skipped.
        self.git("bisect", "start", "main", good)
        finished = subprocess.run(["git", "bisect", "run", *script], cwd=self.repository, env=self.environment(),
                                  capture_output=True, text=True)
        log = finished.stdout + finished.stderr
        self.assertRegex(log, r"name another --output, or remove \S+/steps\n")
        self.assertIn("exit code 128", log)

    def test_what_cannot_be_compared_is_an_error_that_says_what_to_do(self):
        base = self.commit(FAST)
        for arguments, wanted in [
            (["--command", "exit 3", "--base", base], "the command ended with 3"),
            (["--command", "true", "--base", base], "left 0 traces"),
            (["--command", "true"], "name a commit with --base"),
            (["--command", "true", "--base", "nowhere"], "git fetch"),
            (["--base-traces", "a", "--head-traces", "b"], "gpuwhy diff"),
            (["--command", "true", "--fail-on", "faster"], "expected limits, counts or slower=PERCENT"),
            (["--command", "true", "--runs", "0"], "expected 1 to 50"),
            (["--command", "true", "--limits=--no-sync '"], "--limits --no-sync ': No closing quotation"),
            ([], "name a --command"),
        ]:
            code, log = self.ci(*arguments, "--output", f"out-{len(os.listdir(self.repository))}")
            self.assertEqual((code, wanted in log), (2, True), log)

    def test_a_wrong_call_ends_a_bisection(self):
        base = self.commit(FAST)
        (self.repository / "new").mkdir()
        for arguments, code, wanted in [
            (["--base", base, "--runs", "0"], 128, "expected 1 to 50"),
            (["--base", base, "--unknown"], 128, "unrecognized arguments"),
            (["--base", "nowhere"], 128, "git fetch"),
            (["--base", base, "--gpuwhy", "nowhere"], 128, "cannot start nowhere"),
            (["--base", base], 125, "the command ended with 3"),
        ]:
            found, log = self.ci("--bisect", "--command", "exit 3", *arguments, "--output", f"out-{len(os.listdir(self.repository))}")
            self.assertEqual((found, wanted in log), (code, True), log)
        command = [sys.executable, str(SCRIPT), "--bisect", "--command", "true", "--base", base, "--gpuwhy", str(BINARIES / "gpuwhy")]
        finished = subprocess.run(command, cwd=self.repository / "new", env=self.environment(), capture_output=True, text=True)
        self.assertEqual((finished.returncode, f"the base {base} has no folder new/" in finished.stderr), (128, True), finished.stderr)
        self.assertEqual(self.git("worktree", "list").count("\n"), 0, "the other commit's folder is gone")


class Comments(unittest.TestCase):
    MARK = "<!-- gpuwhy_ci gpuwhy -->"

    def setUp(self):
        serve(self)
        api = f"http://127.0.0.1:{self.server.server_port}"
        self.forge = gpuwhy_ci.Forge(f"{api}/comments", lambda one: f"{api}/comments/{one}", "PATCH", f"{api}/user", {})

    def said(self, author, **more):
        self.server.comments.append({"id": 2, "body": f"{self.MARK}\nold", "user": author, **more})
        return gpuwhy_ci.comment(self.forge, self.MARK, "new"), [one["body"].split("\n")[-1] for one in self.server.comments[1:]]

    def test_a_bot_updates_the_comment_of_a_bot_only(self):
        self.assertEqual(self.said({"id": 3, "type": "User"}), ("created", ["old", "new"]))
        self.server.comments = self.server.comments[:1]
        self.assertEqual(self.said(BOT), ("updated", ["new"]))

    def test_a_user_updates_their_own_comment_only(self):
        self.server.me = {"id": 3, "type": "User"}
        self.assertEqual(self.said(BOT), ("created", ["old", "new"]))
        self.server.comments = self.server.comments[:1]
        self.assertEqual(self.said({"id": 3, "type": "User"}), ("updated", ["new"]))

    def test_a_comment_that_cannot_be_changed_is_followed_by_another(self):
        self.assertEqual(self.said(BOT, locked=True), ("created", ["old", "new"]))


class Codes(unittest.TestCase):
    def test_an_unexpected_error_is_no_answer(self):
        for more, code in ([], 2), (["--bisect"], 125):
            with unittest.mock.patch("sys.argv", ["gpuwhy_ci.py", "--command", "true", *more]), \
                    unittest.mock.patch.object(gpuwhy_ci, "compared", side_effect=KeyError("steps")), \
                    unittest.mock.patch("sys.stderr", io.StringIO()) as log:
                self.assertEqual(gpuwhy_ci.main(), code)
            self.assertIn("KeyError: 'steps'", log.getvalue())


class Workflows(unittest.TestCase):
    def test_actions_are_named_by_commit(self):
        """A tag can be moved to other code."""
        files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
        used = [name for file in files for name in re.findall(r"uses: (\S+)", file.read_text())]
        self.assertGreater(len(used), 5)
        self.assertEqual([name for name in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name)], [])


class Comment(unittest.TestCase):
    def test_what_is_missing_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-I", str(SCRIPT), "--comment", "--output", folder]
            commented = lambda: subprocess.run(command, env={"GITHUB_TOKEN": "x"}, capture_output=True, text=True)  # noqa: E731
            finished = commented()
            self.assertEqual((finished.returncode, "summary.md: No such file" in finished.stderr), (2, True), finished)
            (pathlib.Path(folder) / "summary.md").write_text("## gpuwhy\n")
            finished = commented()
            self.assertEqual((finished.returncode, "this is no pull or merge request" in finished.stderr), (2, True), finished)


class Inputs(unittest.TestCase):
    def test_the_action_gives_the_token_to_no_step_that_records(self):
        steps = (ROOT / "action.yml").read_text().split("\n  steps:\n")[1].split("\n    - ")
        with_token = [step for step in steps if "inputs.token }}" in step]
        self.assertEqual((len(steps), len(with_token)), (2, 1))
        self.assertRegex(with_token[0], r"gpuwhy_ci\.py\" --comment\n")
        self.assertNotIn("INPUT_COMMAND", with_token[0])

    def test_an_empty_input_is_the_default_but_for_the_gates(self):
        empty = {"INPUT_COMMAND": "x", "INPUT_RUNS": "", "INPUT_BASE": "", "INPUT_FAIL_ON": ""}
        with unittest.mock.patch.dict(os.environ, empty), unittest.mock.patch("sys.argv", ["gpuwhy_ci.py"]):
            options = gpuwhy_ci.parsed()
        self.assertEqual((options.runs, options.base, gpuwhy_ci.gate_words(options)), ("5", "auto", []))

    def test_the_action_passes_every_option_of_the_script(self):
        action = (ROOT / "action.yml").read_text()
        declared = re.findall(r"^  ([\w-]+):$", action.split("\noutputs:")[0], re.M)
        passed = dict(re.findall(r"INPUT_(\w+): \$\{\{ inputs\.([\w-]+) \}\}", action))
        options = re.findall(r'^    option\("([\w-]+)"', SCRIPT.read_text(), re.M)
        self.assertEqual(declared, options + ["token", "only-comment"])
        self.assertEqual(passed, {name.upper().replace("-", "_"): name for name in options})
        defaults = dict(re.findall(r'^  ([\w-]+):\n    description: .*\n    default: "?([^"\n]*)', action, re.M))
        for of_action in ("token", "only-comment"):
            defaults.pop(of_action)
        with unittest.mock.patch.dict(os.environ, {"INPUT_COMMAND": "x"}), unittest.mock.patch("sys.argv", ["gpuwhy_ci.py"]):
            parsed = vars(gpuwhy_ci.parsed())
        self.assertEqual(parsed["command"], "x")
        self.assertEqual(defaults, {name: parsed[name.replace("-", "_")] for name in defaults})
        self.assertEqual(len(defaults), 6)


if __name__ == "__main__":
    unittest.main()
