"""Notebooks: `%load_ext gpuwhy`, then `%%gpuwhy` over a cell; or a report, a trace or a profile as the last value.

The first part of the output is plain HTML, which survives on sites that strip scripts and frames. The page follows in a
frame without access to the notebook.
"""

from __future__ import annotations

import argparse
import html
import shlex
import sys
from typing import TYPE_CHECKING, Any, Mapping, NoReturn, cast

from ._errors import CommandFailed, NotFound, NotMeasured, VersionMismatch

if TYPE_CHECKING:
    from ._report import Report
    from ._session import Profile
    from ._trace import Trace

# Largest page in a notebook, bytes: it is stored in the notebook's file.
MOST_BYTES = 5_000_000
# Height of the page's frame, pixels.
HEIGHT = 480
# Numbers of rows in the static part.
_LEAVES, _KERNELS = 6, 5


def static_html(report: Report) -> str:
    """The report without scripts: bottleneck, evidence, time by leaf, longest kernels."""
    bottleneck = report.bottleneck
    parts = [f"<div><b>{_escape(bottleneck.cause)}</b>: {bottleneck.share:.0%}</div>"]
    if bottleneck.evidence:
        parts.append("<ul>" + "".join(f"<li>{_escape(text)}</li>" for text in bottleneck.evidence[:4]) + "</ul>")
    if bottleneck.recommendation:
        parts.append(f"<div>{_escape(bottleneck.recommendation)}</div>")
    for device in report.devices:
        # As for the bottleneck: start-up would hide the limits of the steps.
        steady: Mapping[str, int] = device.raw["steady_leaves"]
        leaves, part = (steady, "after start-up") if any(steady.values()) else (device.leaves, "whole run")
        total = sum(leaves.values()) or 1
        longest = sorted(leaves.items(), key=lambda item: -item[1])[:_LEAVES]
        rows = "".join(
            f"<tr><td>{_escape(leaf)}</td><td>{ns / total:.1%}</td>"
            f'<td><div style="background:#4c78a8;height:0.8em;width:{200 * ns / total:.0f}px"></div></td></tr>'
            for leaf, ns in longest if ns)
        parts.append(f"<div>GPU {device.id} {_escape(device.name)}, {part}, by cause</div><table>{rows}</table>")
        kernels = "".join(
            f"<tr><td>{_escape(str(row['name'])[:80])}</td><td>{row['count']}</td><td>{row['total_ns'] / 1e6:.3f} ms</td></tr>"
            for row in device.kernels[:_KERNELS])
        if kernels:
            parts.append(f"<table><tr><th>kernel</th><th>launches</th><th>time</th></tr>{kernels}</table>")
    return "".join(parts)


def _escape(text: str) -> str:
    return html.escape(text, quote=True)


def report_bundle(report: Report) -> dict[str, str]:
    """Notebook output for a report."""
    return {"text/plain": report.text or repr(report), "text/html": static_html(report)}


def trace_bundle(trace: Trace, height: int = HEIGHT, timeline: bool = True) -> dict[str, str]:
    """Notebook output for a trace: the report, and the page unless it is too large."""
    shown = report_bundle(trace.report)
    if timeline:
        shown["text/html"] += _frame(trace, height)
    return shown


def bundle(profile: Profile) -> dict[str, str]:
    """Notebook output for a profile: only its state until it has ended."""
    try:
        report = profile.report
    except LookupError:
        return {"text/plain": "<Profile that has measured nothing yet>"}
    return trace_bundle(profile.open()) if profile.traces else report_bundle(report)


def _frame(trace: Trace, height: int) -> str:
    from ._trace import temporary_folder

    path = temporary_folder() / "page.html"
    try:
        trace.html(path, force=True)
    except CommandFailed as error:
        return f"<div>The page cannot be made: {_escape(str(error))}</div>"
    size = path.stat().st_size
    if size > MOST_BYTES:
        return (f"<div>The page has {size / 1e6:.1f} MB, too much for a notebook: "
                f"<code>gpuwhy report --open {_escape(str(trace.path))}</code> opens it.</div>")
    page = path.read_text(encoding="utf-8")
    # The sandbox gives the page a separate origin: it can access neither the notebook nor its storage.
    return (f'<iframe sandbox="allow-scripts" style="width:100%;height:{height}px;outline:1px solid #ccc" '
            f'srcdoc="{_escape(page)}"></iframe>')


class _Shown:
    """A value with precomputed notebook output."""

    def __init__(self, shown: dict[str, str]) -> None:
        self._shown = shown

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self._shown

    def __repr__(self) -> str:
        return self._shown["text/plain"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"%%gpuwhy: {message}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%gpuwhy", add_help=False)
    parser.add_argument("--trace", metavar="FILE")
    parser.add_argument("--height", type=int, default=HEIGHT)
    parser.add_argument("--no-timeline", action="store_true")
    return parser


def load(shell: Any) -> None:
    """Defines `%%gpuwhy` and prepares this process, so that the sessions of later cells are complete."""

    def gpuwhy(line: str, cell: str) -> None:
        """Measures a cell: `%%gpuwhy [--trace FILE] [--height PIXELS] [--no-timeline]`."""
        import IPython.display

        from ._session import profile
        from ._trace import temporary_folder

        options = _parser().parse_args(shlex.split(line))
        path = options.trace or temporary_folder() / "cell.gpuwhy"
        measured = profile(path, quiet=True, history=False)
        measured.start()
        try:
            # Shows the last value and errors as without the magic.
            shell.run_cell(cell, store_history=False)
        finally:
            measured.stop()
        shown = trace_bundle(measured.open(), options.height, not options.no_timeline)
        # The types of IPython are incomplete.
        cast(Any, IPython.display).display(_Shown(shown))

    shell.register_magic_function(gpuwhy, "cell", "gpuwhy")
    from ._session import State, prepare

    try:
        if prepare() is State.LATE:
            print("gpuwhy: CUDA was used before %load_ext gpuwhy, so reports may miss calls of the host. "
                  "Restart the kernel and load the extension in the first cell.", file=sys.stderr)
    except (NotMeasured, NotFound, VersionMismatch) as error:
        print(f"gpuwhy: nothing can be measured here: {error}", file=sys.stderr)
