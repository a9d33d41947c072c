#!/usr/bin/env python3
"""Compares two commits, or two folders of traces, with gpuwhy: a summary, a comment, and an exit code.

    gpuwhy_ci.py --command 'python train.py --steps 200' --base main       records 5 runs of each commit, interleaved
    gpuwhy_ci.py --base-traces before/ --head-traces after/                compares what was recorded
    gpuwhy_ci.py --comment                                                 comments the summary of a comparison
    git bisect run gpuwhy_ci.py --bisect --command ... --base GOOD --fail-on slower=5

It is what the GitHub action in action.yml runs, and needs only git, gpuwhy and Python. Runs of the two commits alternate,
so that a host that becomes slower affects both.

With --comment it creates or updates one comment in a pull request of GitHub, or a merge request of GitLab, with the token
in GITHUB_TOKEN or GITLAB_TOKEN. That is a call of its own because commands can read the environment of the processes that
started them: do not set these variables where something is recorded.

Exit codes: 0 passed, or inconclusive; 1 failed by --fail-on; 2 not compared. With --comment: 0, also if the token may not
comment; 2 no summary, token or request.
With --bisect: 0 good; 1 bad; 125 inconclusive, or the commit does not build or run; 128 no commit can be compared, which
ends the bisection.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import traceback
import urllib.error
import urllib.request
from typing import Any, Callable, Iterator, NamedTuple, NoReturn

PASSED, FAILED, NOT_COMPARED = 0, 1, 2
# git takes each code from 1 to 127 for an answer about the commit.
SKIP_COMMIT, END_BISECTION = 125, 128
TOKENS = "GITHUB_TOKEN", "GITLAB_TOKEN"
# The counts of a step whose increase `counts` refuses: more of them is more work.
COUNTED = ("calls that launch kernels or graphs", "kernels", "synchronizing calls", "copies", "memsets", "copied bytes")
# GitHub takes 65,536 characters.
LONGEST_COMMENT = 60_000
LAST_LINES = 20


class NotCompared(Exception):
    """The runs could not be made or compared."""


class NoneCompared(NotCompared):
    """Nor could those of any other commit."""


class Gate(NamedTuple):
    """An answer to one word of --fail-on: True passed, False failed, None inconclusive."""

    name: str
    passed: bool | None
    reason: str


def main() -> int:
    options = parsed()
    try:
        return commented(options) if options.comment else answered(options, compared(options))
    except NotCompared as error:
        print(f"gpuwhy_ci: {error}", file=sys.stderr)
        code = END_BISECTION if isinstance(error, NoneCompared) else SKIP_COMMIT
    # The code of a Python program that ends with an exception is 1, as if the commit were worse.
    except Exception:
        traceback.print_exc()
        code = SKIP_COMMIT
    return code if options.bisect else NOT_COMPARED


def answered(options: argparse.Namespace, gates: list[Gate]) -> int:
    """Prints the answers; returns the exit code."""
    failed = any(gate.passed is False for gate in gates)
    undecided = any(gate.passed is None for gate in gates)
    result = "failed" if failed else "inconclusive" if undecided else "passed"
    for gate in gates:
        print(f"gpuwhy_ci: {words(gate)}")
    print(f"gpuwhy_ci: {result}")
    if path := os.environ.get("GITHUB_OUTPUT"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"result={result}\nfolder={options.output}\n")
    if failed:
        return FAILED
    return SKIP_COMMIT if undecided and options.bisect else PASSED


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(END_BISECTION if "--bisect" in sys.argv else NOT_COMPARED, f"{self.prog}: error: {message}\n")


def parsed() -> argparse.Namespace:
    # Without abbreviations, so that `error` knows --bisect.
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)

    def option(name: str, about: str, default: str = "") -> None:
        # The action passes its inputs in the environment, where no shell interprets them.
        variable = "INPUT_" + name.upper().replace("-", "_")
        shown = about + (f" [{default}]" if default else "")
        value = os.environ.get(variable, default)
        # An empty input is one that was left out, except that no gate is a choice.
        parser.add_argument(f"--{name}", default=value if name == "fail-on" else value or default, help=shown)

    option("command", "shell command to record, in the folder of each commit")
    option("runs", "number of runs of each commit; 4 or more give an interval", "5")
    option("base", "commit to compare with; `auto`: the one that the pull or merge request is based on", "auto")
    option("setup", "shell command that prepares a commit, before its first run")
    option("base-traces", "trace, or folder of traces, of the base, instead of recording it")
    option("head-traces", "the same of this commit")
    option("limits", "options of gpuwhy check for the runs of this commit: --limits='--no-sync'")
    option("fail-on", "limits, counts (more launches, kernels, synchronizations, copies or bytes in a step), slower=PERCENT; "
           "empty: nothing fails", "limits,counts,slower=5")
    option("title", "heading of the comment; one comment for each", "gpuwhy")
    option("gpuwhy", "the command gpuwhy", "gpuwhy")
    option("output", "new folder for traces and summary.md", "gpuwhy-ci")
    parser.add_argument("--bisect", action="store_true", help="exit codes for `git bisect run`")
    parser.add_argument("--comment", action="store_true", help="only comment summary.md in --output, under --title")
    options = parser.parse_args()
    if options.comment:
        return options
    if not options.runs.isdigit() or not 1 <= int(options.runs) <= 50:
        parser.error(f"--runs {options.runs}: expected 1 to 50")
    if not options.command and not (options.base_traces and options.head_traces):
        parser.error("name a --command to record, or --base-traces and --head-traces")
    for word in gate_words(options):
        name, _, percent = word.partition("=")
        if name not in ("limits", "counts", "slower") or (percent and (name != "slower" or number(percent) is None)):
            parser.error(f"--fail-on {word}: expected limits, counts or slower=PERCENT")
    try:
        options.limits = shlex.split(options.limits)
    except ValueError as error:
        parser.error(f"--limits {options.limits}: {error}")
    for name in TOKENS:
        if os.environ.pop(name, "") and options.command:
            print(f"gpuwhy_ci: the command to record can read {name} from this process: set it only for --comment",
                  file=sys.stderr)
    return options


def gate_words(options: argparse.Namespace) -> list[str]:
    return [word.strip() for word in options.fail_on.split(",") if word.strip()]


def number(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        if 0 <= float(text) < 1e6:
            return float(text)
    return None


def compared(options: argparse.Namespace) -> list[Gate]:
    """Records what is missing, compares, writes the summary; returns the answers."""
    output = pathlib.Path(options.output).absolute()
    if options.bisect:
        # Each commit of a bisection gets a folder.
        commit = git("rev-parse", "--short", "HEAD")
        output = output / commit
    if output.exists() and any(output.iterdir()):
        whole = output.parent if options.bisect else output
        raise NoneCompared(f"{output} exists and is not empty: name another --output, or remove {whole}")
    output.mkdir(parents=True, exist_ok=True)
    base, head = recorded(options, output)
    markdown = gpuwhy(options, "diff", "--format", "markdown", base, head)
    if markdown.returncode:
        raise NotCompared(f"gpuwhy diff: {markdown.stderr.strip()}")
    difference = json.loads(gpuwhy(options, "diff", "--json", base, head).stdout)
    if not difference["devices"]:
        raise NotCompared("no GPU did anything in the runs")
    gates, check = [], ""
    for word in gate_words(options):
        name, _, percent = word.partition("=")
        if name == "limits" and options.limits:
            gate, check = limits(options, head)
            gates.append(gate)
        elif name == "counts":
            gates.append(counts(difference))
        elif name == "slower":
            gates.append(slower(difference, number(percent) or 0.0))
    summarized(options, output, gates, markdown.stdout + check)
    return gates


def recorded(options: argparse.Namespace, output: pathlib.Path) -> tuple[str, str]:
    """Traces of the base and of this commit; those that are not given are recorded alternately."""
    sides: dict[str, pathlib.Path] = {}
    with contextlib.ExitStack() as stack:
        if not options.base_traces:
            sides["base"] = stack.enter_context(checked_out(base_commit(options)))
        if not options.head_traces:
            sides["head"] = pathlib.Path.cwd()
        for folder in sides.values():
            if options.setup:
                print(f"gpuwhy_ci: setup in {folder}", flush=True)
                finished = subprocess.run(options.setup, shell=True, cwd=folder)
                if finished.returncode:
                    raise NotCompared(f"setup ended with {finished.returncode} in {folder}")
        for run in range(1, int(options.runs) + 1):
            # Which one goes first changes, too.
            for side in sorted(sides, reverse=run % 2 == 0):
                record(options, sides[side], output / side, run)
    # The comment shows these names.
    return options.base_traces or os.path.relpath(output / "base"), options.head_traces or os.path.relpath(output / "head")


def record(options: argparse.Namespace, folder: pathlib.Path, to: pathlib.Path, run: int) -> None:
    to.mkdir(exist_ok=True)
    before = set(to.glob("*.gpuwhy"))
    # A percent sign of the folder's name is no pattern.
    trace = str(to).replace("%", "%%") + f"/run-{run:02}-%p.gpuwhy"
    command = [options.gpuwhy, "run", "--report", "off", "--history", "off", "--output", trace]
    log = to / f"run-{run:02}.log"
    with open(log, "wb") as file:
        command += ["--", "sh", "-c", options.command]
        try:
            code = subprocess.run(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT).returncode
        except OSError as error:
            raise NoneCompared(f"cannot start {options.gpuwhy}: {error}") from None
    traces = set(to.glob("*.gpuwhy")) - before
    print(f"gpuwhy_ci: {to.name}, run {run} of {options.runs}", flush=True)
    if code:
        lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        raise NotCompared("\n  ".join([f"the command ended with {code} in {folder}; its last lines:", *lines]))
    if len(traces) != 1:
        raise NotCompared(
            f"run {run} of {to.name} left {len(traces)} traces, one is expected: {'see ' + str(log) if not traces else ''}"
            "for a command of several CUDA processes, record one of them yourself and pass --base-traces and --head-traces")


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[pathlib.Path]:
    """A folder with this commit, in which the folder inside the repository is the current one."""
    within = git("rev-parse", "--show-prefix")
    with tempfile.TemporaryDirectory(prefix="gpuwhy-ci-") as folder:
        tree = pathlib.Path(folder) / "base"
        git("worktree", "add", "--detach", "--force", str(tree), commit)
        try:
            if not (tree / within).is_dir():
                raise NoneCompared(f"the base {commit} has no folder {within}: name a newer --base, or start in another folder")
            yield tree / within
        finally:
            git("worktree", "remove", "--force", str(tree))


def base_commit(options: argparse.Namespace) -> str:
    base = options.base
    if base == "auto":
        base = (event().get("pull_request") or {}).get("base", {}).get("sha") or \
            os.environ.get("CI_MERGE_REQUEST_DIFF_BASE_SHA", "")
        if not base:
            raise NoneCompared("this is no pull request with a base: name a commit with --base, or --base-traces")
    if git_status("rev-parse", "--quiet", "--verify", f"{base}^{{commit}}"):
        # A checkout of depth 1 has only its own commit.
        git("fetch", "--quiet", "--depth=1", "origin", base)
        base = "FETCH_HEAD"
    return git("rev-parse", f"{base}^{{commit}}")


def git_status(*arguments: str) -> int:
    return subprocess.run(["git", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def git(*arguments: str) -> str:
    finished = subprocess.run(["git", *arguments], capture_output=True, text=True)
    if finished.returncode:
        raise NoneCompared(f"git {' '.join(arguments)}: {finished.stderr.strip()}")
    return finished.stdout.strip()


def gpuwhy(options: argparse.Namespace, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run([options.gpuwhy, *arguments], capture_output=True, text=True)
    except OSError as error:
        raise NoneCompared(f"cannot start {options.gpuwhy}: {error}") from None


def limits(options: argparse.Namespace, head: str) -> tuple[Gate, str]:
    finished = gpuwhy(options, "check", "--runs", "--format", "markdown", *options.limits, head)
    if finished.returncode == 1 and "|" in finished.stdout:
        return Gate("limits", False, "a limit does not hold"), "\n" + finished.stdout
    if finished.returncode:
        raise NotCompared(f"gpuwhy check: {(finished.stderr or finished.stdout).strip()}")
    undecided = "| open |" in finished.stdout
    reason = "some are inconclusive" if undecided else "all hold"
    return Gate("limits", None if undecided else True, reason), "\n" + finished.stdout


def counts(difference: dict[str, Any]) -> Gate:
    rows = [row for device in difference["devices"] for row in device["counts"]]
    if not rows:
        return Gate("counts", None, "steps do not repeat in every run, so nothing is counted")
    more = [row for row in rows if row["name"] in COUNTED and row["change"] > 0]
    text = ", ".join(f"{row['change']:+g} {row['name']}" for row in more)
    return Gate("counts", not more, f"{text} in a step" if more else "no more in a step")


def slower(difference: dict[str, Any], percent: float) -> Gate:
    limit = 1 + percent / 100
    worst = Gate(f"slower={percent:g}", True, "")
    for device in difference["devices"]:
        runs = device["runs"]
        if not runs:
            return worst._replace(passed=None, reason="a step takes no time")
        low, high = runs["low"], runs["high"]
        if device["outcome"] == "unchanged":
            low = high = 1.0
        passed = False if low > limit else True if high <= limit else None
        reason = f"a step takes {runs['ratio']:.3f} times as long ({low:.3f} to {high:.3f}), up to {limit:g} is allowed"
        if not worst.reason or passed is False or (passed is None and worst.passed):
            worst = worst._replace(passed=passed, reason=reason)
    return worst


def words(gate: Gate) -> str:
    answer = {True: "passed", False: "FAILED", None: "inconclusive"}[gate.passed]
    return f"{gate.name} {answer}: {gate.reason}"


def summarized(options: argparse.Namespace, output: pathlib.Path, gates: list[Gate], markdown: str) -> None:
    """Writes the summary."""
    lines = [f"- {words(gate)}" for gate in gates]
    text = f"## {options.title}\n\n" + "\n".join(lines) + f"\n\n{markdown}"
    (output / "summary.md").write_text(text, encoding="utf-8")
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(text + "\n")


def commented(options: argparse.Namespace) -> int:
    """Comments the summary of a comparison; returns the exit code."""
    summary = pathlib.Path(options.output) / "summary.md"
    try:
        text = summary.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise NotCompared(f"{summary}: {error.strerror}; it is the result of a comparison") from None
    forge = github(os.environ.get(TOKENS[0], "")) or gitlab(os.environ.get(TOKENS[1], ""))
    if not forge:
        raise NotCompared(f"nothing to comment on: this is no pull or merge request, or there is no {' or '.join(TOKENS)}")
    # It finds the comment again.
    mark = f"<!-- gpuwhy_ci {options.title} -->"
    try:
        print(f"gpuwhy_ci: comment {comment(forge, mark, text)}")
    except (OSError, ValueError) as error:
        # A pull request of a fork has a token that may only read.
        print(f"gpuwhy_ci: no comment: {error}; the summary has the result", file=sys.stderr)
    return PASSED


class Forge(NamedTuple):
    """Comments on one pull or merge request."""

    comments: str
    one: Callable[[int], str]
    change: str
    # Address of the token's own user.
    user: str
    headers: dict[str, str]


def event() -> dict[str, Any]:
    path = os.environ.get("GITHUB_EVENT_PATH")
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8")) if path else {}


def github(token: str) -> Forge | None:
    repository = os.environ.get("GITHUB_REPOSITORY")
    number = (event().get("pull_request") or {}).get("number")
    if not (token and repository and number):
        return None
    api = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    issues = f"{api}/repos/{repository}/issues"
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
    return Forge(f"{issues}/{number}/comments", lambda comment: f"{issues}/comments/{comment}", "PATCH", f"{api}/user",
                 headers)


def gitlab(token: str) -> Forge | None:
    names = ("CI_API_V4_URL", "CI_PROJECT_ID", "CI_MERGE_REQUEST_IID")
    url, project, request = (os.environ.get(name) for name in names)
    if not (url and project and request and token):
        return None
    notes = f"{url}/projects/{project}/merge_requests/{request}/notes"
    return Forge(notes, lambda note: f"{notes}/{note}", "PUT", f"{url}/user", {"PRIVATE-TOKEN": token})


def comment(forge: Forge, mark: str, text: str) -> str:
    """Creates the comment, or updates its own one with this mark; returns which."""
    body = f"{mark}\n{text}"
    if len(body) > LONGEST_COMMENT:
        body = body[:LONGEST_COMMENT] + "\n\n(cut off; the job's summary has all)"
    user = asked_if_allowed(forge, "GET", forge.user)

    def is_own(one: dict[str, Any]) -> bool:
        # Anyone can write the mark.
        author = one.get("user") or one.get("author") or {}
        # A job's token of GitHub may not ask whose it is; it is a bot's.
        return author.get("id") == user["id"] if user else author.get("type") == "Bot"

    page = 1
    while found := asked(forge, "GET", f"{forge.comments}?per_page=100&page={page}"):
        for one in found:
            if str(one.get("body", "")).startswith(mark) and is_own(one):
                # Another bot's cannot be changed.
                if asked_if_allowed(forge, forge.change, forge.one(one["id"]), {"body": body}):
                    return "updated"
        page += 1
    asked(forge, "POST", forge.comments, {"body": body})
    return "created"


def asked(forge: Forge, method: str, url: str, body: dict[str, str] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {**forge.headers, "Content-Type": "application/json", "User-Agent": "gpuwhy_ci"}
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def asked_if_allowed(forge: Forge, method: str, url: str, body: dict[str, str] | None = None) -> Any:
    """None if the token may not do this."""
    try:
        return asked(forge, method, url, body)
    except urllib.error.HTTPError as error:
        if error.code not in (403, 404):
            raise
        return None


if __name__ == "__main__":
    sys.exit(main())
