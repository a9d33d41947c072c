"""The command lines and Python snippets of README.md, SKILL.md and docs/, and the requirements of each to run unchanged.

A line is run in a folder that has the files in `GIVEN`, or is in `NOT_RUN` with the reason; test_documented.py fails
for a line that is neither. Blocks marked sh are lines of a shell, as are indented lines and inline code that begin with
one of `PROGRAMS` and are complete commands.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import pathlib
import re
import shlex

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

PROGRAMS = ("gpuwhy", "python", "mpirun", "mpiexec", "srun")
COMMAND = re.compile(rf"(?:[A-Z][A-Z0-9_]*=\S+ )*(?:{'|'.join(PROGRAMS)}) ")
# Inline code is mostly the name of a verb with an option; these are complete commands.
WHOLE = re.compile(r" -- \S|^(?:CUDA|GPUWHY)_\w+=\S+ |^gpuwhy doctor --\w+$|^gpuwhy kernels --query")

# Files in the folder, by name (tests/gpu/checks/docs.py makes it).
GIVEN = {
    "train.py", "train_fixed.py", "script.py", "PROGRAM", "COMMAND", "./program", "TRACE", "A", "B", "RUN/", "run1/", "run2/", "run.gpuwhy",
    "gpuwhy-4711.gpuwhy", "gpuwhy-4711.jsonl.gz", "traces/4711.gpuwhy", "before.gpuwhy", "after.gpuwhy", "rank*.gpuwhy", "trace.pt.trace.json.gz", "$PWD/libprof.so", "libprof.so",
    "$PWD/target/release/libprof.so",
}

# Lines that are not run, by pattern, with the reason.
NOT_RUN = {
    # Lines that belong to other checks.
    "cargo *": "builds, no GPU feature",
    "pip install *": "python.install does it",
    "url=*": "downloads a release",
    "curl *": "downloads a release",
    "sha256sum *": "downloads a release: .ci/release checks the sums",
    "tar *": "installs: python/package.py tests what it packs",
    "sudo dpkg *": "installs: python/package.py tests what it packs",
    "man *": "installs: python/package.py tests what it packs",
    "export PATH=*": "the folder of the build is on the PATH",
    "gpuwhy demo*": "needs no GPU: tests/cli_demo.rs",
    "nsys export *": "needs nsys: counts.* read its files",
    "gpuwhy report run.sqlite": "needs nsys: counts.* read its files",
    "gpuwhy hang": "needs a job that waits: ranks.hang",
    "git bisect *": "needs commits of a program: ci/test_gpuwhy_ci.py",
    "gpuwhy diff before/ after/": "needs several runs of two programs: ci/test_gpuwhy_ci.py, tests/cli_diff.rs",
    "import gpuwhy.lightning, *": "a sketch without model and data: python.lightning and python.trainer run both callbacks",
    # Summaries of the available verbs.
    "gpuwhy check TRACE": "names verbs, no command",
    "gpuwhy query QUERY *": "names verbs, no command",
    "gpuwhy lake": "names verbs, no command",
    "gpuwhy export --to FORMAT *": "names verbs, no command",
    "gpuwhy start|stop *": "names verbs, no command",
    "gpuwhy report --explain WORD": "names options, no command",
    "gpuwhy doctor|demo *": "names verbs, no command",
    "* ...": "names options, no command",
    "*[[]--*": "names options, no command",
    # Things that one host with a GPU lacks.
    "*--nproc-per-node 8 *": "needs eight GPUs",
    "*srun *": "needs Slurm",
    "*mpirun *": "needs an MPI program on 16 ranks",
    "*mpiexec *": "needs an MPI program on 16 ranks",
    "*kubectl *": "needs Kubernetes",
    "*{host}*": "needs another host",
    "*node7*": "needs another host",
    "*--nccl *": "needs NCCL between GPUs: nccl.*",
    "*NCCL_PROFILER_PLUGIN=*": "needs NCCL between GPUs: nccl.*",
    "*vllm *": "needs vLLM",
    "gpuwhy report run/4711.gpuwhy": "needs the trace of a vLLM server",
    "*--engine duckdb*": "needs DuckDB: tests/lake.sh",
    "*--engine spark*": "needs a Spark server: tests/lake.sh",
    "gpuwhy hang answers": "needs answers of a job that waits: ranks.hang",
    "gpuwhy hang /tmp/nccl_trace_rank_*": "needs dumps of a job that waits: tests/hang.rs",
    "gpuwhy exporter --textfile *": "needs the folder of node_exporter: tests/exporter.rs",
    "gpuwhy top 4711 4712": "needs a terminal: tests/terminal.sh",
    "gpuwhy top gpuwhy-4711.gpuwhy *": "needs a terminal: tests/terminal.sh",
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a line is run."""

    # Duration of the training in train.py, seconds.
    seconds: float = 3.0
    # It does not end on its own: it is interrupted after this many seconds.
    interrupt: float | None = None
    codes: tuple[int, ...] = (0,)
    # Pattern that its output must match.
    says: str = ""
    # True if it needs the GPU to itself.
    alone: bool = False


