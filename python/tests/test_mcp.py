"""The server of `gpuwhy mcp`, asked by the client of the Python SDK of the Model Context Protocol."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import typing

import pytest

import conftest

mcp = pytest.importorskip("mcp", reason="the package mcp needs Python 3.10")
TRACES = conftest.FIXTURES / "traces"
GPUWHY = pathlib.Path(sys.executable).parent / "gpuwhy" if conftest.INSTALLED else conftest.BINARIES / "gpuwhy"
MOST_BYTES = 8_000
READ_ONLY = {
    "list_traces", "report", "remedies", "what_if", "explain", "steps", "kernels", "operators", "query", "diff", "source",
    "running"}
CONTROL = {"start_capture", "stop_capture"}


@contextlib.asynccontextmanager
async def connected(folder: pathlib.Path, *arguments: str, **variables: str) -> typing.AsyncIterator[mcp.ClientSession]:
    kept = {**conftest.environment(), "GPUWHY_HISTORY": "off", "GPUWHY_CONTROL": str(folder / "sockets"), **variables}
    server = mcp.StdioServerParameters(command=str(GPUWHY), args=["mcp", *arguments, str(folder)], env=kept)
    async with mcp.stdio_client(server) as (reading, writing), mcp.ClientSession(reading, writing) as session:
        yield session


class Asked(typing.NamedTuple):
    text: str
    facts: dict[str, typing.Any]
    failed: bool


async def asked(session: mcp.ClientSession, tool: str, **arguments: object) -> Asked:
    """Calls a tool and checks the size of the answer."""
    result = await session.call_tool(tool, arguments)
    answer = json.loads(result.model_dump_json(by_alias=True))
    text = answer["content"][0]["text"]
    facts = answer.get("structuredContent") or {}
    assert len(answer["content"]) == 1
    compact = json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
    assert len(text.encode()) <= MOST_BYTES and len(compact.encode()) <= MOST_BYTES, tool
    return Asked(text, facts, bool(answer["isError"]))


def session_of(folder: pathlib.Path, talk: typing.Callable[[mcp.ClientSession], typing.Awaitable[None]], *arguments: str,
               **variables: str) -> None:
    async def run() -> None:
        async with connected(folder, *arguments, **variables) as session:
            await session.initialize()
            await talk(session)
    asyncio.run(run())


def report_of(trace: pathlib.Path) -> dict[str, typing.Any]:
    said = subprocess.run([str(GPUWHY), "report", "--json", str(trace)], capture_output=True, text=True, check=True,
                          env={**os.environ, "GPUWHY_HISTORY": "off"})
    return json.loads(said.stdout)


def test_client_and_server_agree_with_and_without_a_handshake() -> None:
    async def tools(session: mcp.ClientSession) -> dict[str, typing.Any]:
        return {tool.name: tool for tool in (await session.list_tools()).tools}

    async def run() -> None:
        async with connected(TRACES) as session:
            begun = await session.initialize()
            said = json.loads(begun.model_dump_json(by_alias=True))
            assert said["serverInfo"]["name"] == "gpuwhy" and "bottleneck" in said["instructions"]
            found = await tools(session)
            assert set(found) == READ_ONLY
            for name, tool in found.items():
                described = json.loads(tool.model_dump_json(by_alias=True))
                assert described["inputSchema"]["type"] == "object" and len(described["description"]) > 80, name
                assert described["annotations"]["readOnlyHint"] is True, name
            assert (await asked(session, "explain", word="dispatch")).text.startswith("dispatch")
        async with connected(TRACES, "--allow-control") as session:
            await session.initialize()
            found = await tools(session)
            assert set(found) == READ_ONLY | CONTROL
            assert json.loads(found["start_capture"].model_dump_json(by_alias=True))["annotations"]["readOnlyHint"] is False
        async with connected(TRACES) as session:
            await session.discover()
            assert session.protocol_version == "2026-07-28"
            assert set(await tools(session)) == READ_ONLY
            assert (await asked(session, "report", trace="sleeper.gpuwhy")).facts["cause"] == "host_cpu"
    asyncio.run(run())


@pytest.mark.parametrize("name", sorted(path.name for path in TRACES.glob("*.gpuwhy")))
def test_every_trace_is_reported_as_by_the_command(name: str) -> None:
    expected = report_of(TRACES / name)
    bottleneck = expected["bottleneck"]

    async def talk(session: mcp.ClientSession) -> None:
        report = await asked(session, "report", trace=name)
        assert not report.failed and report.text.startswith("gpuwhy: process"), report.text
        assert (report.facts["cause"], report.facts["ranking"]) == (bottleneck["cause"], bottleneck["ranking"])
        assert report.facts["share"] == pytest.approx(bottleneck["share"])
        assert [row["id"] for row in report.facts["remedies"]] == [row["id"] for row in bottleneck["remedies"]]
        remedies = await asked(session, "remedies", trace=name)
        assert [row["id"] for row in remedies.facts["remedies"]] == [row["id"] for row in bottleneck["remedies"]]
        simulated = await asked(session, "what_if", trace=name)
        for device, row in zip(expected["devices"], simulated.facts["devices"]):
            known = {scenario["kind"]: scenario["speedup"] for scenario in device["what_if"]["scenarios"]}
            assert all(known[shown["kind"]] == pytest.approx(shown["speedup"]) for shown in row["scenarios"])
        largest = max(expected["devices"], key=lambda device: device["window_ns"], default=None)
        kernels = await asked(session, "kernels", trace=name, limit=3)
        if largest is None:
            assert kernels.failed and name in kernels.text, kernels.text
            return
        wanted = [(row["total_ns"], row["count"]) for row in largest["kernels"][:3]]
        assert [(row["total_ns"], row["count"]) for row in kernels.facts["kernels"]] == wanted
        steps = await asked(session, "steps", trace=name)
        if largest["steps"] is None or largest["steps"]["source"] == "window":
            assert steps.failed and "no steps" in steps.text
        else:
            assert (steps.facts["seen"], steps.facts["median_ns"]) == (largest["steps"]["seen"], largest["steps"]["median_ns"])
            longest = [row["duration_ns"] for row in steps.facts["slow_steps"]]
            assert longest == sorted(longest, reverse=True) and all(step > steps.facts["median_ns"] for step in longest)
    session_of(TRACES, talk)


def test_a_long_report_comes_in_pages() -> None:
    said = subprocess.run([str(GPUWHY), "report", "--full", str(TRACES / "hf_generate.gpuwhy")], capture_output=True, text=True,
                          check=True, env={**os.environ, "GPUWHY_HISTORY": "off"})

    async def talk(session: mcp.ClientSession) -> None:
        lines: list[str] = []
        more = True
        while more:
            page = await asked(session, "report", trace="hf_generate.gpuwhy", full=True, offset=len(lines))
            shown = page.text.splitlines()
            more = "for more ask with offset" in shown[-1]
            lines += shown[:-1] if more else shown
        assert lines == said.stdout.splitlines() and len(lines) > 150
    session_of(TRACES, talk)


def test_sql_is_answered_row_by_row_within_limits() -> None:
    async def talk(session: mcp.ClientSession) -> None:
        described = await asked(session, "query", table="kernels")
        assert "duration_ns" in described.text
        assert "for more ask with offset" in (await asked(session, "query")).text
        one = ["graph_inference.gpuwhy"]
        counted = await asked(session, "query", sql="SELECT count(*) AS n FROM kernels;", traces=one)
        kernels = report_of(TRACES / one[0])["completeness"]["records"]["kernels"]
        assert counted.facts["rows"] == [{"n": kernels}]
        sql = "SELECT start_ns, name FROM kernels ORDER BY start_ns DESC -- the newest"
        seen: list[int] = []
        for offset in (0, 30):
            page = await asked(session, "query", sql=sql, traces=one, limit=30, offset=offset)
            assert len(page.facts["rows"]) == 30 and f"ask with offset: {offset + 30}" in page.facts["left_out"][0]
            seen += [row["start_ns"] for row in page.facts["rows"]]
        assert seen == sorted(seen, reverse=True) and len(set(seen)) > 50
        many = await asked(session, "query", sql="SELECT * FROM kernels", traces=one, limit=500)
        assert 0 < len(many.facts["rows"]) < 500 and many.facts["left_out"]
        none = await asked(session, "query", sql="SELECT * FROM kernels WHERE duration_ns < 0", traces=one)
        assert none.facts["rows"] == [] and "no row meets" in none.facts["left_out"][0]
        for sql, expected in [("SELECT nothing FROM kernels", "nothing"), ("DELETE FROM kernels", "only a SELECT"),
                              ("SELEC 1", "syntax"), ("SELECT 1; SELECT 2", "query"), ("ATTACH '/tmp/x' AS y", "query"),
                              ("SELECT 1) UNION SELECT (2", "query"),
                              ("SELECT length(zeroblob(2000000000)) FROM kernels", "query")]:
            failed = await asked(session, "query", sql=sql, traces=one)
            assert failed.failed and expected in failed.text, (sql, failed.text)
    session_of(TRACES, talk)


def test_only_lines_that_the_report_names_are_shown(tmp_path: pathlib.Path) -> None:
    shutil.copy(TRACES / "sleeper.gpuwhy", tmp_path)
    line = report_of(tmp_path / "sleeper.gpuwhy")["host"]["lines"][0]
    name = pathlib.Path(line["file"]).name
    (tmp_path / "secret.py").write_text("password = 1\n")

    async def talk(session: mcp.ClientSession) -> None:
        missing = await asked(session, "source", trace="sleeper.gpuwhy", file=name, line=line["line"])
        assert missing.failed and "folder of this server" in missing.text
        (tmp_path / name).write_text("".join(f"# line {number}\n" for number in range(1, 200)))
        shown = await asked(session, "source", trace="sleeper.gpuwhy", file=name, line=line["line"], around=2)
        lines = shown.text.splitlines()
        assert lines[0] == f"{name}:" and lines[3] == f">{line['line']:>5}  # line {line['line']}" and len(lines) == 7
        assert "changed since" in lines[6]
        for file, number in [("secret.py", 1), ("/etc/passwd", 1), (name, 1), ("../secret.py", 1)]:
            refused = await asked(session, "source", trace="sleeper.gpuwhy", file=file, line=number)
            assert refused.failed and "does not name this line" in refused.text and "password" not in refused.text
    session_of(tmp_path, talk)


def test_errors_name_what_is_wrong_and_what_to_do(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    whole = (TRACES / "numpy_post.gpuwhy").read_bytes()
    (folder / "cut.gpuwhy").write_bytes(whole[:len(whole) // 2])
    (folder / "empty.gpuwhy").write_bytes(b"")
    (folder / "text.gpuwhy").write_text("hello")
    os.mkfifo(folder / "pipe.gpuwhy")
    shutil.copy(TRACES / "numpy_post.gpuwhy", tmp_path / "outside.gpuwhy")
    shutil.copy(TRACES / "sleeper.gpuwhy", folder)

    async def talk(session: mcp.ClientSession) -> None:
        cut = await asked(session, "report", trace="cut.gpuwhy")
        assert "Damaged" in cut.text and cut.facts["damaged"] and cut.facts["cause"]
        for trace in ["empty.gpuwhy", "text.gpuwhy", "pipe.gpuwhy", "none.gpuwhy", "../outside.gpuwhy",
                      str(tmp_path / "outside.gpuwhy")]:
            failed = await asked(session, "report", trace=trace)
            assert failed.failed and pathlib.Path(trace).name in failed.text, failed.text
        assert "list_traces" in (await asked(session, "report", trace="none.gpuwhy")).text
        assert "outside of" in (await asked(session, "report", trace="../outside.gpuwhy")).text
        assert "folder" in (await asked(session, "report", trace=".")).text
        unlike = await asked(session, "diff", before="sleeper.gpuwhy", after="cut.gpuwhy")
        assert unlike.failed and "different programs" in unlike.text and "sleeper.gpuwhy" in unlike.text
        assert "limit: an integer from" in (await asked(session, "kernels", trace="cut.gpuwhy", limit=0)).text
        assert 'no argument "path"' in (await asked(session, "report", path="cut.gpuwhy")).text
        assert "`trace`" not in (await asked(session, "explain", word="nmae")).text
        missing = await asked(session, "running", pid="4711")
        assert missing.failed and "no process 4711" in missing.text
        for tool in CONTROL:
            refused = await asked(session, tool, pid="4711")
            assert refused.failed and "--allow-control" in refused.text
        with pytest.raises(Exception, match="there is no tool"):
            await session.call_tool("rm", {})
        listed = await asked(session, "list_traces")
        assert {row["trace"] for row in listed.facts["traces"]} >= {"cut.gpuwhy", "sleeper.gpuwhy"}
        assert "outside.gpuwhy" not in listed.text
    session_of(folder, talk)


def test_a_running_program_is_listed_and_controlled_if_allowed(tmp_path: pathlib.Path) -> None:
    host = conftest.BINARIES / "gpuwhy-replay-host"
    if not host.is_file():
        pytest.skip("gpuwhy-replay-host was not built")
    sockets = tmp_path / "sockets"
    sockets.mkdir(mode=0o700)
    variables = conftest.environment("multi_stream", GPUWHY_CONTROL=str(sockets), GPUWHY_OUTPUT=str(tmp_path / "run.gpuwhy"),
                                     CUDA_INJECTION64_PATH=str(conftest.built("libprof.so")))
    # It waits at its end for a file that never comes.
    program = subprocess.Popen([str(host), "--call", "1000000:waitFor=never"], env=variables, cwd=tmp_path,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = str(program.pid)

    async def talk(session: mcp.ClientSession) -> None:
        while not list(sockets.glob("*.sock")):
            assert program.poll() is None
            await asyncio.sleep(0.05)
        listed = await asked(session, "running")
        assert [row["process"] for row in listed.facts["processes"]] == [pid]
        assert listed.facts["processes"][0]["state"] == "capturing"
        detailed = await asked(session, "running", pid=pid)
        assert detailed.facts["processes"][0]["devices"] is not None
        assert (await asked(session, "stop_capture", pid=pid)).text == "capture 1 has ended\n"
        assert (await asked(session, "start_capture", pid=pid)).text == "capture 2 has begun\n"
        assert "nothing changed" in (await asked(session, "start_capture", pid=pid)).text
        assert "at_step" in (await asked(session, "start_capture", pid=pid, steps=3)).text
    try:
        session_of(tmp_path, talk, "--allow-control", GPUWHY_CONTROL=str(sockets))
    finally:
        program.kill()
        program.wait()


def test_the_example_of_the_guide(tmp_path: pathlib.Path) -> None:
    """Repeats the session of docs/guide/agents.md; GPUWHY_TRANSCRIPT=FILE writes it in full."""
    host = conftest.BINARIES / "gpuwhy-replay-host"
    if not host.is_file():
        pytest.skip("gpuwhy-replay-host was not built")
    for name, fixture in [("before", "resnet_workers0"), ("after", "resnet_workers4")]:
        variables = conftest.environment(
            fixture, CUDA_INJECTION64_PATH=str(conftest.built("libprof.so")), GPUWHY_BUFFER_MEMORY="4G", GPUWHY_CONTROL="off",
            GPUWHY_OUTPUT=f"{name}.gpuwhy", GPUWHY_REPORT="off", XDG_CACHE_HOME=str(tmp_path))
        subprocess.run([str(host)], env=variables, cwd=tmp_path, check=True)
    guide = (conftest.ROOT / "docs" / "guide" / "agents.md").read_text().split("## Example")[1]
    shown = [line[4:] for line in guide.splitlines() if line.startswith("    ")]
    transcript: list[str] = []

    async def talk(session: mcp.ClientSession) -> None:
        answer: list[str] = []
        for line in shown:
            tool, _, arguments = line.partition(" ")
            if tool in READ_ONLY and arguments.startswith("{"):
                answer = (await asked(session, tool, **json.loads(arguments))).text.splitlines()
                transcript.extend([line, *answer, ""])
            else:
                assert line in answer, f"{line!r} is not in the answer:\n" + "\n".join(answer)
    session_of(tmp_path, talk)
    assert len(transcript) > len(shown) + 10
    if "GPUWHY_TRANSCRIPT" in os.environ:
        pathlib.Path(os.environ["GPUWHY_TRANSCRIPT"]).write_text("\n".join(transcript))