RECORDED = r"Recorded \d+ kernel|gpuwhy: process"
# The first pattern that matches counts.
SETTINGS = {
    "gpuwhy run --delay 60 *": Settings(seconds=75.0, says=RECORDED),
    "gpuwhy run -c command *": Settings(),
    "gpuwhy run --mode monitor *": Settings(says="gpuwhy: process"),
    "gpuwhy run --gpu-metrics *": Settings(says=RECORDED, alone=True),
    "gpuwhy run *": Settings(says=RECORDED),
    "CUDA_INJECTION64_PATH=*": Settings(says=RECORDED),
    "python -m gpuwhy train.py*": Settings(says=RECORDED),
    "python -m gpuwhy script.py*": Settings(says=RECORDED),
    "gpuwhy kernels --query*": Settings(),
    "gpuwhy kernels -*": Settings(seconds=8.0, says="kernel", alone=True),
    "gpuwhy doctor --calibrate": Settings(alone=True),
    "gpuwhy doctor": Settings(codes=(0, 1), says="libprof.so"),
    "gpuwhy exporter --once": Settings(),
    "gpuwhy exporter*": Settings(interrupt=4.0),
    "gpuwhy top --follow *": Settings(interrupt=6.0),
    # A limit that the training does not keep, or a newest run that is slower: reported by the exit code.
    "gpuwhy check --history*": Settings(codes=(0, 1), says=" run"),
    "gpuwhy check *": Settings(codes=(0, 1), says="ok |FAIL"),
    # The exit code is 1 where nothing that was tried helps.
    "gpuwhy try *": Settings(codes=(0, 1), says="To keep: |Nothing that was tried helps"),
}


@dataclasses.dataclass(frozen=True)
class Line:
    """A command, or a snippet of Python."""

    page: str
    number: int
    kind: str  # sh, python, notebook
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.removeprefix('docs/')}:{self.number}"

    def settings(self) -> Settings:
        return next((how for pattern, how in SETTINGS.items() if fnmatch.fnmatchcase(self.text, pattern)), Settings())

    def not_run(self) -> str | None:
        """Why it is not run; None if it is."""
        return next((why for pattern, why in NOT_RUN.items() if fnmatch.fnmatchcase(self.text, pattern)), None)


def pages() -> list[pathlib.Path]:
    return [REPOSITORY / "README.md", REPOSITORY / "cli" / "mcp" / "SKILL.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def without_comment(text: str) -> str:
    """A shell line without the text that follows ` #` outside quotes."""
    quote = ""
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (index == 0 or text[index - 1] == " "):
            return text[:index].rstrip()
    return text.rstrip()


def is_open(text: str) -> bool:
    """True if a command continues on the next line."""
    if text.endswith("\\"):
        return True
    try:
        shlex.split(text)
    except ValueError:
        return True
    return False


def lines_of(page: pathlib.Path) -> list[Line]:
    """All lines of a page, in order."""
    name = os.path.relpath(page, REPOSITORY)
    found: list[Line] = []
    kind, block, began = "", "", 0
    for number, raw in enumerate(page.read_text().splitlines(), 1):
        fence = re.match(r"\s*```(\w*)", raw)
        if fence and not kind:
            kind, block, began = fence[1] or "text", "", number + 1
        elif fence:
            if kind == "python" or kind == "text" and block.startswith("%%gpuwhy"):
                found.append(Line(name, began, "python" if kind == "python" else "notebook", block))
            kind = ""
        elif kind == "sh":
            block = f"{block}\n{raw}" if block else raw
            command = without_comment(block)
            if command and not is_open(command):
                found.append(Line(name, number - block.count("\n"), "sh", command))
            if not is_open(command):
                block = ""
        elif kind:
            block += raw + "\n"
        elif raw.startswith("    ") and COMMAND.match(raw.strip()):
            # Text in a second column describes the command.
            found.append(Line(name, number, "sh", re.split(" {2,}", without_comment(raw.strip()))[0]))
        else:
            whole = [code for code in re.findall(r"`([^`]+)`", raw) if COMMAND.match(code) and WHOLE.search(code)]
            found += [Line(name, number, "sh", code) for code in whole]
    return found


def documented() -> list[Line]:
    """All lines in the documents that a user can type, each once."""
    found: dict[str, Line] = {}
    for page in pages():
        for line in lines_of(page):
            found.setdefault(line.text, line)
    return list(found.values())


def missing(line: Line, made: set[str]) -> list[str]:
    """Files and placeholders of a command that are neither in `given` nor made by an earlier line. Adds the files that
    it makes."""
    if line.kind != "sh":
        return []
    words = [word for word in re.split(r"[\s;|]+|&&", re.sub(r"'[^']*'|\"[^\"]*\"", quoted, line.text)) if word]
    wanted = []
    for before, word in zip(["", *words], words):
        name = word.split("=", 1)[1] if re.match(r"[A-Z][A-Z0-9_]*=", word) else word
        if before in ("-o", "--output", "--html", "--to", "--baseline") or before == "OUT":
            made.add(name)
        elif is_file(name) and name not in GIVEN and name not in made:
            wanted.append(name)
    return wanted


def quoted(found: re.Match[str]) -> str:
    """Quoted text is one word, in which only a file name matters."""
    text = found[0][1:-1]
    return text if re.fullmatch(r"[\w./%{}*-]+", text) else "_"


def is_file(word: str) -> bool:
    if word.startswith("-") or re.fullmatch(r"[\d.,]+(ms|s|m|USD)?|[\d.:]+", word):
        return False
    return bool(re.fullmatch(r"[A-Z]{1,}/?|.*/|.*\.(py|so|gpuwhy|gz|json|sqlite)|\$PWD/.*|.*\.\.\..*", word))
